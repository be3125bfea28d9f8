//! Matching of messages with receives: masks, any source, probes, cancelling, order, and very many.

use std::time::Duration;

use pinfold::{Endpoint, Error, Path, SendRequest, Source, TagMatch};
use pinfold_tests::{
    Args, Stage, pair,
    role::{self, await_go, go, say},
    stamp::{self, Random},
};

pinfold_tests::roles!(
    masked_hub,
    masked_leaf,
    probing,
    probed,
    ordered,
    ordering,
    posting,
    answering,
    keeping,
    piling
);

const DONE: u64 = u64::MAX - 1;

// Masks and sources.

const LEAVES: u64 = 3;
const CLASSES: u64 = 4;
const OF_CLASS: u64 = 50;

/// The class is in the middle of the tag, the number in both ends.
fn masked_tag(class: u64, number: u64) -> u64 {
    number << 48 | class << 24 | number
}

fn class(class: u64) -> TagMatch {
    TagMatch::masked(class << 24, !(0xff << 24))
}

#[test]
fn masks_and_any_source() {
    let stage = Stage::new(60);
    let leaves = (0..LEAVES).map(|leaf| stage.role("masked_leaf").with("leaf", leaf));
    stage.play([stage.role("masked_hub")].into_iter().chain(leaves));
}

fn masked_leaf(args: &Args) {
    let leaf: u64 = args.number("leaf");
    let (endpoint, hub) = role::connect(Endpoint::builder(), "hub");
    endpoint.send(hub, leaf, b"hello").unwrap();
    for _ in 0..2 {
        await_go(&endpoint, hub);
        let mut random = Random::new(leaf);
        let mut sent = [0; CLASSES as usize];
        let mut requests = Vec::new();
        while sent.iter().sum::<u64>() < CLASSES * OF_CLASS {
            let class = random.below(CLASSES);
            let number = &mut sent[class as usize];
            if *number < OF_CLASS {
                let tag = masked_tag(class, *number);
                let len = [0, 8, 56, 57, 3000, 70_000][random.below(6) as usize];
                requests.push(endpoint.send_owned(hub, tag, stamp::bytes(len, tag ^ leaf)));
                *number += 1;
            }
        }
        requests.push(endpoint.send_owned(hub, DONE, Vec::new()));
        for request in requests {
            request.wait().0.unwrap();
        }
    }
    await_go(&endpoint, hub);
}

fn masked_hub(_: &Args) {
    let (endpoint, first) = role::listen(Endpoint::builder(), "hub");
    let mut leaves = vec![first];
    while leaves.len() < LEAVES as usize {
        leaves.push(endpoint.accept_timeout(role::PATIENCE).unwrap());
    }
    // The leaves in the order of their numbers.
    leaves
        .sort_by_cached_key(|leaf| endpoint.recv(*leaf, TagMatch::masked(0, 0xff)).unwrap().tag());
    let leaf_of = |peer| leaves.iter().position(|leaf| *leaf == peer).unwrap() as u64;

    // All messages are unexpected.
    leaves.iter().for_each(|leaf| go(&endpoint, *leaf));
    for leaf in &leaves {
        endpoint.probe(*leaf, DONE).unwrap();
    }
    let mut next = [[0u64; CLASSES as usize]; LEAVES as usize];
    let mut take = |from: Source, wanted: u64| {
        let message = endpoint.recv(from, class(wanted)).unwrap();
        assert!(from.matches(message.peer()));
        let leaf = leaf_of(message.peer());
        let number = &mut next[leaf as usize][wanted as usize];
        assert_eq!(message.tag(), masked_tag(wanted, *number), "in order");
        stamp::check(&message, message.tag() ^ leaf);
        *number += 1;
    };
    for _ in 0..OF_CLASS {
        for wanted in [2, 0] {
            leaves.iter().rev().for_each(|leaf| take(Source::Peer(*leaf), wanted));
        }
        for wanted in [3, 1] {
            leaves.iter().for_each(|_| take(Source::Any, wanted));
        }
    }
    assert_eq!(next, [[OF_CLASS; CLASSES as usize]; LEAVES as usize]);
    for _ in 0..LEAVES {
        assert_eq!(endpoint.recv(Source::Any, TagMatch::any()).unwrap().tag(), DONE);
    }
    assert_eq!(endpoint.try_probe(Source::Any, TagMatch::any()).unwrap(), None);

    // All receives posted before: one number exactly, then two classes from each leaf and two from
    // any. Three receives are left over, for the numbers that the exact ones take.
    let mut exact = Vec::new();
    for leaf in &leaves {
        exact.push((*leaf, endpoint.recv_request(*leaf, masked_tag(1, 7))));
    }
    let mut of_class = Vec::new();
    for _ in 0..OF_CLASS {
        for wanted in 0..CLASSES {
            for leaf in &leaves {
                let from = if wanted < 2 { Source::Peer(*leaf) } else { Source::Any };
                of_class.push((from, wanted, endpoint.recv_request(from, class(wanted))));
            }
        }
    }
    leaves.iter().for_each(|leaf| go(&endpoint, *leaf));
    for (leaf, request) in exact {
        let message = request.wait().unwrap();
        assert_eq!((message.peer(), message.tag()), (leaf, masked_tag(1, 7)));
    }
    for leaf in &leaves {
        endpoint.recv(*leaf, DONE).unwrap();
    }
    let mut got = 0;
    let mut left = Vec::new();
    for (from, wanted, mut request) in of_class {
        match request.wait_timeout(Duration::from_millis(if wanted == 1 { 100 } else { 60_000 })) {
            Some(message) => {
                let message = message.unwrap();
                assert!(class(wanted).matches(message.tag()) && from.matches(message.peer()));
                stamp::check(&message, message.tag() ^ leaf_of(message.peer()));
                got += 1;
            }
            None => left.push(request),
        }
    }
    assert_eq!((got, left.len()), (LEAVES * CLASSES * OF_CLASS - 3, 3));
    for mut request in left {
        assert!(request.cancel());
        assert!(matches!(request.wait(), Err(Error::Cancelled)));
    }
    leaves.iter().for_each(|leaf| go(&endpoint, *leaf));
}

