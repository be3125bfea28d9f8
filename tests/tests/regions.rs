//! One-sided operations: their effect, their limits, their order among many, and their end.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use pinfold::{
    Endpoint, Error, Path, PathSet, PeerId, Refusal, Region, RegionKey, RemoteRegion, Rights,
};
use pinfold_tests::{
    Args, Baseline, Stage,
    baseline::{Mapped, writable_arenas},
    host::{self, Ended, fork},
    pair,
    role::{self, PATIENCE, hear, say},
    stage::all_end_well,
    stamp::{self, Random},
};

pinfold_tests::roles!(
    owner, user, counted, counter, revoker, writer, scribbler, dies, outlives, forker, churner,
    churned
);

/// Sends a region's key to a peer.
fn hand_over(endpoint: &Endpoint, peer: PeerId, region: &Region) {
    endpoint.send(peer, 1, &region.key().expect("it stands").to_bytes()).unwrap();
}

fn key_from(endpoint: &Endpoint, peer: PeerId) -> RegionKey {
    RegionKey::from_bytes(&endpoint.recv(peer, 1).unwrap()).unwrap()
}

/// Answers questions for a region until the peer says so.
fn serve(endpoint: &Endpoint, peer: PeerId) {
    endpoint.recv(peer, 99).unwrap();
}

#[test]
fn reads_and_writes() {
    let stage = Stage::new(120);
    stage.play([stage.role("owner"), stage.role("user")]);
}

const LEN: usize = (1 << 20) + 77;

fn owner(_: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::listen(Endpoint::builder(), "regions");
    let mut region = endpoint.region(LEN, Rights::ReadWrite).unwrap();
    let readable = endpoint.region(5000, Rights::Read).unwrap();
    assert_eq!((region.len(), region.rights()), (LEN, Rights::ReadWrite));
    readable.write(0, &stamp::bytes(5000, 3)).unwrap();
    hand_over(&endpoint, peer, &region);
    hand_over(&endpoint, peer, &readable);
    serve(&endpoint, peer);
    // What it wrote last is here.
    stamp::check(&region.to_vec().unwrap(), 44);
    assert!(matches!(region.read(LEN, &mut [0]), Err(Error::OutOfBounds { .. })));
    assert!(matches!(region.write(usize::MAX, b"x"), Err(Error::OutOfBounds { .. })));
    // A word that the peer polls while this side writes, and the other way round.
    endpoint.send(peer, 2, b"seen").unwrap();
    for round in 1..2000u64 {
        while region.word64(64).unwrap().load(Ordering::Acquire) != round {}
        region.word64(0).unwrap().store(round, Ordering::Release);
    }
    serve(&endpoint, peer);
    let old = region.key().unwrap();
    region.revoke().unwrap();
    assert_eq!(region.key(), None);
    let contents = region.to_vec().unwrap();
    endpoint.send(peer, 2, b"revoked").unwrap();
    serve(&endpoint, peer);
    assert!(region.to_vec().unwrap() == contents, "it changed after it was revoked");
    // It can be used again, by another key only.
    let new = region.expose().unwrap();
    assert_ne!(old, new);
    hand_over(&endpoint, peer, &region);
    serve(&endpoint, peer);
    drop((region, readable));
    endpoint.send(peer, 2, b"dropped").unwrap();
    serve(&endpoint, peer);
    drop(endpoint);
    before.returns(PATIENCE);
}

