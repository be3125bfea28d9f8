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
    /// One-sided operations on a region of the other side.
    Region,
}

impl Group {
    /// All of them, in the order of their rows.
    pub(crate) const ALL: [Group; 4] = [Group::Heap, Group::Arena, Group::Given, Group::Region];

    /// The name that tables use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Group::Heap => "heap",
            Group::Arena => "arena",
            Group::Given => "given",
            Group::Region => "region",
        }
    }

    /// Where its messages lie.
    pub(crate) const fn memory(self) -> Memory {
        match self {
            Group::Heap => Memory::Heap,
            Group::Arena | Group::Given | Group::Region => Memory::Arena,
        }
    }
}
