//! The answers of a TLB, and the entries it hands back.

use super::entry::EntryId;
use crate::memory::translate::{Rights, SpaceId};

/// The answer to a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<X> {
    /// There is a translation that allows the rights asked for.
    Hit(X),
    /// There is none.
    Miss,
    /// There is a translation, which allows only these rights.
    Denied(Rights),
}

/// An entry that is no longer in the TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone<T> {
    /// The space of the page.
    pub space: SpaceId,
    /// The address at which the page begins.
    pub address: u64,
    /// Its translation.
    pub value: T,
    /// Transfers that still use it. If 0, the page may be unpinned now; else the
    /// [`Tlb::end`](super::Tlb::end) of the last of them hands it back once more, with 0.
    pub transfers: u32,
}

/// A transfer that uses a translation; to be handed to [`Tlb::end`](super::Tlb::end) of the TLB
/// that it is from. If it is dropped instead, its entry stays for good.
#[must_use = "the entry stays in flight until this is handed to Tlb::end"]
#[derive(Debug, PartialEq, Eq)]
pub struct Transfer<T> {
    pub(super) space: SpaceId,
    pub(super) page: u64,
    pub(super) id: EntryId,
    pub(super) value: T,
}

impl<T: Copy> Transfer<T> {
    /// The translation.
    #[inline]
    pub fn value(&self) -> T {
        self.value
    }
}
