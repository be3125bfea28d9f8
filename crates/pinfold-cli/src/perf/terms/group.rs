//! What rows are about.

use super::memory::Memory;

/// A use of Pinfold that is set against everything else in rows of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Group {
    /// Messages in ordinary memory.
    Heap,
    /// Messages in an arena.
    Arena,
    /// Memory of an arena that is given away.
    Given,
    /// One-sided writes into a region of the other side, and numbers added to a word of it.
    Region,
    /// One-sided reads out of a region of the other side.
    Read,
    /// Numbers added to one word by both sides at once.
    Contended,
    /// Active messages: requests and answers, and calls.
    Active,
}

impl Group {
    /// All of them, in the order of their rows.
    pub(crate) const ALL: [Group; 7] = [
        Group::Heap,
        Group::Arena,
        Group::Given,
        Group::Region,
        Group::Read,
        Group::Contended,
        Group::Active,
    ];

    /// The name that tables use; the path says what is done with a region.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Group::Heap => "heap",
            Group::Arena => "arena",
            Group::Given => "given",
            Group::Region | Group::Read | Group::Contended => "region",
            Group::Active => "active",
        }
    }

    /// Where its messages lie.
    pub(crate) const fn memory(self) -> Memory {
        match self {
            Group::Heap | Group::Active => Memory::Heap,
            Group::Arena | Group::Given | Group::Region | Group::Read | Group::Contended => {
                Memory::Arena
            }
        }
    }
}
