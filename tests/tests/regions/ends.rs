//! Peers that leave, and endpoints that have no part.

use std::{mem::ManuallyDrop, time::Instant};

use pinfold::{Endpoint, Error, Path, PathSet, RegionKey, RemoteRegion, Rights};
use pinfold_tests::{
    Args, Baseline, Stage,
    baseline::segments,
    host::{Ended, fork, scribble},
    pair,
    pair::driven,
    role::{self, PATIENCE, hear, say},
};

use super::{
    deferred_free::{HAZARD, number},
    hand_over, is_barred, key_from, open, path, play_both_ways, reach, serve,
};

#[test]
fn an_owner_that_dies_is_noticed() {
    for by in ["mapping", "kernel"] {
        let stage = Stage::new(60);
        let mut outlives = reach(stage.role("outlives"), by).spawn();
        outlives.expect("listens");
        let mut dies = stage.role("dies").spawn();
        if outlives.hear() == "barred" {
            continue;
        }
        dies.kill();
        dies.end();
        outlives.say("it is dead");
        outlives.end_well();
    }
}

pub fn dies(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "outlives");
    let region = endpoint.region(100, Rights::ReadWrite).unwrap();
    hand_over(&endpoint, peer, &region);
    serve(&endpoint, peer);
}

pub fn outlives(args: &Args) {
    let before = Baseline::now();
    let endpoint = args.builder().listen("local:outlives").build().unwrap();
    let alone = segments().len();
    say("listens");
    let peer = endpoint.accept_timeout(PATIENCE).unwrap();
    if is_barred(args, &endpoint, peer) {
        return say("barred");
    }
    let key = key_from(&endpoint, peer);
    // The first is answered before the second; nobody takes it.
    let untaken = endpoint.open_region_request(peer, &key);
    let region = endpoint.open_region(peer, &key).unwrap();
    drop(untaken);
    region.write(3, b"x").unwrap();
    assert_eq!(region.path(), path(args));
    say("has it");
    hear();
    if region.path() == Path::Cma {
        // The kernel knows before the endpoint does.
        withdrawn(&region);
    }
    assert!(endpoint.recv(peer, 5).unwrap_err().is_peer_gone());
    withdrawn(&region);
    if region.path() == Path::Mapped {
        assert!(matches!(region.fetch_add(8, 1u32), Err(Error::Withdrawn)));
    }
    drop(region);
    let end = Instant::now() + PATIENCE;
    while segments().len() > alone {
        endpoint.progress().unwrap();
        assert!(Instant::now() < end, "memory of the dead is still mapped");
    }
    drop(endpoint);
    before.returns(PATIENCE);
}

fn withdrawn(region: &RemoteRegion) {
    assert!(matches!(region.write(3, b"x"), Err(Error::Withdrawn)));
    assert!(matches!(region.read(3, &mut [0]), Err(Error::Withdrawn)));
    assert!(matches!(region.flush(), Err(Error::Withdrawn)));
}

/// An owner that has closed the connection has its memory back, in good order or not. That is seen
/// before the endpoint hears of it.
#[test]
fn a_region_ends_with_its_owners_connection() {
    let (a, to_b, b, to_a) = pair("region-ends", Endpoint::builder(), Endpoint::builder());
    let region = a.region(100, Rights::ReadWrite).unwrap();
    let remote = driven(&a, || b.open_region(to_a, &region.key().unwrap()).unwrap());
    assert_eq!(remote.path(), Path::Mapped);
    remote.write(3, b"x").unwrap();
    a.disconnect(to_b);
    let end = Instant::now() + PATIENCE;
    while a.peer(to_b).is_some() {
        a.progress().unwrap();
        assert!(Instant::now() < end, "it does not go");
    }
    withdrawn(&remote);
}

#[test]
fn many_regions_leave_nothing() {
    play_both_ways("churner", "churned");
}

