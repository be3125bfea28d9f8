//! Proofs by the key, and the secrets that are derived from it.

use std::{fmt, net::IpAddr, sync::Arc};

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

pub(super) use super::super::key::is_same;
use super::super::key::{Key, MAC_BYTES, mac};
use crate::{
    Result, random,
    wire::tcp::{
        greeting::{AuthKind, NONCE_BYTES, Role},
        offer::Reached,
    },
};

/// The way a side proves that it may connect.
#[derive(Clone, Debug)]
pub(crate) enum Auth {
    Key(Arc<Key>),
    /// Without a key. The proofs are then checksums, which any process can make.
    None(Loopback),
}

/// Evidence that a peer is on this very host, and needs no key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loopback(());

impl Loopback {
    /// `None`: the peer at this address may be anywhere.
    pub(crate) fn of(peer: IpAddr) -> Option<Loopback> {
        peer.to_canonical().is_loopback().then_some(Loopback(()))
    }
}

impl Auth {
    pub(super) fn kind(&self) -> AuthKind {
        if self.is_key() { AuthKind::Key } else { AuthKind::None }
    }

    pub(super) fn is_key(&self) -> bool {
        matches!(self, Auth::Key(_))
    }

    /// The proof that this side knows the key and all that was said so far.
    pub(super) fn prove(&self, purpose: Purpose, transcript: &Transcript) -> [u8; MAC_BYTES] {
        let text = [&purpose.domain()[..], &transcript.digest()];
        match self {
            Auth::Key(key) => key.mac(&text),
            Auth::None(_) => mac(&[0; MAC_BYTES], &text),
        }
    }
}

/// The purpose of a proof. Each has a domain of its own: none can stand for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The claim of the connecting side.
    Claim,
    /// The reply of the accepting side.
    Reply,
    /// The confirmation of the connecting side.
    Confirm,
    SessionId,
    SessionSecret,
    /// One side knows the secret of a session that goes on.
    Resuming(Role),
    /// An encrypted channel ends at one side.
    Channel(Role),
}

/// Bytes of a domain; shorter ones are filled with zeros, so that all have one length.
const DOMAIN_BYTES: usize = 48;

impl Purpose {
    #[cfg(test)]
    pub(super) const ALL: [Purpose; 9] = [
        Purpose::Claim,
        Purpose::Reply,
        Purpose::Confirm,
        Purpose::SessionId,
        Purpose::SessionSecret,
        Purpose::Resuming(Role::Connecting),
        Purpose::Resuming(Role::Accepting),
        Purpose::Channel(Role::Connecting),
        Purpose::Channel(Role::Accepting),
    ];

    fn domain(self) -> [u8; DOMAIN_BYTES] {
        let text = match self {
            Purpose::Claim => "pinfold tcp v1: claim of the connecting side",
            Purpose::Reply => "pinfold tcp v1: reply of the accepting side",
            Purpose::Confirm => "pinfold tcp v1: confirmation of the connecting",
            Purpose::SessionId => "pinfold tcp v1: session id",
            Purpose::SessionSecret => "pinfold tcp v1: session secret",
            Purpose::Resuming(Role::Connecting) => "pinfold tcp v1: resumed by the connecting side",
            Purpose::Resuming(Role::Accepting) => "pinfold tcp v1: resumed by the accepting side",
            Purpose::Channel(Role::Connecting) => "pinfold tcp v1: channel of the connecting side",
            Purpose::Channel(Role::Accepting) => "pinfold tcp v1: channel of the accepting side",
        };
        let mut domain = [0; DOMAIN_BYTES];
        domain[..text.len()].copy_from_slice(text.as_bytes());
        domain
    }
}

/// A digest of all packets so far, of both sides. Packets have fixed sizes, so it is clear where
/// each of them ends.
#[derive(Clone)]
pub(super) struct Transcript(Sha256);

impl Transcript {
    pub(super) fn new() -> Transcript {
        Transcript(Sha256::new())
    }

    pub(super) fn absorb(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn digest(&self) -> [u8; 32] {
        self.0.clone().finalize().into()
    }
}

impl fmt::Debug for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transcript")
    }
}

/// 32 random bytes, for one greeting.
#[derive(Debug)]
pub(crate) struct Nonce([u8; NONCE_BYTES]);

impl Nonce {
    /// Draws one.
    ///
    /// # Errors
    /// [`Error::Os`] if the kernel has no random bytes.
    pub(crate) fn fresh() -> Result<Nonce> {
        Ok(Nonce(random::bytes("a greeting's nonce")?))
    }

    #[cfg(any(test, all(feature = "internals", feature = "tls")))]
    pub(crate) fn fixed(bytes: [u8; NONCE_BYTES]) -> Nonce {
        Nonce(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8; NONCE_BYTES] {
        &self.0
    }
}

/// A secret that only the two sides of a session know: a side that shows it may go on with the
/// session. Zeroed when it is dropped; `Debug` does not show it.
///
/// Without a key, it is made of the nonces alone: then any reader of the greeting knows it.
#[derive(Clone)]
pub(crate) struct SessionSecret(Zeroizing<[u8; MAC_BYTES]>);

impl SessionSecret {
    pub(super) fn new(bytes: [u8; MAC_BYTES]) -> SessionSecret {
        SessionSecret(Zeroizing::new(bytes))
    }

    /// The proof that a side goes on with session `id` and has `received` so far, in the greeting
    /// that began with these knocks.
    pub(super) fn prove_resuming(
        &self,
        role: Role,
        knocks: &[u8; 32],
        id: &[u8; 16],
        received: Reached,
    ) -> [u8; MAC_BYTES] {
        let Reached { frames, bytes } = received;
        let (frames, bytes) = (frames.to_le_bytes(), bytes.to_le_bytes());
        mac(&self.0, &[&Purpose::Resuming(role).domain(), knocks, id, &frames, &bytes])
    }
}

impl PartialEq for SessionSecret {
    fn eq(&self, other: &SessionSecret) -> bool {
        is_same(&self.0, &other.0)
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(hidden)")
    }
}
