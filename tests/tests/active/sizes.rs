//! Messages of every size and by every path come as they were sent, in order.

use std::sync::{Arc, Mutex};

use pinfold::{Active, Arena, Endpoint, Path, PeerId};
use pinfold_tests::{
    Args, Stage, role,
    stamp::{self, Random},
};

use super::{BYE, ECHO, SINK, WAYS, driven, until};

/// Lengths around all boundaries.
const LENGTHS: [usize; 20] = [
    0,
    1,
    7,
    8,
    9,
    47,
    48,
    49,
    55,
    56,
    57,
    1000,
    4095,
    4096,
    4097,
    20_000,
    65_536,
    300_000,
    1 << 20,
    3_000_001,
];

/// Messages in a row, of all lengths.
const ROW: u64 = 6000;

fn play(paths: &str) {
    let stage = Stage::new(120);
    for way in WAYS {
        stage.play(["keeper", "teller"].map(|name| {
            let role = driven(stage.role(name), way);
            if paths.is_empty() { role } else { role.with("paths", paths) }
        }));
    }
}

#[test]
fn by_all_paths() {
    play("");
}

#[test]
fn through_the_ring() {
    play("inline,eager");
}

#[test]
fn through_the_ring_without_inline() {
    play("eager");
}

#[test]
fn by_the_kernel() {
    play("cma");
}

/// A message of the row: its length, and the number in front of its contents.
fn row(number: u64) -> Vec<u8> {
    let len = match Random::new(number).below(100) {
        0 => 200_000,
        1..5 => 9000,
        5..20 => 1000,
        other => other as usize,
    };
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(stamp::bytes(len, number));
    bytes
}

pub fn keeper(args: &Args) {
    let came = Arc::new(Mutex::new(Vec::new()));
    let next = Arc::new(Mutex::new(0));
    let builder = args
        .builder()
        .handle(ECHO, |active: Active<'_>| {
            stamp::check(active.payload(), active.payload().len() as u64);
            assert!(active.is_request());
            match active.payload().len() % 2 {
                0 => active.reply(active.payload()).unwrap(),
                _ => active.reply_owned(active.payload().to_vec()).unwrap(),
            }
        })
        .handle(SINK, {
            let came = Arc::clone(&came);
            move |active: Active<'_>| {
                assert!(!active.is_request());
                assert_eq!(active.receipt().bytes, active.payload().len() as u64);
                stamp::check(active.payload(), active.payload().len() as u64);
                came.lock().unwrap().push((active.payload().len(), active.receipt().path));
                // A reply to a call does nothing.
                active.reply(b"?").unwrap();
            }
        })
        .handle(SINK + 1, {
            let next = Arc::clone(&next);
            move |active: Active<'_>| {
                let mut next = next.try_lock().expect("one of a peer at a time");
                assert!(active.payload() == row(*next), "message {next} is another");
                *next += 1;
            }
        });
    let (endpoint, peer) = role::listen(builder, "keeper");
    endpoint.recv(peer, BYE).unwrap();
    let came = came.lock().unwrap();
    let lengths: Vec<usize> = came.iter().map(|(len, _)| *len).collect();
    let expected: Vec<usize> = LENGTHS.iter().flat_map(|len| [*len, *len]).collect();
    assert_eq!(lengths, expected);
    let inline = args.paths("paths").contains(Path::Inline);
    for (len, path) in came.iter() {
        assert_eq!(*path == Path::Inline, inline && *len <= 48, "{len} bytes by {path}");
    }
    assert_eq!(*next.lock().unwrap(), ROW);
    until(&endpoint, || endpoint.counters().handled == 5 * LENGTHS.len() as u64 + ROW + 1);
    let counters = endpoint.counters();
    assert_eq!((counters.unhandled, counters.handlers_panicked), (0, 0));
    endpoint.send(peer, BYE, b"").unwrap();
}

fn tell(endpoint: &Endpoint, peer: PeerId, len: usize) {
    let bytes = stamp::bytes(len, len as u64);
    let receipt = endpoint.call(peer, SINK, &bytes).unwrap();
    assert_eq!(receipt.bytes, len as u64);
    let (receipt, back) = endpoint.call_owned(peer, SINK, bytes.clone()).wait();
    assert_eq!(receipt.unwrap().bytes, len as u64);
    assert_eq!(back, bytes);

    let answer = endpoint.request(peer, ECHO, &bytes).wait().unwrap();
    assert!(*answer == *bytes);
    assert_eq!((answer.peer(), answer.tag()), (peer, ECHO.into()));
    assert_eq!(answer.receipt().bytes, len as u64);
    let answer = pinfold_tests::block_on(endpoint.request_owned(peer, ECHO, bytes.clone()));
    assert!(*answer.unwrap() == *bytes);
    // The message goes out of an arena, where that makes a difference.
    let arena = Arena::new().unwrap();
    let mut buf = arena.alloc(len.max(1)).unwrap();
    let answer = if len > 0 {
        stamp::fill(&mut buf, len as u64);
        endpoint.request_owned(peer, ECHO, buf).wait().unwrap()
    } else {
        endpoint.request_owned(peer, ECHO, &b""[..]).wait().unwrap()
    };
    assert!(*answer == *bytes);
}

pub fn teller(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "keeper");
    for len in LENGTHS {
        tell(&endpoint, peer, len);
    }
    let mut owned = Vec::new();
    for number in 0..ROW {
        let bytes = row(number);
        match number % 3 {
            0 => assert!(endpoint.call(peer, SINK + 1, &bytes).is_ok()),
            _ => owned.push(endpoint.call_owned(peer, SINK + 1, bytes)),
        }
        if owned.len() > 40 {
            owned.drain(..).for_each(|request| assert!(request.wait().0.is_ok()));
        }
    }
    owned.drain(..).for_each(|request| assert!(request.wait().0.is_ok()));
    // Behind all of them.
    endpoint.request(peer, ECHO, b"").wait().unwrap();
    endpoint.send(peer, BYE, b"").unwrap();
    endpoint.recv(peer, BYE).unwrap();
}
