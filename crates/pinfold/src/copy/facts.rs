//! The facts that the choice of an algorithm depends on, beside the size.

use super::class::Class;

/// The next reader of a copy's destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reader {
    /// The core that copies.
    #[default]
    Me,
    /// Another core of this machine, however far away.
    OtherCore,
    /// Another core that is known to be near ([`Class::Near`]).
    NearCore,
    /// Another core that is known to be far ([`Class::Far`]): lines come from its cache more slowly
    /// than from memory.
    FarCore,
    /// A device, out of memory.
    Device,
    /// No reader before it has left the caches anyway.
    Nobody,
}

impl Reader {
    /// All of them, in order.
    pub const ALL: [Reader; 6] = [
        Reader::Me,
        Reader::OtherCore,
        Reader::NearCore,
        Reader::FarCore,
        Reader::Device,
        Reader::Nobody,
    ];

    /// A core that was found to be so far away.
    pub const fn core(apart: Class) -> Reader {
        match apart {
            Class::Near => Reader::NearCore,
            Class::Far => Reader::FarCore,
            Class::Mixed => Reader::OtherCore,
        }
    }

    /// True if it is another core, at any distance.
    pub const fn is_other_core(self) -> bool {
        matches!(self, Reader::OtherCore | Reader::NearCore | Reader::FarCore)
    }
}

/// The place of a block before a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CacheState {
    /// It is not known: the caller has not said it, and has not looked.
    #[default]
    Unknown,
    /// In this core's caches, or the one it shares with others.
    Cached,
    /// The same, and it is known that memory has an older version: this core wrote it.
    Dirty,
    /// The same, and it is known that memory has the same: it was only read.
    Clean,
    /// In memory, or in the cache of a core that shares none with this one.
    Uncached,
}

impl CacheState {
    /// All of them, in order.
    pub const ALL: [CacheState; 5] = [
        CacheState::Unknown,
        CacheState::Cached,
        CacheState::Dirty,
        CacheState::Clean,
        CacheState::Uncached,
    ];

    /// The states that make a difference for a source, which is only read.
    pub const OF_SOURCES: [CacheState; 3] =
        [CacheState::Unknown, CacheState::Cached, CacheState::Uncached];
}
