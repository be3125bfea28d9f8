//! Peers on other hosts: messages of all lengths over connections, through the API.

use std::{io::IoSliceMut, sync::mpsc, thread, time::Duration};

use pinfold::{Error, Gone, Path, Progress, Refusal, Source, TagMatch};
use pinfold_tests::stamp;

use super::{builder, pair};

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    stamp::bytes(len, seed)
}

const LENGTHS: [usize; 12] = [0, 1, 8, 48, 49, 56, 57, 4096, 4097, 65_536, 300_000, 5 << 20];

#[test]
fn messages_of_all_lengths_come_and_go() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let ((one, to_two), (two, to_one)) = pair(builder(progress), builder(progress));
        thread::scope(|scope| {
            scope.spawn(|| {
                for (tag, &len) in LENGTHS.iter().enumerate() {
                    let message = two.recv(to_one, tag as u64).unwrap();
                    assert_eq!(&*message, bytes(len, 1), "{len}");
                    two.send(to_one, u64::MAX - tag as u64, &bytes(len, 2)).unwrap();
                }
            });
            for (tag, &len) in LENGTHS.iter().enumerate() {
                let receipt = one.send(to_two, tag as u64, &bytes(len, 1)).unwrap();
                let fits = len <= 56;
                assert_eq!(receipt.path, if fits { Path::Inline } else { Path::Eager });
                if !fits {
                    assert_eq!(
                        receipt.refusals().find(|(path, _)| *path == Path::Cma).map(|it| it.1),
                        Some(Refusal::OtherHost)
                    );
                }
                let mut back = vec![0; len];
                let got = one.recv_into(to_two, u64::MAX - tag as u64, &mut back).unwrap();
                assert_eq!((got.len, &back), (len as u64, &bytes(len, 2)));
            }
        });
        assert_eq!(one.counters().received[Path::Inline as usize].messages, 6);
    }
}

#[test]
fn who_is_slow_stops_who_sends_and_nothing_is_lost() {
    const MESSAGES: u64 = 20_000;
    let small = || builder(Progress::Inline).unexpected_bytes_max(256 << 10);
    let ((one, to_two), (two, to_one)) = pair(small(), small());
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..MESSAGES {
                one.send(to_two, number % 3, &bytes((number % 700) as usize, number)).unwrap();
            }
        });
        // The receiver takes nothing for a while.
        thread::sleep(Duration::from_millis(50));
        for number in 0..MESSAGES {
            let message = two.recv(to_one, number % 3).unwrap();
            assert_eq!(&*message, bytes((number % 700) as usize, number));
        }
    });
}

#[test]
fn long_messages_go_past_the_lanes() {
    let ((one, to_two), (two, to_one)) = pair(builder(Progress::Inline), builder(Progress::Inline));
    thread::scope(|scope| {
        scope.spawn(|| {
            for (tag, len) in [(1, 200_000), (2, 200_000), (3, 200_001), (4, 8 << 20)] {
                let receipt = one.send(to_two, tag, &bytes(len, tag)).unwrap();
                assert_eq!((receipt.copied_user, receipt.copied_kernel), (0, len as u64));
            }
            one.send(to_two, 5, b"last").unwrap();
        });
        // The last one first: the messages before it lie in the library's own memory then.
        assert_eq!(&*two.recv(to_one, 3).unwrap(), bytes(200_001, 3));
        let mut short = vec![0; 1000];
        let error = two.recv_into(to_one, 2, &mut short).unwrap_err();
        assert!(matches!(error, Error::Truncated { .. }), "{error}");
        assert_eq!(short, bytes(200_000, 2)[..1000]);
        assert_eq!(&*two.recv(to_one, 1).unwrap(), bytes(200_000, 1));
        // A message that is asked for before it is sent, in parts.
        let mut parts = [vec![0; 3 << 20], vec![0; 5 << 20]];
        let [first, second] = &mut parts;
        let mut into = [IoSliceMut::new(first), IoSliceMut::new(second)];
        let got = two.recv_vectored(to_one, 4, &mut into).unwrap();
        assert_eq!((got.receipt.copied_user, got.receipt.copied_kernel), (0, 8 << 20));
        assert_eq!(parts.concat(), bytes(8 << 20, 4));
        assert_eq!(&*two.recv(to_one, 5).unwrap(), b"last");
    });
}

