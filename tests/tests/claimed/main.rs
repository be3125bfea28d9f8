//! Messages looked at, claimed, received later, put back and thrown away; sends that never wait;
//! buffers in parts; operations cancelled by their contexts.
#![allow(unsafe_code)]

mod try_recv;

use std::{io::IoSlice, os::fd::AsFd};

use pinfold::{
    Claimed, Completed, CompletionQueue, Endpoint, Error, OwnedBuf, OwnedBufMut, Path, PathSet,
    Source, TagMatch,
};
use pinfold_tests::{Pair, stamp};

const MIB: usize = 1 << 20;
const LENGTHS: [usize; 7] = [0, 5, 56, 3000, 100_000, MIB, 9 * MIB];

/// A buffer in parts.
struct Parts {
    parts: Vec<Vec<u8>>,
    list: Vec<(*mut u8, usize)>,
    shared: Vec<(*const u8, usize)>,
}

// SAFETY: the pointers are to memory of its own.
unsafe impl Send for Parts {}

impl Parts {
    fn new(mut parts: Vec<Vec<u8>>) -> Parts {
        let list: Vec<_> = parts.iter_mut().map(|part| (part.as_mut_ptr(), part.len())).collect();
        let shared = list.iter().map(|(ptr, len)| (ptr.cast_const(), *len)).collect();
        Parts { parts, list, shared }
    }

    fn cut(bytes: &[u8], at: &[usize]) -> Parts {
        let mut last = 0;
        let mut parts = Vec::new();
        for &at in at.iter().chain([&bytes.len()]) {
            let at = at.min(bytes.len());
            parts.push(bytes[last..at].to_vec());
            last = at;
        }
        Parts::new(parts)
    }
}

// SAFETY: vectors' elements do not move with them, and nothing else reaches them.
unsafe impl OwnedBuf for Parts {
    fn bytes(&self) -> (*const u8, usize) {
        (std::ptr::NonNull::dangling().as_ptr(), 0)
    }

    fn parts(&self) -> Option<&[(*const u8, usize)]> {
        Some(&self.shared)
    }
}

// SAFETY: as above.
unsafe impl OwnedBufMut for Parts {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (std::ptr::NonNull::dangling().as_ptr(), 0)
    }

    fn parts_mut(&mut self) -> Option<&[(*mut u8, usize)]> {
        Some(&self.list)
    }
}

fn pairs() -> Vec<Pair> {
    let only = |paths: &'static [Path]| move || Endpoint::builder().paths(PathSet::only(paths));
    vec![
        Pair::new("claimed", Endpoint::builder),
        Pair::new("claimed", only(&[Path::Eager])),
        Pair::new("claimed", only(&[Path::Inline, Path::Eager, Path::Cma])),
        Pair::tcp(),
    ]
}

/// Waits for a message and claims it.
fn claim(pair: &Pair, tag: impl Into<TagMatch>) -> Claimed {
    let (tag, mut claimed) = (tag.into(), None);
    pair.until("it comes", || {
        claimed = claimed.take().or_else(|| pair.one.claim(pair.to_two, tag).unwrap());
        claimed.is_some()
    });
    claimed.unwrap()
}

/// Two messages are claimed at once, and each is received by its own claim, in either order.
#[test]
fn several_claims_at_once_are_each_received() {
    for pair in pairs() {
        for len in LENGTHS {
            for backwards in [false, true] {
                let send = |seed| pair.two.send_owned(pair.to_one, 7, stamp::bytes(len, seed));
                let mut sends: Vec<_> = (0..3).map(send).collect();
                let mut claims: Vec<_> = (0..3).map(|_| claim(&pair, 7)).collect();
                assert!(pair.one.try_probe(pair.to_two, 7).unwrap().is_none());
                assert!(pair.one.claim(Source::Any, TagMatch::any()).unwrap().is_none());
                for claimed in &claims {
                    let envelope = claimed.envelope();
                    assert_eq!((envelope.tag, envelope.len), (7, len as u64));
                    assert_eq!(envelope.peer, pair.to_two);
                }
                let mut order = [0u64, 1, 2];
                if backwards {
                    claims.reverse();
                    order.reverse();
                }
                for (claimed, seed) in claims.into_iter().zip(order) {
                    let mut request = claimed.recv_owned(vec![0; len]);
                    let mut got = None;
                    pair.until("it is received", || {
                        got = got.take().or_else(|| request.try_wait());
                        got.is_some()
                    });
                    let (received, bytes) = got.unwrap();
                    assert_eq!(received.unwrap().len, len as u64);
                    stamp::check(&bytes, seed);
                }
                pair.until("they are sent", || {
                    sends.retain_mut(|send| send.try_wait().is_none());
                    sends.is_empty()
                });
            }
        }
    }
}

