//! The choice of an algorithm for a block. No I/O.

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use pinfold_sys::cpu::block::{Algorithm, Isa, Prefetch, Stores};

use super::{
    CacheState, Reader,
    table::{Choice, Copies, Operation, Placement, Short, Situation, Table, choice_min, class_of},
    tuned::Seen,
};

/// A block to be copied or zeroed, and the facts known about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Its length, bytes.
    pub len: usize,
    /// The address of the source. Ignored if there is none.
    pub from: usize,
    /// The address of the destination.
    pub to: usize,
    /// The place of the source. Ignored if there is none.
    pub source: CacheState,
    /// The place of the destination.
    pub destination: CacheState,
    /// The next reader of the destination.
    pub reader: Reader,
}

impl Block {
    /// Returns whether it is so short that the plan need not be asked, for any other facts.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.len < self.choice_min().min(TRY_MIN)
    }

    /// See [`choice_min`].
    #[inline]
    fn choice_min(&self) -> usize {
        choice_min(self.reader, self.destination)
    }

    /// The situation of its being copied.
    #[inline]
    fn copied(&self) -> Situation {
        Situation {
            operation: Operation::Copy,
            reader: self.reader,
            source: self.source,
            destination: self.destination,
            placement: Placement::of_copy(self.from, self.to),
        }
    }

    /// The situation of its being zeroed.
    #[inline]
    fn zeroed(&self) -> Situation {
        Situation {
            operation: Operation::Zero,
            reader: self.reader,
            source: CacheState::Unknown,
            destination: self.destination,
            placement: Placement::of_zero(self.to),
        }
    }
}

/// The size from which on a site tries other algorithms that may be better, bytes: a site's own
/// experience is worth more than the knowledge of all. A lane's pieces are as long. From here on an
/// algorithm is also used that the user named.
pub(super) const TRY_MIN: usize = 2 << 10;

/// The origin of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The environment variable `PINFOLD_COPY` names this algorithm for everything.
    Variable(Algorithm),
    /// It was measured on this machine and kept.
    Tuned {
        /// In this file.
        file: PathBuf,
        /// The time of measuring, seconds since 1970.
        measured_s: u64,
        /// The distances of the other core meanwhile.
        seen: Seen,
    },
    /// Rules that hold on most machines.
    Defaults,
}

/// Picks the algorithm for a block: a pure function over a [`Table`].
#[derive(Clone, Debug)]
pub struct Plan {
    table: Table,
    origin: Origin,
    /// True if the processor can fetch a destination.
    fetches: bool,
}

impl Plan {
    /// A plan over `table`, without the algorithms that the processor lacks.
    pub fn new(table: Table, origin: Origin, supported: impl Fn(Algorithm) -> bool) -> Plan {
        let fetches = supported(Algorithm::LIBC_FETCHED);
        Plan { table: table.fitted(supported), origin, fetches }
    }

    /// The algorithm to copy `block` by: always one that the processor has. Up to 2 KiB, or below
    /// 64 B if lines have to come from elsewhere ([`choice_min`]), or 2 KiB if the user named one
    /// for everything, the C library's. A nanosecond or two.
    #[inline]
    pub fn pick(&self, block: &Block) -> Algorithm {
        if self.is_short(block) {
            Algorithm::LIBC
        } else {
            self.table.best(block.copied(), block.len)
        }
    }

    /// The limits for short `copies` ([`Table::short`]). All by the C library if the user named an
    /// algorithm for everything.
    pub(super) fn short(&self, copies: Copies) -> Short {
        match self.origin {
            Origin::Variable(_) => Short::PLAIN,
            Origin::Tuned { .. } | Origin::Defaults => self.table.short(copies),
        }
    }

    /// The algorithm to zero `block` by; otherwise as [`Plan::pick`].
    #[inline]
    pub fn pick_zero(&self, block: &Block) -> Algorithm {
        if self.is_short(block) {
            return Algorithm::LIBC;
        }
        self.table.best(block.zeroed(), block.len)
    }

    /// The few algorithms that may be best for copying `block`: that of [`Plan::pick`] first, then
    /// the best of each kind of stores, one that fetches the destination otherwise, and the C
    /// library's. Each once. Of short blocks below 2 KiB only the last.
    pub fn candidates(&self, block: &Block) -> impl Iterator<Item = Algorithm> + use<> {
        self.few(block, block.copied())
    }

    /// The few that may be best for zeroing it; otherwise as [`Plan::candidates`].
    pub fn candidates_zero(&self, block: &Block) -> impl Iterator<Item = Algorithm> + use<> {
        self.few(block, block.zeroed())
    }

    /// Returns whether `block` is too short for there to be a choice.
    #[inline]
    fn is_short(&self, block: &Block) -> bool {
        block.len
            < match self.origin {
                Origin::Variable(_) => TRY_MIN,
                Origin::Tuned { .. } | Origin::Defaults => block.choice_min(),
            }
    }

    /// The origin of the plan.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    fn few(&self, block: &Block, situation: Situation) -> impl Iterator<Item = Algorithm> + use<> {
        let libc = Algorithm::LIBC;
        // For sizes that are too short to choose among, the next larger ones tell.
        let class = class_of(block.len).max(situation.classes().start);
        let choice = self.table.choice(situation, class);
        let first = if self.is_short(block) { libc } else { choice.best };
        let all = match (block.is_short(), &self.origin) {
            (true, _) => [libc; 5],
            // A user that names one wants no other.
            (_, Origin::Variable(_)) => [choice.best; 5],
            // A place is left for the last: one of the first two is the best.
            _ => [
                first,
                choice.temporal,
                choice.streaming,
                libc,
                if self.fetches { twin(choice) } else { libc },
            ],
        };
        (0..all.len()).filter(move |&at| !all[..at].contains(&all[at])).map(move |at| all[at])
    }
}

/// A twin of the best that stores into the cache: it stores the same way, but fetches the
/// destination if that does not, or does not if that does. The better of the two may be another one
/// in the next process, by a fifth of the time: no table can say that. Not the C library's, which
/// moves short parts in its own ways, but that of the best with cache lines.
fn twin(choice: Choice) -> Algorithm {
    let of = choice.temporal;
    let isa = if of.isa() > Isa::Rep { of.isa() } else { choice.streaming.isa() };
    let fetches = of.isa() == isa && of.prefetch() == Prefetch::Destination;
    let prefetch = if fetches { Prefetch::None } else { Prefetch::Destination };
    Algorithm::new(isa, prefetch, Stores::Temporal).unwrap_or(choice.best)
}
