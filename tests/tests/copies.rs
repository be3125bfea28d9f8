//! Bulk copies: every one through the handler, counted, and by the algorithm that was asked for.

use std::io::IoSlice;

use pinfold::{
    Arena, Endpoint, Path, PathSet, Receipt,
    copy::{self, Algorithm, Counts},
    status,
};
use pinfold_tests::{
    Args, Stage,
    baseline::segments,
    host::peek,
    role::{self, await_go, go},
    stamp,
};

pinfold_tests::roles!(source, sink, asking, answering);

/// Copies as the library likes, or by one algorithm for everything.
#[test]
fn as_the_plan_says() {
    play("eager", "");
}

#[test]
fn by_the_algorithm_that_is_insisted_on() {
    for path in ["eager", "mapped"] {
        for algorithm in ["word+streaming", "libc"] {
            play(path, algorithm);
        }
    }
}

#[test]
fn by_the_algorithm_in_the_environment() {
    let stage = Stage::new(60);
    let cast = |role| {
        let role = stage.role(role).with("path", "eager").with("by", "word");
        role.env("PINFOLD_COPY", "word").with("insist", "no")
    };
    stage.play(["sink", "source"].map(cast));
}

fn play(path: &str, by: &str) {
    let stage = Stage::new(60);
    stage.play(["sink", "source"].map(|role| stage.role(role).with("path", path).with("by", by)));
}

const COUNT: usize = 200;
const LENGTHS: [usize; 5] = [100, 2047, 2048, 40_000, 300_001];

fn paths(args: &Args) -> PathSet {
    match args.text("path") {
        "eager" => PathSet::only(&[Path::Eager]),
        // Another algorithm has to be there; it is never asked for.
        _ => PathSet::only(&[Path::Mapped, Path::Eager]),
    }
}

fn insist(args: &Args) -> Option<Algorithm> {
    let algorithm = (!args.text("by").is_empty()).then(|| args.text("by").parse().unwrap());
    if let Some(algorithm) = algorithm.filter(|_| !args.has("insist")) {
        copy::insist(algorithm).unwrap();
        // The same again is no contradiction; another is.
        copy::insist(algorithm).unwrap();
        let other = if algorithm == Algorithm::LIBC { "word" } else { "libc" };
        let why = copy::insist(other.parse().unwrap()).unwrap_err().to_string();
        assert!(why.contains("once there is a plan"), "{why}");
    }
    algorithm
}

/// Checks the bytes that an endpoint has copied in bulk: `bytes` bytes, but for the short ends of
/// long messages.
fn check(endpoint: &Endpoint, by: Option<Algorithm>, bytes: u64) {
    let Counts { copied, by_size, moved, .. } = endpoint.copies();
    let sum = |counts: &[copy::Count]| counts.iter().map(|count| count.bytes).sum::<u64>();
    let counted = sum(&copied);
    assert_eq!((sum(&by_size), moved), (counted, copy::Count::default()));
    assert!((bytes / 10 * 9..=bytes).contains(&counted), "{counted} of {bytes}");
    if let Some(algorithm) = by {
        assert_eq!(copied[usize::from(algorithm.id())].bytes, counted, "not all by {algorithm}");
    }
    let counters = endpoint.counters();
    assert_eq!(counters.copied_bulk, counted);
    assert!(counters.copied_bulk <= counters.copied_user, "{counters:?}");
    // Other processes see the same figures.
    let seen = status::endpoints_of(std::process::id()).unwrap();
    let [seen] = &seen.endpoints[..] else { panic!("{seen:?}") };
    assert_eq!((&seen.copies.copied, &seen.copies.by_size), (&copied, &by_size));
    assert_eq!(seen.counters.copied_bulk, counted);
    let streamed = Algorithm::all().filter(|it| it.stores() == copy::Stores::Streaming);
    let streamed = streamed.map(|it| copied[usize::from(it.id())].bytes).sum::<u64>();
    assert_eq!(counters.copied_streamed, streamed);
}

/// Checks the algorithm in the receipt of a message of `len` bytes.
fn check_receipt(receipt: &Receipt, len: usize, by: Option<Algorithm>) {
    let named = receipt.copied_by();
    // A sender copies none of the bytes that its receiver copies alone.
    assert_eq!(named.is_some(), receipt.copied_user > 0, "{receipt}");
    if let Some(named) = named {
        match by {
            // Parts as short as this are not worth a choice.
            _ if bulk(len) == 0 => assert_eq!(named, Algorithm::LIBC, "{len}: {receipt}"),
            Some(algorithm) => assert_eq!(named, algorithm, "{len}: {receipt}"),
            None => assert!(named.is_supported(), "{receipt}"),
        }
        assert!(receipt.to_string().contains(&format!("copied here by {named},")), "{receipt}");
    }
}

