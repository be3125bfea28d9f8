//! Messages that can be received, as probes see them, and the probes that wait for one.

use super::{
    matching::{Source, TagMatch},
    op_key::OpKey,
};
use crate::PeerId;

/// The header of a message that can be received.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// # use pinfold::Endpoint;
/// # let name = format!("local:doc-envelope-{}", std::process::id());
/// # let endpoint = Endpoint::listen(&name)?;
/// # let (to, from) = (endpoint.connect(&name)?, endpoint.accept()?);
/// endpoint.send(to, 7, b"in all 15 bytes")?;
/// let envelope = endpoint.probe(from, ..)?;
/// assert_eq!((envelope.peer, envelope.tag, envelope.len), (from, 7, 15));
/// assert_eq!(envelope.head, Some(*b"in all 1"));
/// # endpoint.recv(from, 7)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The sender.
    pub peer: PeerId,
    /// Its tag.
    pub tag: u64,
    /// Its length, bytes.
    pub len: u64,
    /// Its first 8 bytes, zeros beyond its end, if they are known here: of every message that has
    /// come, and of one that still lies with its sender in several parts, or has no more than
    /// these. `None` while the first piece of a message is coming.
    pub head: Option<[u8; 8]>,
}

/// A probe that waits; see [`probes`](super::probes).
pub(crate) struct Probe {
    pub op: OpKey,
    pub from: Source,
    pub tag: TagMatch,
}
