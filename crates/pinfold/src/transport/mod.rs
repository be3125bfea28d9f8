//! Transports: the ways that bytes take to a peer.

#[cfg(not(loom))]
pub(crate) mod descriptor_channel;
#[cfg(not(loom))]
pub(crate) mod local;
pub(crate) mod shm;
#[cfg(not(loom))]
pub(crate) mod tcp;
