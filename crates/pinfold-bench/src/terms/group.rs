//! The groups that rows are about.

use super::memory::Memory;

/// A use of Pinfold that is set against all other subjects in rows of its own.
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
    /// One-sided writes by address to memory of the other side that is mapped.
    WriteMapped,
    /// The same to memory that the kernel writes.
    WriteKernel,
    /// The same to memory that the other side's agent writes.
    WriteAgent,
    /// One-sided reads by address of memory of the other side that is mapped.
    ReadMapped,
    /// The same of memory that the kernel reads.
    ReadKernel,
    /// The same of memory that the other side's agent reads.
    ReadAgent,
    /// Active messages: requests and answers, and calls.
    Active,
}

impl Group {
    /// All of them, in the order of their rows.
    pub(crate) const ALL: [Group; 13] = [
        Group::Heap,
        Group::Arena,
        Group::Given,
        Group::Region,
        Group::Read,
        Group::Contended,
        Group::WriteMapped,
        Group::WriteKernel,
        Group::WriteAgent,
        Group::ReadMapped,
        Group::ReadKernel,
        Group::ReadAgent,
        Group::Active,
    ];

    /// The name that tables use; the path tells the use of a region.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Group::Heap => "heap",
            Group::Arena => "arena",
            Group::Given => "given",
            Group::Region | Group::Read | Group::Contended => "region",
            Group::WriteMapped | Group::ReadMapped => "mapped",
            Group::WriteKernel | Group::ReadKernel => "kernel",
            Group::WriteAgent | Group::ReadAgent => "agent",
            Group::Active => "active",
        }
    }

    /// The memory that its messages lie in.
    pub(crate) const fn memory(self) -> Memory {
        match self {
            Group::Heap | Group::Active => Memory::Heap,
            Group::WriteKernel | Group::ReadKernel => Memory::Heap,
            Group::WriteAgent | Group::ReadAgent => Memory::Heap,
            Group::Arena | Group::Given | Group::Region | Group::Read | Group::Contended => {
                Memory::Arena
            }
            Group::WriteMapped | Group::ReadMapped => Memory::Arena,
        }
    }

    /// Returns whether it is one-sided operations by address.
    pub(crate) const fn is_by_address(self) -> bool {
        matches!(
            self,
            Group::WriteMapped
                | Group::WriteKernel
                | Group::WriteAgent
                | Group::ReadMapped
                | Group::ReadKernel
                | Group::ReadAgent
        )
    }

    /// Returns whether a bare write of the kernel's is an alternative to it.
    pub(crate) const fn has_bare_writes(self) -> bool {
        matches!(self, Group::Region | Group::WriteMapped | Group::WriteKernel | Group::WriteAgent)
    }
}
