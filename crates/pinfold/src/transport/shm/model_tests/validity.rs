//! Regions: one side changes them, and their owner takes them down.

use std::sync::Arc;

use super::{check, doorbells::light_fence, thread};
use crate::{
    sync::{AtomicU64, Ordering},
    transport::shm::validity,
};

/// The fences that a [`taken_down`] issues.
#[derive(Clone, Copy)]
struct Fences {
    light: bool,
    heavy: bool,
}

const STAMP: u64 = 7;

/// One side writes and checks whether the region stands; the owner takes it down and moves its
/// contents. A write that succeeded must not be left behind.
fn taken_down(fences: Fences) {
    let flag = Arc::new(AtomicU64::new(STAMP));
    let memory = Arc::new(AtomicU64::new(0));
    let (their_flag, their_memory) = (Arc::clone(&flag), Arc::clone(&memory));
    let writer = thread::spawn(move || {
        their_memory.store(1, Ordering::Relaxed);
        if fences.light {
            validity::stands(&their_flag, STAMP, light_fence())
        } else {
            their_flag.load(Ordering::Acquire) == STAMP
        }
    });
    if fences.heavy {
        validity::take_down(&flag);
    } else {
        flag.store(0, Ordering::SeqCst);
    }
    let moved = memory.load(Ordering::Relaxed);
    let succeeded = writer.join().unwrap();
    assert!(!succeeded || moved == 1, "a write was left behind");
}

#[test]
#[cfg_attr(miri, ignore = "calls membarrier")]
fn what_succeeded_is_moved() {
    check(None, || taken_down(Fences { light: true, heavy: true }));
}

#[cfg(loom)]
#[test]
#[should_panic(expected = "a write was left behind")]
fn mutant_without_the_light_fence() {
    check(None, || taken_down(Fences { light: false, heavy: true }));
}

#[cfg(loom)]
#[test]
#[should_panic(expected = "a write was left behind")]
fn mutant_without_the_heavy_fence() {
    check(None, || taken_down(Fences { light: true, heavy: false }));
}
