//! `FragmentSizes`: how long messages are cut into pieces, and so how the ring is used.
//!
//! Short pieces go round in few bytes, which stay in the caches of both sides: the best choice
//! between cores that share a cache. Long pieces go round in all bulk bytes, and are worth being
//! written past the caches: the best choice between cores that are far apart, where a line that
//! both have used takes several ways across to be written again. Which of the two is faster cannot
//! be known before, so it is learnt like the choice of an algorithm, from the receiver's time for a
//! message.
//!
//! Plain state, no I/O: words of the segment come as arguments.

use pinfold_sys::cpu::block::Stores;

use crate::{
    copy::{Block, Reader, Site, plan},
    wire::{
        descriptor::FRAGMENT_SAMPLES_FROM,
        layout::{FRAGMENT_SAMPLES, LINE},
        sample,
    },
};

/// Largest length of a long message's pieces, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FragmentSize(u32);

impl FragmentSize {
    /// Small enough that the receiver copies one while the sender fills the next, and several fit
    /// the bytes that both sides have in their caches; long enough that neither waits for the other
    /// at every turn.
    pub(crate) const SHORT: FragmentSize = FragmentSize(8 << 10);
    /// Long enough for streaming stores to get going; several fit the ring.
    pub(crate) const LONG: FragmentSize = FragmentSize(24 << 10);

    /// The length in bytes.
    pub(crate) const fn bytes(self) -> u64 {
        self.0 as u64
    }

    /// The length of the next piece where `left` bytes are left, at least one. All pieces of a
    /// message are about as long, so that the times of one hold for all.
    pub(crate) const fn next(self, left: u64) -> u64 {
        let piece = left.div_ceil(left.div_ceil(self.bytes())).next_multiple_of(LINE as u64);
        if left < piece { left } else { piece }
    }
}

impl Default for FragmentSize {
    fn default() -> FragmentSize {
        FragmentSize::SHORT
    }
}

/// Length in bytes below which messages are cut into short pieces.
const LONG_FROM: u64 = 64 << 10;

/// Cut of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Size of its pieces.
    pub fragment: FragmentSize,
    /// Sample number in the first piece, which asks the receiver for its time; 0 if it is not
    /// asked.
    pub sample_number: u8,
}

/// A question that the receiver has not answered.
struct Open {
    number: u8,
    len: usize,
    fragment: FragmentSize,
    /// Number of messages cut since.
    age: u32,
}

/// Number of messages after which an answer is no longer expected.
const AGE_MAX: u32 = 256;

/// The learner of one direction.
pub(crate) struct FragmentSizes {
    site: Site<FragmentSize>,
    last: u8,
    open: [Option<Open>; FRAGMENT_SAMPLES],
}

impl FragmentSizes {
    pub(super) const fn new() -> FragmentSizes {
        FragmentSizes { site: Site::new(), last: 0, open: [const { None }; FRAGMENT_SAMPLES] }
    }

    /// Chooses the cut of a message of `len` bytes that lies in parts of about `part_len` bytes.
    /// `settled` says that no other algorithm is being tried with long pieces.
    pub(super) fn cut(&mut self, len: u64, part_len: u64, settled: bool) -> Cut {
        let unasked = |fragment| Cut { fragment, sample_number: 0 };
        if len < LONG_FROM || part_len < FragmentSize::LONG.bytes() {
            return unasked(FragmentSize::SHORT);
        }
        // The time of a message says nothing while an algorithm is being tried. Long pieces end the
        // trial.
        if !settled {
            return unasked(FragmentSize::LONG);
        }
        self.open.iter_mut().for_each(|place| {
            place.take_if(|open| {
                open.age += 1;
                open.age > AGE_MAX
            });
        });
        let len = len as usize;
        let number =
            self.last.checked_add(1).unwrap_or(FRAGMENT_SAMPLES_FROM).max(FRAGMENT_SAMPLES_FROM);
        let place = &mut self.open[number as usize % FRAGMENT_SAMPLES];
        let fragment = match place {
            Some(_) => self.site.using(len),
            // A question that cannot be asked would be lost.
            None => match self.site.next(len, candidates) {
                Some(choice) if choice.timed => {
                    self.last = number;
                    *place = Some(Open { number, len, fragment: choice.algorithm, age: 0 });
                    return Cut { fragment: choice.algorithm, sample_number: number };
                }
                choice => choice.map(|choice| choice.algorithm),
            },
        };
        unasked(fragment.unwrap_or_default())
    }

    /// The cut of a message as those before were cut.
    pub(super) fn cut_as_ever(&self, len: u64, part_len: u64) -> Cut {
        let is_short = len < LONG_FROM || part_len < FragmentSize::LONG.bytes();
        let used = if is_short { None } else { self.site.using(len as usize) };
        Cut { fragment: used.unwrap_or_default(), sample_number: 0 }
    }

    /// Takes the receiver's answer from the word of each question.
    pub(super) fn hear(&mut self, word: impl Fn(u8) -> u64) {
        for place in &mut self.open {
            let Some(open) = place else { continue };
            if let Some(ns) = sample::answered(word(open.number), open.number) {
                self.site.observe(open.len, open.fragment, ns.max(1));
                *place = None;
            }
        }
    }
}

