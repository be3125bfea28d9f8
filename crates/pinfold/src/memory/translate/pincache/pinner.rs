//! The pinner: the back end of a pin-down cache.

use thiserror::Error;

use super::{AccountId, Area};
use crate::memory::translate::SpaceId;

/// The handle that a back end has given for an area: the number of a slot, an address, or any other
/// value it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// The reason why a back end did not pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refused {
    /// No memory may be pinned any more. With less pinned it may work.
    #[error("no more memory may be pinned")]
    NoMemory,
    /// No slot, descriptor or mapping is left. With less pinned it may work.
    #[error("the back end has no slot left")]
    NoSlots,
    /// There is no memory at some of these addresses.
    #[error("there is no memory at these addresses")]
    NotMapped,
    /// The memory may not be used so.
    #[error("the memory may not be pinned")]
    Denied,
    /// The memory could be pinned for a transfer, but not be kept; the reason, by a number of the
    /// back end's own.
    #[error("the area cannot stay pinned (reason {0})")]
    NotKept(u8),
    /// There are no means of pinning here.
    #[error("there is nothing here that pins")]
    Absent,
    /// This process is a child of the one that made the back end.
    #[error("made before a fork, by the parent: make another one")]
    Child,
    /// Anything else, by its `errno`.
    #[error("the back end failed with errno {0}")]
    Other(i32),
}

impl Refused {
    /// Returns whether pinning may succeed once other memory was unpinned.
    pub const fn is_shortage(self) -> bool {
        matches!(self, Refused::NoMemory | Refused::NoSlots)
    }
}

/// The cost of pinning, for a choice between it and other ways. In nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinCost {
    /// To pin, at any length.
    pub pin_ns: u32,
    /// To pin, for each page.
    pub pin_page_ns: u32,
    /// To unpin.
    pub unpin_ns: u32,
}

/// Pins areas of memory, by any means.
///
/// The cache asks for whole pages, and never for more at a time than its budget has.
pub trait Pinner {
    /// Bytes of its pages: a power of two, always the same.
    fn page_bytes(&self) -> u64;

    /// Pins an area. Memory that is pinned already, in parts or as a whole, may be pinned once
    /// more.
    ///
    /// # Errors
    /// It was not pinned, and nothing has changed.
    fn pin(&mut self, area: Area) -> Result<Handle, Refused>;

    /// Unpins an area that [`Pinner::pin`] has pinned.
    fn unpin(&mut self, handle: Handle, area: Area);

    /// No request will find this area any more. It is unpinned at once, or when the last transfer
    /// there ends.
    fn forget(&mut self, _area: Area) {}

    /// The account that the areas of a space are charged to: always the same.
    fn account(&self, _space: SpaceId) -> AccountId {
        AccountId::default()
    }

    /// The number of slots that an area takes: at least 1, always the same for an area, and no
    /// fewer for a longer one.
    fn slots(&self, _area: Area) -> u32 {
        1
    }

    /// The cost of pinning.
    fn cost(&self) -> PinCost {
        PinCost::default()
    }
}
