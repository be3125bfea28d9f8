//! Handoff: memory of an arena is donated, and the message is the memory itself.
//!
//! - `donate`: a donated buffer is announced; `returns`: it comes back; `account`: how much a peer
//!   may hold.
//! - `vectored`: several buffers as one message; `latest`: messages of which only the newest
//!   counts.
//! - `after_close`: donated memory after the end of the connection.

pub(crate) mod account;
pub(crate) mod after_close;
pub(crate) mod donate;
pub(crate) mod latest;
pub(crate) mod parts;
pub(crate) mod returns;
pub(crate) mod state;
pub(crate) mod vectored;
