//! A hard limit on bytes.

/// Bytes that may be taken, and how many are. Never more than the limit.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    used: usize,
}

impl Budget {
    pub(crate) const fn new(limit: usize) -> Budget {
        Budget { limit, used: 0 }
    }

    /// Takes `bytes`, or nothing.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.limit - self.used;
        if fits {
            self.used += bytes;
        }
        fits
    }

    /// Gives `bytes` back.
    pub(crate) fn give(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.used);
        self.used = self.used.saturating_sub(bytes);
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
