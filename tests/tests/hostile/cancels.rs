//! A peer that announces messages and takes them back, and never takes the answers.

use std::{
    thread,
    time::{Duration, Instant},
};

use pinfold::{Endpoint, Error, Gone};
use pinfold_tests::{
    Args, Stage,
    baseline::segments,
    role::{self, hear, say},
    stage::all_end_well,
};

use super::{
    HOSTILE, PATIENCE, SEQ, consumed,
    donations::{RTS, add, announcement},
    is_cut_off, newest,
};

const CANCEL: u64 = 10;
/// More answers than a peer may leave untaken.
const MOST: u64 = 20_000;

#[test]
fn who_takes_back_and_hears_nothing_is_cut_off() {
    let stage = Stage::new(120);
    let mut bored = stage.role("bored").spawn();
    bored.expect("ready");
    let canceller = stage.role("canceller").spawn();
    bored.expect("cut it off");
    all_end_well(&mut [bored, canceller]);
}

pub fn bored(_: &Args) {
    // A small budget, so that not much is granted.
    let builder = Endpoint::builder().unexpected_bytes_max(1 << 20);
    let (endpoint, peer) = role::listen(builder, "victim");
    // No peer rings.
    let end = Instant::now() + 3 * PATIENCE;
    while endpoint.peer(peer).is_some() {
        endpoint.progress().unwrap();
        assert!(Instant::now() < end, "it takes all of it");
    }
    let error = endpoint.recv(peer, 1).unwrap_err();
    let Error::PeerGone { how: Gone::Misbehaved(why), .. } = error else { panic!("{error}") };
    assert!(why.contains("takes messages back"), "{why}");
    say("cut it off");
}

pub fn canceller(_: &Args) {
    let before = segments();
    let (endpoint, victim) = role::connect(Endpoint::builder(), "victim");
    let new = segments().into_iter().find(|segment| !before.contains(segment));
    let segment = new.expect("the connection's");
    // The next messages come after this.
    endpoint.send(victim, HOSTILE, b"").unwrap();
    let end = Instant::now() + 3 * PATIENCE;
    for turn in 0..MOST {
        if is_cut_off(segment) {
            return;
        }
        add(segment, RTS, turn, &announcement(HOSTILE, 1 << 20, 0, 0));
        add(segment, CANCEL, turn, &[]);
        // As many as the ring has descriptors for.
        while turn % 24 == 23 && consumed(segment) & SEQ < newest(segment).0 && !is_cut_off(segment)
        {
            thread::sleep(Duration::from_micros(20));
            let (taken, added) = (consumed(segment), newest(segment));
            assert!(Instant::now() < end, "{taken} of {added:?} are taken");
        }
    }
    hear();
    panic!("it was not cut off");
}
