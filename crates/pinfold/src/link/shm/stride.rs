//! How long messages are cut, and so how the ring is used.
//!
//! Short pieces go round in few bytes, which stay in the caches of both sides: the best there is
//! between cores that share a cache. Long pieces go round in all bulk bytes, and are worth being
//! written past the caches: the best between cores that are far apart, where a line that both have used
//! takes several ways across to be written again. Which of the two is faster, nobody knows before:
//! so it is learnt like the choice of an algorithm, from what the receiver says that a message took.
//!
//! Plain state, no I/O: words of the segment come as arguments.

use pinfold_sys::block::Stores;

use crate::{
    blockmem::{Block, Reader, Site, plan},
    wire::{
        descriptor::LAPS_FROM,
        layout::{LAPS, LINE},
        took,
    },
};

/// The length of a long message's pieces, bytes, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stride(u32);

impl Stride {
    /// Small enough that the receiver copies one while the sender fills the next, and several fit the
    /// bytes that both sides have in their caches.
    pub(crate) const SHORT: Stride = Stride(2 << 10);
    /// Long enough for streaming stores to get going; several fit the ring.
    pub(crate) const LONG: Stride = Stride(24 << 10);

    /// Bytes.
    pub(crate) const fn bytes(self) -> u64 {
        self.0 as u64
    }

    /// The length of the next piece where `left` bytes are left, more than none. Long pieces are all
    /// about as long, so that what is learnt of one holds for all.
    pub(crate) const fn next(self, left: u64) -> u64 {
        let stride = self.bytes();
        if self.0 == Stride::SHORT.0 {
            return if left < stride { left } else { stride };
        }
        let piece = left.div_ceil(left.div_ceil(stride)).next_multiple_of(LINE as u64);
        if left < piece { left } else { piece }
    }
}

impl Default for Stride {
    fn default() -> Stride {
        Stride::SHORT
    }
}

/// Messages shorter than this are cut short.
const LONG_FROM: u64 = 64 << 10;

/// How one message is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Its pieces.
    pub stride: Stride,
    /// Not 0 if the receiver is asked, by this number in the first piece, what the message takes.
    pub lap: u8,
}

/// A question that the receiver has not answered.
struct Open {
    number: u8,
    len: usize,
    stride: Stride,
    /// Messages that were cut since.
    age: u32,
}

/// After so many messages an answer is no longer expected.
const AGE_MAX: u32 = 256;

/// The learner of one direction.
pub(crate) struct Strides {
    site: Site<Stride>,
    last: u8,
    open: [Option<Open>; LAPS],
}

impl Strides {
    pub(super) const fn new() -> Strides {
        Strides { site: Site::new(), last: 0, open: [const { None }; LAPS] }
    }

    /// How a message of `len` bytes is cut that lies in parts of `part_len` bytes or so. `settled`: no
    /// other algorithm is just tried with long pieces.
    pub(super) fn cut(&mut self, len: u64, part_len: u64, settled: bool) -> Cut {
        let unasked = |stride| Cut { stride, lap: 0 };
        if len < LONG_FROM || part_len < Stride::LONG.bytes() {
            return unasked(Stride::SHORT);
        }
        // What a message takes then says nothing. Long pieces bring it to an end.
        if !settled {
            return unasked(Stride::LONG);
        }
        self.open.iter_mut().for_each(|place| {
            place.take_if(|open| {
                open.age += 1;
                open.age > AGE_MAX
            });
        });
        let len = len as usize;
        let number = self.last.checked_add(1).unwrap_or(LAPS_FROM).max(LAPS_FROM);
        let place = &mut self.open[number as usize % LAPS];
        let stride = match place {
            Some(_) => self.site.using(len),
            // A question that cannot be asked would be lost.
            None => match self.site.next(len, candidates) {
                Some(choice) if choice.timed => {
                    self.last = number;
                    *place = Some(Open { number, len, stride: choice.algorithm, age: 0 });
                    return Cut { stride: choice.algorithm, lap: number };
                }
                choice => choice.map(|choice| choice.algorithm),
            },
        };
        unasked(stride.unwrap_or_default())
    }

    /// Hears what the receiver has said in the word of each question.
    pub(super) fn hear(&mut self, word: impl Fn(u8) -> u64) {
        for place in &mut self.open {
            let Some(open) = place else { continue };
            if let Some(ns) = took::answered(word(open.number), open.number) {
                self.site.observe(open.len, open.stride, ns.max(1));
                *place = None;
            }
        }
    }
}

