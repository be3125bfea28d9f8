//! Pinfold for C and for whatever speaks C: `libpinfold.so`, `libpinfold.a`, `pinfold.h`.
//!
//! A thin layer over the library's public interface, one file a noun; the header is made of it by
//! cbindgen, with these documentation comments, and kept in `include/`. Names are those of the
//! header, so types are written as C writes them.
//!
//! - `status`: what functions return, and the sentence behind it; panics end here.
//! - `sized`: structures that may grow, in and out.
//! - `memory`: memory of the program's as the library's operations own it.
//! - `config`, `endpoint`, `peers`: endpoints, how they are made, whom they know.
//! - `messages`, `message`, `posted`: blocking calls; messages of any length; operations posted.
//! - `claim`: messages that are kept for one receive.
//! - `queue`, `completion`, `receipt`: how posted operations end.
//! - `arena`, `handoff`: memory that peers can map, and messages that are memory.
//! - `region`, `remote`, `atomics`, `key`: one-sided operations.
//! - `active`: handlers of requests.
//! - `counters`: what an endpoint did so far.
#![allow(non_camel_case_types)]
#![allow(unsafe_code)]
// **Invariant.** Every pointer that a function gets is checked for NULL, and is otherwise what the
// header asks for: that is the caller's part of the contract. Handles are boxes that `_free` takes
// back; nothing is kept of other pointers but where the header says until when.

mod active;
mod arena;
mod atomics;
mod claim;
mod completion;
mod config;
mod counters;
mod endpoint;
mod handoff;
mod key;
mod memory;
mod message;
mod messages;
mod peers;
mod posted;
mod queue;
mod receipt;
mod region;
mod remote;
mod sized;
mod status;

pub use self::{
    active::*, arena::*, atomics::*, claim::*, completion::*, config::*, counters::*, endpoint::*,
    handoff::*, key::*, message::*, messages::*, peers::*, posted::*, queue::*, receipt::*,
    region::*, remote::*, status::*,
};
