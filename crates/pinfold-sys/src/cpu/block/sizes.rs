//! Lengths that the loops over cache lines, and their prefetches, go by.

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// Bytes fetched before they are used: enough to pay for opening a row of the memory, few enough to
/// stay in the first cache (Calhoun, section 4.1).
pub(super) const BLOCK: usize = 8 << 10;

/// Lines of the destination are asked for so far ahead of the loop, bytes.
pub(super) const AHEAD: usize = 1 << 10;

/// Below that many bytes the C library's functions are as good as any, after the same fetching.
pub(super) const SHORT: usize = 256;

// A block has at least one line, and one that is not short has a line at either end.
const _: () =
    assert!(BLOCK.is_multiple_of(4 * LINE) && AHEAD.is_multiple_of(4 * LINE) && SHORT >= 2 * LINE);
