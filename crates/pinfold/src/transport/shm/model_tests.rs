//! Models of two processes that use one ring, bell, claim word, hazard word or status page at the
//! same time.
//!
//! Every model here runs in two ways. Under `--cfg loom` loom takes it through all orders of its
//! steps, with all values that the memory model lets a load return. Otherwise it runs on two real
//! threads, with more messages and the real barriers.
//!
//! The mutants are models with one fence or one check left out. Loom has to find each of them, or
//! else the models prove nothing.
//!
//! `random` has the sequential half: random steps against a plain oracle, and sides that lie.

mod claims;
mod doorbells;
mod hazards;
#[cfg(not(loom))]
mod random;
mod rings;
mod seqlocks;
mod two;
mod validity;

use std::sync::Arc;

#[cfg(loom)]
use loom::{sync as blocking, thread};
#[cfg(not(loom))]
use std::{sync as blocking, thread};

use self::plain::Plain;
use super::ring::{RingMemory, Slot};
use crate::{
    sync::AtomicU64,
    wire::descriptor::{Header, Kind},
};

/// A ring in memory of this process.
struct Heap {
    slots: Vec<Slot>,
    consumed: AtomicU64,
}

/// One side's handle to the ring.
#[derive(Clone)]
struct HeapRing(Arc<Heap>);

impl HeapRing {
    fn new(slots: u32) -> HeapRing {
        let slot = |_| std::array::from_fn(|_| AtomicU64::new(0));
        let slots = (0..slots).map(slot).collect();
        HeapRing(Arc::new(Heap { slots, consumed: AtomicU64::new(0) }))
    }
}

impl RingMemory for HeapRing {
    fn slots(&self) -> u32 {
        self.0.slots.len() as u32
    }

    fn slot(&self, index: u32) -> &Slot {
        &self.0.slots[index as usize]
    }

    fn consumed(&self) -> &AtomicU64 {
        &self.0.consumed
    }
}

/// Ordinary memory, as bulk bytes are. Loom complains of every race on it.
mod plain {
    #![allow(unsafe_code)]
    // Invariant: none of its own. The models are here to find out whether two threads ever reach a
    // cell at the same time; loom and Miri check it at every access.

    #[cfg(loom)]
    use loom::cell::UnsafeCell;
    #[cfg(not(loom))]
    use std::cell::UnsafeCell;

    pub(super) struct Plain(UnsafeCell<u64>);

    // SAFETY: see the invariant above.
    unsafe impl Sync for Plain {}

    impl Plain {
        pub(super) fn new(value: u64) -> Plain {
            Plain(UnsafeCell::new(value))
        }

        pub(super) fn set(&self, value: u64) {
            #[cfg(loom)]
            // SAFETY: loom has checked that no other thread reaches the cell now.
            self.0.with_mut(|cell| unsafe { *cell = value });
            #[cfg(not(loom))]
            // SAFETY: the ring hands the cell to one side at a time, as loom has checked.
            unsafe {
                *self.0.get() = value
            };
        }

        pub(super) fn get(&self) -> u64 {
            #[cfg(loom)]
            // SAFETY: loom has checked that no thread writes the cell now.
            return self.0.with(|cell| unsafe { *cell });
            #[cfg(not(loom))]
            // SAFETY: as in `set`.
            return unsafe { *self.0.get() };
        }
    }
}

/// Runs a model in all orders with at most `preemptions` switches that nothing forced.
#[cfg(loom)]
fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
    builder.check(model);
}

/// Runs a model many times on real threads.
#[cfg(not(loom))]
fn check(_preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let rounds = if cfg!(miri) { 10 } else { 200 };
    (0..rounds).for_each(|_| model());
}

fn header(number: u64) -> Header {
    Header::new(Kind::Data, 0, number as u32)
}

/// A larger number of messages where they are cheap.
const fn many(few: u64) -> u64 {
    if cfg!(loom) {
        few
    } else if cfg!(miri) {
        few * 10
    } else {
        few * 100
    }
}
