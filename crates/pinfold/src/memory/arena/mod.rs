//! Arenas: memory of this process that its peers can map.
//!
//! From top to bottom:
//!
//! - `handle`, `builder`: [`Arena`] and [`SharedArena`], which programs hold.
//! - `buf`, `shared`: their buffers.
//! - `frozen`: buffers that nobody can write, each a file of its own.
//! - `heap`: commits memory and returns it.
//! - `state`: the account of extents; under it `space` (the bytes in use), `committed` (those with
//!   memory), `demand` (the need of late) and `recent` (blocks just dropped). No system calls.
//! - `room`: the memory that the system has left.
//! - `extent`: one memfd and its mapping.
//! - `registry`: from an address to the extent it is in.
//! - `remote`: extents of peers, mapped here.
//! - `after_close`: memory that closed endpoints had given away and that is still used.
//!
//! # Why an arena is several files
//!
//! An obvious arena is one sparse file of the greatest size, whose free pages are returned by
//! punching holes. But `F_SEAL_FUTURE_WRITE`, the seal by which the kernel keeps peers from
//! mapping a file writable, also refuses holes, to its owner, too. A descriptor opened read-only
//! instead of the seal would not do: a peer of the same user changes the mode and opens the file
//! anew. So memory that peers have seen goes back to the system with its file only, and therefore
//! an arena has several files, *extents*, and returns those that are free. Buffers up to 8 MiB
//! share extents of 64 MiB and more; a larger one has its own. An extent is sealed when its
//! descriptor is first wanted; until then, and if peers may write, it returns memory by holes.
//!
//! There are two more reasons: a reader that touches pages of a sparse file allocates them, so the
//! waste by a hostile reader is bounded by the extents it knows; and a peer maps only the extents
//! it needs.
//!
//! # What cannot fail later
//!
//! A buffer is handed out once all of it has memory. Want of memory is thus an error of
//! [`Arena::alloc`]. [`room`] names the cases that are left to chance on the way there.
//!
//! # Huge pages
//!
//! Of two ways to huge pages in shared memory, `MADV_HUGEPAGE` depends on a setting that is `never`
//! nearly everywhere. `MADV_COLLAPSE` of a block in which one page is present works with it, and
//! gets 2 MiB several times faster than filling it by small pages. It never makes the kernel kill a
//! process for want of memory.

pub(crate) mod after_close;
mod buf;
mod builder;
mod cells;
mod committed;
mod demand;
mod extent;
mod frozen;
mod handle;
mod heap;
mod recent;
mod registry;
mod remote;
mod room;
mod shared;
mod space;
mod state;
mod stats;
#[cfg(test)]
mod tests;

pub use self::{
    buf::ArenaBuf,
    builder::ArenaBuilder,
    frozen::{DraftBuf, FrozenBuf},
    handle::{Arena, SharedArena},
    shared::SharedBuf,
    stats::ArenaStats,
};
pub(crate) use self::{
    cells::Cells,
    registry::{ArenaRef, find, gap_at, gone, is_live, wake_when_gone},
    remote::Mapping,
};
