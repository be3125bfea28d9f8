//! Sockets and their names.

pub mod activated;
pub mod host_names;
pub(crate) mod inherit;
pub mod seqpacket;
pub mod stream;
