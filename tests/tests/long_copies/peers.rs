//! Peers that die, close, or take their memory away in the middle of a copy, and a fork meanwhile:
//! the thread that copies is held up, and the others go on with an honest peer.

use std::{thread, time::Duration};

use pinfold::{Arena, Endpoint, Error, Gone, Path, PeerId, SharedArena};
use pinfold_tests::{
    Args, Stage,
    host::{Ended, fork},
    role::{self, PATIENCE, go, hear, say},
    stage::all_end_well,
    stamp,
};

use super::{
    A_WHILE, LONG, SOON, TRIES,
    held::{Held, Holder, LEN},
    ping_pong,
};

/// The ends of an attacker that sends, or receives, while its victim's own memory holds up the
/// copy.
const ENDS: [&str; 3] = ["dies", "closes", "lives"];

/// Bytes of a message of which a quarter takes longer to copy than [`BEGINNING`].
const HIDDEN: usize = 64 << 20;
const BEGINNING: Duration = Duration::from_millis(1);

#[test]
fn a_peer_that_goes_in_the_middle_of_a_copy_holds_up_nobody() {
    for direction in ["in", "out"] {
        for end in ENDS {
            for dedicated in [false, true] {
                let stage = Stage::new(60);
                let paths = "inline,eager,mapped";
                let roles = ["victim", "attacker"].map(|role| {
                    let role = stage.role(role).with("paths", paths);
                    let role = role.with("direction", direction).with("end", end);
                    if dedicated { role.with("dedicated", "") } else { role }
                });
                let [victim, attacker] = roles;
                let mut victim = victim.spawn();
                let heard = victim.hear();
                if heard != "ready" {
                    return pinfold_tests::skip::skip(&heard);
                }
                let mut attacker = attacker.spawn();
                victim.expect("held");
                match end {
                    "dies" => {
                        attacker.kill();
                        assert!(attacker.was_killed());
                    }
                    "closes" => {
                        attacker.say("close");
                        attacker.expect("closed");
                    }
                    _ => {}
                }
                victim.say("on");
                victim.expect("through");
                if end == "lives" {
                    attacker.say("end");
                }
                all_end_well(&mut [victim]);
                assert!(attacker.was_killed() == (end == "dies"));
            }
        }
    }
}

/// The kernel waits for memory of the attacker's, which was there when it was looked at.
#[test]
fn memory_that_goes_in_the_middle_of_a_copy_holds_up_one_thread() {
    for end in ["dies", "remaps"] {
        match (0..TRIES).find_map(|_| hidden(end)) {
            Some(true) => {}
            Some(false) => return,
            None => panic!("no copy waits for memory of a peer"),
        }
    }
}

/// `None`: the memory was looked at after it had gone; `Some(false)`: there is no such memory here.
fn hidden(end: &str) -> Option<bool> {
    let stage = Stage::new(60);
    let role = |role| stage.role(role).with("direction", "hides").with("end", end);
    let mut attacker = role("attacker").spawn();
    let heard = attacker.hear();
    if heard != "attacking" {
        pinfold_tests::skip::skip(&heard);
        return Some(false);
    }
    let mut victim = role("victim").spawn();
    victim.expect("ready");
    if attacker.hear() != "held" {
        return None;
    }
    victim.say("held");
    victim.expect("went on");
    if end == "remaps" {
        attacker.say("remap");
        attacker.expect("remapped");
        victim.expect("through");
    }
    attacker.kill();
    assert!(attacker.was_killed());
    if end == "dies" {
        victim.expect("through");
    }
    all_end_well(&mut [victim]);
    Some(true)
}

pub fn victim(args: &Args) {
    let held = match args.text("direction") {
        "hides" => None,
        _ => match Held::new() {
            Ok(held) => Some(held),
            Err(why) => return say(format_args!("a copy that is held up: {why}")),
        },
    };
    let (endpoint, attacker) = role::listen(args.builder(), "victim");
    let friend = Endpoint::new().unwrap();
    let (to_friend, to_victim) = thread::scope(|s| {
        let calls = s.spawn(|| friend.connect("local:victim").unwrap());
        (endpoint.accept_timeout(PATIENCE).unwrap(), calls.join().unwrap())
    });
    let ping_pong = || ping_pong((&endpoint, to_friend), (&friend, to_victim));
    match held {
        Some(held) => held_up(args, &endpoint, attacker, held, ping_pong),
        None => beset(&endpoint, attacker, ping_pong),
    }
    ping_pong_is_over(&endpoint, attacker, args);
    say("through");
}