/// A long send ends although its receiver, which has the message, does not call any more.
#[test]
fn who_has_a_message_need_not_call_again() {
    for len in [20_000, 1 << 20, 3 << 20] {
        let ((one, to_two), (two, to_one)) =
            pair(builder(Progress::Dedicated), builder(Progress::Inline));
        let send = one.send_owned(to_two, 1, bytes(len, 1));
        assert_eq!(&*two.recv(to_one, 1).unwrap(), bytes(len, 1));
        let (tell, told) = mpsc::channel();
        thread::spawn(move || tell.send(send.wait().0));
        let done = told.recv_timeout(Duration::from_secs(20));
        done.expect("it ends").expect("it ends well");
    }
}

#[test]
fn a_receive_that_is_too_short_takes_what_it_has_room_for() {
    let ((one, to_two), (two, to_one)) =
        pair(builder(Progress::Dedicated), builder(Progress::Inline));
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(5));
            one.send(to_two, 1, &bytes(100_000, 1)).unwrap();
            one.send(to_two, 2, b"next").unwrap();
        });
        let mut short = vec![0; 70_000];
        let error = two.recv_into(to_one, 1, &mut short).unwrap_err();
        assert!(matches!(error, Error::Truncated { .. }), "{error}");
        assert_eq!(short, bytes(100_000, 1)[..70_000]);
        assert_eq!(&*two.recv(to_one, 2).unwrap(), b"next");
    });
}

#[test]
fn who_waits_asleep_is_woken() {
    let ((one, to_two), (two, to_one)) = pair(builder(Progress::Inline), builder(Progress::Inline));
    thread::scope(|scope| {
        scope.spawn(|| {
            for tag in 0..20 {
                thread::sleep(Duration::from_millis(3));
                one.send(to_two, tag, &bytes(100_000, tag)).unwrap();
                // Neither side calls until the other has slept.
                thread::sleep(Duration::from_millis(3));
                assert_eq!(&*one.recv(Source::Any, TagMatch::any()).unwrap(), b"got it");
            }
        });
        for tag in 0..20 {
            assert_eq!(&*two.recv(Source::Any, tag).unwrap(), bytes(100_000, tag));
            two.send(to_one, tag, b"got it").unwrap();
        }
    });
    assert!(two.counters().sleeps > 0);
}

#[test]
fn what_was_sent_before_the_end_is_there() {
    let ((one, to_two), (two, to_one)) = pair(builder(Progress::Inline), builder(Progress::Inline));
    for tag in 0..10 {
        one.send(to_two, tag, &bytes(1000, tag)).unwrap();
    }
    drop(one);
    for tag in 0..10 {
        assert_eq!(&*two.recv(to_one, tag).unwrap(), bytes(1000, tag));
    }
    let error = two.recv(to_one, 10).unwrap_err();
    assert!(matches!(error, Error::PeerGone { how: Gone::Closed, .. }), "{error}");
}

#[test]
fn calls_are_answered() {
    let reversing = builder(Progress::Dedicated).handle(3, |active| {
        let reversed: Vec<u8> = active.payload().iter().rev().copied().collect();
        active.reply(&reversed).unwrap();
    });
    let ((one, to_two), (_two, _)) = pair(builder(Progress::Inline), reversing);
    for len in [0, 5, 48, 49, 5000, 400_000] {
        let mut sent = bytes(len, 3);
        let answer = one.request(to_two, 3, &sent).wait().unwrap();
        sent.reverse();
        assert_eq!(&*answer, sent, "{len}");
    }
    let error = one.request(to_two, 4, b"nobody").wait().unwrap_err();
    assert!(matches!(error, Error::NotHandled { .. }), "{error}");
}
