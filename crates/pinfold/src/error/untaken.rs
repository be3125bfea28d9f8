//! Why a send with a deadline was not taken.

use std::fmt;

/// The reason why a send with a deadline had not gone when its time was up.
///
/// ```
/// use std::time::Duration;
/// use pinfold::{Endpoint, Error, Untaken};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-error-untaken-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let long = vec![1; 64 << 20]; // Longer than a receiver stores without a receive.
/// match endpoint.send_timeout(itself, 1, &long, Duration::ZERO) {
///     Err(Error::NotTaken { why: Untaken::Unsure, .. }) => {} // It may be received yet.
///     Err(Error::NotTaken { why, .. }) => {
///         assert_eq!(why, Untaken::NoReceive);
///         assert!(endpoint.try_probe(peer, 1)?.is_none()); // The message was taken back.
///     }
///     other => panic!("nobody receives: {other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Untaken {
    /// Its receive is not posted, and the receiver's store for unexpected messages is full.
    NoCredit {
        /// Bytes that the receiver stores for this sender, with 128 for each message.
        credit: u64,
    },
    /// Its receive is not posted, and it is too long to be stored there.
    NoReceive,
    /// Earlier messages to this peer have not gone yet: it does not look.
    Behind,
    /// The receiver knows of it, and did not answer when it was to be taken back: it may receive it
    /// yet, once.
    Unsure,
}

impl fmt::Display for Untaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Untaken::NoCredit { credit } => write!(
                f,
                "no receive for it is posted there, and the {credit} bytes that it stores for \
                 messages without one are in use; have it receive them, or raise \
                 Builder::unexpected_bytes_max there"
            ),
            Untaken::NoReceive => write!(f, "no receive for it is posted there"),
            Untaken::Behind => write!(
                f,
                "what was sent before has not gone yet; have it receive, or make progress on its \
                 own (Progress::Dedicated)"
            ),
            Untaken::Unsure => write!(
                f,
                "it knows of the message and does not answer; it may receive the message yet, so \
                 do not send it again unless twice is no harm"
            ),
        }
    }
}
