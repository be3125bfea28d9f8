//! Every way to send and to receive out of an arena; both directions at once; within one process,
//! and in a forked child.

use std::{
    io::{IoSlice, IoSliceMut},
    time::{Duration, Instant},
};

use pinfold::{Arena, Endpoint, Error, Path, Receipt, Refusal, Source, TagMatch};
use pinfold_tests::{
    Aligned, Args, Baseline, Stage,
    baseline::arenas,
    block_on,
    host::{Ended, fork, occupy, peek},
    role::{self, PATIENCE, await_go, go},
    stamp,
};

use super::{MIB, filled};

#[test]
fn in_every_way() {
    let stage = Stage::new(60);
    stage.play(["of_many_ways", "many_ways"].map(|role| stage.role(role)));
}

#[test]
fn in_every_way_beside_threads_that_drive() {
    let stage = Stage::new(60);
    let roles = ["of_many_ways", "many_ways"].map(|role| stage.role(role).with("dedicated", 1));
    stage.play(roles);
}

/// Lengths of one copier, of both, and of many chunks.
const LENS: [usize; 5] = [1, 5000, 700_000, 2 * MIB + 1, 6 * MIB];
const WAYS: u64 = 8;
const CANCELLED: u64 = 100;
const KEPT: u64 = 101;
const SCATTERED: u64 = 102;
const EMPTY: u64 = 103;

/// The tag of a message, also the seed of its contents.
fn tag(len: usize, way: u64) -> u64 {
    (len as u64) << 8 | way
}

pub fn many_ways(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "ways");
    let arena = Arena::new().unwrap();
    for len in LENS {
        for way in 0..WAYS {
            let buf = filled(&arena, len, tag(len, way));
            if way < 6 {
                await_go(&endpoint, peer);
            }
            let receipt = endpoint.send_by(Path::Mapped, peer, tag(len, way), &buf).unwrap();
            let what = format!("{len} bytes in way {way}: {receipt}");
            assert_eq!((receipt.path, receipt.bytes), (Path::Mapped, len as u64), "{what}");
            assert_eq!(receipt.refusals().next(), None, "{what}");
        }
    }
    // An empty one has a place, too.
    let buf = filled(&arena, 100, 0);
    let receipt = endpoint.send_by(Path::Mapped, peer, EMPTY, &buf[50..50]).unwrap();
    assert_eq!((receipt.path, receipt.bytes), (Path::Mapped, 0));
    // Parts are not read by mapping; one part is no parts.
    let buf = filled(&arena, 3 * MIB, SCATTERED);
    for cut in [0, 1, MIB] {
        let parts = [IoSlice::new(&buf[..cut]), IoSlice::new(&buf[cut..])];
        let receipt = endpoint.send_vectored(peer, SCATTERED, &parts).unwrap();
        if cut > 0 {
            assert!(receipt.path != Path::Mapped, "{receipt}");
            assert_eq!(receipt.refused(Path::Mapped), Some(Refusal::NotShareable), "{receipt}");
        }
    }
    // Memory that is no arena's, or lies across the end of a buffer.
    match endpoint.send_by(Path::Mapped, peer, 1, &stamp::bytes(5000, 1)) {
        Err(Error::PathRefused { path: Path::Mapped, why: Refusal::NotShareable }) => {}
        other => panic!("{other:?}"),
    }
    // One message that is taken back before it is received, and its memory used again; one that is
    // let go of, whose memory stays as it is although its arena is dropped.
    let mut request = endpoint.send_owned(peer, CANCELLED, filled(&arena, 3 * MIB, CANCELLED));
    assert!(request.cancel());
    let (result, mut buf) = request.wait();
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    buf.fill(0);
    let mut others = Arena::new().unwrap();
    let kept: Vec<_> = (0..3)
        .map(|number| {
            let request = endpoint.send_owned(peer, KEPT, filled(&others, 3 * MIB, number));
            others = Arena::new().unwrap();
            request
        })
        .collect();
    go(&endpoint, peer);
    for request in kept {
        assert_eq!(request.wait().0.unwrap().bytes, 3 << 20);
    }
    await_go(&endpoint, peer);
}