// Probes and cancelling.

#[test]
fn probes_and_cancelling() {
    let stage = Stage::new(60);
    stage.play([stage.role("probing"), stage.role("probed")]);
}

/// Lengths that go by every path.
const LENGTHS: [usize; 6] = [0, 56, 57, 9000, 300_000, 3 << 20];

fn probed(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "probe");
    for (i, len) in LENGTHS.into_iter().enumerate() {
        await_go(&endpoint, peer);
        endpoint.send(peer, i as u64, &stamp::bytes(len, i as u64)).unwrap();
    }
    await_go(&endpoint, peer);
    // A send that is not received can be taken back, as long as it is in our memory.
    let mut request = endpoint.send_owned(peer, 100, stamp::bytes(3 << 20, 0));
    assert!(request.try_wait().is_none());
    go(&endpoint, peer);
    await_go(&endpoint, peer);
    assert!(request.cancel());
    assert!(matches!(request.wait().0, Err(Error::Cancelled)));
    go(&endpoint, peer);
    // A send that was taken cannot be taken back.
    let mut request = endpoint.send_owned(peer, 101, stamp::bytes(3 << 20, 101));
    await_go(&endpoint, peer);
    request.cancel();
    let (result, bytes) = request.wait();
    assert_eq!(result.unwrap().bytes, 3 << 20);
    stamp::check(&bytes, 101);
    // A send whose cancelling crosses with the receive ends one way on both sides.
    for round in 0..200u64 {
        await_go(&endpoint, peer);
        let mut request = endpoint.send_owned(peer, 102, stamp::bytes(600_000, round));
        for _ in 0..(round * 37) % 50 {
            endpoint.progress().unwrap();
        }
        request.cancel();
        let arrived = match request.wait().0 {
            Ok(_) => 1,
            Err(Error::Cancelled) => 0,
            Err(error) => panic!("{error}"),
        };
        endpoint.send(peer, 103, &[arrived]).unwrap();
    }
}

