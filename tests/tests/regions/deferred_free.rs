//! Memory that is kept for peers that have not left it: for how long, and how much.
//!
//! The word of both sides' shared memory in which a peer says that it is at a region. Here it says
//! so without being there, so it is there for as long as the test wants.

use std::{thread, time::Duration};

use pinfold::{Endpoint, Error, Path, PathSet, Refusal, RegionKey, Rights};
use pinfold_tests::{
    Args, Baseline, Stage,
    baseline::{Mapped, arenas, segments},
    host::{occupy, peek, scribble},
    pair,
    role::{self, PATIENCE, hear, say},
    skip,
};

use super::{hand_over, is_barred, key_from, open, reach, revoked, serve};

/// The word in which a connecting side says at which region its second thread is: its first is at
/// work.
pub const HAZARD: usize = 1024 + 11 * 64 + 8;
/// Regions that are kept for one peer before it gets no more.
const KEPT_MAX: u64 = 16;
const BYTES: usize = 300 << 10;

/// The lingerer ends in some way while it is at a region; the keeper says how the memory ended.
fn lingers(how: &str) {
    let stage = Stage::new(60);
    let mut keeper = stage.role("keeper").with("by", "kernel").with("how", how).spawn();
    keeper.expect("ready");
    let mut lingerer = reach(stage.role("lingerer"), "kernel").with("how", how).spawn();
    if lingerer.hear() == "barred" {
        return;
    }
    if how == "closed before" {
        lingerer.say("close");
        lingerer.expect("closed");
    }
    keeper.expect("kept");
    match how {
        "closed before" => {
            lingerer.say("end");
            lingerer.end_well();
        }
        "killed" => {
            lingerer.kill();
            lingerer.end();
        }
        "closed" => {
            lingerer.say("close");
            lingerer.expect("closed");
            keeper.say("look");
            keeper.expect("kept");
            lingerer.say("end");
            lingerer.end_well();
        }
        _ => {
            // The keeper looks once it sleeps.
            keeper.say("look");
            thread::sleep(Duration::from_millis(300));
            lingerer.say("leave");
            keeper.expect("freed");
            lingerer.say("end");
            lingerer.end_well();
        }
    }
    if how != "leaves" {
        keeper.say("look");
        keeper.expect("freed");
    }
    keeper.say("end");
    keeper.end_well();
}

#[test]
fn it_is_freed_when_the_peer_leaves() {
    lingers("leaves");
}

#[test]
fn it_is_freed_when_the_peer_is_killed() {
    lingers("killed");
}

#[test]
fn it_is_kept_when_the_peer_closes_and_is_still_there() {
    lingers("closed");
}

#[test]
fn it_is_kept_when_the_peer_closed_before_and_is_still_there() {
    lingers("closed before");
}

fn is_mapped(there: Mapped) -> bool {
    arenas().iter().any(|arena| arena.at <= there.at && there.at < arena.at + arena.len)
}

pub fn keeper(args: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::listen(Endpoint::builder(), "keeper");
    if is_barred(args, &endpoint, peer) {
        return;
    }
    // A region that no peer is at does not stay.
    let mut idle = endpoint.region(BYTES, Rights::ReadWrite).unwrap();
    let had = arenas();
    let mut region = endpoint.region(BYTES, Rights::ReadWrite).unwrap();
    let there = *arenas().iter().find(|arena| !had.contains(arena)).unwrap();
    region.write(0, b"contents").unwrap();
    for region in [&idle, &region] {
        hand_over(&endpoint, peer, region);
        serve(&endpoint, peer);
    }
    idle.revoke().unwrap();
    assert_eq!(endpoint.region_bytes_kept(), 0);
    if args.text("how") == "closed before" {
        assert!(endpoint.recv(peer, 5).unwrap_err().is_peer_gone());
    }
    region.revoke().unwrap();
    assert!(endpoint.region_bytes_kept() >= BYTES as u64);
    assert!(is_mapped(there));
    assert_eq!(&region.to_vec().unwrap()[..8], b"contents");
    // Nor does the end of the region matter.
    drop(region);
    let _ = endpoint.send(peer, 2, b"revoked");
    say("kept");
    while hear() != "end" {
        // No call for it is needed: a thread that uses the endpoint sees to it, also from its
        // sleep.
        if endpoint.recv_timeout(peer, 5, Duration::from_secs(2)).is_err_and(|e| e.is_peer_gone()) {
            for _ in 0..200 {
                endpoint.progress().unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        }
        let mapped = is_mapped(there);
        assert_eq!(endpoint.region_bytes_kept() > 0, mapped);
        say(if mapped { "kept" } else { "freed" });
    }
    drop(idle);
    drop(endpoint);
    before.returns(PATIENCE);
}

pub fn lingerer(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "keeper");
    if is_barred(args, &endpoint, peer) {
        return say("barred");
    }
    say("goes on");
    let segment = segments()[0];
    let next = || {
        let key = key_from(&endpoint, peer);
        (endpoint.open_region(peer, &key).unwrap(), number(&key))
    };
    let (idle, _) = next();
    idle.write(0, b"x").unwrap();
    endpoint.send(peer, 99, b"").unwrap();
    let (region, number) = next();
    region.write(9, b"x").unwrap();
    scribble(segment.at + HAZARD, number);
    endpoint.send(peer, 99, b"").unwrap();
    if args.text("how") != "closed before" {
        endpoint.recv(peer, 2).unwrap();
        revoked(&region);
    }
    match hear().as_str() {
        "close" => {
            endpoint.close();
            say("closed");
        }
        _ => scribble(segment.at + HAZARD, 0),
    }
    hear();
}

