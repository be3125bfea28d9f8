//! Rendezvous: a message waits in its sender's memory until a receive has matched.
//!
//! - `select`: which way it is moved then.
//! - `get`: the receiver copies it; `put`: the sender copies it, alone or both at once.
//! - `ack`: what the receiver tells the sender of it.
//! - `transfer`: how far each side is.

pub(crate) mod ack;
pub(crate) mod get;
pub(crate) mod put;
pub(crate) mod select;
pub(crate) mod transfer;
