//! Ends: cancelled, dropped, leaked, and of endpoints and peers.

use std::{
    future::poll_fn,
    sync::{Arc, atomic::Ordering},
    thread,
};

use pinfold::{Endpoint, Error, Gone, MultiRecv, OwnedBufMut, Progress, Source, TagMatch};
use pinfold_tests::{Args, Stage, block_on, role, stamp};

use super::{Counted, MIB, Pair, take};

/// The error that a receive ends with, and that it does so once.
fn error_of<B: OwnedBufMut>(multi: &mut MultiRecv<B>) -> Error {
    let error = multi.next().unwrap().unwrap_err();
    assert!(multi.is_over() && multi.next().is_none());
    error
}

#[test]
fn one_that_is_cancelled_has_its_messages_first() {
    for pair in [Pair::new(), Pair::ring_only(), Pair::tcp()] {
        let mut multi = pair.all(vec![0; 16 * MIB], 1);
        let mut idle = pair.one.multi_recv(pair.to_two, 99, vec![0; 8], 1);
        assert!(idle.cancel() && !idle.cancel());
        assert!(matches!(error_of(&mut idle), Error::Cancelled));
        assert_eq!(idle.take_buffer().unwrap().len(), 8);

        pair.two.send(pair.to_one, 1, &stamp::bytes(8, 1)).unwrap();
        let mut long = pair.two.send_owned(pair.to_one, 2, stamp::bytes(9 * MIB, 2));
        pair.until("the first is there", || pair.one.try_probe(pair.to_two, 1).unwrap().is_none());
        pair.work(3);
        assert!(multi.cancel());
        let mut later = pair.one.recv_owned(pair.to_two, 3, vec![0; 8]);
        pair.two.send(pair.to_one, 3, &stamp::bytes(8, 3)).unwrap();
        let mut all = Vec::new();
        let mut error = None;
        pair.until("it ends", || {
            match multi.try_next() {
                Some(Ok(message)) => all.push(message),
                Some(Err(end)) => error = Some(end),
                None => {}
            }
            error.is_some()
        });
        assert!(matches!(error, Some(Error::Cancelled)) && multi.next().is_none());
        assert!(all.iter().all(|message| !message.is_last && message.result.is_ok()));
        all.iter().for_each(|it| stamp::check(multi.bytes(it).unwrap(), it.tag));
        assert_eq!(all[0].tag, 1);
        // The long one has matched it, or is left to the next.
        let mut next = (all.len() == 1).then(|| pair.one.recv_request(pair.to_two, 2));
        pair.until("the long one is sent", || {
            let taken = next.as_mut().and_then(|next| next.try_wait());
            taken.into_iter().for_each(|message| stamp::check(&message.unwrap(), 2));
            long.try_wait().is_some()
        });
        pair.until("the later one ends", || later.try_wait().is_some());
    }
}

/// Messages that were not taken, or had come in part, go to the next receives, each once and in
/// order; the buffer stays as long as it is written to.
#[test]
fn one_that_is_dropped_loses_no_message() {
    let count = Arc::default();
    for make in [Pair::new, Pair::ring_only, Pair::tcp] {
        for turns in [0, 1, 2, 3, 8, 30] {
            let pair = make();
            let lengths = [8, 5_000, 9 * MIB, 0, 100, 200_000];
            let mut multi = pair.all(Counted::new(16 * MIB, &count), 1);
            let mut sends: Vec<_> = lengths
                .iter()
                .enumerate()
                .map(|(at, len)| pair.two.send_owned(pair.to_one, 7, stamp::bytes(*len, at as u64)))
                .collect();
            pair.work(turns);
            let mut at = 0;
            if turns % 2 == 1
                && let Some(message) = multi.try_next()
            {
                // One is handed out, which it may be out of order.
                at = usize::from(message.unwrap().len == 8);
                assert_eq!(at, 1, "{turns}");
            }
            drop(multi);
            while at < lengths.len() {
                let mut next = pair.one.recv_request(pair.to_two, 7);
                pair.until("the next one comes", || {
                    sends.retain_mut(|send| send.try_wait().is_none());
                    match next.try_wait() {
                        Some(message) => {
                            let message = message.unwrap();
                            assert_eq!(message.len(), lengths[at], "{at} {turns}");
                            stamp::check(&message, at as u64);
                            true
                        }
                        None => false,
                    }
                });
                at += 1;
            }
            pair.until("all are sent", || {
                sends.retain_mut(|send| send.try_wait().is_none());
                sends.is_empty()
            });
            assert!(pair.one.try_probe(pair.to_two, 7).unwrap().is_none());
            assert_eq!(count.load(Ordering::Relaxed), 0, "{turns}");
        }
    }
}

