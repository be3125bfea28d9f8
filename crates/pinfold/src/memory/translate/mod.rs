//! Translations that are kept: from addresses of a space to the data that a transfer needs for
//! them.
//!
//! The first three are plain state without I/O: they are handed addresses and hand back decisions,
//! and reach memory and the kernel by a back end's trait alone.
//!
//! - [`tlb`]: pages to translations, two levels in a few nanoseconds (Welsh, Basu, von Eicken,
//!   *Incorporating Memory Management into User-Level Network Interfaces*).
//! - [`pincache`]: areas that stay pinned after their transfers, under hard budgets (Tezuka,
//!   O'Carroll, Hori, Ishikawa, *Pin-down Cache*).
//! - `stack`: both, one over the other, over a back end that pins.
//! - [`own`]: this process's own memory, by such a stack over the means of this machine, and
//!   watched; one for all endpoints.
//! - [`told`]: translations of endpoints, told to whoever records them.
//!
//! None of the first three knows whether a mapping is still the one that was translated or pinned.
//! An owner that learns of a change invalidates; an owner that cannot learn of changes must not
//! keep anything there.

pub(crate) mod level;
#[cfg(not(loom))]
pub mod own;
pub mod pincache;
#[cfg(not(loom))]
pub(crate) mod stack;
pub mod tlb;
#[cfg(not(loom))]
pub mod told;

pub use level::TranslationLevel;

/// The space of some addresses: this process or a peer, by a number that the owner of the tables
/// gives it.
///
/// A number that is used again for another space needs that the old space was dropped from every
/// table first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId(pub u64);

/// The rights to memory: of a peer to memory that it was given a key of, of a transfer to memory
/// that a translation leads to. The right to write includes the right to read.
///
/// ```
/// use pinfold::{Endpoint, Error, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-rights-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let region = endpoint.region(8, Rights::Read)?; // Only its owner writes it.
/// region.write(0, b"constant")?;
/// let remote = endpoint.open_region(itself, &region.key().unwrap())?;
/// assert!(remote.rights().allow(Rights::Read) && !remote.rights().allow(Rights::ReadWrite));
/// assert!(matches!(remote.write(0, b"variable"), Err(Error::ReadOnly)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rights {
    /// Read.
    Read,
    /// Read, write, and change by atomic operations.
    ReadWrite,
}

impl Rights {
    /// Bits of the number that [`Rights::bits`] returns.
    pub(crate) const BITS: u32 = 1;

    /// Returns whether these include all of `needed`.
    #[inline]
    pub const fn allow(self, needed: Rights) -> bool {
        self.bits() >= needed.bits()
    }

    /// 1 if it may be written.
    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self as u64
    }

    /// The rights in the lowest bit of a word.
    #[inline]
    pub(crate) const fn of_bits(word: u64) -> Rights {
        if word & 1 == 0 { Rights::Read } else { Rights::ReadWrite }
    }
}

/// Spreads numbers over the upper bits of a word: the golden ratio (Knuth, *The Art of Computer
/// Programming*, volume 3, section 6.4). Neighbours end up far apart, and no key can be made to
/// cost more than another place in a table.
#[inline(always)]
pub(crate) const fn spread(key: u64) -> u64 {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
