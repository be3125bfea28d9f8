//! What two processes do to one ring, bell or claim word at the same time.
//!
//! Every model here runs in two ways. Under `--cfg loom` loom takes it through all orders of its
//! steps, with all values that the memory model lets a load return. Otherwise it runs on two real
//! threads, with more messages and the real barriers.
//!
//! The mutants are models with one fence or one check left out. Loom has to find each of them, or
//! else the models prove nothing.
//!
//! [`random`] has the sequential half: random steps against a plain oracle, and sides that lie.

#[cfg(not(loom))]
mod random;

use std::sync::{Arc, Mutex, PoisonError};

#[cfg(loom)]
use loom::{sync as blocking, thread};
#[cfg(not(loom))]
use std::{sync as blocking, thread};

use self::plain::Plain;
use super::{
    bell,
    bulk::Bulk,
    claim::{self, End},
    ring::{RingMemory, RingRx, RingTx, Slot},
};
use crate::{
    sync::{AtomicU32, AtomicU64, LightFence, Ordering, heavy_fence},
    wire::{
        descriptor::{Header, Kind, Piece},
        layout::LINE,
    },
};

/// A ring in memory of this process.
struct Heap {
    slots: Vec<Slot>,
    consumed: AtomicU64,
}

/// One side's way to it.
#[derive(Clone)]
struct HeapRing(Arc<Heap>);

impl HeapRing {
    fn new(slots: u32) -> HeapRing {
        let slot = |_| std::array::from_fn(|_| AtomicU64::new(0));
        let slots = (0..slots).map(slot).collect();
        HeapRing(Arc::new(Heap { slots, consumed: AtomicU64::new(0) }))
    }
}

impl RingMemory for HeapRing {
    fn slots(&self) -> u32 {
        self.0.slots.len() as u32
    }

    fn slot(&self, index: u32) -> &Slot {
        &self.0.slots[index as usize]
    }

    fn consumed(&self) -> &AtomicU64 {
        &self.0.consumed
    }
}

/// Ordinary memory: what bulk bytes are. Loom complains of every race on it.
mod plain {
    #![allow(unsafe_code)]
    // Invariant: none of its own. That two threads never reach a cell at the same time is what
    // the models are here to find out; loom and Miri check it at every access.

    #[cfg(loom)]
    use loom::cell::UnsafeCell;
    #[cfg(not(loom))]
    use std::cell::UnsafeCell;

    pub(super) struct Plain(UnsafeCell<u64>);

    // SAFETY: see the invariant above.
    unsafe impl Sync for Plain {}

    impl Plain {
        pub(super) fn new(value: u64) -> Plain {
            Plain(UnsafeCell::new(value))
        }

        pub(super) fn set(&self, value: u64) {
            #[cfg(loom)]
            // SAFETY: loom has checked that nobody else reaches the cell now.
            self.0.with_mut(|cell| unsafe { *cell = value });
            #[cfg(not(loom))]
            // SAFETY: the ring hands the cell to one side at a time, as loom has checked.
            unsafe {
                *self.0.get() = value
            };
        }

        pub(super) fn get(&self) -> u64 {
            #[cfg(loom)]
            // SAFETY: loom has checked that nobody writes the cell now.
            return self.0.with(|cell| unsafe { *cell });
            #[cfg(not(loom))]
            // SAFETY: as in `set`.
            return unsafe { *self.0.get() };
        }
    }
}

/// Runs a model in all orders with at most `preemptions` switches that nothing forced.
#[cfg(loom)]
fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
    builder.check(model);
}

/// Runs a model many times as it comes.
#[cfg(not(loom))]
fn check(_preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let rounds = if cfg!(miri) { 10 } else { 200 };
    (0..rounds).for_each(|_| model());
}

/// What goes through a ring in [`exchange`].
#[derive(Clone, Copy)]
struct Exchange {
    messages: u64,
    /// Slots the ring begins with, and all there are.
    slots: (u32, u32),
    /// The ring grows to all slots before this message.
    grow_at: Option<u64>,
    /// The consumer gives back after so many messages, or when it finds nothing.
    publish_after: u64,
}

fn header(number: u64) -> Header {
    Header::new(Kind::Data, 0, number as u32)
}

/// One side sends messages, each a descriptor and a line of bulk bytes; the other takes them.
///
/// Every message comes, once, in order, whole: its descriptor is its own, and the bytes its
/// descriptor names are its own, too, until the consumer has given them back.
fn exchange(plan: Exchange) {
    let memory = HeapRing::new(plan.slots.1);
    let lines = 2;
    let bytes: Arc<Vec<Plain>> = Arc::new((0..lines).map(|_| Plain::new(u64::MAX)).collect());
    let line_of = |piece: Piece| piece.offset as usize / LINE;

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
            let piece = loop {
                bulk.reclaim(tx.consumed());
                if let Some(piece) = bulk.lend(LINE as u32, number) {
                    break piece;
                }
                thread::yield_now();
                tx.refresh().unwrap();
            };
            their_bytes[line_of(piece)].set(number);
            tx.push(header(number), &piece.body());
        }
    });

    let mut rx = RingRx::new(memory);
    for number in 0..plan.messages {
        let head = loop {
            if let Some(head) = rx.head() {
                break head;
            }
            rx.publish();
            thread::yield_now();
        };
        assert_eq!((head.kind(), head.aux()), (Some(Kind::Data), number as u32));
        let piece = Piece::read(&rx.body());
        assert_eq!(piece.len as usize, LINE);
        assert_eq!(bytes[line_of(piece)].get(), number, "the bytes of another message");
        rx.advance(head).unwrap();
        if rx.unpublished() >= plan.publish_after {
            rx.publish();
        }
    }
    producer.join().unwrap();
}

