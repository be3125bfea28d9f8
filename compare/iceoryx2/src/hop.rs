//! The way of a cache line between the two cores.

use std::{
    sync::atomic::{AtomicU64, Ordering::{Acquire, Release}},
    thread,
    time::Instant,
};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::turn::Result;

/// Hops from core to core that are timed.
const HOPS: u64 = 4_000;
/// A hop takes no longer between cores that are near, ns.
const NEAR_NS: u64 = 100;

/// Binds this thread to a core.
pub fn bind(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// True if the cores are near now.
pub fn is_near() -> Result<bool> {
    let word = AtomicU64::new(0);
    let begun = Instant::now();
    thread::scope(|threads| {
        let other = threads.spawn(|| {
            bind(1)?;
            bounce(&word, 1);
            Ok(())
        });
        bounce(&word, 0);
        other.join().map_err(|_| "the thread that times hops panicked")?
    })
    .map(|()| begun.elapsed().as_nanos() as u64 / HOPS < NEAR_NS)
}

/// Adds 1 whenever the word's parity is `parity`.
fn bounce(word: &AtomicU64, parity: u64) {
    for number in (parity..HOPS).step_by(2) {
        while word.load(Acquire) != number {
            std::hint::spin_loop();
        }
        word.store(number + 1, Release);
    }
}
