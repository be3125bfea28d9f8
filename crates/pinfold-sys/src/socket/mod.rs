//! Sockets and their names.

pub mod host_names;
pub(crate) mod inherit;
pub mod seqpacket;
pub mod stream;
