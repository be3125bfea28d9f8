#![allow(unsafe_code)]
//! Publishers and subscribers in one process.

use std::{
    os::fd::AsFd,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
};

use super::*;
use crate::{Endpoint, Error, Path};

const PATIENCE: Duration = Duration::from_secs(10);

/// A topic that no other test has.
fn topic(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed))
}

/// Waits until something is so.
fn comes(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}: never");
        thread::sleep(Duration::from_millis(1));
    }
}

fn next<T: Payload>(subscriber: &Subscriber<T>) -> (u64, u64, T) {
    let sample = subscriber.recv_timeout(PATIENCE).unwrap();
    (sample.number(), sample.missed(), sample.read().unwrap())
}

#[test]
fn samples_are_where_their_publisher_wrote_them() {
    let topic = topic("where");
    let publisher = Publisher::<[u64]>::open(&topic).unwrap();
    let (one, two) =
        (Subscriber::<[u64]>::open(&topic).unwrap(), Subscriber::<[u64]>::open(&topic).unwrap());
    assert_eq!((publisher.subscribers(), one.publishers()), (2, 1));
    for len in [0, 1, 1000, 1 << 20] {
        let mut loan = publisher.loan_slice(len).unwrap();
        for (at, word) in loan.iter_mut().enumerate() {
            *word = at as u64;
        }
        let published = publisher.publish(loan).unwrap();
        assert_eq!((published.subscribers, published.replaced), (2, 0));
        for subscriber in [&one, &two] {
            let sample = subscriber.recv_timeout(PATIENCE).unwrap();
            assert_eq!(sample.view().receipt().path, Path::Handoff);
            assert_eq!(sample.len(), len);
            // SAFETY: the publisher is of this library.
            let words = unsafe { sample.get() }.unwrap();
            assert!(words.iter().enumerate().all(|(at, word)| *word == at as u64));
            assert_eq!(sample.to_vec().unwrap(), words);
            assert!(matches!(sample.read_at(len), Err(Error::OutOfBounds { .. })));
        }
    }
    assert!(one.try_recv().unwrap().is_none());
}

#[test]
fn a_slow_subscriber_gets_the_newest() {
    let topic = topic("newest");
    let publisher = Publisher::<u64>::builder().in_flight(3).open(&topic).unwrap();
    let subscriber = Subscriber::<u64>::open(&topic).unwrap();
    let mut replaced = 0;
    for number in 0..100 {
        replaced += publisher.send(&number).unwrap().replaced;
    }
    // Three have gone, and one waits.
    assert_eq!(replaced, 96);
    for number in 0..3 {
        assert_eq!(next(&subscriber), (number, 0, number));
    }
    assert_eq!(next(&subscriber), (99, 96, 99));
}

#[test]
fn one_that_wants_every_sample_gets_it_or_is_let_go() {
    let topic = topic("every");
    let publisher = Publisher::<u64>::builder()
        .in_flight(2)
        .patience(Duration::from_millis(300))
        .open(&topic)
        .unwrap();
    let every = Subscriber::<u64>::builder().every_sample().open(&topic).unwrap();
    thread::scope(|threads| {
        threads.spawn(|| {
            for number in 0..1000 {
                assert_eq!(next(&every), (number, 0, number));
            }
        });
        for number in 0..1000 {
            let published = publisher.send(&number).unwrap();
            assert_eq!((published.subscribers, published.let_go), (1, 0));
        }
    });
    let begun = Instant::now();
    let mut let_go = 0;
    for number in 1000..1010 {
        let_go += publisher.send(&number).unwrap().let_go;
    }
    assert_eq!((let_go, publisher.subscribers()), (1, 0));
    assert!(begun.elapsed() < PATIENCE, "it waited once");
    // It keeps the samples that it was given.
    assert_eq!(next(&every).0, 1000);
}

