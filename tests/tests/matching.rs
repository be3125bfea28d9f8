//! Which message goes to which receive: masks, any source, probes, cancelling, truncation, order,
//! messages in parts, very long ones, and very many.

use std::{
    io::{IoSlice, IoSliceMut},
    time::Duration,
};

use pinfold::{Endpoint, Error, Path, PathSet, PeerId, SendRequest, Source, TagMatch};
use pinfold_tests::{
    Aligned, Args, Stage,
    baseline::meminfo_bytes,
    role::{self, say},
    skip::skip,
    stamp::{self, Random},
};

pinfold_tests::roles!(
    masked_hub,
    masked_leaf,
    probing,
    probed,
    cutting,
    cut,
    ordered,
    ordering,
    in_parts,
    of_parts,
    taking,
    taken,
    huge_sink,
    huge_source,
    posting,
    answering,
    keeping,
    piling
);

const GO: u64 = u64::MAX;
const DONE: u64 = u64::MAX - 1;

/// Waits for word from the other side.
fn await_go(endpoint: &Endpoint, peer: PeerId) {
    assert_eq!(&*endpoint.recv(peer, GO).unwrap(), b"go");
}

fn go(endpoint: &Endpoint, peer: PeerId) {
    endpoint.send(peer, GO, b"go").unwrap();
}

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
    // By number of the leaf.
    leaves
        .sort_by_cached_key(|leaf| endpoint.recv(*leaf, TagMatch::masked(0, 0xff)).unwrap().tag());
    let leaf_of = |peer| leaves.iter().position(|leaf| *leaf == peer).unwrap() as u64;

    // All of it unexpected.
    leaves.iter().for_each(|leaf| go(&endpoint, *leaf));
    for leaf in &leaves {
        endpoint.probe_wait(*leaf, DONE).unwrap();
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
    assert_eq!(endpoint.probe(Source::Any, TagMatch::any()).unwrap(), None);

    // All of it posted before: one number exactly, then two classes from each leaf and two from
    // any. Three receives are left over, for the numbers that the exact ones take.
    let mut exact = Vec::new();
    for leaf in &leaves {
        exact.push((*leaf, endpoint.recv_message(*leaf, masked_tag(1, 7))));
    }
    let mut of_class = Vec::new();
    for _ in 0..OF_CLASS {
        for wanted in 0..CLASSES {
            for leaf in &leaves {
                let from = if wanted < 2 { Source::Peer(*leaf) } else { Source::Any };
                of_class.push((from, wanted, endpoint.recv_message(from, class(wanted))));
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
    // A send that nobody takes can be taken back, as long as it is in our memory.
    let mut request = endpoint.send_owned(peer, 100, stamp::bytes(3 << 20, 0));
    assert!(request.try_wait().is_none());
    go(&endpoint, peer);
    await_go(&endpoint, peer);
    assert!(request.cancel());
    assert!(matches!(request.wait().0, Err(Error::Cancelled)));
    go(&endpoint, peer);
    // One that was taken cannot.
    let mut request = endpoint.send_owned(peer, 101, stamp::bytes(3 << 20, 101));
    await_go(&endpoint, peer);
    request.cancel();
    let (result, bytes) = request.wait();
    assert_eq!(result.unwrap().bytes, 3 << 20);
    stamp::check(&bytes, 101);
    // One whose cancelling crosses with the receive ends one way on both sides.
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
        assert_eq!(endpoint.probe(peer, tag).unwrap(), None);
        go(&endpoint, peer);
        let envelope = endpoint.probe_wait(peer, TagMatch::any()).unwrap();
        assert_eq!((envelope.peer, envelope.tag, envelope.len), (peer, tag, len as u64));
        // It is still there, and only under its tag.
        assert_eq!(endpoint.probe(Source::Any, tag).unwrap(), Some(envelope));
        assert_eq!(endpoint.probe(peer, tag + 1).unwrap(), None);
        stamp::check(&endpoint.recv(peer, envelope.tag).unwrap(), tag);
        assert_eq!(endpoint.probe(peer, TagMatch::any()).unwrap(), None);
    }
    // Receives that were taken back take nothing.
    let mut never = endpoint.recv_owned(peer, TagMatch::any(), vec![0; 100]);
    let mut neither = endpoint.recv_message(Source::Any, 100);
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
    assert_eq!(endpoint.probe_wait(peer, 100).unwrap().len, 3 << 20);
    go(&endpoint, peer);
    await_go(&endpoint, peer);
    assert_eq!(endpoint.probe(peer, 100).unwrap(), None, "it was taken back");
    endpoint.probe_wait(peer, 101).unwrap();
    let request = endpoint.recv_message(peer, 101);
    go(&endpoint, peer);
    stamp::check(&request.wait().unwrap(), 101);
    let mut whole = 0u32;
    for round in 0..200u64 {
        let mut request = endpoint.recv_message(peer, 102);
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

// Truncation.

#[test]
fn truncation() {
    let stage = Stage::new(60);
    stage.play([stage.role("cut"), stage.role("cutting")]);
}

const CUT_LENGTHS: [usize; 10] = [1, 8, 56, 57, 2048, 2049, 9000, 100_000, 300_001, (2 << 20) + 5];
/// `None`: as the library likes.
const CUT_BY: [Option<Path>; 3] = [None, Some(Path::Eager), Some(Path::Cma)];

fn cutting(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "cut");
    let has_cma = endpoint.peer(peer).unwrap().paths.contains(Path::Cma);
    for by in CUT_BY {
        for len in CUT_LENGTHS {
            for _ in 0..2 * rooms(len).len() {
                await_go(&endpoint, peer);
                let memory = stamp::bytes(len, len as u64);
                let by = by.filter(|by| has_cma || *by != Path::Cma);
                let result = match by {
                    None => endpoint.send(peer, 1, &memory),
                    Some(path) => endpoint.send_by(path, peer, 1, &memory),
                };
                // To its sender a message that was cut is a message that was sent.
                assert_eq!(result.unwrap().bytes, len as u64);
                endpoint.send(peer, 1, b"next").unwrap();
            }
        }
    }
}

fn rooms(len: usize) -> [usize; 4] {
    [0, 1.min(len - 1), len / 2, len - 1]
}

fn cut(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "cut");
    for by in CUT_BY {
        for len in CUT_LENGTHS {
            for room in rooms(len) {
                for is_posted in [false, true] {
                    let mut memory = Aligned::new(room, 7);
                    let result = if is_posted {
                        let request = endpoint.recv_owned(peer, 1, memory.into_bytes());
                        go(&endpoint, peer);
                        let (result, bytes) = request.wait();
                        memory = Aligned::from_bytes(bytes);
                        result
                    } else {
                        go(&endpoint, peer);
                        endpoint.probe_wait(peer, 1).unwrap();
                        endpoint.recv_into(peer, 1, memory.get_mut())
                    };
                    let what = format!("{len} bytes by {by:?} into {room}, posted: {is_posted}");
                    match result {
                        Err(Error::Truncated {
                            len: true_len,
                            capacity,
                            peer: from,
                            tag,
                            receipt,
                        }) => {
                            assert_eq!((true_len, capacity), (len as u64, room as u64), "{what}");
                            assert_eq!((from, tag), (peer, 1), "{what}");
                            assert_eq!(receipt.bytes, room as u64, "{what}");
                        }
                        other => panic!("{what}: {other:?}"),
                    }
                    memory.check_guards();
                    stamp::check(memory.get(), len as u64);
                    assert_eq!(&*endpoint.recv(peer, 1).unwrap(), b"next", "{what}");
                }
            }
        }
    }
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
                // In order, the receiver takes whatever comes: a call that blocks is no harm.
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

// Messages in parts.

#[test]
fn parts_by_any_path() {
    let stage = Stage::new(60);
    stage.play([stage.role("in_parts"), stage.role("of_parts")]);
}

#[test]
fn parts_by_the_ring() {
    let stage = Stage::new(60);
    stage.play(["in_parts", "of_parts"].map(|role| stage.role(role).with("paths", "inline,eager")));
}

#[test]
fn parts_by_cma() {
    let stage = Stage::new(60);
    stage.play(["in_parts", "of_parts"].map(|role| stage.role(role).with("paths", "cma,eager")));
}

/// The lengths of the parts of both sides.
fn parts() -> Vec<(Vec<usize>, Vec<usize>)> {
    let mut random = Random::new(77);
    let mut all = vec![
        (vec![], vec![]),
        (vec![0], vec![]),
        (vec![], vec![0, 0]),
        (vec![0, 0, 5, 0], vec![0, 1, 0, 4]),
        (vec![1; 56], vec![56]),
        (vec![57], vec![1; 57]),
        (vec![1; 3000], vec![7; 429]),
        (vec![4096; 300], vec![100_000; 13]),
        (vec![1 << 20, 0, 1, 1 << 20], vec![3; 5000]),
        (vec![333; 10_000], vec![1 << 20; 4]),
        (vec![10 << 20], vec![5 << 20, 1, 5 << 20]),
    ];
    for _ in 0..60 {
        let mut some = |most: u64| -> Vec<usize> {
            let count = random.below(200);
            (0..count)
                .map(|_| if random.below(4) == 0 { 0 } else { random.below(most) as usize })
                .collect()
        };
        let (from, to) = (some(9000), some(20_000));
        all.push((from, to));
    }
    // Room for all of it, mostly; where there is not, it is cut.
    all
}

/// `bytes`, cut into pieces of these lengths.
fn split<'a>(mut bytes: &'a [u8], lens: &[usize]) -> Vec<&'a [u8]> {
    let parts = lens.iter().map(|len| {
        let (part, rest) = bytes.split_at(*len);
        bytes = rest;
        part
    });
    parts.collect()
}

fn part_paths(args: &Args) -> PathSet {
    args.paths("paths")
}

fn of_parts(args: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder().paths(part_paths(args)), "parts");
    for (i, (from, _)) in parts().into_iter().enumerate() {
        let memory = stamp::bytes(from.iter().sum(), i as u64);
        let pieces: Vec<IoSlice> = split(&memory, &from).into_iter().map(IoSlice::new).collect();
        let receipt = endpoint.send_vectored(peer, i as u64, &pieces).unwrap();
        assert_eq!(receipt.bytes, memory.len() as u64);
    }
}

