#![allow(unsafe_code)]
//! Memory that peers on other hosts are to reach.

use pinfold::{Arena, AtomicChange, CompletionQueue, Error, Path, Progress, Refusal, Rights};
use pinfold_tests::stamp;

use super::{builder, pair};

/// The owner's agent reaches exposed memory where nothing else does.
#[test]
fn exposed_memory_is_served() {
    let ((one, _to_two), (two, to_one)) =
        pair(builder(Progress::Dedicated), builder(Progress::Inline));
    let mut memory = stamp::bytes(3 << 20, 1);
    let start = memory.as_mut_ptr().expose_provenance();
    // SAFETY: no other code looks at it until the exposure has ended.
    let exposed = unsafe { one.expose(start..start + memory.len(), Rights::ReadWrite) }.unwrap();
    let space = two.open_space(to_one, &exposed.key()).unwrap();
    let mut read = vec![0; 2 << 20];
    space.read(start as u64 + 1000, &mut read).unwrap();
    let new = stamp::bytes(100_000, 2);
    space.write(start as u64 + 5000, &new).unwrap();
    let error = space.read(start as u64 + (3 << 20) - 4, &mut [0; 8]).unwrap_err();
    assert!(matches!(error, Error::OutOfBounds { .. }), "{error}");
    // Several parts, requests, and words, of which each is done once.
    let parts: Vec<(u64, &[u8])> =
        new.chunks(1000).map(|part| (start as u64 + (2 << 20) + part[0] as u64, part)).collect();
    space.write_vectored(&parts).unwrap();
    let queue = CompletionQueue::new().unwrap();
    queue.add(1, space.write_owned(start as u64 + 200_000, new.clone()));
    queue.add(2, space.read_owned(start as u64 + 1000, vec![0; 4000]));
    let word = (start as u64).next_multiple_of(8) + (1 << 20);
    let first = space.fetch_add(word, 0u64).unwrap();
    for at in 0..100 {
        queue.add(3, space.atomic(word, AtomicChange::Add(1u64)));
        assert!(space.fetch_add(word, 1u64).unwrap() >= first + at);
    }
    let mut ended = Vec::new();
    while queue.outstanding() > 0 {
        queue.wait(&mut ended, 64, None).unwrap();
    }
    assert_eq!(ended.len(), 102);
    assert!(ended.iter().all(|completion| completion.result.is_ok()));
    assert_eq!(space.compare_swap(word, first + 200, first).unwrap(), first + 200);
    let error = space.swap(word + 1, 1u32).unwrap_err();
    assert!(matches!(error, Error::Misaligned { .. }), "{error}");
    exposed.revoke().unwrap();
    assert!(space.read(start as u64, &mut [0; 8]).is_err());
    assert!(matches!(space.swap(word, 1u64), Err(Error::Revoked)));
    let mut expected = stamp::bytes(3 << 20, 1);
    assert_eq!(read, expected[1000..][..2 << 20]);
    expected[5000..][..100_000].copy_from_slice(&new);
    expected[200_000..][..100_000].copy_from_slice(&new);
    for (at, part) in parts {
        expected[(at - start as u64) as usize..][..part.len()].copy_from_slice(part);
    }
    assert_eq!(memory, expected);
}

/// A gift goes as a copy, and its memory is the giver's again.
#[test]
fn donations_are_copied() {
    let ((one, to_two), (two, to_one)) =
        pair(builder(Progress::Dedicated), builder(Progress::Inline));
    let arena = Arena::builder().build().unwrap();
    for len in [100, 50_000, 4 << 20] {
        let mut donation = arena.alloc(len).unwrap();
        donation.copy_from_slice(&stamp::bytes(len, len as u64));
        let handoff = one.handoff(to_two, 1, donation);
        let view = two.recv_view(to_one, 1).unwrap();
        assert_eq!(view.len(), len);
        let mut bytes = vec![0; len];
        view.read(0, &mut bytes).unwrap();
        stamp::check(&bytes, len as u64);
        drop(view);
        let receipt = handoff.wait().0.unwrap();
        assert_eq!(receipt.path, Path::Eager);
        let why = receipt.refusals().find(|(path, _)| *path == Path::Handoff);
        assert_eq!(why, Some((Path::Handoff, Refusal::OtherHost)));
    }
    assert_eq!(arena.stats().bytes_live, 0);
}