/// The publisher waits for a slow subscriber; the one that comes meanwhile joins all the same, and
/// the slow one is not let go for it.
#[test]
fn others_join_while_the_publisher_waits() {
    let topic = &topic("join");
    let publisher =
        Publisher::<u64>::builder().in_flight(1).patience(PATIENCE).open(topic).unwrap();
    let slow = Subscriber::<u64>::builder().every_sample().open(topic).unwrap();
    for round in 0..5 {
        thread::scope(|threads| {
            let publishing = threads.spawn(|| {
                for number in 0..3 {
                    assert_eq!(publisher.send(&number).unwrap().let_go, 0);
                }
            });
            // One is on its way, and the publisher waits with the next, or will.
            comes("it waits", || publisher.memory().buffers >= 2);
            let other = threads.spawn(|| Subscriber::<u64>::open(topic).unwrap());
            thread::sleep(Duration::from_millis(20));
            for number in 0..3 {
                assert_eq!(next(&slow), (round * 3 + number, 0, number));
            }
            publishing.join().unwrap();
            let other = other.join().unwrap();
            comes("it has joined", || publisher.subscribers() == 2);
            drop(other);
            comes("it has left", || publisher.subscribers() == 1);
        });
    }
}

#[test]
fn late_subscribers_get_what_is_kept() {
    let topic = topic("late");
    let publisher = Publisher::<u64>::builder().history(4).open(&topic).unwrap();
    for number in 0..10 {
        publisher.send(&number).unwrap();
    }
    let late = Subscriber::<u64>::builder().history(3).open(&topic).unwrap();
    let later = Subscriber::<u64>::builder().history(100).every_sample().open(&topic).unwrap();
    let new = Subscriber::<u64>::open(&topic).unwrap();
    thread::scope(|threads| {
        threads.spawn(|| publisher.send(&10).unwrap());
        for number in 7..11 {
            assert_eq!(next(&late), (number, 0, number));
        }
        for number in 6..11 {
            assert_eq!(next(&later), (number, 0, number));
        }
    });
    assert_eq!(next(&new).0, 10);
}

#[test]
fn loans_are_bounded() {
    let topic = topic("loans");
    let publisher = Publisher::<[u8; 100]>::builder().loans(2).open(&topic).unwrap();
    let (one, _two) = (publisher.loan().unwrap(), publisher.loan().unwrap());
    let refused = publisher.loan().unwrap_err().to_string();
    assert!(refused.contains("loans") && refused.contains('2'), "{refused}");
    publisher.publish(one).unwrap();
    drop(publisher.loan().unwrap());
    drop(publisher.loan().unwrap());
}

#[test]
fn memory_comes_back() {
    let topic = topic("back");
    let publisher = Publisher::<[u8]>::open(&topic).unwrap();
    let subscriber = Subscriber::<[u8]>::open(&topic).unwrap();
    for number in 0..2000_u32 {
        let mut loan = publisher.loan_slice(1 << 20).unwrap();
        loan[..4].copy_from_slice(&number.to_le_bytes());
        publisher.publish(loan).unwrap();
        let sample = subscriber.recv_timeout(PATIENCE).unwrap();
        let mut first = [0; 4];
        sample.read_into(0, &mut first).unwrap();
        assert_eq!(u32::from_le_bytes(first), number);
    }
    let committed = publisher.memory().bytes_committed;
    assert!(committed < 16 << 20, "{committed} bytes for samples of 1 MiB, one after the other");
}

#[test]
fn types_must_be_the_same() {
    let topic = topic("types");
    let publisher = Publisher::<u64>::builder().schema("counts 1").open(&topic).unwrap();
    let refused = |error: Error| matches!(error, Error::OtherType { .. });
    assert!(refused(Subscriber::<u64>::open(&topic).unwrap_err()));
    let other = Subscriber::<u32>::builder().schema("counts 1").open(&topic).unwrap_err();
    assert!(other.to_string().contains("8 bytes aligned to 8, schema \"counts 1\""), "{other}");
    assert!(refused(other));
    let good = Subscriber::<u64>::builder().schema("counts 1").open(&topic).unwrap();
    // And the other way round: whoever comes last is told.
    let other = Publisher::<[u64]>::builder().schema("counts 1").open(&topic).unwrap_err();
    assert!(refused(other));
    publisher.send(&1).unwrap();
    assert_eq!(next(&good).2, 1);
    assert!(Publisher::<u64>::builder().schema(&"x".repeat(65)).open(&topic).is_err());
}