fn probing(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "probe");
    for (i, len) in LENGTHS.into_iter().enumerate() {
        let tag = i as u64;
        assert_eq!(endpoint.try_probe(peer, tag).unwrap(), None);
        go(&endpoint, peer);
        let envelope = endpoint.probe(peer, TagMatch::any()).unwrap();
        assert_eq!((envelope.peer, envelope.tag, envelope.len), (peer, tag, len as u64));
        // The message is still there, and only under its tag.
        assert_eq!(endpoint.try_probe(Source::Any, tag).unwrap(), Some(envelope));
        assert_eq!(endpoint.try_probe(peer, tag + 1).unwrap(), None);
        stamp::check(&endpoint.recv(peer, envelope.tag).unwrap(), tag);
        assert_eq!(endpoint.try_probe(peer, TagMatch::any()).unwrap(), None);
    }
    // Receives that were taken back take nothing.
    let mut never = endpoint.recv_owned(peer, TagMatch::any(), vec![0; 100]);
    let mut neither = endpoint.recv_request(Source::Any, 100);
    assert!(never.try_wait().is_none() && neither.try_wait().is_none());
    assert!(never.cancel() && neither.cancel());
    assert!(!never.cancel(), "once is enough");
    let (result, buffer) = never.wait();
    assert!(matches!(result, Err(Error::Cancelled)) && buffer == [0; 100]);
    assert!(matches!(neither.wait(), Err(Error::Cancelled)));
    assert!(matches!(
        endpoint.recv_timeout(peer, 99, Duration::from_millis(5)),
        Err(Error::Timeout(_))
    ));
    go(&endpoint, peer);
    await_go(&endpoint, peer);
    assert_eq!(endpoint.probe(peer, 100).unwrap().len, 3 << 20);
    go(&endpoint, peer);
    await_go(&endpoint, peer);
    assert_eq!(endpoint.try_probe(peer, 100).unwrap(), None, "it was taken back");
    endpoint.probe(peer, 101).unwrap();
    let request = endpoint.recv_request(peer, 101);
    go(&endpoint, peer);
    stamp::check(&request.wait().unwrap(), 101);
    let mut whole = 0u32;
    for round in 0..200u64 {
        let mut request = endpoint.recv_request(peer, 102);
        go(&endpoint, peer);
        let arrived = endpoint.recv(peer, 103).unwrap()[0] == 1;
        if arrived {
            stamp::check(&request.wait().unwrap(), round);
            whole += 1;
        } else {
            assert!(request.cancel(), "nothing came");
            assert!(matches!(request.wait(), Err(Error::Cancelled)));
        }
    }
    role::note(format_args!("{whole} of 200 arrived"));
}

// Order.

#[test]
fn order_is_kept() {
    let stage = Stage::new(120);
    stage.play([stage.role("ordered"), stage.role("ordering")]);
}

const BATCHES: u64 = 100;
const OF_BATCH: u64 = 100;

/// A message of the order test: its class, its length, and whether its receive is `Any`.
fn plan(batch: u64) -> Vec<(u64, usize, Option<Path>)> {
    let mut random = Random::new(batch);
    let of_batch = (0..OF_BATCH).map(|_| {
        let len = match random.below(100) {
            0..50 => random.below(57),
            50..75 => random.below(5000),
            75..97 => random.below(100_000),
            _ => random.below(2_000_000),
        };
        let by = random.pick(&[None, None, Some(Path::Eager), Some(Path::Cma)]);
        (random.below(5), len as usize, by)
    });
    of_batch.collect()
}

fn order_tag(class: u64) -> u64 {
    class << 40 | class
}

fn ordering(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "order");
    let has_cma = endpoint.peer(peer).unwrap().paths.contains(Path::Cma);
    let mut numbers = [0u64; 5];
    for batch in 0..BATCHES {
        let mut requests: Vec<SendRequest<Vec<u8>>> = Vec::new();
        for (class, len, by) in plan(batch) {
            let mut memory = stamp::bytes(len + 8, numbers[class as usize]);
            memory[..8].copy_from_slice(&numbers[class as usize].to_le_bytes());
            numbers[class as usize] += 1;
            let tag = order_tag(class);
            match by {
                // In order, the receiver takes every message: a call that blocks is no harm.
                Some(path) if batch % 2 == 0 && (has_cma || path != Path::Cma) => {
                    endpoint.send_by(path, peer, tag, &memory).map(drop).unwrap();
                }
                _ => requests.push(endpoint.send_owned(peer, tag, memory)),
            }
        }
        for request in requests {
            request.wait().0.unwrap();
        }
    }
}

