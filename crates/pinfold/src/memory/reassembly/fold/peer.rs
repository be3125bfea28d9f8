#![allow(unsafe_code)]
//! Messages in memory of another process, such as memory that it gave away.
//!
//! **Invariant.** The pieces that a [`PeerPart`] tells lie in a file that cannot change its size,
//! nor, unless peers may write it, lose memory; the file had memory there when the part was made,
//! and is mapped here until the part is gone. Nothing here refers to its bytes but by addresses:
//! their owner can write them at any time.

use std::{
    fmt,
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::Arc,
};

use pinfold_sys::fork::ForkMark;

use super::{
    super::{
        HUGE_BYTES, PAGE_BYTES,
        gather::{Backing, Piece},
    },
    Scattered,
};
use crate::{
    Error, Result,
    error::inside,
    memory::arena::{Cells, Mapping},
};

/// A file in memory that another process has shared, mapped here for reading: an extent of its
/// arena.
///
/// It holds the descriptor, so that parts of the file can be mapped in a row; two mappings (one is
/// a page that tells a child of `fork(2)` that it is one) and as many addresses as the file has
/// bytes.
pub struct PeerMemory {
    mapping: Arc<Mapping>,
    file: Option<Arc<dyn AsFd + Send + Sync>>,
}

impl PeerMemory {
    /// Maps a file of `bytes` bytes. Two calls of `mmap(2)`, and four that look at the file.
    ///
    /// # Errors
    /// [`Error::Os`] naming what is wrong with it: it is no ordinary memfd of exactly that size, it
    /// could still shrink, grow or be sealed further, or its owner could take memory out of it,
    /// which only a seal against writers prevents (`F_SEAL_FUTURE_WRITE`,
    /// [`memfd::seal`](pinfold_sys::mem::memfd::seal)); `ENOMEM` where addresses or mappings are
    /// used up. Its contents can then be copied by other means alone.
    pub fn map(file: OwnedFd, bytes: u64) -> Result<Arc<PeerMemory>> {
        let mark = ForkMark::new().map_err(|error| Error::os("mmap", "a page", error))?;
        let mapping = Mapping::map_readonly(file.as_fd(), bytes, &Arc::new(mark))?;
        Ok(Arc::new(PeerMemory::of(Arc::new(mapping), Some(Arc::new(file)))))
    }

    /// The memory that an endpoint has mapped already: as it mapped it, which may be for writing,
    /// too. Without its file, parts of it can only be copied.
    pub(crate) fn of(
        mapping: Arc<Mapping>,
        file: Option<Arc<dyn AsFd + Send + Sync>>,
    ) -> PeerMemory {
        PeerMemory { mapping, file }
    }

    /// Bytes; never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.mapping.len()
    }

    /// The file. `None`: the endpoint that mapped it has no descriptor of it any more.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }

    /// Some of its bytes, as a part of a message. The first time two system calls for 256 KiB,
    /// which bring its pages here, later a load.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::Os`] with `ENODATA` where the file has no memory, or not
    /// for all of the 256 KiB around: to touch it there would take memory of this process.
    pub fn part(self: &Arc<PeerMemory>, bytes: Range<u64>) -> Result<PeerPart> {
        let len = bytes.end.saturating_sub(bytes.start);
        inside(bytes.start, len, self.len())?;
        let failed = |error| Error::os("madvise", "memory of a peer", error);
        self.mapping.prepare(bytes.start, len).map_err(failed)?;
        let memory = Arc::clone(self);
        Ok(PeerPart { memory, start: bytes.start, len, huge: false, keep: () })
    }
}

impl fmt::Debug for PeerMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerMemory").field("file", &self.file()).field("len", &self.len()).finish()
    }
}

