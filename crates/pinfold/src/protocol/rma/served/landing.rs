//! Writes of peers that are coming in, at the owner of the region.

use std::sync::Arc;

use pinfold_sys::process::Segment;

use crate::{SharedBuf, wire::space::Refused};

/// A write of a peer's that is coming in.
pub(crate) struct Landing {
    pub(super) region: u64,
    pub(super) offset: u64,
    /// `Ok`, or the reason why it is not written.
    pub(super) verdict: Result<(), Refused>,
}

/// A part of a region that is written.
pub(crate) struct Landed {
    pub part: Segment,
    pub(super) memory: Arc<SharedBuf>,
    pub(super) at: usize,
}

impl Landed {
    /// Copies bytes to its beginning, by words: other threads and peers may use them at the same
    /// time.
    pub(crate) fn put(&self, bytes: &[u8]) {
        self.memory.write(self.at, bytes);
    }
}