/// The likelier one first: long pieces are worth it where they would be written past the caches.
fn candidates() -> [Stride; 2] {
    let len = Stride::LONG.0 as usize;
    let block = Block { len, reader: Reader::OtherCore, ..Block::default() };
    match plan().pick(&block).stores() {
        Stores::Streaming => [Stride::LONG, Stride::SHORT],
        Stores::Temporal => [Stride::SHORT, Stride::LONG],
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    /// A receiver that answers at once, with what its machine takes for a message.
    struct Receiver {
        words: [Cell<u64>; LAPS],
        ns_per_kib: fn(Stride) -> u64,
    }

    impl Receiver {
        fn new(ns_per_kib: fn(Stride) -> u64) -> Receiver {
            Receiver { words: Default::default(), ns_per_kib }
        }

        /// Sends `count` messages. How many of them were cut long, and how many asked.
        fn take(&self, strides: &mut Strides, len: u64, count: u32) -> (u32, u32) {
            let (mut long, mut asked) = (0, 0);
            for _ in 0..count {
                strides.hear(|number| self.words[number as usize % LAPS].get());
                let Cut { stride, lap } = strides.cut(len, len, true);
                if lap != 0 {
                    assert!(lap >= LAPS_FROM);
                    let ns = (self.ns_per_kib)(stride) * len / 1024;
                    self.words[lap as usize % LAPS].set(took::answer(lap, ns));
                    asked += 1;
                }
                long += u32::from(stride == Stride::LONG);
            }
            (long, asked)
        }
    }

    fn near(stride: Stride) -> u64 {
        if stride == Stride::LONG { 150 } else { 100 }
    }

    fn far(stride: Stride) -> u64 {
        if stride == Stride::LONG { 80 } else { 300 }
    }

    #[test]
    fn the_receiver_decides_and_decides_again() {
        for len in [64 << 10, 1 << 20, 16 << 20] {
            let mut strides = Strides::new();
            Receiver::new(near).take(&mut strides, len, 100);
            let (long, asked) = Receiver::new(near).take(&mut strides, len, 400);
            assert!(long <= 16, "{long} of 400 cut long");
            assert!((40..=120).contains(&asked), "{asked} of 400 asked about");
            // The cores move apart.
            Receiver::new(far).take(&mut strides, len, 200);
            let (long, _) = Receiver::new(far).take(&mut strides, len, 400);
            assert!(long >= 384, "{long} of 400 cut long");
        }
    }

    #[test]
    fn what_says_nothing_is_not_asked_about() {
        let mut strides = Strides::new();
        for _ in 0..200 {
            let short = Cut { stride: Stride::SHORT, lap: 0 };
            assert_eq!(strides.cut(LONG_FROM - 1, LONG_FROM, true), short);
            // Of parts, each is copied for itself.
            assert_eq!(strides.cut(1 << 20, 4 << 10, true), short);
            let long = Cut { stride: Stride::LONG, lap: 0 };
            assert_eq!(strides.cut(1 << 20, 1 << 20, false), long);
        }
        assert_eq!(strides.site.using(1 << 20), None);
    }

    #[test]
    fn a_receiver_that_does_not_answer_is_seldom_asked() {
        let mut strides = Strides::new();
        let asked = (0..10_000).filter(|_| {
            strides.hear(|_| 0);
            strides.cut(1 << 20, 1 << 20, true).lap != 0
        });
        let asked = asked.count() as u32;
        // Each question has its time, and then another one is asked in its place.
        assert!((10_000 / AGE_MAX..=10_000 / AGE_MAX * 2 + 2).contains(&asked), "{asked}");
    }

    /// How many messages come before the next question, if `waits` came while none could be asked.
    fn asked_after(waits: u32) -> usize {
        const MESSAGE: u64 = 1 << 20;
        let mut strides = Strides::new();
        let receiver = Receiver::new(near);
        receiver.take(&mut strides, MESSAGE, 200);
        strides.hear(|number| receiver.words[number as usize % LAPS].get());
        // It answers no more.
        let mut cut = || strides.cut(MESSAGE, MESSAGE, true);
        let mut open = 0;
        while open < LAPS {
            open += usize::from(cut().lap != 0);
        }
        assert!((0..waits).all(|_| cut().lap == 0));
        strides.hear(|number| took::answer(number, near(Stride::SHORT) * MESSAGE / 1024));
        (0..100).take_while(|_| strides.cut(MESSAGE, MESSAGE, true).lap == 0).count()
    }

    #[test]
    fn no_question_is_lost_while_none_can_be_asked() {
        for waits in 1..20 {
            assert_eq!(asked_after(waits), asked_after(0), "after {waits}");
        }
    }

    proptest! {
        #[test]
        fn all_of_a_message_goes(len in 1u64..4 << 20, long: bool) {
            let stride = if long { Stride::LONG } else { Stride::SHORT };
            let mut left = len;
            while left > 0 {
                let piece = stride.next(left);
                prop_assert!(piece > 0 && piece <= left && piece <= stride.bytes());
                prop_assert!(piece == left || piece.is_multiple_of(LINE as u64));
                // One class of sizes, of which what is learnt holds for all.
                let is_long = piece >= 16 << 10 || len < 64 << 10;
                prop_assert!(!long || is_long, "{} of {}", piece, len);
                left -= piece;
            }
        }

        #[test]
        fn answers_that_lie_do_no_harm(words in proptest::collection::vec(any::<u64>(), 1..200)) {
            let mut strides = Strides::new();
            for word in words {
                strides.hear(|number| took::answer(number & !1, word >> 8));
                let Cut { stride, lap } = strides.cut(1 << 20, 1 << 20, true);
                prop_assert!([Stride::SHORT, Stride::LONG].contains(&stride));
                prop_assert!(lap == 0 || lap >= LAPS_FROM);
            }
        }
    }
}
