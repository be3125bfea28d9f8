//! The cells that are measured: each is a size and a state of everything that copies depend on
//! (Calhoun, section 4.3). No I/O.

use std::fmt;

use clap::ValueEnum;
use pinfold::copy::{Block, CacheState, Hints, Reader};
use serde::Serialize;

use crate::{class::Class, units};

/// Where the source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// Written a moment ago by the core that copies
    Cached,
    /// In memory only
    Uncached,
}

/// Where the destination is, and whether its lines differ from what is in memory.
///
/// What is in no cache is neither dirty nor clean. Of the source nothing is told: a copy only reads
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Destination {
    /// Cached, written a moment ago by the core that copies (then read by the reader, if another
    /// core)
    Dirty,
    /// Cached, and the same in memory: read by the core that copies, and by the reader
    Clean,
    /// In memory only
    Uncached,
}

/// Who reads the destination after the copy; the reading counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Next {
    /// The core that copies
    Me,
    /// Another core
    OtherCore,
    /// Nobody
    Nobody,
}

/// How the two blocks lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Place {
    /// Both at the beginning of a cache line
    Aligned,
    /// At different places of their lines
    Misaligned,
    /// The destination a line ahead, but for a multiple of 4 KiB
    Aliased,
}

/// One row of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Cell {
    /// Bytes that are copied.
    pub(crate) size: usize,
    pub(crate) source: Source,
    pub(crate) destination: Destination,
    pub(crate) reader: Next,
    pub(crate) placement: Place,
}

/// Copies below this many bytes must be as good as the C library's.
pub(crate) const SHORT_BELOW: usize = 256;

impl Cell {
    /// The hints that the plan gets of it, with the other core's distance of a moment ago, `apart`.
    #[inline]
    pub(crate) fn hints(&self, apart: Option<Class>) -> Hints {
        Hints {
            source: match self.source {
                Source::Cached => CacheState::Cached,
                Source::Uncached => CacheState::Uncached,
            },
            destination: match self.destination {
                Destination::Dirty => CacheState::Dirty,
                Destination::Clean => CacheState::Clean,
                Destination::Uncached => CacheState::Uncached,
            },
            reader: match self.reader {
                Next::Me => Reader::Me,
                Next::OtherCore => apart.map_or(Reader::OtherCore, Reader::core),
                Next::Nobody => Reader::Nobody,
            },
            hears_reader: false,
        }
    }

    /// And of a block of it.
    pub(crate) fn block(&self, apart: Option<Class>, from: usize, to: usize) -> Block {
        let Hints { reader, source, destination, .. } = self.hints(apart);
        Block { len: self.size, from, to, source, destination, reader }
    }

    /// Returns whether the choice should make a difference: a side is not cached, or another core
    /// reads.
    pub(crate) fn matters(&self) -> bool {
        self.reader == Next::OtherCore
            || self.source == Source::Uncached
            || self.destination == Destination::Uncached
    }

    /// Returns whether a side is in a cache: if not, it does not matter what caches were used for
    /// before.
    pub(crate) fn is_cached(&self) -> bool {
        self.source == Source::Cached || self.destination != Destination::Uncached
    }

    /// Returns whether it is one of the short copies.
    pub(crate) fn is_short(&self) -> bool {
        self.size < SHORT_BELOW
    }
}

/// A variant's name on the command line.
pub(super) fn name(of: impl ValueEnum) -> String {
    of.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { size, source, destination, reader, placement } = *self;
        write!(f, "{}, source {}, ", units::bytes(size), name(source))?;
        write!(f, "destination {}, read by {}, ", name(destination), name(reader))?;
        f.write_str(&name(placement))
    }
}

/// The parts of the grid.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) sizes: Vec<usize>,
    pub(crate) sources: Vec<Source>,
    pub(crate) destinations: Vec<Destination>,
    pub(crate) readers: Vec<Next>,
    pub(crate) placements: Vec<Place>,
}

/// The usual sizes: 64 B to 64 MiB.
pub(crate) fn sizes() -> Vec<usize> {
    (6..=26).step_by(2).map(|power| 1 << power).collect()
}

/// The usual sizes of a quick run.
pub(crate) fn quick_sizes() -> Vec<usize> {
    vec![64, 1 << 10, 16 << 10, 256 << 10, 4 << 20]
}

