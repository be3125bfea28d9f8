#![allow(unsafe_code)]
//! Messages in memory of another process, such as what it gave away.
//!
//! **Invariant.** What a [`PeerPart`] tells lies in a file that can neither change its size nor lose memory; the
//! file had memory there when the part was made, and is mapped here, for reading alone, until the part is
//! gone. Nothing here refers to its bytes but by addresses: their owner can write them at any time.

use std::{
    fmt,
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use pinfold_sys::fork::ForkMark;

use super::{
    super::{
        PAGE_BYTES,
        gather::{Backing, Piece},
    },
    Scattered,
};
use crate::{Error, Result, arena::Mapping, error::inside};

/// A file in memory that another process has shared, mapped here for reading: an extent of its arena.
///
/// It holds the descriptor, so that parts of the file can be mapped in a row; two mappings (one is a page that
/// tells a child of `fork(2)` what it is) and as many addresses as the file has bytes.
pub struct PeerMemory {
    mapping: Mapping,
    file: OwnedFd,
    mark: Arc<ForkMark>,
}

impl PeerMemory {
    /// Maps a file of `bytes` bytes. Two calls of `mmap(2)`, and four that look at the file.
    ///
    /// # Errors
    /// [`Error::Os`] naming what is wrong with it: it is no ordinary memfd of exactly that size, it could still
    /// shrink, grow or be sealed further, or its owner could take memory out of it, which only a seal against
    /// writers prevents (`F_SEAL_FUTURE_WRITE`, [`memfd::seal`](pinfold_sys::memfd::seal)); `ENOMEM` where
    /// addresses or mappings are used up. What it holds can then be copied by other means alone.
    pub fn map(file: OwnedFd, bytes: u64) -> Result<Arc<PeerMemory>> {
        let mark = ForkMark::new().map_err(|error| Error::os("mmap", "a page", error))?;
        let mark = Arc::new(mark);
        let mapping = Mapping::map_readonly(file.as_fd(), bytes, &mark)?;
        Ok(Arc::new(PeerMemory { mapping, file, mark }))
    }

    /// Bytes; never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.mapping.len()
    }

    /// The file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Some of its bytes, as a part of a message. The first time two system calls for 256 KiB, which bring its
    /// pages here, later a look.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::Os`] with `ENODATA` where the file has no memory, or not for all of the
    /// 256 KiB around: to touch it there would take some of this process's.
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
        f.debug_struct("PeerMemory").field("file", &self.file).field("len", &self.len()).finish()
    }
}

/// A part of a message that lies in memory of another process. A `Vec` of them is a message that a
/// [`Folder`](super::Folder) makes contiguous: by mapping the same pages a second time, one behind the other, for
/// reading alone; nothing is copied if each part begins at a page, and each but the last ends at one. Other
/// parts, and all of them where that is cheaper, are copied, and the [`Receipt`](super::Receipt) says why.
///
/// The memory's owner could write it, so the message is not [`Quiet`](super::Quiet): it is read by
/// [`Folded::read`](super::Folded::read), or by addresses. The same bytes may be in several parts.
///
/// `K` is what has to stay until nobody looks at the part any more, here or in the window: a
/// [`View`](crate::View), after which its owner has the memory again. It is dropped behind the rest.
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
    /// The same with something that stays as long.
    pub fn with<K>(self, keep: K) -> PeerPart<K> {
        let PeerPart { memory, start, len, huge, keep: () } = self;
        PeerPart { memory, start, len, huge, keep }
    }
}

impl<K> PeerPart<K> {
    /// The same, of which the whole aligned 2 MiB are said to be huge pages, or not: then they are mapped as
    /// such, which costs what a small page does. If they are not, time is lost and nothing else.
    pub fn assume_huge(self, huge: bool) -> PeerPart<K> {
        PeerPart { huge, ..self }
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory it is a part of.
    pub fn memory(&self) -> &Arc<PeerMemory> {
        &self.memory
    }

    /// What stays as long as it.
    pub fn keep(&self) -> &K {
        &self.keep
    }

    /// That alone, where the part is looked at no more.
    pub fn into_keep(self) -> K {
        self.keep
    }
}

// SAFETY: the bytes are mapped from the file's beginning on, for reading, as long as the part has its memory; by
// the seals that were looked for they stay in the file, and were there when the part was made.
unsafe impl<K: Send + Sync> Scattered for PeerPart<K> {
    fn gather(&self, to: &mut Vec<Piece>) {
        // A child does not have the mapping.
        let at = match self.memory.mark.is_child() {
            true => None,
            false => self.memory.mapping.get(self.start, self.len),
        };
        if let Some(at) = at.filter(|_| self.len > 0) {
            let end = (self.start + self.len).next_multiple_of(PAGE_BYTES as u64);
            to.push(Piece {
                at: at.expose_provenance() as u64,
                len: self.len,
                // What lies behind it in its last page can be seen here anyway.
                room: end - self.start,
                huge: self.huge,
                backing: Backing::File { offset: self.start },
            });
        }
    }

    fn file(&self, _: usize) -> Option<BorrowedFd<'_>> {
        Some(self.memory.file())
    }

    // Nothing is ever taken away from a file.
    fn left(&mut self, _: Range<u64>) {}

    fn torn(&mut self, _: Range<u64>) {}

    fn expose(&mut self) {}
}