pub fn of_many_ways(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder(), "ways");
    for len in LENS {
        for way in 0..WAYS {
            let tag = tag(len, way);
            let mut memory = Aligned::new(len, way as usize);
            let mut request = None;
            match way {
                0 => {
                    let bytes = std::mem::replace(&mut memory, Aligned::new(0, 0)).into_bytes();
                    request = Some(endpoint.recv_owned(peer, tag, bytes));
                }
                6.. => {
                    let envelope = endpoint.probe(peer, tag).unwrap();
                    assert_eq!(envelope.len, len as u64);
                }
                _ => {}
            }
            if way < 6 {
                go(&endpoint, peer);
            }
            let checked = |bytes: &[u8], receipt: Receipt| {
                stamp::check(bytes, tag);
                assert_eq!(bytes.len(), len);
                receipt
            };
            let receipt = match way {
                0 => {
                    let (received, bytes) = request.expect("posted").wait();
                    memory = Aligned::from_bytes(bytes);
                    checked(memory.get(), received.unwrap().receipt)
                }
                1 => {
                    let message = endpoint.recv(Source::Any, TagMatch::any()).unwrap();
                    checked(&message, message.receipt())
                }
                2 => {
                    let message = block_on(endpoint.recv_request(peer, tag)).unwrap();
                    checked(&message, message.receipt())
                }
                3 => {
                    let (a, b) = memory.get_mut().split_at_mut(len / 3);
                    let mut parts = [IoSliceMut::new(a), IoSliceMut::new(b)];
                    let received = endpoint.recv_vectored(peer, tag, &mut parts).unwrap();
                    checked(memory.get(), received.receipt)
                }
                4 => cut(endpoint.recv_into(peer, tag, &mut memory.get_mut()[..len / 2]), len),
                5 => cut(endpoint.recv_into(peer, tag, &mut []), len),
                6 => {
                    let received = endpoint.recv_into(peer, tag, memory.get_mut()).unwrap();
                    checked(memory.get(), received.receipt)
                }
                _ => {
                    let message = endpoint.recv(Source::Any, TagMatch::masked(0, u64::MAX));
                    let message = message.unwrap();
                    checked(&message, message.receipt())
                }
            };
            if way == 4 {
                stamp::check(&memory.get()[..len / 2], tag);
                assert!(memory.get()[len / 2..].iter().all(|byte| *byte == 0));
            }
            memory.check_guards();
            assert_eq!((receipt.path, receipt.copied_kernel), (Path::Mapped, 0), "{receipt}");
            if len < 2 * MIB {
                assert_eq!(receipt.copied_user, receipt.bytes, "{receipt}");
            }
        }
    }
    let message = endpoint.recv(peer, EMPTY).unwrap();
    assert_eq!((message.len(), message.receipt().path), (0, Path::Mapped));
    for _ in 0..3 {
        stamp::check(&endpoint.recv(peer, SCATTERED).unwrap(), SCATTERED);
    }
    await_go(&endpoint, peer);
    assert_eq!(endpoint.try_probe(peer, CANCELLED).unwrap(), None);
    for number in 0..3 {
        stamp::check(&endpoint.recv(peer, KEPT).unwrap(), number);
    }
    go(&endpoint, peer);
}

