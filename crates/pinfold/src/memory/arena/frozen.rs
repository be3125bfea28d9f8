#![allow(unsafe_code)]
//! Buffers that nobody can write, their owner included.
//!
//! **Invariant.** A [`DraftBuf`] alone has its extent: that is in no table, so its descriptor
//! leaves this process for no peer, and all of it has memory. The file of a [`FrozenBuf`] carries
//! `F_SEAL_WRITE`, which the kernel puts on it only while there is no mapping that writes, and
//! keeps for ever; the mapping is there as long as the extent is. So references to the bytes of
//! either are sound, in this process and in those that map the file.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    os::fd::AsFd,
    slice,
    sync::Arc,
};

use pinfold_sys::fork::ForkMark;

use super::{
    committed::{BLOCK_BYTES, BLOCK_CHUNKS, CHUNK_BYTES, Piece},
    extent::Extent,
    registry::{self, ArenaRef, Listed},
    room,
};
use crate::{Error, Result};

/// A buffer that is being written, to be [frozen](DraftBuf::freeze). It dereferences to its bytes,
/// which are zeros at first; dropping it frees them.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// let mut draft = pinfold::DraftBuf::new(4096)?;
/// draft.fill(7);
/// let frozen = draft.freeze()?;
/// assert_eq!(frozen[..], [7; 4096]);
/// # Ok(())
/// # }
/// ```
pub struct DraftBuf {
    extent: Extent,
    len: usize,
}

impl DraftBuf {
    /// A buffer of `len` bytes in a file of its own, all of which has memory: that takes some
    /// system calls, and 0.1 to 1 ms per MiB.
    ///
    /// # Errors
    /// [`Error::NoMemory`] if the machine or the memory control group of this process has not
    /// enough left; [`Error::Os`] if the system refused it otherwise.
    pub fn new(len: usize) -> Result<DraftBuf> {
        let on = || format!("a buffer of {len} bytes");
        let mark = Arc::new(ForkMark::new().map_err(|error| Error::os("mmap", on(), error))?);
        let whole = len.max(1).checked_next_multiple_of(rustix::param::page_size());
        let whole = whole.ok_or(Error::LimitReached {
            what: "the length of a buffer",
            limit: usize::MAX as u64,
            remedy: "use several buffers",
        })?;
        room::check(whole as u64)?;
        let extent = Extent::new(whole, 1, false, &mark).map_err(Error::failed(on()))?;
        let huge = (whole / BLOCK_BYTES) as u32 * BLOCK_CHUNKS;
        let pieces = [
            Piece { chunks: 0..huge, huge: true },
            Piece { chunks: huge..whole.div_ceil(CHUNK_BYTES) as u32, huge: false },
        ];
        for piece in pieces.iter().filter(|piece| !piece.chunks.is_empty()) {
            let failed = |error| Error::os("madvise(MADV_POPULATE_WRITE)", on(), error);
            extent.commit(piece).map_err(failed)?;
        }
        Ok(DraftBuf { extent, len })
    }

    /// The same bytes, for good: from now on the kernel refuses every writer, this process
    /// included. The bytes are at another address then. One unmapping, which other threads of this
    /// process feel, and a few more system calls.
    ///
    /// # Errors
    /// [`Error::Os`] if the system refused it: `EBUSY` where something has the memory pinned, such
    /// as a read of a device into it that has not ended. The bytes are gone then.
    /// [`Error::Forked`].
    pub fn freeze(self) -> Result<FrozenBuf> {
        if self.extent.is_forked() {
            return Err(Error::Forked);
        }
        let len = self.len;
        let extent = self.extent.freeze();
        let extent = extent.map_err(Error::failed(format!("a buffer of {len} bytes")))?;
        Ok(FrozenBuf { extent: registry::list(extent), offset: 0, len })
    }
}

impl Deref for DraftBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: see the invariant.
        unsafe { slice::from_raw_parts(self.extent.base(), self.len) }
    }
}

impl DerefMut for DraftBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: see the invariant.
        unsafe { slice::from_raw_parts_mut(self.extent.base(), self.len) }
    }
}

impl fmt::Debug for DraftBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DraftBuf").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A buffer that nobody can write any more, neither this process nor any other: the kernel refuses
/// it (`F_SEAL_WRITE`, `fcntl(2)`). It dereferences to its bytes.
///
/// Whoever it is given to ([`Endpoint::give`](crate::Endpoint::give),
/// [`Endpoint::handoff`](crate::Endpoint::handoff)) reads it where it is, by safe code
/// ([`View::bytes`](crate::View::bytes)), and passes it on to a third process without a copy
/// ([`View::into_frozen`](crate::View::into_frozen)). Clones are the same memory; it goes back to
/// the system once the last clone is dropped and the last process has let go of it, in any order.
///
/// Each has a file and a mapping of its own, which a peer maps as well when it is first sent one:
/// for messages of some hundred KiB and more. For others, and where memory is to be used again,
/// there is [`Arena`](crate::Arena). In a child made by `fork(2)` the memory is absent.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// use pinfold::{Endpoint, FrozenBuf};
///
/// let name = format!("local:doc-frozen-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let peer = endpoint.connect(&name)?; // Itself, for once.
/// endpoint.give(peer, 1, FrozenBuf::copy_of(b"for good")?)?;
/// let view = endpoint.recv_view(endpoint.accept()?, 1)?;
/// assert_eq!(view.bytes(), Some(&b"for good"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FrozenBuf {
    extent: Arc<Listed>,
    offset: usize,
    len: usize,
}

impl FrozenBuf {
    /// A buffer with a copy of `bytes`.
    ///
    /// # Errors
    /// As for [`DraftBuf::new`] and [`DraftBuf::freeze`].
    pub fn copy_of(bytes: &[u8]) -> Result<FrozenBuf> {
        let mut draft = DraftBuf::new(bytes.len())?;
        draft.copy_from_slice(bytes);
        draft.freeze()
    }

    /// The `len` bytes at `offset` of a peer's file of `whole` bytes, which has memory for them.
    ///
    /// # Errors
    /// [`Error::Os`]: `EPERM` if somebody can write the file, `EINVAL` if they do not lie inside;
    /// else `mmap` failed.
    pub(crate) fn of_peer(
        file: Arc<dyn AsFd + Send + Sync>,
        whole: usize,
        offset: usize,
        len: usize,
    ) -> Result<FrozenBuf> {
        let on = || "the memory of a peer".to_owned();
        if offset.checked_add(len).is_none_or(|end| end > whole) {
            return Err(Error::os("mmap", on(), rustix::io::Errno::INVAL));
        }
        let mark = Arc::new(ForkMark::new().map_err(|error| Error::os("mmap", on(), error))?);
        let extent = Extent::of_frozen(file, whole, &mark).map_err(Error::failed(on()))?;
        Ok(FrozenBuf { extent: registry::list(extent), offset, len })
    }

    /// The extent it is in, and its offset there.
    pub(crate) fn locate(&self) -> (ArenaRef, u64) {
        (ArenaRef::new(Arc::clone(&self.extent)), self.offset as u64)
    }
}

impl Deref for FrozenBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: inside the mapping, which has memory there: a draft's had from the beginning, and
        // a peer's was checked. The seal refuses holes as well, and shrinking was refused before.
        // Unchanging by the invariant; the extent stays mapped while `self` is borrowed.
        unsafe { slice::from_raw_parts(self.extent.base().add(self.offset), self.len) }
    }
}

impl AsRef<[u8]> for FrozenBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for FrozenBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrozenBuf").field("len", &self.len).finish_non_exhaustive()
    }
}
