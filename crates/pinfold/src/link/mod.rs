//! How bytes reach a peer.

#[cfg(not(loom))]
pub(crate) mod local;
#[cfg(not(loom))]
pub(crate) mod parcel;
pub(crate) mod shm;
#[cfg(not(loom))]
#[cfg_attr(not(test), expect(dead_code, reason = "no endpoint reaches another host yet"))]
pub(crate) mod tcp;
