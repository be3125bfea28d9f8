//! Regions that are revoked in mid-use.

use std::{
    thread,
    time::{Duration, Instant},
};

use pinfold::{Endpoint, Error, PeerId, RegionKey, Rights};
use pinfold_tests::{
    Args, Baseline, Stage,
    baseline::{Mapped, writable_arenas},
    host,
    role::{self, PATIENCE, say},
    stage::all_end_well,
    stamp::{self, Random},
};

use super::{hand_over, is_barred, path, reach};

const WRITERS: usize = 3;
const ROUNDS: usize = 25;
/// Large enough that moving it elsewhere takes a while.
const REVOKED: usize = 12 << 20;

#[test]
fn what_succeeded_came_before_it_was_revoked() {
    let stage = Stage::new(120);
    let mut players = vec![stage.role("revoker").spawn()];
    players[0].expect("listens");
    // Two users map it, and the third has the kernel reach it, if that is allowed here.
    let writer = |me| {
        let by = if me == 2 { "kernel" } else { "mapping" };
        reach(stage.role("writer"), by).with("me", me).spawn()
    };
    players.extend((0..WRITERS).map(writer));
    players.push(stage.role("scribbler").spawn());
    all_end_well(&mut players);
}

pub fn revoker(_: &Args) {
    let endpoint = Endpoint::listen("local:revoker").unwrap();
    say("listens");
    let mut writers = [None; WRITERS];
    let mut scribbler = None;
    for _ in 0..=WRITERS {
        let peer = endpoint.accept_timeout(PATIENCE).unwrap();
        let me = endpoint.recv(peer, 7).unwrap();
        match me[0] as usize {
            me if me < WRITERS => writers[me] = Some(peer),
            _ => scribbler = Some(peer),
        }
    }
    let scribbler = scribbler.unwrap();
    let mut random = Random::new(1);
    for _ in 0..ROUNDS {
        let mut region = endpoint.region(REVOKED, Rights::ReadWrite).unwrap();
        for peer in writers.iter().flatten().chain([&scribbler]) {
            hand_over(&endpoint, *peer, &region);
        }
        for peer in writers.iter().flatten().chain([&scribbler]) {
            endpoint.recv(*peer, 8).unwrap();
        }
        let end = Instant::now() + Duration::from_micros(random.below(3000));
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        region.revoke().unwrap();
        let contents = region.to_vec().unwrap();
        for (me, peer) in writers.iter().enumerate() {
            let last = endpoint.recv(peer.unwrap(), 9).unwrap();
            let last = u64::from_ne_bytes(last[..].try_into().unwrap());
            let here = u64::from_ne_bytes(contents[me * 64..][..8].try_into().unwrap());
            // One more write may have come than its writer was told of.
            assert!((last..=last + 1).contains(&here), "writer {me}: {here}, but {last} succeeded");
        }
        // A peer that does not keep to the rules still writes to the memory that it had.
        endpoint.send(scribbler, 10, b"").unwrap();
        endpoint.recv(scribbler, 10).unwrap();
        assert!(region.to_vec().unwrap() == contents, "it changed after it was revoked");
    }
    for peer in writers.iter().flatten().chain([&scribbler]) {
        endpoint.send(*peer, 1, b"end").unwrap();
    }
    for peer in writers.into_iter().flatten().chain([scribbler]) {
        assert!(endpoint.recv(peer, 5).unwrap_err().is_peer_gone());
    }
}

pub fn writer(args: &Args) {
    let me: usize = args.number("me");
    let endpoint = args.builder().build().unwrap();
    let peer = endpoint.connect_wait("local:revoker", PATIENCE).unwrap();
    endpoint.send(peer, 7, &[me as u8]).unwrap();
    if is_barred(args, &endpoint, peer) {
        return abstain(&endpoint, peer);
    }
    loop {
        let message = endpoint.recv(peer, 1).unwrap();
        let Ok(key) = RegionKey::from_bytes(&message) else { break };
        let region = endpoint.open_region(peer, &key).unwrap();
        assert_eq!(region.path(), path(args));
        endpoint.send(peer, 8, b"").unwrap();
        let mut last = 0u64;
        let error = loop {
            match region.write(me as u64 * 64, &(last + 1).to_ne_bytes()) {
                Ok(_) => last += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Revoked), "{error}");
        endpoint.send(peer, 9, &last.to_ne_bytes()).unwrap();
    }
}

