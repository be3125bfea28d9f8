//! Random steps of both sides against a plain oracle, and sides that lie.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::HeapRing;
use crate::{
    sync::{AtomicU64, Ordering},
    transport::shm::{
        bulk::Bulk,
        claim::{self, End},
        laps::Laps,
        ring::{RingMemory, RingRx, RingTx, Violation},
    },
    wire::{
        descriptor::{Body, Header, INLINE_MAX, Kind, Piece, SEQ_MAX},
        layout::LINE,
        rendezvous::CHUNKS_MAX,
    },
};

#[derive(Clone, Debug)]
enum Step {
    /// Send a descriptor with these words, naming this many bulk bytes.
    Put {
        aux: u32,
        words: Vec<u64>,
        bytes: u32,
    },
    Pop,
    Publish,
    Refresh,
    /// The consumer writes a descriptor in the other direction, which acknowledges.
    Answer,
    /// The producer reads the next of those, or sees that there is none.
    Hear,
    /// The producer uses more slots, and more bulk bytes.
    Grow {
        slots: u32,
        bytes: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let words = proptest::collection::vec(any::<u64>(), 0..=7);
    prop_oneof![
        8 => (any::<u32>(), words, prop_oneof![3 => 0u32..300, 1 => 0u32..30_000])
            .prop_map(|(aux, words, bytes)| Step::Put { aux, words, bytes }),
        8 => Just(Step::Pop),
        4 => Just(Step::Publish),
        1 => Just(Step::Refresh),
        3 => Just(Step::Answer),
        3 => Just(Step::Hear),
        1 => (1u32..=SLOTS, 0u32..256 << 10).prop_map(|(slots, bytes)| Step::Grow { slots, bytes }),
    ]
}

const SLOTS: u32 = 32;

/// The header of a descriptor of the other direction, as it comes.
fn answer(consumed: u64) -> Header {
    Header::from_word(Header::new(Kind::Inline, 0, 0).sealed(1, false, false, consumed))
}

/// A descriptor that the producer may not write over yet.
struct Live {
    slot: u32,
    aux: u32,
    words: Vec<u64>,
    piece: Option<Piece>,
}

/// Both ends of a ring and its bulk bytes, and their expected contents.
struct Pair {
    memory: HeapRing,
    tx: RingTx<HeapRing>,
    rx: RingRx<HeapRing>,
    bulk: Bulk,
    /// Published by the producer, not yet passed by the consumer.
    flying: VecDeque<Live>,
    /// Passed by the consumer, but not yet known to the producer as passed.
    held: Vec<Live>,
    /// Descriptors of the other direction in flight, each as the count that it acknowledges.
    answers: VecDeque<u64>,
}

impl Pair {
    fn new(capacity: u32) -> Pair {
        let memory = HeapRing::new(SLOTS);
        let mut bulk = Bulk::new();
        bulk.grow(512);
        Pair {
            tx: RingTx::new(memory.clone(), capacity),
            rx: RingRx::new(memory.clone()),
            memory,
            bulk,
            flying: VecDeque::new(),
            held: Vec::new(),
            answers: VecDeque::new(),
        }
    }

    fn headers(&self) -> Vec<u64> {
        let slots = (0..SLOTS).map(|index| self.memory.slot(index));
        slots.map(|slot| slot[0].load(Ordering::Relaxed)).collect()
    }

    /// Drops the descriptors that are known to be consumed: their slots may be used again at once.
    fn settle(&mut self) {
        let passed = self.rx.consumed() as usize - self.held.len();
        let known = (self.tx.consumed() as usize).saturating_sub(passed);
        self.held.drain(..known);
    }

