//! A stretch of a space.

use crate::memory::translate::SpaceId;

/// The bytes from `start` up to `end`, which is behind the last; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Area {
    /// The space of the addresses.
    pub space: SpaceId,
    /// The first byte.
    pub start: u64,
    /// Behind the last byte.
    pub end: u64,
}

impl Area {
    /// The pages that have any of the bytes from `start` to `last`. `None` if they go beyond the
    /// end of the space.
    pub(super) fn around(space: SpaceId, start: u64, last: u64, page_bytes: u64) -> Option<Area> {
        let end = (last | (page_bytes - 1)).checked_add(1)?;
        Some(Area { space, start: start & !(page_bytes - 1), end })
    }

    /// Its length, in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// The last of `len` bytes from `start` on. `None` for no bytes, and for some beyond the end.
#[inline(always)]
pub(super) fn last_of(start: u64, len: u64) -> Option<u64> {
    let last = start.wrapping_add(len).wrapping_sub(1);
    // No bytes end before they begin, except at 0, where `last` is the greatest number.
    (last >= start && len != 0).then_some(last)
}
