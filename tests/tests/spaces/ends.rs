#![allow(unsafe_code)]
// Invariant: memory that is exposed or changed is the test's own, and raw pointers alone reach it.
//! The ends of exposures: no peer is at the memory afterwards.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use pinfold::{Endpoint, Error, RegionKey, Rights, SharedArena};
use pinfold_tests::{
    Args,
    host::{Ended, fork},
    role,
    stamp::Random,
};

use super::{
    WAYS, go,
    memory::{Area, PAGE, map},
    play, space, tell, told,
};

#[test]
fn when_an_exposure_has_ended_nobody_writes_any_more() {
    play("revoker", "hammer");
}

const LEN: usize = 16 * PAGE;
const ROUNDS: u64 = 40;

pub fn revoker(_: &Args) {
    let (endpoint, peer) =
        role::listen(Endpoint::builder().progress(pinfold::Progress::Dedicated), "revoked");
    let arena = SharedArena::builder().build_shared().unwrap();
    let buf = arena.alloc(LEN).unwrap();
    let areas = [map(None, LEN, libc::MAP_PRIVATE, None), Area::of(&buf)];
    let mut random = Random::new(3);
    for round in 0..ROUNDS {
        let area = areas[round as usize % 2];
        let addresses = area.address()..area.address() + LEN;
        // SAFETY: reached by raw pointers alone.
        let exposed = unsafe { endpoint.expose(addresses, Rights::ReadWrite) }.unwrap();
        endpoint.send(peer, 1, &exposed.key().to_bytes()).unwrap();
        told(&endpoint, peer);
        let end = std::time::Instant::now() + std::time::Duration::from_micros(random.below(2000));
        while std::time::Instant::now() < end {
            std::hint::spin_loop();
        }
        if round % 3 == 0 {
            drop(exposed);
        } else {
            exposed.revoke().unwrap();
        }
        // From here on it is this side's alone.
        for look in 0..20 {
            area.fill(look);
            thread::yield_now();
            area.check(look);
        }
        told(&endpoint, peer);
    }
    tell(&endpoint, peer, &[]);
    assert!(endpoint.recv(peer, 3).unwrap_err().is_peer_gone());
}

pub fn hammer(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "revoked");
    for _ in 0..ROUNDS {
        let space = space(&endpoint, peer);
        let start = space.addresses().start;
        let begun = AtomicBool::new(false);
        thread::scope(|scope| {
            let hammers: Vec<_> = (0..3)
                .map(|me| {
                    let (space, begun) = (space.clone(), &begun);
                    scope.spawn(move || {
                        let mut bytes = vec![me; LEN / 4];
                        for round in 0u64.. {
                            let at = start + (round * 64) % (LEN as u64 / 2);
                            let done = match round % 5 {
                                0 => space.write(at, &bytes).map(drop),
                                1 => space.read(at, &mut bytes).map(drop),
                                2 => space.write_owned(at, bytes.clone()).wait().0.map(drop),
                                3 => space.fetch_xor(at, round).map(drop),
                                _ => {
                                    space.write_vectored(&[(at, &bytes), (start, &bytes)]).map(drop)
                                }
                            };
                            if let Err(error) = done {
                                assert!(matches!(error, Error::Revoked), "{error}");
                                return;
                            }
                            begun.store(true, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            while !begun.load(Ordering::Relaxed) && !hammers.iter().all(|it| it.is_finished()) {
                thread::yield_now();
            }
            tell(&endpoint, peer, &[]);
        });
        assert!(matches!(space.write(start, b"late"), Err(Error::Revoked)));
        assert!(matches!(space.read(start, &mut [0]), Err(Error::Revoked)));
        assert!(matches!(space.swap(start, 1u64), Err(Error::Revoked)));
        tell(&endpoint, peer, &[]);
    }
    told(&endpoint, peer);
}

/// An owner that goes, a user that goes, and children of both.
#[test]
fn what_is_left_of_it_after_its_owner_is_an_error() {
    for way in WAYS {
        let stage = pinfold_tests::Stage::new(60);
        stage.play([stage.role("closer").with("way", way), go(stage.role("comer"), way)]);
    }
}

pub fn closer(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "closed");
    let area = map(None, LEN, libc::MAP_PRIVATE, None);
    area.fill(1);
    let addresses = area.address()..area.address() + LEN;
    // SAFETY: reached by raw pointers alone.
    let exposed = unsafe { endpoint.expose(addresses.clone(), Rights::ReadWrite) }.unwrap();
    for (start, end) in [(5, 4), (0, (1 << 47) + 1), (usize::MAX, usize::MAX)] {
        // SAFETY: refused.
        let refused = unsafe { endpoint.expose(start..end, Rights::Read) };
        assert!(matches!(refused, Err(Error::OutOfBounds { .. })), "{start:#x}..{end:#x}");
    }
    endpoint.send(peer, 1, &exposed.key().to_bytes()).unwrap();
    told(&endpoint, peer);
    let ended = fork(|| {
        // SAFETY: refused.
        let refused = unsafe { endpoint.expose(addresses, Rights::Read) };
        i32::from(!matches!(refused, Err(Error::Forked)))
    });
    assert_eq!(ended, Ended::Code(0));
    endpoint.close();
    // SAFETY: refused.
    let refused = unsafe { endpoint.expose(0..1, Rights::Read) };
    assert!(matches!(refused, Err(Error::Closed)));
    drop(exposed);
}

pub fn comer(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "closed");
    let key = RegionKey::from_bytes(&endpoint.recv(peer, 1).unwrap()).unwrap();
    let space = endpoint.open_space(peer, &key).unwrap();
    let start = space.addresses().start;
    space.write(start, b"there").unwrap();
    let ended = fork(|| {
        let refused = matches!(space.write(start, b"x"), Err(Error::Forked))
            && matches!(space.read(start, &mut [0]), Err(Error::Forked))
            && matches!(endpoint.open_space(peer, &key), Err(Error::Forked));
        i32::from(!refused)
    });
    assert_eq!(ended, Ended::Code(0));
    tell(&endpoint, peer, &[]);
    assert!(endpoint.recv(peer, 3).unwrap_err().is_peer_gone());
    for _ in 0..3 {
        let wrote = space.write(start, b"gone");
        let is_gone = |error: &Error| {
            error.is_peer_gone() || matches!(error, Error::Withdrawn | Error::UnknownPeer { .. })
        };
        assert!(wrote.as_ref().is_err_and(is_gone), "{wrote:?}");
    }
    let opened = endpoint.open_space(peer, &key);
    assert!(opened.is_err());
}
