//! The shape of a TLB.

use thiserror::Error;

/// The shape of a TLB. [`Geometry::default`] is the paper's (section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Sets of the first level: a power of two, at most [`Geometry::SETS_MAX`]. Default 1,024.
    pub sets: usize,
    /// Entries of a set: 1 to [`Geometry::WAYS_MAX`]. Default 1, which is direct-mapped.
    pub ways: usize,
    /// Entries of the victim list, unless transfers keep more: at most [`Geometry::VICTIMS_MAX`].
    /// Default 16. Every miss looks at each.
    pub victims: usize,
    /// Bytes of a page: a power of two, [`Geometry::PAGE_BYTES_MIN`] to
    /// [`Geometry::PAGE_BYTES_MAX`]. Default 4,096.
    pub page_bytes: u64,
    /// The number of groups of 64 pages in the history of pages ever asked for, which tells a
    /// compulsory miss from others. Each takes about 50 bytes, from when it is first asked for.
    /// Default 65,536: 16 GiB of pages of 4 KiB. Misses beyond count as unclassified.
    pub history_groups_max: usize,
}

impl Default for Geometry {
    fn default() -> Geometry {
        Geometry { sets: 1024, ways: 1, victims: 16, page_bytes: 4096, history_groups_max: 1 << 16 }
    }
}

/// The reason why there can be no TLB of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GeometryError {
    /// Not a power of two, or too many.
    #[error("a TLB cannot have {0} sets: it must be a power of two up to {max}", max = Geometry::SETS_MAX)]
    Sets(usize),
    /// None, or too many.
    #[error("a set of a TLB cannot have {0} entries: it must be 1 to {max}", max = Geometry::WAYS_MAX)]
    Ways(usize),
    /// Too many.
    #[error("a victim list cannot have {0} entries: it must be at most {max}", max = Geometry::VICTIMS_MAX)]
    Victims(usize),
    /// Not a power of two, or out of range.
    #[error(
        "a page cannot have {0} bytes: it must be a power of two from {min} to {max}",
        min = Geometry::PAGE_BYTES_MIN, max = Geometry::PAGE_BYTES_MAX
    )]
    PageBytes(u64),
}

impl Geometry {
    /// Sets at most.
    pub const SETS_MAX: usize = 1 << 20;
    /// Entries of a set at most.
    pub const WAYS_MAX: usize = 16;
    /// Entries of the victim list at most.
    pub const VICTIMS_MAX: usize = 1024;
    /// Bytes of a page at least.
    pub const PAGE_BYTES_MIN: u64 = 64;
    /// Bytes of a page at most.
    pub const PAGE_BYTES_MAX: u64 = 1 << 40;

    /// Checks that a TLB can have this shape.
    pub fn check(&self) -> Result<(), GeometryError> {
        if !self.sets.is_power_of_two() || self.sets > Geometry::SETS_MAX {
            return Err(GeometryError::Sets(self.sets));
        }
        if !(1..=Geometry::WAYS_MAX).contains(&self.ways) {
            return Err(GeometryError::Ways(self.ways));
        }
        if self.victims > Geometry::VICTIMS_MAX {
            return Err(GeometryError::Victims(self.victims));
        }
        let range = Geometry::PAGE_BYTES_MIN..=Geometry::PAGE_BYTES_MAX;
        if !self.page_bytes.is_power_of_two() || !range.contains(&self.page_bytes) {
            return Err(GeometryError::PageBytes(self.page_bytes));
        }
        Ok(())
    }
}
