//! Sending over connections out of memory that is not copied: the single-copy driver's ways to
//! transmit (Bhikshesvaran, *Single Copy Device Driver for the IBM APE25*, section 4.1), by an
//! io_uring.
//!
//! - [`SendRing`]: sends, never waits for room, and collects the kernel's completions.
//! - [`Order`]: memory to be sent, and the [`Way`] that the kernel comes by it. Several orders are
//!   one system call; where one of them finds no room for all of its bytes, those behind it are not
//!   begun.
//! - [`Flight`]: bytes that the kernel may still read. It [lands](SendRing::land) once it does not.
//!
//! The kernel reads bytes that the network has not got yet where they lie, also to send them once
//! more. So the bytes of a flight are not to change: the peer would get the changed ones. The
//! kernel itself comes to no harm: it holds the pages, even when their addresses, the ring or this
//! process are gone.

mod flights;
mod ring;
#[cfg(test)]
mod tests;

pub use self::{
    flights::Flight,
    ring::{Launched, Order, SendRing, Way},
};

/// Orders that are given at a time.
pub const ORDERS_MAX: usize = 16;

/// Flights at a time. The kernel completes each at most twice, for which there is room.
pub const FLIGHTS_MAX: usize = 60;

const _: () = assert!(ORDERS_MAX <= crate::mem::pin::ENTRIES as usize);
const _: () = assert!(2 * FLIGHTS_MAX < crate::mem::pin::SAYS as usize);
