//! Sockets and their names.

pub mod datagram;
#[cfg(feature = "fabric")]
pub mod fabric;
pub mod host_names;
pub(crate) mod inherit;
pub mod seqpacket;
pub mod stream;
