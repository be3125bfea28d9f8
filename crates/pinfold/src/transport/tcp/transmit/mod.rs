//! How long messages leave: copied by the kernel, or sent from where they lie.
//!
//! - [`Driver`]: one for an endpoint. Its rings, its pin-down cache, and what of that is there.
//! - [`Calls`](calls::Calls): one for a connection. What goes without a ring.
//! - [`Transmitter`]: one for a connection. Which message goes by which mode, and what the kernel
//!   may still look at.
//!
//! The drivers of Bhikshesvaran, *Single Copy Device Driver for the IBM APE25*: two-copy, locked for each send,
//! out of locked memory, from the start of a page.

mod calls;
mod driver;
#[cfg(test)]
mod tests;
mod transmitter;

pub(crate) use self::{
    driver::{Driver, Settings},
    transmitter::{Transmitted, Transmitter},
};