fn in_parts(args: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder().paths(part_paths(args)), "parts");
    for (i, (from, to)) in parts().into_iter().enumerate() {
        let len: usize = from.iter().sum();
        let room: usize = to.iter().sum();
        // Each part in a box of its own, so that an overrun is seen.
        let mut pieces: Vec<Aligned> = to.iter().map(|len| Aligned::new(*len, len % 5)).collect();
        let mut slices: Vec<IoSliceMut> =
            pieces.iter_mut().map(|piece| IoSliceMut::new(piece.get_mut())).collect();
        if i % 2 == 1 {
            endpoint.probe_wait(peer, i as u64).unwrap();
        }
        match endpoint.recv_vectored(peer, i as u64, &mut slices) {
            Ok(received) => assert_eq!(received.len, len as u64, "case {i}"),
            Err(Error::Truncated { len: true_len, capacity, .. }) => {
                assert!(room < len, "case {i}");
                assert_eq!((true_len, capacity), (len as u64, room as u64), "case {i}");
            }
            Err(error) => panic!("case {i}: {error}"),
        }
        let mut whole = Vec::new();
        for piece in &pieces {
            piece.check_guards();
            whole.extend_from_slice(piece.get());
        }
        stamp::check(&whole[..len.min(room)], i as u64);
        assert!(whole[len.min(room)..].iter().all(|byte| *byte == 0), "case {i}");
    }
}

