#![allow(unsafe_code)]
//! The central handler: bulk copies go through here, where the site's experience and the plan
//! choose the algorithm, and where each copy is counted.
//!
//! After the *kernel block memory operation handler* of Calhoun, *Characterization of Block Memory
//! Operations*, chapter 8.
//!
//! **Invariant.** No algorithm is given blocks that overlap: those are moved by the C library's
//! `memmove`. Nothing but the blocks named is touched.

mod api;
mod piece;
mod pieces;
mod plan;
pub(super) mod short;
mod tally;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use pinfold_sys::cpu::{block, clock};
use smallvec::SmallVec;

pub(crate) use self::api::copy_for;
pub use self::{
    api::{BlockError, copy, counts, move_within, zero},
    piece::Piece,
    pieces::{PiecesDone, copy_pieces},
    plan::{Choose, Fixed, InForce},
    tally::{Count, Counts, SIZES, Tally, size_class},
};
use super::{Algorithm, Block, CANDIDATES_MAX, CacheState, Choice, Reader, Site, Stores};

/// Shorter copies are made in line by code that the compiler chooses, and not counted.
pub const SHORT: usize = 256;

/// The knowledge of a copy's maker about it, beside its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// The next reader of its destination.
    pub reader: Reader,
    /// The place of its source.
    pub source: CacheState,
    /// The place of its destination.
    pub destination: CacheState,
    /// True if the site hears the time that the reader needs afterwards. If it does not, it learns
    /// only about algorithms that store as the plan's does: others would seem better for leaving
    /// the work to the reader.
    pub hears_reader: bool,
}

impl Hints {
    pub(super) fn block(self, from: usize, to: usize, len: usize) -> Block {
        let Hints { reader, source, destination, .. } = self;
        Block { len, from, to, source, destination, reader }
    }
}

/// The way a block was copied or zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a copy that was timed is for its site to observe"]
pub struct Done {
    /// The algorithm that did it. Of blocks that overlap, and short ones, the C library.
    pub algorithm: Algorithm,
    /// Length, bytes.
    pub bytes: usize,
    /// The time that it took, nanoseconds, if it was timed: to be told to the site, with the
    /// reader's time if that is known ([`Done::learn`]).
    pub ns: Option<u64>,
}

impl Done {
    const fn by_libc(bytes: usize) -> Done {
        Done { algorithm: Algorithm::LIBC, bytes, ns: None }
    }

    /// Tells the copy's site its time: so long here, and `reader_ns` until its reader was done.
    ///
    /// One after the other they are as long as both together, as is a message by itself. In a
    /// stream the next copy is made meanwhile, and the slower side alone counts. A site cannot tell
    /// which side waits for the other, so it learns the middle of the two.
    #[inline]
    pub fn learn(&self, site: &mut Site, reader_ns: u64) {
        if let Some(ns) = self.ns {
            let (less, more) = (ns.min(reader_ns), ns.max(reader_ns));
            site.observe(self.bytes, self.algorithm, more.saturating_add(less / 2));
        }
    }
}

/// The handler of one owner's bulk copies: of an endpoint, or a thread.
///
/// One thread at a time uses it; any thread may read its counts.
pub struct Handler<P> {
    plan: P,
    tally: Arc<Tally>,
}

impl<P: Choose> Handler<P> {
    /// A handler that asks `plan` where sites know nothing.
    pub fn new(plan: P) -> Handler<P> {
        Handler::counting(plan, Arc::default())
    }

    /// The same, counting where others of the same owner count.
    pub fn counting(plan: P, tally: Arc<Tally>) -> Handler<P> {
        Handler { plan, tally }
    }

