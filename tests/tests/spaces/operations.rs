#![allow(unsafe_code)]
// Invariant: memory that is exposed or changed is the test's own, and raw pointers alone reach it.
//! Operations of several parts, and those that own their buffers.

use std::{future::Future, pin::pin, task::Context, time::Duration};

use pinfold::{
    Completed, CompletionQueue, Endpoint, Error, Path, Progress, RemoteSpace, Rights, SharedArena,
};
use pinfold_tests::{Args, role, stamp};

use super::{
    memory::{Area, PAGE, map, protect},
    plain, play, space, tell, told,
};

const LEN: usize = 1 << 20;

#[test]
fn several_parts_and_owned_buffers_arrive() {
    play("lender", "borrower");
}

/// A heap, an arena, and a page that cannot be touched.
pub fn lender(_: &Args) {
    let (endpoint, peer) =
        role::listen(Endpoint::builder().progress(Progress::Dedicated), "operations");
    let arena = SharedArena::builder().build_shared().unwrap();
    let buf = arena.alloc(LEN).unwrap();
    let areas = [map(None, LEN, libc::MAP_PRIVATE, None), Area::of(&buf)];
    areas.iter().for_each(|area| area.fill(1));
    let hole = map(None, PAGE, libc::MAP_PRIVATE, None);
    protect(hole, libc::PROT_NONE);
    // SAFETY: reached by raw pointers alone.
    let exposed = unsafe { endpoint.expose(0..1 << 47, Rights::ReadWrite) }.unwrap();
    endpoint.send(peer, 1, &exposed.key().to_bytes()).unwrap();
    tell(&endpoint, peer, &[areas[0], areas[1], hole].map(|area| area.address() as u64));
    told(&endpoint, peer);
    // Parts: every third KiB of each area was written, and nothing else.
    for area in areas {
        let bytes = area.to_vec();
        for (at, kib) in bytes.chunks(1024).enumerate() {
            let seed = if at % 3 == 1 { 2 } else { 1 };
            assert_eq!(kib, &stamp::bytes(LEN, seed)[at * 1024..][..1024], "KiB {at}");
        }
    }
    tell(&endpoint, peer, &[]);
    told(&endpoint, peer);
    // Requests that were dropped and leaked have been carried out.
    for area in areas {
        area.check(5);
    }
    exposed.revoke().unwrap();
    tell(&endpoint, peer, &[]);
    told(&endpoint, peer);
    for area in areas {
        area.check(5);
    }
    endpoint.close();
}

pub fn borrower(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "operations");
    let space = space(&endpoint, peer);
    let [heap, arena, hole] = told(&endpoint, peer)[..] else { panic!("three addresses") };
    parts(&space, plain(&endpoint, peer), [heap, arena, hole]);
    tell(&endpoint, peer, &[]);
    told(&endpoint, peer);
    owned(&space, [heap, arena], hole);
    space.flush().unwrap();
    tell(&endpoint, peer, &[]);
    told(&endpoint, peer);

    // The end of the exposure, and of the peer, are errors of requests, too.
    let is_revoked = |error: &Error| matches!(error, Error::Revoked);
    assert!(space.write_owned(heap, vec![9; 100_000]).wait().0.is_err_and(|it| is_revoked(&it)));
    assert!(space.read_owned(arena, vec![9; 10]).wait().0.is_err_and(|it| is_revoked(&it)));
    assert!(space.flush().is_err_and(|it| is_revoked(&it)));
    assert!(space.write_vectored(&[]).is_err_and(|it| is_revoked(&it)));
    tell(&endpoint, peer, &[]);
    assert!(endpoint.recv(peer, 3).unwrap_err().is_peer_gone());
    let (gone, buffer) = space.write_owned(heap, vec![9; 100_000]).wait();
    let is_gone = gone.as_ref().is_err_and(|error| {
        error.is_peer_gone() || matches!(error, Error::Withdrawn | Error::UnknownPeer { .. })
    });
    assert!(is_gone, "{gone:?}");
    assert_eq!(buffer, [9; 100_000]);
}