/// Bytes of a message of `len` for whose copy an algorithm is chosen.
fn bulk(len: usize) -> u64 {
    if len < 2048 { 0 } else { len as u64 }
}

fn source(args: &Args) {
    let by = insist(args);
    let (endpoint, peer) = role::connect(Endpoint::builder().paths(paths(args)), "copies");
    let arena = Arena::new().unwrap();
    let mut memory = arena.alloc_aligned(300_001, 64).unwrap();
    let mut copied = 0;
    for number in 0..COUNT {
        let len = LENGTHS[number % LENGTHS.len()];
        stamp::fill(&mut memory[..len], number as u64);
        let receipt = match args.text("path") {
            "eager" => endpoint.send(peer, 1, &memory[..len]).unwrap(),
            _ => endpoint.send_by(Path::Mapped, peer, 1, &memory[..len]).unwrap(),
        };
        if receipt.path == Path::Eager {
            assert_eq!(receipt.copied_user, len as u64);
            copied += bulk(len);
        }
        check_receipt(&receipt, len, by);
    }
    go(&endpoint, peer);
    check(&endpoint, by, copied);
    await_go(&endpoint, peer);
}

fn sink(args: &Args) {
    let by = insist(args);
    let (endpoint, peer) = role::listen(Endpoint::builder().paths(paths(args)), "copies");
    let mut memory = vec![0; 300_001];
    let mut copied = 0;
    for number in 0..COUNT {
        let len = LENGTHS[number % LENGTHS.len()];
        let received = endpoint.recv_into(peer, 1, &mut memory[..len]).unwrap();
        stamp::check(&memory[..len], number as u64);
        // A message that came before it was asked for is copied twice.
        let here = received.receipt.copied_user;
        assert!((len as u64..=2 * len as u64).contains(&here), "{here} of {len}");
        check_receipt(&received.receipt, len, by);
        copied += if bulk(len) == 0 { 0 } else { here };
    }
    await_go(&endpoint, peer);
    check(&endpoint, by, copied);
    go(&endpoint, peer);
}

/// The receiver of a long message says which copies it took, where its sender asks.
#[test]
fn what_long_messages_take_is_answered() {
    let stage = Stage::new(60);
    stage.play(["answering", "asking"].map(|role| stage.role(role)));
}

const LONG: usize = 1 << 20;
const LONG_COUNT: u64 = 40;

/// The places of a direction's answers in its part of the control page, and the beginnings of these
/// parts.
const LAPS: [usize; 2] = [1000, 1008];
const CONTROL: [usize; 2] = [0, 1024];

fn asking(_: &Args) {
    let only_copied = PathSet::only(&[Path::Eager]);
    let (endpoint, peer) = role::connect(Endpoint::builder().paths(only_copied), "long");
    let [segment] = segments()[..] else { panic!("one pair") };
    let answered = || {
        let words = CONTROL.map(|control| LAPS.map(|lap| peek(segment.at + control + lap)));
        let answered = |word: &&u64| **word >> 56 >= 0x80 && **word << 8 != 0;
        words.iter().flatten().filter(answered).count()
    };
    // Short parts are copied one by one, which says nothing of long ones.
    for number in 0..LONG_COUNT {
        let message = stamp::bytes(LONG, number);
        let parts: Vec<IoSlice> = message.chunks(4096).map(IoSlice::new).collect();
        assert_eq!(endpoint.send_vectored(peer, 1, &parts).unwrap().path, Path::Eager);
    }
    await_go(&endpoint, peer);
    assert_eq!(answered(), 0);
    for number in 0..LONG_COUNT {
        let message = stamp::bytes(LONG, number);
        assert_eq!(endpoint.send(peer, 1, &message).unwrap().path, Path::Eager);
    }
    await_go(&endpoint, peer);
    // The answers of this direction, both; the other had no long messages.
    assert_eq!(answered(), LAPS.len());
    go(&endpoint, peer);
}

fn answering(_: &Args) {
    let only_copied = PathSet::only(&[Path::Eager]);
    let (endpoint, peer) = role::listen(Endpoint::builder().paths(only_copied), "long");
    let mut memory = vec![0; LONG];
    for _ in 0..2 {
        for number in 0..LONG_COUNT {
            endpoint.recv_into(peer, 1, &mut memory).unwrap();
            stamp::check(&memory, number);
        }
        go(&endpoint, peer);
    }
    await_go(&endpoint, peer);
}