/// The number of the region of a key.
pub fn number(key: &RegionKey) -> u64 {
    u64::from_le_bytes(key.to_bytes()[..8].try_into().unwrap())
}

/// A peer that never leaves is let into nothing more at some time, and again once it leaves.
#[test]
fn what_is_kept_for_one_peer_is_bounded() {
    let without = Endpoint::builder().paths(PathSet::all().without(Path::Mapped));
    let before = segments();
    let (a, _, b, to_a) = pair("bounded", Endpoint::builder(), without);
    if let Some(why) = b.peer(to_a).and_then(|peer| peer.cma_refused) {
        return skip(&format!("regions by the kernel: {why}"));
    }
    let segment = segments().into_iter().find(|segment| !before.contains(segment)).unwrap();
    let word = |index: u64| segment.at + HAZARD + 8 * index as usize;
    for index in 0..KEPT_MAX {
        let mut region = a.region(BYTES, Rights::ReadWrite).unwrap();
        let key = region.key().unwrap();
        open(&a, &b, to_a, &region);
        scribble(word(index), number(&key));
        region.revoke().unwrap();
        assert!(a.region_bytes_kept() >= (index + 1) * BYTES as u64);
    }
    let region = a.region(BYTES, Rights::ReadWrite).unwrap();
    let opened = thread::scope(|s| {
        let opens = s.spawn(|| b.open_region(to_a, &region.key().unwrap()));
        while !opens.is_finished() {
            a.progress().unwrap();
        }
        opens.join().unwrap()
    });
    match opened {
        Err(Error::OutOfReach { mapped: Refusal::SwitchedOff, cma: Refusal::NotLeft }) => {}
        other => panic!("{other:?}"),
    }
    scribble(word(3), 0);
    open(&a, &b, to_a, &region).write(0, b"x").unwrap();
    (0..KEPT_MAX).for_each(|index| scribble(word(index), 0));
    assert_eq!(a.region_bytes_kept(), 0);
}

/// Closing waits for it, not for ever; memory that is still in use then is never given back.
#[test]
fn an_owner_that_closes_leaves_it_where_it_is() {
    Stage::new(60).role("closer").spawn().end_well();
}

pub fn closer(_: &Args) {
    let without = Endpoint::builder().paths(PathSet::all().without(Path::Mapped));
    let (a, _, b, to_a) = pair("closer", Endpoint::builder(), without);
    if let Some(why) = b.peer(to_a).and_then(|peer| peer.cma_refused) {
        return role::skip(format_args!("regions by the kernel: {why}"));
    }
    let segment = segments()[0];
    // The memory that all regions share is there before.
    drop(a.region(1, Rights::Read).unwrap());
    let there = [HAZARD, HAZARD + 8].map(|word| {
        let had = arenas();
        let region = a.region(BYTES, Rights::ReadWrite).unwrap();
        let there = *arenas().iter().find(|arena| !had.contains(arena)).unwrap();
        let remote = open(&a, &b, to_a, &region);
        remote.write(0, b"x").unwrap();
        scribble(segment.at + word, number(&region.key().unwrap()));
        drop(region);
        (there, remote)
    });
    // One region is left while the endpoint closes.
    let leaves = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        scribble(segment.at + HAZARD, 0);
    });
    assert!(is_mapped(there[0].0) && is_mapped(there[1].0));
    drop(a);
    leaves.join().unwrap();
    let [(left, _), (still, remote)] = there;
    assert!(!is_mapped(left), "nobody is there any more");
    assert!(is_mapped(still), "somebody is there");
    assert!(matches!(remote.write(0, b"x"), Err(Error::Withdrawn)));
    assert!(matches!(remote.flush(), Err(Error::Withdrawn)));
}

/// Where no peer is, nothing is kept; a peer that comes then finds that out before it does
/// anything.
#[test]
fn who_comes_after_the_end_touches_nothing() {
    Stage::new(60).role("comer").spawn().end_well();
}

pub fn comer(_: &Args) {
    let without = Endpoint::builder().paths(PathSet::all().without(Path::Mapped));
    let (a, _, b, to_a) = pair("comer", Endpoint::builder(), without);
    if let Some(why) = b.peer(to_a).and_then(|peer| peer.cma_refused) {
        return role::skip(format_args!("regions by the kernel: {why}"));
    }
    // The memory that all regions share is there before.
    let _first = a.region(1, Rights::Read).unwrap();
    let had = arenas();
    let region = a.region(BYTES, Rights::ReadWrite).unwrap();
    let there = *arenas().iter().find(|arena| !had.contains(arena)).unwrap();
    let remote = open(&a, &b, to_a, &region);
    // The region is seen to stand, so that nothing but its end is a reason to look again.
    remote.write(0, b"x").unwrap();
    drop(region);
    assert!(!is_mapped(there));
    occupy(there.at);
    assert!(matches!(remote.write(0, &[0xff; BYTES]), Err(Error::Revoked)));
    for word in 0..512 {
        assert_eq!(peek(there.at + 8 * word), 0, "it was written to");
    }
}
