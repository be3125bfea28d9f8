//! Arenas, memory given away, and views.
#![allow(unsafe_code)]
// Invariant: a giver of memory that is looked at does not write it.

use std::time::Duration;

use pinfold::{Arena, DonatedBuf, DraftBuf, Error, FrozenBuf, SharedArena};
use pinfold_tests::{block_on, stamp};

use super::{here, small};

const LENGTHS: [usize; 4] = [8, 4096, 300_000, 9 << 20];
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn arenas() {
    small(|| {
        let builder = Arena::builder().bytes_max(64 << 20).bytes_budget(64 << 20);
        let arena = builder.huge_pages(true).build().unwrap();
        let plain = Arena::new().unwrap();
        for arena in [&arena, &plain] {
            let one = arena.alloc(5000).unwrap();
            let two = arena.alloc_aligned(1 << 20, 4096).unwrap();
            let three = arena.alloc_zeroed(3 << 20).unwrap();
            assert!(three.iter().all(|byte| *byte == 0));
            assert_eq!(one.arena().stats(), arena.stats());
            drop((one, two, three));
            let _ = arena.trim();
        }
        let shared = SharedArena::builder().build_shared().unwrap();
        let buf = shared.alloc(1 << 20).unwrap();
        let other = shared.alloc_aligned(5000, 64).unwrap();
        buf.fill(7);
        buf.write(3, b"abc");
        let mut bytes = [0; 4];
        buf.read(2, &mut bytes);
        assert_eq!(&bytes, b"\x07abc");
        assert!(buf.word32(0).is_some() && buf.word64(8).is_some() && !buf.is_empty());
        assert_eq!(
            (buf.len(), buf.addresses().len(), buf.to_vec().len()),
            (1 << 20, 1 << 20, 1 << 20)
        );
        assert_eq!(buf.arena().stats(), shared.stats());
        drop((buf, other));
        let _ = shared.trim();
    });
}

#[test]
fn memory_that_is_given_away() {
    here(
        "donations",
        |one, peer| {
            let (arena, shared) =
                (Arena::new().unwrap(), SharedArena::builder().build_shared().unwrap());
            for len in LENGTHS {
                let memory = || {
                    let mut memory = arena.alloc(len).unwrap();
                    stamp::fill(&mut memory, 5);
                    memory
                };
                let (sent, donation) = one.handoff(peer, 1, memory()).wait();
                assert!(sent.unwrap().bytes == len as u64 && !donation.is_empty());
                assert_eq!(donation.into_arena_buf().unwrap().len(), len);
                one.give(peer, 1, memory()).unwrap();
                one.give(peer, 1, DonatedBuf::from(memory())).unwrap();
                let words = shared.alloc(len).unwrap();
                words.write(0, &stamp::bytes(len, 5));
                let (sent, donation) = block_on(one.handoff(peer, 1, words));
                sent.unwrap();
                assert_eq!((donation.len(), donation.into_shared_buf().unwrap().len()), (len, len));
                let parts = || [arena.alloc_aligned(len, 4096), arena.alloc_aligned(4096, 4096)];
                let filled = || {
                    parts().map(|part| {
                        let mut part = part.unwrap();
                        part.fill(3);
                        part
                    })
                };
                let mut request = one.handoff_vectored(peer, 2, filled());
                while request.try_wait().is_none() {}
                one.give_vectored(peer, 2, filled()).unwrap();
                one.try_give(peer, 3, memory()).unwrap();
                one.give_timeout(peer, 3, memory(), PATIENCE).unwrap();
                assert!(one.give_latest(peer, 3, memory()).unwrap().is_none());
                let mut draft = DraftBuf::new(len).unwrap();
                draft.copy_from_slice(&stamp::bytes(len, 5));
                one.give(peer, 4, draft.freeze().unwrap()).unwrap();
                one.give(peer, 4, FrozenBuf::copy_of(&stamp::bytes(len, 5)).unwrap()).unwrap();
            }
        },
        |two, peer| {
            for len in LENGTHS {
                let mut bytes = vec![0; len];
                {
                    let view = two.recv_view(peer, 1).unwrap();
                    view.read(0, &mut bytes).unwrap();
                    stamp::check(&bytes, 5);
                    assert_eq!((view.peer(), view.tag(), view.len()), (peer, 1, len));
                    assert!(!view.is_empty() && !format!("{} {view:?}", view.receipt()).is_empty());
                    let _ = (view.folded().is_some(), view.bytes().is_some());
                }
                let view = two.recv_view_timeout(peer, 1, PATIENCE).unwrap().into_owned();
                if view.is_writable() {
                    view.write(0, &[1]).unwrap();
                    view.write(0, &bytes[..1]).unwrap();
                }
                stamp::check(&view.to_vec().unwrap(), 5);
                // SAFETY: no process writes there any more.
                stamp::check(unsafe { view.as_slice() }.unwrap(), 5);
                drop(view);
                let mut request = two.recv_view_request(peer, 1);
                let view = request.wait_timeout(PATIENCE).unwrap().unwrap();
                stamp::check(&view.to_vec().unwrap(), 5);
                drop(view);
                let view = block_on(two.recv_view_request(peer, 1)).unwrap();
                stamp::check(&view.to_vec().unwrap(), 5);
                drop(view);
                for _ in 0..2 {
                    let view = two.recv_view_request(peer, 2).wait().unwrap();
                    assert!(view.to_vec().unwrap() == vec![3; len + 4096]);
                }
                for _ in 0..3 {
                    let view = two.recv_view_request(peer, 3).wait().unwrap();
                    stamp::check(&view.to_vec().unwrap(), 5);
                }
            }
            for _ in LENGTHS {
                let view = two.recv_view(peer, 4).unwrap();
                stamp::check(view.bytes().unwrap(), 5);
                stamp::check(&view.into_frozen().unwrap(), 5);
                stamp::check(two.recv_view(peer, 4).unwrap().bytes().unwrap(), 5);
            }
            let mut never = two.recv_view_request(peer, 9);
            assert!(never.try_wait().is_none() && never.cancel());
            let nothing = two.recv_view_timeout(peer, 1, Duration::from_millis(1));
            assert!(matches!(nothing, Err(Error::Timeout(_))));
        },
    );
}
