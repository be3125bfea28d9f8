//! The translation stack of a process, as its endpoints' receipts and counters show it.

use std::{
    thread,
    time::{Duration, Instant},
};

use pinfold::{Counters, Endpoint, PeerId, Progress, Receipt, SendMode, TranslationLevel};
use pinfold_sys::trial;
use pinfold_tests::{
    Args, Stage,
    changes::{Ground, Kind},
    host::{Ended, fork},
    role::say,
    skip::skip,
};

use super::{builder, modes::by, pair};

const LEN: usize = 256 << 10;
/// The patience with other threads of this process, which change their memory.
const PATIENCE: Duration = Duration::from_secs(60);

/// An endpoint that sends out of memory that stays pinned, to one that takes it all.
struct Way {
    one: Endpoint,
    to: PeerId,
    two: Endpoint,
    from: PeerId,
}

impl Way {
    fn new() -> Way {
        let ((one, to), (two, from)) = pair(by(SendMode::Cached, true), builder(Progress::Inline));
        Way { one, to, two, from }
    }

    fn send(&self, bytes: &[u8]) -> Receipt {
        thread::scope(|scope| {
            let came = scope.spawn(|| self.two.recv(self.from, 1).unwrap().to_vec());
            let receipt = self.one.send(self.to, 1, bytes).unwrap();
            assert!(came.join().unwrap() == bytes);
            receipt
        })
    }

    /// Sends until the memory is known. `None`: nothing is kept pinned here.
    fn until_known(&self, bytes: &[u8]) -> Option<Receipt> {
        let end = Instant::now() + PATIENCE;
        loop {
            let receipt = self.send(bytes);
            match receipt.translated() {
                None => return None,
                Some(TranslationLevel::Pinned) => assert!(Instant::now() < end, "{receipt}"),
                Some(_) => return Some(receipt),
            }
        }
    }

    fn counters(&self) -> Counters {
        self.one.counters()
    }
}

fn translations(counters: &Counters) -> u64 {
    counters.tlb_hits + counters.pin_hits + counters.pin_misses
}

/// Returns whether there is an io_uring.
fn has_ring() -> bool {
    trial::io_uring().inspect_err(|error| skip(&format!("no io_uring: {error}"))).is_ok()
}

#[test]
fn receipts_and_counters_tell_which_level_had_the_memory() {
    if !has_ring() {
        return;
    }
    let (way, other) = (Way::new(), Way::new());
    let bytes = vec![7; LEN];
    let Some(receipt) = way.until_known(&bytes) else {
        assert_eq!(translations(&way.counters()), 0);
        return skip("nothing is kept pinned here");
    };
    assert!(receipt.to_string().contains("translated by"), "{receipt}");
    let before = way.counters();
    assert!(before.pin_misses >= 1 && before.pinned_bytes >= LEN as u64, "{before:?}");
    assert_eq!((translations(&other.counters()), other.counters().pinned_bytes), (0, 0));
    // One message more is at least one translation more, at the level that the receipt names.
    let receipt = way.until_known(&bytes).unwrap();
    let after = way.counters();
    assert!(after.tlb_hits + after.pin_hits > before.tlb_hits + before.pin_hits, "{receipt}");
    // The other endpoint pins for itself, and goes without taking anything along.
    other.until_known(&bytes).unwrap();
    assert!(other.counters().pin_misses >= 1 && other.counters().pinned_bytes >= LEN as u64);
    drop(other);
    assert_eq!(way.counters().pinned_bytes, after.pinned_bytes);
    way.until_known(&bytes).unwrap();
}

/// Memory of a file changes without a word, so it is pinned for one message alone: its receipts do
/// not say that it came from a cache, while those of memory that stays pinned do.
#[test]
fn a_receipt_says_cached_of_what_stays_pinned_alone() {
    if !has_ring() {
        return;
    }
    let way = Way::new();
    if way.until_known(&vec![1; LEN]).is_none() {
        return skip("nothing is kept pinned here");
    }
    let mut ground = Ground::new(1);
    for kind in [Kind::Memfd { private: false }, Kind::Memfd { private: true }, Kind::Shm] {
        ground.renew(kind).unwrap();
        ground.fill(3);
        for _ in 0..3 {
            let receipt = way.send(ground.bytes());
            assert_eq!(receipt.sent_by(), Some(SendMode::PerSend), "{kind:?}: {receipt}");
            assert_eq!(receipt.translated(), Some(TranslationLevel::Pinned), "{receipt}");
        }
    }
    ground.renew(Kind::Plain).unwrap();
    ground.fill(4);
    let receipt = way.until_known(ground.bytes()).unwrap();
    assert_eq!(receipt.sent_by(), Some(SendMode::Cached), "{receipt}");
}

/// A child begins with an empty stack of its own.
#[test]
fn a_forked_child_translates_for_itself() {
    if !has_ring() {
        return;
    }
    let stage = Stage::new(120);
    let mut forker = stage.role("forks_cached").spawn();
    if forker.hear() == "nothing is kept" {
        skip("nothing is kept pinned here");
    }
    forker.end_well();
}

pub(super) fn forks_cached(_: &Args) {
    let way = Way::new();
    let bytes = vec![7; LEN];
    if way.until_known(&bytes).is_none() {
        return say("nothing is kept");
    }
    let before = way.counters();
    let ended = fork(|| {
        let own = Way::new();
        assert!(own.until_known(&bytes).is_some(), "a child keeps memory as its parent does");
        let counters = own.counters();
        assert!(counters.pin_misses >= 1 && counters.pinned_bytes >= LEN as u64, "{counters:?}");
        0
    });
    assert_eq!(ended, Ended::Code(0));
    // The parent has what it had.
    assert_eq!(way.counters().pinned_bytes, before.pinned_bytes);
    assert!(way.until_known(&bytes).is_some());
    say("done");
}
