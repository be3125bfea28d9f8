//! The separate costs of lock, copy and unlock (Bhikshesvaran, table 5.4): registering memory with
//! a ring, copying it, and ending the registration; each the whole call, of memory that a message
//! would have.

use std::hint::black_box;

use pinfold::route::{SendMode, SentFrom};
use pinfold_sys::{
    cpu::block,
    mem::pin::{Pin, Registered},
};

use super::{
    bench::{cpu_ns, median},
    cell::{AREA_BYTES, Cell, Contestant},
    measure::Row,
};

/// Areas that are measured together.
const BATCH: usize = 16;
const TURNS: usize = 21;

/// One size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lock {
    pub(super) bytes: usize,
    pub(super) register_ns: Option<f64>,
    pub(super) unregister_ns: Option<f64>,
    pub(super) copy_cache_ns: f64,
    /// `None` if no instruction empties the caches.
    pub(super) copy_memory_ns: Option<f64>,
    /// A system call that does nothing: part of the first two.
    pub(super) call_ns: f64,
    /// Within a send, by difference: per-send less cached.
    pub(super) send_pin_ns: Option<f64>,
    /// Two-copy less cached.
    pub(super) send_copy_cache_ns: Option<f64>,
    pub(super) send_copy_memory_ns: Option<f64>,
}

/// Measures each of `sizes`; the worth within a send is taken from `rows`. Returns also the reason
/// why nothing can be registered, if so.
pub(super) fn measure(sizes: &[usize], rows: &[Row]) -> (Vec<Lock>, Option<String>) {
    let made = Registered::new(BATCH as u32);
    let mut why = made.as_ref().err().map(ToString::to_string);
    let ring = made.ok();
    let stride = AREA_BYTES.next_multiple_of(4096);
    let mut from = vec![1u8; stride * (BATCH + 1)];
    let mut to = vec![2u8; stride];
    let skip = from.as_ptr().align_offset(4096);
    let mut locks = Vec::new();
    for &bytes in sizes {
        let mut taken: [Vec<f64>; 5] = Default::default();
        for turn in 0..TURNS {
            let cell = Cell { bytes, pieces: 1, from: SentFrom::Cache };
            let part = cell.pieces(false).remove(0);
            let areas: Vec<usize> = (0..BATCH).map(|n| skip + n * stride + part.start).collect();
            let mut add = |which: usize, start: f64| {
                taken[which].push((cpu_ns() - start) / BATCH as f64);
            };
            for &at in &areas {
                from[at..at + bytes].fill(turn as u8);
            }
            to[..bytes].fill(0);
            let mut copy = |from: &[u8]| {
                for &at in &areas {
                    let from = black_box(&from[at..at + bytes]);
                    black_box(&mut to[..bytes]).copy_from_slice(from);
                }
            };
            let start = cpu_ns();
            copy(&from);
            add(0, start);
            if areas.iter().all(|&at| block::flush(&from[at..at + bytes])) {
                let start = cpu_ns();
                copy(&from);
                add(1, start);
            }
            let start = cpu_ns();
            for _ in 0..BATCH {
                let _ = black_box(rustix::process::getppid());
            }
            add(2, start);
            if let Some(ring) = ring.as_ref().filter(|_| why.is_none()) {
                let address = from.as_ptr().addr();
                let mut slots = Vec::with_capacity(BATCH);
                let start = cpu_ns();
                for &at in &areas {
                    match ring.pin(address + at..address + at + bytes) {
                        Ok(slot) => slots.push(slot),
                        Err(error) => why = Some(error.to_string()),
                    }
                }
                add(3, start);
                let start = cpu_ns();
                for slot in slots {
                    // The slot is this ring's.
                    let _ = ring.unpin(slot);
                }
                add(4, start);
            }
        }
        let middle = |which: usize| {
            let taken: &Vec<f64> = &taken[which];
            (!taken.is_empty()).then(|| median(taken.iter().copied()))
        };
        let pinned = |which| middle(which).filter(|_| why.is_none());
        let less = |more, from| apart(rows, bytes, more, from);
        locks.push(Lock {
            bytes,
            register_ns: pinned(3),
            unregister_ns: pinned(4),
            copy_cache_ns: middle(0).unwrap_or(0.0),
            copy_memory_ns: middle(1),
            call_ns: middle(2).unwrap_or(0.0),
            send_pin_ns: less(SendMode::PerSend, SentFrom::Cache)
                .or_else(|| less(SendMode::PerSend, SentFrom::Memory)),
            send_copy_cache_ns: less(SendMode::TwoCopy, SentFrom::Cache),
            send_copy_memory_ns: less(SendMode::TwoCopy, SentFrom::Memory),
        });
    }
    (locks, why)
}

/// The extra time of a send in one piece by `more`, over one of registered memory.
fn apart(rows: &[Row], bytes: usize, more: SendMode, from: SentFrom) -> Option<f64> {
    let cell = Cell { bytes, pieces: 1, from };
    let of = |mode| {
        let row = rows.iter().find(|row| row.cell == cell && row.who == Contestant::Mode(mode))?;
        Some(row.found.as_ref().ok()?.cpu_ns)
    };
    Some(of(more)? - of(SendMode::Cached)?)
}