/// A claim that is dropped leaves its message in its place: before all that came later.
#[test]
fn a_dropped_claim_puts_its_message_back_in_order() {
    for pair in pairs() {
        for len in LENGTHS {
            // More than are scanned, so that they are indexed.
            for count in [3u64, 40] {
                let len = if count > 3 { len.min(3000) } else { len };
                let send = |seed| pair.two.send_owned(pair.to_one, 1, stamp::bytes(len, seed));
                let mut sends: Vec<_> = (0..count).map(send).collect();
                let kept = claim(&pair, 1);
                let second = claim(&pair, 1);
                let third = claim(&pair, 1);
                drop(second);
                drop(kept);
                let mut rest = Vec::new();
                let next = |rest: &mut Vec<Vec<u8>>| {
                    let mut request = pair.one.recv_request(pair.to_two, 1);
                    pair.until("the next comes", || match request.try_wait() {
                        Some(message) => {
                            rest.push(message.unwrap().into_vec());
                            true
                        }
                        None => false,
                    });
                };
                next(&mut rest);
                next(&mut rest);
                drop(third);
                (2..count).for_each(|_| next(&mut rest));
                rest.iter().zip(0..).for_each(|(bytes, seed)| stamp::check(bytes, seed));
                pair.until("they are sent", || {
                    sends.retain_mut(|send| send.try_wait().is_none());
                    sends.is_empty()
                });
            }
        }
    }
}

/// A receive that was posted while its message was claimed gets it when the claim is dropped.
#[test]
fn a_receive_posted_meanwhile_gets_the_message_of_a_dropped_claim() {
    for pair in pairs() {
        for len in LENGTHS {
            let mut send = pair.two.send_owned(pair.to_one, 5, stamp::bytes(len, 5));
            let claimed = claim(&pair, TagMatch::masked(0, 0xff));
            let mut request = pair.one.recv_owned(Source::Any, 5, vec![0; len]);
            for _ in 0..20 {
                pair.one.progress().unwrap();
            }
            assert!(request.try_wait().is_none());
            drop(claimed);
            let mut got = None;
            pair.until("it is received", || {
                got = got.take().or_else(|| request.try_wait());
                got.is_some()
            });
            stamp::check(&got.unwrap().1, 5);
            pair.until("it is sent", || send.try_wait().is_some());
        }
    }
}

#[test]
fn what_is_discarded_is_gone_and_its_sender_free() {
    for pair in pairs() {
        for len in LENGTHS {
            let mut first = pair.two.send_owned(pair.to_one, 1, stamp::bytes(len, 1));
            let mut second = pair.two.send_owned(pair.to_one, 1, stamp::bytes(len, 2));
            claim(&pair, 1).discard();
            let mut request = pair.one.recv_request(pair.to_two, 1);
            let mut got = None;
            pair.until("the second comes", || {
                got = got.take().or_else(|| request.try_wait());
                got.is_some()
            });
            stamp::check(&got.unwrap().unwrap(), 2);
            pair.until("both are sent", || first.try_wait().is_some());
            pair.until("both are sent", || second.try_wait().is_some());
        }
    }
}

/// The first bytes of a message in parts are seen before it is received, wherever it lies.
#[test]
fn heads_are_seen() {
    for pair in pairs() {
        for len in LENGTHS {
            let bytes = stamp::bytes(8 + len, 3);
            let mut send =
                pair.two.send_owned(pair.to_one, 1, Parts::cut(&bytes, &[8, 8 + len / 3]));
            let mut head = None;
            pair.until("its head is seen", || {
                head = pair.one.try_probe(pair.to_two, 1).unwrap().and_then(|it| it.head);
                head.is_some()
            });
            assert_eq!(head.unwrap(), bytes[..8]);
            let claimed = claim(&pair, 1);
            assert_eq!(claimed.envelope().head.unwrap(), bytes[..8]);
            let room = vec![vec![0; 8], vec![0; len / 2], vec![0; len - len / 2]];
            let mut request = claimed.recv_owned(Parts::new(room));
            let mut got = None;
            pair.until("it is received", || {
                got = got.take().or_else(|| request.try_wait());
                got.is_some()
            });
            let (received, parts) = got.unwrap();
            assert_eq!(received.unwrap().len, bytes.len() as u64);
            assert!(parts.parts.concat() == bytes);
            pair.until("it is sent", || send.try_wait().is_some());
        }
        // Shorter than a head.
        pair.two.send(pair.to_one, 1, &[1, 2, 3]).unwrap();
        assert_eq!(claim(&pair, 1).envelope().head.unwrap(), [1, 2, 3, 0, 0, 0, 0, 0]);
        let _ = claim(&pair, 1).recv_request().wait().unwrap();
    }
}

