//! The time of a message through the ring: its two sides copy at the same time, so it is the time
//! of the slower one. Where the receiver waits for it, the time until the first piece is there
//! counts as well.
//!
//! The sender knows its own time at once, the receiver's some messages later: the receiver leaves
//! it, with the number of the message, in one word of the lane.

use crate::wire::sample;

/// Length, bytes, from which the receiver reports the time that a message took it; for a shorter
/// one the sender's time is taken for the whole.
pub(crate) const TOLD_FROM: u64 = 16 << 10;

/// Messages whose receiver has not reported yet: as many as the ring holds of the shortest ones
/// that are cut long.
const OPEN: usize = 8;

/// One message, as its sender saw it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Half {
    pub(crate) len: u64,
    /// The time of writing it, ns.
    pub(crate) ns: u64,
    /// The time that its receiver waited for the first piece, ns.
    pub(crate) lead: u64,
    /// The time that asking its receiver took before, ns.
    pub(crate) asking: u64,
}

/// The messages that were written, and had not all been read at this side's last look.
#[derive(Debug, Default)]
pub(crate) struct Halves {
    open: [Option<(u8, Half)>; OPEN],
    next: usize,
}

/// A message of `len` bytes took `ns` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) len: u64,
    pub(crate) ns: u64,
}

/// The number of a message of `len` bytes on stream `sid`, by which both sides name it. Streams are
/// used again at once, so it tells the length as well: a time is at worst that of the message
/// before, of about the same length.
pub(crate) fn number(sid: u32, len: u64) -> u8 {
    const STREAM_BITS: u32 = 3;
    let class = len.checked_ilog2().unwrap_or(0).min(31) as u8;
    class << STREAM_BITS | (sid as u8 & ((1 << STREAM_BITS) - 1))
}

impl Halves {
    /// Message `number` is written.
    pub(crate) fn sent(&mut self, number: u8, half: Half) {
        let same = |open: &Option<(u8, Half)>| open.is_some_and(|(other, _)| other == number);
        let at = self.open.iter().position(same).unwrap_or_else(|| {
            self.next = (self.next + 1) % OPEN;
            self.next
        });
        self.open[at] = Some((number, half));
    }

    /// The receiver's `word` is about one of the messages: the time of the whole of that one. Each
    /// is reported once.
    pub(crate) fn hear(&mut self, word: u64) -> Option<Whole> {
        let place = self.open.iter_mut().find(|place| {
            place.is_some_and(|(number, _)| sample::answered(word, number).is_some())
        })?;
        let (number, half) = place.take()?;
        let theirs = half.lead.saturating_add(sample::answered(word, number)?);
        Some(Whole { len: half.len, ns: half.ns.max(theirs).saturating_add(half.asking) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_side_counts() {
        let mut halves = Halves::default();
        let len = 65_536;
        let mut whole = |half: Half, theirs| {
            halves.sent(3, half);
            halves.hear(sample::answer(3, theirs)).unwrap().ns
        };
        let half = Half { len, ns: 4000, ..Half::default() };
        assert_eq!([whole(half, 5000), whole(half, 100)], [5000, 4000]);
        assert_eq!(whole(Half { asking: 700, ..half }, 100), 4700);
        // The receiver waited for it.
        let awaited = Half { lead: 600, ..half };
        assert_eq!([whole(awaited, 5000), whole(awaited, 100)], [5600, 4000]);
    }

    #[test]
    fn each_message_is_told_once_and_by_its_own_number() {
        let mut halves = Halves::default();
        // Nothing was sent; a word of zeros is no report on message 0 either, once that was heard.
        assert_eq!(halves.hear(sample::answer(7, 1)), None);
        for number in 0..4 {
            let len = 1000 * (u64::from(number) + 1);
            halves.sent(number, Half { len, ns: 10, ..Half::default() });
        }
        assert_eq!(halves.hear(sample::answer(2, 20)), Some(Whole { len: 3000, ns: 20 }));
        assert_eq!(halves.hear(sample::answer(2, 20)), None);
        assert_eq!(halves.hear(sample::answer(9, 20)), None);
        assert_eq!(halves.hear(sample::answer(0, 30)), Some(Whole { len: 1000, ns: 30 }));
    }

    /// Messages of two lengths take turns on one stream, each of them told of once the next one is
    /// written.
    #[test]
    fn lengths_are_told_apart_on_one_stream() {
        let mut halves = Halves::default();
        let (mut word, mut told) = (0, Vec::new());
        for turn in 0..6 {
            let (len, theirs) = if turn % 2 == 0 { (1 << 20, 70_000) } else { (1 << 14, 3000) };
            halves.sent(number(0, len), Half { len, ns: 10, ..Half::default() });
            told.extend(halves.hear(word));
            word = sample::answer(number(0, len), theirs);
        }
        assert_eq!(told.len(), 5);
        assert!(told.iter().all(|it| it.ns == if it.len == 1 << 20 { 70_000 } else { 3000 }));
        // Any length has a number.
        assert_ne!(number(7, u64::MAX), number(7, 1 << 30));
        assert_eq!(number(0, 0), 0);
    }

    /// One stall is one message's: the times of the others are as before.
    #[test]
    fn a_stall_is_told_of_one_message() {
        let mut halves = Halves::default();
        let took: Vec<u64> = (0..20u8)
            .map(|number| {
                halves.sent(number, Half { len: 1 << 16, ns: 4000, ..Half::default() });
                let theirs = if number == 5 { 2_000_000 } else { 5000 };
                halves.hear(sample::answer(number, theirs)).map_or(0, |whole| whole.ns)
            })
            .collect();
        assert_eq!(took.iter().filter(|ns| **ns != 5000).collect::<Vec<_>>(), [&2_000_000]);
    }

    /// A message that the ring no longer holds is written over, and a word of the receiver is
    /// checked.
    #[test]
    fn any_word_may_come() {
        let mut halves = Halves::default();
        for number in 0..=u8::MAX {
            halves.sent(number, Half { len: u64::MAX, ns: u64::MAX, ..Half::default() });
        }
        assert_eq!(halves.hear(sample::answer(0, 1)), None);
        let last = halves.hear(sample::answer(u8::MAX, u64::MAX));
        assert_eq!(last, Some(Whole { len: u64::MAX, ns: u64::MAX }));
        for word in [0, u64::MAX, 1 << 56] {
            halves.hear(word);
        }
    }
}
