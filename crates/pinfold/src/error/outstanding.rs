//! Messages that were not delivered to a peer.

use std::fmt;

use super::Gone;
use crate::PeerId;

/// Messages and memory that one peer has not been delivered, or has not given back.
///
/// ```
/// use std::time::Duration;
/// use pinfold::{Arena, Endpoint, Error};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-error-outstanding-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// endpoint.give(itself, 1, Arena::new()?.alloc(100)?)?;
/// match endpoint.drain(Duration::ZERO) {
///     Err(Error::Undelivered { left, .. }) => {
///         assert_eq!((left[0].peer, left[0].given), (itself, 1)); // It has not looked yet.
///     }
///     other => panic!("the memory is not back: {other:?}"),
/// }
/// drop(endpoint.recv_view(peer, 1)?);
/// endpoint.drain(Duration::MAX)?; // The memory is back.
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outstanding {
    /// The peer.
    pub peer: PeerId,
    /// Its label and process id.
    pub name: String,
    /// Messages that are not in its memory yet: queued here, announced and not received, or on
    /// their way to another host. Operations on its regions that it performs itself and answers
    /// count as well.
    pub sends: u64,
    /// Messages whose memory was given to it and is not back.
    pub given: u64,
    /// Bytes of that memory.
    pub given_bytes: u64,
    /// The way it went, if it did so meanwhile.
    pub gone: Option<Gone>,
}

impl Outstanding {
    /// True if nothing is outstanding.
    pub(crate) fn is_none(&self) -> bool {
        self.sends == 0 && self.given == 0
    }
}

impl fmt::Display for Outstanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outstanding { name, sends, given, given_bytes, .. } = self;
        write!(f, "{name}: {sends} sends, {given} given ({given_bytes} bytes)")?;
        self.gone.map_or(Ok(()), |how| write!(f, ", and {how}"))
    }
}

/// Some of them, for a message.
pub(super) fn listed(left: &[Outstanding]) -> String {
    left.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
