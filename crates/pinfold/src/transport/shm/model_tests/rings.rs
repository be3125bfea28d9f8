//! Rings and the bulk bytes that their descriptors name.

use std::sync::Arc;

use super::{HeapRing, Plain, check, header, many, thread};
#[cfg(loom)]
use crate::{sync::Ordering, transport::shm::ring::RingMemory};
use crate::{
    transport::shm::{
        bulk::Bulk,
        laps::Laps,
        ring::{RingRx, RingTx},
    },
    wire::{
        descriptor::{Kind, Piece},
        layout::LINE,
    },
};

/// Parameters of an [`exchange`] through a ring.
#[derive(Clone, Copy)]
struct Exchange {
    messages: u64,
    /// Number of slots at the beginning, and of all slots.
    slots: (u32, u32),
    /// The ring grows to all slots before this message.
    grow_at: Option<u64>,
    /// The consumer gives back after this many messages, or when it finds nothing.
    publish_after: u64,
    /// Number of lines of bulk bytes, and lines of every other message's piece; the rest have one.
    lines: (usize, usize),
}

/// Returns whether a thread has ended, so that nothing more comes from it. Loom sees for itself
/// when a model waits in vain.
fn is_over(_thread: &thread::JoinHandle<()>) -> bool {
    #[cfg(loom)]
    return false;
    #[cfg(not(loom))]
    {
        let over = _thread.is_finished();
        // `is_finished` alone does not order what the thread did before the reads that follow.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        over
    }
}

/// One side sends messages, each a descriptor and some lines of bulk bytes; the other takes them.
///
/// Every message comes, once, in order, whole: its descriptor is its own, and so are the bytes that
/// its descriptor names, until the consumer has given them back.
fn exchange(plan: Exchange) {
    let memory = HeapRing::new(plan.slots.1);
    let (lines, long) = plan.lines;
    let bytes: Arc<Vec<Plain>> = Arc::new((0..lines).map(|_| Plain::new(u64::MAX)).collect());
    let lines_of = |piece: Piece| {
        let first = piece.offset as usize / LINE;
        first..first + piece.len as usize / LINE
    };
    let len_of =
        move |number: u64| (if number.is_multiple_of(2) { LINE } else { long * LINE }) as u32;

    let (their_memory, their_bytes) = (memory.clone(), Arc::clone(&bytes));
    let producer = thread::spawn(move || {
        let mut tx = RingTx::new(their_memory, plan.slots.0);
        let mut bulk = Bulk::new();
        assert!(bulk.grow((lines * LINE) as u32));
        for number in 0..plan.messages {
            if plan.grow_at == Some(number) {
                tx.grow(plan.slots.1);
            }
            while tx.room().unwrap() == 0 {
                thread::yield_now();
            }
            let lap = Laps::new().bytes(len_of(number));
            let piece = loop {
                bulk.reclaim(tx.consumed());
                if let Some(piece) = bulk.lend(len_of(number), lap, number) {
                    break piece;
                }
                thread::yield_now();
                tx.refresh().unwrap();
            };
            their_bytes[lines_of(piece)].iter().for_each(|line| line.set(number));
            tx.push(header(number), &piece.body());
        }
    });

    let mut rx = RingRx::new(memory);
    for number in 0..plan.messages {
        let head = loop {
            let over = is_over(&producer);
            if let Some(head) = rx.head() {
                break head;
            }
            assert!(!over, "message {number} never came");
            rx.publish();
            thread::yield_now();
        };
        assert_eq!((head.kind(), head.aux()), (Some(Kind::Data), number as u32));
        let piece = Piece::read(&rx.body());
        assert_eq!(piece.len, len_of(number));
        let own = bytes[lines_of(piece)].iter().all(|line| line.get() == number);
        assert!(own, "the bytes of another message");
        rx.advance(head).unwrap();
        if rx.unpublished() >= plan.publish_after {
            rx.publish();
        }
    }
    producer.join().unwrap();
}