/// The messages that are left go to receives that were posted, a receive of many among them.
#[test]
fn one_that_is_dropped_leaves_its_messages_to_posted_receives() {
    let pair = Pair::new();
    let multi = pair.all(vec![0; 1000], 1);
    let mut one = pair.one.recv_owned(pair.to_two, TagMatch::any(), vec![0; 100]);
    let mut many = pair.all(vec![0; 1000], 1);
    for tag in 0..4 {
        pair.two.send(pair.to_one, tag, &stamp::bytes(20, tag)).unwrap();
    }
    pair.work(5);
    assert!(one.try_wait().is_none() && many.try_next().is_none());
    drop(multi);
    let (received, bytes) = one.try_wait().unwrap();
    assert_eq!(received.unwrap().tag, 0);
    stamp::check(&bytes[..20], 0);
    for (tag, message) in (1..4).zip(take(&mut many, 3)) {
        assert_eq!(message.tag, tag);
        stamp::check(many.bytes(&message).unwrap(), tag);
    }
}

#[test]
fn one_that_is_leaked_goes_on() {
    for pair in [Pair::new(), Pair::tcp()] {
        let multi = pair.all(vec![0; 4 * MIB], MIB);
        let mut sends: Vec<_> = (0..4)
            .map(|tag| pair.two.send_owned(pair.to_one, tag, stamp::bytes(MIB, tag)))
            .collect();
        pair.work(1);
        std::mem::forget(multi);
        pair.until("they are sent", || {
            sends.retain_mut(|send| send.try_wait().is_none());
            sends.is_empty()
        });
        pair.two.send(pair.to_one, 4, &stamp::bytes(8, 4)).unwrap();
        stamp::check(&pair.one.recv(pair.to_two, TagMatch::any()).unwrap(), 4);
    }
}

#[test]
fn the_end_of_the_endpoint_ends_it() {
    for make in [Pair::new, Pair::ring_only, Pair::tcp] {
        for turns in [0, 1, 3] {
            let pair = make();
            let mut multi = pair.one.multi_recv(Source::Any, 1, vec![0; 16 * MIB], 1);
            pair.two.send(pair.to_one, 1, &stamp::bytes(8, 1)).unwrap();
            let long = pair.two.send_owned(pair.to_one, 1, stamp::bytes(9 * MIB, 2));
            assert_eq!(take(&mut multi, 1)[0].len, 8);
            pair.work(turns);
            thread::scope(|scope| {
                // The sender answers while the receiver closes.
                let closes = scope.spawn(|| pair.one.close());
                while !closes.is_finished() {
                    let _ = pair.two.progress();
                }
            });
            let mut ended = 0;
            let error = loop {
                match multi.next() {
                    Some(Ok(message)) => {
                        assert_eq!(message.len, 9 << 20);
                        ended += 1;
                    }
                    Some(Err(error)) => break error,
                    None => panic!("no end"),
                }
            };
            assert!(matches!(error, Error::Closed), "{error}");
            assert!(ended <= 1 && multi.next().is_none());
            assert_eq!(multi.take_buffer().unwrap().len(), 16 * MIB);
            drop(long);
            let mut late = pair.one.multi_recv(Source::Any, 1, vec![0; 8], 1);
            assert!(matches!(error_of(&mut late), Error::Closed));
            assert!(late.take_buffer().is_some());
        }
    }
}

