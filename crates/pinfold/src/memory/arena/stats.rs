//! The statistics of an arena.

/// Numbers about an arena, all at one moment. Bytes are rounded up as the arena does it: buffers to
/// 64 bytes, committed memory to 256 KiB.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// let arena = pinfold::Arena::builder().bytes_budget(16 << 20).build()?;
/// let buf = arena.alloc(1000)?;
/// let stats = arena.stats();
/// assert_eq!((stats.buffers, stats.bytes_live), (1, 1024)); // Buffers take multiples of 64 bytes.
/// assert!(stats.bytes_committed >= 1024 && stats.bytes_committed <= 16 << 20);
/// drop(buf);
/// assert_eq!((arena.stats().bytes_live, arena.stats().bytes_live_peak), (0, 1024));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArenaStats {
    /// Buffers in use.
    pub buffers: u64,
    /// Bytes of buffers in use.
    pub bytes_live: u64,
    /// The most [`ArenaStats::bytes_live`] ever was.
    pub bytes_live_peak: u64,
    /// Bytes that have memory, in use or not. Never more than the budget.
    pub bytes_committed: u64,
    /// The most [`ArenaStats::bytes_committed`] ever was.
    pub bytes_committed_peak: u64,
    /// Bytes of it in huge pages.
    pub bytes_huge: u64,
    /// Bytes of address space taken, with memory or without.
    pub bytes_mapped: u64,
    /// Files in memory that the arena consists of.
    pub extents: u64,
}