/// Takes part without writing.
fn abstain(endpoint: &Endpoint, peer: PeerId) {
    while RegionKey::from_bytes(&endpoint.recv(peer, 1).unwrap()).is_ok() {
        endpoint.send(peer, 8, b"").unwrap();
        endpoint.send(peer, 9, &0u64.to_ne_bytes()).unwrap();
    }
}

pub fn scribbler(_: &Args) {
    let endpoint = Endpoint::new().unwrap();
    let peer = endpoint.connect_wait("local:revoker", PATIENCE).unwrap();
    endpoint.send(peer, 7, &[WRITERS as u8]).unwrap();
    loop {
        let message = endpoint.recv(peer, 1).unwrap();
        let Ok(key) = RegionKey::from_bytes(&message) else { break };
        let region = endpoint.open_region(peer, &key).unwrap();
        endpoint.send(peer, 8, b"").unwrap();
        endpoint.recv(peer, 10).unwrap();
        assert!(matches!(region.write(0, b"x"), Err(Error::Revoked)));
        let mut found = 0;
        for Mapped { at, len } in writable_arenas() {
            for offset in (0..len.min(REVOKED)).step_by(4096) {
                host::scribble(at + offset, u64::MAX);
            }
            found += 1;
        }
        assert!(found > 0, "no mapping is left to write to");
        endpoint.send(peer, 10, b"").unwrap();
    }
}

// The objects that come to lie where a region was.

const REUSES: u64 = 150;
const REUSED: usize = 1 << 20;
/// Threads that write all of a region at the same time.
const LATE: usize = 6;

#[test]
fn who_is_late_does_not_write_to_what_lies_there_next() {
    let stage = Stage::new(120);
    let mut players = vec![stage.role("reuser").with("by", "kernel").spawn()];
    players[0].expect("ready");
    players.push(reach(stage.role("filler"), "kernel").spawn());
    all_end_well(&mut players);
}

/// Takes region after region away from a peer that writes all of it over and over, and makes others
/// of the same size at once, which then are likely to lie at the same address.
pub fn reuser(args: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::listen(Endpoint::builder(), "reuser");
    if is_barred(args, &endpoint, peer) {
        return;
    }
    let mut random = Random::new(2);
    let mut kept = 0;
    for round in 0..REUSES {
        let mut region = endpoint.region(REUSED, Rights::ReadWrite).unwrap();
        hand_over(&endpoint, peer, &region);
        endpoint.recv(peer, 8).unwrap();
        let end = Instant::now() + Duration::from_micros(random.below(2000));
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        // Revoked and then dropped, or at once.
        if round % 2 == 0 {
            region.revoke().unwrap();
        }
        drop(region);
        let next = [(); 3].map(|()| endpoint.region(REUSED, Rights::ReadWrite).unwrap());
        let data = stamp::bytes(REUSED, round);
        next.iter().for_each(|region| region.write(0, &data).unwrap());
        kept += u64::from(endpoint.region_bytes_kept() > 0);
        endpoint.recv(peer, 9).unwrap();
        for region in &next {
            assert!(region.to_vec().unwrap() == data, "round {round}: it was written to");
        }
    }
    role::note(format_args!("somebody was late {kept} times"));
    endpoint.send(peer, 1, b"end").unwrap();
    assert!(endpoint.recv(peer, 5).unwrap_err().is_peer_gone());
    assert_eq!(endpoint.region_bytes_kept(), 0);
    drop(endpoint);
    before.returns(PATIENCE);
}

/// Writes all of each region until that is revoked.
pub fn filler(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "reuser");
    if is_barred(args, &endpoint, peer) {
        return;
    }
    let data = vec![0xff; REUSED];
    while let Ok(key) = RegionKey::from_bytes(&endpoint.recv(peer, 1).unwrap()) {
        let region = endpoint.open_region(peer, &key).unwrap();
        endpoint.send(peer, 8, b"").unwrap();
        // Some threads are always there, asleep in the middle of a copy.
        thread::scope(|s| {
            for _ in 0..LATE {
                s.spawn(|| while region.write(0, &data).is_ok() {});
            }
        });
        endpoint.send(peer, 9, b"").unwrap();
    }
}
