//! The ways that long messages leave: copied by the kernel, or sent from where they lie.
//!
//! - [`Driver`]: one for an endpoint. Its rings, its share of the process's translation stack, and
//!   the parts of that which are there.
//! - [`Calls`](calls::Calls): one for a connection. The sends without a ring.
//! - [`Transmitter`]: one for a connection. The mode of each message, and the bytes that the kernel
//!   may still look at.
//!
//! The drivers of Bhikshesvaran, *Single Copy Device Driver for the IBM APE25*: two-copy, locked
//! for each send, out of locked memory, from the start of a page.

mod calls;
mod driver;
mod facility;
#[cfg(test)]
mod tests;
mod transmitter;

pub(crate) use self::{
    driver::{Driver, Settings},
    transmitter::{Transmitted, Transmitter},
};
