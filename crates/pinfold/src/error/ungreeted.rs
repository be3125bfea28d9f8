//! Why two endpoints did not become peers.

/// The reason why two endpoints did not become peers
/// ([`Error::Greeting`](crate::Error::Greeting)), as far as it matters for the remedy.
///
/// ```
/// use pinfold::{Endpoint, Error, Progress, Ungreeted};
///
/// # fn main() -> pinfold::Result<()> {
/// let server = Endpoint::builder().listen("tcp:127.0.0.1:0").key(&[1; 32]);
/// let server = server.progress(Progress::Dedicated).build()?;
/// let client = Endpoint::new()?;
/// match client.connect(&server.listens_at().expect("it listens")) {
///     Err(Error::Greeting { reason, .. }) => assert_eq!(reason, Ungreeted::NoKey),
///     other => panic!("it has no key: {other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ungreeted {
    /// Both have a key, but not the same.
    OtherKey,
    /// The peer asks for a key, and this endpoint has none.
    NoKey,
    /// This endpoint asks for a key, and the peer has none.
    NoKeyThere,
    /// The peer's connections are encrypted, and this endpoint's are not.
    Unencrypted,
    /// This endpoint's connections are encrypted, and the peer's are not.
    UnencryptedThere,
    /// The peer has all the peers it may have, this many.
    Full(u64),
    /// Any other reason.
    Other,
}
