//! The open requests, their dependencies, and the parts that are out: plain state, driven by the
//! engine. No threads, no memory is touched here.
//!
//! **Invariants.** A request is *blocked* while an earlier one is open whose destination has bytes
//! in common with its source or destination, or whose source with its destination; no part of it is
//! out then. A request is open until none of its parts is out. Each part that is out is known by
//! one key, and ends once.
//!
//! **Accounting.** `live` counts the open requests that were queued, and is within the bound; those
//! that their submitters do themselves are open, too, but not counted. `out` counts the parts that
//! the back end has.

use std::{collections::VecDeque, sync::Arc};

use smallvec::SmallVec;

use super::{
    Work,
    backend::{Capabilities, Completion, Outcome, Part},
    slots::{Key, Slots},
    watch::{End, Watch},
};

/// A request whose parts fell short more often is finished without the back end.
const FAULTS_MAX: u32 = 8;

/// Parts end at multiples of this.
const ALIGN: usize = 4096;

/// The work of an engine since it was made.
///
/// ```
/// use pinfold::{CopyEngine, EngineConfig};
///
/// let engine = CopyEngine::new(EngineConfig { bytes_min: 4096, ..EngineConfig::default() });
/// for len in [100, 1 << 20] {
///     let copying = engine.copy(vec![1; len], vec![0; len]).expect("they are of one length");
///     copying.wait();
/// }
/// let counts = engine.counts();
/// assert_eq!((counts.short, counts.queued, counts.cancelled), (1, 1, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounts {
    /// Requests that were queued.
    pub queued: u64,
    /// Requests done at once by their submitter, because they were short.
    pub short: u64,
    /// The same, because the queue was full or the engine shut down.
    pub full: u64,
    /// The same, because their source and destination overlap.
    pub moved: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Parts given to the back end.
    pub parts: u64,
    /// Parts that the back end refused for want of room.
    pub refused: u64,
    /// Parts that ended before all of their bytes were in place.
    pub partial: u64,
    /// Parts that failed, or lied about their length.
    pub failed: u64,
    /// Completions of parts that were not out.
    pub unknown: u64,
}

/// The reason why a request is done by its submitter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Here {
    Short,
    Full,
    Moved,
}

struct Op {
    work: Work,
    watch: Arc<Watch>,
    /// The beginning of the bytes that have not been out yet.
    next: usize,
    /// The bytes that have to be done again: offset and length.
    again: SmallVec<[(usize, usize); 2]>,
    /// Parts that are out, or done by the engine itself.
    out: usize,
    /// Open requests that come first.
    before: usize,
    /// Requests that wait for this one.
    after: Vec<Key>,
    faults: u32,
    /// It stands in `ready`.
    is_ready: bool,
    /// Its submitter does it.
    is_here: bool,
    is_cancelled: bool,
}

impl Op {
    fn has_more(&self) -> bool {
        !self.is_here && (self.next < self.work.len() || !self.again.is_empty())
    }
}

/// A part that is out.
struct Out {
    op: Key,
    at: usize,
    len: usize,
    /// The engine does it, not the back end.
    is_here: bool,
}

/// The acts that are due when the queue's lock has been left.
#[derive(Default)]
pub(super) struct Acts {
    /// For the back end.
    pub(super) submit: Vec<Part>,
    /// To be done here.
    pub(super) repair: Vec<Part>,
    pub(super) ended: Vec<(Arc<Watch>, End)>,
    /// Their submitters may go on.
    pub(super) unblocked: Vec<Arc<Watch>>,
}

impl Acts {
    pub(super) fn is_empty(&self) -> bool {
        self.submit.is_empty()
            && self.repair.is_empty()
            && self.ended.is_empty()
            && self.unblocked.is_empty()
    }
}

pub(super) struct Queue {
    ops: Slots<Op>,
    parts: Slots<Out>,
    /// Requests that have something to be done and are not blocked.
    ready: VecDeque<Key>,
    live: usize,
    out: usize,
    /// The back end had no room; it has when something has ended.
    is_stalled: bool,
    live_max: usize,
    part_bytes_min: usize,
    pub(super) is_closed: bool,
    pub(super) counts: EngineCounts,
}

