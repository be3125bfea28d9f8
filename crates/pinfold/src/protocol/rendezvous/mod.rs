//! Rendezvous: a message waits in its sender's memory until a receive has matched.
//!
//! - `announce`: its sender tells of it.
//! - `select`: the path it takes then.
//! - `get`: the receiver copies it; `put`: the sender copies it, alone or both at once.
//! - `copies`: long parts are lent, as a `copy_job`, to be copied outside of the engine;
//!   `get_part`, `put_part`: the copies themselves; `get_end`: the receiver has all of it.
//! - `request`: the receiver asks for it through the ring.
//! - `ack`: the receiver's words to the sender about it; `fin`: the last of them.
//! - `transfer`: the state of each side's part.

pub(crate) mod ack;
pub(crate) mod announce;
pub(crate) mod copies;
pub(crate) mod copy_job;
pub(crate) mod fin;
pub(crate) mod get;
mod get_end;
mod get_part;
pub(crate) mod put;
mod put_part;
pub(crate) mod request;
pub(crate) mod select;
pub(crate) mod transfer;