fn user(_: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::connect(Endpoint::builder(), "regions");
    let key = key_from(&endpoint, peer);
    let region = endpoint.open_region(peer, &key).unwrap();
    let readable = endpoint.open_region(peer, &key_from(&endpoint, peer)).unwrap();
    assert_eq!(
        (region.len(), region.rights(), region.peer()),
        (LEN as u64, Rights::ReadWrite, peer)
    );
    assert_eq!((readable.len(), readable.rights()), (5000, Rights::Read));
    assert_eq!(RegionKey::from_bytes(&key.to_bytes()).unwrap(), key);
    assert!(matches!(RegionKey::from_bytes(b"short"), Err(Error::BadKey)));
    let guesses = [key.to_bytes().map(|byte| byte ^ 0x80), [0; 24], [0xff; 24]];
    for guess in guesses {
        let guess = RegionKey::from_bytes(&guess).unwrap();
        assert!(matches!(endpoint.open_region(peer, &guess), Err(Error::BadKey)));
    }
    // Every size and alignment, against a model.
    let mut model = vec![0; LEN];
    let mut random = Random::new(5);
    for len in [0, 1, 3, 7, 8, 9, 63, 64, 65, 100, 4096, 4097, 100_000] {
        for _ in 0..20 {
            let at = random.below((LEN - len) as u64 + 1) as usize;
            let data = stamp::bytes(len, at as u64);
            let receipt = region.write(at as u64, &data).unwrap();
            assert_eq!((receipt.path, receipt.bytes), (Path::Mapped, len as u64));
            assert_eq!((receipt.copied_user, receipt.copied_kernel), (len as u64, 0));
            model[at..at + len].copy_from_slice(&data);
            let mut back = vec![0; len];
            region.read(at as u64, &mut back).unwrap();
            assert_eq!(back, data);
        }
    }
    let mut all = vec![0; LEN];
    region.read(0, &mut all).unwrap();
    assert!(all == model, "something else was written, too");
    // Parts, of which none is written if one cannot be.
    region.write_vectored(&[(10, b"one"), (4099, b"two"), (20, b"")]).unwrap();
    let (mut one, mut two) = ([0; 3], [0; 3]);
    region.read_vectored(&mut [(10, &mut one), (4099, &mut two)]).unwrap();
    assert_eq!((&one, &two), (b"one", b"two"));
    let beyond = region.write_vectored(&[(10, b"ten"), (LEN as u64 - 2, b"far")]);
    assert!(matches!(beyond, Err(Error::OutOfBounds { len: 3, .. })));
    region.read(10, &mut one).unwrap();
    assert_eq!(&one, b"one");
    for (offset, len) in [(LEN as u64, 1), (LEN as u64 + 1, 0), (u64::MAX, 2), (u64::MAX - 1, 1)] {
        let data = vec![0; len];
        assert!(matches!(region.write(offset, &data), Err(Error::OutOfBounds { .. })), "{offset}");
        let read = region.read(offset, &mut vec![0; len]);
        assert!(matches!(read, Err(Error::OutOfBounds { .. })), "{offset}");
        assert!(matches!(region.fetch_add(offset & !7, 1u64), Err(Error::OutOfBounds { .. })));
    }
    for offset in [1, 2, 4, 7, 9] {
        let add = region.fetch_add(offset, 1u64);
        assert!(matches!(add, Err(Error::Misaligned { size: 8, .. })), "{offset}");
    }
    assert!(region.fetch_add(4, 1u32).is_ok());
    // What may only be read.
    let mut bytes = vec![0; 5000];
    readable.read(0, &mut bytes).unwrap();
    stamp::check(&bytes, 3);
    assert!(matches!(readable.write(0, b"x"), Err(Error::ReadOnly)));
    assert!(matches!(readable.write_vectored(&[(0, b"x")]), Err(Error::ReadOnly)));
    assert!(matches!(readable.swap(0, 1u64), Err(Error::ReadOnly)));
    region.write(0, &stamp::bytes(LEN, 44)).unwrap();
    region.flush().unwrap();
    endpoint.send(peer, 99, b"").unwrap();
    endpoint.recv(peer, 2).unwrap();
    for round in 1..2000u64 {
        region.write(64, &round.to_ne_bytes()).unwrap();
        let mut word = [0; 8];
        while u64::from_ne_bytes(word) != round {
            region.read(0, &mut word).unwrap();
        }
    }
    endpoint.send(peer, 99, b"").unwrap();
    // After it was revoked nothing succeeds, and nothing has an effect.
    endpoint.recv(peer, 2).unwrap();
    revoked(&region);
    readable.read(0, &mut [0]).unwrap();
    assert!(matches!(endpoint.open_region(peer, &key), Err(Error::BadKey)));
    endpoint.send(peer, 99, b"").unwrap();
    let again = endpoint.open_region(peer, &key_from(&endpoint, peer)).unwrap();
    let clone = again.clone();
    again.write(5, b"again").unwrap();
    revoked(&region);
    endpoint.send(peer, 99, b"").unwrap();
    endpoint.recv(peer, 2).unwrap();
    for region in [again, readable] {
        assert!(matches!(region.read(0, &mut [0]), Err(Error::Revoked)));
    }
    thread::spawn(move || revoked(&clone)).join().unwrap();
    endpoint.send(peer, 99, b"").unwrap();
    assert!(endpoint.recv(peer, 5).unwrap_err().is_peer_gone());
    assert!(matches!(region.read(0, &mut [0]), Err(Error::Withdrawn)));
    drop(region);
    drop(endpoint);
    before.returns(PATIENCE);
}