    fn push(&mut self, aux: u32, words: Vec<u64>, bytes: u32) -> Result<(), TestCaseError> {
        let room = self.tx.room().map_err(|Violation(why)| TestCaseError::fail(why))?;
        self.settle();
        let live = self.flying.len() + self.held.len();
        prop_assert!(live + room as usize <= self.tx.capacity_to_come() as usize);
        if room == 0 {
            prop_assert!(live > 0, "an empty ring without room");
            return Ok(());
        }
        self.bulk.reclaim(self.tx.consumed());
        let piece = if bytes > 0 {
            self.bulk.lend(bytes, Laps::new().bytes(bytes), self.tx.produced())
        } else {
            None
        };
        if let Some(piece) = piece {
            for other in self.flying.iter().chain(&self.held).filter_map(|live| live.piece) {
                let apart = piece.offset + piece.len <= other.offset
                    || other.offset + other.len <= piece.offset;
                prop_assert!(apart, "{:?} was lent while {:?} was in use", piece, other);
            }
        }
        let before = self.headers();
        self.tx.push(Header::new(Kind::Data, 0, aux), &words);
        let after = self.headers();
        // The sequence number of the new slot is new, so the header has changed.
        let changed = before.iter().zip(&after).position(|(before, after)| before != after);
        let slot = changed.unwrap_or_default() as u32;
        for other in self.flying.iter().chain(&self.held) {
            prop_assert_ne!(slot, other.slot, "a descriptor was written over");
        }
        self.flying.push_back(Live { slot, aux, words, piece });
        Ok(())
    }

    fn pop(&mut self) -> Result<(), TestCaseError> {
        let head = self.rx.head();
        prop_assert_eq!(head.is_some(), !self.flying.is_empty());
        let (Some(head), Some(live)) = (head, self.flying.pop_front()) else { return Ok(()) };
        prop_assert_eq!((head.kind(), head.aux()), (Some(Kind::Data), live.aux));
        let body: Body = self.rx.body();
        prop_assert_eq!(&body[..live.words.len()], &live.words[..]);
        for (i, word) in live.words.iter().enumerate() {
            prop_assert_eq!(self.rx.word(i), *word);
        }
        prop_assert_eq!(self.rx.advance(head), Ok(()));
        self.held.push(live);
        Ok(())
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Put { aux, words, bytes } => self.push(aux, words, bytes)?,
            Step::Pop => self.pop()?,
            Step::Publish => self.rx.publish(),
            Step::Refresh => prop_assert_eq!(self.tx.refresh(), Ok(())),
            Step::Answer => self.answers.push_back(self.rx.consumed()),
            Step::Hear => match self.answers.pop_front() {
                Some(consumed) => self.tx.acknowledged(answer(consumed)),
                None => self.tx.nothing_on_the_way(),
            },
            Step::Grow { slots, bytes } => {
                self.tx.grow(slots.max(self.tx.capacity_to_come()));
                self.bulk.grow(bytes.max(self.bulk.size()));
            }
        }
        prop_assert!(self.tx.consumed() <= self.rx.consumed(), "more than was consumed");
        self.settle();
        Ok(())
    }
}

/// A cursor as a hostile consumer writes it: often one that could be true.
fn cursor() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..60, 1 => any::<u64>(), 1 => (0u64..3).prop_map(|i| u64::MAX - i)]
}

/// Steps of one case.
const STEPS: usize = if cfg!(miri) { 40 } else { 400 };