/// The receipt of a message that did not fit.
fn cut(result: pinfold::Result<pinfold::Received>, len: usize) -> Receipt {
    match result {
        Err(Error::Truncated { len: whole, receipt, .. }) => {
            assert_eq!(whole, len as u64);
            receipt
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_directions_at_once() {
    let stage = Stage::new(60);
    stage.play([stage.role("mirror").with("first", 1), stage.role("mirror")]);
}

/// Sends the same number of messages at a time each way, out of several arenas.
pub fn mirror(args: &Args) {
    let (endpoint, peer) = match args.has("first") {
        true => role::listen(Endpoint::builder(), "mirror"),
        false => role::connect(Endpoint::builder(), "mirror"),
    };
    let own: Vec<Arena> = (0..3).map(|_| Arena::new().unwrap()).collect();
    for round in 0..12u64 {
        let lens = [40_000, 900_000, 2 * MIB, 5 * MIB + 3];
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for (i, len) in lens.into_iter().enumerate() {
            let seed = round << 8 | i as u64;
            receives.push((seed, endpoint.recv_owned(peer, seed, vec![0; len])));
            let buf = filled(&own[i % 3], len, seed);
            sends.push(endpoint.send_owned(peer, seed, buf));
        }
        for (seed, receive) in receives {
            let (received, bytes) = receive.wait();
            assert_eq!(received.unwrap().len, bytes.len() as u64);
            stamp::check(&bytes, seed);
        }
        for (i, send) in sends.into_iter().enumerate() {
            let (receipt, buf) = send.wait();
            assert_eq!(receipt.unwrap().bytes, lens[i] as u64);
            stamp::check(&buf, round << 8 | i as u64);
        }
    }
    let counters = endpoint.counters();
    assert!(counters.sent[Path::Mapped as usize].messages > 0, "{counters:?}");
}

#[test]
fn within_one_process() {
    Stage::new(60).role("twin").spawn().end_well();
}

/// An endpoint that is its own peer.
pub fn twin(_: &Args) {
    let before = Baseline::now();
    let endpoint = Endpoint::builder().listen("local:twin").build().unwrap();
    let there = endpoint.connect("local:twin").unwrap();
    let here = endpoint.accept_timeout(PATIENCE).unwrap();
    let arena = Arena::new().unwrap();
    for (number, len) in [(0, 9000), (1, 3 * MIB), (2, 20 * MIB)] {
        let (from, to) = (filled(&arena, len, number), arena.alloc(len).unwrap());
        let receive = endpoint.recv_owned(here, number, to);
        let receipt = endpoint.send_by(Path::Mapped, there, number, &from).unwrap();
        let (received, to) = receive.wait();
        assert_eq!((receipt.path, received.unwrap().receipt.path), (Path::Mapped, Path::Mapped));
        stamp::check(&to, number);
    }
    drop((arena, endpoint));
    before.returns(PATIENCE);
}

#[test]
fn in_a_forked_child() {
    let stage = Stage::new(60);
    stage.play([stage.role("forking"), stage.role("owner")]);
}

pub fn owner(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "fork");
    let arena = Arena::new().unwrap();
    for number in 0..2 {
        let buf = filled(&arena, MIB, number);
        assert_eq!(endpoint.send_by(Path::Mapped, peer, 1, &buf).unwrap().path, Path::Mapped);
    }
    await_go(&endpoint, peer);
}

/// The mapping is not in a child, where another mapping may lie instead.
pub fn forking(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "fork");
    stamp::check(&endpoint.recv(peer, 1).unwrap(), 0);
    let mapped = arenas();
    assert_eq!(mapped.len(), 1);
    let mut kept = Some(endpoint);
    let ended = fork(|| {
        if !arenas().is_empty() {
            return 1;
        }
        let page = mapped[0].at + mapped[0].len / 2;
        occupy(page);
        drop(kept.take());
        // Would be a signal if it had been unmapped.
        peek(page) as i32
    });
    assert_eq!(ended, Ended::Code(0));
    let endpoint = kept.expect("the parent's");
    assert_eq!(arenas(), mapped);
    stamp::check(&endpoint.recv(peer, 1).unwrap(), 1);
    go(&endpoint, peer);
    let end = Instant::now() + PATIENCE;
    while !arenas().is_empty() {
        let _ = endpoint.recv_timeout(Source::Any, 1, Duration::from_millis(1));
        assert!(Instant::now() < end);
    }
}
