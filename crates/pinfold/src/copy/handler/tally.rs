//! Counts of copies and zeroings: by algorithm and by size.
//!
//! **Accounting.** A copy or zeroing by an algorithm counts once by algorithm and once by size. A
//! move, of blocks that overlap, counts apart from both. Pieces that were merged count once more,
//! by themselves. The number of copies by algorithm is that of copies by size, as soon as the
//! counting thread is at rest.

use std::{
    ops::AddAssign,
    sync::atomic::{AtomicU16, AtomicU64, Ordering},
};

use super::{
    super::{Largest, Stores},
    Algorithm, SHORT,
};

/// Classes of sizes: powers of two from 256 bytes to 64 MiB; longer blocks are in the last.
pub const SIZES: usize = 19;

/// The class of a size; `None` below 256 bytes, which is not counted.
pub fn size_class(len: usize) -> Option<usize> {
    let class = len.checked_ilog2()?.checked_sub(SHORT.ilog2())? as usize;
    Some(class.min(SIZES - 1))
}

/// Operations and their bytes.
///
/// ```
/// use pinfold::{CopyCount, Endpoint, Path};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-count-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// endpoint.send_by(Path::Eager, itself, 1, &[1; 5000])?;
/// endpoint.recv(peer, 1)?;
/// let mut all = CopyCount::default();
/// endpoint.copies().copied.into_iter().for_each(|count| all += count);
/// assert!(all.copies > 0 && all.bytes >= 256 * all.copies); // Shorter ones are not counted.
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number of copies.
    pub copies: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.copies += other.copies;
        self.bytes += other.bytes;
    }
}

/// The copies and zeroings up to some moment.
///
/// ```
/// use pinfold::{Algorithm, CopyCount, CopyCounts, Endpoint, Path};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-counts-{}", std::process::id());
/// # let endpoint = Endpoint::listen(&name)?;
/// # let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// # let peer = endpoint.accept()?;
/// endpoint.send_by(Path::Eager, itself, 1, &[1; 5000])?;
/// endpoint.recv(peer, 1)?;
/// let counts = endpoint.copies();
/// for algorithm in Algorithm::all() {
///     let count = counts.copied[algorithm.id() as usize];
///     println!("{algorithm}: {} copies, {} bytes", count.copies, count.bytes);
/// }
/// // `by_size` has the same by classes of sizes, which begin at 256 bytes and double.
/// assert_eq!(CopyCounts::LEAST_BYTES, 256);
/// let sum = |parts: &[CopyCount]| parts.iter().map(|part| part.bytes).sum::<u64>();
/// assert_eq!(sum(&counts.by_size), sum(&counts.copied) + sum(&counts.zeroed));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Copies, for each [`Algorithm::id`].
    pub copied: [Count; Algorithm::COUNT],
    /// Zeroings, likewise.
    pub zeroed: [Count; Algorithm::COUNT],
    /// Both, by size: from [`Counts::LEAST_BYTES`] on, from twice that on, and so on.
    pub by_size: [Count; SIZES],
    /// Moves of blocks that overlap.
    pub moved: Count,
    /// Pieces of `copy_pieces` that needed no copy of their own, since they
    /// were copied along with the one before. Always zero in the counts of other processes.
    pub merged: u64,
}

impl Counts {
    /// The least size that is counted, bytes: where the first class of [`Counts::by_size`] begins.
    /// Each other begins at twice that of the one before.
    pub const LEAST_BYTES: u64 = SHORT as u64;
}

impl Default for Counts {
    fn default() -> Counts {
        let none = Count::default();
        Counts {
            copied: [none; Algorithm::COUNT],
            zeroed: [none; Algorithm::COUNT],
            by_size: [none; SIZES],
            moved: none,
            merged: 0,
        }
    }
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        let pairs = self.copied.iter_mut().zip(&other.copied);
        let pairs = pairs.chain(self.zeroed.iter_mut().zip(&other.zeroed));
        let pairs = pairs.chain(self.by_size.iter_mut().zip(&other.by_size));
        pairs.for_each(|(count, more)| *count += *more);
        self.moved += other.moved;
        self.merged += other.merged;
    }
}

/// A [`Count`] that one thread at a time writes and any thread may read. It orders nothing.
#[derive(Default)]
struct Words {
    copies: AtomicU64,
    bytes: AtomicU64,
}

