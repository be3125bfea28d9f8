//! The facts of received messages.

use std::ops::Range;

use crate::{Error, PeerId, Receipt, Result};

/// The facts of a message that was received into the caller's memory.
///
/// ```
/// use pinfold::Endpoint;
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-received-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// endpoint.send(itself, 7, b"short")?;
/// let mut buffer = [0; 100];
/// let received = endpoint.recv_into(peer, .., &mut buffer)?;
/// assert_eq!((received.peer, received.tag), (peer, 7));
/// assert_eq!(&buffer[..received.len as usize], b"short"); // The rest is as it was.
/// # Ok(())
/// # }
/// ```
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
///
/// ```
/// use pinfold::Endpoint;
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-multi-received-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let mut receive = endpoint.multi_recv(peer, .., vec![0; 4096], 1024);
/// endpoint.send(itself, 5, b"the first")?;
/// let message = receive.next().expect("there is room for more")?;
/// assert_eq!((message.tag, message.range.clone(), message.is_last), (5, 0..9, false));
/// assert_eq!(receive.bytes(&message), Some(&b"the first"[..]));
/// assert_eq!(message.result?.bytes, 9);
/// # Ok(())
/// # }
/// ```
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
