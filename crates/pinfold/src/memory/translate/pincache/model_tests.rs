//! Tests of one slot, with hits on one thread and the books on another, in all orders (loom), or
//! many times on real threads.

use std::sync::Arc;

#[cfg(loom)]
use loom::thread;
#[cfg(not(loom))]
use std::thread;

use super::{
    Area, Handle,
    board::{Board, Released},
};
use crate::{
    memory::translate::SpaceId,
    sync::{AtomicU64, Ordering},
};

const HERE: SpaceId = SpaceId(1);
const PAGE: u64 = 4096;

#[cfg(loom)]
fn check(model: impl Fn() + Send + Sync + 'static) {
    loom::model(model);
}

#[cfg(not(loom))]
fn check(model: impl Fn() + Send + Sync + 'static) {
    (0..if cfg!(miri) { 20 } else { 300 }).for_each(|_| model());
}

struct Shared {
    board: Board,
    /// For each handle, whether its pin stands.
    stands: [AtomicU64; 2],
    freed: AtomicU64,
}

impl Shared {
    /// With one area in the slot, idle.
    fn new() -> Arc<Shared> {
        let shared = Shared {
            board: Board::new(1, PAGE),
            stands: [AtomicU64::new(1), AtomicU64::new(0)],
            freed: AtomicU64::new(0),
        };
        let hold = shared.board.fill(0, area(0), Handle(0), 0);
        shared.board.note(HERE, 0, 0);
        assert_ne!(shared.board.release::<false>(hold), Released::Last);
        Arc::new(shared)
    }

    /// Unpins and frees.
    fn free(&self, handle: usize) {
        self.stands[handle].store(0, Ordering::Relaxed);
        self.freed.fetch_add(1, Ordering::Relaxed);
        let _ = self.board.free(0);
    }

    /// A transfer of the first page, if it is pinned.
    fn transfer(&self) {
        let Some(hold) = self.board.find::<false>(HERE, 0, 0) else { return };
        let handle = hold.handle().0 as usize;
        assert_eq!((handle, hold.offset()), (0, 0), "an area that does not have these bytes");
        assert_eq!(self.stands[handle].load(Ordering::Relaxed), 1, "unpinned in flight");
        if self.board.release::<false>(hold) == Released::Last {
            self.free(handle);
        }
    }
}

fn area(page: u64) -> Area {
    Area { space: HERE, start: page * PAGE, end: (page + 1) * PAGE }
}

#[test]
fn a_retired_slot_is_freed_once() {
    check(|| {
        let shared = Shared::new();
        let theirs = Arc::clone(&shared);
        let hits = thread::spawn(move || theirs.transfer());
        if shared.board.retire(0) == 0 {
            shared.free(0);
        }
        hits.join().unwrap();
        assert_eq!(shared.freed.load(Ordering::Relaxed), 1);
        assert!(shared.board.find::<false>(HERE, 0, 0).is_none());
    });
}

#[test]
fn what_is_held_is_not_claimed_and_filled_anew() {
    check(|| {
        let shared = Shared::new();
        let theirs = Arc::clone(&shared);
        let hits = thread::spawn(move || theirs.transfer());
        if shared.board.claim(0) {
            shared.free(0);
            shared.stands[1].store(1, Ordering::Relaxed);
            let hold = shared.board.fill(0, area(1), Handle(1), 0);
            assert_ne!(shared.board.release::<false>(hold), Released::Last);
        }
        hits.join().unwrap();
    });
}

#[test]
fn two_transfers_and_a_claim_taken_back() {
    check(|| {
        let shared = Shared::new();
        let theirs = Arc::clone(&shared);
        let hits = thread::spawn(move || theirs.transfer());
        if shared.board.claim(0) {
            shared.board.revive(0);
        }
        shared.transfer();
        hits.join().unwrap();
        assert_eq!(shared.board.transfers().0, 0);
        assert!(shared.board.claim(0));
        assert_eq!(shared.freed.load(Ordering::Relaxed), 0);
    });
}
