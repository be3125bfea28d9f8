//! Making an arena.

use super::{
    Arena, SharedArena,
    committed::BLOCK_BYTES,
    heap::{Heap, Settings},
    room,
};
use crate::Result;

const BYTES_MAX: usize = 64 << 30;
/// Bytes that programs can address on any 64-bit machine.
const BYTES_MAX_LIMIT: usize = 1 << 46;

/// The settings of an arena to be made; each has a sensible default.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// let arena = pinfold::Arena::builder().bytes_budget(1 << 20).build()?;
/// assert!(arena.alloc(1 << 20).is_ok());
/// assert!(arena.alloc(2 << 20).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ArenaBuilder {
    bytes_max: usize,
    bytes_budget: Option<u64>,
    huge_pages: bool,
}

impl Default for ArenaBuilder {
    fn default() -> ArenaBuilder {
        ArenaBuilder { bytes_max: BYTES_MAX, bytes_budget: None, huge_pages: true }
    }
}

impl Arena {
    /// An arena with the settings that [`ArenaBuilder`] begins with. It takes address space and a
    /// descriptor; memory is taken when buffers are.
    ///
    /// # Errors
    /// As for [`ArenaBuilder::build`].
    pub fn new() -> Result<Arena> {
        Arena::builder().build()
    }

    /// Settings for an arena.
    pub fn builder() -> ArenaBuilder {
        ArenaBuilder::default()
    }
}

impl SharedArena {
    /// Settings for an arena, to be made by [`ArenaBuilder::build_shared`].
    pub fn builder() -> ArenaBuilder {
        ArenaBuilder::default()
    }
}

impl ArenaBuilder {
    /// Bytes of address space that the arena may take, here and in each peer that maps all of it;
    /// rounded up to 2 MiB. Taken piece by piece when buffers need it. Default: 64 GiB.
    pub fn bytes_max(mut self, bytes: usize) -> ArenaBuilder {
        self.bytes_max = bytes;
        self
    }

    /// Bytes of memory that the arena may take, in use or not; a limit that holds. Memory is taken
    /// by 256 KiB. Default: half the memory of the machine.
    pub fn bytes_budget(mut self, bytes: u64) -> ArenaBuilder {
        self.bytes_budget = Some(bytes);
        self
    }

    /// Sets whether to ask for huge pages: peers then map 2 MiB by one fault, and the arena grows
    /// by 2 MiB once it has as much. Where the machine has none, small ones are used;
    /// [`ArenaStats::bytes_huge`](super::ArenaStats::bytes_huge) tells. Default: yes. See
    /// `MADV_COLLAPSE` in `madvise(2)`.
    pub fn huge_pages(mut self, wanted: bool) -> ArenaBuilder {
        self.huge_pages = wanted;
        self
    }

    /// Makes an arena that peers can read.
    ///
    /// # Errors
    /// [`Error::Os`](crate::Error::Os) if `memfd_create(2)` or `mmap(2)` is denied, or descriptors
    /// or address space have run out.
    pub fn build(self) -> Result<Arena> {
        Ok(Arena { heap: Heap::new(self.settings(false))? })
    }

    /// Makes an arena that peers can also write.
    ///
    /// # Errors
    /// As for [`ArenaBuilder::build`].
    pub fn build_shared(self) -> Result<SharedArena> {
        Ok(SharedArena { heap: Heap::new(self.settings(true))? })
    }

    /// As [`ArenaBuilder::build_shared`], but only the owner can write.
    pub(crate) fn build_readable(self) -> Result<SharedArena> {
        Ok(SharedArena { heap: Heap::new(self.settings(false))? })
    }

    fn settings(&self, peers_may_write: bool) -> Settings {
        let bytes_max = self.bytes_max.clamp(1, BYTES_MAX_LIMIT).next_multiple_of(BLOCK_BYTES);
        let half = || room::total().map_or(bytes_max as u64, |bytes| bytes / 2);
        let bytes_budget = self.bytes_budget.unwrap_or_else(half);
        Settings { bytes_max, bytes_budget, huge_pages: self.huge_pages, peers_may_write }
    }
}