/// Messages that were whole stay; the one in the midst ends with the error, and so does the
/// receive.
#[test]
fn a_peer_that_lets_go_ends_it() {
    for make in [Pair::new, Pair::ring_only, Pair::tcp] {
        let pair = make();
        let mut multi = pair.all(vec![0; 16 * MIB], 1);
        pair.two.send(pair.to_one, 1, &stamp::bytes(8, 1)).unwrap();
        let long = pair.two.send_owned(pair.to_one, 2, stamp::bytes(9 * MIB, 2));
        pair.work(2);
        drop(long);
        pair.two.close();
        let mut all = Vec::new();
        let error = loop {
            match multi.next().expect("an end") {
                Ok(message) => all.push(message),
                Err(error) => break error,
            }
        };
        assert!(error.is_peer_gone(), "{error}");
        stamp::check(multi.bytes(&all[0]).unwrap(), 1);
        assert!(all.len() <= 2 && multi.take_buffer().is_some());
        // Nothing can come any more.
        let mut late = pair.all(vec![0; 8], 1);
        assert!(error_of(&mut late).is_peer_gone());
    }
}

#[test]
fn the_death_of_a_peer_ends_it() {
    let stage = Stage::new(60);
    let mut survivor = stage.role("survivor").spawn();
    survivor.expect("ready");
    let mut mortal = stage.role("mortal").spawn();
    survivor.expect("in the midst");
    mortal.kill();
    survivor.end_well();
    mortal.end();
}

pub fn survivor(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder(), "mortal");
    let mut multi = endpoint.multi_recv(peer, TagMatch::any(), vec![0; 400 * MIB], 1);
    // The short ones show that the long ones before them have begun.
    let mut tags: Vec<u64> = (0..2).map(|_| multi.next().unwrap().unwrap().tag).collect();
    tags.sort();
    assert_eq!(tags, [0, 2]);
    role::say("in the midst");
    let error = loop {
        match multi.next().unwrap() {
            Ok(message) => {
                assert!(message.tag == 1 && !message.is_last);
                let error = message.result.unwrap_err();
                assert!(error.is_peer_gone() || matches!(error, Error::Transfer { .. }), "{error}");
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::PeerGone { how: Gone::Died, .. }), "{error}");
    assert_eq!(multi.take_buffer().unwrap().len(), 400 * MIB);
}

pub fn mortal(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "mortal");
    let _first = endpoint.send_owned(peer, 0, stamp::bytes(8, 0));
    let _long = endpoint.send_owned(peer, 1, stamp::bytes(300 * MIB, 1));
    let _last = endpoint.send_owned(peer, 2, stamp::bytes(8, 2));
    role::hear();
}

#[test]
fn a_task_is_woken_for_each_message() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let pair = Pair::of(|| Endpoint::builder().progress(progress));
        let mut multi = pair.all(vec![0; 4096], 64);
        thread::scope(|scope| {
            scope.spawn(|| {
                for tag in 0..63 {
                    pair.two.send(pair.to_one, tag, &stamp::bytes(64, tag)).unwrap();
                    if tag % 16 == 0 {
                        thread::sleep(std::time::Duration::from_millis(5));
                    }
                }
                pair.two.send(pair.to_one, 63, &stamp::bytes(64, 63)).unwrap();
            });
            block_on(async {
                let mut tag = 0;
                while let Some(message) = poll_fn(|context| multi.poll_next(context)).await {
                    let message = message.unwrap();
                    assert_eq!(message.tag, tag);
                    stamp::check(multi.bytes(&message).unwrap(), tag);
                    tag += 1;
                }
                assert_eq!(tag, 64);
            });
        });
        assert!(multi.take_buffer().is_some());
    }
}