// Messages that own their bytes.

#[test]
fn messages_become_vectors() {
    let stage = Stage::new(30);
    stage.play([stage.role("taking"), stage.role("taken")]);
}

const TAKEN: [usize; 12] = [0, 1, 8, 55, 56, 57, 63, 64, 65, 1000, 70_000, 1 << 20];

fn taken(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "take");
    for (i, len) in TAKEN.into_iter().enumerate() {
        endpoint.send(peer, i as u64, &stamp::bytes(len, len as u64)).unwrap();
        endpoint.send(peer, i as u64, &stamp::bytes(len, len as u64)).unwrap();
    }
}

fn taking(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "take");
    for (i, len) in TAKEN.into_iter().enumerate() {
        let message = endpoint.recv(peer, i as u64).unwrap();
        assert_eq!((message.peer(), message.tag(), message.len()), (peer, i as u64, len));
        assert_eq!(message.receipt().bytes, len as u64);
        assert!(format!("{message:?}").contains("Message"));
        let bytes: Vec<u8> = message.into_vec();
        stamp::check(&bytes, len as u64);
        let again: Vec<u8> = endpoint.recv(peer, i as u64).unwrap().into();
        assert_eq!(bytes, again);
    }
}

// Beyond 4 GiB.

#[test]
fn beyond_four_gib() {
    let available = meminfo_bytes("MemAvailable");
    if available < 12 << 30 {
        skip(&format!("a message beyond 4 GiB needs 12 GiB of memory; {available} bytes are free"));
        return;
    }
    let stage = Stage::new(240);
    stage.play([stage.role("huge_sink"), stage.role("huge_source")]);
}