/// The two lengths, the likelier first: long pieces are worth it where they would be written past
/// the caches.
fn candidates() -> [FragmentSize; 2] {
    let len = FragmentSize::LONG.0 as usize;
    let block = Block { len, reader: Reader::OtherCore, ..Block::default() };
    match plan().pick(&block).stores() {
        Stores::Streaming => [FragmentSize::LONG, FragmentSize::SHORT],
        Stores::Temporal => [FragmentSize::SHORT, FragmentSize::LONG],
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    /// A receiver that answers at once, with the time that its machine takes for a message.
    struct Receiver {
        words: [Cell<u64>; FRAGMENT_SAMPLES],
        ns_per_kib: fn(FragmentSize) -> u64,
    }

    impl Receiver {
        fn new(ns_per_kib: fn(FragmentSize) -> u64) -> Receiver {
            Receiver { words: Default::default(), ns_per_kib }
        }

        /// Sends `count` messages. Returns how many of them were cut long, and how many asked.
        fn take(&self, fragments: &mut FragmentSizes, len: u64, count: u32) -> (u32, u32) {
            let (mut long, mut asked) = (0, 0);
            for _ in 0..count {
                fragments.hear(|number| self.words[number as usize % FRAGMENT_SAMPLES].get());
                let Cut { fragment, sample_number } = fragments.cut(len, len, true);
                if sample_number != 0 {
                    assert!(sample_number >= FRAGMENT_SAMPLES_FROM);
                    let ns = (self.ns_per_kib)(fragment) * len / 1024;
                    self.words[sample_number as usize % FRAGMENT_SAMPLES]
                        .set(sample::answer(sample_number, ns));
                    asked += 1;
                }
                long += u32::from(fragment == FragmentSize::LONG);
            }
            (long, asked)
        }
    }

    fn near(fragment: FragmentSize) -> u64 {
        if fragment == FragmentSize::LONG { 150 } else { 100 }
    }

    fn far(fragment: FragmentSize) -> u64 {
        if fragment == FragmentSize::LONG { 80 } else { 300 }
    }

    #[test]
    fn the_receiver_decides_and_decides_again() {
        for len in [64 << 10, 1 << 20, 16 << 20] {
            let mut fragments = FragmentSizes::new();
            Receiver::new(near).take(&mut fragments, len, 100);
            let (long, asked) = Receiver::new(near).take(&mut fragments, len, 400);
            assert!(long <= 16, "{long} of 400 cut long");
            assert!((40..=120).contains(&asked), "{asked} of 400 asked about");
            // The cores move apart.
            Receiver::new(far).take(&mut fragments, len, 200);
            let (long, _) = Receiver::new(far).take(&mut fragments, len, 400);
            assert!(long >= 384, "{long} of 400 cut long");
        }
    }

    #[test]
    fn what_says_nothing_is_not_asked_about() {
        let mut fragments = FragmentSizes::new();
        for _ in 0..200 {
            let short = Cut { fragment: FragmentSize::SHORT, sample_number: 0 };
            assert_eq!(fragments.cut(LONG_FROM - 1, LONG_FROM, true), short);
            // In a message of parts, each part is copied on its own.
            assert_eq!(fragments.cut(1 << 20, 4 << 10, true), short);
            let long = Cut { fragment: FragmentSize::LONG, sample_number: 0 };
            assert_eq!(fragments.cut(1 << 20, 1 << 20, false), long);
        }
        assert_eq!(fragments.site.using(1 << 20), None);
    }

    #[test]
    fn a_receiver_that_does_not_answer_is_seldom_asked() {
        let mut fragments = FragmentSizes::new();
        let asked = (0..10_000).filter(|_| {
            fragments.hear(|_| 0);
            fragments.cut(1 << 20, 1 << 20, true).sample_number != 0
        });
        let asked = asked.count() as u32;
        // Each question has its time, and then another is asked in its place.
        assert!((10_000 / AGE_MAX..=10_000 / AGE_MAX * 2 + 2).contains(&asked), "{asked}");
    }

    /// Number of messages before the next question, if `waits` came while none could be asked.
    fn asked_after(waits: u32) -> usize {
        const MESSAGE: u64 = 1 << 20;
        let mut fragments = FragmentSizes::new();
        let receiver = Receiver::new(near);
        receiver.take(&mut fragments, MESSAGE, 200);
        fragments.hear(|number| receiver.words[number as usize % FRAGMENT_SAMPLES].get());
        // The receiver answers no more.
        let mut cut = || fragments.cut(MESSAGE, MESSAGE, true);
        let mut open = 0;
        while open < FRAGMENT_SAMPLES {
            open += usize::from(cut().sample_number != 0);
        }
        assert!((0..waits).all(|_| cut().sample_number == 0));
        fragments.hear(|number| sample::answer(number, near(FragmentSize::SHORT) * MESSAGE / 1024));
        (0..100).take_while(|_| fragments.cut(MESSAGE, MESSAGE, true).sample_number == 0).count()
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
            let fragment = if long { FragmentSize::LONG } else { FragmentSize::SHORT };
            let mut left = len;
            while left > 0 {
                let piece = fragment.next(left);
                prop_assert!(piece > 0 && piece <= left && piece <= fragment.bytes());
                prop_assert!(piece == left || piece.is_multiple_of(LINE as u64));
                // All lengths are in one class of sizes, for which the same is learnt.
                let is_long = piece >= 16 << 10 || len < 64 << 10;
                prop_assert!(!long || is_long, "{} of {}", piece, len);
                left -= piece;
            }
        }

        #[test]
        fn answers_that_lie_do_no_harm(words in proptest::collection::vec(any::<u64>(), 1..200)) {
            let mut fragments = FragmentSizes::new();
            for word in words {
                fragments.hear(|number| sample::answer(number & !1, word >> 8));
                let Cut { fragment, sample_number } = fragments.cut(1 << 20, 1 << 20, true);
                prop_assert!([FragmentSize::SHORT, FragmentSize::LONG].contains(&fragment));
                prop_assert!(sample_number == 0 || sample_number >= FRAGMENT_SAMPLES_FROM);
            }
        }
    }
}
