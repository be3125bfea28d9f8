#![allow(unsafe_code)]
//! Atomic operations on words of a peer's region, or of other memory of a peer's.
//!
//! **Invariant.** A word is reached only after [`Mapped::word`](super::mapped::Mapped::word) has
//! found it writable and at a multiple of its size.
//!
//! They are the processor's own, on memory that all share, so those of all peers and of the owner
//! ([`Region::word64`](super::Region::word64)) are of one order (`SeqCst`). Those of peers on other
//! hosts the owner's processor does on the same memory, so they are of that order, too.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

use crate::wire::served_rma::{self, Change as Asked};

/// A word for atomic operations: `u32`, `u64`, `i32` or `i64`.
///
/// ```
/// use pinfold::{AtomicWord, Endpoint, RemoteRegion, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-atomic-word-{}", std::process::id());
/// /// Puts a word of any kind at the beginning of a region, and returns the old one.
/// fn exchange<W: AtomicWord>(remote: &RemoteRegion, word: W) -> pinfold::Result<W> {
///     remote.swap(0, word)
/// }
///
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let region = endpoint.region(64, Rights::ReadWrite)?;
/// let remote = endpoint.open_region(itself, &region.key().unwrap())?;
/// assert_eq!(exchange(&remote, 7u64)?, 0);
/// assert_eq!(exchange(&remote, -1i64)?, 7);
/// assert_eq!(exchange(&remote, 0u32)?, u32::MAX); // Half of the bits of -1.
/// # Ok(())
/// # }
/// ```
pub trait AtomicWord: Copy + sealed::Word {}

/// A change of a word, with its operands.
///
/// ```
/// use pinfold::{AtomicChange, Endpoint, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-atomic-change-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let region = endpoint.region(64, Rights::ReadWrite)?;
/// let remote = endpoint.open_region(itself, &region.key().unwrap())?;
/// assert_eq!(remote.atomic(0, AtomicChange::Add(5u32)).wait()?, 0);
/// assert_eq!(remote.atomic(0, AtomicChange::Max(3u32)).wait()?, 5);
/// // The word is replaced, for it is 5; any other result would say that it was not.
/// assert_eq!(remote.atomic(0, AtomicChange::Replace(5u32, 9)).wait()?, 5);
/// assert_eq!(region.to_vec()?[..4], 9u32.to_ne_bytes());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicChange<W> {
    /// Adds this, wrapping at the end of the word's range.
    Add(W),
    /// Bitwise and.
    And(W),
    /// Bitwise or.
    Or(W),
    /// Bitwise exclusive or.
    Xor(W),
    /// The lesser of the word and this.
    Min(W),
    /// The greater of the word and this.
    Max(W),
    /// This instead of the word.
    Swap(W),
    /// The second instead of the word, if the word is the first.
    Replace(W, W),
}

impl<W: AtomicWord> AtomicChange<W> {
    /// Changes a word of this process's own, in one order with the changes of peers, and returns
    /// its old value: for the owner of [registered](super::Registered) memory, whose words have no
    /// methods of their own. Some nanoseconds if nothing else uses the word.
    ///
    /// # Safety
    /// `word` is valid for reads and writes, aligned, and reached atomically only meanwhile.
    #[inline]
    pub unsafe fn apply(self, word: *mut W) -> W {
        // SAFETY: by contract.
        unsafe { W::change(word.cast(), self) }
    }
}

use AtomicChange as Change;

mod sealed {
    use super::Change;

    pub trait Word: Sized {
        /// Changes the word at `at`, and returns its old value.
        ///
        /// # Safety
        /// `at` is valid for reads and writes of a word, aligned, and reached atomically only.
        unsafe fn change(at: *mut u8, change: Change<Self>) -> Self;

        /// The kind of the word, as peers ask for it.
        const KIND: usize;

        /// The change as a peer asks for it: its number, and the bits of its operands.
        fn asked(change: Change<Self>) -> (u8, u64, u64);

