//! Memory beyond 4 GiB, marked in stripes: to write all of it would take longer than to send it.

use crate::{baseline::meminfo_bytes, skip::skip, stamp};

/// Bytes, no whole pages.
pub const HUGE: usize = (4 << 30) + 4097;
const STRIPE: usize = 64;
const EVERY: usize = (1 << 20) + 4093;

/// Returns whether this machine has memory for two such messages and everything else; says so if
/// not.
pub fn is_possible() -> bool {
    let available = meminfo_bytes("MemAvailable");
    let enough = available >= 12 << 30;
    if !enough {
        skip(&format!("a message beyond 4 GiB needs 12 GiB of memory; {available} bytes are free"));
    }
    enough
}

/// Places of the marks: in every megabyte, and at both ends.
fn stripes() -> impl Iterator<Item = usize> {
    (0..HUGE - STRIPE).step_by(EVERY).chain([HUGE - STRIPE])
}

/// Marks memory of [`HUGE`] bytes.
pub fn mark(memory: &mut [u8], seed: u64) {
    stripes().for_each(|at| stamp::fill(&mut memory[at..][..STRIPE], at as u64 ^ seed));
}

/// Makes pages of shared zeros where nothing was ever written: the kernel copies no absent memory
/// for another process.
#[allow(unsafe_code)]
pub fn touch(memory: &[u8]) {
    use rustix::mm::{Advice, madvise};
    let begin = memory.as_ptr().addr() / 4096 * 4096;
    let len = (memory.as_ptr().addr() + memory.len()).next_multiple_of(4096) - begin;
    // SAFETY: the memory keeps its contents.
    let _ = unsafe {
        madvise(std::ptr::with_exposed_provenance_mut(begin), len, Advice::LinuxPopulateRead)
    };
}

/// # Panics
/// If marks of such memory are not those of `seed`.
pub fn check(memory: &[u8], seed: u64) {
    stripes().for_each(|at| stamp::check(&memory[at..][..STRIPE], at as u64 ^ seed));
}
