//! Translations that are kept: from addresses of a space to whatever a transfer needs for them.
//!
//! The first two are plain state without I/O: they are handed addresses and hand back decisions, and
//! reach memory and the kernel by a back end's trait alone.
//!
//! - [`tlb`]: pages to translations, two levels in a few nanoseconds (Welsh, Basu, von Eicken,
//!   *Incorporating Memory Management into User-Level Network Interfaces*).
//! - [`pincache`]: areas that stay pinned after their transfers, under hard budgets (Tezuka,
//!   O'Carroll, Hori, Ishikawa, *Pin-down Cache*).
//! - [`own`]: this process's own memory, by a pin-down cache over what this machine has, and watched.
//!
//! Neither of the first two knows whether a mapping still is what it was when it was translated or
//! pinned. Whoever learns of a change invalidates; whoever cannot learn of changes must not keep
//! anything there.

#[cfg(not(loom))]
pub mod own;
pub mod pincache;
pub mod tlb;

use std::ops::BitOr;

/// Whose addresses: this process or a peer, by a number that the owner of the tables gives it.
///
/// A number that is used again for another space needs that the old space was dropped from every
/// table first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId(pub u64);

/// What a transfer does to memory, or what a translation allows: any of read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// Neither: whoever asks for it only wants to know whether there is a translation.
    pub const NONE: Rights = Rights(0);
    /// The memory is read.
    pub const READ: Rights = Rights(1);
    /// The memory is written.
    pub const WRITE: Rights = Rights(2);
    /// Both.
    pub const READ_WRITE: Rights = Rights(3);

    /// Bits of the number that [`Rights::bits`] returns.
    pub(crate) const BITS: u32 = 2;

    /// Whether these include all of `needed`.
    #[inline]
    pub const fn allow(self, needed: Rights) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// 1 for read, 2 for write.
    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// The rights in the low bits of a word.
    #[inline]
    pub(crate) const fn of_bits(word: u64) -> Rights {
        Rights((word & Rights::READ_WRITE.bits()) as u8)
    }
}

impl BitOr for Rights {
    type Output = Rights;

    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

/// Spreads numbers over the upper bits of a word: the golden ratio (Knuth, *The Art of Computer
/// Programming*, volume 3, section 6.4). Neighbours end up far apart, and no key can be made to cost
/// more than another place in a table.
#[inline(always)]
pub(crate) const fn spread(key: u64) -> u64 {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
