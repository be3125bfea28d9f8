//! How bytes reach a peer.

#[cfg(not(loom))]
pub(crate) mod local;
pub(crate) mod shm;
