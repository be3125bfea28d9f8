//! Why an active message was not handled.

use std::fmt;

/// The reason why an active message was not handled, or a request not answered.
///
/// ```
/// use pinfold::{Endpoint, Error, NotHandled, Progress};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-error-not-handled-{}", std::process::id());
/// let server = Endpoint::builder()
///     .listen(&name)
///     .progress(Progress::Dedicated)
///     .handle(1, |_| {}) // The handler forgets to answer.
///     .build()?;
/// let client = Endpoint::new()?;
/// let peer = client.connect(&name)?;
/// for (id, reason) in [(1, NotHandled::NoAnswer), (2, NotHandled::NoHandler)] {
///     match client.request(peer, id, b"?").wait() {
///         Err(Error::NotHandled { why, .. }) => assert_eq!(why, reason),
///         other => panic!("nobody answers: {other:?}"),
///     }
/// }
/// # drop(server);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NotHandled {
    /// The peer has no handler of that number.
    NoHandler,
    /// The handler panicked before it answered.
    Panicked,
    /// The handler ended, or dropped its [`Replier`](crate::Replier), without an answer.
    NoAnswer,
    /// The message is longer than the peer takes
    /// ([`Builder::active_bytes_max`](crate::Builder::active_bytes_max)), or has memory for.
    TooLong,
}

impl fmt::Display for NotHandled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotHandled::NoHandler => "it has no such handler; register one there first",
            NotHandled::Panicked => "the handler panicked; see that process's log",
            NotHandled::NoAnswer => "the handler ended without an answer",
            NotHandled::TooLong => {
                "the message is longer than it takes; send it in parts, or raise its \
                 Builder::active_bytes_max"
            }
        })
    }
}
