#![allow(unsafe_code)]
//! Copies by each of the library's algorithms, from and to memory that is cached or not.
//!
//! **Invariant.** Exactly the bytes of a block are copied, by an algorithm that this processor has.

use pinfold::copy::{Algorithm, Isa, Prefetch, Stores};
use pinfold_sys::cpu::{
    block::{self, flush},
    clock::timed,
    partner::Blocks,
};

use super::{
    memory::{Block, check},
    timing::median,
};

/// The place of a block before a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Out of all caches.
    Uncached,
    /// Read a moment ago.
    Clean,
    /// Written a moment ago.
    Dirty,
}

/// The time of a copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Ticks of the time stamp counter for each byte that is copied.
    pub copy: f64,
    /// The same with the destination read afterwards.
    pub with_reading: f64,
}

/// The algorithm of these parts in the widest registers that other tasks do not suffer from; by
/// words of 8 bytes if `by_words`.
///
/// # Errors
/// This processor has none; in words.
pub fn algorithm(prefetch: Prefetch, stores: Stores, by_words: bool) -> Result<Algorithm, String> {
    let isas: &[Isa] = if by_words { &[Isa::Word] } else { &[Isa::Avx2, Isa::Sse2, Isa::Neon] };
    let all = isas.iter().filter_map(|&isa| Algorithm::new(isa, prefetch, stores));
    let has = |it: &Algorithm| it.is_supported();
    all.into_iter().find(has).ok_or_else(|| "this processor has no such instructions".into())
}

/// Copies blocks of so many bytes `turns` times, each time brought to these places before. The
/// median counts, without the time that looking at the clock takes.
///
/// # Errors
/// This processor lacks the algorithm or cannot empty its caches, or a byte came out wrong; in
/// words.
pub fn cost(
    algorithm: Algorithm,
    (from, to): (Before, Before),
    bytes: usize,
    turns: usize,
) -> Result<Cost, String> {
    if !algorithm.is_supported() {
        return Err(format!("this processor has no {algorithm}"));
    }
    let source = Block::new(bytes, 6);
    let mut target = Block::new(bytes, 7);
    if !flush(&source.get()[..bytes.min(1)]) {
        return Err("this processor cannot empty its caches".into());
    }
    let idle = (0..1000).map(|_| timed(|| {})).min().unwrap_or(0);
    let (mut copies, mut all) = (Vec::new(), Vec::new());
    // The first turn warms up.
    for turn in 0..=turns.max(1) {
        let blocks = [(source.get().as_ptr(), from), (target.get().as_ptr(), to)];
        let blocks = blocks.map(|(first, before)| (Blocks::one(first, bytes), before));
        for (one, before) in blocks {
            // SAFETY: both blocks are whole, and nothing else is at work on them.
            unsafe {
                one.read();
                match before {
                    Before::Uncached => one.flush(),
                    Before::Clean => {
                        one.flush();
                        one.read();
                    }
                    Before::Dirty if one.first.cast_const() == target.get().as_ptr() => {
                        Blocks { first: target.get_mut().as_mut_ptr(), ..one }.write(turn as u64);
                    }
                    // A source has to keep its contents; it was written to be here.
                    Before::Dirty => {}
                }
            }
        }
        let to = target.get_mut().as_mut_ptr();
        let copied = timed(|| {
            // SAFETY: both have so many bytes and do not overlap; it is supported.
            unsafe { block::copy(algorithm, source.get().as_ptr(), to, bytes) };
        });
        let read = timed(|| {
            // SAFETY: as above.
            unsafe { Blocks::one(to, bytes).read() };
        });
        check(target.get(), 0, 6)?;
        if turn > 0 {
            let of = |ticks: u64| ticks.saturating_sub(idle) as f64 / bytes.max(1) as f64;
            copies.push(of(copied));
            all.push(of(copied) + of(read));
        }
    }
    Ok(Cost { copy: median(&mut copies), with_reading: median(&mut all) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_copies_from_and_to_everywhere() {
        let places = [Before::Uncached, Before::Clean, Before::Dirty];
        for algorithm in Algorithm::all().filter(|it| it.is_supported()) {
            for to in places {
                match cost(algorithm, (Before::Uncached, to), 4096, 2) {
                    Ok(cost) => {
                        assert!(cost.copy >= 0.0 && cost.with_reading >= cost.copy, "{cost:?}");
                    }
                    Err(why) => assert!(why.contains("caches"), "{why}"),
                }
            }
        }
    }
}