fn revoked(region: &RemoteRegion) {
    assert!(matches!(region.write(0, b"late"), Err(Error::Revoked)));
    assert!(matches!(region.read(0, &mut [0]), Err(Error::Revoked)));
    assert!(matches!(region.fetch_add(0, 1u64), Err(Error::Revoked)));
    assert!(matches!(region.flush(), Err(Error::Revoked)));
}

/// The region as a peer in this process has it.
fn open(a: &Endpoint, b: &Endpoint, to_a: PeerId, region: &Region) -> RemoteRegion {
    thread::scope(|s| {
        let opens = s.spawn(|| b.open_region(to_a, &region.key().unwrap()).unwrap());
        while !opens.is_finished() {
            a.progress().unwrap();
        }
        opens.join().unwrap()
    })
}

#[test]
fn each_atomic_operation_does_what_it_says() {
    let (a, _, b, to_a) = pair("atomics", Endpoint::builder(), Endpoint::builder());
    let region = a.region(4096, Rights::ReadWrite).unwrap();
    let remote = open(&a, &b, to_a, &region);
    let mut random = Random::new(9);
    macro_rules! check {
        ($word:ty, $at:expr, $local:expr) => {
            let mut model: $word = 0;
            for step in 0..2000 {
                let with = (random.below(u64::MAX) >> random.below(64)) as $word;
                let other = random.below(4) as $word;
                let was = model;
                let got = match step % 8 {
                    0 => {
                        model = model.wrapping_add(with);
                        remote.fetch_add($at, with)
                    }
                    1 => {
                        model &= with | 0x55;
                        remote.fetch_and($at, with | 0x55)
                    }
                    2 => {
                        model |= with;
                        remote.fetch_or($at, with)
                    }
                    3 => {
                        model ^= with;
                        remote.fetch_xor($at, with)
                    }
                    4 => {
                        model = model.min(with);
                        remote.fetch_min($at, with)
                    }
                    5 => {
                        model = model.max(with);
                        remote.fetch_max($at, with)
                    }
                    6 => {
                        model = other;
                        remote.swap($at, other)
                    }
                    _ => {
                        if model == other {
                            model = with;
                        }
                        remote.compare_swap($at, other, with)
                    }
                };
                assert_eq!(got.unwrap(), was, "step {step} of {}", stringify!($word));
                assert_eq!($local.load(Ordering::SeqCst) as $word, model);
            }
        };
    }
    check!(u64, 8, region.word64(8).unwrap());
    check!(i64, 16, region.word64(16).unwrap());
    check!(u32, 4092, region.word32(4092).unwrap());
    check!(i32, 36, region.word32(36).unwrap());
    // Nothing beside them.
    for at in [0, 24, 28, 32, 40, 4088] {
        assert_eq!(region.word32(at).unwrap().load(Ordering::SeqCst), 0, "{at}");
    }
}

// Contention.

const COUNTERS: u64 = 6;
const STEPS: u64 = 20_000;

#[test]
fn atomic_operations_of_many_are_of_one_order() {
    let stage = Stage::new(120);
    let mut players = vec![stage.role("counted").spawn()];
    players[0].expect("listens");
    players.extend((0..COUNTERS).map(|me| stage.role("counter").with("me", me).spawn()));
    all_end_well(&mut players);
}

/// Words of the region, each with a cache line of its own.
const SUM: u64 = 0;
const CHAIN: u64 = 64;
const LOCK: u64 = 128;
const GUARDED: u64 = 192;
const MOST: u64 = 256;

