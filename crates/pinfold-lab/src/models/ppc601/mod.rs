//! The PowerPC 601 of the paper on virtual memory reassembly: its memory management unit, its
//! cache, and the two benchmarks that run on it (Womack, Mraz, Mendelson, sections 2 to 4).
//!
//! The paper states neither a clock rate nor a latency of memory. [`Parameters`] says which of them
//! are the data sheet's, which are counts of instructions, and which are fitted.

pub mod machine;
pub mod page_table;
pub mod pool_maps;
pub mod reassembly;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of the page table (section 2.2), which begins at 2 MB.
pub const TABLE_BYTES: u64 = 512 << 10;
/// The page table's address.
pub const TABLE_AT: u64 = 2 << 20;
/// The bitmap's address (section 2.2).
pub const BITMAP_AT: u64 = 4 << 20;
/// Bytes of the bitmap.
pub const BITMAP_BYTES: u64 = 8 << 10;
/// The address of the first data region.
pub const DATA_AT: u64 = BITMAP_AT + (64 << 10);
/// Bytes of memory.
pub const MEMORY_BYTES: u64 = 64 << 20;
/// The cache (user's manual, chapter 4): unified, 8 ways, lines of 64 bytes in two sectors.
pub const CACHE: (usize, usize, usize) = (32 << 10, 8, 64);
/// Sets and ways of the TLB for all, and of the one for instructions (section 3).
pub const UTLB: (usize, usize) = (128, 2);
/// See [`UTLB`].
pub const ITLB: (usize, usize) = (1, 4);

/// Times and counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Clock rate, MHz: one of the 601's time; not stated.
    pub mhz: f64,
    /// Fetching a line, cycles. Fitted to 143 µs for a copy of a page.
    pub fetch: u64,
    /// Writing a line back, cycles. Fitted to 1.09 s for a copy of 6,144 pages.
    pub write_back: u64,
    /// A single access that is not cached, up to 8 bytes, cycles: a burst without its other beats.
    /// Chosen with the slow-down of a copy without caches in sight, some 7 times.
    pub single: u64,
    /// Cycles of an instruction that hits. Counted: one a cycle.
    pub instruction: u64,
    /// Instructions of the copy for a word: load, store, branch.
    pub copy_word: u64,
    /// Instructions of the call without search. Fitted to 28 µs for a page.
    pub call: u64,
    /// Instructions of the search's call. Fitted to the meeting of two curves at 32 pages.
    pub search: u64,
    /// Instructions of the search for a word of 32 bits. Fitted to 289 µs for the worst case.
    pub word: u64,
    /// Instructions for a run that is too short. Counted: three to find its beginning, three
    /// to find its end, two to compare its length, two to go on.
    pub candidate: u64,
    /// Instructions for a page, but for the search of its group. Fitted to 13.1 ms.
    pub entry: u64,
    /// Instructions to look at an entry of a group. Counted: load, test, branch, next.
    pub look: u64,
}

/// The paper's machine.
pub const PAPER: Parameters = Parameters {
    mhz: 66.0,
    fetch: 48,
    write_back: 37,
    single: 18,
    instruction: 1,
    copy_word: 3,
    call: 190,
    search: 60,
    word: 6,
    candidate: 10,
    entry: 40,
    look: 4,
};
