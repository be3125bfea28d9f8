#![allow(unsafe_code)]
//! Memory that peers on other hosts are to reach.

use pinfold::{Arena, Error, Path, Progress, Refusal, Rights};
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
    exposed.revoke().unwrap();
    assert!(space.read(start as u64, &mut [0; 8]).is_err());
    let mut expected = stamp::bytes(3 << 20, 1);
    assert_eq!(read, expected[1000..][..2 << 20]);
    expected[5000..][..100_000].copy_from_slice(&new);
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