pub fn churner(args: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::listen(Endpoint::builder(), "churn");
    if is_barred(args, &endpoint, peer) {
        return;
    }
    let mut kept = Vec::new();
    for round in 0..300usize {
        let mut region = endpoint.region(1 + round * 97, Rights::ReadWrite).unwrap();
        hand_over(&endpoint, peer, &region);
        endpoint.recv(peer, 2).unwrap();
        assert_eq!(region.to_vec().unwrap()[0], round as u8);
        if round % 3 == 0 {
            region.revoke().unwrap();
        }
        kept.push(region);
        if round % 7 == 0 {
            kept.clear();
        }
    }
    drop(kept);
    endpoint.send(peer, 1, b"end").unwrap();
    assert!(endpoint.recv(peer, 5).unwrap_err().is_peer_gone());
    drop(endpoint);
    before.returns(PATIENCE);
}

pub fn churned(args: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::connect(args.builder(), "churn");
    if is_barred(args, &endpoint, peer) {
        return;
    }
    let mut round = 0;
    while let Ok(key) = RegionKey::from_bytes(&endpoint.recv(peer, 1).unwrap()) {
        let region = endpoint.open_region(peer, &key).unwrap();
        assert_eq!(region.path(), path(args));
        region.write(0, &[round]).unwrap();
        drop(region);
        endpoint.send(peer, 2, b"").unwrap();
        round = round.wrapping_add(1);
    }
    drop(endpoint);
    before.returns(PATIENCE);
}

#[test]
fn a_forked_child_has_no_part_in_it() {
    Stage::new(60).role("forker").spawn().end_well();
}

pub fn forker(_: &Args) {
    for by_kernel in [false, true] {
        let theirs = Endpoint::builder();
        let without = PathSet::all().without(Path::Mapped);
        let theirs = if by_kernel { theirs.paths(without) } else { theirs };
        let before = segments();
        let (a, _, b, to_a) = pair(&format!("fork-{by_kernel}"), Endpoint::builder(), theirs);
        if let Some(why) = b.peer(to_a).and_then(|peer| peer.cma_refused).filter(|_| by_kernel) {
            return role::skip(format_args!("regions by the kernel: {why}"));
        }
        let segment = segments().into_iter().find(|segment| !before.contains(segment)).unwrap();
        let region = a.region(10, Rights::ReadWrite).unwrap();
        let remote = open(&a, &b, to_a, &region);
        let (theirs, ours) = (remote.clone(), &region);
        let ended = fork(move || {
            assert!(matches!(theirs.write(0, b"x"), Err(Error::Forked)));
            assert!(matches!(theirs.read(0, &mut [0]), Err(Error::Forked)));
            if !by_kernel {
                assert!(matches!(theirs.fetch_add(0, 1u64), Err(Error::Forked)));
            }
            assert!(matches!(theirs.flush(), Err(Error::Forked)));
            assert!(matches!(ours.read(0, &mut [0]), Err(Error::Forked)));
            assert!(matches!(ours.write(0, b"x"), Err(Error::Forked)));
            drop(theirs);
            0
        });
        assert_eq!(ended, Ended::Code(0));
        remote.write(2, b"parent").unwrap();
        assert_eq!(&region.to_vec().unwrap()[2..8], b"parent");
        // All regions go in the child, too, also the one that is kept since a thread is at it.
        if by_kernel {
            let region = a.region(10, Rights::ReadWrite).unwrap();
            open(&a, &b, to_a, &region);
            scribble(segment.at + HAZARD, number(&region.key().unwrap()));
            drop(region);
            assert!(a.region_bytes_kept() > 0);
        }
        // The child has its own copies of all that it drops.
        let all = ManuallyDrop::new((remote, region, a, b));
        let ended = fork(move || {
            drop(ManuallyDrop::into_inner(all));
            0
        });
        assert_eq!(ended, Ended::Code(0));
    }
}
