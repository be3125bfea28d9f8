//! Each path, messages that came before the receive, and several that move at the same time.

use std::{collections::BTreeSet, thread};

use pinfold::{Arena, Endpoint, MultiReceived, Path, PathSet, Source, TagMatch};
use pinfold_tests::stamp::{self, Random};

use super::{MIB, Pair, in_order, take};

/// One message by each path of a host, twice, and by which path each is to come.
const BY_PATH: [(Path, usize); 10] = [
    (Path::Inline, 40),
    (Path::Eager, 5_000),
    (Path::Eager, 120_000),
    (Path::Cma, 300_001),
    (Path::Mapped, 200_003),
    (Path::Inline, 0),
    (Path::Eager, 60),
    (Path::Mapped, 3 * MIB),
    (Path::Cma, 5 * MIB),
    (Path::Inline, 56),
];

fn send_by_path(pair: &Pair, rounds: u64) {
    let arena = Arena::new().unwrap();
    for round in 0..rounds {
        for (at, (path, len)) in BY_PATH.into_iter().enumerate() {
            let tag = round << 8 | at as u64;
            let bytes = stamp::bytes(len, tag);
            let receipt = if path == Path::Mapped {
                let mut lent = arena.alloc(len).unwrap();
                lent.copy_from_slice(&bytes);
                pair.two.send_by(path, pair.to_one, tag, &lent)
            } else {
                pair.two.send_by(path, pair.to_one, tag, &bytes)
            };
            assert_eq!(receipt.unwrap().path, path);
        }
    }
}

fn check_path(message: &MultiReceived, bytes: &[u8]) {
    let (path, len) = BY_PATH[(message.tag & 0xff) as usize];
    let receipt = message.result.as_ref().unwrap();
    assert_eq!((receipt.path, receipt.bytes), (path, len as u64), "{message:?}");
    assert_eq!((message.len, message.range.len()), (len as u64, len));
    stamp::check(bytes, message.tag);
}

/// Runs the sender and hands each message to `each` while the receive goes on.
macro_rules! by_each_path {
    ($buffer:expr) => {
        let pair = Pair::new();
        thread::scope(|scope| {
            let mut multi = pair.all($buffer, 1);
            scope.spawn(|| send_by_path(&pair, 2));
            let all = in_order(take(&mut multi, 2 * BY_PATH.len()));
            for (at, message) in all.iter().enumerate() {
                // The sender waits for each, so they come in its order.
                assert_eq!(message.tag & 0xff, (at % BY_PATH.len()) as u64);
                check_path(message, multi.bytes(message).unwrap());
            }
            assert!(multi.cancel() && multi.next().unwrap().is_err() && multi.next().is_none());
            assert!(multi.bytes(&all[0]).is_some());
            let buffer = multi.take_buffer().unwrap();
            assert!(multi.bytes(&all[0]).is_none() && multi.take_buffer().is_none());
            all.iter().for_each(|message| check_path(message, &buffer[message.range.clone()]));
        });
    };
}

#[test]
fn each_path_into_a_vector() {
    by_each_path!(vec![0; 20 * MIB]);
}

#[test]
fn each_path_into_a_box() {
    by_each_path!(vec![0; 20 * MIB].into_boxed_slice());
}

#[test]
fn each_path_into_an_arena() {
    by_each_path!(Arena::new().unwrap().alloc(20 * MIB).unwrap());
}

/// The sender copies into the receiver's arena.
#[test]
fn long_messages_into_memory_that_peers_may_write() {
    let paths = PathSet::only(&[Path::Inline, Path::Eager, Path::Mapped]);
    let pair = Pair::of(|| Endpoint::builder().paths(paths));
    let shared = Arena::builder().build_shared().unwrap();
    let mut multi = pair.all(shared.alloc(16 * MIB).unwrap(), 4 * MIB);
    let lengths = [9_000, 4 * MIB, 40, 3 * MIB, 5 * MIB];
    let all = thread::scope(|scope| {
        scope.spawn(|| {
            for (tag, len) in lengths.into_iter().enumerate() {
                let bytes = stamp::bytes(len, tag as u64);
                pair.two.send(pair.to_one, tag as u64, &bytes).unwrap();
            }
        });
        in_order(multi.by_ref().map(Result::unwrap).collect())
    });
    let buffer = multi.take_buffer().unwrap();
    assert_eq!(all.len(), lengths.len());
    for (message, len) in all.iter().zip(lengths) {
        let mut bytes = vec![0; message.range.len()];
        buffer.read(message.range.start, &mut bytes);
        assert_eq!(message.len, len as u64);
        stamp::check(&bytes, message.tag);
        let path = message.result.as_ref().unwrap().path;
        assert!(len < 3 * MIB || path == Path::Mapped, "{message:?}");
    }
}

