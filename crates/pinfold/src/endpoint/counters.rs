//! What an endpoint has done so far.

use serde::Serialize;

use crate::Path;

/// Messages and bytes by path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PathCount {
    /// Messages.
    pub messages: u64,
    /// Bytes of those messages.
    pub bytes: u64,
}

/// Counts since an endpoint was made; see [`Endpoint::counters`](crate::Endpoint::counters).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Messages sent, by path; index with [`Path`] as `usize`.
    pub sent: [PathCount; Path::ALL.len()],
    /// Messages received, by path.
    pub received: [PathCount; Path::ALL.len()],
    /// Bytes this process copied at user level.
    pub copied_user: u64,
    /// Bytes the kernel copied in calls of this process.
    pub copied_kernel: u64,
    /// Messages that came before their receive was posted.
    pub unexpected: u64,
    /// Messages that went as announcements because the receiver's credit was spent.
    pub credit_stalls: u64,
    /// Sends that had to wait for room in a lane.
    pub room_stalls: u64,
    /// Times a sleeping peer was woken.
    pub doorbells_sent: u64,
    /// Times this endpoint went to sleep.
    pub sleeps: u64,
    /// Peers that connected or were connected to.
    pub peers_joined: u64,
    /// Peers that went, for whatever reason.
    pub peers_gone: u64,
}

impl Counters {
    #[inline(always)]
    pub(crate) fn count_sent(&mut self, path: Path, bytes: u64) {
        let count = &mut self.sent[path as usize];
        count.messages += 1;
        count.bytes += bytes;
    }

    /// What the user sees. Inline messages are copied once here as they are sent; that is added
    /// now, not for each.
    pub(crate) fn read(&self) -> Counters {
        let mut counters = *self;
        counters.copied_user += self.sent[Path::Inline as usize].bytes;
        counters
    }

    #[inline(always)]
    pub(crate) fn count_received(&mut self, path: Path, bytes: u64) {
        let count = &mut self.received[path as usize];
        count.messages += 1;
        count.bytes += bytes;
    }
}
