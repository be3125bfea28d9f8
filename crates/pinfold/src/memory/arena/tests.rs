//! Arenas: sizes, alignments, budgets, trimming.

mod sharing;

use std::thread;

use proptest::prelude::*;

use super::*;
use crate::Error;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Bytes of memory that a file has.
fn resident(extent: &ArenaRef) -> u64 {
    // The descriptor without sealing it.
    rustix::fs::fstat(extent.fd_unsealed()).unwrap().st_blocks as u64 * 512
}

fn stamp(buf: &mut ArenaBuf, seed: usize) {
    buf.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at.wrapping_mul(31) + seed) as u8);
}

fn check(buf: &ArenaBuf, seed: usize) {
    assert!(buf.iter().enumerate().all(|(at, byte)| *byte == (at.wrapping_mul(31) + seed) as u8));
}

#[test]
fn buffers_of_all_sizes_and_alignments() {
    let arena = Arena::builder().bytes_budget(64 << 20).build().unwrap();
    let mut bufs = Vec::new();
    for (seed, len) in [0, 1, 63, 64, 65, 4096, 100_000, MIB, 9 * MIB].into_iter().enumerate() {
        for align in [0, 1, 3, 64, 4096, 65_536, 2 * MIB] {
            if len == 9 * MIB && align > 64 {
                continue;
            }
            let mut buf = arena.alloc_aligned(len, align).unwrap();
            assert_eq!(buf.len(), len);
            let align = align.max(64).next_power_of_two();
            assert!(buf.as_ptr().addr().is_multiple_of(align), "{len} {align}");
            stamp(&mut buf, seed);
            bufs.push((seed, buf));
        }
    }
    bufs.iter().for_each(|(seed, buf)| check(buf, *seed));
    assert_eq!(arena.stats().buffers, bufs.len() as u64);
    drop(bufs);
    let stats = arena.stats();
    assert_eq!((stats.buffers, stats.bytes_live), (0, 0));
    assert!(stats.bytes_live_peak >= 36 * MIB as u64);
    let huge = arena.alloc_aligned(100, 64 * MIB).unwrap();
    assert!(huge.as_ptr().addr().is_multiple_of(64 * MIB));
}

#[test]
fn absurd_sizes_are_errors() {
    let arena = Arena::builder().bytes_max(16 * MIB).build().unwrap();
    for len in [usize::MAX, isize::MAX as usize, 1 << 40, 17 * MIB] {
        let error = arena.alloc(len).unwrap_err();
        assert!(matches!(error, Error::LimitReached { .. }), "{error}");
    }
    assert!(arena.alloc_aligned(1, usize::MAX).is_err());
    assert!(arena.alloc_aligned(1, 1 << 62).is_err());
    // All of it in one, and with others in it.
    drop(arena.alloc(16 * MIB).unwrap());
    let _one = arena.alloc(1).unwrap();
    let error = arena.alloc(16 * MIB).unwrap_err();
    assert!(error.to_string().contains("bytes_max"), "{error}");
    drop(arena.alloc(14 * MIB).unwrap());
}