fn counted(_: &Args) {
    let endpoint = Endpoint::listen("local:counted").unwrap();
    let region = endpoint.region(4096, Rights::ReadWrite).unwrap();
    say("listens");
    let peers: Vec<PeerId> =
        (0..COUNTERS).map(|_| endpoint.accept_timeout(PATIENCE).unwrap()).collect();
    for peer in &peers {
        hand_over(&endpoint, *peer, &region);
    }
    // Its owner takes part.
    let word = |at: u64| region.word64(at as usize).unwrap();
    for _ in 0..STEPS {
        word(SUM).fetch_add(1, Ordering::SeqCst);
        endpoint.progress().unwrap();
    }
    // What each saw: its sums, and the links of its chain.
    let mut sums = Vec::new();
    let mut links = Vec::new();
    for peer in &peers {
        let history = endpoint.recv(*peer, 3).unwrap();
        let words: Vec<u64> = history
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        let (sum, chain) = words.split_at(STEPS as usize);
        assert!(sum.is_sorted_by(|a, b| a < b), "a later sum is less");
        sums.extend_from_slice(sum);
        links.extend(chain.chunks_exact(2).map(|link| (link[0], link[1])));
    }
    // No two have added to the same sum, and none is lost.
    assert_eq!(word(SUM).load(Ordering::SeqCst), (COUNTERS + 1) * STEPS);
    sums.sort_unstable();
    assert!(sums.is_sorted_by(|a, b| a < b), "two have seen the same sum");
    // The swaps are one chain: each found what just one other had left, from 0 to the last.
    let mut next: std::collections::HashMap<u64, u64> = std::collections::HashMap::new();
    for (found, left) in &links {
        assert!(next.insert(*found, *left).is_none(), "two have found {found:#x}");
    }
    let (mut at, mut steps) = (0, 0);
    while let Some(left) = next.remove(&at) {
        (at, steps) = (left, steps + 1);
    }
    assert_eq!(steps, COUNTERS * STEPS);
    assert_eq!(at, word(CHAIN).load(Ordering::SeqCst));
    // What was added without an atomic operation, but under a lock made of one.
    assert_eq!(word(GUARDED).load(Ordering::SeqCst), COUNTERS * 1000);
    assert_eq!(word(MOST).load(Ordering::SeqCst), (COUNTERS - 1) << 32 | (STEPS - 1));
    for peer in peers {
        endpoint.send(peer, 4, b"").unwrap();
    }
}

fn counter(args: &Args) {
    let me: u64 = args.number("me");
    let endpoint = Endpoint::new().unwrap();
    let peer = endpoint.connect_wait("local:counted", PATIENCE).unwrap();
    let region = endpoint.open_region(peer, &key_from(&endpoint, peer)).unwrap();
    let mut history = Vec::new();
    for _ in 0..STEPS {
        history.push(region.fetch_add(SUM, 1u64).unwrap());
    }
    for step in 0..STEPS {
        let left = (me + 1) << 32 | step;
        history.extend([region.swap(CHAIN, left).unwrap(), left]);
        region.fetch_max(MOST, me << 32 | step).unwrap();
    }
    for _ in 0..1000 {
        while region.compare_swap(LOCK, 0, me + 1).unwrap() != 0 {
            thread::yield_now();
        }
        let mut word = [0; 8];
        region.read(GUARDED, &mut word).unwrap();
        region.write(GUARDED, &(u64::from_ne_bytes(word) + 1).to_ne_bytes()).unwrap();
        assert_eq!(region.swap(LOCK, 0).unwrap(), me + 1, "another was in, too");
    }
    let history: Vec<u8> = history.iter().flat_map(|word| word.to_ne_bytes()).collect();
    endpoint.send(peer, 3, &history).unwrap();
    endpoint.recv(peer, 4).unwrap();
}

// Revoked in mid-use.

const WRITERS: usize = 3;
const ROUNDS: usize = 25;
/// Large enough that moving it elsewhere takes a while.
const REVOKED: usize = 12 << 20;

#[test]
fn what_succeeded_came_before_it_was_revoked() {
    let stage = Stage::new(120);
    let mut players = vec![stage.role("revoker").spawn()];
    players[0].expect("listens");
    players.extend((0..WRITERS).map(|me| stage.role("writer").with("me", me).spawn()));
    players.push(stage.role("scribbler").spawn());
    all_end_well(&mut players);
}

