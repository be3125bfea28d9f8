//! What the choice of an algorithm depends on, beside the size.

/// Who reads the destination of a copy next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reader {
    /// The core that copies.
    #[default]
    Me,
    /// Another core of this machine.
    OtherCore,
    /// A device, out of memory.
    Device,
    /// Nobody before it has left the caches anyway.
    Nobody,
}

impl Reader {
    /// All of them, in order.
    pub const ALL: [Reader; 4] = [Reader::Me, Reader::OtherCore, Reader::Device, Reader::Nobody];
}

/// Where a block is before a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CacheState {
    /// Nobody has said, or looked.
    #[default]
    Unknown,
    /// In this core's caches, or the one it shares with others.
    Cached,
    /// In memory, or in the cache of a core that shares none with this one.
    Uncached,
}

impl CacheState {
    /// All of them, in order.
    pub const ALL: [CacheState; 3] =
        [CacheState::Unknown, CacheState::Cached, CacheState::Uncached];
}
