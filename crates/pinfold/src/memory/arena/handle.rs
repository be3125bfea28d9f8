//! Arenas as programs hold them.

use std::{fmt, sync::Arc};

use super::{ArenaBuf, SharedBuf, heap::Heap, stats::ArenaStats};
use crate::Result;

/// Memory of this process that its peers can map and read, but not write.
///
/// Buffers in it are used like any other memory. Messages from and into them are copied once, at
/// user level, by the side that is free, where ordinary memory takes two copies or the kernel.
/// Peers to which a message in an arena was sent can read all that lies beside it, before and
/// after, until they are gone: use several arenas for peers that must not see each other's data.
///
/// A handle is cheap to clone, and can be used from many threads. The memory lives until the last
/// handle and the last buffer are gone.
///
/// A child made by `fork(2)` has no part in it: there, handles and buffers may be dropped, which
/// does nothing, [`Arena::alloc`] is [`Error::Forked`](crate::Error::Forked), and the memory of
/// buffers is absent and must not be touched.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// let arena = pinfold::Arena::new()?;
/// let mut buf = arena.alloc(4096)?;
/// buf.fill(7);
/// assert_eq!(arena.stats().buffers, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Arena {
    pub(super) heap: Arc<Heap>,
}

impl Arena {
    /// A buffer of `len` bytes, at a multiple of 64 bytes. Its contents are unspecified: zeros, or
    /// bytes of buffers of this arena that were dropped.
    ///
    /// All of it has memory: using it does not fail later. Where memory has to be had from the
    /// system first, that takes 0.1 to 1 ms per MiB; otherwise some tens of nanoseconds, at any
    /// size. See `madvise(2)`, `MADV_POPULATE_WRITE`.
    ///
    /// # Errors
    /// [`Error::LimitReached`](crate::Error::LimitReached) beyond
    /// [`bytes_max`](crate::ArenaBuilder::bytes_max) or
    /// [`bytes_budget`](crate::ArenaBuilder::bytes_budget);
    /// [`Error::NoMemory`](crate::Error::NoMemory) if the machine or the memory control group of
    /// this process has not enough left; [`Error::Os`](crate::Error::Os) if the system refused it
    /// otherwise; [`Error::Forked`](crate::Error::Forked).
    pub fn alloc(&self, len: usize) -> Result<ArenaBuf> {
        self.alloc_aligned(len, 1)
    }

    /// As [`Arena::alloc`], at a multiple of `align` bytes, which is rounded up to a power of two.
    ///
    /// # Errors
    /// As for [`Arena::alloc`].
    pub fn alloc_aligned(&self, len: usize, align: usize) -> Result<ArenaBuf> {
        ArenaBuf::new(self, len, align)
    }

    /// As [`Arena::alloc`], all zeros.
    ///
    /// # Errors
    /// As for [`Arena::alloc`].
    pub fn alloc_zeroed(&self, len: usize) -> Result<ArenaBuf> {
        let mut buf = self.alloc(len)?;
        buf.fill(0);
        Ok(buf)
    }

    /// Gives all memory that no buffer uses back to the system. Returns the number of bytes.
    ///
    /// Memory also goes back by itself: once it was not needed while several times the arena's
    /// bytes were freed, or at once when the budget or the machine is short. As long as peers have
    /// seen nothing of an extent (a part of an arena: 64 MiB or more shared by buffers up to 8 MiB,
    /// or one larger buffer), its memory goes back by 256 KiB; after that only once all of the
    /// extent is free, because the seal that keeps peers from writing also keeps the owner from
    /// punching holes. 0.3 ms per MiB.
    pub fn trim(&self) -> u64 {
        self.heap.trim()
    }

    /// The arena's statistics now.
    pub fn stats(&self) -> ArenaStats {
        self.heap.stats()
    }
}

/// Memory of this process that its peers can map, read and write.
///
/// As [`Arena`], but since a peer may write a byte at any time there can be no reference to its
/// bytes. Its buffers are [`SharedBuf`]s, which copy in and out. Peers that may write can also take
/// the memory away again, so using it can fail later, by a signal, if they mean harm and memory is
/// short.
///
/// Requests can send its buffers and receive into them
/// ([`send_owned`](crate::Endpoint::send_owned), [`recv_owned`](crate::Endpoint::recv_owned)). A
/// long message that is received into one is copied there by its sender, alone or beside the
/// receiver. From then on that sender can read and write all that lies beside it, too.
///
/// ```
/// use pinfold::{Endpoint, SharedArena};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-shared-arena-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let arena = SharedArena::builder().bytes_max(64 << 20).build_shared()?;
/// // A sender can copy a long message straight to where it is received.
/// let receiving = endpoint.recv_owned(peer, 1, arena.alloc(1 << 20)?);
/// endpoint.send(itself, 1, &vec![3; 1 << 20])?;
/// let (received, buf) = receiving.wait();
/// assert_eq!(received?.len, 1 << 20);
/// assert_eq!(buf.to_vec(), vec![3; 1 << 20]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedArena {
    pub(super) heap: Arc<Heap>,
}

impl SharedArena {
    /// A buffer of `len` bytes, all zeros, at a multiple of 64 bytes.
    ///
    /// # Errors
    /// As for [`Arena::alloc`].
    pub fn alloc(&self, len: usize) -> Result<SharedBuf> {
        self.alloc_aligned(len, 1)
    }

    /// As [`SharedArena::alloc`], at a multiple of `align` bytes, which is rounded up to a power
    /// of two.
    ///
    /// # Errors
    /// As for [`Arena::alloc`].
    pub fn alloc_aligned(&self, len: usize, align: usize) -> Result<SharedBuf> {
        SharedBuf::new(self, len, align)
    }

    /// As [`Arena::trim`]. Memory always goes back by 256 KiB here.
    pub fn trim(&self) -> u64 {
        self.heap.trim()
    }

    /// The arena's statistics now.
    pub fn stats(&self) -> ArenaStats {
        self.heap.stats()
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(&self.heap, "Arena", f)
    }
}

impl fmt::Debug for SharedArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(&self.heap, "SharedArena", f)
    }
}

fn debug(heap: &Heap, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_struct(name)
        .field("settings", heap.settings())
        .field("stats", &heap.stats())
        .finish_non_exhaustive()
}