#[test]
fn messages_go_through_a_ring_of_two() {
    let (slots, lines) = ((2, 2), (2, 1));
    let plan = Exchange { messages: many(4), slots, grow_at: None, publish_after: 1, lines };
    check(Some(3), move || exchange(plan));
}

#[test]
fn messages_go_through_when_the_consumer_is_slow_to_say() {
    let (slots, lines) = ((2, 2), (2, 1));
    let plan = Exchange { messages: many(4), slots, grow_at: None, publish_after: 2, lines };
    check(Some(3), move || exchange(plan));
}

#[test]
fn long_pieces_and_short_ones_go_round() {
    // A long piece that does not fit before the end leaves the rest of the lap out.
    let (slots, lines) = ((2, 2), (4, 2));
    let plan = Exchange { messages: many(5), slots, grow_at: None, publish_after: 1, lines };
    check(Some(2), move || exchange(plan));
}

#[test]
fn messages_go_through_a_ring_that_grows() {
    for grow_at in 0..=2 {
        let (slots, lines, grow_at) = ((2, 4), (2, 1), Some(grow_at));
        let plan = Exchange { messages: many(5), slots, grow_at, publish_after: 1, lines };
        check(Some(2), move || exchange(plan));
    }
}

/// One side sends a message, the other answers, and so on; only the answers acknowledge messages.
/// Slots and bulk bytes are written again on their word alone.
#[test]
fn answers_acknowledge_messages() {
    check(Some(3), || {
        let there = HeapRing::new(1);
        let back = HeapRing::new(1);
        let bytes = Arc::new(Plain::new(u64::MAX));
        let rounds = many(3);
        let (their_there, their_back) = (there.clone(), back.clone());
        let their_bytes = Arc::clone(&bytes);
        let answerer = thread::spawn(move || {
            let mut rx = RingRx::new(their_there);
            let mut tx = RingTx::new(their_back, 1);
            for number in 0..rounds {
                let head = loop {
                    match rx.head() {
                        Some(head) => break head,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(head.aux(), number as u32);
                assert_eq!(their_bytes.get(), number, "the bytes of another message");
                rx.advance(head).unwrap();
                tx.acknowledged(head);
                tx.acknowledge(rx.consumed());
                assert_eq!(tx.room_known(), 1);
                tx.push(header(number), &[]);
            }
        });
        let mut tx = RingTx::new(there, 1);
        let mut rx = RingRx::new(back);
        for number in 0..rounds {
            assert_eq!(tx.room_known(), 1);
            bytes.set(number);
            tx.push(header(number), &[]);
            let head = loop {
                let over = is_over(&answerer);
                if let Some(head) = rx.head() {
                    break head;
                }
                assert!(!over, "answer {number} never came");
                thread::yield_now();
            };
            assert_eq!(head.aux(), number as u32);
            rx.advance(head).unwrap();
            tx.acknowledged(head);
            tx.acknowledge(rx.consumed());
        }
        answerer.join().unwrap();
    });
}

/// A producer that ignores the consumer's cursor: the effect of a wrong cursor check.
#[cfg(loom)]
#[test]
#[should_panic]
fn mutant_that_overruns() {
    check(Some(3), || {
        let memory = HeapRing::new(2);
        let bytes = Arc::new([Plain::new(0), Plain::new(0)]);
        let (their_memory, their_bytes) = (memory.clone(), Arc::clone(&bytes));
        let producer = thread::spawn(move || {
            let mut tx = RingTx::new(their_memory.clone(), 2);
            for number in 0..3 {
                // The cursor says that the consumer has taken everything.
                their_memory.consumed().store(number, Ordering::Relaxed);
                tx.refresh().unwrap();
                their_bytes[number as usize % 2].set(number);
                tx.push(header(number), &[]);
            }
        });
        let rx = RingRx::new(memory);
        if rx.head().is_some() {
            assert_eq!(bytes[0].get(), 0);
        }
        producer.join().unwrap();
    });
}