fn revoker(_: &Args) {
    let endpoint = Endpoint::listen("local:revoker").unwrap();
    say("listens");
    let mut writers = [None; WRITERS];
    let mut scribbler = None;
    for _ in 0..=WRITERS {
        let peer = endpoint.accept_timeout(PATIENCE).unwrap();
        let me = endpoint.recv(peer, 7).unwrap();
        match me[0] as usize {
            me if me < WRITERS => writers[me] = Some(peer),
            _ => scribbler = Some(peer),
        }
    }
    let scribbler = scribbler.unwrap();
    let mut random = Random::new(1);
    for _ in 0..ROUNDS {
        let mut region = endpoint.region(REVOKED, Rights::ReadWrite).unwrap();
        for peer in writers.iter().flatten().chain([&scribbler]) {
            hand_over(&endpoint, *peer, &region);
        }
        for peer in writers.iter().flatten().chain([&scribbler]) {
            endpoint.recv(*peer, 8).unwrap();
        }
        let end = Instant::now() + Duration::from_micros(random.below(3000));
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        region.revoke().unwrap();
        let contents = region.to_vec().unwrap();
        for (me, peer) in writers.iter().enumerate() {
            let last = endpoint.recv(peer.unwrap(), 9).unwrap();
            let last = u64::from_ne_bytes(last[..].try_into().unwrap());
            let here = u64::from_ne_bytes(contents[me * 64..][..8].try_into().unwrap());
            // One more may have come that its writer was not told of.
            assert!((last..=last + 1).contains(&here), "writer {me}: {here}, but {last} succeeded");
        }
        // One that does not keep to the rules still writes to what it had.
        endpoint.send(scribbler, 10, b"").unwrap();
        endpoint.recv(scribbler, 10).unwrap();
        assert!(region.to_vec().unwrap() == contents, "it changed after it was revoked");
    }
    for peer in writers.iter().flatten().chain([&scribbler]) {
        endpoint.send(*peer, 1, b"end").unwrap();
    }
    for peer in writers.into_iter().flatten().chain([scribbler]) {
        assert!(endpoint.recv(peer, 5).unwrap_err().is_peer_gone());
    }
}

fn writer(args: &Args) {
    let me: usize = args.number("me");
    let endpoint = Endpoint::new().unwrap();
    let peer = endpoint.connect_wait("local:revoker", PATIENCE).unwrap();
    endpoint.send(peer, 7, &[me as u8]).unwrap();
    loop {
        let message = endpoint.recv(peer, 1).unwrap();
        let Ok(key) = RegionKey::from_bytes(&message) else { break };
        let region = endpoint.open_region(peer, &key).unwrap();
        endpoint.send(peer, 8, b"").unwrap();
        let mut last = 0u64;
        let error = loop {
            match region.write(me as u64 * 64, &(last + 1).to_ne_bytes()) {
                Ok(_) => last += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Revoked), "{error}");
        endpoint.send(peer, 9, &last.to_ne_bytes()).unwrap();
    }
}

fn scribbler(_: &Args) {
    let endpoint = Endpoint::new().unwrap();
    let peer = endpoint.connect_wait("local:revoker", PATIENCE).unwrap();
    endpoint.send(peer, 7, &[WRITERS as u8]).unwrap();
    loop {
        let message = endpoint.recv(peer, 1).unwrap();
        let Ok(key) = RegionKey::from_bytes(&message) else { break };
        let region = endpoint.open_region(peer, &key).unwrap();
        endpoint.send(peer, 8, b"").unwrap();
        endpoint.recv(peer, 10).unwrap();
        assert!(matches!(region.write(0, b"x"), Err(Error::Revoked)));
        let mut found = 0;
        for Mapped { at, len } in writable_arenas() {
            for offset in (0..len.min(REVOKED)).step_by(4096) {
                host::scribble(at + offset, u64::MAX);
            }
            found += 1;
        }
        assert!(found > 0, "no mapping is left to write to");
        endpoint.send(peer, 10, b"").unwrap();
    }
}

// Those who leave.

#[test]
fn an_owner_that_dies_is_noticed() {
    let stage = Stage::new(60);
    let mut outlives = stage.role("outlives").spawn();
    outlives.expect("listens");
    let mut dies = stage.role("dies").spawn();
    outlives.expect("has it");
    dies.kill();
    outlives.say("it is dead");
    outlives.end_well();
}

