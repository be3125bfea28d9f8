#![allow(unsafe_code)]
//! Copies into and out of a lane's bulk bytes, and the times that its two ends exchange about them.
//!
//! **Invariant.** Only the bytes named are read or written. The times from the other side are
//! trusted with no more than the choice of an algorithm.
//!
//! How fast a piece comes out of the ring depends on how it went in: between cores that share a
//! cache plain stores leave it there; between cores that are far apart streaming stores spare both
//! sides the way through the other's cache. So the sending end's copy site learns from both times.
//! The sender gives some of its pieces a sample number; the receiver answers with the time that
//! taking that piece out took.

use std::sync::Arc;

use pinfold_sys::cpu::clock;

use super::segment::Segment;
use crate::{
    copy::{Copier, Done, Reader, Tally},
    sync::Ordering,
    wire::{
        descriptor::FRAGMENT_SAMPLES_FROM,
        layout::{Direction, SAMPLES},
        sample,
    },
};

/// Longest time that is believed of a copy, as another core or the kernel measures it, ns.
const NS_MAX: u64 = 1 << 30;

/// The sending end's copies into the ring.
pub(crate) struct CopyIn {
    copier: Copier,
    segment: Arc<Segment>,
    way: Direction,
    /// The last sample's number; 0 before the first.
    last: u8,
    /// Samples that the receiver has not answered, by their numbers.
    open: [Option<Open>; SAMPLES],
}

/// A sample that the receiver has not answered.
struct Open {
    number: u8,
    done: Done,
    /// Number of copies since.
    age: u32,
}

/// Number of copies after which an answer is no longer expected: more than a ring has room for.
const AGE_MAX: u32 = 1024;

impl CopyIn {
    pub(super) fn new(segment: &Arc<Segment>, way: Direction, tally: &Arc<Tally>) -> CopyIn {
        let copier = Copier::hearing(Reader::OtherCore, tally);
        let open = [const { None }; SAMPLES];
        CopyIn { copier, segment: Arc::clone(segment), way, last: 0, open }
    }

    /// Copies `len` bytes in. Returns the sample number of the piece, 0 if it has none.
    ///
    /// # Safety
    /// As for [`Copier::copy`].
    #[inline]
    pub(super) unsafe fn copy_in(&mut self, from: *const u8, to: *mut u8, len: usize) -> u8 {
        if self.open.iter().any(Option::is_some) {
            self.hear();
            if self.open[self.next() as usize % SAMPLES].is_some() {
                // A sample without a free number would be lost, and a try of an algorithm with it.
                // SAFETY: as the caller promised.
                unsafe { self.copier.copy_untimed(from, to, len) };
                return 0;
            }
        }
        // SAFETY: as the caller promised.
        match unsafe { self.copier.copy_timed(from, to, len) } {
            Some(done) => self.ask(done),
            None => 0,
        }
    }

    /// Copies a part of a piece in. No times are compared: the receiver's would be that of the
    /// whole piece.
    ///
    /// # Safety
    /// As for [`Copier::copy`].
    #[inline]
    pub(super) unsafe fn copy_part(&mut self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: as the caller promised.
        unsafe { self.copier.copy_untimed(from, to, len) };
    }

    /// Returns whether no algorithm other than the one in use is being tried for pieces of `len`
    /// bytes.
    pub(super) fn is_settled(&self, len: usize) -> bool {
        let using = self.copier.using(len);
        let is_try = |open: &Open| Some(open.done.algorithm) != self.copier.using(open.done.bytes);
        using.is_none() || self.copier.is_settled(len) && !self.open.iter().flatten().any(is_try)
    }

    /// The number of the next sample.
    fn next(&self) -> u8 {
        if self.last + 1 < FRAGMENT_SAMPLES_FROM { self.last + 1 } else { 1 }
    }

    /// Opens a sample and returns its number.
    fn ask(&mut self, done: Done) -> u8 {
        self.last = self.next();
        self.open[self.last as usize % SAMPLES] = Some(Open { number: self.last, done, age: 0 });
        self.last
    }

    /// Takes the receiver's answers.
    #[cold]
    fn hear(&mut self) {
        for place in &mut self.open {
            let Some(Open { number, done, age }) = place else { continue };
            let word = self.segment.word64(self.way.sample_at(*number)).load(Ordering::Relaxed);
            *age += 1;
            if let Some(ns) = sample::answered(word, *number) {
                self.copier.learn(done, ns.min(NS_MAX));
                *place = None;
            } else if *age > AGE_MAX {
                *place = None;
            }
        }
    }
}

/// The receiving end's copies out of the ring.
pub(crate) struct CopyOut {
    copier: Copier,
    segment: Arc<Segment>,
    way: Direction,
}

