//! Remote memory access: operations of peers on regions, and on memory by address.
//!
//! - `regions`, `spaces`: memory that peers can ask for. `cma`: memory that the kernel lets both
//!   reach.
//! - `served`: operations that the owner does for peers on other hosts.
//! - `deferred_free`: memory that is withdrawn and still in use.

pub(crate) mod cma;
pub(crate) mod deferred_free;
pub(crate) mod regions;
pub(crate) mod served;
pub(crate) mod spaces;