fn parts(space: &RemoteSpace, plain: Path, [heap, arena, hole]: [u64; 3]) {
    let mut back = vec![0; LEN];
    let (contents, new) = (stamp::bytes(LEN, 1), stamp::bytes(LEN, 2));
    for _ in 0..3 {
        // Both areas by turns.
        let mut parts: Vec<(u64, &mut [u8])> = Vec::new();
        for (at, part) in back.chunks_mut(100_001).enumerate() {
            let area = if at % 2 == 0 { heap } else { arena };
            parts.push((area + at as u64 * 100_001, part));
        }
        let receipt = space.read_vectored(&mut parts).unwrap();
        assert_eq!((receipt.bytes, receipt.path), (LEN as u64, plain), "{receipt}");
        assert!(back == contents);
    }
    let kib = |area: u64| {
        let parts = new.chunks(1024).enumerate().filter(|(at, _)| at % 3 == 1);
        parts.map(move |(at, bytes)| (area + at as u64 * 1024, bytes))
    };
    let parts: Vec<(u64, &[u8])> =
        kib(heap).zip(kib(arena)).flat_map(|(one, two)| [one, two]).collect();
    let receipt = space.write_vectored(&parts).unwrap();
    assert_eq!(receipt.bytes, parts.len() as u64 * 1024);
    space.fence();
    space.flush().unwrap();
    assert_eq!(space.write_vectored(&[]).unwrap().bytes, 0);
    assert_eq!(space.read_vectored(&mut []).unwrap().bytes, 0);
    // All bounds are checked first.
    let wrote = space.write_vectored(&[(heap, b"no"), (1 << 47, b"no")]);
    assert!(matches!(wrote, Err(Error::OutOfBounds { .. })), "{wrote:?}");
    let read = space.read_vectored(&mut [(heap, &mut [0; 8]), (hole, &mut [0; 8])]);
    assert!(matches!(read, Err(Error::NotMapped { .. })), "{read:?}");
}

fn owned(space: &RemoteSpace, areas: [u64; 2], hole: u64) {
    let queue = CompletionQueue::new().unwrap();
    for round in 0..4u64 {
        for (at, len) in [0, 8, 5000, 300_000, LEN].into_iter().enumerate() {
            let (at, area) = (at as u64, areas[at % 2]);
            let write = space.write_owned(area, stamp::bytes(len, 3));
            match round {
                0 => {
                    let (receipt, buffer) = write.wait();
                    assert_eq!(receipt.unwrap().bytes, len as u64);
                    stamp::check(&buffer, 3);
                }
                1 => queue.add(at, write),
                2 => {
                    let mut write = write;
                    while write.wait_timeout(Duration::from_millis(1)).is_none() {}
                    assert!(write.try_wait().is_none() && !write.cancel());
                }
                _ => {
                    let mut write = pin!(write);
                    let mut context = Context::from_waker(std::task::Waker::noop());
                    while write.as_mut().poll(&mut context).is_pending() {}
                }
            }
            // A write on a queue has to end before it can be read back.
            let mut ended = Vec::new();
            while queue.outstanding() > 0 {
                queue.wait(&mut ended, 8, None).unwrap();
            }
            queue.add(100 + at, space.read_owned(area, vec![0; len]));
            while queue.outstanding() > 0 {
                queue.wait(&mut ended, 8, None).unwrap();
            }
            assert_eq!(ended.len(), if round == 1 { 2 } else { 1 });
            for mut completion in ended {
                let Completed::Copied(receipt) = completion.result.as_ref().unwrap() else {
                    panic!("{completion:?}")
                };
                assert_eq!(receipt.bytes, len as u64);
                stamp::check(&completion.take_buffer::<Vec<u8>>().unwrap(), 3);
            }
        }
    }
    // Many at a time, of which some fail.
    for at in 0..200u64 {
        queue.add(at, space.read_owned(areas[0] + at * 8, vec![0; 40_000]));
        queue.add(1000 + at, space.write_owned(hole + at, vec![0; 100]));
    }
    let mut ended = Vec::new();
    while queue.outstanding() > 0 {
        queue.wait(&mut ended, 100, None).unwrap();
    }
    assert_eq!(ended.len(), 400);
    let contents = stamp::bytes(LEN, 3);
    for mut completion in ended {
        let buffer: Vec<u8> = completion.take_buffer().unwrap();
        match (completion.context, &completion.result) {
            (at @ 0..200, Ok(_)) => assert_eq!(buffer, contents[at as usize * 8..][..40_000]),
            (1000.., Err(Error::NotMapped { .. })) => assert_eq!(buffer, [0; 100]),
            (at, result) => panic!("{at}: {result:?}"),
        }
    }
    // Given up, and forgotten: the operation goes on, and its buffer with it.
    for (at, area) in areas.into_iter().enumerate() {
        let half = LEN / 2;
        let bytes = stamp::bytes(LEN, 5);
        drop(space.write_owned(area, bytes[..half].to_vec()));
        std::mem::forget(space.write_owned(area + half as u64, bytes[half..].to_vec()));
        drop(space.read_owned(area, vec![0; LEN]));
        std::mem::forget(space.read_owned(area, vec![0; LEN]));
        let given_up = CompletionQueue::new().unwrap();
        given_up.add(at as u64, space.read_owned(area, vec![0; LEN]));
    }
    // Those before have ended when as many later ones have.
    for area in areas {
        let mut bytes = vec![0; LEN];
        while stamp::wrong_at(&bytes, 5).is_some() {
            space.read(area, &mut bytes).unwrap();
        }
    }
}
