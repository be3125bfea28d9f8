//! The table that a plan looks into: the algorithm for a size, the places of source and
//! destination, their alignment to each other, and the next reader.
//!
//! Two bits of knowledge decide most: whether the destination is cached and whether it is read next
//! by this core (Calhoun, Fig. 5.1). Size and placement only matter at the edges, but there they
//! do.

mod defaults;
mod rows;
#[cfg(test)]
mod tests;

use std::ops::Range;

use pinfold_sys::cpu::block::{Algorithm, Isa, Stores};

use super::{CacheState, Reader};

pub use rows::Row;

/// The operation on a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Operation {
    /// It is filled from another one.
    Copy,
    /// It is filled with zeros.
    Zero,
}

impl Operation {
    /// Both.
    pub const ALL: [Operation; 2] = [Operation::Copy, Operation::Zero];
}

/// The position of two blocks to each other, as far as processors care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Placement {
    /// Lines of the source become lines of the destination: also where both are page-aligned. A
    /// block to be zeroed begins with a line.
    Plain,
    /// They begin at different places of their cache lines.
    Misaligned,
    /// The destination is just ahead of the source, but for a multiple of 4 KiB: processors that
    /// compare only the low bits have loads wait for stores that they have nothing to do with.
    Aliased,
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// The longest distance ahead at which stores are under way that a load may seem to meet, bytes.
const ALIASED_MAX: usize = 256;

impl Placement {
    /// All of them, in order.
    pub const ALL: [Placement; 3] = [Placement::Plain, Placement::Misaligned, Placement::Aliased];

    /// The placement of the block at `to` to that at `from`, of which it is to be a copy.
    #[inline]
    pub fn of_copy(from: usize, to: usize) -> Placement {
        let ahead = to.wrapping_sub(from) % 4096;
        match ahead {
            1..=ALIASED_MAX => Placement::Aliased,
            _ if !ahead.is_multiple_of(LINE) => Placement::Misaligned,
            _ => Placement::Plain,
        }
    }

    /// The placement of the block at `to` that is to be zeroed.
    #[inline]
    pub fn of_zero(to: usize) -> Placement {
        if to.is_multiple_of(LINE) { Placement::Plain } else { Placement::Misaligned }
    }
}

/// The size from which on there is a choice, bytes: a copy of up to 2 KiB within this core's caches
/// is over so soon that hardly anything beats the C library by more than the choice costs, which is
/// a nanosecond or two. Longer ones some C libraries copy by one instruction if a processor has a
/// fast one, which takes 38 ns for 3,000 B on a Xeon where a loop takes 21. Up to the class of 4
/// KiB, the best algorithm there is taken.
pub const CHOICE_MIN: usize = (2 << 10) + 1;

/// The size from which on there is one if lines have to come from elsewhere to be written, bytes:
/// that takes ten times as long as the choice, for the first line already.
pub const CHOICE_MIN_AWAY: usize = LINE;

/// The one of the two from which on there is a choice for a block that `reader` reads, which is
/// copied to such a place: a line that another core read last, or that no cache has, is written to
/// only once it is here.
#[inline(always)]
pub const fn choice_min(reader: Reader, destination: CacheState) -> usize {
    let away = reader.is_other_core() || matches!(destination, CacheState::Uncached);
    if away { CHOICE_MIN_AWAY } else { CHOICE_MIN }
}

/// The size that the first class is named after, bytes.
const CLASS_MIN: usize = CHOICE_MIN_AWAY;

/// Copies of less are so short, bytes, that the placement of the blocks is not looked at, and the C
/// library makes most of them, for some of which the destination is fetched before. It is where the
/// class of 2 KiB begins.
pub const SHORT_BELOW: usize = (4usize << 10).div_ceil(3);

/// The class from which on there are others than the C library's for copies that are so short.
pub const OTHERS_FROM: usize = class_of_power(256);

/// The class from which on there are loops: with 1 KiB from memory to memory whose lines do not
/// match, a Xeon takes 175 ns by one, and 203 by the C library with the destination fetched before.
pub const LOOPS_FROM: usize = class_of_power(1 << 10);

/// The limits for copies of fewer than [`SHORT_BELOW`] bytes of one kind, whose destination may be
/// elsewhere: by the C library up to one size, from there on with the destination fetched before up
/// to another one, and from that on as the table says. A look into it takes part of the gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short {
    /// The size below which the C library copies, as it is. At least 64.
    pub(super) plain_below: usize,
    /// The size below which it copies with the destination fetched before. At least as much.
    pub(super) fetched_below: usize,
}

