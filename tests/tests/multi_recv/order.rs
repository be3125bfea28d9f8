//! Room, truncation, and the order among receives.

use std::time::Duration;

use pinfold::{Error, Path, TagMatch};
use pinfold_tests::stamp;

use super::{MIB, Pair, take};

fn send(pair: &Pair, len: usize, tag: u64) {
    pair.two.send(pair.to_one, tag, &stamp::bytes(len, tag)).unwrap();
}

#[test]
fn the_buffer_is_free_when_less_than_asked_is_left() {
    let pair = Pair::new();
    // Room for ten messages of 40 bytes until less than 100 are left.
    let mut multi = pair.all(vec![0; 480], 100);
    (0..12).for_each(|tag| send(&pair, 40, tag));
    let all = take(&mut multi, 10);
    for (at, message) in all.iter().enumerate() {
        assert_eq!(message.range, 40 * at..40 * at + 40);
        assert_eq!(message.result.as_ref().unwrap().path, Path::Inline);
        assert_eq!(message.is_last, at == 9);
    }
    assert!(multi.is_over() && multi.next().is_none() && multi.try_next().is_none());
    assert!(!multi.cancel());
    // The others are for the next receive.
    stamp::check(&pair.one.recv(pair.to_two, TagMatch::any()).unwrap(), 10);
    let mut next = pair.all(multi.take_buffer().unwrap(), 441);
    let last = &take(&mut next, 1)[0];
    assert!(last.is_last && last.tag == 11);
    stamp::check(next.bytes(last).unwrap(), 11);
}

#[test]
fn a_message_that_does_not_fit_is_cut() {
    for pair in [Pair::new(), Pair::ring_only(), Pair::tcp()] {
        for (len, room) in [(40, 16), (5_000, 3_000), (MIB, MIB / 2), (3 * MIB, 8)] {
            let mut multi = pair.all(vec![0; 24 + room], 8);
            let first = pair.two.send_owned(pair.to_one, 1, stamp::bytes(20, 1));
            let mut long = pair.two.send_owned(pair.to_one, 2, stamp::bytes(len, 2));
            pair.until("both are sent", || long.try_wait().is_some());
            drop(first);
            let all = take(&mut multi, 2);
            assert!(all[0].result.is_ok() && !all[0].is_last && all[1].is_last);
            let Err(Error::Truncated { len: whole, capacity, peer, tag, .. }) = all[1].result
            else {
                panic!("{:?}", all[1]);
            };
            assert_eq!((whole, capacity), (len as u64, room as u64));
            assert_eq!((peer, tag), (pair.to_two, 2));
            assert_eq!((all[1].len, all[1].range.clone()), (len as u64, 24..24 + room));
            assert_eq!(multi.bytes(&all[1]).unwrap(), &stamp::bytes(len, 2)[..room]);
            assert!(multi.next().is_none() && multi.take_buffer().is_some());
        }
    }
}

/// Else a peer could have any number of them queued.
#[test]
fn empty_messages_take_room() {
    let pair = Pair::new();
    (0..3).for_each(|tag| send(&pair, 0, tag));
    pair.work(10);
    let mut multi = pair.all(vec![0; 64], 1);
    (3..9).for_each(|tag| send(&pair, 0, tag));
    let all = take(&mut multi, 8);
    for (at, message) in all.iter().enumerate() {
        assert_eq!((message.tag, message.range.clone()), (at as u64, 8 * at..8 * at));
        assert_eq!(multi.bytes(message), Some(&[][..]));
    }
    assert!(all[7].is_last && multi.next().is_none());
    assert_eq!(pair.one.recv(pair.to_two, 8).unwrap().len(), 0);
}

#[test]
fn more_free_room_than_the_buffer_has_is_refused() {
    let pair = Pair::new();
    for (len, min_free) in [(0, 0), (0, 1), (64, 65)] {
        let mut multi = pair.all(vec![0; len], min_free);
        assert!(multi.is_over());
        let error = multi.next().unwrap().unwrap_err();
        assert!(matches!(error, Error::LimitReached { limit, .. } if limit == len as u64));
        assert!(multi.next().is_none());
        assert_eq!(multi.take_buffer().unwrap().len(), len);
    }
    send(&pair, 64, 1);
    assert!(take(&mut pair.all(vec![0; 64], 64), 1)[0].is_last);
}

