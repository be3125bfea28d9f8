//! Counters of a link's traffic.

/// Frames and bytes that a link has counted since it was made. A segment that the kernel cuts up
/// only at real hardware (up to 64 KiB) counts as one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that came in. Frames that a filter of [`Link::lose`](super::Link::lose) discards
    /// afterwards are among them.
    pub received: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// Frames that went out.
    pub sent: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// Frames that were discarded, in either direction.
    pub dropped: u64,
}
