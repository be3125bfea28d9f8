//! Transports: the ways that bytes take to a peer.

#[cfg(not(loom))]
pub(crate) mod descriptor_channel;
#[cfg(all(test, not(loom)))]
pub(crate) mod faulty;
#[cfg(not(loom))]
mod interface;
#[cfg(not(loom))]
pub(crate) mod local;
pub(crate) mod shm;
#[cfg(not(loom))]
pub(crate) mod tcp;
#[cfg(not(loom))]
pub(crate) mod versions;

#[cfg(not(loom))]
pub(crate) use self::interface::{
    Back, Capabilities, Direct, Driver, Ended, Resume, Transmitted, Transport,
};
