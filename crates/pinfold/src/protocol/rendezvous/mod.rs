//! Rendezvous: a message waits in its sender's memory until a receive has matched.
//!
//! - `select`: the path it takes then.
//! - `get`: the receiver copies it; `put`: the sender copies it, alone or both at once.
//! - `ack`: the receiver's words to the sender about it.
//! - `transfer`: the state of each side's part.

pub(crate) mod ack;
pub(crate) mod get;
pub(crate) mod put;
pub(crate) mod select;
pub(crate) mod transfer;
