//! Sockets, their names, and networks for tests.

pub mod datagram;
#[cfg(feature = "fabric")]
pub mod fabric;
pub mod host_names;
pub(crate) mod inherit;
#[cfg(feature = "netns")]
pub mod netns;
pub mod seqpacket;
pub mod stream;
