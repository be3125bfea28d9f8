//! One memfd of an arena, mapped whole by its owner.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use pinfold_sys::{
    failed::Failed,
    fork::ForkMark,
    mem::{
        mapping::{ReadOnlyMapping, SharedMapping},
        memfd,
    },
};

use super::committed::{BLOCK_BYTES, CHUNK_BYTES, Piece};

/// The name of an extent in `/proc/PID/maps`.
const NAME: &str = "pinfold-arena";

/// The descriptor has never left this process, so holes can be punched.
const OPEN: u8 = 0;
/// The kernel refuses new writers.
const SEALED_FOR_READERS: u8 = 1;
/// The size is sealed, but writers are not refused: peers may write, or the kernel has no such
/// seal.
const SEALED: u8 = 2;

/// A sparse file in memory, of fixed size, and this process's mapping of it.
pub(crate) struct Extent {
    /// Unique in this process.
    pub id: u64,
    pub len: usize,
    pub peers_may_write: bool,
    /// The mapping; `Some` until the extent is dropped.
    mapping: Option<SharedMapping>,
    /// The mapping in its place once it is frozen.
    frozen: Option<ReadOnlyMapping>,
    file: File,
    sealed: AtomicU8,
    mark: Arc<ForkMark>,
}

/// The descriptor of an extent's file.
enum File {
    Own(OwnedFd),
    /// One that a peer sent, of a file that nobody can write.
    Theirs(Arc<dyn AsFd + Send + Sync>),
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            File::Own(file) => file.as_fd(),
            File::Theirs(file) => file.as_fd(),
        }
    }
}

impl Extent {
    /// Makes an extent of `len` bytes at a multiple of `align` in this address space. No page of
    /// it takes memory yet.
    ///
    /// # Errors
    /// The call that failed, and its error.
    pub(crate) fn new(
        len: usize,
        align: usize,
        peers_may_write: bool,
        mark: &Arc<ForkMark>,
    ) -> Result<Extent, Failed> {
        let file = memfd::create_fixed(NAME, len)?;
        let align = align.max(BLOCK_BYTES);
        let mapping =
            SharedMapping::map_aligned(file.as_fd(), len, align).map_err(Failed::of("mmap"))?;
        Ok(Extent {
            id: next_id(),
            len,
            peers_may_write,
            mapping: Some(mapping),
            frozen: None,
            file: File::Own(file),
            sealed: AtomicU8::new(OPEN),
            mark: Arc::clone(mark),
        })
    }

    /// The same file and contents, which nobody can write any more, at another address.
    ///
    /// # Errors
    /// The call that failed, and its error: `EBUSY` if something has pages of it pinned. Memory and
    /// contents are gone then.
    pub(crate) fn freeze(mut self) -> Result<Extent, Failed> {
        let frozen = map_frozen(self.file.as_fd(), self.len)?;
        // The kernel puts the seal on no file that is mapped writable.
        self.mapping = None;
        memfd::seal_against_all(self.file.as_fd())?;
        self.frozen = Some(frozen);
        self.sealed = AtomicU8::new(SEALED_FOR_READERS);
        Ok(self)
    }

    /// An extent of this process's that is a file of a peer's, of `len` bytes, which nobody can
    /// write.
    ///
    /// # Errors
    /// The call that failed, and its error; `EPERM` if somebody can write it.
    pub(crate) fn of_frozen(
        file: Arc<dyn AsFd + Send + Sync>,
        len: usize,
        mark: &Arc<ForkMark>,
    ) -> Result<Extent, Failed> {
        if !memfd::has_no_writers(file.as_fd().as_fd()) {
            return Err(Failed { call: "fcntl(F_GET_SEALS)", errno: rustix::io::Errno::PERM });
        }
        let frozen = map_frozen(file.as_fd().as_fd(), len)?;
        Ok(Extent {
            id: next_id(),
            len,
            peers_may_write: false,
            mapping: None,
            frozen: Some(frozen),
            file: File::Theirs(file),
            sealed: AtomicU8::new(SEALED_FOR_READERS),
            mark: Arc::clone(mark),
        })
    }

    /// Its first byte. Not to be written if the extent is frozen.
    #[inline]
    pub(crate) fn base(&self) -> *mut u8 {
        match (&self.mapping, &self.frozen) {
            (Some(mapping), _) => mapping.as_ptr(),
            (None, Some(frozen)) => frozen.as_ptr().cast_mut(),
            (None, None) => ptr::null_mut(),
        }
    }

    /// Returns whether this process was forked from the one that made it.
    pub(crate) fn is_forked(&self) -> bool {
        self.mark.is_child()
    }

    /// Has the system set memory aside for some chunks. Returns whether they are huge pages now.
    ///
    /// # Errors
    /// The kernel's error; part of the chunks may have memory all the same.
    pub(crate) fn commit(&self, piece: &Piece) -> io::Result<bool> {
        let Some(mapping) = &self.mapping else { return Ok(false) };
        let range = self.bytes(&piece.chunks);
        let mut huge = false;
        if piece.huge {
            // A huge page grows out of any page, and is cleared far faster than 512 small ones.
            for block in range.clone().step_by(BLOCK_BYTES) {
                mapping.populate_file(self.file.as_fd(), block..block + 1)?;
            }
            huge = mapping.collapse(range.clone()).is_ok();
        }
        mapping.populate_file(self.file.as_fd(), range)?;
        Ok(huge)
    }

    /// Returns whether memory can be returned while the extent lives: the seal against writers also
    /// is one against holes.
    pub(crate) fn can_release(&self) -> bool {
        self.sealed.load(Ordering::Relaxed) != SEALED_FOR_READERS
    }

    /// Gives the memory of some chunks back to the system.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` if the extent was sealed meanwhile.
    pub(crate) fn release(&self, chunks: &Range<u32>) -> io::Result<()> {
        match &self.mapping {
            Some(mapping) => mapping.release(self.bytes(chunks)),
            None => Ok(()),
        }
    }

    /// Puts the last seals on, before the descriptor leaves this process. Returns whether the
    /// kernel refuses new writers from now on.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn seal(&self) -> Result<bool, Failed> {
        match self.sealed.load(Ordering::Relaxed) {
            SEALED_FOR_READERS => return Ok(true),
            SEALED => return Ok(false),
            _ => {}
        }
        memfd::seal(self.file.as_fd(), !self.peers_may_write)?;
        let readers = memfd::refuses_writers(self.file.as_fd());
        let sealed = if readers { SEALED_FOR_READERS } else { SEALED };
        self.sealed.store(sealed, Ordering::Relaxed);
        Ok(readers)
    }

    /// Returns whether it is sealed and the kernel refuses new writers.
    #[cfg(test)]
    pub(crate) fn is_sealed_for_readers(&self) -> bool {
        self.sealed.load(Ordering::Relaxed) == SEALED_FOR_READERS
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The byte offsets of some chunks. The last chunk may be a short one.
    fn bytes(&self, chunks: &Range<u32>) -> Range<usize> {
        chunks.start as usize * CHUNK_BYTES..(chunks.end as usize * CHUNK_BYTES).min(self.len)
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        if self.is_forked() {
            // The mapping is not in this process; another one may lie there by now.
            std::mem::forget(self.mapping.take());
            std::mem::forget(self.frozen.take());
        }
    }
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn map_frozen(file: BorrowedFd<'_>, len: usize) -> Result<ReadOnlyMapping, Failed> {
    let align = if len < BLOCK_BYTES { 1 } else { BLOCK_BYTES };
    ReadOnlyMapping::map_private(file, len, align).map_err(Failed::of("mmap"))
}