fn dies(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "outlives");
    let region = endpoint.region(100, Rights::ReadWrite).unwrap();
    hand_over(&endpoint, peer, &region);
    serve(&endpoint, peer);
}

fn outlives(_: &Args) {
    let before = Baseline::now();
    let endpoint = Endpoint::listen("local:outlives").unwrap();
    say("listens");
    let peer = endpoint.accept_timeout(PATIENCE).unwrap();
    let region = endpoint.open_region(peer, &key_from(&endpoint, peer)).unwrap();
    region.write(3, b"x").unwrap();
    say("has it");
    hear();
    assert!(endpoint.recv(peer, 5).unwrap_err().is_peer_gone());
    assert!(matches!(region.write(3, b"x"), Err(Error::Withdrawn)));
    assert!(matches!(region.fetch_add(8, 1u32), Err(Error::Withdrawn)));
    drop(region);
    drop(endpoint);
    before.returns(PATIENCE);
}

#[test]
fn many_regions_leave_nothing() {
    let stage = Stage::new(120);
    stage.play([stage.role("churner"), stage.role("churned")]);
}

fn churner(_: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::listen(Endpoint::builder(), "churn");
    let mut kept = Vec::new();
    for round in 0..300usize {
        let mut region = endpoint.region(1 + round * 97, Rights::ReadWrite).unwrap();
        hand_over(&endpoint, peer, &region);
        endpoint.recv(peer, 2).unwrap();
        assert_eq!(region.to_vec().unwrap()[0], round as u8);
        if round % 3 == 0 {
            region.revoke().unwrap();
        }
        kept.push(region);
        if round % 7 == 0 {
            kept.clear();
        }
    }
    drop(kept);
    endpoint.send(peer, 1, b"end").unwrap();
    assert!(endpoint.recv(peer, 5).unwrap_err().is_peer_gone());
    drop(endpoint);
    before.returns(PATIENCE);
}

fn churned(_: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::connect(Endpoint::builder(), "churn");
    let mut round = 0;
    while let Ok(key) = RegionKey::from_bytes(&endpoint.recv(peer, 1).unwrap()) {
        let region = endpoint.open_region(peer, &key).unwrap();
        region.write(0, &[round]).unwrap();
        drop(region);
        endpoint.send(peer, 2, b"").unwrap();
        round = round.wrapping_add(1);
    }
    drop(endpoint);
    before.returns(PATIENCE);
}

#[test]
fn without_the_path_there_are_none() {
    let without = Endpoint::builder().paths(PathSet::all().without(Path::Mapped));
    let (a, _, b, to_a) = pair("switched", without, Endpoint::builder());
    let region = a.region(10, Rights::ReadWrite).unwrap();
    match b.open_region(to_a, &region.key().unwrap()) {
        Err(Error::PathRefused { path: Path::Mapped, why: Refusal::SwitchedOffByPeer }) => {}
        other => panic!("{other:?}"),
    }
    a.close();
    assert!(matches!(a.region(10, Rights::Read), Err(Error::Closed)));
}

#[test]
fn a_forked_child_has_no_part_in_it() {
    Stage::new(60).role("forker").spawn().end_well();
}

fn forker(_: &Args) {
    let (a, _, b, to_a) = pair("fork", Endpoint::builder(), Endpoint::builder());
    let region = a.region(10, Rights::ReadWrite).unwrap();
    let remote = open(&a, &b, to_a, &region);
    let (theirs, ours) = (remote.clone(), &region);
    let ended = fork(move || {
        assert!(matches!(theirs.write(0, b"x"), Err(Error::Forked)));
        assert!(matches!(theirs.fetch_add(0, 1u64), Err(Error::Forked)));
        assert!(matches!(theirs.flush(), Err(Error::Forked)));
        assert!(matches!(ours.read(0, &mut [0]), Err(Error::Forked)));
        assert!(matches!(ours.write(0, b"x"), Err(Error::Forked)));
        drop(theirs);
        0
    });
    assert_eq!(ended, Ended::Code(0));
    remote.write(2, b"parent").unwrap();
    assert_eq!(&region.to_vec().unwrap()[2..8], b"parent");
}
