//! Hazard words: one side uses memory of the other, which takes that memory away.

use std::sync::Arc;

use super::{check, plain::Plain, thread};
use crate::{
    sync::{AtomicU64, Ordering},
    transport::shm::hazard,
};

/// The words that both sides share: whether the region stands, and which region a thread is using.
struct Region {
    flag: AtomicU64,
    word: AtomicU64,
    withdrawals: AtomicU64,
    memory: Plain,
}

/// The fences that a [`taken_away`] issues.
#[derive(Clone, Copy)]
struct Fences {
    visitor: bool,
    owner: bool,
}

/// The visitor writes if the region stands once its word is set; the owner writes once no word is
/// set. They never do so at the same time: loom checks that.
fn taken_away(fences: Fences) {
    let region = Arc::new(Region {
        flag: AtomicU64::new(1),
        word: AtomicU64::new(0),
        withdrawals: AtomicU64::new(0),
        memory: Plain::new(0),
    });
    let theirs = Arc::clone(&region);
    let visitor = thread::spawn(move || {
        let withdrawals = if fences.visitor {
            hazard::begin(&theirs.word, 7, &theirs.withdrawals)
        } else {
            theirs.word.store(7, Ordering::Relaxed);
            theirs.withdrawals.load(Ordering::Acquire)
        };
        if withdrawals == 0 || theirs.flag.load(Ordering::Relaxed) == 1 {
            theirs.memory.set(1);
        }
        hazard::end(&theirs.word);
    });
    region.flag.store(0, Ordering::Relaxed);
    hazard::withdraw(&region.withdrawals, 1);
    let is_protected = if fences.owner {
        hazard::is_protected([&region.word], 7)
    } else {
        region.word.load(Ordering::Acquire) == 7
    };
    if !is_protected {
        region.memory.set(2);
    }
    visitor.join().unwrap();
    assert!(is_protected || region.memory.get() == 2, "the visitor came late");
}

#[test]
fn what_is_free_has_no_visitor() {
    check(None, || taken_away(Fences { visitor: true, owner: true }));
}

#[cfg(loom)]
#[test]
#[should_panic]
fn mutant_without_the_visitors_fence() {
    check(None, || taken_away(Fences { visitor: false, owner: true }));
}

#[cfg(loom)]
#[test]
#[should_panic]
fn mutant_without_the_owners_fence() {
    check(None, || taken_away(Fences { visitor: true, owner: false }));
}
