//! Connections that are reset at every place of their traffic.

use std::{thread, time::Duration};

use pinfold::{Builder, Endpoint, Progress, SendMode, TagMatch};
use pinfold_tests::{
    network::{Relay, Way},
    stamp,
};

use super::{LENGTHS, PATIENCE, Pair, builder, exchange, until};

/// Bytes of a greeting, from the connecting side and from the listening side.
pub const GREETING: [u64; 2] = [48 + 264 + 44, 48 + 276];

/// Talks over a connection that is reset once, after so many bytes of frames that go one way.
fn reset_once(progress: Progress, way: Way, at: u64, lengths: &[usize]) {
    let pair = Pair::by(builder(progress), builder(progress), |relay| {
        relay.reset_after(way, GREETING[way as usize] + at);
    });
    thread::scope(|scope| {
        let relay = &pair.relay;
        scope.spawn(move || {
            until(|| relay.resets() > 0);
            relay.reset_never();
        });
        pair.talk(lengths);
    });
    for (endpoint, peer) in [(&pair.one, pair.to_two), (&pair.two, pair.to_one)] {
        assert!(endpoint.peer(peer).unwrap().reconnections > 0);
        assert_eq!(endpoint.counters().peers_gone, 0);
    }
}

fn reset_everywhere(len: usize) {
    // The frame as it goes over the connection: its head, and the part that a message of that
    // length has there.
    let head = if len <= 56 { 32 } else { 56 };
    let frame = head + len as u64;
    for way in [Way::There, Way::Back] {
        for progress in [Progress::Inline, Progress::Dedicated] {
            let edges = [0, 1, head - 1, head, head + 1, frame / 2, frame - 1];
            for (number, at) in edges.into_iter().enumerate() {
                let before = number as u64 % 3 * frame;
                // With less than a byte from there, the caller does not know whether it was heard
                // out.
                let at = (before + at).max(u64::from(way == Way::Back));
                reset_once(progress, way, at, &[len; 4]);
            }
        }
    }
}

#[test]
fn resets_around_8_bytes() {
    reset_everywhere(8);
}

#[test]
fn resets_around_4_kib() {
    reset_everywhere(4 << 10);
}

#[test]
fn resets_around_64_kib() {
    reset_everywhere(64 << 10);
}

#[test]
fn resets_around_1_mib() {
    reset_everywhere(1 << 20);
}

/// No connection lasts for a whole message: the part that has come of one is not sent again.
#[test]
fn messages_longer_than_any_connection_lasts() {
    let pair = Pair::by(builder(Progress::Inline), builder(Progress::Dedicated), |relay| {
        relay.reset_after(Way::There, GREETING[0] + 300_000);
        relay.reset_after(Way::Back, GREETING[1] + 400_000);
    });
    pair.talk(&[8, 1 << 20, 3 << 20, 200, 100_000]);
    assert!(pair.relay.resets() > 9, "{}", pair.relay.resets());
    let times = pair.two.peer(pair.to_one).unwrap().reconnections;
    assert!(times > 9, "{times}");
    // Hardly more than each byte once has gone by, beside the bytes that were on their way and
    // lost.
    assert!(pair.relay.passed(Way::There) < 12 << 20, "{}", pair.relay.passed(Way::There));
}

/// Resets at random moments, at mixtures of lengths.
#[test]
fn resets_at_any_time() {
    let pair = Pair::new(builder(Progress::Dedicated), builder(Progress::Inline));
    reset_at_random(&pair, 6);
}

/// The same while the kernel is asked to send long messages out of the memory they lie in: nothing
/// of a connection that broke holds up the traffic over the next.
#[test]
fn resets_while_memory_is_in_flight() {
    for mode in [SendMode::PerSend, SendMode::Cached] {
        let sending = |progress| builder(progress).send_mode(mode).io_uring(true);
        let pair = Pair::new(sending(Progress::Dedicated), sending(Progress::Inline));
        reset_at_random(&pair, 4);
        pair.talk(&LENGTHS);
        for (endpoint, peer) in [(&pair.one, pair.to_two), (&pair.two, pair.to_one)] {
            assert!(endpoint.peer(peer).unwrap().reconnections > 0, "{mode:?}");
            assert_eq!(endpoint.counters().peers_gone, 0);
        }
    }
}

pub(crate) fn reset_at_random(pair: &Pair, rounds: u64) {
    for round in 0..rounds {
        let mut random = stamp::Random::new(round);
        thread::scope(|scope| {
            let relay = &pair.relay;
            scope.spawn(move || {
                for _ in 0..5 {
                    let way = random.pick(&[Way::There, Way::Back]);
                    relay.reset_after(way, 1 + random.below(2_000_000));
                    thread::sleep(Duration::from_millis(random.below(15)));
                }
                relay.reset_never();
            });
            pair.talk(&LENGTHS);
        });
    }
}