#[test]
fn they_come_in_any_order_and_go() {
    let topic = topic("order");
    let subscriber = Subscriber::<u32>::open(&topic).unwrap();
    for round in 0..20 {
        let publishers: Vec<_> = (0..3).map(|_| Publisher::<u32>::open(&topic).unwrap()).collect();
        for publisher in &publishers {
            assert_eq!(publisher.send(&round).unwrap().subscribers, 1);
        }
        for _ in &publishers {
            assert_eq!(next(&subscriber), (0, 0, round));
        }
    }
    let publisher = Publisher::<u32>::open(&topic).unwrap();
    drop(subscriber);
    comes("the subscriber is gone", || publisher.subscribers() == 0);
    assert_eq!(publisher.send(&1).unwrap().subscribers, 0);
}

/// Both call each other at the same time, and must still be connected once.
#[test]
fn whoever_comes_at_the_same_time_joins_once() {
    for _ in 0..30 {
        let topic = &topic("same-time");
        thread::scope(|threads| {
            let subscribers: Vec<_> =
                (0..3).map(|_| threads.spawn(|| Subscriber::<u32>::open(topic).unwrap())).collect();
            let publishers: Vec<_> =
                (0..3).map(|_| threads.spawn(|| Publisher::<u32>::open(topic).unwrap())).collect();
            let subscribers = subscribers.into_iter().map(|one| one.join().unwrap());
            let subscribers: Vec<_> = subscribers.collect();
            for publisher in publishers {
                let publisher = publisher.join().unwrap();
                comes("all have joined", || publisher.subscribers() == 3);
                publisher.send(&7).unwrap();
                for subscriber in &subscribers {
                    assert_eq!(next(subscriber), (0, 0, 7));
                }
            }
            for subscriber in &subscribers {
                assert!(subscriber.try_recv().unwrap().is_none(), "each sample came once");
            }
        });
    }
}

#[test]
fn the_descriptor_tells_of_samples() {
    let topic = topic("descriptor");
    let publisher = Publisher::<u32>::open(&topic).unwrap();
    let subscriber = Subscriber::<u32>::open(&topic).unwrap();
    for number in 0..50 {
        let published = thread::scope(|threads| {
            threads.spawn(|| {
                thread::sleep(Duration::from_millis(number % 3));
                publisher.send(&(number as u32)).unwrap()
            });
            let begun = Instant::now();
            loop {
                if let Some(sample) = subscriber.try_recv().unwrap() {
                    return sample.read().unwrap();
                }
                assert!(begun.elapsed() < PATIENCE, "sample {number} is not told of");
                if subscriber.arm().unwrap() {
                    let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
                    let mut fds = [PollFd::from_borrowed_fd(subscriber.as_fd(), PollFlags::IN)];
                    match rustix::event::poll(&mut fds, Some(&patience)) {
                        Ok(ready) => assert_eq!(ready, 1, "the descriptor stayed still"),
                        Err(error) => assert_eq!(error, Errno::INTR),
                    }
                }
            }
        });
        assert_eq!(published, number as u32);
    }
}

/// A peer that speaks another language, or sends what is no sample, is let go; others are not
/// disturbed.
#[test]
fn strangers_are_shown_out() {
    let topic = topic("strangers");
    let publisher = Publisher::<u64>::open(&topic).unwrap();
    let subscriber = Subscriber::<u64>::open(&topic).unwrap();
    for place in ["p0", "s0"] {
        let stranger = Endpoint::new().unwrap();
        let peer = stranger.connect(&format!("local:topic.{topic}.{place}")).unwrap();
        stranger.call(peer, door::CONTROL, b"hello").unwrap();
        comes("a stranger is shown out", || {
            let _ = stranger.progress();
            stranger.peer(peer).is_none()
        });
    }
    let stranger = Endpoint::new().unwrap();
    let peer = stranger.connect(&format!("local:topic.{topic}.s0")).unwrap();
    stranger.send(peer, door::SAMPLE, &[0; 71]).unwrap();
    publisher.send(&5).unwrap();
    assert_eq!(next(&subscriber), (0, 0, 5));
    comes("what is no sample is no peer's", || {
        assert!(subscriber.try_recv().unwrap().is_none());
        let _ = stranger.progress();
        stranger.peer(peer).is_none()
    });
    assert_eq!(publisher.subscribers(), 1);
}

#[test]
fn dropping_wakes_those_that_wait() {
    let topic = topic("drop");
    let subscriber = Subscriber::<u64>::open(&topic).unwrap();
    let request = subscriber.recv_request();
    drop(subscriber);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(matches!(runtime.block_on(request), Err(Error::Closed)));
}