#[test]
fn receives_posted_before_come_first_and_later_ones_do_not_overtake() {
    for (pair, len) in [(Pair::new(), 8), (Pair::new(), 3_000), (Pair::tcp(), 100_000)] {
        let mut before = pair.one.recv_owned(pair.to_two, 1, vec![0; len]);
        let room = len.next_multiple_of(8);
        let mut multi = pair.all(vec![0; 3 * room], 1);
        let mut after = pair.one.recv_owned(pair.to_two, 1, vec![0; len]);
        let mut sends: Vec<_> = (0..5)
            .map(|seed| pair.two.send_owned(pair.to_one, 1, stamp::bytes(len, seed)))
            .collect();
        pair.until("all are sent", || {
            sends.retain_mut(|send| send.try_wait().is_none());
            sends.is_empty()
        });
        pair.until("the first ends", || match before.try_wait() {
            Some((received, bytes)) => {
                stamp::check(&bytes, 0);
                received.is_ok()
            }
            None => false,
        });
        for (seed, message) in (1..4).zip(take(&mut multi, 3)) {
            stamp::check(multi.bytes(&message).unwrap(), seed);
        }
        assert!(multi.is_over());
        pair.until("the last ends", || match after.try_wait() {
            Some((received, bytes)) => {
                stamp::check(&bytes, 4);
                received.is_ok()
            }
            None => false,
        });
    }
}

/// A call that finds the message at the head of the lane leaves it to the receive.
#[test]
fn blocking_receives_do_not_overtake() {
    let pair = Pair::new();
    let mut multi = pair.one.multi_recv(pair.to_two, TagMatch::masked(0, 0xff), vec![0; 24], 8);
    for (tag, seed) in [(1, 1), (0x100, 2), (2, 3), (3, 4), (4, 5)] {
        pair.two.send(pair.to_one, tag, &stamp::bytes(8, seed)).unwrap();
    }
    let mut bytes = [0; 8];
    let received = pair.one.recv_into(pair.to_two, TagMatch::any(), &mut bytes).unwrap();
    assert_eq!(received.tag, 0x100);
    stamp::check(&bytes, 2);
    let all = take(&mut multi, 3);
    assert_eq!(all.iter().map(|it| it.tag).collect::<Vec<_>>(), [1, 2, 3]);
    // It is used up, and the next message goes to whoever asks.
    let received = pair.one.recv_into(pair.to_two, TagMatch::any(), &mut bytes).unwrap();
    assert_eq!(received.tag, 4);
    stamp::check(&bytes, 5);
}

#[test]
fn two_receives_take_turns_when_one_is_used_up() {
    let pair = Pair::new();
    let mut multis = [pair.all(vec![0; 32], 16), pair.all(vec![0; 64], 16)];
    (0..9).for_each(|tag| send(&pair, 16, tag));
    for (multi, tags) in multis.iter_mut().zip([0..2, 2..6]) {
        let all: Vec<_> = multi.by_ref().map(Result::unwrap).collect();
        assert_eq!(all.iter().map(|it| it.tag).collect::<Vec<_>>(), Vec::from_iter(tags));
        all.iter().for_each(|it| stamp::check(multi.bytes(it).unwrap(), it.tag));
    }
    stamp::check(&pair.one.recv(pair.to_two, 6).unwrap(), 6);
}

/// Bytes that no message was placed in, or that may still be written, are not shown.
#[test]
fn only_places_of_messages_are_shown() {
    let pair = Pair::new();
    let mut multi = pair.all(vec![0; 64], 8);
    send(&pair, 16, 1);
    send(&pair, 16, 2);
    let first = take(&mut multi, 1).remove(0);
    assert_eq!(multi.bytes(&first).map(<[u8]>::len), Some(16));
    let mut forged = take(&mut multi, 1).remove(0);
    forged.range = 16..40;
    assert!(multi.bytes(&forged).is_none());
    forged.range = 48..50;
    assert!(multi.bytes(&forged).is_none());
    (forged.range.start, forged.range.end) = (20, 10);
    assert!(multi.bytes(&forged).is_none());
    forged.range = 0..32;
    assert_eq!(multi.bytes(&forged).map(<[u8]>::len), Some(32));
    assert!(multi.next_timeout(Duration::from_millis(10)).is_none() && !multi.is_over());

    // One that still comes, before one that is there.
    drop(multi);
    let mut multi = pair.all(vec![0; 4 * MIB], 8);
    let _long = pair.two.send_owned(pair.to_one, 1, stamp::bytes(3 * MIB, 1));
    send(&pair, 16, 2);
    let mut second = take(&mut multi, 1).remove(0);
    assert_eq!((second.tag, second.range.clone()), (2, 3 * MIB..3 * MIB + 16));
    assert!(multi.bytes(&second).is_some());
    second.range.start = 0;
    assert!(multi.bytes(&second).is_none());
}