fn ordered(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "order");
    let mut numbers = [0u64; 5];
    for batch in 0..BATCHES {
        let mut random = Random::new(batch ^ 0xabc);
        let mut left = plan(batch);
        while !left.is_empty() {
            // Even batches in the order of sending, by receives that take anything; odd ones by
            // class, in any order.
            let is_any = batch % 2 == 0;
            let at = if is_any { 0 } else { random.below(left.len() as u64) as usize };
            let class = left[at].0;
            let at = left.iter().position(|message| message.0 == class).unwrap();
            let (_, len, _) = left.remove(at);
            let matching = if is_any { TagMatch::any() } else { order_tag(class).into() };
            let len = len + 8;
            let memory = match random.below(3) {
                0 => {
                    let mut memory = vec![0; len];
                    let received = endpoint.recv_into(peer, matching, &mut memory).unwrap();
                    assert_eq!(received.tag, order_tag(class), "batch {batch}");
                    memory
                }
                1 => {
                    let (received, memory) =
                        endpoint.recv_owned(peer, matching, vec![0; len]).wait();
                    assert_eq!(received.unwrap().tag, order_tag(class), "batch {batch}");
                    memory
                }
                _ => {
                    let message = endpoint.recv(Source::Any, matching).unwrap();
                    assert_eq!(message.tag(), order_tag(class), "batch {batch}");
                    message.into_vec()
                }
            };
            let number = &mut numbers[class as usize];
            assert_eq!(memory.len(), len, "batch {batch}, class {class}, number {number}");
            let there = u64::from_le_bytes(memory[..8].try_into().unwrap());
            assert_eq!(there, *number, "batch {batch}, class {class}");
            assert_eq!(memory[8..], stamp::bytes(len, *number)[8..], "batch {batch}");
            *number += 1;
        }
    }
}

// Very many.

const MANY: u64 = 100_000;

#[test]
fn a_hundred_thousand_posted() {
    let stage = Stage::new(120);
    stage.play([stage.role("posting"), stage.role("answering")]);
}

fn posting(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "many");
    let requests: Vec<_> =
        (0..MANY).map(|tag| endpoint.recv_owned(peer, tag, vec![0; 8])).collect();
    go(&endpoint, peer);
    for (tag, request) in requests.into_iter().enumerate() {
        let (received, bytes) = request.wait();
        assert_eq!(received.unwrap().tag, tag as u64);
        stamp::check(&bytes, tag as u64);
    }
}

fn answering(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "many");
    await_go(&endpoint, peer);
    for tag in (0..MANY).rev() {
        endpoint.send(peer, tag, &stamp::bytes(8, tag)).unwrap();
    }
    // The peer is not gone before the last is taken.
    assert!(matches!(endpoint.recv(peer, DONE), Err(error) if error.is_peer_gone()));
}

#[test]
fn a_hundred_thousand_unexpected() {
    let stage = Stage::new(120);
    stage.play([stage.role("keeping"), stage.role("piling")]);
}

fn keeping(_: &Args) {
    let builder = Endpoint::builder().unexpected_bytes_max(1 << 30);
    let (endpoint, peer) = role::listen(builder, "many");
    endpoint.probe(peer, MANY - 1).unwrap();
    assert!(endpoint.counters().unexpected >= MANY);
    for tag in (0..MANY).rev() {
        let message = endpoint.recv(peer, tag).unwrap();
        stamp::check(&message, tag);
    }
    assert_eq!(endpoint.try_probe(peer, TagMatch::any()).unwrap(), None);
    say("all");
}

fn piling(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "many");
    let requests: Vec<_> =
        (0..MANY).map(|tag| endpoint.send_owned(peer, tag, stamp::bytes(8, tag))).collect();
    for request in requests {
        request.wait().0.unwrap();
    }
}

// Calls that wait, beside receives that were posted before.

/// The tags of receives that are posted, and those that nothing is posted for.
const TAKEN: u64 = 1 << 40;

/// A message goes to the receive that was posted first, also where a call waits for any.
#[test]
fn a_call_comes_after_what_was_posted_before() {
    let (a, from_b, b, to_a) = pair("matching", Endpoint::builder(), Endpoint::builder());
    let mut bytes = [0; 600];
    for count in [1, 5, 64] {
        for (source, len) in [(Source::Peer(from_b), 8), (Source::Any, 8), (Source::Any, 600)] {
            let mut posted: Vec<_> =
                (0..count).map(|tag| a.recv_owned(source, TAKEN | tag, vec![0; len])).collect();
            // One that is posted for, and two that are not.
            for tag in 0..count {
                b.send(to_a, tag, &stamp::bytes(len, tag)).unwrap();
                b.send(to_a, TAKEN | tag, &stamp::bytes(len, !tag)).unwrap();
                b.send(to_a, tag, &stamp::bytes(len, tag)).unwrap();
                for _ in 0..2 {
                    let any = TagMatch::any();
                    let received = a.recv_into(Source::Peer(from_b), any, &mut bytes).unwrap();
                    assert_eq!((received.tag, received.len), (tag, len as u64));
                    stamp::check(&bytes[..len], tag);
                }
                let (received, bytes) = posted.remove(0).try_wait().expect("it was there before");
                assert_eq!(received.unwrap().tag, TAKEN | tag);
                stamp::check(&bytes, !tag);
            }
        }
    }
}
