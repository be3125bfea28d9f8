//! Outcomes of sends.

use rustix::io::Errno;

/// Outcomes of the sends of a [`Sender`](super::Sender).
///
/// Each send is counted once among `sent` and `failed`, or still is in flight. Each of those that
/// were not to be copied and were begun is counted once in `notified`, or still is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sends that the network took.
    pub sent: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sends that it did not take, or not all of.
    pub failed: u64,
    /// The error of the last of these; `None` also where it took some of the bytes.
    pub errno: Option<Errno>,
    /// Sends that were not to be copied, of which the kernel has said that it no longer looks at
    /// the bytes.
    pub notified: u64,
    /// Those of them that were copied all the same (`IORING_NOTIF_USAGE_ZC_COPIED`).
    pub copied: u64,
}
