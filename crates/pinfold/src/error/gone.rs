//! How peers went.

use std::{fmt, io};

/// The way in which a peer came to be gone.
///
/// ```
/// use pinfold::{Endpoint, Error, Gone};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-error-gone-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// endpoint.disconnect(itself);
/// match endpoint.recv(peer, 1) {
///     Err(Error::PeerGone { how: Gone::Died, .. }) => unreachable!("it is this process"),
///     Err(Error::PeerGone { how, .. }) => assert_eq!(how, Gone::Closed),
///     other => panic!("nobody can send it: {other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Gone {
    /// Its process ended without closing its endpoint.
    Died,
    /// It closed its endpoint, or disconnected.
    Closed,
    /// This side disconnected it.
    Disconnected,
    /// It broke the protocol and was cut off.
    Misbehaved(&'static str),
    /// The connection with its host broke, and there was no other in time
    /// ([`Builder::reconnect_timeout`](crate::Builder::reconnect_timeout)): the last `errno`
    /// (`ETIMEDOUT`, `ECONNRESET`, `ECONNREFUSED`, ...).
    Lost(i32),
    /// The connection with its host broke, and when there was another the peer did not know this
    /// endpoint any more: it had waited for less long, or had disconnected.
    Forgot,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gone::Died => f.write_str("its process ended without closing the endpoint"),
            Gone::Closed => f.write_str("it closed the connection"),
            Gone::Disconnected => f.write_str("this endpoint disconnected it"),
            Gone::Misbehaved(how) => write!(f, "it broke the protocol and was cut off: {how}"),
            Gone::Lost(errno) => {
                let how = io::Error::from_raw_os_error(*errno);
                write!(f, "the connection with its host broke: {how}")
            }
            Gone::Forgot => f.write_str(
                "the connection with its host broke, and it did not wait for another; \
                 give both sides the same Builder::reconnect_timeout",
            ),
        }
    }
}