/// Returns whether two blocks of `size` bytes fit into the last cache together, with something to
/// spare: if not, neither can be cached, and only memory tells.
pub(super) fn fits(size: usize, last_cache_bytes: usize) -> bool {
    size.saturating_mul(2) < last_cache_bytes
}

/// The cells, the smallest first, and sentences about what was wished for and is left out.
pub(crate) fn grid(
    wish: &Wish,
    last_cache_bytes: usize,
    has_other_core: bool,
) -> (Vec<Cell>, Vec<String>) {
    let (mut cells, mut notes) = (Vec::new(), Vec::new());
    let mut sizes = wish.sizes.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let mut left_out = 0;
    for &size in &sizes {
        for cell in states(wish, size) {
            let fits = fits(size, last_cache_bytes);
            if !fits && (cell.is_cached() || cell.placement != Place::Aligned) {
                left_out += 1;
            } else if has_other_core || cell.reader != Next::OtherCore {
                cells.push(cell);
            }
        }
    }
    if left_out > 0 {
        notes.push(format!(
            "{left_out} cells are left out: where two blocks do not fit into the last cache ({}), \
             nothing is cached, and only aligned blocks are measured",
            units::bytes(last_cache_bytes)
        ));
    }
    if !has_other_core && wish.readers.contains(&Next::OtherCore) {
        notes.push("there is no second processor to read what was copied: left out".into());
    }
    (cells, notes)
}

fn states(wish: &Wish, size: usize) -> impl Iterator<Item = Cell> + '_ {
    wish.readers.iter().flat_map(move |&reader| {
        wish.sources.iter().flat_map(move |&source| {
            wish.destinations.iter().flat_map(move |&destination| {
                let each = wish.placements.iter();
                each.map(move |&placement| Cell { size, source, destination, reader, placement })
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> Wish {
        Wish {
            sizes: sizes(),
            sources: Source::value_variants().to_vec(),
            destinations: Destination::value_variants().to_vec(),
            readers: Next::value_variants().to_vec(),
            placements: Place::value_variants().to_vec(),
        }
    }

    #[test]
    fn the_whole_grid() {
        let (cells, notes) = grid(&everything(), 32 << 20, true);
        assert_eq!(sizes().len(), 11);
        // All states up to 4 MiB; of 16 and 64 MiB one for each reader.
        assert_eq!(cells.len(), 9 * 2 * 3 * 3 * 3 + 2 * 3);
        assert!(notes.len() == 1 && notes[0].contains("102 cells"), "{notes:?}");
        let mut once = cells.clone();
        once.sort_by_key(|cell| format!("{cell:?}"));
        once.dedup();
        assert_eq!(once.len(), cells.len());
        assert!(cells.iter().filter(|cell| cell.size > 4 << 20).all(|cell| {
            cell.source == Source::Uncached && cell.destination == Destination::Uncached
        }));
    }

    #[test]
    fn without_another_core() {
        let (cells, notes) = grid(&everything(), 32 << 20, false);
        assert!(cells.iter().all(|cell| cell.reader != Next::OtherCore));
        assert!(notes.iter().any(|note| note.contains("no second processor")), "{notes:?}");
    }

    #[test]
    fn which_cells_matter() {
        let (cells, _) = grid(&everything(), 32 << 20, true);
        let idle: Vec<&Cell> = cells.iter().filter(|cell| !cell.matters()).collect();
        assert_eq!(idle.len(), 9 * 2 * 2 * 3);
        assert!(idle.iter().all(|cell| cell.source == Source::Cached));
        assert!(cells.iter().filter(|cell| cell.is_short()).all(|cell| cell.size == 64));
    }

    #[test]
    fn the_plan_is_told_the_state() {
        let (cells, _) = grid(&everything(), 32 << 20, true);
        for cell in cells {
            let block = cell.block(None, 1, 2);
            assert_eq!((block.len, block.from, block.to), (cell.size, 1, 2));
            let uncached = [block.source, block.destination].contains(&CacheState::Uncached);
            let told = uncached || block.reader == Reader::OtherCore;
            assert_eq!(told, cell.matters(), "{cell}");
            let far = cell.block(Some(Class::Far), 1, 2).reader;
            assert_eq!(far == Reader::FarCore, cell.reader == Next::OtherCore, "{cell}");
        }
    }
}
