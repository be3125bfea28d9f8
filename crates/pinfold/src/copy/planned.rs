#![allow(unsafe_code)]
//! Copies by the plan alone: for copies that are too rare to be learnt from.
//!
//! **Invariant.** Exactly the caller's bytes are copied.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pinfold_sys::cpu::block;

use super::{
    CacheState, Hints, Plan,
    handler::short,
    in_force::{plan, plan_if_any},
    table::{CHOICE_MIN_AWAY, COPIES, Copies, Placement, SHORT_BELOW, Short, choice_min},
};

/// [`Short::plain_below`], by [`Copies::number`]; [`NOT_ASKED`] before the plan was. Read for each
/// copy, in any case: a byte more to be executed counts.
static PLAIN_BELOW: [AtomicUsize; COPIES] = [const { AtomicUsize::new(NOT_ASKED) }; COPIES];

/// [`Short::fetched_below`], by the same. A thread that sees it too early has the plan asked for
/// nothing.
static FETCHED_BELOW: [AtomicUsize; COPIES] = [const { AtomicUsize::new(0) }; COPIES];

const NOT_ASKED: usize = 0;

/// Copies `len` bytes by the algorithm that the plan of this process has for them, and learns
/// nothing.
///
/// Up to 2 KiB that is the C library's after a comparison, or, for up to 64 B that are cached or go
/// to another core, some instructions in line. If lines have to come from elsewhere
/// ([`choice_min`]) those are asked for first, from 64 B on, if this is faster on this machine,
/// which is a comparison more; and there is a choice from 1,366 B on, or if another than the C
/// library's is so much faster here that it pays, from 256 B on. The choice takes a few
/// nanoseconds.
///
/// # Safety
/// `from` is readable and `to` writable for so many bytes, and they do not overlap.
#[inline(always)]
pub unsafe fn copy_as_planned(hints: Hints, from: *const u8, to: *mut u8, len: usize) {
    let copies = Copies::of(hints.reader, hints.source, hints.destination);
    let choice_min = choice_min(hints.reader, hints.destination);
    // SAFETY: as the caller promised.
    unsafe {
        if len >= choice_min.max(SHORT_BELOW) {
            copy_long(to, from, len, copies);
        } else if choice_min == CHOICE_MIN_AWAY {
            copy_short(copies, from, to, len);
        } else if matches!(hints.source, CacheState::Cached | CacheState::Dirty | CacheState::Clean)
        {
            short::copy(from, to, len);
        } else {
            // Few instructions count more here: while they wait for memory, the next copies begin.
            from.copy_to_nonoverlapping(to, len);
        }
    }
}

/// Copies fewer than [`SHORT_BELOW`] bytes, whose destination may be elsewhere.
///
/// # Safety
/// As for [`copy_as_planned`].
#[inline(always)]
pub(super) unsafe fn copy_short(copies: Copies, from: *const u8, to: *mut u8, len: usize) {
    let plain_below = PLAIN_BELOW[copies.number()].load(Relaxed);
    // SAFETY: as the caller promised. Nothing is to be fetched where the processor has no
    // instruction for that: the plan of a process names nothing that its processor lacks.
    unsafe {
        if len < plain_below || len < CHOICE_MIN_AWAY {
            short::copy(from, to, len);
        } else if plain_below == NOT_ASKED {
            ask_and_copy_short(copies, from, to, len);
        } else if len < FETCHED_BELOW[copies.number()].load(Relaxed) {
            block::copy_fetched(from, to, len);
        } else {
            copy_long(to, from, len, copies);
        }
    }
}

/// The first of their kind, which wait for the plan.
///
/// # Safety
/// As for [`copy_as_planned`].
#[cold]
#[inline(never)]
unsafe fn ask_and_copy_short(copies: Copies, from: *const u8, to: *mut u8, len: usize) {
    let plan = plan();
    let Short { plain_below, fetched_below } = plan.short(copies);
    if plan_if_any().is_some() {
        FETCHED_BELOW[copies.number()].store(fetched_below, Relaxed);
        PLAIN_BELOW[copies.number()].store(plain_below, Relaxed);
    }
    // SAFETY: as for `copy_short`.
    unsafe {
        if len < plain_below {
            short::copy(from, to, len);
        } else if len < fetched_below {
            block::copy_fetched(from, to, len);
        } else {
            copy_by_plan(plan, to, from, len, copies);
        }
    }
}

/// Apart, so that a short copy does none of it; in the order of the C library's arguments, so that
/// none changes its register for a short copy either. Cold, so that a short copy jumps over
/// nothing: a jump is a quarter of its time, and nothing for a long one.
///
/// # Safety
/// As for [`copy_as_planned`].
#[cold]
#[inline(never)]
unsafe fn copy_long(to: *mut u8, from: *const u8, len: usize, copies: Copies) {
    let plan = plan_if_any().unwrap_or_else(ask);
    // SAFETY: as the caller promised.
    unsafe { copy_by_plan(plan, to, from, len, copies) };
}

/// The first of all waits for the plan.
#[cold]
#[inline(never)]
fn ask() -> &'static Plan {
    plan()
}

/// # Safety
/// As for [`copy_as_planned`].
#[inline(always)]
unsafe fn copy_by_plan(plan: &Plan, to: *mut u8, from: *const u8, len: usize, copies: Copies) {
    let placement = Placement::of_copy(from.addr(), to.addr());
    let algorithm = plan.table().best_of(copies, placement, len);
    // SAFETY: as the caller promised, and the plan of a process names nothing that its processor
    // lacks.
    unsafe { block::copy_by(algorithm, from, to, len) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Reader;

    #[test]
    fn copies_of_every_length_are_copies() {
        for reader in Reader::ALL {
            let hints = Hints { reader, ..Hints::default() };
            for len in [0, 1, 63, 64, 1365, 1366, 2048, 2049, 100_000] {
                let from: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
                let mut to = vec![0xA5; len + 1];
                // SAFETY: both are vectors of at least that length.
                unsafe { copy_as_planned(hints, from.as_ptr(), to.as_mut_ptr(), len) };
                assert!(to[..len] == from && to[len] == 0xA5, "{len} bytes, {reader:?}");
            }
        }
    }
}
