//! Memory: arenas that peers map, extents of theirs that are mapped here, translations, reassembly.

#[cfg(not(loom))]
pub(crate) mod arena;
#[cfg(not(loom))]
pub(crate) mod cma_memory;
#[cfg(not(loom))]
pub(crate) mod donated;
#[cfg(not(loom))]
pub(crate) mod exported_extents;
#[cfg(not(loom))]
pub(crate) mod imported_extents;
#[cfg(not(loom))]
// The rest is for tests, measurements and simulators.
#[cfg_attr(not(feature = "internals"), allow(dead_code, unused_imports))]
pub mod reassembly;
#[cfg(not(loom))]
pub(crate) mod scatter;
#[cfg(not(loom))]
pub(crate) mod segments;
#[cfg(not(loom))]
pub(crate) mod store;
#[cfg_attr(not(feature = "internals"), allow(dead_code, unused_imports))]
pub mod translate;
