//! Protocols: how messages, memory and operations of peers are moved, one folder each.

pub(crate) mod active;
pub(crate) mod handoff;
pub(crate) mod rendezvous;
pub(crate) mod rma;