proptest! {
    #[test]
    fn a_ring_is_a_queue(
        capacity in 1u32..=4,
        steps in proptest::collection::vec(step(), 1..STEPS),
    ) {
        let mut pair = Pair::new(capacity);
        for step in steps {
            pair.take(step)?;
        }
        // In any case, once all is taken and given back, there is room again.
        while !pair.flying.is_empty() {
            pair.pop()?;
        }
        pair.take(Step::Publish)?;
        pair.tx.refresh().unwrap();
        prop_assert!(pair.tx.room().unwrap() > 0);
        pair.bulk.reclaim(pair.tx.consumed());
        prop_assert!(pair.bulk.is_empty());
    }

    #[test]
    fn a_cursor_that_lies_is_caught_or_harms_its_owner(
        capacity in 1u32..=8,
        cursors in proptest::collection::vec((cursor(), any::<bool>()), 1..STEPS / 2),
    ) {
        let memory = HeapRing::new(8);
        let mut tx = RingTx::new(memory.clone(), capacity);
        for (cursor, grow) in cursors {
            memory.consumed().store(cursor, Ordering::Relaxed);
            // A cursor behind the acknowledged count is only old.
            let possible = cursor <= tx.produced();
            prop_assert_eq!(tx.refresh().is_ok(), possible);
            if grow {
                tx.grow(8);
            }
            // The slots are a vector: an index outside would panic.
            match tx.room() {
                Ok(room) => {
                    prop_assert!(room <= tx.capacity_to_come());
                    tx.acknowledged(answer(cursor));
                    (0..room).for_each(|_| tx.push(Header::new(Kind::Inline, 0, 0), &[1, 2, 3]));
                }
                Err(Violation(_)) => prop_assert!(!possible),
            }
        }
    }

    #[test]
    fn a_header_that_lies_leads_nowhere(
        headers in proptest::collection::vec((any::<u64>(), any::<u64>(), 0u8..8), 1..STEPS / 2),
    ) {
        let memory = HeapRing::new(8);
        let mut rx = RingRx::new(memory.clone());
        let mut seq = 1u64;
        for (header, body, how) in headers {
            // The headers are mostly fresh, mostly without the wrap mark.
            let header = if how > 0 { header & !0x7fff | seq } else { header };
            let header = if how > 1 { header & !(1 << 20) } else { header };
            for index in 0..8 {
                memory.slot(index)[0].store(header, Ordering::Relaxed);
                memory.slot(index)[1..].iter().for_each(|it| it.store(body, Ordering::Relaxed));
            }
            let Some(head) = rx.head() else { continue };
            prop_assert_eq!(rx.body(), [body; 7]);
            prop_assert!(head.inline_len(INLINE_MAX).is_none_or(|len| len <= INLINE_MAX));
            let _ = (head.kind(), head.aux());
            // The slots are a vector: an index outside would panic.
            match rx.advance(head) {
                Ok(()) => seq += 1,
                // The peer is cut off at this point.
                Err(Violation(_)) => break,
            }
        }
    }

    #[test]
    fn a_claim_word_that_lies_gives_chunks_of_the_message(
        word: u64,
        right: bool,
        generation: u16,
        chunks in 0..=CHUNKS_MAX,
        front: bool,
    ) {
        let word = if right { word & ((1 << 48) - 1) | u64::from(generation) << 48 } else { word };
        let word = AtomicU64::new(word);
        let end = if front { End::Front } else { End::Back };
        if let Some(chunk) = claim::take(&word, generation, chunks, end) {
            prop_assert!(chunk < chunks);
        }
        prop_assert!(claim::close(&word, generation) <= CHUNKS_MAX);
        prop_assert_eq!(claim::take(&word, generation, chunks, end), None);
    }
}

#[test]
fn sequence_numbers_go_round() {
    let memory = HeapRing::new(3);
    let mut tx = RingTx::new(memory.clone(), 3);
    let mut rx = RingRx::new(memory);
    let messages = if cfg!(miri) { 1000 } else { 200_000u32 };
    for number in 0..messages {
        assert!(tx.room().unwrap() > 0);
        tx.push(Header::new(Kind::Inline, 8, number), &[u64::from(number)]);
        let head = rx.head().unwrap();
        assert_eq!((head.aux(), rx.word(0)), (number, u64::from(number)));
        rx.advance(head).unwrap();
        assert_eq!(rx.head(), None, "an old descriptor was taken for a new one");
        rx.publish();
    }
}

/// Messages and answers in turn, with a burst now and then that reaches slots of whole laps only.
#[test]
#[cfg_attr(miri, ignore = "a long way round; what it does otherwise is done by others")]
fn short_laps_leave_nothing_stale_behind() {
    // After 38 and another the slots beyond the short lap are left alone; the laps of eight that
    // follow come to the very same sequence numbers after 32,767 messages.
    let bursts = [(0, 38), (u64::from(SEQ_MAX), 8), (100_000, 60), (132_767, 64)];
    let memory = HeapRing::new(64);
    let mut tx = RingTx::new(memory.clone(), 64);
    let mut rx = RingRx::new(memory);
    let mut short = 0;
    while tx.produced() < 170_000 {
        let burst = bursts.iter().find(|(at, _)| *at == tx.produced());
        let messages = burst.map_or(1, |(_, messages)| *messages);
        for _ in 0..messages {
            assert!(tx.room().unwrap() > 0);
            tx.push(Header::new(Kind::Inline, 8, tx.produced() as u32), &[]);
        }
        for _ in 0..messages {
            let head = rx.head().unwrap();
            assert_eq!(head.aux(), rx.consumed() as u32);
            short += u32::from(head.wraps());
            rx.advance(head).unwrap();
        }
        assert_eq!(rx.head(), None, "an old descriptor was taken for a new one");
        rx.publish();
        tx.acknowledged(answer(rx.consumed()));
        tx.refresh().unwrap();
    }
    assert!(short > 18_000, "{short} laps only: they were not short");
}

