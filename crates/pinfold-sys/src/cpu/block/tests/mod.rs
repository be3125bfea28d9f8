//! Every algorithm against byte-by-byte oracles, in memory that ends where it seems to.
#![allow(unsafe_code)]

mod guarded;
mod oracle;
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod visibility;

use std::cell::Cell;

use super::*;
use guarded::Guarded;

thread_local! {
    static FENCES: Cell<u64> = const { Cell::new(0) };
    static LEAVE_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Counts a fence of this thread, and returns whether it is to be left out.
pub(super) fn fence_left_out() -> bool {
    FENCES.set(FENCES.get() + 1);
    LEAVE_OUT.get()
}

/// Fences that `work` makes.
fn fences(work: impl FnOnce()) -> u64 {
    let before = FENCES.get();
    work();
    FENCES.get() - before
}

fn supported() -> impl Iterator<Item = Algorithm> {
    // Under Miri words fetch nothing, and all are the same.
    let miri = cfg!(miri);
    Algorithm::all().filter(move |a| a.is_supported() && !(miri && a.prefetch() != Prefetch::None))
}

#[test]
fn the_processor_has_what_it_says() {
    assert!(Algorithm::LIBC.is_supported());
    let words =
        Algorithm::all().filter(|a| a.isa() == Isa::Word && a.prefetch() != Prefetch::Destination);
    assert!(words.into_iter().all(Algorithm::is_supported));
    if cfg!(all(target_arch = "aarch64", not(miri))) {
        assert!(
            Algorithm::all().all(|a| {
                a.is_supported() == matches!(a.isa(), Isa::Libc | Isa::Word | Isa::Neon)
            })
        );
        return;
    }
    if cfg!(any(miri, not(target_arch = "x86_64"))) {
        assert!(supported().all(|a| matches!(a.isa(), Isa::Libc | Isa::Word)));
        return;
    }
    let Ok(info) = std::fs::read_to_string("/proc/cpuinfo") else { return };
    let Some(flags) = info.lines().find(|line| line.starts_with("flags")) else { return };
    let known: Vec<&str> = flags.split_whitespace().collect();
    for algorithm in Algorithm::all() {
        let isa = match algorithm.isa() {
            Isa::Libc | Isa::Word | Isa::Rep | Isa::Sse2 => true,
            Isa::Avx2 => known.contains(&"avx2"),
            Isa::Avx512 => known.contains(&"avx512f"),
            Isa::Neon => false,
        };
        let fetch =
            algorithm.prefetch() != Prefetch::Destination || known.contains(&"3dnowprefetch");
        assert_eq!(algorithm.is_supported(), isa && fetch, "{algorithm}");
    }
}

#[test]
fn what_the_processor_lacks_is_done_by_libc() {
    let Some(lacking) = Algorithm::all().find(|algorithm| !algorithm.is_supported()) else {
        crate::skip::skip("this processor has everything");
        return;
    };
    let from: Vec<u8> = (0..1000).map(|i| i as u8).collect();
    let mut to = vec![1; 1000];
    // SAFETY: two vectors of that many bytes.
    unsafe { copy(lacking, from.as_ptr(), to.as_mut_ptr(), 1000) };
    assert_eq!(to, from);
    // SAFETY: as above.
    unsafe { zero(lacking, to.as_mut_ptr(), 1000) };
    assert_eq!(to, [0; 1000]);
}

#[test]
fn streaming_stores_are_fenced_once() {
    let longest = if cfg!(miri) { 1000 } else { 20_000 };
    let (from, to) = (Guarded::new(longest), Guarded::new(longest));
    for algorithm in supported() {
        let fenced = u64::from(algorithm.stores() == Stores::Streaming);
        for len in [sizes::SHORT, 1000, 8192.min(longest), longest] {
            // SAFETY: both have that many bytes.
            unsafe {
                let copies = || copy(algorithm, from.start(), to.start(), len);
                assert_eq!(fences(copies), fenced, "{algorithm} {len}");
                let zeroes = || zero(algorithm, to.start(), len);
                assert_eq!(fences(zeroes), fenced, "{algorithm} {len}");
            }
        }
    }
}

#[test]
fn overlapping_bytes_are_as_if_copied_aside() {
    let memory = Guarded::new(if cfg!(miri) { 700 } else { 3000 });
    let lens: &[usize] = if cfg!(miri) { &[300] } else { &[1, 64, 300, 1000] };
    for algorithm in supported() {
        for &len in lens {
            for distance in [1, 8, 63, 64, len - 1, len, len + 1] {
                for (from, to) in [(0, distance), (distance, 0)] {
                    memory.fill(|i| ((i * 31) >> 3) as u8);
                    let mut expected = memory.bytes().to_vec();
                    expected.copy_within(from..from + len, to);
                    // SAFETY: both lie in the memory, which is longer than the two.
                    unsafe {
                        let (from, to) = (memory.start().add(from), memory.start().add(to));
                        assert_eq!(overlaps(from, to, len), distance < len);
                        copy_overlapping(algorithm, from, to, len);
                    }
                    assert_eq!(memory.bytes(), expected, "{algorithm} {len} {from} {to}");
                }
            }
        }
    }
}

#[test]
fn nothing_overlaps_nothing() {
    let at = [0u8; 2];
    assert!(!overlaps(&at[0], &at[0], 0));
    assert!(overlaps(&at[0], &at[0], 1));
    assert!(!overlaps(&at[0], &at[1], 1));
    // The ends of the address space are not next to each other.
    let (first, last) = (std::ptr::null(), std::ptr::null::<u8>().wrapping_sub(1));
    assert!(!overlaps(first, last, 4096) && !overlaps(last, first, 4096));
}

#[test]
fn lines_are_flushed_and_timed() {
    let memory: Vec<u8> = (0..1000).map(|i| (i % 251) as u8).collect();
    let here = cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)));
    for part in [&memory[..], &memory[5..6], &memory[60..70], &memory[7..7]] {
        assert_eq!(flush(part), here);
    }
    assert!(memory.iter().enumerate().all(|(i, &byte)| byte == (i % 251) as u8));
    let timer = cfg!(all(target_arch = "x86_64", not(miri)))
        && std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|info| info.contains("rdtscp"));
    // SAFETY: the vector has a first byte.
    let ticks = unsafe { read_line_ticks(memory.as_ptr()) };
    assert_eq!(ticks.is_some(), timer);
    // The time is for others to judge. It is not nothing, and not for ever.
    assert!(ticks.is_none_or(|ticks| (1..1 << 40).contains(&ticks)), "{ticks:?}");
}
