//! Buffers that are registered: as their owner has them, given back while they are in use, and gone
//! with their owner.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use pinfold::{
    Endpoint, Error, OwnedBufMut, PeerId, Progress, RegionKey, Registered, Rights, SharedArena,
};
use pinfold_tests::{Args, Stage, role, stamp};

use super::{WAYS, go, play, tell, told};

const LEN: usize = 64 << 10;
const ROUNDS: u64 = 20;

#[test]
fn a_buffer_that_is_given_back_is_the_programs_alone() {
    play("giver", "taker");
}

/// Takes a buffer back while the peer is at it: from then on it stays as it is.
pub fn giver(_: &Args) {
    let (endpoint, peer) =
        role::listen(Endpoint::builder().progress(Progress::Dedicated), "registered");
    let arena = SharedArena::builder().build_shared().unwrap();
    for round in 0..ROUNDS {
        match round % 3 {
            0 => give_back(&endpoint, peer, vec![1; LEN], |buffer| buffer.to_vec()),
            1 => {
                let boxed = vec![1; LEN].into_boxed_slice();
                give_back(&endpoint, peer, boxed, |buffer| buffer.to_vec());
            }
            _ => give_back(&endpoint, peer, arena.alloc(LEN).unwrap(), |buffer| buffer.to_vec()),
        }
    }
    // A buffer that may only be read, and one that is dropped.
    let read_only = endpoint.register(stamp::bytes(LEN, 3), Rights::Read).unwrap();
    assert_eq!((read_only.len(), read_only.rights()), (LEN, Rights::Read));
    show(&endpoint, peer, &read_only);
    let dropped = endpoint.register(vec![1; LEN], Rights::ReadWrite).unwrap();
    show(&endpoint, peer, &dropped);
    told(&endpoint, peer);
    drop(dropped);
    tell(&endpoint, peer, &[]);
    told(&endpoint, peer);
    stamp::check(&read_only.into_inner().unwrap(), 3);
    endpoint.close();
    assert!(matches!(endpoint.register(vec![1], Rights::Read), Err(Error::Closed)));
}

fn show<B: OwnedBufMut>(endpoint: &Endpoint, peer: PeerId, registered: &Registered<B>) {
    endpoint.send(peer, 1, &registered.key().to_bytes()).unwrap();
}

fn give_back<B: OwnedBufMut>(
    endpoint: &Endpoint,
    peer: PeerId,
    buffer: B,
    look: impl Fn(&B) -> Vec<u8>,
) {
    let registered = endpoint.register(buffer, Rights::ReadWrite).unwrap();
    // The owner uses it as peers do.
    registered.write(1, &stamp::bytes(LEN - 1, 9)).unwrap();
    let mut bytes = vec![0; LEN - 1];
    registered.read(1, &mut bytes).unwrap();
    stamp::check(&bytes, 9);
    assert!(matches!(registered.read(2, &mut bytes), Err(Error::OutOfBounds { .. })));
    assert!(matches!(registered.write(LEN, b"x"), Err(Error::OutOfBounds { .. })));
    let word = registered.word64(0).expect("buffers begin at multiples of 8");
    word.store(7, Ordering::SeqCst);
    assert!(registered.word64(4).is_none() && registered.word64(LEN - 4).is_none());
    assert!(registered.word32(4).is_some() && registered.word32(LEN).is_none());
    show(endpoint, peer, &registered);
    told(endpoint, peer);
    let buffer = registered.into_inner().map_err(|kept| kept.0).unwrap();
    let contents = look(&buffer);
    for _ in 0..20 {
        thread::yield_now();
        assert!(look(&buffer) == contents, "it was changed after it was given back");
    }
    told(endpoint, peer);
    assert!(look(&buffer) == contents, "it was changed after it was given back");
}