#[test]
fn parts_are_truncated_as_a_whole() {
    for pair in pairs() {
        for len in [100, 100_000, 2 * MIB] {
            let bytes = stamp::bytes(len, 9);
            let room = vec![vec![0; 10], vec![0; len / 2]];
            let mut request = pair.one.recv_owned(pair.to_two, 1, Parts::new(room));
            let mut send = pair.two.send_owned(pair.to_one, 1, Parts::cut(&bytes, &[33]));
            let mut got = None;
            pair.until("it is received", || {
                got = got.take().or_else(|| request.try_wait());
                got.is_some()
            });
            let (received, parts) = got.unwrap();
            let fits = 10 + len / 2;
            match received {
                Err(Error::Truncated { len: whole, capacity, tag: 1, .. }) => {
                    assert_eq!((whole, capacity), (len as u64, fits as u64));
                }
                other => panic!("{other:?}"),
            }
            assert!(parts.parts.concat() == bytes[..fits]);
            pair.until("it is sent", || send.try_wait().is_some());
        }
    }
}

/// The peer goes while its messages are claimed: those that are here are received, of others the
/// receive says that it is gone.
#[test]
fn claims_outlive_their_sender() {
    for pair in pairs() {
        pair.two.send(pair.to_one, 1, &stamp::bytes(3000, 1)).unwrap();
        let here = claim(&pair, 1);
        let long = pair.two.send_owned(pair.to_one, 1, stamp::bytes(9 * MIB, 2));
        let there = claim(&pair, 1);
        let back = claim_none(&pair);
        drop(long);
        let Pair { one, two, to_two, .. } = pair;
        two.close();
        drop(two);
        while one.peer(to_two).is_some() {
            one.progress().unwrap();
        }
        stamp::check(&here.recv_request().wait().unwrap(), 1);
        assert!(there.recv_owned(vec![0; 9 * MIB]).wait().0.is_err());
        assert!(back.is_none());
    }
}

fn claim_none(pair: &Pair) -> Option<Claimed> {
    pair.one.claim(pair.to_two, 77).unwrap()
}

/// A sender that never waits loses nothing and sends nothing twice, however full its peer is.
#[test]
fn what_try_send_takes_comes_once_and_in_order() {
    for pair in pairs() {
        for len in [0, 8, 56, 57, 1000, 4096, Endpoint::TRY_SEND_MAX] {
            let mut sent = 0u64;
            let mut refused = 0;
            while refused < 3 && sent < 300_000 {
                let bytes = stamp::bytes(len, sent);
                let (head, tail) = bytes.split_at(len / 3);
                let parts = [IoSlice::new(head), IoSlice::new(tail)];
                let goes = match sent % 2 {
                    0 => pair.two.try_send(pair.to_one, sent, &bytes).unwrap(),
                    _ => pair.two.try_send_vectored(pair.to_one, sent, &parts).unwrap(),
                };
                match goes {
                    true => sent += 1,
                    false => refused += 1,
                }
            }
            assert!(sent > 10 && refused > 0, "{len}: {sent} {refused}");
            for tag in 0..sent {
                let mut request = pair.one.recv_owned(pair.to_two, TagMatch::any(), vec![0; len]);
                let mut got = None;
                pair.until("it comes", || {
                    got = got.take().or_else(|| request.try_wait());
                    got.is_some()
                });
                let (received, bytes) = got.unwrap();
                assert_eq!(received.unwrap().tag, tag);
                stamp::check(&bytes, tag);
            }
            pair.until("there is room", || pair.two.try_send(pair.to_one, 1, &[]).unwrap());
            let mut last = pair.one.recv_request(pair.to_two, 1);
            pair.until("it comes", || last.try_wait().is_some());
        }
        let long = vec![0; Endpoint::TRY_SEND_MAX + 1];
        let refused = pair.two.try_send(pair.to_one, 1, &long);
        assert!(matches!(refused, Err(Error::LimitReached { .. })), "{refused:?}");
        pair.one.disconnect(pair.to_two);
        while pair.two.peer(pair.to_one).is_some() {
            pair.two.progress().unwrap();
        }
        assert!(pair.two.try_send(pair.to_one, 1, &[1; 100]).is_err());
    }
}