impl Queue {
    pub(super) fn new(live_max: usize, part_bytes_min: usize) -> Queue {
        Queue {
            ops: Slots::new(),
            parts: Slots::new(),
            ready: VecDeque::new(),
            live: 0,
            out: 0,
            is_stalled: false,
            live_max,
            part_bytes_min,
            is_closed: false,
            counts: EngineCounts::default(),
        }
    }

    /// Returns whether no request is open.
    pub(super) fn is_idle(&self) -> bool {
        self.ops.len() == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_closed || self.live >= self.live_max
    }

    /// Returns whether an open request has to end before this may begin. Looks at all that are
    /// open.
    pub(super) fn is_blocked(&mut self, work: &Work) -> bool {
        self.ops.iter_mut().any(|(_, op)| op.work.conflicts(work))
    }

    /// Opens a request.
    pub(super) fn open(&mut self, work: Work, watch: Arc<Watch>, here: Option<Here>) -> Key {
        match here {
            None => {
                self.live += 1;
                self.counts.queued += 1;
            }
            Some(Here::Short) => self.counts.short += 1,
            Some(Here::Full) => self.counts.full += 1,
            Some(Here::Moved) => self.counts.moved += 1,
        }
        let earlier: SmallVec<[Key; 8]> = self
            .ops
            .iter_mut()
            .filter(|(_, op)| op.work.conflicts(&work))
            .map(|(key, _)| key)
            .collect();
        let key = self.ops.insert(Op {
            work,
            watch,
            next: 0,
            again: SmallVec::new(),
            out: 0,
            before: earlier.len(),
            after: Vec::new(),
            faults: 0,
            is_ready: false,
            is_here: here.is_some(),
            is_cancelled: false,
        });
        for earlier in &earlier {
            if let Some(op) = self.ops.get_mut(*earlier) {
                op.after.push(key);
            }
        }
        self.make_ready(key);
        key
    }

    fn make_ready(&mut self, key: Key) {
        if let Some(op) = self.ops.get_mut(key)
            && op.before == 0
            && op.has_more()
            && !op.is_ready
        {
            op.is_ready = true;
            self.ready.push_back(key);
        }
    }

    /// Takes out as many parts as the back end should have. Requests take turns.
    pub(super) fn issue(&mut self, can: &Capabilities, acts: &mut Acts) {
        let lanes = can.lanes.max(1);
        while self.out < 2 * lanes && !self.is_stalled {
            let Some(key) = self.ready.pop_front() else { return };
            // It may have been cancelled.
            let Some(op) = self.ops.get_mut(key) else { continue };
            op.is_ready = false;
            let (at, len) = match op.again.pop() {
                Some(piece) => piece,
                None if op.next < op.work.len() => {
                    let left = op.work.len() - op.next;
                    let share = left.div_ceil(lanes).max(self.part_bytes_min);
                    let share = share.next_multiple_of(ALIGN).min(can.part_bytes_max.max(1));
                    // No short rest.
                    let rest = left.saturating_sub(share);
                    let fits = left <= can.part_bytes_max;
                    let len =
                        if rest < self.part_bytes_min && fits { left } else { share.min(left) };
                    op.next += len;
                    (op.next - len, len)
                }
                None => continue,
            };
            op.out += 1;
            let work = op.work.piece(at, len);
            let id = self.parts.insert(Out { op: key, at, len, is_here: false });
            self.out += 1;
            self.counts.parts += 1;
            acts.submit.push(Part { id, work });
            self.make_ready(key);
        }
    }