/// Short ones through the lane, and long ones past it, straight into the buffer.
#[test]
fn each_length_over_tcp() {
    let pair = Pair::tcp();
    let lengths = [0, 40, 57, 5_000, 16 << 10, 100_000, 3 * MIB, 24 * MIB, 8];
    let mut multi = pair.all(vec![0; 60 * MIB], 1);
    thread::scope(|scope| {
        scope.spawn(|| {
            for (tag, len) in lengths.into_iter().enumerate() {
                let bytes = stamp::bytes(len, tag as u64);
                pair.two.send(pair.to_one, tag as u64, &bytes).unwrap();
            }
        });
        for (tag, message) in in_order(take(&mut multi, lengths.len())).iter().enumerate() {
            let receipt = message.result.as_ref().unwrap();
            assert_eq!((message.tag, message.len), (tag as u64, lengths[tag] as u64));
            assert_eq!(receipt.bytes, message.len);
            stamp::check(multi.bytes(message).unwrap(), message.tag);
        }
    });
}

/// A mixture of lengths that all are under way at once: those that are fetched end later than those
/// placed behind them.
fn all_at_once(pair: &Pair, seed: u64, stored_first: bool) {
    let mut random = Random::new(seed);
    let lengths: Vec<usize> = (0..60)
        .map(|_| random.pick(&[0, 8, 50, 57, 900, 5_000, 70_000, 300_000, 2 * MIB]))
        .collect();
    let room: usize = lengths.iter().map(|len| len.next_multiple_of(8).max(8)).sum();
    let send = || -> Vec<_> {
        let post = |(tag, len): (usize, &usize)| {
            pair.two.send_owned(pair.to_one, tag as u64, stamp::bytes(*len, tag as u64))
        };
        lengths.iter().enumerate().map(post).collect()
    };
    let mut sends = if stored_first { send() } else { Vec::new() };
    if stored_first {
        pair.work(50);
        assert!(pair.one.try_probe(pair.to_two, 0).unwrap().is_some());
    }
    let mut multi = pair.all(vec![0; room], 1);
    if !stored_first {
        sends = send();
    }
    let mut all = Vec::new();
    pair.until("all come", || {
        all.extend(multi.try_next().map(Result::unwrap));
        all.len() == lengths.len()
    });
    pair.until("all are sent", || {
        sends.retain_mut(|send| send.try_wait().is_none());
        sends.is_empty()
    });
    assert!(all.last().unwrap().is_last && multi.is_over());
    assert_eq!(all.iter().filter(|message| message.is_last).count(), 1);
    for (tag, message) in in_order(all).iter().enumerate() {
        assert_eq!((message.tag, message.len), (tag as u64, lengths[tag] as u64));
        assert!(message.result.is_ok());
        stamp::check(multi.bytes(message).unwrap(), message.tag);
    }
    assert_eq!(multi.take_buffer().unwrap().len(), room);
}

#[test]
fn messages_that_move_at_the_same_time() {
    for (seed, make) in [Pair::new, Pair::ring_only, Pair::tcp].into_iter().enumerate() {
        let pair = make();
        (0..4).for_each(|round| all_at_once(&pair, 10 * seed as u64 + round, false));
    }
}

#[test]
fn messages_that_came_before_the_receive() {
    for (seed, make) in [Pair::new, Pair::ring_only, Pair::tcp].into_iter().enumerate() {
        let pair = make();
        (0..4).for_each(|round| all_at_once(&pair, 50 + 10 * seed as u64 + round, true));
    }
}

/// The messages of one thread of the sender come in its order while others come too.
#[test]
fn messages_of_several_peers() {
    const EACH: u64 = 300;
    let address = format!("local:multi-recv-hub-{}", std::process::id());
    let hub = Endpoint::listen(&address).unwrap();
    let join = |_| {
        let other = Endpoint::new().unwrap();
        let (to_hub, id) = thread::scope(|scope| {
            let there = scope.spawn(|| other.connect(&address).unwrap());
            let id = hub.accept().unwrap();
            (there.join().unwrap(), id)
        });
        (other, to_hub, id)
    };
    let others: Vec<_> = (0..3).map(join).collect();
    thread::scope(|scope| {
        let mut multi = hub.multi_recv(Source::Any, TagMatch::any(), vec![0; 64 * MIB], 1);
        for (seed, (other, to_hub, _)) in others.iter().enumerate() {
            scope.spawn(move || {
                let mut random = Random::new(seed as u64);
                for tag in 0..EACH {
                    let len = random.pick(&[0, 8, 56, 57, 2_000, 40_000, 200_000]);
                    other.send(*to_hub, tag, &stamp::bytes(len, tag)).unwrap();
                }
            });
        }
        let all = in_order(take(&mut multi, 3 * EACH as usize));
        let peers: BTreeSet<_> = all.iter().map(|message| message.peer).collect();
        assert_eq!(peers, others.iter().map(|(.., id)| *id).collect());
        for peer in peers {
            let tags: Vec<u64> =
                all.iter().filter(|it| it.peer == peer).map(|message| message.tag).collect();
            assert_eq!(tags, Vec::from_iter(0..EACH));
        }
        all.iter().for_each(|it| stamp::check(multi.bytes(it).unwrap(), it.tag));
    });
}
