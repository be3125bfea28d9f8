//! Atomic operations: each alone, and many at once.

use std::{sync::atomic::Ordering, thread};

use pinfold::{Endpoint, Path, PeerId, Progress, Region, RemoteRegion, Rights};
use pinfold_tests::{
    Args, Stage, pair,
    role::{PATIENCE, say},
    stage::all_end_well,
    stamp::Random,
};

use super::{hand_over, key_from, open};

#[test]
fn each_atomic_operation_does_what_it_says() {
    let (a, _, b, to_a) = pair("atomics", Endpoint::builder(), Endpoint::builder());
    let region = a.region(4096, Rights::ReadWrite).unwrap();
    each(&region, &open(&a, &b, to_a, &region), 2000);
}

#[test]
fn each_atomic_operation_does_the_same_from_another_host() {
    let a = Endpoint::builder().progress(Progress::Dedicated).listen("tcp:127.0.0.1:0");
    let (a, b) = (a.build().unwrap(), Endpoint::builder().local_shortcut(false).build().unwrap());
    let to_a = b.connect(&a.listens_at().unwrap()).unwrap();
    let region = a.region(4096, Rights::ReadWrite).unwrap();
    let remote = b.open_region(to_a, &region.key().unwrap()).unwrap();
    assert_eq!(remote.path(), Path::Eager);
    each(&region, &remote, 400);
}

/// All kinds of operations on all kinds of words, `steps` of each.
fn each(region: &Region, remote: &RemoteRegion, steps: u64) {
    let mut random = Random::new(9);
    macro_rules! check {
        ($word:ty, $at:expr, $local:expr) => {
            let mut model: $word = 0;
            for step in 0..steps {
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
    // No byte beside the words changes.
    for at in [0, 24, 28, 32, 40, 4088] {
        assert_eq!(region.word32(at).unwrap().load(Ordering::SeqCst), 0, "{at}");
    }
}

// Contention.

const COUNTERS: u64 = 6;

#[test]
fn atomic_operations_of_many_are_of_one_order() {
    count(&["local"; COUNTERS as usize], 20_000);
}

/// Peers on other hosts have the owner do the operations: on the same memory, and by the same
/// instructions.
#[test]
fn atomic_operations_from_other_hosts_are_of_the_same_order() {
    count(&["afar"; COUNTERS as usize], 1000);
    count(&["local", "afar", "local", "afar", "local", "afar"], 1000);
}

/// Has counters make `steps` each, on this host or as on another one.
fn count(places: &[&str], steps: u64) {
    let stage = Stage::new(120);
    let mut players = vec![stage.role("counted").with("steps", steps).spawn()];
    let at = players[0].hear();
    players.extend((0..).zip(places).map(|(me, place)| {
        let counter = stage.role("counter").with("me", me).with("at", &at).with("place", place);
        counter.with("steps", steps).spawn()
    }));
    all_end_well(&mut players);
}

/// Words of the region, each with a cache line of its own.
const SUM: u64 = 0;
const CHAIN: u64 = 64;
const LOCK: u64 = 128;
const GUARDED: u64 = 192;
const MOST: u64 = 256;

pub fn counted(args: &Args) {
    let steps: u64 = args.number("steps");
    let endpoint = Endpoint::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let region = endpoint.region(4096, Rights::ReadWrite).unwrap();
    say(endpoint.listens_at().unwrap());
    let peers: Vec<PeerId> =
        (0..COUNTERS).map(|_| endpoint.accept_timeout(PATIENCE).unwrap()).collect();
    for peer in &peers {
        hand_over(&endpoint, *peer, &region);
    }
    // The region's owner takes part.
    let word = |at: u64| region.word64(at as usize).unwrap();
    for _ in 0..steps {
        word(SUM).fetch_add(1, Ordering::SeqCst);
        endpoint.progress().unwrap();
    }
    // The findings of each: its sums, and the links of its chain.
    let mut sums = Vec::new();
    let mut links = Vec::new();
    for peer in &peers {
        let history = endpoint.recv(*peer, 3).unwrap();
        let words: Vec<u64> = history
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        let (sum, chain) = words.split_at(steps as usize);
        assert!(sum.is_sorted_by(|a, b| a < b), "a later sum is less");
        sums.extend_from_slice(sum);
        links.extend(chain.chunks_exact(2).map(|link| (link[0], link[1])));
    }
    // No two have added to the same sum, and no addition is lost.
    assert_eq!(word(SUM).load(Ordering::SeqCst), (COUNTERS + 1) * steps);
    sums.sort_unstable();
    assert!(sums.is_sorted_by(|a, b| a < b), "two have seen the same sum");
    // The swaps are one chain: each found the value that just one other had left, from 0 to the
    // last.
    let mut next: std::collections::HashMap<u64, u64> = std::collections::HashMap::new();
    for (found, left) in &links {
        assert!(next.insert(*found, *left).is_none(), "two have found {found:#x}");
    }
    let (mut at, mut passed) = (0, 0);
    while let Some(left) = next.remove(&at) {
        (at, passed) = (left, passed + 1);
    }
    assert_eq!(passed, COUNTERS * steps);
    assert_eq!(at, word(CHAIN).load(Ordering::SeqCst));
    // A word that was added to without an atomic operation, but under a lock made of one.
    assert_eq!(word(GUARDED).load(Ordering::SeqCst), COUNTERS * 1000);
    assert_eq!(word(MOST).load(Ordering::SeqCst), (COUNTERS - 1) << 32 | (steps - 1));
    for peer in peers {
        endpoint.send(peer, 4, b"").unwrap();
    }
}

pub fn counter(args: &Args) {
    let me: u64 = args.number("me");
    let steps: u64 = args.number("steps");
    let is_here = args.text("place") == "local";
    let endpoint = Endpoint::builder().local_shortcut(is_here).build().unwrap();
    let peer = endpoint.connect_wait(args.text("at"), PATIENCE).unwrap();
    let region = endpoint.open_region(peer, &key_from(&endpoint, peer)).unwrap();
    assert_eq!(region.path(), if is_here { Path::Mapped } else { Path::Eager });
    let mut history = Vec::new();
    for _ in 0..steps {
        history.push(region.fetch_add(SUM, 1u64).unwrap());
    }
    for step in 0..steps {
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
