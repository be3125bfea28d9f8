//! Messages in memory of the library's.

use std::{fmt, ops::Deref};

use super::received::Received;
use crate::{
    PeerId, Receipt,
    memory::{reassembly::fold, store::Whole},
    worker::op::Arrived,
};

/// A received message in memory of the library's, contiguous. Dereferences to its bytes.
///
/// ```
/// use pinfold::Endpoint;
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-message-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// endpoint.send(itself, 7, b"some words")?;
/// let message = endpoint.recv(peer, ..)?;
/// assert_eq!((message.peer(), message.tag(), message.len()), (peer, 7, 10));
/// assert_eq!(message.split(|byte| *byte == b' ').count(), 2); // A message is a slice.
/// assert_eq!(message.into_vec(), b"some words");
/// # Ok(())
/// # }
/// ```
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