/// Sends that are handed in together, whose memory is their owner's again only when they have come.
#[test]
fn memory_is_given_back_once_it_is_not_needed() {
    let pair = Pair::new(builder(Progress::Dedicated), builder(Progress::Inline));
    pair.relay.reset_after(Way::Back, GREETING[1] + 700_000);
    let len = |number: u64| 16_384 + 30_000 * number as usize;
    let sends: Vec<_> = (0..30)
        .map(|number| pair.one.send_owned(pair.to_two, number, stamp::bytes(len(number), number)))
        .collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            for send in sends {
                let (done, mut buffer) = send.wait();
                done.unwrap();
                buffer.fill(0xee);
            }
        });
        for number in 0..30 {
            let message = pair.two.recv_timeout(pair.to_one, TagMatch::any(), PATIENCE).unwrap();
            assert_eq!((message.tag(), message.len()), (number, len(number)));
            stamp::check(&message, number);
        }
    });
    assert!(pair.relay.resets() > 2);
}

/// A reader that takes its time, over connections that do not last.
#[test]
fn a_slow_reader_gets_all_of_it() {
    let small = || builder(Progress::Inline).unexpected_bytes_max(256 << 10);
    let pair = Pair::new(small(), small());
    pair.relay.reset_after(Way::There, GREETING[0] + 150_000);
    const MESSAGES: u64 = 400;
    let len = |number: u64| (number * 97 % 7000) as usize;
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..MESSAGES {
                let sent = stamp::bytes(len(number), number);
                pair.two.send(pair.to_one, number, &sent).unwrap();
            }
            // It has to be there for the parts that are to be sent again.
            let done = pair.two.recv_timeout(pair.to_one, 1, PATIENCE).unwrap();
            assert_eq!(&*done, b"got it");
        });
        for number in 0..MESSAGES {
            if number % 40 == 0 {
                thread::sleep(Duration::from_millis(15));
            }
            let message = pair.one.recv_timeout(pair.to_two, TagMatch::any(), PATIENCE).unwrap();
            assert_eq!((message.tag(), message.len()), (number, len(number)));
            stamp::check(&message, number);
        }
        pair.one.send(pair.to_two, 1, b"got it").unwrap();
    });
    assert!(pair.relay.resets() > 5, "{}", pair.relay.resets());
}

/// Both sides sleep, and the connection breaks.
#[test]
fn who_sleeps_comes_back_too() {
    let pair = Pair::new(builder(Progress::Inline), builder(Progress::Inline));
    thread::scope(|scope| {
        scope.spawn(|| {
            for tag in 0..3 {
                let got = pair.one.recv_timeout(pair.to_two, tag, PATIENCE).unwrap();
                pair.one.send(pair.to_two, tag, &got).unwrap();
            }
        });
        scope.spawn(|| {
            for tag in 0..3 {
                let got = pair.two.recv_timeout(pair.to_one, tag, PATIENCE).unwrap();
                stamp::check(&got, tag);
            }
        });
        for tag in 0..3 {
            let times = || pair.two.peer(pair.to_one).unwrap().reconnections;
            thread::sleep(Duration::from_millis(30));
            let before = times();
            pair.reset();
            until(|| times() > before);
            pair.two.send(pair.to_one, tag, &stamp::bytes(30_000, tag)).unwrap();
        }
    });
    assert!(pair.one.counters().sleeps > 0 && pair.two.counters().sleeps > 0);
}

/// The connecting side is told, now or later; or nothing was lost.
#[test]
fn breaks_within_the_greeting_are_errors_or_nothing() {
    for (way, bytes) in [(Way::There, GREETING[0]), (Way::Back, GREETING[1])] {
        let places = (1..bytes).step_by(23).chain([bytes - 45, bytes - 1, bytes]);
        errors_or_nothing(|| builder(Progress::Dedicated), way, places);
    }
}

/// Breaks connections to new endpoints that way at each of these places of their traffic.
pub(crate) fn errors_or_nothing(
    builder: impl Fn() -> Builder,
    way: Way,
    places: impl Iterator<Item = u64>,
) {
    for at in places {
        let one = builder().listen("tcp:127.0.0.1:0").build().unwrap();
        let two = builder().build().unwrap();
        let to = one.listens_at().unwrap();
        let relay = Relay::to(&to);
        relay.reset_after(way, at);
        let Ok(peer) = two.connect(&relay.called_at()) else { continue };
        until(|| relay.resets() > 0);
        relay.reset_never();
        let talk = |one: &Endpoint, two: &Endpoint| {
            two.send(peer, 1, b"whether").ok()?;
            let error = two.recv_timeout(peer, 2, Duration::from_millis(1)).err()?;
            if error.is_peer_gone() {
                return None;
            }
            let Ok(to_two) = one.accept_timeout(Duration::from_millis(500)) else {
                let error = two.recv_timeout(peer, 2, PATIENCE).unwrap_err();
                assert!(error.is_peer_gone(), "{way:?} {at}: {error}");
                return None;
            };
            Some(to_two)
        };
        if let Some(to_two) = talk(&one, &two) {
            assert_eq!(&*one.recv_timeout(to_two, 1, PATIENCE).unwrap(), b"whether");
            thread::scope(|scope| {
                scope.spawn(|| exchange(&one, to_two, [1, 2], &[8, 20_000]));
                exchange(&two, peer, [2, 1], &[8, 20_000]);
            });
        }
    }
}
