//! Peers on other hosts, over connections that are encrypted.

use std::{thread, time::Duration};

use pinfold::{Builder, Error, Path, Progress, Refusal, SendMode, Ungreeted};
use pinfold_tests::stamp;

use super::{builder, keys::called, pair};

const KEY: [u8; 32] = [9; 32];
const LENGTHS: [usize; 18] = [
    0,
    1,
    8,
    48,
    49,
    56,
    57,
    4096,
    4097,
    16_383,
    16_384,
    16_385,
    32_768,
    65_535,
    65_536,
    65_537,
    300_000,
    5 << 20,
];

fn encrypting(progress: Progress) -> Builder {
    builder(progress).key(&KEY).encrypt(true)
}

#[test]
fn messages_of_all_lengths_come_and_go() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let ((one, to_two), (two, to_one)) = pair(encrypting(progress), encrypting(progress));
        for (endpoint, peer) in [(&one, to_two), (&two, to_one)] {
            let suite = endpoint.peer(peer).unwrap().encryption.unwrap();
            assert!(suite.starts_with("TLS13_"), "{suite}");
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                for (tag, &len) in LENGTHS.iter().enumerate() {
                    let mut message = vec![0; len];
                    let got = two.recv_into(to_one, tag as u64, &mut message).unwrap();
                    assert_eq!(message, stamp::bytes(len, 1), "{len}");
                    assert_eq!(got.receipt.copied_kernel, 0, "{}", got.receipt);
                    assert!(got.receipt.copied_user >= len as u64, "{}", got.receipt);
                    two.send(to_one, u64::MAX - tag as u64, &stamp::bytes(len, 2)).unwrap();
                }
            });
            for (tag, &len) in LENGTHS.iter().enumerate() {
                let receipt = one.send(to_two, tag as u64, &stamp::bytes(len, 1)).unwrap();
                let long = len >= 16 << 10;
                assert_eq!(receipt.path, if len <= 56 { Path::Inline } else { Path::Eager });
                assert_eq!((receipt.copied_user, receipt.copied_kernel), (len as u64, 0));
                // The reason why it was not sent from its own memory.
                assert_eq!(receipt.send_refused(), long.then_some(Refusal::Encrypted));
                assert_eq!(receipt.sent_by(), long.then_some(SendMode::Plain));
                assert_eq!(receipt.to_string().contains("encrypted"), long);
                let mut back = vec![0; len];
                let got = one.recv_into(to_two, u64::MAX - tag as u64, &mut back).unwrap();
                assert_eq!((got.len, &back), (len as u64, &stamp::bytes(len, 2)));
            }
        });
        let counters = one.counters();
        assert_eq!(counters.copied_kernel, 0);
    }
}

/// No send goes out of the memory it lies in, no matter which mode the program insists on.
#[test]
fn what_is_encrypted_is_copied() {
    for mode in SendMode::ALL {
        let sending = encrypting(Progress::Inline).send_mode(mode).io_uring(true);
        let ((one, to_two), (two, to_one)) = pair(sending, encrypting(Progress::Dedicated));
        let send = two.recv_owned(to_one, 1, vec![0; 1 << 20]);
        let receipt = one.send(to_two, 1, &stamp::bytes(1 << 20, 3)).unwrap();
        assert_eq!(receipt.sent_by(), Some(SendMode::Plain), "{mode:?}");
        assert_eq!(receipt.send_refused(), Some(Refusal::Encrypted), "{mode:?}");
        let (_, message) = send.wait();
        assert_eq!(message, stamp::bytes(1 << 20, 3));
    }
    // In the clear nothing prevents it.
    let ((one, to_two), (two, to_one)) =
        pair(builder(Progress::Inline), builder(Progress::Dedicated));
    assert_eq!(one.peer(to_two).unwrap().encryption, None);
    assert_eq!(two.peer(to_one).unwrap().encryption, None);
    let came = two.recv_owned(to_one, 1, vec![0; 1 << 20]);
    let receipt = one.send(to_two, 1, &stamp::bytes(1 << 20, 3)).unwrap();
    assert_eq!((receipt.send_refused(), receipt.copied_user), (None, 0));
    came.wait().0.unwrap();
}