const HUGE: usize = (4 << 30) + 4097;
const STRIPE: usize = 64;
const EVERY: usize = (1 << 20) + 4093;

/// Where the marks lie: in every megabyte, and at both ends.
fn stripes() -> impl Iterator<Item = usize> {
    (0..HUGE - STRIPE).step_by(EVERY).chain([HUGE - STRIPE])
}

fn huge_source(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "huge");
    let mut memory = vec![0u8; HUGE];
    for path in [Path::Cma, Path::Eager] {
        for at in stripes() {
            stamp::fill(&mut memory[at..][..STRIPE], at as u64 ^ path as u64);
        }
        match endpoint.send_by(path, peer, path as u64, &memory) {
            Ok(receipt) => assert_eq!((receipt.path, receipt.bytes), (path, HUGE as u64)),
            Err(Error::PathRefused { why, .. }) if why.is_denial() => {
                role::skip(format_args!("a message beyond 4 GiB by {path}: {why}"));
                endpoint.send(peer, path as u64, b"").unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn huge_sink(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "huge");
    let mut memory = vec![0u8; HUGE];
    for path in [Path::Cma, Path::Eager] {
        let received = endpoint.recv_into(peer, path as u64, &mut memory).unwrap();
        if received.len == 0 {
            continue;
        }
        assert_eq!((received.receipt.path, received.len), (path, HUGE as u64));
        for at in stripes() {
            stamp::check(&memory[at..][..STRIPE], at as u64 ^ path as u64);
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
    // Not gone before the last is taken.
    assert!(matches!(endpoint.recv(peer, GO), Err(error) if error.is_peer_gone()));
}

#[test]
fn a_hundred_thousand_unexpected() {
    let stage = Stage::new(120);
    stage.play([stage.role("keeping"), stage.role("piling")]);
}

fn keeping(_: &Args) {
    let builder = Endpoint::builder().unexpected_bytes_max(1 << 30);
    let (endpoint, peer) = role::listen(builder, "many");
    endpoint.probe_wait(peer, MANY - 1).unwrap();
    assert!(endpoint.counters().unexpected >= MANY);
    for tag in (0..MANY).rev() {
        let message = endpoint.recv(peer, tag).unwrap();
        stamp::check(&message, tag);
    }
    assert_eq!(endpoint.probe(peer, TagMatch::any()).unwrap(), None);
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
