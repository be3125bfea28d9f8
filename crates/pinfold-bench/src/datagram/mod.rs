//! Datagrams out of memory that is sent from where it lies: the single-copy driver's ways to
//! transmit a frame (Bhikshesvaran, *Single Copy Device Driver for the IBM APE25*, section 4.1), by
//! io_uring.
//!
//! - [`Sender`]: a connected UDP socket, a ring, and the memory that is sent from, in [`Area`]s. An
//!   area is lent to the caller to be filled, is given back with a send, and is lent again when the
//!   kernel has said that it no longer looks at it. So no area changes while it is in flight.
//! - [`Way`]: copied by the kernel, pinned by each send, or pinned once when the ring was made.
//! - [`set_segment_bytes`]: one send, cut into datagrams by the network (`UDP_SEGMENT`).
//!
//! The device decides how the kernel does a send that is not to be copied: the bytes for one that
//! cannot gather are copied all the same, and so are those for a receiver on the same host.
//! [`Counts::copied`] tells.

mod area;
mod counts;
mod entry;
mod error;
mod segment;
mod sender;
#[cfg(test)]
mod tests;
mod way;

pub use self::{
    area::Area,
    counts::Counts,
    error::{Error, Reason},
    segment::set_segment_bytes,
    sender::Sender,
    way::Way,
};

/// The longest payload of one send: the most that a UDP header can say, less the headers.
pub const BYTES_MAX: usize = 65_507;

/// Pieces that one send gathers, at most.
pub const PIECES_MAX: usize = 8;

/// Areas that a [`Sender`] has, at most.
pub const AREAS_MAX: usize = 4096;
