//! Memory of receives that is made ready before their messages come, by a thread that waits anyway:
//! its pages are put there, zeroed or their own again after a fork. (U-Net/MM translates receive
//! buffers when they are posted: Welsh and others, section 4.) Otherwise the copy would come to a
//! halt at each page.
//!
//! This module decides which pages, how many, and when; no I/O:
//! [`Prefaulter`](crate::worker::prefaulter::Prefaulter) does it. There are bounds on
//! - *time*: a step is [`STEP`] bytes, and there is none while a message comes;
//! - *memory*: of a receive as much as the [longest of the last messages](history::Expected), or
//!   [`UNKNOWN_MAX`] while nothing is known, and [`PREFAULT_MAX`] in any case. Of all receives
//!   together no more is ever put there in vain than [`IN_VAIN_MAX`] and the bytes that came since:
//!   each byte is taken from an allowance that messages fill again;
//! - *effort*: memory that was there already is [let pass](history::Familiar) ever more often.
//!
//! The addresses are taken on trust: pages put there do no harm, even if the memory is another's by
//! then.

mod history;

use std::collections::VecDeque;

use self::history::{Expected, Familiar};
use super::{
    op::{OpKey, RecvStage},
    op_table::OpTable,
};
use crate::{PeerId, memory::scatter::Scatter, worker::matching::Source};

/// Receives shorter than this are not looked at.
pub(crate) const PREFAULT_FROM: u64 = 64 << 10;

/// The most bytes of a receive that are made ready: the most that a receipt can carry.
pub(crate) const PREFAULT_MAX: u64 = 255 * STEP;

/// The same while the lengths of its messages are not known: room is often made for the longest
/// that may come.
const UNKNOWN_MAX: u64 = 4 << 20;

/// The most bytes that may be put there in vain.
const IN_VAIN_MAX: u64 = 64 << 20;

/// Receives that are noted at a time; older ones have most likely got their messages.
const NOTED_MAX: usize = 64;

/// Bytes at a time: a message that comes meanwhile waits so long, 10 µs.
pub(crate) const STEP: u64 = 64 << 10;

/// Receives that are left alone when there was no memory, at first, and at most.
const REST: u32 = 64;
const REST_MAX: u32 = 1 << 20;

/// A receive whose memory is made ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Noted {
    key: OpKey,
    /// Where its memory begins.
    start: u64,
    /// Bytes of it that are seen to, and how many are to be.
    at: u64,
    end: u64,
    /// True if some pages were put there.
    made: bool,
}

/// Addresses that pages are to be put at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub address: u64,
    /// Bytes that may be looked at.
    pub len: u64,
    /// Bytes that may be put there.
    pub most: u64,
    of: Noted,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// So many bytes were seen to, and so many of them put there.
    Saw { seen: u64, made: u64 },
    /// The memory must not be touched.
    NotOurs,
    /// Not now, for any memory.
    NotNow,
    /// The kernel cannot.
    Never,
}

pub(crate) struct Prefault {
    queue: VecDeque<Noted>,
    expected: Expected,
    familiar: Familiar,
    /// Bytes that may still be put there.
    allowance: u64,
    /// Receives that are still left alone, and how many the next time.
    rests: u32,
    rest: u32,
    given_up: bool,
}

impl Prefault {
    /// `wanted`: some memory is to be made ready.
    pub(crate) fn new(wanted: bool) -> Prefault {
        Prefault {
            queue: VecDeque::new(),
            expected: Expected::default(),
            familiar: Familiar::default(),
            allowance: IN_VAIN_MAX,
            rests: 0,
            rest: REST,
            given_up: !wanted,
        }
    }

    /// Returns whether the memory of a receive of `len` bytes is worth a look.
    #[inline]
    pub(crate) fn wants(&self, len: u64) -> bool {
        len >= PREFAULT_FROM && !self.given_up
    }

    /// A receive was posted that found no message. Returns whether its memory is to be seen to.
    pub(crate) fn note(&mut self, key: OpKey, from: Source, memory: &Scatter) -> bool {
        if self.rests > 0 {
            self.rests -= 1;
            return false;
        }
        let Some(first) = memory.part_at(0) else { return false };
        // Shared memory must not be touched.
        if memory.begins_in_arena() {
            return false;
        }
        let start = first.ptr.addr() as u64;
        let end =
            self.expected.from(from).unwrap_or(UNKNOWN_MAX).min(memory.len()).min(PREFAULT_MAX);
        if end < PREFAULT_FROM || self.familiar.lets_pass(start, end) {
            return false;
        }
        if self.queue.len() == NOTED_MAX {
            self.queue.pop_front();
        }
        self.queue.push_back(Noted { key, start, at: 0, end, made: false });
        true
    }

    /// The next step, for a receive that still waits for its message. The thread that takes it
    /// reports the [result](Prefault::did).
    pub(crate) fn next(&mut self, ops: &mut OpTable) -> Option<Step> {
        while let Some(noted) = self.queue.front().copied() {
            if self.allowance < STEP {
                return None;
            }
            self.queue.pop_front();
            let Some(op) = ops.recv_mut(noted.key) else { continue };
            let part = op.memory.part_at(noted.at).filter(|_| noted.at < noted.end);
            let Some(part) = part.filter(|_| matches!(op.stage, RecvStage::Posted(_))) else {
                continue;
            };
            self.allowance -= STEP;
            let len = (part.len as u64).min(noted.end - noted.at);
            return Some(Step { address: part.ptr.addr() as u64, len, most: STEP, of: noted });
        }
        None
    }

    /// Reports the result of a step.
    pub(crate) fn did(&mut self, ops: &mut OpTable, step: &Step, outcome: Outcome) {
        let mut noted = step.of;
        let made = if let Outcome::Saw { made, .. } = outcome { made } else { 0 };
        // A page at either end may be more than was asked for.
        self.allowance = (self.allowance + STEP).saturating_sub(made).min(IN_VAIN_MAX);
        match outcome {
            Outcome::Saw { seen, made } => {
                noted.at += seen.max(1);
                if made > 0 {
                    self.rest = REST;
                    noted.made = true;
                    self.familiar.was_not(noted.start);
                    if let Some(op) = ops.recv_mut(noted.key) {
                        op.prefaulted += made;
                    }
                }
                if noted.at < noted.end {
                    self.queue.push_front(noted);
                } else if !noted.made {
                    self.familiar.was_there(noted.start, noted.end);
                }
            }
            Outcome::NotOurs => self.familiar.was_there(noted.start, noted.end),
            Outcome::NotNow => {
                self.queue.clear();
                self.rests = self.rest;
                self.rest = (2 * self.rest).min(REST_MAX);
            }
            Outcome::Never => {
                self.queue.clear();
                self.given_up = true;
            }
        }
    }

    /// `len` bytes came for a receive that was worth a look.
    pub(crate) fn came(&mut self, from: PeerId, len: u64) {
        self.expected.note(from, len);
        self.allowance = (self.allowance + len).min(IN_VAIN_MAX);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
