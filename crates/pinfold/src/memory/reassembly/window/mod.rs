//! Windows: the free pages of a reserved range of addresses.
//!
//! Pure: pages are numbers from 0, counted from the beginning of the window, and alignment is too,
//! so the window has to begin at a multiple of the largest alignment asked for (2 MiB for huge
//! pages).
//!
//! Four organisations behind one trait, [`Windows`]:
//!
//! - [`Bitmap`]: the paper's page-pool bitmap (section 2.3), searched word by word.
//! - [`SizeClasses`]: the paper's answer to its slowness (section 4.3 and its conclusions).
//! - [`Buddy`]: Knuth's buddy system, which the paper names as faster (section 4.1).
//! - [`Tree`]: an ordered tree, likewise: best fit by size, neighbours joined.
//!
//! All four keep these promises: runs given out never overlap, begin at a multiple of the alignment
//! asked for, and can be given back once. Fullness is an error with numbers and changes nothing.

mod bitmap;
mod buddy;
mod classes;
#[cfg(test)]
mod tests;
mod tree;

use std::fmt;

use thiserror::Error;

pub use self::{bitmap::Bitmap, buddy::Buddy, classes::SizeClasses, tree::Tree};
pub use super::bits::{Inner, Work};

/// Pages of the paper's window: 65,536, which are 256 MiB.
pub const PAPER_PAGES: u32 = 1 << 16;

/// Pages a window may have at most; 8 TiB.
pub const PAGES_MAX: u32 = 1 << 31;

/// The reason why no run was given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AllocError {
    /// No free run is long enough.
    #[error(
        "no {asked} contiguous pages at a multiple of {align}: {free} are free, at most {largest} \
         of them in a run that could be had"
    )]
    Full {
        /// Pages asked for.
        asked: u32,
        /// At a multiple of so many pages.
        align: u32,
        /// Pages that are free, in all.
        free: u32,
        /// The longest run that could be had at that alignment, pages; less than `asked`.
        largest: u32,
    },
    /// A run has at least one page.
    #[error("a run of 0 pages cannot be given out")]
    Empty,
    /// Alignments are powers of two.
    #[error("{align} pages are no alignment: it must be a power of two")]
    Align {
        /// The alignment asked for, pages.
        align: u32,
    },
}

/// The reason why nothing was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FreeError {
    /// The window has no such page.
    #[error("page {start} is not in the window, which has {pages}")]
    Foreign {
        /// The page.
        start: u32,
        /// Pages of the window.
        pages: u32,
    },
    /// The page is free: given back already, or never given out.
    #[error("page {start} is free already")]
    Free {
        /// The page.
        start: u32,
    },
    /// The page is given out, but a run begins before it.
    #[error("page {start} is inside a run and does not begin one")]
    Inside {
        /// The page.
        start: u32,
    },
}

/// The fill level of a window.
///
/// Identity: `taken <= held <= pages`; `held == taken` but for size classes, which round up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Pages there are.
    pub pages: u32,
    /// Pages of the runs given out, as long as they were asked for.
    pub taken: u32,
    /// Pages that no other run can have because of them.
    pub held: u32,
    /// Runs given out.
    pub runs: u32,
}

impl Count {
    /// Pages that are free.
    pub fn free(&self) -> u32 {
        self.pages - self.held
    }
}

/// Gives out runs of contiguous pages.
pub trait Windows: fmt::Debug + Send {
    /// Takes `pages` contiguous pages, of which the first is at a multiple of `align`, a power of
    /// two. Returns the number of the first.
    ///
    /// # Errors
    /// [`AllocError`]; nothing is taken. The numbers in [`AllocError::Full`] may cost a look at the
    /// whole window.
    fn alloc(&mut self, pages: u32, align: u32) -> Result<u32, AllocError>;

    /// Gives back the run that begins with page `start`. Returns its length, pages.
    ///
    /// # Errors
    /// [`FreeError`]; nothing is freed.
    fn free(&mut self, start: u32) -> Result<u32, FreeError>;

    /// Its fill level.
    fn count(&self) -> Count;

    /// The longest run that [`alloc`](Windows::alloc) would give out at that alignment, pages. May
    /// look at the whole window.
    fn largest(&self, align: u32) -> u32;
}

/// Refuses the requests that every organisation refuses.
fn check(pages: u32, align: u32) -> Result<(), AllocError> {
    match () {
        () if pages == 0 => Err(AllocError::Empty),
        () if !align.is_power_of_two() => Err(AllocError::Align { align }),
        () => Ok(()),
    }
}

#[cold]
fn full(windows: &dyn Windows, asked: u32, align: u32) -> AllocError {
    let (free, largest) = (windows.count().free(), windows.largest(align));
    AllocError::Full { asked, align, free, largest }
}

/// The organisation to use by default: see [`Organisation::default`].
pub type DefaultWindows = SizeClasses;

/// The four organisations, by name.
///
/// The default is [`SizeClasses`], by `cargo bench -p pinfold --bench reassembly`: median
/// nanoseconds to take a run out of 65,536 pages and to give one back at random, over windows of
/// which 0, 50, 90 and 99 % are taken, on a virtual machine with 2 processors:
///
/// | organisation | 1 page | 16 pages | 512 pages |
/// |---|---|---|---|
/// | bitmap, the paper's inner loop | 18 … 26 | 23 … 59,000 | 57 … 118,000 |
/// | bitmap, looking at the end first | 19 … 26 | 25 … 17,000 | 58 … 1,100 |
/// | size classes | 30 … 55 | 30 … 32 | 58 … 61 |
/// | buddy | 40 … 178 | 36 | 63 … 116 |
/// | tree | 50 … 603 | 51 … 234 | 82 … 259 |
///
/// To search for one page, without giving back, takes size classes 8 ns, at 99 % 11 ns. Their time
/// does not depend on what others did. Their price is addresses, of which a process has plenty; a
/// [`Buddy`] system is the second choice, where a window must be small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Organisation {
    /// [`Bitmap`].
    Bitmap,
    /// [`SizeClasses`].
    #[default]
    SizeClasses,
    /// [`Buddy`].
    Buddy,
    /// [`Tree`].
    Tree,
}

impl Organisation {
    /// All of them.
    pub const ALL: [Organisation; 4] = [Self::Bitmap, Self::SizeClasses, Self::Buddy, Self::Tree];

    /// A window of `pages` pages, at most [`PAGES_MAX`], all free.
    pub fn window(self, pages: u32) -> Box<dyn Windows> {
        match self {
            Organisation::Bitmap => Box::new(Bitmap::new(pages)),
            Organisation::SizeClasses => Box::new(SizeClasses::new(pages)),
            Organisation::Buddy => Box::new(Buddy::new(pages)),
            Organisation::Tree => Box::new(Tree::new(pages)),
        }
    }

    /// Its name, as in reports.
    pub fn name(self) -> &'static str {
        match self {
            Organisation::Bitmap => "bitmap",
            Organisation::SizeClasses => "size classes",
            Organisation::Buddy => "buddy",
            Organisation::Tree => "tree",
        }
    }
}

impl fmt::Display for Organisation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