    /// A part has ended.
    pub(super) fn completed(&mut self, completion: Completion, acts: &mut Acts) {
        let Completion { id, outcome } = completion;
        let is_out = self.parts.get_mut(id).is_some_and(|out| !out.is_here);
        let Some(out) = is_out.then(|| self.parts.remove(id)).flatten() else {
            self.counts.unknown += 1;
            return;
        };
        self.out -= 1;
        self.is_stalled = false;
        let key = out.op;
        let Some(op) = self.ops.get_mut(key) else { return };
        op.out -= 1;
        match outcome {
            Outcome::Moved(bytes) if bytes == out.len => {}
            Outcome::Moved(bytes) if bytes > 0 && bytes < out.len => {
                self.counts.partial += 1;
                op.faults += 1;
                let rest = (out.at + bytes, out.len - bytes);
                if op.faults <= FAULTS_MAX {
                    op.again.push(rest);
                } else {
                    self.repair(key, rest, acts);
                }
            }
            Outcome::Moved(_) | Outcome::Failed => {
                self.counts.failed += 1;
                self.repair(key, (out.at, out.len), acts);
            }
        }
        self.settle(key, acts);
    }

    /// The back end had no room for a part.
    pub(super) fn refused(&mut self, id: Key, acts: &mut Acts) {
        let Some(out) = self.parts.remove(id) else { return };
        self.counts.refused += 1;
        self.out -= 1;
        let Some(op) = self.ops.get_mut(out.op) else { return };
        op.out -= 1;
        if self.out == 0 {
            // No part that it has could make room.
            self.repair(out.op, (out.at, out.len), acts);
        } else {
            op.again.push((out.at, out.len));
            self.is_stalled = true;
        }
        self.settle(out.op, acts);
    }

    /// Has the engine itself do the bytes that the back end did not.
    fn repair(&mut self, key: Key, (at, len): (usize, usize), acts: &mut Acts) {
        let Some(op) = self.ops.get_mut(key).filter(|op| !op.is_cancelled) else { return };
        op.out += 1;
        let work = op.work.piece(at, len);
        let id = self.parts.insert(Out { op: key, at, len, is_here: true });
        acts.repair.push(Part { id, work });
    }

    /// A part was repaired.
    pub(super) fn repaired(&mut self, id: Key, acts: &mut Acts) {
        let Some(out) = self.parts.remove(id) else { return };
        self.is_stalled = false;
        if let Some(op) = self.ops.get_mut(out.op) {
            op.out -= 1;
        }
        self.settle(out.op, acts);
    }

    /// A submitter has done its request itself.
    pub(super) fn done_here(&mut self, key: Key, acts: &mut Acts) {
        self.end(key, acts);
    }

    /// Ends a request, or has it go on.
    fn settle(&mut self, key: Key, acts: &mut Acts) {
        let Some(op) = self.ops.get_mut(key) else { return };
        if op.is_cancelled {
            op.again.clear();
        }
        if op.has_more() && !op.is_cancelled {
            self.make_ready(key);
        } else if op.out == 0 {
            self.end(key, acts);
        }
    }

    fn end(&mut self, key: Key, acts: &mut Acts) {
        let Some(op) = self.ops.remove(key) else { return };
        self.live -= usize::from(!op.is_here);
        for later in op.after {
            let Some(waits) = self.ops.get_mut(later) else { continue };
            waits.before -= 1;
            if waits.before > 0 {
                continue;
            }
            if waits.is_here {
                acts.unblocked.push(Arc::clone(&waits.watch));
            } else {
                self.make_ready(later);
            }
        }
        let end = if op.is_cancelled { End::Cancelled } else { End::Done };
        acts.ended.push((op.watch, end));
    }

    /// Takes back the bytes of a request that are not out yet. Returns whether it will end as
    /// cancelled.
    pub(super) fn cancel(&mut self, key: Key, acts: &mut Acts) -> bool {
        let Some(op) = self.ops.get_mut(key) else { return false };
        if op.is_here || !op.has_more() {
            return false;
        }
        if !op.is_cancelled {
            op.is_cancelled = true;
            op.next = op.work.len();
            self.counts.cancelled += 1;
        }
        self.settle(key, acts);
        true
    }

    pub(super) fn cancel_all(&mut self, acts: &mut Acts) {
        let all: Vec<Key> = self.ops.iter_mut().map(|(key, _)| key).collect();
        for key in all {
            self.cancel(key, acts);
        }
    }
}