        /// The word with the bits that a peer named.
        fn of_bits(bits: u64) -> Self;

        /// Its bits.
        fn bits(self) -> u64;
    }
}

use sealed::Word;

macro_rules! words {
    ($($word:ty: $atomic:ty, $kind:ident, $bits:ty;)*) => {
        $(impl Word for $word {
            #[inline]
            unsafe fn change(at: *mut u8, change: Change<$word>) -> $word {
                // SAFETY: by contract.
                let word = unsafe { <$atomic>::from_ptr(at.cast()) };
                let order = Ordering::SeqCst;
                match change {
                    Change::Add(by) => word.fetch_add(by, order),
                    Change::And(with) => word.fetch_and(with, order),
                    Change::Or(with) => word.fetch_or(with, order),
                    Change::Xor(with) => word.fetch_xor(with, order),
                    Change::Min(with) => word.fetch_min(with, order),
                    Change::Max(with) => word.fetch_max(with, order),
                    Change::Swap(to) => word.swap(to, order),
                    Change::Replace(from, to) => {
                        word.compare_exchange(from, to, order, order).unwrap_or_else(|was| was)
                    }
                }
            }

            const KIND: usize = served_rma::Word::$kind as usize;

            fn asked(change: Change<$word>) -> (u8, u64, u64) {
                let (does, with, other) = match change {
                    Change::Add(by) => (0, by, 0),
                    Change::And(with) => (1, with, 0),
                    Change::Or(with) => (2, with, 0),
                    Change::Xor(with) => (3, with, 0),
                    Change::Min(with) => (4, with, 0),
                    Change::Max(with) => (5, with, 0),
                    Change::Swap(to) => (6, to, 0),
                    Change::Replace(from, to) => (7, from, to),
                };
                (does, with.bits(), other.bits())
            }

            fn of_bits(bits: u64) -> $word {
                bits as $word
            }

            fn bits(self) -> u64 {
                u64::from(self as $bits)
            }
        }

        impl AtomicWord for $word {})*
    };
}

words! {
    u32: AtomicU32, U32, u32;
    u64: AtomicU64, U64, u64;
    i32: AtomicI32, I32, u32;
    i64: AtomicI64, I64, u64;
}

/// Changes the word at `at` as a peer asks, and returns its old value as bits.
///
/// # Safety
/// `at` is valid for reads and writes of a word of that kind, aligned, and reached atomically only.
pub(crate) unsafe fn by_number(at: *mut u8, asked: Asked) -> u64 {
    /// # Safety
    /// As for [`by_number`].
    unsafe fn by<W: Word + Copy>(at: *mut u8, asked: Asked) -> W {
        let (with, other) = (W::of_bits(asked.with), W::of_bits(asked.other));
        let change = match asked.does {
            0 => Change::Add(with),
            1 => Change::And(with),
            2 => Change::Or(with),
            3 => Change::Xor(with),
            4 => Change::Min(with),
            5 => Change::Max(with),
            6 => Change::Swap(with),
            _ => Change::Replace(with, other),
        };
        // SAFETY: by contract.
        unsafe { W::change(at, change) }
    }
    // SAFETY: by contract.
    unsafe {
        match asked.word {
            served_rma::Word::U32 => by::<u32>(at, asked).bits(),
            served_rma::Word::U64 => by::<u64>(at, asked),
            served_rma::Word::I32 => by::<i32>(at, asked).bits(),
            served_rma::Word::I64 => by::<i64>(at, asked).bits(),
        }
    }
}

/// The change as a peer is asked for it.
pub(crate) fn asked<W: AtomicWord>(change: Change<W>) -> Asked {
    let (does, with, other) = W::asked(change);
    Asked { does, word: served_rma::Word::ALL[W::KIND], with, other }
}

/// The word with these bits.
pub(crate) fn of_bits<W: AtomicWord>(bits: u64) -> W {
    W::of_bits(bits)
}

/// The bits of a word.
pub(crate) fn bits<W: AtomicWord>(word: W) -> u64 {
    word.bits()
}
