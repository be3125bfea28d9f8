//! Messages in two descriptors: a consumer that sees the first sees the second, whole.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::{HeapRing, check, many, thread};
use crate::{
    sync::{AtomicU64, Ordering},
    transport::shm::ring::{RingMemory, RingRx, RingTx},
    wire::{
        descriptor::{Header, INLINE_MAX, INLINE_TWO_MAX, Kind},
        layout::DESCRIPTOR_WORDS,
    },
};

const WORDS: usize = 2 * (DESCRIPTOR_WORDS - 1);

fn put<M: RingMemory>(tx: &mut RingTx<M>, number: u64) {
    let first = Header::new(Kind::InlineFirst, INLINE_MAX as u8, number as u32);
    tx.publish_two([first, Header::new(Kind::InlineRest, 0, 0)], |bodies| {
        for (at, body) in bodies.into_iter().enumerate() {
            let words = body.iter().enumerate();
            words.for_each(|(i, word)| word.store(word_of(number, at * 7 + i), Ordering::Relaxed));
        }
    });
}

fn word_of(number: u64, i: usize) -> u64 {
    number << 8 | i as u64
}

/// Takes the message at the head, which is `number`.
fn take<M: RingMemory>(rx: &mut RingRx<M>, head: Header, number: u64) {
    assert!(head.is_inline_first() && head.aux() == number as u32);
    let rest = rx.behind(head).expect("the first came without the second");
    assert_eq!(head.inline_two_len(rest), Some(INLINE_TWO_MAX));
    (0..WORDS).for_each(|i| assert_eq!(rx.word_of_two(head, i), word_of(number, i)));
    rx.advance(head).unwrap();
    assert_eq!(rx.head(), Some(rest));
    rx.advance(rest).unwrap();
}

#[test]
fn the_second_is_there_with_the_first() {
    let messages = many(2);
    check(Some(3), move || {
        let memory = HeapRing::new(3);
        let theirs = memory.clone();
        let producer = thread::spawn(move || {
            let mut tx = RingTx::new(theirs, 3);
            for number in 0..messages {
                while tx.room_known() < 2 {
                    // A single one in the last slot of a lap.
                    if tx.room().unwrap() == 1 {
                        tx.push(Header::new(Kind::Inline, 0, 0), &[]);
                    }
                    thread::yield_now();
                }
                put(&mut tx, number);
            }
        });
        let mut rx = RingRx::new(memory);
        let mut number = 0;
        while number < messages {
            let Some(head) = rx.head() else {
                thread::yield_now();
                continue;
            };
            if head.is_inline() {
                rx.advance(head).unwrap();
            } else {
                take(&mut rx, head, number);
                number += 1;
            }
            rx.publish();
        }
        producer.join().unwrap();
    });
}

#[derive(Clone, Copy, Debug)]
enum Step {
    One,
    Two,
    Take,
    Publish,
    Hear,
    Grow(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::One),
        4 => Just(Step::Two),
        6 => Just(Step::Take),
        3 => Just(Step::Publish),
        3 => Just(Step::Hear),
        1 => (1..=40u32).prop_map(Step::Grow),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 40 } else { 400 })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(any(miri, loom)) { 4 } else { 300 }))]

    /// Wherever laps end, early or late, messages of one and of two come in order.
    #[cfg(not(loom))]
    #[test]
    fn ones_and_twos_come_in_order(steps in steps(), slots in 1..12u32) {
        let memory = HeapRing::new(40);
        let mut tx = RingTx::new(memory.clone(), slots);
        let mut rx = RingRx::new(memory);
        let (mut sent, mut number) = (VecDeque::new(), 0);
        for step in steps {
            match step {
                Step::One if tx.room().unwrap() > 0 => {
                    tx.push(Header::new(Kind::Inline, 8, number as u32), &[number]);
                    sent.push_back((number, false));
                    number += 1;
                }
                Step::Two if tx.room_known() >= 2 => {
                    put(&mut tx, number);
                    sent.push_back((number, true));
                    number += 1;
                }
                Step::Take => match (rx.head(), sent.pop_front()) {
                    (Some(head), Some((number, true))) => take(&mut rx, head, number),
                    (Some(head), Some((number, false))) => {
                        prop_assert_eq!((head.is_inline(), rx.word(0)), (true, number));
                        rx.advance(head).unwrap();
                    }
                    (None, None) => {}
                    other => prop_assert!(false, "{other:?}"),
                },
                Step::Publish => rx.publish(),
                Step::Hear => {
                    tx.refresh().unwrap();
                    tx.nothing_on_the_way();
                }
                Step::Grow(slots) if slots > tx.capacity_to_come() => tx.grow(slots),
                Step::One | Step::Two | Step::Grow(_) => {}
            }
        }
    }

    /// Two headers at random lead to no slot outside the ring.
    #[cfg(not(loom))]
    #[test]
    fn two_headers_that_lie_lead_nowhere(first: u64, second: u64, fresh in 0..4u8) {
        let memory = HeapRing::new(8);
        let mut rx = RingRx::new(memory.clone());
        let first = if fresh > 0 { first & !0x7fff | 1 } else { first };
        let second = if fresh > 1 { second & !0x7fff | 2 } else { second };
        let store = |index, header| {
            AtomicU64::store(&memory.slot(index)[0], header, Ordering::Relaxed);
        };
        store(0, first);
        (1..8).for_each(|index| store(index, second));
        if let Some(head) = rx.head()
            && let Some(rest) = rx.behind(head)
        {
            let len = head.inline_two_len(rest);
            prop_assert!(len.is_none_or(|len| (INLINE_MAX + 1..=INLINE_TWO_MAX).contains(&len)));
            (0..WORDS).for_each(|i| { let _ = rx.word_of_two(head, i); });
            let _ = rx.advance(head).and_then(|()| rx.advance(rest));
        }
    }
}
