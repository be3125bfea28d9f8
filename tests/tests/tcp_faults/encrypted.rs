//! Encrypted connections, with a relay on the way that listens, changes bytes, and breaks them.

use std::{thread, time::Duration};

use pinfold::{Builder, Gone, Progress, SendMode};
use pinfold_tests::{network::Way, stamp};

use super::{
    LENGTHS, PATIENCE, Pair, builder,
    resets::{GREETING, errors_or_nothing, reset_at_random},
    until,
};

fn encrypting(progress: Progress) -> Builder {
    builder(progress).encrypt(true)
}

fn is_in(text: &[u8], bytes: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

/// Messages are on the wire as they are, but for a connection that is encrypted.
#[test]
fn what_is_said_is_not_to_be_read_on_the_way() {
    let mark = b"the quick brown fox jumps over the lazy dog 0123456789";
    for encrypted in [false, true] {
        let of = |progress| builder(progress).encrypt(encrypted);
        let pair = Pair::new(of(Progress::Inline), of(Progress::Dedicated));
        pair.relay.record();
        for len in [54, 2000, 40_000, 300_000] {
            let message = mark.repeat(len / mark.len() + 1);
            let send = pair.two.send_owned(pair.to_one, 1, message[..len].to_vec());
            let got = pair.one.recv_timeout(pair.to_two, 1, PATIENCE).unwrap();
            assert_eq!(&*got, &message[..len]);
            let back = pair.two.recv_owned(pair.to_one, 2, vec![0; len]);
            pair.one.send(pair.to_two, 2, &got).unwrap();
            send.wait().0.unwrap();
            back.wait().0.unwrap();
        }
        for way in [Way::There, Way::Back] {
            let recorded = pair.relay.recorded(way);
            assert!(recorded.len() > 340_000, "{}", recorded.len());
            assert_eq!(is_in(mark, &recorded), !encrypted, "{way:?}");
        }
    }
}

/// Changed bytes break the connection, and none of the messages that they stood for is taken; all
/// of them come by the next.
#[test]
fn what_was_changed_on_the_way_is_sent_again() {
    for (number, way) in [Way::There, Way::Back].into_iter().cycle().take(12).enumerate() {
        let pair = Pair::new(encrypting(Progress::Dedicated), encrypting(Progress::Inline));
        let at = [0, 3, 40, 5000, 70_000, 900_000][number / 2];
        // The end of the greeting may go by in between: then it is too late for that place.
        for _ in 0..5 {
            pair.relay.alter(way, pair.relay.passed(way) + at);
            pair.talk(&LENGTHS);
            if !pair.relay.is_to_alter() {
                break;
            }
        }
        assert!(!pair.relay.is_to_alter());
        for (endpoint, peer) in [(&pair.one, pair.to_two), (&pair.two, pair.to_one)] {
            let info = endpoint.peer(peer).unwrap();
            assert!(info.reconnections > 0 && info.encryption.is_some(), "{way:?} {at}");
            assert_eq!(endpoint.counters().peers_gone, 0);
        }
    }
}

/// The same without another connection: it is an error, which says why.
#[test]
fn what_was_changed_on_the_way_is_an_error() {
    let of = |progress| encrypting(progress).reconnect_timeout(Duration::ZERO);
    let pair = Pair::new(of(Progress::Inline), of(Progress::Dedicated));
    pair.relay.alter(Way::There, pair.relay.passed(Way::There) + 50_000);
    let sends: Vec<_> = (0..40)
        .map(|tag| pair.two.send_owned(pair.to_one, tag, stamp::bytes(20_000, tag)))
        .collect();
    let mut came = 0;
    let error = loop {
        match pair.one.recv_timeout(pair.to_two, came, PATIENCE) {
            Ok(message) => stamp::check(&message, came),
            Err(error) => break error,
        }
        came += 1;
    };
    assert!(came <= 2, "{came} messages of 20,000 bytes before byte 50,000");
    // EBADMSG
    let lost = matches!(error, pinfold::Error::PeerGone { how: Gone::Lost(74), .. });
    assert!(lost, "{error}");
    drop(sends);
}

/// Resets at some places behind the greeting, and of a message.
#[test]
fn resets_come_to_nothing() {
    for (way, progress) in [(Way::There, Progress::Inline), (Way::Back, Progress::Dedicated)] {
        for len in [8, 4 << 10, 64 << 10, 1 << 20] {
            for at in [1, 22, 60, len / 2, len, len + 100, 2 * len + 20] {
                let pair = Pair::new(encrypting(progress), encrypting(progress));
                let relay = &pair.relay;
                relay.reset_after(way, relay.passed(way) + at);
                thread::scope(|scope| {
                    scope.spawn(move || {
                        until(|| relay.resets() > 0);
                        relay.reset_never();
                    });
                    pair.talk(&[len as usize; 4]);
                });
                // The relay may have held more bytes than that when it heard of the order.
                pair.talk(&[len as usize]);
                for (endpoint, peer) in [(&pair.one, pair.to_two), (&pair.two, pair.to_one)] {
                    let info = endpoint.peer(peer).unwrap();
                    assert!(info.reconnections > 0 && info.encryption.is_some(), "{way:?} {at}");
                    assert_eq!(endpoint.counters().peers_gone, 0);
                }
            }
        }
    }
}

#[test]
fn resets_at_any_time() {
    for mode in [SendMode::Plain, SendMode::Cached] {
        let of = |progress| encrypting(progress).send_mode(mode).io_uring(true);
        let pair = Pair::new(of(Progress::Dedicated), of(Progress::Inline));
        reset_at_random(&pair, 4);
    }
}

/// No connection lasts for a whole message, nor much longer than its handshake.
#[test]
fn messages_longer_than_any_connection_lasts() {
    let pair = Pair::by(encrypting(Progress::Inline), encrypting(Progress::Dedicated), |relay| {
        relay.reset_after(Way::There, GREETING[0] + 300_000);
        relay.reset_after(Way::Back, GREETING[1] + 400_000);
    });
    pair.talk(&[8, 1 << 20, 3 << 20, 200, 100_000]);
    assert!(pair.relay.resets() > 9, "{}", pair.relay.resets());
}

/// Wherever the first handshake breaks, the caller is told; or nothing was lost.
#[test]
fn breaks_within_the_handshake_are_errors_or_nothing() {
    for (way, bytes) in [(Way::There, GREETING[0]), (Way::Back, GREETING[1])] {
        let pair = Pair::new(encrypting(Progress::Dedicated), encrypting(Progress::Dedicated));
        // The relay counts a little later than it passes on.
        thread::sleep(Duration::from_millis(30));
        let all = pair.relay.passed(way);
        assert!(all > bytes + 200, "{all}");
        let places = (bytes..all).step_by(37).chain([all - 1]);
        errors_or_nothing(|| encrypting(Progress::Dedicated), way, places);
    }
}