/// A queue of one endpoint's operations is polled without a look for it.
#[test]
fn a_queue_is_polled_by_its_endpoint() {
    for pair in pairs() {
        let queue = CompletionQueue::new().unwrap();
        let mut ended = Vec::new();
        assert_eq!(queue.poll_of(&pair.one, &mut ended, 8).unwrap().0, 0);
        queue.add(7, pair.one.recv_request(pair.to_two, 1));
        pair.two.send(pair.to_one, 1, b"hello").unwrap();
        let mut moved = false;
        pair.until("it comes", || {
            let (taken, has_moved) = queue.poll_of(&pair.one, &mut ended, 8).unwrap();
            moved |= has_moved;
            taken == 1
        });
        assert!(moved && ended[0].context == 7);
        pair.one.close();
        assert_eq!(queue.poll_of(&pair.one, &mut ended, 8).unwrap(), (0, false));
    }
}

/// Queued sends go first: one that would overtake them is refused.
#[test]
fn try_send_overtakes_nothing() {
    let pair = Pair::new("overtakes", || {
        Endpoint::builder().paths(PathSet::only(&[Path::Inline, Path::Eager]))
    });
    let mut queued = Vec::new();
    for _ in 0..200 {
        queued.push(pair.two.send_owned(pair.to_one, 1, stamp::bytes(MIB, 1)));
    }
    let mut refused = false;
    let mut tried = 0;
    for _ in 0..100 {
        match pair.two.try_send(pair.to_one, 2, b"short").unwrap() {
            true => tried += 1,
            false => refused = true,
        }
    }
    let mut tags = Vec::new();
    while tags.len() < 200 + tried {
        let mut request = pair.one.recv_request(pair.to_two, TagMatch::any());
        pair.until("it comes", || match request.try_wait() {
            Some(message) => {
                tags.push(message.unwrap().tag());
                true
            }
            None => false,
        });
    }
    assert!(tags[..200].iter().all(|tag| *tag == 1), "{tried} {refused}");
    pair.until("all are sent", || {
        queued.retain_mut(|send| send.try_wait().is_none());
        queued.is_empty()
    });
}

/// Operations are cancelled by their contexts, each alone.
#[test]
fn operations_are_cancelled_by_context() {
    for pair in pairs() {
        let (queue, other) = (CompletionQueue::new().unwrap(), CompletionQueue::new().unwrap());
        for context in 0..4 {
            queue.add(context, pair.one.recv_owned(pair.to_two, context, vec![0u8; 8]));
            other.add(context, pair.one.recv_owned(pair.to_two, 100 + context, vec![0u8; 8]));
        }
        queue.add(9, pair.one.multi_recv(pair.to_two, 9, vec![0u8; 64], 8));
        assert!(!queue.cancel(4));
        assert!(queue.cancel(2) && !queue.cancel(2));
        assert!(queue.cancel(9) && !queue.cancel(9));
        let mut ended = Vec::new();
        assert_eq!(queue.take(&mut ended, 8), 2);
        assert_eq!(queue.take(&mut ended, 8), 0);
        for completion in &mut ended {
            assert!([2, 9].contains(&completion.context));
            assert!(matches!(completion.result, Err(Error::Cancelled)), "{completion:?}");
            assert!(completion.take_buffer::<Vec<u8>>().is_some());
        }
        for context in [0, 1, 3, 102] {
            pair.two.send(pair.to_one, context, &[1; 8]).unwrap();
        }
        let (mut rest, mut others) = (Vec::new(), Vec::new());
        pair.until("the others come", || {
            queue.poll(&mut rest, 8).unwrap();
            other.poll(&mut others, 8).unwrap();
            rest.len() + others.len() == 4
        });
        let mut contexts: Vec<_> = rest.iter().map(|completion| completion.context).collect();
        contexts.sort_unstable();
        assert_eq!((contexts, others[0].context), (vec![0, 1, 3], 2));
        assert!(matches!(others[0].result, Ok(Completed::Received(_))));
        let _ = queue.as_fd();
    }
}