/// Bursts of all lengths between answers, so that laps of all lengths follow each other, many of
/// them with a slot left out.
#[test]
fn laps_that_leave_slots_out_leave_nothing_stale_behind() {
    let memory = HeapRing::new(64);
    let mut tx = RingTx::new(memory.clone(), 64);
    let mut rx = RingRx::new(memory);
    let (mut left_out, mut random) = (0, 1u64);
    let messages = if cfg!(miri) { 2000 } else { 500_000 };
    while tx.produced() < messages {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let burst = if random >> 62 == 0 { 1 + (random >> 40) % 62 } else { 1 };
        for _ in 0..burst {
            assert!(tx.room().unwrap() > 0, "no room although all was passed but {burst}");
            tx.push(Header::new(Kind::Inline, 8, tx.produced() as u32), &[]);
        }
        for _ in 0..burst {
            let head = rx.head().unwrap();
            assert_eq!(head.aux(), rx.consumed() as u32);
            left_out += head.skips();
            rx.advance(head).unwrap();
        }
        assert_eq!(rx.head(), None, "an old descriptor was taken for a new one");
        rx.publish();
        if random >> 32 & 1 == 0 {
            tx.acknowledged(answer(rx.consumed()));
        }
    }
    // It takes some hundred messages until the first slot is left out.
    assert!(cfg!(miri) || u64::from(left_out) > messages / 1000, "{left_out} slots only");
}

#[test]
fn a_short_lap_does_not_make_the_ring_short() {
    let memory = HeapRing::new(64);
    let mut tx = RingTx::new(memory.clone(), 64);
    let mut rx = RingRx::new(memory);
    // After eight messages and answers a short lap has just ended.
    for _ in 0..8 {
        tx.push(Header::new(Kind::Inline, 0, 0), &[]);
        let head = rx.head().unwrap();
        rx.advance(head).unwrap();
        tx.acknowledged(answer(rx.consumed().saturating_sub(u64::from(head.wraps()))));
    }
    // Now the consumer does not look for a while.
    for sent in 0..60 {
        assert!(tx.room().unwrap() > 0, "no room after {sent} messages");
        tx.push(Header::new(Kind::Inline, 0, sent), &[]);
    }
    for sent in 0..60 {
        let head = rx.head().unwrap();
        assert_eq!(head.aux(), sent);
        rx.advance(head).unwrap();
    }
}

#[test]
fn a_producer_that_never_wraps_is_cut_off() {
    let memory = HeapRing::new(4);
    let mut rx = RingRx::new(memory.clone());
    for number in 0..4u16 {
        let header = Header::new(Kind::Inline, 0, 0).sealed(number + 1, false, false, 0);
        memory.slot(u32::from(number))[0].store(header, Ordering::Relaxed);
        let head = rx.head().unwrap();
        assert_eq!(rx.advance(head).is_err(), number == 3);
    }
}

const _: () = assert!(LINE == 64, "the lines that pieces are lent by");

/// An acknowledgement of descriptors that were not sent frees no slot.
#[test]
fn acknowledgements_beyond_what_was_sent_are_passed_over() {
    let mut tx = RingTx::new(HeapRing::new(8), 8);
    let header = Header::new(Kind::Inline, 0, 0);
    (0..3).for_each(|_| tx.push(header, &[]));
    let acknowledges = |count| Header::from_word(header.sealed(1, false, false, count));
    for beyond in [4, 9, 15] {
        tx.acknowledged(acknowledges(beyond));
        assert_eq!(tx.consumed(), 0, "{beyond}");
    }
    tx.acknowledged(acknowledges(3));
    assert_eq!(tx.consumed(), 3);
}
