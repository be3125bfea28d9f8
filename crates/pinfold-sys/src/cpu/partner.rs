//! A thread on another core, which reads bytes that this one has written, and bounces a cache line
//! with it.
#![allow(unsafe_code)]
// Invariant: the memory named in an order is readable and not written to until the order is done,
// and the thread that gives orders waits for that.

mod blocks;

use std::{
    sync::{
        Arc,
        atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

pub use self::blocks::Blocks;
use crate::{
    cpu::{affinity, clock},
    threads::Kind,
};

const PARTNER: Kind = Kind::new("pinfold-partner", 128 << 10);

/// Looks before the waiting thread yields: there may be only one processor after all.
const LOOKS: u32 = 4096;

/// Round trips in one group of the probe, and groups; the median of those counts.
const ROUND_TRIPS: u64 = 8;
const GROUPS: usize = 15;

/// On a machine so busy that the probe has taken this long already, it ends early.
const PROBE_LONG: Duration = Duration::from_millis(1);

/// A word with lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Word(AtomicU64);

/// The desk on which orders lie.
#[derive(Default)]
struct Desk {
    /// The number of the latest order; published with release, so that the order's fields are
    /// there.
    order: Word,
    /// The number of the latest one that was carried out; with release, so that its time is there.
    done: Word,
    /// The word that is bounced: odd on the way there, even on the way back. Carries nothing else.
    ball: Word,
    first: AtomicPtr<u8>,
    len: AtomicUsize,
    stride: AtomicUsize,
    /// 0: bounce until told to stop.
    count: AtomicUsize,
    step: AtomicUsize,
    ticks: AtomicU64,
}

/// The order to end, and the ball that is not returned.
const END: u64 = u64::MAX;

/// A thread on another processor that carries out orders.
pub struct Partner {
    desk: Arc<Desk>,
    thread: Option<thread::JoinHandle<()>>,
    orders: u64,
}

impl Partner {
    /// Starts it on `cpu`. `None` if it cannot be there.
    pub fn start(cpu: usize) -> Option<Partner> {
        let desk = Arc::new(Desk::default());
        let its = Arc::clone(&desk);
        let (tell, told) = mpsc::channel();
        let thread = PARTNER.start(move || {
            let bound = affinity::pin_to(cpu).is_ok();
            if tell.send(bound).is_ok() && bound {
                serve(&its);
            }
        });
        let thread = thread.ok()?;
        told.recv().ok().filter(|bound| *bound)?;
        Some(Partner { desk, thread: Some(thread), orders: 0 })
    }

    /// Has it read the blocks, and returns how many ticks that took there.
    ///
    /// # Safety
    /// The blocks must be readable, and not be written to meanwhile.
    pub unsafe fn read(&mut self, blocks: Blocks) -> u64 {
        let desk = &*self.desk;
        desk.first.store(blocks.first, Ordering::Relaxed);
        desk.len.store(blocks.len, Ordering::Relaxed);
        desk.stride.store(blocks.stride, Ordering::Relaxed);
        desk.count.store(blocks.count, Ordering::Relaxed);
        desk.step.store(blocks.step, Ordering::Relaxed);
        self.order();
        self.await_done();
        self.desk.ticks.load(Ordering::Relaxed)
    }

    /// Bounces a cache line for some tens of microseconds, on a busy machine up to some
    /// milliseconds: nanoseconds from core to core, the median of a few.
    pub fn hop_ns(&mut self) -> f64 {
        self.desk.ball.0.store(0, Ordering::Relaxed);
        self.desk.count.store(0, Ordering::Relaxed);
        self.order();
        let (ball, mut value) = (&self.desk.ball.0, 0);
        let (mut groups, began) = (Vec::with_capacity(GROUPS), Instant::now());
        while groups.len() < GROUPS && (groups.is_empty() || began.elapsed() < PROBE_LONG) {
            let start = clock::ticks();
            for _ in 0..ROUND_TRIPS {
                ball.store(value + 1, Ordering::Release);
                value = await_change(ball, value + 1);
            }
            groups.push(clock::ticks().wrapping_sub(start));
        }
        ball.store(END, Ordering::Release);
        self.await_done();
        groups.sort_unstable();
        let ticks = groups[groups.len() / 2];
        ticks as f64 * 1000.0 / clock::ticks_per_us() as f64 / (2 * ROUND_TRIPS) as f64
    }

    fn order(&mut self) {
        self.orders += 1;
        self.desk.order.0.store(self.orders, Ordering::Release);
    }

    fn await_done(&self) {
        await_change(&self.desk.done.0, self.orders - 1);
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        self.desk.order.0.store(END, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // The thread does not panic, and would have told.
            let _ = thread.join();
        }
    }
}

fn serve(desk: &Desk) {
    let mut last = 0;
    loop {
        last = await_change(&desk.order.0, last);
        if last == END {
            return;
        }
        let blocks = Blocks {
            first: desk.first.load(Ordering::Relaxed),
            len: desk.len.load(Ordering::Relaxed),
            stride: desk.stride.load(Ordering::Relaxed),
            count: desk.count.load(Ordering::Relaxed),
            step: desk.step.load(Ordering::Relaxed),
        };
        if blocks.count == 0 {
            bounce_back(&desk.ball.0);
        } else {
            let start = clock::ticks();
            // SAFETY: the thread that gave the order waits until it is done, and promised the rest.
            unsafe { blocks.read() };
            desk.ticks.store(clock::ticks().wrapping_sub(start), Ordering::Relaxed);
        }
        desk.done.0.store(last, Ordering::Release);
    }
}

fn bounce_back(ball: &AtomicU64) {
    let mut seen = 0;
    loop {
        seen = await_change(ball, seen);
        if seen == END {
            return;
        }
        seen += 1;
        ball.store(seen, Ordering::Release);
    }
}

/// Waits until `word` is not `old` any more; returns its new value.
fn await_change(word: &AtomicU64, old: u64) -> u64 {
    let mut looks = 0;
    loop {
        let now = word.load(Ordering::Acquire);
        if now != old {
            return now;
        }
        looks += 1;
        if looks % LOOKS == 0 { thread::yield_now() } else { clock::relax() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_carried_out() {
        let cpu = affinity::current_cpus()[0];
        let mut partner = Partner::start(cpu).unwrap();
        let mut memory = vec![1u8; 10_000];
        let blocks =
            Blocks { first: memory.as_mut_ptr(), len: 5000, stride: 5000, count: 2, step: 1 };
        for order in 1..=3 {
            // SAFETY: all of it is in the vector, and nobody writes.
            unsafe { partner.read(blocks) };
            assert_eq!(partner.desk.done.0.load(Ordering::Relaxed), 2 * order - 1);
            assert!(partner.hop_ns() > 0.0);
        }
        drop(partner);
        assert!(Partner::start(usize::MAX).is_none());
    }
}
