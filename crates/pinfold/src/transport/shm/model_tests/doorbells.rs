//! Bells: sides that fall asleep, and sides that should wake them.

use std::sync::Arc;

use super::{HeapRing, blocking, check, header, many, thread};
use crate::{
    sync::{AtomicU32, LightFence, Ordering, heavy_fence},
    transport::shm::{
        doorbell,
        ring::{RingRx, RingTx},
    },
};

/// Fences that a [`sleepy`] pair issues.
#[derive(Clone, Copy)]
struct Fences {
    light: bool,
    heavy: bool,
}

/// The light fence that goes with [`heavy_fence`] in this process.
pub(super) fn light_fence() -> LightFence {
    #[cfg(not(loom))]
    if pinfold_sys::cpu::barrier::global_available() {
        return LightFence::Compiler;
    }
    LightFence::Full
}

fn must_ring(word: &AtomicU32, fences: Fences) -> bool {
    if fences.light {
        return doorbell::must_ring(word, light_fence());
    }
    word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::Relaxed) != 0
}

/// One side sends a message and rings if asked to; the other asks, looks once more, and sleeps.
///
/// The other must not sleep while a message is there for which no ring comes.
fn sleepy(fences: Fences) {
    sleepy_by(fences, |rx| {
        if fences.heavy {
            heavy_fence();
        }
        rx.head().is_none()
    });
}

/// The waiter looks without a fence, sleeps for a moment, and looks once more before it sleeps for
/// good.
#[cfg(loom)]
fn stepwise(last: Fences) {
    sleepy_by(last, |rx| {
        if rx.head().is_some() {
            return false;
        }
        thread::yield_now();
        if last.heavy {
            heavy_fence();
        }
        rx.head().is_none()
    });
}

/// The same, where the waiter decides in this way whether it sleeps, after it has asked.
fn sleepy_by(fences: Fences, sleeps: impl FnOnce(&RingRx<HeapRing>) -> bool) {
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
    doorbell::ask(&word);
    let sleeps = sleeps(&rx);
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

#[cfg(loom)]
#[test]
fn what_a_first_look_misses_the_last_one_sees() {
    check(None, || stepwise(Fences { light: true, heavy: true }));
}

#[cfg(loom)]
#[test]
#[should_panic(expected = "slept through a message")]
fn mutant_without_a_fence_before_the_last_look() {
    check(None, || stepwise(Fences { light: true, heavy: false }));
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
            doorbell::must_ring(&their_word, light_fence())
        });
        assert_eq!(tx.consumed(), 0);
        doorbell::ask(&word);
        heavy_fence();
        let sleeps = tx.room().unwrap() == 0;
        let rang = consumer.join().unwrap();
        assert!(rang || !sleeps, "slept beside a free slot");
    });
}

/// The socket that carries the rings: a ring that came before the wait ends it at once.
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
            #[cfg(loom)]
            {
                rung = self.changed.wait(rung).unwrap();
            }
            // Loom sees a deadlock; here a time limit has to tell.
            #[cfg(not(loom))]
            {
                let (now, late) =
                    self.changed.wait_timeout(rung, std::time::Duration::from_secs(60)).unwrap();
                assert!(!late.timed_out(), "nobody rang");
                rung = now;
            }
        }
    }
}

/// Asks for a ring again, after [`doorbell::ask`] and [`doorbell::unask`].
///
/// Loom does not know that all sides see the stores to one word in the same order, unless each
/// read the one before. It would have a ringer that took an old request back not see the new one.
fn ask_again(word: &AtomicU32, asks: bool) {
    #[cfg(loom)]
    word.swap(u32::from(asks), Ordering::Relaxed);
    #[cfg(not(loom))]
    if asks { doorbell::ask(word) } else { doorbell::unask(word) }
}

/// Takes messages as a consumer that sleeps whenever it finds nothing. One of its sleeps, the
/// `early`-th, ends before any ring. A lost ring would leave it asleep for good, which loom reports
/// as a deadlock.
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
            if doorbell::must_ring(&word, light_fence()) {
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
