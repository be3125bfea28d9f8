//! Messages that arrived in pieces become contiguous: the address space for that, the memory they
//! arrive in, and the treatment of each piece.
//!
//! After Womack, Mraz, Mendelson, *A Study of Virtual Memory MTU Reassembly within the PowerPC
//! Architecture*: addresses out of a reserved segment (sections 2.3, 4.3), pages put there instead
//! of their bytes.
//!
//! - [`window`]: the free pages of a reserved range of addresses, by four organisations.
//! - [`pool`]: pages that messages arrive in; no byte that one left is ever seen by the next.
//! - [`gather`]: the pieces to move, to map and to copy, by their costs.
//! - [`fold`]: all of that put together, and done.
//!
//! Nothing but `fold` rewrites a page table: `window` and `gather` decide, and are handed numbers.

mod bits;
pub mod fold;
pub mod gather;
mod ledger;
pub mod pool;
pub mod window;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

/// Pages of a huge page, which is 2 MiB.
pub const HUGE_PAGES: u32 = 512;

/// Bytes of a huge page.
pub const HUGE_BYTES: usize = PAGE_BYTES * HUGE_PAGES as usize;
