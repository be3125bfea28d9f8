//! Remote memory access: operations of peers on regions, and on memory by address.
//!
//! - `registry`: memory that peers can ask for; `deferred_free`: memory that is withdrawn and still
//!   in use.
//! - `open`: the question for memory, and the answer. `translate`: the memory behind an address.
//!   `way`: what came of both. `cma`: memory that the kernel lets both reach.
//! - `served`: operations that the owner of a region does for peers on other hosts.

pub(crate) mod cma;
pub(crate) mod deferred_free;
pub(crate) mod open;
pub(crate) mod registry;
pub(crate) mod served;
pub(crate) mod translate;
pub(crate) mod way;
