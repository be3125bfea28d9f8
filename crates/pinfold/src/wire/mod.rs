//! Bytes that two processes share: descriptors, the segment layout, greetings.
//!
//! Nothing outside this module knows a byte offset. Every value a peer wrote is copied out
//! once and checked here before anything else sees it.

pub(crate) mod active;
pub(crate) mod descriptor;
#[cfg(not(loom))]
pub(crate) mod hello;
pub(crate) mod layout;