impl CopyOut {
    pub(super) fn new(segment: &Arc<Segment>, way: Direction, tally: &Arc<Tally>) -> CopyOut {
        let copier = Copier::new(Reader::Me, tally);
        CopyOut { copier, segment: Arc::clone(segment), way }
    }

    /// Copies `len` bytes out, and answers if the piece is a sample.
    ///
    /// # Safety
    /// As for [`Copier::copy`].
    #[inline]
    pub(super) unsafe fn copy_out(&mut self, from: *const u8, to: *mut u8, len: usize, sample: u8) {
        if sample == 0 || sample >= FRAGMENT_SAMPLES_FROM {
            // SAFETY: as the caller promised.
            return unsafe { self.copier.copy(from, to, len) };
        }
        let start = clock::ticks();
        // SAFETY: as the caller promised.
        unsafe { self.copier.copy(from, to, len) };
        let ns = clock::ns_of(clock::ticks().saturating_sub(start)).max(1);
        let word = self.segment.word64(self.way.sample_at(sample));
        word.store(sample::answer(sample, ns), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use pinfold_sys::{
        cpu::block::Stores,
        mem::{mapping::SharedMapping, memfd},
    };

    use super::*;
    use crate::wire::layout::SEGMENT_BYTES;

    const LEN: usize = 64 << 10;

    fn ends() -> (CopyIn, CopyOut, Arc<Segment>, Arc<Tally>) {
        let file = memfd::create_sealed("pinfold-test", SEGMENT_BYTES).unwrap();
        let segment = Segment::new(SharedMapping::map(file.as_fd(), SEGMENT_BYTES).unwrap());
        let (way, tally) = (Direction::ToAccepting, Arc::default());
        let into = CopyIn::new(&segment, way, &tally);
        (into, CopyOut::new(&segment, way, &tally), segment, tally)
    }

    /// Bytes copied at the sending end by algorithms with these stores.
    fn copied(tally: &Tally, stores: Stores) -> u64 {
        let (all, streamed) = tally.copied_bytes();
        if stores == Stores::Streaming { streamed } else { all - streamed }
    }

    #[test]
    fn a_sample_is_answered() {
        let (mut into, mut out, segment, tally) = ends();
        let (from, mut ring, mut to) = (vec![7u8; LEN], vec![0u8; LEN], vec![0u8; LEN]);
        let mut answered = 0;
        for _ in 0..64 {
            ring.fill(0);
            to.fill(0);
            // SAFETY: all three are vectors of that length.
            let sample = unsafe { into.copy_in(from.as_ptr(), ring.as_mut_ptr(), LEN) };
            // SAFETY: likewise.
            unsafe { out.copy_out(ring.as_ptr(), to.as_mut_ptr(), LEN, sample) };
            assert_eq!(to, from);
            if sample != 0 {
                let word = segment.word64(into.way.sample_at(sample)).load(Ordering::Relaxed);
                assert!(sample::answered(word, sample).is_some_and(|ns| ns > 0));
                answered += 1;
            }
        }
        into.hear();
        assert!(answered >= 8, "{answered} samples of 64 copies of 64 KiB");
        assert!(into.open.iter().all(Option::is_none));
        assert_eq!(tally.copied_bytes().0, 2 * 64 * LEN as u64);
    }

    /// The reader is asked nothing that it will not answer, and nothing is learnt.
    #[test]
    fn parts_are_not_timed() {
        let (mut into, _, _, tally) = ends();
        let (from, mut ring) = (vec![7u8; LEN], vec![0u8; LEN]);
        for _ in 0..200 {
            ring.fill(0);
            // SAFETY: both are vectors of that length.
            unsafe { into.copy_part(from.as_ptr(), ring.as_mut_ptr(), LEN) };
            assert_eq!(ring, from);
        }
        assert!(into.open.iter().all(Option::is_none) && into.last == 0);
        assert_eq!(tally.copied_bytes().0, 200 * LEN as u64);
    }

    #[test]
    fn samples_have_numbers_of_their_own() {
        let (mut into, _, _, _) = ends();
        let done =
            Done { algorithm: pinfold_sys::cpu::block::Algorithm::LIBC, bytes: LEN, ns: Some(1) };
        let numbers: Vec<u8> = (0..500).map(|_| into.ask(done)).collect();
        assert!(numbers.iter().all(|number| (1..FRAGMENT_SAMPLES_FROM).contains(number)));
        assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]));
    }

    /// A reader that is many pieces behind answers all samples in the end.
    #[test]
    fn a_reader_that_lags_loses_no_sample() {
        const LAG: usize = 10;
        let (mut into, mut out, segment, _) = ends();
        let (from, mut ring, mut to) = (vec![7u8; LEN], vec![0u8; LEN], vec![0u8; LEN]);
        let mut behind = std::collections::VecDeque::new();
        let (mut asked, mut heard) = (0, 0);
        // The number of pieces that are samples depends on the times they take.
        for _ in 0..100_000 {
            if asked == 40 {
                break;
            }
            let open = into.open.iter().flatten().count();
            // SAFETY: both are vectors of that length.
            let sample = unsafe { into.copy_in(from.as_ptr(), ring.as_mut_ptr(), LEN) };
            asked += usize::from(sample != 0);
            heard += open + usize::from(sample != 0) - into.open.iter().flatten().count();
            behind.push_back(sample);
            if behind.len() > LAG {
                let sample = behind.pop_front().unwrap();
                // SAFETY: likewise.
                unsafe { out.copy_out(ring.as_ptr(), to.as_mut_ptr(), LEN, sample) };
                if sample != 0 {
                    let word = segment.word64(into.way.sample_at(sample)).load(Ordering::Relaxed);
                    assert!(sample::answered(word, sample).is_some());
                }
            }
            let open = into.open.iter().flatten().map(|open| open.number);
            let open: Vec<u8> = open.collect();
            let unanswered = behind.iter().filter(|sample| **sample != 0);
            assert!(unanswered.clone().all(|sample| open.contains(sample)), "one was forgotten");
        }
        assert!(asked == 40 && heard >= asked - SAMPLES, "{heard} of {asked}");
    }

    #[test]
    fn a_reader_that_never_answers_is_asked_again() {
        let (mut into, _, _, _) = ends();
        let (from, mut ring) = (vec![7u8; LEN], vec![0u8; LEN]);
        let mut asked = 0;
        for _ in 0..3 * AGE_MAX {
            // SAFETY: both are vectors of that length.
            asked += u32::from(unsafe { into.copy_in(from.as_ptr(), ring.as_mut_ptr(), LEN) } != 0);
        }
        assert!(
            !copy_streams() || (SAMPLES as u32 + 1..=4 * SAMPLES as u32).contains(&asked),
            "{asked}"
        );
    }

    /// The algorithm that the reader is slow after goes out of use, whichever it is.
    #[test]
    fn what_the_reader_says_decides() {
        if !copy_streams() {
            return;
        }
        for slow in [Stores::Temporal, Stores::Streaming] {
            let (mut into, _, segment, tally) = ends();
            let (from, mut ring) = (vec![7u8; LEN], vec![0u8; LEN]);
            let mut before = 0;
            for turn in 0..1000 {
                let streamed = copied(&tally, Stores::Streaming);
                // SAFETY: both are vectors of that length.
                let sample = unsafe { into.copy_in(from.as_ptr(), ring.as_mut_ptr(), LEN) };
                let streams = copied(&tally, Stores::Streaming) > streamed;
                let is_slow = streams == (slow == Stores::Streaming);
                if sample != 0 {
                    // Seconds, or nothing: far from any time that copying in took.
                    let ns = if is_slow { NS_MAX } else { 1 };
                    let word = sample::answer(sample, ns);
                    segment.word64(into.way.sample_at(sample)).store(word, Ordering::Relaxed);
                }
                if turn == 500 {
                    before = copied(&tally, slow);
                }
            }
            let late = (copied(&tally, slow) - before) / LEN as u64;
            assert!(late < 50, "{late} of the last 500 copies by what is slow: {slow:?}");
        }
    }

    /// Returns whether the plan of this process leaves a choice.
    fn copy_streams() -> bool {
        use crate::copy::{Block, plan};
        let block = Block { len: LEN, reader: Reader::OtherCore, ..Block::default() };
        let candidates: Vec<_> = plan().candidates(&block).collect();
        candidates.iter().any(|it| it.stores() == Stores::Streaming)
            && candidates.iter().any(|it| it.stores() == Stores::Temporal)
    }

    #[test]
    fn an_answer_that_does_not_come_or_lies_does_no_harm() {
        let (mut into, mut out, segment, _) = ends();
        let (from, mut ring, mut to) = (vec![9u8; LEN], vec![0u8; LEN], vec![0u8; LEN]);
        for turn in 0..2000u64 {
            for index in 0..SAMPLES as u8 {
                // The sample number may be one that was asked for or not, and the time may be any.
                let word = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(u32::from(index));
                segment.word64(into.way.sample_at(index)).store(word, Ordering::Relaxed);
            }
            // SAFETY: all three are vectors of that length.
            unsafe {
                into.copy_in(from.as_ptr(), ring.as_mut_ptr(), LEN);
                out.copy_out(ring.as_ptr(), to.as_mut_ptr(), LEN, turn as u8);
            }
        }
        assert_eq!(to, from);
    }
}
