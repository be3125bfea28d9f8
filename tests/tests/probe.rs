#![allow(unsafe_code)]
//! The cache probe on this machine: it keeps to the promise of its calibration.

use pinfold::copy::{CacheState, Probe};
use pinfold_sys::cpu::block::flush;
use pinfold_tests::skip::skip;

const BLOCKS: usize = 512;
const BLOCK: usize = 4096;

#[test]
fn what_is_flushed_is_uncached_and_what_was_read_is_cached() {
    let probe = match Probe::calibrate() {
        Ok(probe) => probe,
        Err(why) => return skip(&format!("there is no cache probe here: {why}")),
    };
    assert!(probe.threshold_ticks() > 0 && (0.9..=1.0).contains(&probe.accuracy()), "{probe:?}");
    let memory = vec![1u8; BLOCKS * BLOCK];
    let mut right = 0;
    for block in memory.chunks(BLOCK) {
        assert!(flush(block));
        // SAFETY: the block is borrowed, and not empty.
        let look = || unsafe { probe.look(block.as_ptr()) };
        right += usize::from(look() == CacheState::Uncached);
        // That look has brought it in.
        right += usize::from(look() == CacheState::Cached);
    }
    // A machine whose neighbours get loud meanwhile is still right more often than by chance.
    assert!(right > BLOCKS * 3 / 2, "{right} of {}: {probe:?}", 2 * BLOCKS);
}
