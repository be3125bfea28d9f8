//! `Bulk`: the producer's account of a direction's bulk bytes, and which of them are free.
//!
//! The bytes form a ring of their own. A piece is one contiguous range; it is free again when the
//! consumer has gone past the descriptor that named it, so the descriptor cursor is the only one
//! there is. A range that its descriptor has no use for after all is free at the next lend. All of
//! this is private to the producer: the consumer only ever sees ranges.
//!
//! Plain state, no I/O: before it grows, the caller makes more bytes usable.

use std::collections::VecDeque;

use crate::wire::{descriptor::Piece, layout::LINE};

/// Bytes in use while the consumer keeps up, for pieces of up to [`HOT_PIECE_MAX`]: few enough that
/// their lines stay in the first-level caches of both sides.
pub(crate) const HOT_BYTES: u32 = 8 << 10;

/// Length of the longest of these pieces, bytes.
pub(crate) const HOT_PIECE_MAX: u32 = 4 << 10;

/// The same for longer pieces that are copied within the caches: enough that neither side waits for
/// the other at each piece, and few enough for the second-level caches.
pub(crate) const WARM_BYTES: u32 = 64 << 10;

/// Length of the longest of these pieces, bytes.
pub(crate) const WARM_PIECE_MAX: u32 = 8 << 10;

/// A range given out, until its descriptor is consumed.
struct Lent {
    /// The descriptor's number.
    number: u64,
    /// Bytes, including those skipped before the range.
    bytes: u32,
    /// `head` before it was lent.
    head: u32,
}

/// The free space of one direction.
///
/// Accounting: `used` is the sum of `lent.bytes` and at most `size`; the bytes in use are the
/// `used` ones before `head`, going round; `head <= size`, and `head == size` is not yet wrapped,
/// so that a full ring can still grow past its end.
pub(crate) struct Bulk {
    size: u32,
    head: u32,
    used: u32,
    /// True if the next lap may be wide, too.
    wide: bool,
    lent: VecDeque<Lent>,
}

/// Number of laps in flight up to which a wide lap is not followed by another unless asked for: the
/// consumer is about to catch up.
const FEW_LAPS: u32 = 4;

impl Bulk {
    /// Creates an account with no bytes usable yet.
    pub(crate) const fn new() -> Bulk {
        Bulk { size: 0, head: 0, used: 0, wide: false, lent: VecDeque::new() }
    }

    /// Bytes usable.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Returns whether nothing is lent.
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Makes `size` bytes usable, if the free bytes do not lie across the end just now.
    pub(crate) fn grow(&mut self, size: u32) -> bool {
        debug_assert!(size >= self.size);
        // The used bytes are the `used` ones before `head`; they must not wrap past the old end.
        if self.used > self.head {
            return false;
        }
        self.size = size;
        true
    }

    /// Lets the next lap be wide as well: the consumer did not catch up.
    pub(crate) fn stay_wide(&mut self) {
        self.wide = true;
    }

    /// Gives up all but `size` bytes. Only when empty.
    pub(crate) fn shrink(&mut self, size: u32) {
        debug_assert!(self.is_empty() && size <= self.size);
        self.size = size;
        self.head = 0;
    }

    /// Takes back every range whose descriptor's number is below `consumed`.
    #[inline]
    pub(crate) fn reclaim(&mut self, consumed: u64) {
        while let Some(lent) = self.lent.front() {
            if lent.number >= consumed {
                break;
            }
            self.used -= lent.bytes;
            self.lent.pop_front();
        }
    }

    /// Takes back the range of descriptor `number`, which was not published with it: while nothing
    /// is in flight, no progress of the consumer's would free it.
    #[inline]
    fn take_back(&mut self, number: u64) {
        if let Some(last) = self.lent.back()
            && last.number == number
        {
            self.used -= last.bytes;
            self.head = last.head;
            self.lent.pop_back();
        }
    }

