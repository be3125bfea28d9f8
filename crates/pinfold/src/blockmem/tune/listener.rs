#![allow(unsafe_code)]
//! The other core, which reads what this one has copied.
// Invariant: the memory named in an order is readable and not written to until the order is done, and
// whoever gives orders waits for that.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use pinfold_sys::{
    affinity, block,
    clock::{relax, ticks},
};

/// What blocks are read into, piece by piece: it stays in the nearest cache, bytes.
const SCRATCH: usize = 4096;

/// Looks before the waiting thread lets others run: there may be only one processor after all.
const LOOKS: u32 = 4096;

/// Some blocks of one length, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    pub(super) first: *mut u8,
    pub(super) len: usize,
    /// From one to the next, bytes.
    pub(super) stride: usize,
    pub(super) count: usize,
}

impl Blocks {
    /// Each one, in an order that no prefetcher foresees.
    pub(super) fn each(self) -> impl Iterator<Item = *mut u8> {
        // Counts are powers of two, so that any odd step comes to all.
        (0..self.count).map(move |at| {
            self.first.wrapping_add((at.wrapping_mul(13) % self.count) * self.stride)
        })
    }
}

/// Reads all bytes of all blocks.
///
/// # Safety
/// They must be readable and not written to meanwhile.
pub(super) unsafe fn read(blocks: Blocks) {
    let mut scratch = [0u8; SCRATCH];
    for block in blocks.each() {
        for at in (0..blocks.len).step_by(SCRATCH) {
            let len = SCRATCH.min(blocks.len - at);
            let from = block.wrapping_add(at);
            // SAFETY: inside the block, as the caller promised; no longer than the scratch.
            unsafe { block::copy(block::Algorithm::LIBC, from, scratch.as_mut_ptr(), len) };
            // Each piece is wanted, not only the last.
            black_box(&mut scratch);
        }
    }
}

/// The desk on which orders lie.
#[derive(Default)]
struct Desk {
    /// The number of the latest order; published with release, so that what it says is there.
    order: AtomicU64,
    /// The number of the latest one that was carried out; with release, so that its time is there.
    done: AtomicU64,
    first: AtomicPtr<u8>,
    len: AtomicUsize,
    stride: AtomicUsize,
    count: AtomicUsize,
    ticks: AtomicU64,
}

/// The order to end.
const END: u64 = u64::MAX;

/// A thread on another processor that reads blocks.
pub(super) struct Listener {
    desk: Arc<Desk>,
    thread: Option<thread::JoinHandle<()>>,
    orders: u64,
}

impl Listener {
    /// Starts it on `cpu`. `None` if it cannot be there.
    pub(super) fn start(cpu: usize) -> Option<Listener> {
        let desk = Arc::new(Desk::default());
        let its = Arc::clone(&desk);
        let (tell, told) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name("pinfold-tune-reader".into()).spawn(move || {
            let bound = affinity::pin_to(cpu).is_ok();
            if tell.send(bound).is_ok() && bound {
                listen(&its);
            }
        });
        let thread = thread.ok()?;
        told.recv().ok().filter(|bound| *bound)?;
        Some(Listener { desk, thread: Some(thread), orders: 0 })
    }

    /// Has it read, and says how many ticks that took there.
    ///
    /// # Safety
    /// The blocks must be readable. They are not written to meanwhile if only this thread would.
    pub(super) unsafe fn read(&mut self, blocks: Blocks) -> u64 {
        let desk = &*self.desk;
        desk.first.store(blocks.first, Ordering::Relaxed);
        desk.len.store(blocks.len, Ordering::Relaxed);
        desk.stride.store(blocks.stride, Ordering::Relaxed);
        desk.count.store(blocks.count, Ordering::Relaxed);
        self.orders += 1;
        desk.order.store(self.orders, Ordering::Release);
        await_change(&desk.done, self.orders - 1);
        desk.ticks.load(Ordering::Relaxed)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.desk.order.store(END, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It does not panic, and would have told.
            let _ = thread.join();
        }
    }
}

fn listen(desk: &Desk) {
    let mut last = 0;
    loop {
        last = await_change(&desk.order, last);
        if last == END {
            return;
        }
        let blocks = Blocks {
            first: desk.first.load(Ordering::Relaxed),
            len: desk.len.load(Ordering::Relaxed),
            stride: desk.stride.load(Ordering::Relaxed),
            count: desk.count.load(Ordering::Relaxed),
        };
        let start = ticks();
        // SAFETY: whoever gave the order waits until it is done, and promised the rest.
        unsafe { read(blocks) };
        desk.ticks.store(ticks().wrapping_sub(start), Ordering::Relaxed);
        desk.done.store(last, Ordering::Release);
    }
}

/// Waits until `word` is not `old` any more, and says what it is then.
fn await_change(word: &AtomicU64, old: u64) -> u64 {
    let mut looks = 0;
    loop {
        let now = word.load(Ordering::Acquire);
        if now != old {
            return now;
        }
        looks += 1;
        if looks % LOOKS == 0 { thread::yield_now() } else { relax() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_once() {
        let mut memory = [0u8; 1024];
        for count in [1, 2, 8, 32] {
            let first = memory.as_mut_ptr();
            let blocks = Blocks { first, len: 8, stride: 32, count };
            let mut places: Vec<usize> = blocks.each().map(|at| at.addr() - first.addr()).collect();
            places.sort_unstable();
            assert_eq!(places, (0..count).map(|at| at * 32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn orders_are_carried_out() {
        let cpu = affinity::current_cpus()[0];
        let mut listener = Listener::start(cpu).unwrap();
        let mut memory = vec![1u8; 10_000];
        let blocks = Blocks { first: memory.as_mut_ptr(), len: 5000, stride: 5000, count: 2 };
        for order in 1..=3 {
            // SAFETY: all of it is in the vector, and nobody writes.
            unsafe { listener.read(blocks) };
            assert_eq!(listener.desk.done.load(Ordering::Relaxed), order);
        }
        drop(listener);
        assert!(Listener::start(usize::MAX).is_none());
    }
}
