//! Handoff: memory of an arena is donated, and the message is the memory itself.
//!
//! - `donate`: a donated buffer is announced; `returns`, `collect`: it comes back.
//! - `account`: how much a peer may hold; `admission`: whether one more may go.
//! - `vectored`: several buffers as one message; `offers`: the sender's list of them; `lists`: the
//!   receiver's.
//! - `latest`: messages of which only the newest counts; `frames`: their queue.
//! - `after_close`: donated memory after the end of the connection.

pub(crate) mod account;
pub(crate) mod admission;
pub(crate) mod after_close;
pub(crate) mod collect;
pub(crate) mod donate;
pub(crate) mod frames;
pub(crate) mod latest;
pub(crate) mod lists;
pub(crate) mod offers;
pub(crate) mod parts;
pub(crate) mod returns;
pub(crate) mod state;
pub(crate) mod vectored;