/// A part of a message that lies in memory of another process. A `Vec` of them is a message that a
/// [`Folder`](super::Folder) makes contiguous: by mapping the same pages a second time, one behind
/// the other, for reading alone; nothing is copied if each part begins at a page, and each but the
/// last ends at one. Other parts, and all of them where that is cheaper, are copied, and the
/// [`Receipt`](super::Receipt) says why.
///
/// The memory's owner could write it, so the message is not [`Quiet`](super::Quiet): it is read by
/// [`Folded::read`](super::Folded::read), or by addresses. The same bytes may be in several parts.
///
/// `K` is a value that has to stay until the part is no more in use, here or in the window: a
/// [`View`](crate::View), after which its owner has the memory again. It is dropped behind the
/// rest.
///
/// In a child of `fork(2)` there are no bytes.
#[derive(Debug)]
pub struct PeerPart<K = ()> {
    memory: Arc<PeerMemory>,
    start: u64,
    len: u64,
    huge: bool,
    keep: K,
}

impl PeerPart {
    /// The same with a value that stays as long.
    pub fn with<K>(self, keep: K) -> PeerPart<K> {
        let PeerPart { memory, start, len, huge, keep: () } = self;
        PeerPart { memory, start, len, huge, keep }
    }
}

impl<K> PeerPart<K> {
    /// The same, of which the whole aligned 2 MiB are said to be huge pages, or not: then they are
    /// mapped as such, at the cost of a small page. If they are not, time is lost and nothing else.
    pub fn assume_huge(self, huge: bool) -> PeerPart<K> {
        PeerPart { huge, ..self }
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the part has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory it is a part of.
    pub fn memory(&self) -> &Arc<PeerMemory> {
        &self.memory
    }

    /// Returns whether the part begins where a huge page can, and has the bytes of one: if its
    /// place in the message is alike, its file's huge pages, if it has any, can be mapped as such.
    pub(crate) fn suits_huge(&self) -> bool {
        self.start.is_multiple_of(HUGE_BYTES as u64) && self.len >= HUGE_BYTES as u64
    }

    /// Its first byte. `None`: it has none, or it is its parent's.
    fn at(&self) -> Option<*const u8> {
        let mapping = &self.memory.mapping;
        if self.len == 0 || mapping.is_absent() { None } else { mapping.get(self.start, self.len) }
    }

    /// Adds its bytes to others, copied; nothing in a child of `fork(2)`.
    pub(crate) fn copy_to(&self, to: &mut Vec<u8>) {
        let Some(at) = self.at() else { return };
        let len = self.len as usize;
        to.reserve(len);
        // SAFETY: readable by the invariant; there is room for them behind the old bytes.
        unsafe {
            to.as_mut_ptr().add(to.len()).copy_from_nonoverlapping(at, len);
            to.set_len(to.len() + len);
        }
    }

    /// The way to write it, if this process may, and its owner has aligned it for that.
    pub(crate) fn cells(&self) -> Option<Cells> {
        let mapping = &self.memory.mapping;
        let at = if mapping.is_absent() { None } else { mapping.get_mut(self.start, self.len) };
        let at = NonNull::new(at?).filter(|at| at.addr().get().is_multiple_of(64))?;
        // SAFETY: mapped writable while the part lives; a peer's memory is reached as raw bytes
        // here, and atomically.
        Some(unsafe { Cells::new(at, self.len as usize) })
    }

    /// The value that stays as long as the part.
    pub fn keep(&self) -> &K {
        &self.keep
    }

    /// That value alone, once the part is used no more.
    pub fn into_keep(self) -> K {
        self.keep
    }
}

// SAFETY: the bytes are mapped from the file's beginning on as long as the part has its memory; by
// the seals that were looked for they stay within the file, and were there when the part was made.
unsafe impl<K: Send + Sync> Scattered for PeerPart<K> {
    fn gather(&self, to: &mut Vec<Piece>) {
        if let Some(at) = self.at() {
            let end = (self.start + self.len).next_multiple_of(PAGE_BYTES as u64);
            let in_file = Backing::File { offset: self.start };
            to.push(Piece {
                at: at.expose_provenance() as u64,
                len: self.len,
                // The bytes behind it in its last page can be seen here anyway.
                room: end - self.start,
                huge: self.huge,
                backing: if self.memory.file.is_some() { in_file } else { Backing::Other },
            });
        }
    }

    fn file(&self, _: usize) -> Option<BorrowedFd<'_>> {
        self.memory.file()
    }

    // Nothing is ever taken away from a file.
    fn left(&mut self, _: Range<u64>) {}

    fn torn(&mut self, _: Range<u64>) {}

    fn expose(&mut self) {}
}
