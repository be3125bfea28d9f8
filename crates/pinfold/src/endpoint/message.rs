//! Received messages.

use std::{
    fmt,
    ops::{Deref, Range},
};

use crate::{
    Error, PeerId, Receipt, Result,
    memory::{reassembly::fold, store::Whole},
    worker::op::Arrived,
};

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

impl From<&Arrived> for Received {
    fn from(arrived: &Arrived) -> Received {
        let Arrived { peer, tag, len, receipt, .. } = *arrived;
        Received { peer, tag, len, receipt }
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

/// A received message in memory of the library's, contiguous. Dereferences to its bytes.
pub struct Message {
    received: Received,
    bytes: Whole,
}

impl Message {
    pub(crate) fn new(arrived: Arrived) -> Message {
        let mut received = Received::from(&arrived);
        let bytes = arrived.bytes.map(|bytes| *bytes).unwrap_or_default().whole();
        received.receipt.copied_user += bytes.copied();
        Message { received, bytes }
    }

    /// The peer that sent it.
    pub fn peer(&self) -> PeerId {
        self.received.peer
    }

    /// Its tag.
    pub fn tag(&self) -> u64 {
        self.received.tag
    }

    /// The receipt: how it came.
    pub fn receipt(&self) -> Receipt {
        self.received.receipt
    }

    /// The receipt of making it contiguous, if it lay in several pieces when it was handed out:
    /// which bytes were moved, which were copied, and why. [`Message::receipt`] counts the copied
    /// ones as well.
    ///
    /// Few messages do: long unexpected ones, where the memory for them has holes.
    pub fn folded(&self) -> Option<&fold::Receipt> {
        self.bytes.folded()
    }

    /// The bytes as a vector. They are copied if there are at most 56, or from 128 KiB to 8 MiB:
    /// messages of such lengths lie in pages that are used again and again.
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes.into_vec()
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("peer", &self.received.peer)
            .field("tag", &self.received.tag)
            .field("len", &self.bytes.len())
            .field("receipt", &self.received.receipt)
            .finish()
    }
}
