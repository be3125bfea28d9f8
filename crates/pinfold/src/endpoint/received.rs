//! The facts of received messages.

use std::ops::Range;

use crate::{Error, PeerId, Receipt, Result};

/// The facts of a message that was received into the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The peer that sent it.
    pub peer: PeerId,
    /// Its tag.
    pub tag: u64,
    /// Its length, bytes; all of it is in the buffer.
    pub len: u64,
    /// The receipt: how it came.
    pub receipt: Receipt,
}

impl Received {
    /// This, or the error that the message was longer than the buffer.
    #[inline(always)]
    pub(crate) fn checked(self) -> Result<Received> {
        if self.receipt.bytes < self.len { Err(self.truncated()) } else { Ok(self) }
    }

    #[cold]
    fn truncated(self) -> Error {
        let Received { peer, tag, len, receipt } = self;
        Error::Truncated { len, capacity: receipt.bytes, peer, tag, receipt }
    }
}

/// A message in the buffer of a receive of many ([`MultiRecv`](crate::MultiRecv)).
#[derive(Debug)]
pub struct MultiReceived {
    /// The peer that sent it.
    pub peer: PeerId,
    /// Its tag.
    pub tag: u64,
    /// Its length, bytes.
    pub len: u64,
    /// Its place in the buffer: all of it, or as much as there was room for. After an error other
    /// than [`Error::Truncated`], any of these bytes may have been written or not.
    pub range: Range<usize>,
    /// The receipt: how it came. The errors are those of a receive of its own.
    pub result: Result<Receipt>,
    /// True if the buffer is used up and this was its last message: nothing writes to it any more.
    pub is_last: bool,
    /// The number of the message at its endpoint.
    pub(crate) arrival: u64,
}
