//! One-sided operations over connections that break: each is done once.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use pinfold::{Progress, Region, RemoteRegion, Rights};
use pinfold_tests::{
    driven,
    network::Way,
    remote::use_until_withdrawn,
    stamp::{self, Random},
};

use super::{LENGTHS, Pair, builder, resets::GREETING, until};

/// A region of the first of a pair, as the second has it.
fn opened(pair: &Pair, len: usize) -> (Region, RemoteRegion) {
    let region = pair.one.region(len, Rights::ReadWrite).unwrap();
    let key = region.key().unwrap();
    let remote = driven(&pair.one, || pair.two.open_region(pair.to_one, &key)).unwrap();
    (region, remote)
}

/// Adds, writes and reads, and says how much it counted.
fn use_it(remote: &RemoteRegion, steps: u64, len: usize) {
    for step in 0..steps {
        assert_eq!(remote.fetch_add(0, 1u64).unwrap(), 2 * step);
        let new = stamp::bytes(len, step);
        remote.write(64, &new).unwrap();
        assert_eq!(remote.fetch_add(0, 1u64).unwrap(), 2 * step + 1);
        let mut read = vec![0; len];
        remote.read(64, &mut read).unwrap();
        assert!(read == new, "step {step} of {len}");
    }
    assert_eq!(remote.fetch_add(0, 0u64).unwrap(), 2 * steps);
}

/// Runs region operations over a connection that is reset once, after so many bytes of frames that
/// go one way.
fn reset_once(progress: Progress, way: Way, at: u64, len: usize) {
    let pair = Pair::by(builder(progress), builder(Progress::Inline), |relay| {
        relay.reset_after(way, GREETING[way as usize] + at);
    });
    let (region, remote) = thread::scope(|scope| {
        let relay = &pair.relay;
        scope.spawn(move || {
            until(|| relay.resets() > 0);
            relay.reset_never();
        });
        let (region, remote) = opened(&pair, 64 + len);
        driven(&pair.one, || use_it(&remote, 3, len));
        (region, remote)
    });
    assert!(pair.two.peer(pair.to_one).unwrap().reconnections > 0, "{way:?} {at}");
    assert_eq!(region.word64(0).unwrap().load(Ordering::SeqCst), 6);
    drop(remote);
}

/// A reset at every edge of every frame of one addition, write and read, and around them.
#[test]
fn resets_at_every_edge() {
    // Heads and words: of the questions for a region, an addition, a short write, a longer one with
    // its piece, a read; and of the answers to them.
    for len in [8usize, 1000] {
        let (open, add, read) = (64, 72, 72);
        let write = if len <= 16 { 72 } else { 72 + 48 + len as u64 };
        let there = edges(&[open, add, write, add, read]);
        let (opened, was, wrote) = (48, 40, 32);
        let came = if len <= 48 { 40 } else { 40 + 48 + len as u64 };
        let back = edges(&[opened, was, wrote, was, came]);
        for (way, edges) in [(Way::There, there), (Way::Back, back)] {
            for (number, at) in edges.into_iter().enumerate() {
                // With less than a byte from there, the caller does not know whether it was heard
                // out.
                let at = at.max(u64::from(way == Way::Back));
                let progress = [Progress::Inline, Progress::Dedicated][number % 2];
                reset_once(progress, way, at, len);
            }
        }
    }
}

/// Before, at and after each edge of frames of these lengths, and in their middles.
fn edges(frames: &[u64]) -> Vec<u64> {
    let mut at = 0;
    let mut edges = Vec::new();
    for len in frames {
        edges.extend([at, at + 1, at + 31, at + 32, at + 33, at + len / 2, at + len - 1]);
        at += len;
    }
    edges
}

/// Long operations go on in their middle.
#[test]
fn resets_within_long_ones() {
    for len in [20_000, 1 << 20] {
        for way in [Way::There, Way::Back] {
            for part in [200, len as u64 / 3, len as u64 + 100] {
                reset_once(Progress::Dedicated, way, part, len);
            }
        }
    }
}

/// Additions over many connections, none of which lasts, by several threads: their sum is exact.
#[test]
fn additions_are_made_once() {
    let pair = Pair::new(builder(Progress::Dedicated), builder(Progress::Dedicated));
    let (region, remote) = opened(&pair, 64);
    const ADDED: u64 = 1500;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (relay, over) = (&pair.relay, &over);
        let resets = scope.spawn(move || {
            let mut random = Random::new(1);
            while !over.load(Ordering::Relaxed) {
                let way = random.pick(&[Way::There, Way::Back]);
                relay.reset_after(way, 400 + random.below(3000));
                thread::sleep(Duration::from_millis(random.below(5)));
                if random.below(4) == 0 {
                    relay.reset_never();
                    thread::sleep(Duration::from_millis(5));
                }
            }
            relay.reset_never();
        });
        let adders: Vec<_> = (0..3)
            .map(|_| {
                let remote = remote.clone();
                scope.spawn(move || {
                    let mut seen: Vec<u64> = Vec::new();
                    for _ in 0..ADDED {
                        seen.push(remote.fetch_add(8, 1u64).unwrap());
                    }
                    assert!(seen.is_sorted_by(|a, b| a < b));
                    seen
                })
            })
            .collect();
        // The owner adds, too.
        let word = region.word64(8).unwrap();
        let mut seen: Vec<u64> = (0..ADDED).map(|_| word.fetch_add(1, Ordering::SeqCst)).collect();
        for adder in adders {
            seen.extend(adder.join().unwrap());
        }
        over.store(true, Ordering::Relaxed);
        resets.join().unwrap();
        // Each number was seen once: none was added twice, none is lost.
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..4 * ADDED));
        assert_eq!(word.load(Ordering::SeqCst), 4 * ADDED);
    });
    assert!(pair.relay.resets() > 10, "{}", pair.relay.resets());
}

/// All lengths at once, at random moments.
#[test]
fn bytes_survive_resets_at_any_time() {
    let pair = Pair::new(builder(Progress::Dedicated), builder(Progress::Inline));
    let (region, remote) = opened(&pair, 4 << 20);
    for round in 0..4u64 {
        let mut random = Random::new(round);
        thread::scope(|scope| {
            let relay = &pair.relay;
            scope.spawn(move || {
                for _ in 0..8 {
                    let way = random.pick(&[Way::There, Way::Back]);
                    relay.reset_after(way, 1 + random.below(1_000_000));
                    thread::sleep(Duration::from_millis(random.below(15)));
                }
                relay.reset_never();
            });
            for (seed, len) in (0u64..).zip(LENGTHS) {
                let new = stamp::bytes(len, round << 32 | seed);
                remote.write(seed * 8, &new).unwrap();
                let mut there = vec![0; len];
                region.read(seed as usize * 8, &mut there).unwrap();
                assert!(there == new);
                let mut read = vec![0; len];
                remote.read(seed * 8, &mut read).unwrap();
                assert!(read == new, "{len}");
            }
        });
    }
    assert!(pair.relay.resets() > 0);
}

/// A peer that does not come back: every operation under way fails.
#[test]
fn who_is_gone_is_an_error() {
    let soon = |progress| builder(progress).reconnect_timeout(Duration::from_millis(300));
    let pair = Pair::new(soon(Progress::Dedicated), soon(Progress::Dedicated));
    let (_region, remote) = opened(&pair, 4 << 20);
    thread::scope(|scope| {
        use_until_withdrawn(scope, &remote);
        thread::sleep(Duration::from_millis(20));
        // Nothing more goes through, on no connection.
        pair.relay.reset_after(Way::There, 0);
    });
}