impl Words {
    /// The same where several threads may write.
    fn add_with_others(&self, bytes: usize) {
        self.copies.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A load and a store each, as cheap as for numbers that no other thread reads.
    #[inline(always)]
    fn add(&self, bytes: usize) {
        let add = |word: &AtomicU64, more: u64| {
            word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        add(&self.copies, 1);
        add(&self.bytes, bytes as u64);
    }

    fn get(&self) -> Count {
        let (copies, bytes) = (&self.copies, &self.bytes);
        Count { copies: copies.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) }
    }
}

/// [`Counts`] in the making. One thread at a time counts; a copy takes four loads and four stores.
pub struct Tally {
    copied: [Words; Algorithm::COUNT],
    zeroed: [Words; Algorithm::COUNT],
    by_size: [Words; SIZES],
    moved: Words,
    merged: AtomicU64,
    /// The largest copy since the last [`Tally::take_largest`].
    largest: AtomicU16,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            copied: std::array::from_fn(|_| Words::default()),
            zeroed: std::array::from_fn(|_| Words::default()),
            by_size: std::array::from_fn(|_| Words::default()),
            moved: Words::default(),
            merged: AtomicU64::new(0),
            largest: AtomicU16::new(Largest::NONE.to_word()),
        }
    }
}

impl Tally {
    /// A copy was made. Other threads may count here at the same time, all of them by this.
    pub(crate) fn copied_with_others(&self, algorithm: Algorithm, bytes: usize) {
        self.copied[usize::from(algorithm.id())].add_with_others(bytes);
        if let Some(class) = size_class(bytes) {
            self.by_size[class].add_with_others(bytes);
        }
    }

    /// A copy was made.
    #[inline]
    pub(crate) fn copied(&self, algorithm: Algorithm, bytes: usize) {
        self.copied[usize::from(algorithm.id())].add(bytes);
        self.sized(bytes);
        let largest = Largest::from_word(self.largest.load(Ordering::Relaxed));
        let now = largest.and(Largest::of(algorithm, bytes));
        if now != largest {
            self.largest.store(now.to_word(), Ordering::Relaxed);
        }
    }

    /// The largest of the copies since the last call, which the one thread that counts has just
    /// made. Not those of [`Tally::copied_with_others`].
    #[inline]
    pub(crate) fn take_largest(&self) -> Largest {
        let largest = Largest::from_word(self.largest.load(Ordering::Relaxed));
        if largest != Largest::NONE {
            self.largest.store(Largest::NONE.to_word(), Ordering::Relaxed);
        }
        largest
    }

    #[inline]
    pub(super) fn zeroed(&self, algorithm: Algorithm, bytes: usize) {
        self.zeroed[usize::from(algorithm.id())].add(bytes);
        self.sized(bytes);
    }

    #[inline]
    pub(super) fn moved(&self, bytes: usize) {
        self.moved.add(bytes);
    }

    /// So many pieces were merged into others.
    #[inline]
    pub(super) fn merged(&self, pieces: usize) {
        let more = self.merged.load(Ordering::Relaxed).wrapping_add(pieces as u64);
        self.merged.store(more, Ordering::Relaxed);
    }

    #[inline]
    fn sized(&self, bytes: usize) {
        if let Some(class) = size_class(bytes) {
            self.by_size[class].add(bytes);
        }
    }

    /// Bytes copied so far, and those of them that were streamed.
    pub(crate) fn copied_bytes(&self) -> (u64, u64) {
        let (mut all, mut streamed) = (0u64, 0u64);
        for algorithm in Algorithm::all() {
            let bytes = self.copied[usize::from(algorithm.id())].bytes.load(Ordering::Relaxed);
            all = all.wrapping_add(bytes);
            if algorithm.stores() == Stores::Streaming {
                streamed = streamed.wrapping_add(bytes);
            }
        }
        (all, streamed)
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        Counts {
            copied: std::array::from_fn(|at| self.copied[at].get()),
            zeroed: std::array::from_fn(|at| self.zeroed[at].get()),
            by_size: std::array::from_fn(|at| self.by_size[at].get()),
            moved: self.moved.get(),
            merged: self.merged.load(Ordering::Relaxed),
        }
    }
}