/// More messages where they are cheap.
const fn many(few: u64) -> u64 {
    if cfg!(loom) {
        few
    } else if cfg!(miri) {
        few * 10
    } else {
        few * 100
    }
}

#[test]
fn messages_go_through_a_ring_of_two() {
    let plan = Exchange { messages: many(4), slots: (2, 2), grow_at: None, publish_after: 1 };
    check(Some(3), move || exchange(plan));
}

#[test]
fn messages_go_through_when_the_consumer_is_slow_to_say() {
    let plan = Exchange { messages: many(4), slots: (2, 2), grow_at: None, publish_after: 2 };
    check(Some(3), move || exchange(plan));
}

#[test]
fn messages_go_through_a_ring_that_grows() {
    for grow_at in 0..=2 {
        let plan =
            Exchange { messages: many(5), slots: (2, 4), grow_at: Some(grow_at), publish_after: 1 };
        check(Some(2), move || exchange(plan));
    }
}

/// A producer that pays no heed to the consumer: what a wrong cursor check would amount to.
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
                // As if the consumer had always just taken everything.
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

/// Which fences a [`sleepy`] pair issues.
#[derive(Clone, Copy)]
struct Fences {
    light: bool,
    heavy: bool,
}

/// The light fence that goes with [`heavy_fence`] in this process.
fn light_fence() -> LightFence {
    #[cfg(not(loom))]
    if pinfold_sys::barrier::global_available() {
        return LightFence::Compiler;
    }
    LightFence::Full
}

fn must_ring(word: &AtomicU32, fences: Fences) -> bool {
    if fences.light {
        return bell::must_ring(word, light_fence());
    }
    word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::Relaxed) != 0
}

/// One side sends a message and rings if asked to; the other asks, looks once more, and sleeps.
///
/// It must not sleep while a message is there that nobody rang for.
fn sleepy(fences: Fences) {
    let memory = HeapRing::new(2);
    let word = Arc::new(AtomicU32::new(0));
    let (their_memory, their_word) = (memory.clone(), Arc::clone(&word));
    let producer = thread::spawn(move || {
        let mut tx = RingTx::new(their_memory, 2);
        tx.push(header(0), &[]);
        let first = must_ring(&their_word, fences);
        tx.push(header(1), &[]);
        let second = must_ring(&their_word, fences);
        assert!(!(first && second), "rung twice for one request");
        first || second
    });
    let rx = RingRx::new(memory);
    bell::ask(&word);
    if fences.heavy {
        heavy_fence();
    }
    let sleeps = rx.head().is_none();
    let rang = producer.join().unwrap();
    assert!(rang || !sleeps, "slept through a message");
}

#[test]
#[cfg_attr(miri, ignore = "calls membarrier")]
fn nobody_sleeps_through_a_message() {
    check(None, || sleepy(Fences { light: true, heavy: true }));
}

#[cfg(loom)]
#[test]
#[should_panic(expected = "slept through a message")]
fn mutant_without_the_light_fence() {
    check(None, || sleepy(Fences { light: false, heavy: true }));
}

#[cfg(loom)]
#[test]
#[should_panic(expected = "slept through a message")]
fn mutant_without_the_heavy_fence() {
    check(None, || sleepy(Fences { light: true, heavy: false }));
}

/// The same the other way: a producer without room asks, and the consumer rings for room.
#[test]
#[cfg_attr(miri, ignore = "calls membarrier")]
fn nobody_sleeps_while_there_is_room() {
    check(None, || {
        let memory = HeapRing::new(1);
        let word = Arc::new(AtomicU32::new(0));
        let mut tx = RingTx::new(memory.clone(), 1);
        tx.push(header(0), &[]);
        let their_word = Arc::clone(&word);
        let consumer = thread::spawn(move || {
            let mut rx = RingRx::new(memory);
            let head = rx.head().unwrap();
            rx.advance(head).unwrap();
            rx.publish();
            bell::must_ring(&their_word, light_fence())
        });
        assert_eq!(tx.consumed(), 0);
        bell::ask(&word);
        heavy_fence();
        let sleeps = tx.room().unwrap() == 0;
        let rang = consumer.join().unwrap();
        assert!(rang || !sleeps, "slept beside a free slot");
    });
}

/// The socket that carries the rings: one that came before the wait ends it at once.
struct Doorbell {
    rung: blocking::Mutex<bool>,
    changed: blocking::Condvar,
}