impl Short {
    /// All are the C library's.
    pub(super) const PLAIN: Short = Short { plain_below: usize::MAX, fetched_below: usize::MAX };
}

/// The number of classes of sizes: the powers of two from 64 B to 64 MiB.
pub const CLASSES: usize = 21;

/// Cells of a situation: a power of two, so that to find one takes no multiplication.
const STRIDE: usize = CLASSES.next_power_of_two();

/// The class of a size: of the power of two that it is nearest to.
#[inline]
pub fn class_of(len: usize) -> usize {
    let len = len.clamp(CLASS_MIN, class_bytes(CLASSES - 1));
    ((len + len / 2).ilog2() - CLASS_MIN.ilog2()) as usize
}

/// The class of a power of two.
const fn class_of_power(len: usize) -> usize {
    (len.ilog2() - CLASS_MIN.ilog2()) as usize
}

/// The size that a class is named after, bytes.
pub const fn class_bytes(class: usize) -> usize {
    CLASS_MIN << class
}

/// All that the choice depends on but the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Situation {
    /// The operation on the block.
    pub operation: Operation,
    /// The next reader of the destination.
    pub reader: Reader,
    /// The place of the source. Ignored if there is none.
    pub source: CacheState,
    /// The place of the destination.
    pub destination: CacheState,
    /// The placement of the blocks. Nothing is aliased if there is no source.
    pub placement: Placement,
}

const STATES: usize = CacheState::ALL.len();
const SOURCES: usize = CacheState::OF_SOURCES.len();
const COPY_SITUATIONS: usize = COPIES * Placement::ALL.len();
const SITUATIONS: usize = COPY_SITUATIONS + Reader::ALL.len() * STATES * 2;
/// A power of two, so that there is a cell for any number that fits into its bits.
const CELLS: usize = (SITUATIONS * STRIDE).next_power_of_two();

impl Situation {
    /// All of them, each once.
    pub fn all() -> impl Iterator<Item = Situation> {
        let sides = || {
            Reader::ALL
                .into_iter()
                .flat_map(|reader| CacheState::ALL.map(|destination| (reader, destination)))
        };
        let copies = sides().flat_map(|(reader, destination)| {
            CacheState::OF_SOURCES.into_iter().flat_map(move |source| {
                Placement::ALL.map(|placement| Situation {
                    operation: Operation::Copy,
                    reader,
                    source,
                    destination,
                    placement,
                })
            })
        });
        let zeros = sides().flat_map(|(reader, destination)| {
            [Placement::Plain, Placement::Misaligned].map(|placement| Situation {
                operation: Operation::Zero,
                reader,
                source: CacheState::Unknown,
                destination,
                placement,
            })
        });
        copies.chain(zeros)
    }

    /// The classes of sizes in which there is a choice.
    pub fn classes(self) -> Range<usize> {
        class_of(choice_min(self.reader, self.destination).next_power_of_two())..CLASSES
    }

    #[inline]
    fn index(self) -> usize {
        match self.operation {
            Operation::Copy => {
                Copies::of(self.reader, self.source, self.destination).lying(self.placement)
            }
            Operation::Zero => {
                let side = self.reader as usize * STATES + self.destination as usize;
                COPY_SITUATIONS + side * 2 + usize::from(self.placement != Placement::Plain)
            }
        }
    }
}

/// The copies that differ in nothing but how the blocks lie, and the size: all that is known where
/// the call is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copies(usize);

/// The number of such kinds.
pub(super) const COPIES: usize = Reader::ALL.len() * STATES * SOURCES;

impl Copies {
    /// The copies that `reader` reads, out of such a place into such a one.
    #[inline(always)]
    pub(super) const fn of(reader: Reader, source: CacheState, destination: CacheState) -> Copies {
        let source = match source {
            CacheState::Unknown => 0,
            CacheState::Cached | CacheState::Dirty | CacheState::Clean => 1,
            CacheState::Uncached => 2,
        };
        let side = reader as usize * STATES + destination as usize;
        Copies(side * SOURCES + source)
    }

    /// A number for tables, below [`COPIES`].
    #[inline(always)]
    pub(super) const fn number(self) -> usize {
        self.0
    }

    /// The number of the situation of those that lie so.
    #[inline(always)]
    const fn lying(self, placement: Placement) -> usize {
        self.0 * Placement::ALL.len() + placement as usize
    }
}

/// The entry of a table for one situation and class of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The best of all: one of the other two.
    pub best: Algorithm,
    /// The best that stores into the cache.
    pub temporal: Algorithm,
    /// The best that stores past it; the same as `temporal` if the processor has none.
    pub streaming: Algorithm,
}

