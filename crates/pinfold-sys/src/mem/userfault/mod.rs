//! `userfaultfd(2)` without faults: noticing that memory is taken away, and moving pages.
//!
//! - [`Watch`] hears of each unmap, remap and discard of the ranges that it watches. Nothing is
//!   protected, so nobody ever faults into it. [`Reader`] reads it from threads of its own, which
//!   is how programs should use it.
//! - [`Mover`] changes which addresses pages have, without copying them (`UFFDIO_MOVE`), as Womack,
//!   Mraz and Mendelson did by writing page table entries (Virtual Memory MTU Reassembly, section
//!   2).
//! - [`Claims`] tells whether anybody's userfaultfd has memory.
//!
//! # What the kernel does (found by the tests beside this, Linux 6.18)
//! **Waiting.** `munmap`, `mmap(MAP_FIXED)` over something, `mremap`, a shrinking `brk`, and
//! `madvise` with `MADV_DONTNEED`, `MADV_FREE` or `MADV_REMOVE`, where they concern a watched
//! range, return only after the event has been *read*. They wait without any lock of the address
//! space, and only a signal that kills wakes them earlier. Closing the last descriptor releases
//! them; a child of `fork` has a copy of the descriptor, therefore [`Watch`] unregisters all before
//! it closes. Neither `fork`, nor `exec`, nor exit waits for anybody.
//!
//! With a [`Reader`] on the same processor ([`Reader::come_here`]) an `munmap` takes 4 to 5 µs more
//! than without a watch. With one elsewhere it takes 10 µs more, or 50 where the processors of a
//! virtual machine sleep; and so it does with an ordinary thread on the same one, where another is
//! idle (`duty.rs` has the reason, and the remedy).
//!
//! **Order.** An unmap or remap has happened when its event can be read; a discard happens *after*
//! its event was read, some time later. In between the validator says valid, and a page that is
//! pinned in between is stale when the discard comes, of which nothing tells. A cache that hears of
//! [`Event::Removed`] may not keep a translation of that range that it makes before the caller of
//! `madvise` is known to have returned.
//!
//! **Not noticed.** Changes of protection (`mprotect`), pages that are moved away (`UFFDIO_MOVE`,
//! which leaves pinned ones alone), pages that a guard takes the place of (`MADV_GUARD_INSTALL`,
//! Linux 6.13; the pages after it is lifted are new), the memory that `shmat(2)` with `SHM_REMAP`
//! puts over watched memory, and all that becomes of that, a mapping that grows into its place
//! included, and changes of files (`ftruncate`, `fallocate`, `MADV_REMOVE` through another
//! mapping). Before Linux 6.17 another userfaultfd of this process can end a watch by unregistering
//! memory that it has not got. A cache of translations has to look at the pages as well: see
//! [`frames`](crate::mem::frames). Memory that another userfaultfd watches is valid to
//! [`Watch::validate`]. A hole that an unmap left in the middle of a range is not noticed by
//! [`Watch::validate`]; its event is. Memory that `mremap` put, watched as it was, over other
//! watched memory is valid to [`Watch::validate`], too, and so is the memory that
//! `MREMAP_DONTUNMAP` leaves empty.
//!
//! **Moved and not told.** `UFFDIO_MOVE` of several threads at once answers `EEXIST`, and that
//! nothing was moved, now and then though it has moved a run of pages. [`Mover`] looks, and counts
//! them.
//!
//! **Effects on the program.** A part of a mapping that is watched is a mapping of its own, and
//! `mremap` of addresses on both sides of such an edge says `EFAULT`, from Linux 6.17 on after it
//! may have moved some (if it was to move all as it is, to a given place). The C library's
//! `realloc` copies then.
//!
//! **`fork`.** The child's memory is not watched, though it has a copy of the descriptor, which
//! speaks of its parent's memory: every call here fails there with [`Reason::Child`].
//! `UFFD_FEATURE_EVENT_FORK` takes `CAP_SYS_PTRACE` and is not used.

mod abi;
mod claims;
mod duty;
mod error;
mod event;
mod late;
mod mover;
mod nearby;
mod open;
mod pages;
mod reader;
mod ring;
mod scheduling;
#[cfg(test)]
pub(crate) mod tests;
mod threads;
mod untold;
mod watch;

pub use self::{
    claims::Claims,
    error::{Error, Reason},
    event::Event,
    mover::{Moved, Mover, Stop},
    open::{Support, probe},
    pages::Pages,
    reader::{Reader, SharedStamp, Stamp},
    watch::{Validity, Watch},
};