    /// Lends `len` contiguous bytes to descriptor `number`, if they are free, in a lap of `lap`
    /// bytes or of all (see [`Laps::bytes`](super::laps::Laps::bytes)). What was lent to it before
    /// is not lent any more.
    ///
    /// At the end of a wide lap, with little in flight, `None` also asks to wait for the consumer:
    /// once nothing is in flight the next lap is short. [`Bulk::stay_wide`] takes that back.
    #[inline]
    pub(crate) fn lend(&mut self, len: u32, lap: Option<u32>, number: u64) -> Option<Piece> {
        let len_lines = len.checked_next_multiple_of(LINE as u32)?;
        self.take_back(number);
        // An empty ring restarts at 0, and small: its lines are most likely still in the caches.
        if self.used == 0 {
            self.head = 0;
            if let Some(lap) = lap {
                self.size = self.size.min(lap);
            }
        }
        let to_end = self.size - self.head;
        if len_lines > to_end && self.size > lap.unwrap_or(HOT_BYTES) {
            // Long pieces have no use for a short lap.
            if lap.is_some_and(|lap| (1..=FEW_LAPS * lap).contains(&self.used)) && !self.wide {
                return None;
            }
            self.wide = false;
        }
        let (offset, skip) = if len_lines <= to_end { (self.head, 0) } else { (0, to_end) };
        let bytes = skip.checked_add(len_lines)?;
        if bytes > self.size - self.used {
            return None;
        }
        self.lent.push_back(Lent { number, bytes, head: self.head });
        self.head = offset + len_lines;
        self.used += bytes;
        Some(Piece { offset, len, sample: 0 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::laps::Laps, *};

    fn lend(bulk: &mut Bulk, len: u32, number: u64) -> Option<Piece> {
        bulk.lend(len, Laps::new().bytes(len), number)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Lend(u32),
        /// A descriptor is not published.
        LendInVain(u32),
        Consume(u64),
        Grow,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1u32..5000).prop_map(Step::Lend),
            2 => (1u32..40_000).prop_map(Step::Lend),
            1 => (1u32..40_000).prop_map(Step::LendInVain),
            3 => (1u64..5).prop_map(Step::Consume),
            1 => Just(Step::Grow),
        ]
    }

    #[test]
    fn long_pieces_go_round_without_a_rest_and_short_ones_find_back() {
        const LONG: u32 = 24 << 10;
        let mut bulk = Bulk::new();
        assert!(bulk.grow(256 << 10));
        for number in 0..100 {
            // All but one are back: a short lap would now be worth waiting for.
            bulk.reclaim(u64::max(number, 1) - 1);
            assert!(lend(&mut bulk, LONG, number).is_some(), "{number}");
        }
        assert_eq!(bulk.size(), 256 << 10);
        bulk.reclaim(100);
        let piece = lend(&mut bulk, 2 << 10, 100);
        assert_eq!((piece.map(|piece| piece.offset), bulk.size()), (Some(0), HOT_BYTES));
    }

    /// Nothing is in flight that would free it.
    #[test]
    fn what_was_lent_in_vain_stops_nothing() {
        const SHORT: u32 = 3 << 10;
        let mut bulk = Bulk::new();
        assert!(bulk.grow(HOT_BYTES));
        assert!(lend(&mut bulk, SHORT, 0).and(lend(&mut bulk, SHORT, 1)).is_some());
        bulk.reclaim(1);
        // It goes round, so the ring cannot grow.
        assert_eq!(lend(&mut bulk, SHORT - 1024, 2).map(|piece| piece.offset), Some(2 * SHORT));
        assert_eq!(lend(&mut bulk, SHORT, 2).map(|piece| piece.offset), Some(0));
        bulk.reclaim(2);
        assert!(!bulk.grow(2 * HOT_BYTES));
        assert!(lend(&mut bulk, 2 * SHORT, 2).is_some());
    }

    proptest! {
        #[test]
        fn ranges_in_use_never_overlap(steps in proptest::collection::vec(step(), 1..300)) {
            let mut bulk = Bulk::new();
            bulk.grow(4096);
            let mut live: VecDeque<(u64, Piece)> = VecDeque::new();
            let (mut number, mut consumed) = (0u64, 0u64);
            for step in steps {
                match step {
                    Step::Lend(len) => {
                        if let Some(piece) = lend(&mut bulk, len, number) {
                            prop_assert_eq!(piece.len, len);
                            prop_assert!(piece.offset + len <= bulk.size());
                            for (_, other) in &live {
                                let apart = piece.offset + piece.len <= other.offset
                                    || other.offset + other.len <= piece.offset;
                                prop_assert!(apart, "{:?} {:?}", piece, other);
                            }
                            live.push_back((number, piece));
                            number += 1;
                        } else {
                            prop_assert!(len > bulk.size() || !live.is_empty());
                        }
                    }
                    Step::LendInVain(len) => drop(lend(&mut bulk, len, number)),
                    Step::Consume(count) => {
                        consumed = number.min(consumed + count);
                        bulk.reclaim(consumed);
                        live.retain(|(number, _)| *number >= consumed);
                        prop_assert!(live.is_empty() || !bulk.is_empty());
                    }
                    Step::Grow => {
                        let size = (bulk.size() * 2).min(256 << 10);
                        if size > bulk.size() {
                            bulk.grow(size);
                        }
                    }
                }
            }
        }
    }
}
