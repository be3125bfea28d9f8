//! One-sided operations: memory that peers read, write and change by atomic operations while its
//! owner does something else.
//!
//! - `owner`: [`Region`], the memory and the right to let others use it.
//! - `remote`: [`RemoteRegion`], the region as a peer uses it. `mapped`: reads and writes where it
//!   is mapped, `atomics`: the rest; `cma`: reads and writes where it is not; `served`: all of it
//!   where the owner is on another host; `owned`: operations with a buffer of their own;
//!   `request`: reads and writes by a copy engine.
//!
//! A region's memory is a file of its own, which only those peers are handed that show its key. So
//! the kernel keeps all others out, keeps those in bounds that have it, and keeps them from writing
//! if they may only read. Operations are loads and stores of the peer's own processor, without the
//! owner's help and without a system call.
//!
//! A peer that cannot map it, but may read and write the owner's memory, is told the address. That
//! keeps out nothing: a process that may write some of another's memory may write all of it. Bounds
//! and rights are then the peer's own business, and hold for one that keeps to the rules.
//!
//! A peer on another host asks the owner's endpoint for each operation (`protocol/rma/served.rs`),
//! which needs the owner to make progress. The owner checks key, rights and bounds each time.
//!
//! # Revocation
//!
//! A word that its users can only read says whether a region still stands. They look at it after
//! each operation: one that succeeds had its effect before the region was revoked. The owner sets
//! the word, has every processor run a barrier (`membarrier(2)`; pairs without it use a fence in
//! each operation), and then moves the contents to other memory. A peer that still writes the old
//! memory, late or malicious, changes nothing.
//!
//! The kernel copies at an address, also for a peer that is late. So a peer says in memory that
//! both share which region it uses, and the owner keeps the old addresses until it has left
//! (`protocol/rma/deferred_free.rs`, `transport/shm/hazard.rs`).

pub(crate) mod atomics;
pub(crate) mod cma;
pub(crate) mod mapped;
mod owned;
mod owner;
mod remote;
mod request;
mod served;

pub use self::{
    atomics::{AtomicChange, AtomicWord},
    owned::{AtomicRequest, CopyRequest},
    owner::Region,
    remote::RemoteRegion,
    request::RegionRequest,
};
pub use crate::memory::translate::Rights;
use crate::{Error, Result};

/// Lets a peer of the owner's endpoint use a region: sent to it in a message, say. It holds 128
/// random bits, so it cannot be guessed; a holder can use the region until it is revoked.
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

    /// The key with these bytes. Its first use shows whether it fits a region.
    ///
    /// # Errors
    /// [`Error::BadKey`] for another number of bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<RegionKey> {
        let bytes: &[u8; RegionKey::BYTES] = bytes.try_into().map_err(|_| Error::BadKey)?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|b| bytes[8 * at + b]));
        Ok(RegionKey { id: word(0), secret: [word(1), word(2)] })
    }
}

impl std::fmt::Debug for RegionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the secret, which would end up in logs.
        f.debug_struct("RegionKey").field("id", &self.id).finish_non_exhaustive()
    }
}
