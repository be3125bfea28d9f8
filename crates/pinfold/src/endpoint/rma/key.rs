//! The key of memory.

use crate::{Error, Result, wire::space::Claim};

/// Lets a peer of the owner's endpoint use memory: sent to it in a message, say. It holds 128
/// random bits, so it cannot be guessed; a holder can use the memory until it is revoked.
///
/// ```
/// use pinfold::{Endpoint, RegionKey, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-region-key-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let region = endpoint.region(64, Rights::Read)?;
/// region.write(0, b"shared")?;
/// endpoint.send(itself, 1, &region.key().unwrap().to_bytes())?;
///
/// // A peer that is sent the key can use the region.
/// let key = RegionKey::from_bytes(&endpoint.recv(peer, 1)?)?;
/// let mut bytes = [0; 6];
/// endpoint.open_region(peer, &key)?.read(0, &mut bytes)?;
/// assert_eq!(&bytes, b"shared");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RegionKey {
    pub(crate) id: u64,
    pub(crate) secret: [u64; 2],
}

impl RegionKey {
    /// Bytes of a key.
    pub const BYTES: usize = 24;

    /// The key as bytes.
    pub fn to_bytes(&self) -> [u8; RegionKey::BYTES] {
        let mut bytes = [0; RegionKey::BYTES];
        let words = [self.id, self.secret[0], self.secret[1]];
        for (out, word) in bytes.chunks_exact_mut(8).zip(words) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The key with these bytes. Its first use shows whether it fits any memory.
    ///
    /// # Errors
    /// [`Error::BadKey`] for another number of bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<RegionKey> {
        let bytes: &[u8; RegionKey::BYTES] = bytes.try_into().map_err(|_| Error::BadKey)?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|b| bytes[8 * at + b]));
        Ok(RegionKey { id: word(0), secret: [word(1), word(2)] })
    }

    pub(crate) fn claim(&self) -> Claim {
        Claim { id: self.id, secret: self.secret }
    }
}

impl std::fmt::Debug for RegionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the secret, which would end up in logs.
        f.debug_struct("RegionKey").field("id", &self.id).finish_non_exhaustive()
    }
}
