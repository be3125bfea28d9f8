//! Rendezvous: a message waits in its sender's memory until a receive has matched.
//!
//! - `announce`: its sender tells of it.
//! - `select`: the path it takes then.
//! - `get`: the receiver copies it; `put`: the sender copies it, alone or both at once.
//! - `request`: the receiver asks for it through the ring.
//! - `ack`: the receiver's words to the sender about it; `fin`: the last of them.
//! - `transfer`: the state of each side's part.

pub(crate) mod ack;
pub(crate) mod announce;
pub(crate) mod fin;
pub(crate) mod get;
pub(crate) mod put;
pub(crate) mod request;
pub(crate) mod select;
pub(crate) mod transfer;