impl Choice {
    /// The two, of which `streams` says whether the second is the better one.
    pub fn new(temporal: Algorithm, streaming: Algorithm, streams: bool) -> Choice {
        Choice { best: if streams { streaming } else { temporal }, temporal, streaming }
    }

    /// Returns whether each part is of the right kind.
    fn is_sound(self) -> bool {
        self.temporal.stores() == Stores::Temporal
            && (self.streaming.stores() == Stores::Streaming || self.streaming == self.temporal)
            && (self.best == self.temporal || self.best == self.streaming)
    }
}

/// An algorithm for every situation and size. 24 KB of the heap, never of a stack, of which a look
/// touches one byte.
#[derive(Clone, PartialEq, Eq)]
pub struct Table {
    best: Box<Cells>,
    temporal: Box<Cells>,
    streaming: Box<Cells>,
}

type Cells = [Algorithm; CELLS];

impl Table {
    /// The table with the same choice for everything.
    pub fn uniform(algorithm: Algorithm) -> Table {
        let cells = || -> Box<Cells> {
            let cells = vec![algorithm; CELLS].into_boxed_slice();
            // They are as many.
            cells.try_into().unwrap_or_else(|_| unreachable!())
        };
        Table { best: cells(), temporal: cells(), streaming: cells() }
    }

    /// The table that `choose` makes up, where there is a choice: below [`choice_min`] the C
    /// library's is taken. `None` if one of its choices is not sound: parts of it store otherwise
    /// than they should, or its best is neither of the two.
    pub fn from_fn(mut choose: impl FnMut(Situation, usize) -> Choice) -> Option<Table> {
        let mut table = Table::uniform(Algorithm::LIBC);
        for situation in Situation::all() {
            let first = situation.classes().start;
            for class in situation.classes() {
                let choice = choose(situation, class);
                if !choice.is_sound() {
                    return None;
                }
                table.put(situation, class, choice);
                // The last of the class before, of which there is none, are as those.
                if class == first && first > 0 {
                    table.put(situation, class - 1, choice);
                }
            }
        }
        Some(table)
    }

    fn put(&mut self, situation: Situation, class: usize, choice: Choice) {
        let cell = Table::cell(situation, class);
        self.best[cell] = choice.best;
        self.temporal[cell] = choice.temporal;
        self.streaming[cell] = choice.streaming;
    }

    /// The best algorithm for a block of `len` bytes. A few nanoseconds.
    #[inline]
    pub fn best(&self, situation: Situation, len: usize) -> Algorithm {
        self.best[Table::cell(situation, class_of(len))]
    }

    /// The same for one of `copies`, whose blocks lie so.
    #[inline]
    pub(super) fn best_of(&self, copies: Copies, placement: Placement, len: usize) -> Algorithm {
        self.best[(copies.lying(placement) * STRIDE + class_of(len)) % CELLS]
    }

    /// The limits for short `copies`: between two sizes with the same algorithm, a copy is made as
    /// at those.
    pub(super) fn short(&self, copies: Copies) -> Short {
        let best = |class| self.best[copies.lying(Placement::Plain) * STRIDE + class];
        let last = class_of(SHORT_BELOW);
        // The first of those classes in a row before `end` of which that is true.
        let start = |end: usize, is: fn(Algorithm) -> bool| {
            (0..end).rev().take_while(|&class| is(best(class))).last().unwrap_or(end)
        };
        let others = start(last, |it| it.isa() != Isa::Libc);
        let fetched = start(others, |it| it == Algorithm::LIBC_FETCHED);
        let from = |class| if class == last { usize::MAX } else { class_bytes(class) };
        Short { plain_below: from(fetched), fetched_below: from(others) }
    }

    /// All that is known about a class of sizes; of the last one, if there are not so many.
    pub fn choice(&self, situation: Situation, class: usize) -> Choice {
        let cell = Table::cell(situation, class.min(CLASSES - 1));
        Choice {
            best: self.best[cell],
            temporal: self.temporal[cell],
            streaming: self.streaming[cell],
        }
    }

    /// The same without the algorithms that the processor lacks: instead of them, the C library's
    /// or another that the table has for the place.
    pub fn fitted(mut self, supported: impl Fn(Algorithm) -> bool) -> Table {
        for cell in 0..CELLS {
            if !supported(self.temporal[cell]) {
                self.temporal[cell] = Algorithm::LIBC;
            }
            for part in [&mut self.streaming[cell], &mut self.best[cell]] {
                if !supported(*part) {
                    *part = self.temporal[cell];
                }
            }
        }
        self
    }

    #[inline]
    fn cell(situation: Situation, class: usize) -> usize {
        situation.index() * STRIDE + class
    }
}