    /// The counts of the copies that have gone through it.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Copies `len` bytes for `site`. If the blocks overlap, `to` holds afterwards the bytes that
    /// `from` held before.
    ///
    /// Some nanoseconds on top of the copy; one copy of many is timed, which takes some 50 ns.
    ///
    /// # Safety
    /// `from` must be readable and `to` writable for `len` bytes. Others may write them meanwhile
    /// only if they are in other processes: then any mixture may arrive.
    #[inline]
    pub unsafe fn copy(
        &mut self,
        site: &mut Site,
        hints: Hints,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Done {
        if len < SHORT {
            // SAFETY: as the caller promised.
            unsafe { std::ptr::copy(from, to, len) };
            return Done::by_libc(len);
        }
        if overlaps(from.addr(), to.addr(), len) {
            // SAFETY: as the caller promised.
            unsafe { std::ptr::copy(from, to, len) };
            self.tally.moved(len);
            return Done::by_libc(len);
        }
        let Some(algorithm) = site.ready(len) else {
            // SAFETY: as the caller promised, and they do not overlap.
            return unsafe { self.copy_as_told(site, hints, from, to, len) };
        };
        // SAFETY: as the caller promised, and they do not overlap.
        unsafe { block::copy(algorithm, from, to, len) };
        self.tally.copied(algorithm, len);
        Done { algorithm, bytes: len, ns: None }
    }

    /// The same if the site has something to decide or to time, or knows nothing of such copies:
    /// apart, so that most copies are a load, a call and the counts.
    ///
    /// # Safety
    /// As for [`Handler::copy`], and the blocks do not overlap.
    #[cold]
    #[inline(never)]
    unsafe fn copy_as_told(
        &mut self,
        site: &mut Site,
        hints: Hints,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Done {
        let block = hints.block(from.addr(), to.addr(), len);
        let known = site.consult(len, || {
            let best = self.plan.pick(&block);
            comparable(best, hints, self.plan.candidates(&block))
        });
        let choice = known.unwrap_or_else(|| untimed(self.plan.pick(&block)));
        // SAFETY: as the caller promised.
        let done = timed(choice, len, || unsafe { block::copy(choice.algorithm, from, to, len) });
        self.tally.copied(choice.algorithm, len);
        done
    }

    /// Copies `len` bytes as `site` does at present, and tells it nothing: for copies whose time
    /// would be meaningless.
    ///
    /// # Safety
    /// As for [`Handler::copy`].
    #[inline]
    pub unsafe fn copy_untimed(
        &mut self,
        site: &Site,
        hints: Hints,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) {
        if len < SHORT || overlaps(from.addr(), to.addr(), len) {
            // SAFETY: as the caller promised.
            unsafe { std::ptr::copy(from, to, len) };
            if len >= SHORT {
                self.tally.moved(len);
            }
            return;
        }
        let pick = || self.plan.pick(&hints.block(from.addr(), to.addr(), len));
        let algorithm = site.using(len).unwrap_or_else(pick);
        // SAFETY: as the caller promised, and they do not overlap.
        unsafe { block::copy(algorithm, from, to, len) };
        self.tally.copied(algorithm, len);
    }

    /// Zeroes `len` bytes for `site`, which is to make no copies: the two are learnt about apart.
    ///
    /// # Safety
    /// `to` must be writable for `len` bytes. As in [`Handler::copy`].
    #[inline]
    pub unsafe fn zero(&mut self, site: &mut Site, hints: Hints, to: *mut u8, len: usize) -> Done {
        if len < SHORT {
            // SAFETY: as the caller promised.
            unsafe { to.write_bytes(0, len) };
            return Done::by_libc(len);
        }
        let block = hints.block(to.addr(), to.addr(), len);
        let known = site.next(len, || {
            let best = self.plan.pick_zero(&block);
            comparable(best, hints, self.plan.candidates_zero(&block))
        });
        let choice = known.unwrap_or_else(|| untimed(self.plan.pick_zero(&block)));
        // SAFETY: as the caller promised.
        let done = timed(choice, len, || unsafe { block::zero(choice.algorithm, to, len) });
        self.tally.zeroed(choice.algorithm, len);
        done
    }
}

fn untimed(algorithm: Algorithm) -> Choice {
    Choice { algorithm, timed: false }
}

/// The candidates whose times can be compared, in the order in which a site is to know them.
///
/// If the reader is heard, those that store into the cache are first, whichever the plan has:
/// memory that is used again and again, as a ring is, stays in the caches of both only while no
/// copy streams. So one copy that streams, between others that do not, takes as long as if all
/// streamed; one that does not, between others that stream, finds its destination far away, where
/// it would not be if all did as it does.
fn comparable(
    best: Algorithm,
    hints: Hints,
    all: impl Iterator<Item = Algorithm>,
) -> SmallVec<[Algorithm; CANDIDATES_MAX]> {
    let may = |it: &Algorithm| hints.hears_reader || it.stores() == best.stores();
    let mut comparable: SmallVec<_> = all.filter(may).collect();
    comparable.sort_by_key(|it: &Algorithm| it.stores() == Stores::Streaming);
    comparable
}

/// Returns whether two blocks of that length have bytes in common.
#[inline]
fn overlaps(from: usize, to: usize, len: usize) -> bool {
    from.abs_diff(to) < len
}

#[inline]
fn timed(choice: Choice, bytes: usize, copy: impl FnOnce()) -> Done {
    let mut ns = None;
    if choice.timed {
        let start = clock::now_ns();
        copy();
        ns = Some(clock::now_ns().saturating_sub(start));
    } else {
        copy();
    }
    Done { algorithm: choice.algorithm, bytes, ns }
}