pub fn taker(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "registered");
    let key = || RegionKey::from_bytes(&endpoint.recv(peer, 1).unwrap()).unwrap();
    for _ in 0..ROUNDS {
        let key = key();
        let region = endpoint.open_region(peer, &key).unwrap();
        let space = endpoint.open_space(peer, &key).unwrap();
        assert_eq!(region.addresses(), space.addresses());
        let start = space.addresses().start;
        assert_eq!((region.len(), space.len()), (LEN as u64, LEN as u64));
        assert_eq!(region.fetch_add(0, 1u64).unwrap(), 7);
        assert_eq!(space.fetch_add(start, 1u64).unwrap(), 8);
        let begun = AtomicBool::new(false);
        thread::scope(|scope| {
            for me in 0..2 {
                let (region, space, begun) = (region.clone(), space.clone(), &begun);
                scope.spawn(move || {
                    for round in 0u64.. {
                        let at = round * 64 % (LEN as u64 / 2);
                        let bytes = vec![me; LEN / 4];
                        let done = match round % 4 {
                            0 => region.write(at, &bytes).map(drop),
                            1 => space.write_owned(start + at, bytes).wait().0.map(drop),
                            2 => space.fetch_xor(start + at, round).map(drop),
                            _ => region.write_vectored(&[(at, &bytes), (0, &bytes)]).map(drop),
                        };
                        if let Err(error) = done {
                            return assert!(matches!(error, Error::Revoked), "{error}");
                        }
                        if round == 8 {
                            begun.store(true, Ordering::Relaxed);
                        }
                    }
                });
            }
            while !begun.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            tell(&endpoint, peer, &[]);
        });
        assert!(matches!(region.write(0, b"late"), Err(Error::Revoked)));
        assert!(matches!(space.write(start, b"late"), Err(Error::Revoked)));
        assert!(matches!(endpoint.open_region(peer, &key), Err(Error::BadKey)));
        tell(&endpoint, peer, &[]);
    }
    let read_only = endpoint.open_region(peer, &key()).unwrap();
    let mut bytes = vec![0; LEN];
    read_only.read(0, &mut bytes).unwrap();
    stamp::check(&bytes, 3);
    assert!(matches!(read_only.write(0, b"x"), Err(Error::ReadOnly)));
    assert!(matches!(read_only.swap(0, 1u64), Err(Error::ReadOnly)));
    let dropped = endpoint.open_region(peer, &key()).unwrap();
    dropped.write(0, b"there").unwrap();
    tell(&endpoint, peer, &[]);
    told(&endpoint, peer);
    assert!(matches!(dropped.write(0, b"late"), Err(Error::Revoked)));
    tell(&endpoint, peer, &[]);
    assert!(endpoint.recv(peer, 3).unwrap_err().is_peer_gone());
}

/// An owner that is killed.
#[test]
fn a_buffer_is_gone_with_its_owner() {
    for way in WAYS {
        let stage = Stage::new(60);
        let mut owner = stage.role("mortal").with("way", way).spawn();
        let mut user = go(stage.role("heir"), way).spawn();
        user.expect("used");
        owner.kill();
        assert!(owner.was_killed());
        user.end_well();
    }
}

pub fn mortal(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "mortal");
    let registered = endpoint.register(stamp::bytes(LEN, 4), Rights::ReadWrite).unwrap();
    show(&endpoint, peer, &registered);
    let _ = endpoint.recv(peer, 3);
}

pub fn heir(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "mortal");
    let key = RegionKey::from_bytes(&endpoint.recv(peer, 1).unwrap()).unwrap();
    let region = endpoint.open_region(peer, &key).unwrap();
    let mut bytes = vec![0; LEN];
    region.read(0, &mut bytes).unwrap();
    stamp::check(&bytes, 4);
    role::say("used");
    let is_gone = |error: &Error| {
        error.is_peer_gone() || matches!(error, Error::Withdrawn | Error::UnknownPeer { .. })
    };
    // Operations that meet its end have an error, and give their buffers back.
    let error = loop {
        let (written, buffer) = region.write_owned(0, stamp::bytes(LEN, 5)).wait();
        stamp::check(&buffer, 5);
        if let Err(error) = written {
            break error;
        }
    };
    assert!(is_gone(&error), "{error}");
    for error in [region.write(0, b"x").map(drop), region.fetch_add(0, 1u64).map(drop)] {
        assert!(error.as_ref().is_err_and(is_gone), "{error:?}");
    }
}

/// An owner that is killed while this side only flushes, so that nothing else tells of its end.
#[test]
fn a_flush_tells_of_its_owners_end() {
    for way in WAYS {
        let stage = Stage::new(60);
        let mut owner = stage.role("mortal").with("way", way).spawn();
        let mut user = go(stage.role("flusher"), way).spawn();
        user.expect("flushed");
        owner.kill();
        assert!(owner.was_killed());
        user.end_well();
    }
}

pub fn flusher(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "mortal");
    let key = RegionKey::from_bytes(&endpoint.recv(peer, 1).unwrap()).unwrap();
    let region = endpoint.open_region(peer, &key).unwrap();
    region.write(0, b"there").unwrap();
    region.flush().unwrap();
    role::say("flushed");
    let end = Instant::now() + role::PATIENCE;
    let error = loop {
        match region.flush() {
            Ok(()) => assert!(Instant::now() < end, "flushes of dead memory go well"),
            Err(error) => break error,
        }
    };
    let is_gone = error.is_peer_gone() || matches!(error, Error::Withdrawn);
    assert!(is_gone, "{error}");
}
