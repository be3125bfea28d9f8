//! `Budget`: a hard limit on bytes.

/// A limit on bytes, and the bytes taken so far. Never more than the limit are taken.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    used: usize,
    /// True if something was refused since it was last asked.
    refused: bool,
}

impl Budget {
    pub(crate) const fn new(limit: usize) -> Budget {
        Budget { limit, used: 0, refused: false }
    }

    /// Takes `bytes`, or nothing.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.limit - self.used;
        if fits {
            self.used += bytes;
        } else {
            self.refused = true;
        }
        fits
    }

    /// Gives `bytes` back.
    pub(crate) fn give(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.used);
        self.used = self.used.saturating_sub(bytes);
    }

    /// Returns whether the limit refused something since the last call.
    pub(crate) fn was_short(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// Bytes that may be taken in all.
    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes taken.
    pub(crate) const fn used(&self) -> usize {
        self.used
    }

    /// Bytes that can still be taken.
    pub(crate) const fn left(&self) -> usize {
        self.limit - self.used
    }
}