/// The copy of a long message is held up by memory of this process.
fn held_up(
    args: &Args,
    endpoint: &Endpoint,
    attacker: PeerId,
    (memory, holder): (Held, Holder),
    ping_pong: impl Fn(),
) {
    let (direction, end) = (args.text("direction"), args.text("end"));
    thread::scope(|s| {
        let waits = s.spawn(|| match direction {
            "in" => {
                let (received, memory) = endpoint.recv_owned(attacker, LONG, memory).wait();
                received.map(|_| stamp::check(memory.as_slice(), 1))
            }
            _ => endpoint.send_owned(attacker, LONG, memory).wait().0.map(drop),
        });
        go(endpoint, attacker);
        holder.await_touch();
        ping_pong();
        say("held");
        hear();
        ping_pong();
        if end == "lives" {
            let child = fork(|| {
                let forked = |error: Option<Error>| matches!(error, Some(Error::Forked));
                let is_told = forked(endpoint.send(attacker, LONG, b"").err())
                    && forked(endpoint.progress().err());
                endpoint.close();
                i32::from(!is_told)
            });
            assert_eq!(child, Ended::Code(0));
            ping_pong();
        }
        assert!(!waits.is_finished() && !holder.is_dropped(), "its memory is in use");
        holder.release();
        match (end, waits.join().unwrap()) {
            ("lives", Ok(()))
            | ("dies", Err(Error::PeerGone { how: Gone::Died, .. }))
            | ("closes", Err(Error::PeerGone { how: Gone::Closed, .. })) => {}
            (_, other) => panic!("{direction}, {end}: {other:?}"),
        }
    });
    ping_pong();
}

/// The copy of a long message is held up by memory of the attacker's.
fn beset(endpoint: &Endpoint, attacker: PeerId, ping_pong: impl Fn()) {
    let request = endpoint.recv_owned(attacker, LONG, vec![1; HIDDEN]);
    thread::scope(|s| {
        let waits = s.spawn(|| request.wait().0);
        // It has its pages, and sleeps.
        thread::sleep(A_WHILE);
        go(endpoint, attacker);
        hear();
        ping_pong();
        assert!(!waits.is_finished(), "its message cannot have come");
        say("went on");
        let error = waits.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::PeerGone { .. } | Error::Transfer { .. }), "{error:?}");
    });
    ping_pong();
}

/// The friend alone is left of the peers, if the attacker has gone.
fn ping_pong_is_over(endpoint: &Endpoint, attacker: PeerId, args: &Args) {
    if !matches!(args.text("end"), "lives" | "remaps") {
        let is_gone = || endpoint.peers().iter().all(|peer| peer.id != attacker);
        pinfold_tests::progress_until(&[endpoint], "a peer that is gone stays", is_gone);
    }
}

pub fn attacker(args: &Args) {
    if args.text("direction") == "hides" {
        return hides(args);
    }
    let (endpoint, victim) = role::connect(args.builder(), "victim");
    role::await_go(&endpoint, victim);
    let arena = Arena::new().unwrap();
    let mut message = arena.alloc(LEN).unwrap();
    stamp::fill(&mut message, 1);
    let room = SharedArena::builder().build_shared().unwrap().alloc(LEN).unwrap();
    room.fill(0);
    thread::scope(|s| {
        let transfer = s.spawn(|| match args.text("direction") {
            "in" => endpoint.send_owned(victim, LONG, message).wait().0.map(drop),
            _ => endpoint.recv_owned(victim, LONG, room).wait().0.map(drop),
        });
        if args.text("end") != "lives" {
            hear();
            endpoint.close();
            say("closed");
            assert!(transfer.join().unwrap().is_err());
        } else {
            transfer.join().unwrap().unwrap();
            hear();
        }
    });
}

/// Sends out of memory the middle of which goes while both sides copy, each from its end.
fn hides(args: &Args) {
    let (memory, holder) = match Held::filled(HIDDEN) {
        Ok(held) => held,
        Err(why) => return say(format_args!("memory that is to be provided: {why}")),
    };
    say("attacking");
    let (endpoint, victim) = role::connect(Endpoint::builder(), "victim");
    role::await_go(&endpoint, victim);
    let (endpoint, bytes) = (&endpoint, memory.as_slice());
    thread::scope(move |s| {
        // This may never end.
        s.spawn(move || drop(endpoint.send_by(Path::Cma, victim, LONG, bytes)));
        thread::sleep(BEGINNING);
        holder.hide(HIDDEN / 4..HIDDEN / 4 * 3);
        if !holder.is_touched_by_stranger(SOON) {
            say("not held");
            hear();
        }
        say("held");
        if args.text("end") == "remaps" {
            hear();
            holder.remap();
            say("remapped");
        }
        hear();
    });
}
