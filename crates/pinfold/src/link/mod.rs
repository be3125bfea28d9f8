//! How bytes reach a peer.

#[cfg(not(loom))]
pub(crate) mod local;
#[cfg(not(loom))]
pub(crate) mod parcel;
pub(crate) mod shm;
#[cfg(not(loom))]
pub(crate) mod tcp;