impl Doorbell {
    fn new() -> Doorbell {
        Doorbell { rung: blocking::Mutex::new(false), changed: blocking::Condvar::new() }
    }

    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !std::mem::take(&mut *rung) {
            rung = self.changed.wait(rung).unwrap();
        }
    }
}

/// Asks for a ring again, after [`bell::ask`] and [`bell::unask`].
///
/// Loom does not know that all sides see the stores to one word in the same order, unless each
/// read the one before. It would have a ringer that took an old request back not see the new one.
fn ask_again(word: &AtomicU32, asks: bool) {
    #[cfg(loom)]
    word.swap(u32::from(asks), Ordering::Relaxed);
    #[cfg(not(loom))]
    if asks { bell::ask(word) } else { bell::unask(word) }
}

/// Messages taken by a consumer that sleeps whenever it finds nothing. One of its sleeps, the
/// `early`-th, ends before anybody rings. A lost ring would leave it asleep for good, which loom
/// reports as a deadlock.
fn take_asleep(messages: u64, early: u64) {
    let memory = HeapRing::new(2);
    let word = Arc::new(AtomicU32::new(0));
    let doorbell = Arc::new(Doorbell::new());
    let theirs = (memory.clone(), Arc::clone(&word), Arc::clone(&doorbell));
    let producer = thread::spawn(move || {
        let (memory, word, doorbell) = theirs;
        let mut tx = RingTx::new(memory, 2);
        for number in 0..messages {
            while tx.room().unwrap() == 0 {
                thread::yield_now();
            }
            tx.push(header(number), &[]);
            if bell::must_ring(&word, light_fence()) {
                doorbell.ring();
            }
        }
    });
    let mut rx = RingRx::new(memory);
    let (mut next, mut sleeps) = (0, 0);
    while next < messages {
        if let Some(head) = rx.head() {
            assert_eq!(head.aux(), next as u32);
            rx.advance(head).unwrap();
            rx.publish();
            next += 1;
            continue;
        }
        ask_again(&word, true);
        heavy_fence();
        if rx.head().is_none() {
            if sleeps != early {
                doorbell.wait();
            }
            sleeps += 1;
        }
        ask_again(&word, false);
    }
    producer.join().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "calls membarrier")]
fn a_sleeper_gets_every_message() {
    for early in 0..3 {
        check(Some(3), move || take_asleep(many(2), early));
    }
}

/// Claims chunks from one end until there are none, or `most` of them.
fn claim_all(word: &AtomicU64, chunks: u64, end: End, most: usize, taken: &Mutex<Vec<u64>>) -> u64 {
    let mut count = 0;
    while (count as usize) < most
        && let Some(k) = claim::take(word, 1, chunks, end)
    {
        let chunk = if end == End::Front { k } else { chunks - 1 - k };
        taken.lock().unwrap_or_else(PoisonError::into_inner).push(chunk);
        count += 1;
    }
    count
}

/// Both sides claim; the receiver stops after `most` chunks and closes.
fn share(chunks: u64, most: usize) {
    let word = Arc::new(AtomicU64::new(0));
    let taken = Arc::new(Mutex::new(Vec::new()));
    claim::open(&word, 1);
    let (their_word, their_taken) = (Arc::clone(&word), Arc::clone(&taken));
    let sender =
        thread::spawn(move || claim_all(&their_word, chunks, End::Back, usize::MAX, &their_taken));
    let mine = claim_all(&word, chunks, End::Front, most, &taken);
    let theirs = claim::close(&word, 1);
    let sent = sender.join().unwrap();
    assert_eq!(theirs, sent, "the sender claimed after the close, or the close missed a claim");
    let mut taken = std::mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner));
    taken.sort_unstable();
    let (front, back) = (0..mine, chunks - theirs..chunks);
    assert_eq!(taken, front.chain(back).collect::<Vec<_>>(), "a chunk twice, or a wrong one");
    if most == usize::MAX {
        assert_eq!(mine + theirs, chunks, "a chunk that nobody copies");
    }
}

#[test]
fn every_chunk_is_claimed_once() {
    check(None, || share(many(3), usize::MAX));
}

#[test]
fn nothing_is_claimed_after_the_close() {
    check(None, || share(many(3), 1));
}

/// The receiver is done and uses the line again while the sender still claims for the old
/// transfer: the new one is not touched.
#[test]
fn a_late_claim_does_not_disturb_the_next_transfer() {
    check(None, || {
        let word = Arc::new(AtomicU64::new(0));
        claim::open(&word, 1);
        let their_word = Arc::clone(&word);
        let sender = thread::spawn(move || {
            let first = claim::take(&their_word, 1, 2, End::Back);
            let second = claim::take(&their_word, 1, 2, End::Back);
            u64::from(first.is_some()) + u64::from(second.is_some())
        });
        let theirs = claim::close(&word, 1);
        claim::open(&word, 2);
        let mine: Vec<_> = std::iter::from_fn(|| claim::take(&word, 2, 2, End::Front)).collect();
        assert_eq!(sender.join().unwrap(), theirs);
        assert_eq!(mine, [0, 1]);
        assert_eq!(claim::close(&word, 2), 0);
    });
}
