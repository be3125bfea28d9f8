#![allow(unsafe_code)]
//! The memory of a status page.
//!
//! **Invariant.** Its words are reached as atomics and never otherwise, at offsets that are bounded
//! here, in memory that is mapped as long as a part of it is held. An endpoint's page has memory
//! behind every record that is handed out. A stranger's page is a sealed memfd, so that it does not
//! end before its end; readers check the values of its words.

use std::{
    io,
    ops::Deref,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use pinfold_sys::{
    failed::{Failed, may_be_denied},
    mem::{
        mapping::{ReadOnlyMapping, SharedMapping},
        memfd,
    },
};

use zerocopy::{FromBytes, IntoBytes};

use super::layout::{FILE_BYTES, Header, NAME, PAGE, Record, record_at, records_in};
use crate::sync::{AtomicU64, Ordering};

/// The page of an endpoint of this process.
pub(super) struct Page {
    memory: Memory,
}

enum Memory {
    /// For other processes to see.
    Shared(SharedMapping),
    /// Where there is no such file to be had, the endpoint works without being seen.
    Own(Box<Own>),
}

#[repr(C, align(4096))]
struct Own([AtomicU64; PAGE / 8]);

impl Page {
    /// A page of zeros, and the descriptor by which other processes find it. `None`: it cannot be
    /// found.
    ///
    /// # Errors
    /// Files in memory are denied. Then no peer can be had either.
    pub(super) fn new() -> Result<(Arc<Page>, Option<OwnedFd>), Failed> {
        match Page::shared() {
            Ok((mapping, file)) => {
                Ok((Arc::new(Page { memory: Memory::Shared(mapping) }), Some(file)))
            }
            Err(failed) if may_be_denied(failed.errno) => Err(failed),
            Err(failed) => {
                tracing::debug!(%failed, "an endpoint cannot be seen from outside");
                Ok((Page::unseen(), None))
            }
        }
    }

    /// A page of zeros that no other process sees.
    pub(super) fn unseen() -> Arc<Page> {
        let own = Box::new(Own(std::array::from_fn(|_| AtomicU64::new(0))));
        Arc::new(Page { memory: Memory::Own(own) })
    }

    fn shared() -> Result<(SharedMapping, OwnedFd), Failed> {
        let file = memfd::create_fixed(NAME, FILE_BYTES)?;
        let mapping = SharedMapping::map(file.as_fd(), FILE_BYTES).map_err(Failed::of("mmap"))?;
        mapping.populate_file(file.as_fd(), 0..PAGE).map_err(Failed::of("madvise"))?;
        // No other process ever writes it, not even through a descriptor opened anew.
        memfd::seal(file.as_fd(), true)?;
        Ok((mapping, file))
    }

    fn as_ptr(&self) -> *const u8 {
        match &self.memory {
            Memory::Shared(mapping) => mapping.as_ptr(),
            Memory::Own(own) => own.0.as_ptr().cast(),
        }
    }

    fn len(&self) -> usize {
        match &self.memory {
            Memory::Shared(mapping) => mapping.len(),
            Memory::Own(_) => PAGE,
        }
    }

    /// Records there is room for.
    pub(super) fn records(&self) -> usize {
        records_in(self.len())
    }

    /// Makes the system set memory aside for record `index`, so that using it cannot fail.
    pub(super) fn reserve(&self, file: BorrowedFd<'_>, index: usize) -> io::Result<()> {
        match &self.memory {
            Memory::Shared(mapping) => {
                mapping.populate_file(file, record_at(index)..record_at(index + 1))
            }
            Memory::Own(_) => Ok(()),
        }
    }

    /// The header, to keep.
    pub(super) fn header(self: &Arc<Page>) -> Kept<Header<AtomicU64>> {
        // SAFETY: a page is at least `PAGE` bytes long, which the header lies in; it begins at a
        // page boundary; all of it is atomics, for which any bytes are valid.
        Kept { at: self.as_ptr().cast(), _page: Arc::clone(self) }
    }

    /// Record `index`, to keep. It has been [reserved](Page::reserve), or lies in the first page.
    ///
    /// # Panics
    /// If there is no such record.
    pub(super) fn record(self: &Arc<Page>, index: usize) -> Kept<Record<AtomicU64>> {
        assert!(index < self.records());
        // SAFETY: within the page by the assertion, and aligned to eight bytes as every record is.
        let at = unsafe { self.as_ptr().add(record_at(index)) };
        Kept { at: at.cast(), _page: Arc::clone(self) }
    }
}

/// A part of a page: its address, found once.
pub(crate) struct Kept<T> {
    at: *const T,
    _page: Arc<Page>,
}

// SAFETY: the pointer leads to atomics in memory that `_page` keeps on any thread.
unsafe impl<T: Sync> Send for Kept<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Kept<T> {}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Kept<T> {
        Kept { at: self.at, _page: Arc::clone(&self._page) }
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: made by `Page` of a part that is in bounds, aligned and nothing but atomics, and
        // that lives as long as `_page`.
        unsafe { &*self.at }
    }
}

/// A part of a page, made of words and of nothing else.
pub(super) trait Words: Sized {
    /// The same with plain numbers.
    type Plain: FromBytes;
}

impl Words for Header<AtomicU64> {
    type Plain = Header<u64>;
}

impl Words for Record<AtomicU64> {
    type Plain = Record<u64>;
}

impl<T: Words> Kept<T> {
    /// Its words.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: as for `deref`; both kinds of part are `repr(C)` of `AtomicU64`s alone.
        unsafe { std::slice::from_raw_parts(self.at.cast(), size_of::<T>() / 8) }
    }

    /// A copy of it, word by word.
    pub(super) fn copied(&self) -> T::Plain {
        let words: Vec<u64> = self.words().iter().map(|w| w.load(Ordering::Relaxed)).collect();
        plain(&words)
    }
}

/// A part of a page, of its words.
///
/// # Panics
/// If it has another number of words.
pub(super) fn plain<P: FromBytes>(words: &[u64]) -> P {
    P::read_from_bytes(words.as_bytes()).unwrap_or_else(|_| panic!("{} words", words.len()))
}

/// A stranger's page.
pub(super) struct Foreign {
    mapping: ReadOnlyMapping,
}

impl Foreign {
    /// Maps the first `len` bytes of a file. It is a sealed memfd at least as long, as
    /// [`open_sealed_of`](memfd::open_sealed_of) hands them out.
    pub(super) fn map(file: BorrowedFd<'_>, len: usize) -> io::Result<Foreign> {
        Ok(Foreign { mapping: ReadOnlyMapping::map(file, len, 1)? })
    }

    /// Word `index`.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.mapping.len() / 8);
        // SAFETY: in bounds and aligned, mapped as long as `self` lives, and only ever loaded from,
        // relaxed, which is an ordinary load that read-only memory allows.
        unsafe { &*self.mapping.as_ptr().cast::<AtomicU64>().add(index) }
    }

    /// The `bytes` bytes at `at`, copied word by word; both are multiples of eight.
    pub(super) fn copy(&self, at: usize, bytes: usize) -> Vec<u64> {
        (at / 8..(at + bytes) / 8).map(|index| self.word(index).load(Ordering::Relaxed)).collect()
    }
}
