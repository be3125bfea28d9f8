//! Keys of memory, for C.

use pinfold::RegionKey;

/// Bytes of a key.
pub const PINFOLD_KEY_BYTES: usize = 24;

/// The key of memory: sent to a peer, it lets that use the memory until it is revoked. It cannot be
/// guessed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinfold_key {
    /// Bytes to be passed on as they are.
    pub bytes: [u8; PINFOLD_KEY_BYTES],
}

const _: () = assert!(PINFOLD_KEY_BYTES == RegionKey::BYTES);

impl From<RegionKey> for pinfold_key {
    fn from(key: RegionKey) -> pinfold_key {
        pinfold_key { bytes: key.to_bytes() }
    }
}