#[test]
fn zeroed_is_zeroed() {
    let arena = Arena::new().unwrap();
    arena.alloc(5000).unwrap().fill(0xff);
    assert!(arena.alloc_zeroed(5000).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn buffers_outlive_handles() {
    let arena = Arena::new().unwrap();
    let mut buf = arena.alloc(MIB).unwrap();
    drop(arena);
    stamp(&mut buf, 3);
    check(&buf, 3);
    let again = buf.arena().alloc(10).unwrap();
    drop(buf);
    assert_eq!(again.arena().stats().buffers, 1);
}

#[test]
fn the_budget_holds() {
    const BUDGET: u64 = 8 << 20;
    let arena = Arena::builder().bytes_budget(BUDGET).build().unwrap();
    let mut bufs = Vec::new();
    let error = loop {
        match arena.alloc(100 * KIB) {
            Ok(buf) => bufs.push(buf),
            Err(error) => break error,
        }
        assert!(arena.stats().bytes_committed <= BUDGET);
    };
    let text = "the memory of this arena, in bytes, is limited to 8388608; raise \
                ArenaBuilder::bytes_budget, or drop buffers";
    assert_eq!(error.to_string(), text);
    assert!(bufs.len() >= 80);
    // Allocations that failed left nothing behind.
    assert_eq!(arena.stats().buffers, bufs.len() as u64);
    bufs.pop();
    bufs.push(arena.alloc(100 * KIB).unwrap());
    assert!(arena.alloc(9 * MIB).is_err());
    // Memory that is idle makes room, also among extents of large buffers.
    bufs.clear();
    let stats = arena.stats();
    assert!(stats.bytes_committed > 4 << 20);
    let whole = arena.alloc(BUDGET as usize).unwrap();
    drop(whole);
    drop(arena.alloc(MIB).unwrap());
    assert!(arena.stats().bytes_committed_peak <= BUDGET);
}

#[test]
fn a_short_budget_uses_what_there_is() {
    // All committed, all sealed, so that only an extent that is free as a whole can be returned.
    let arena = Arena::builder().bytes_budget(2 << 20).huge_pages(false).build().unwrap();
    let keep = arena.alloc(64).unwrap();
    let _ = keep.locate().0.fd_for_peers();
    let mut bufs: Vec<ArenaBuf> = (0..31).map(|_| arena.alloc(64 * KIB).unwrap()).collect();
    assert_eq!(arena.stats().bytes_committed, 2 << 20);
    assert!(arena.alloc(MIB).is_err());
    // The best fit of a MiB would be the end of the extent, which has no memory.
    bufs.drain(4..28);
    let buf = arena.alloc(MIB).unwrap();
    assert!(arena.alloc_aligned(MIB, 4096).is_err());
    drop(buf);
    let buf = arena.alloc_aligned(MIB, 64 * KIB).unwrap();
    assert!(buf.as_ptr().addr().is_multiple_of(64 * KIB));
    assert_eq!(arena.stats().bytes_committed, 2 << 20);
}

#[test]
fn a_budget_of_less_than_a_chunk_gives_nothing() {
    let arena = Arena::builder().bytes_budget(1000).build().unwrap();
    assert!(arena.alloc(0).is_err());
    assert_eq!(arena.stats().bytes_committed, 0);
}

#[test]
fn trimming_gives_pages_back() {
    let arena = Arena::new().unwrap();
    let keep = arena.alloc(4096).unwrap();
    let (extent, _) = keep.locate();
    let many: Vec<ArenaBuf> = (0..12).map(|_| arena.alloc(MIB).unwrap()).collect();
    assert!(resident(&extent) >= 12 * MIB as u64);
    assert_eq!(resident(&extent), arena.stats().bytes_committed);
    drop(many);
    assert!(arena.trim() >= 9 * MIB as u64);
    assert!(arena.stats().bytes_committed <= 2 * MIB as u64);
    assert_eq!(resident(&extent), arena.stats().bytes_committed);
    // A large buffer's goes with its extent.
    let large = arena.alloc(20 * MIB).unwrap();
    let (own, offset) = large.locate();
    assert_ne!(own.id(), extent.id());
    assert_eq!(offset, 0);
    assert_eq!(resident(&own), 20 * MIB as u64);
    drop(large);
    assert_eq!(arena.trim(), 20 * MIB as u64);
    assert_eq!(resident(&own), 0);
    drop(keep);
    arena.trim();
    let stats = arena.stats();
    assert_eq!((stats.bytes_committed, stats.bytes_mapped, stats.extents), (0, 0, 0));
    drop(arena.alloc(1).unwrap());
}

#[test]
fn memory_goes_back_by_itself() {
    let arena = Arena::new().unwrap();
    let keep = arena.alloc(100).unwrap();
    let many: Vec<ArenaBuf> = (0..8).map(|_| arena.alloc(4 * MIB).unwrap()).collect();
    drop(many);
    assert!(arena.stats().bytes_committed >= 32 * MIB as u64);
    for _ in 0..300_000 {
        drop(arena.alloc(4096).unwrap());
    }
    assert!(arena.stats().bytes_committed <= 8 * MIB as u64, "{:?}", arena.stats());
    drop(keep);
}

#[test]
fn what_is_sealed_goes_back_whole() {
    let arena = Arena::new().unwrap();
    let keep = arena.alloc(4096).unwrap();
    let (extent, _) = keep.locate();
    extent.fd_for_peers().unwrap();
    let many: Vec<ArenaBuf> = (0..6).map(|_| arena.alloc(MIB).unwrap()).collect();
    drop(many);
    let before = arena.stats();
    if extent.is_sealed_for_readers() {
        assert_eq!(arena.trim(), 0);
        assert_eq!(arena.stats(), before);
        assert_eq!(resident(&extent), before.bytes_committed);
    }
    let id = extent.id();
    drop((keep, extent));
    let gone_before = gone();
    assert!(is_live(id));
    assert_eq!(arena.trim(), before.bytes_committed);
    assert!(!is_live(id));
    assert!(gone() > gone_before);
}

#[test]
fn large_buffers_use_their_extents_again() {
    let arena = Arena::new().unwrap();
    let first = arena.alloc(20 * MIB).unwrap().locate().0.id();
    let buf = arena.alloc(18 * MIB).unwrap();
    assert_eq!(buf.locate().0.id(), first);
    assert_eq!(arena.stats().extents, 2);
    let other = arena.alloc(18 * MIB).unwrap();
    assert_ne!(other.locate().0.id(), first);
}

#[test]
fn many_large_buffers_take_few_descriptors() {
    let arena = Arena::builder().bytes_budget(u64::MAX).build().unwrap();
    let mut state = super::state::State::default();
    let mark = std::sync::Arc::new(pinfold_sys::fork::ForkMark::new().unwrap());
    // Address space only: nothing is committed.
    let want = super::state::Want::new(9 * MIB, 1).unwrap();
    for _ in 0..1000 {
        if state.place(&want).is_none() {
            let own = state.is_own(&want);
            let len = if own { 10 * MIB } else { 128 * MIB };
            let extent = super::extent::Extent::new(len, 1, false, &mark).unwrap();
            state.add(super::registry::list(extent), own, &want).unwrap();
        }
    }
    assert!(state.stats().extents < 200, "{:?}", state.stats());
    drop(arena);
}

#[test]
fn huge_pages_are_used_or_not() {
    let arena = Arena::new().unwrap();
    let buf = arena.alloc(16 * MIB).unwrap();
    let stats = arena.stats();
    println!("{} of {} bytes are huge pages", stats.bytes_huge, stats.bytes_committed);
    assert_eq!(stats.bytes_committed, 16 * MIB as u64);
    assert_eq!(resident(&buf.locate().0), 16 * MIB as u64);
    let plain = Arena::builder().huge_pages(false).build().unwrap();
    let _buf = plain.alloc(16 * MIB).unwrap();
    assert_eq!(plain.stats().bytes_huge, 0);
    assert_eq!(plain.stats().bytes_committed, 16 * MIB as u64);
}

#[test]
fn a_little_takes_little() {
    let arena = Arena::new().unwrap();
    assert_eq!(arena.stats().bytes_committed, 0);
    let _buf = arena.alloc(1).unwrap();
    assert_eq!(arena.stats().bytes_committed, 256 * KIB as u64);
}

#[test]
fn many_threads() {
    const THREADS: usize = 8;
    let arena = Arena::builder().bytes_budget(256 << 20).build().unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let arena = &arena;
            scope.spawn(move || {
                let mut random = thread as u64 + 1;
                let mut live: Vec<(usize, ArenaBuf)> = Vec::new();
                for turn in 0..1500 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let dice = random >> 33;
                    if live.len() > 12 || dice.is_multiple_of(3) && !live.is_empty() {
                        let (seed, buf) = live.swap_remove(dice as usize / 3 % live.len());
                        check(&buf, seed);
                    } else {
                        let len = match dice % 64 {
                            0 => 10 * MIB,
                            1..6 => (dice >> 6) as usize % MIB,
                            _ => (dice >> 6) as usize % 20_000,
                        };
                        let Ok(mut buf) = arena.alloc_aligned(len, 1 << (dice % 14)) else {
                            continue;
                        };
                        let seed = thread * 10_000 + turn;
                        // The ends are enough to notice an overlap, and quick.
                        let ends = buf.len().min(5000);
                        stamp_part(&mut buf, ends, seed);
                        assert!(find(buf.as_ptr(), buf.len()).is_some());
                        if ends == buf.len() {
                            live.push((seed, buf));
                        }
                    }
                    if turn % 500 == 499 {
                        arena.trim();
                    }
                }
                live.iter().for_each(|(seed, buf)| check(buf, *seed));
            });
        }
    });
    assert_eq!(arena.stats().buffers, 0);
    arena.trim();
    assert_eq!(arena.stats().bytes_committed, 0);
}

