//! Messages of all extents: too long for their room, in parts, as vectors, beyond 4 GiB.

use std::io::{IoSlice, IoSliceMut};

use pinfold::{Endpoint, Error, Path, PathSet};
use pinfold_tests::{
    Aligned, Args, Stage,
    huge::{self, HUGE},
    role::{self, await_go, go},
    stamp::{self, Random},
};

pinfold_tests::roles!(cutting, cut, in_parts, of_parts, taking, taken, huge_sink, huge_source);

// Truncation.

#[test]
fn truncation() {
    let stage = Stage::new(60);
    stage.play([stage.role("cut"), stage.role("cutting")]);
}

const CUT_LENGTHS: [usize; 10] = [1, 8, 56, 57, 2048, 2049, 9000, 100_000, 300_001, (2 << 20) + 5];
/// The paths that messages are cut on. `None`: as the library likes.
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
                        endpoint.probe(peer, 1).unwrap();
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
            endpoint.probe(peer, i as u64).unwrap();
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
    if !huge::is_possible() {
        return;
    }
    let stage = Stage::new(240);
    stage.play([stage.role("huge_sink"), stage.role("huge_source")]);
}

fn huge_source(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "huge");
    let mut memory = vec![0u8; HUGE];
    for path in [Path::Cma, Path::Eager] {
        huge::mark(&mut memory, path as u64);
        huge::touch(&memory);
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
        huge::check(&memory, path as u64);
    }
}