#[test]
fn who_is_slow_stops_who_sends_and_nothing_is_lost() {
    const MESSAGES: u64 = 5_000;
    let small = || encrypting(Progress::Inline).unexpected_bytes_max(256 << 10);
    let len = |number: u64| (number * 37 % 30_000) as usize;
    let ((one, to_two), (two, to_one)) = pair(small(), small());
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..MESSAGES {
                one.send(to_two, number % 3, &stamp::bytes(len(number), number)).unwrap();
            }
        });
        // The receiver takes nothing for a while.
        thread::sleep(Duration::from_millis(50));
        for number in 0..MESSAGES {
            let message = two.recv(to_one, number % 3).unwrap();
            assert_eq!(message.len(), len(number));
            stamp::check(&message, number);
        }
    });
}

/// Many at once both ways: neither side's writing stops its reading.
#[test]
fn both_ways_at_once() {
    let ((one, to_two), (two, to_one)) =
        pair(encrypting(Progress::Dedicated), encrypting(Progress::Dedicated));
    let len = |number: u64| [1 << 20, 8, 20_000, 300_000, 5000][number as usize % 5];
    let talk = |endpoint: &pinfold::Endpoint, peer, [ours, theirs]: [u64; 2]| {
        let sends: Vec<_> = (0..60)
            .map(|number| endpoint.send_owned(peer, number, stamp::bytes(len(number), ours)))
            .collect();
        for number in 0..60 {
            let message = endpoint.recv(peer, number).unwrap();
            assert_eq!(message.len(), len(number));
            stamp::check(&message, theirs);
        }
        for send in sends {
            send.wait().0.unwrap();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| talk(&one, to_two, [1, 2]));
        talk(&two, to_one, [2, 1]);
    });
}

#[test]
fn who_waits_asleep_is_woken() {
    let ((one, to_two), (two, to_one)) =
        pair(encrypting(Progress::Inline), encrypting(Progress::Inline));
    thread::scope(|scope| {
        scope.spawn(|| {
            for tag in 0..20 {
                thread::sleep(Duration::from_millis(3));
                one.send(to_two, tag, &stamp::bytes(100_000, tag)).unwrap();
                thread::sleep(Duration::from_millis(3));
                assert_eq!(&*one.recv(to_two, tag).unwrap(), b"got it");
            }
        });
        for tag in 0..20 {
            assert_eq!(&*two.recv(to_one, tag).unwrap(), stamp::bytes(100_000, tag));
            two.send(to_one, tag, b"got it").unwrap();
        }
    });
    assert!(two.counters().sleeps > 0);
}

#[test]
fn both_or_neither() {
    let plain = || builder(Progress::Inline).key(&KEY);
    let encrypting = || encrypting(Progress::Inline);
    let (done, joined) = called(encrypting(), encrypting());
    done.unwrap();
    assert!(joined);
    for (listening, calling, whose, why) in [
        (encrypting(), plain(), "this endpoint does not encrypt", Ungreeted::Unencrypted),
        (plain(), encrypting(), "does not encrypt, and this endpoint", Ungreeted::UnencryptedThere),
    ] {
        let (done, joined) = called(listening, calling);
        let error = done.unwrap_err();
        assert!(matches!(&error, Error::Greeting { reason, .. } if *reason == why), "{error}");
        for part in [whose, "Builder::encrypt(true)"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        assert!(!joined);
    }
}

#[test]
fn encryption_is_no_key() {
    let other = || builder(Progress::Inline).key(&[8; 32]).encrypt(true);
    let none = || builder(Progress::Inline).encrypt(true);
    let one = || encrypting(Progress::Inline);
    for (listening, calling) in [(one(), other()), (one(), none()), (none(), one())] {
        let (done, joined) = called(listening, calling);
        let error = done.unwrap_err();
        assert!(matches!(&error, Error::Greeting { .. }), "{error}");
        assert!(error.to_string().contains("key"), "{error}");
        assert!(!joined);
    }
    // On the loopback there need not be a key.
    let (done, joined) = called(none(), none());
    done.unwrap();
    assert!(joined);
}

/// A peer on this host is reached as such: there is nothing to be encrypted.
#[test]
fn on_this_host_there_is_no_connection() {
    let here = || encrypting(Progress::Inline).local_shortcut(true);
    let ((one, to_two), (two, to_one)) = pair(here(), here());
    let info = one.peer(to_two).unwrap();
    assert_eq!((info.encryption, info.pid), (None, std::process::id()));
    one.send(to_two, 1, b"beside").unwrap();
    assert_eq!(&*two.recv(to_one, 1).unwrap(), b"beside");
}