fn stamp_part(buf: &mut ArenaBuf, len: usize, seed: usize) {
    for at in 0..len {
        buf[at] = (at.wrapping_mul(31) + seed) as u8;
    }
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(usize, u32),
    Drop(usize),
    Trim,
    Seal(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..200_000, 0u32..16).prop_map(|(len, align)| Step::Alloc(len, align)),
        1 => (MIB..10 * MIB).prop_map(|len| Step::Alloc(len, 0)),
        5 => any::<usize>().prop_map(Step::Drop),
        1 => Just(Step::Trim),
        1 => any::<usize>().prop_map(Step::Seal),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_happens_the_account_is_right(
        steps in proptest::collection::vec(step(), 1..80),
        huge: bool,
    ) {
        const BUDGET: u64 = 32 << 20;
        let arena = Arena::builder().bytes_budget(BUDGET).huge_pages(huge).build().unwrap();
        let mut live: Vec<(usize, ArenaBuf)> = Vec::new();
        for (seed, step) in steps.into_iter().enumerate() {
            match step {
                Step::Alloc(len, align) => {
                    if let Ok(mut buf) = arena.alloc_aligned(len, 1 << align) {
                        let ends = len.min(4096);
                        stamp_part(&mut buf, ends, seed);
                        live.push((seed, buf));
                    }
                }
                Step::Drop(which) if !live.is_empty() => {
                    let (seed, buf) = live.swap_remove(which % live.len());
                    let ends = &buf[..buf.len().min(4096)];
                    let right = |(at, byte): (usize, &u8)| *byte == (at * 31 + seed) as u8;
                    prop_assert!(ends.iter().enumerate().all(right));
                }
                Step::Seal(which) if !live.is_empty() => {
                    let _ = live[which % live.len()].1.locate().0.fd_for_peers();
                }
                Step::Drop(_) | Step::Seal(_) => {}
                Step::Trim => drop(arena.trim()),
            }
            let stats = arena.stats();
            prop_assert_eq!(stats.buffers, live.len() as u64);
            prop_assert!(stats.bytes_committed <= BUDGET);
            prop_assert!(stats.bytes_live <= stats.bytes_committed);
            // The account agrees with the system's.
            let files: std::collections::BTreeMap<u64, u64> = live
                .iter()
                .map(|(_, buf)| buf.locate().0)
                .map(|extent| (extent.id(), resident(&extent)))
                .collect();
            prop_assert!(files.values().sum::<u64>() <= stats.bytes_committed);
        }
        drop(live);
        arena.trim();
        prop_assert_eq!(arena.stats().bytes_committed, 0);
    }
}
