//! Copies that learn the best algorithm, as those of the library's lanes do.
//!
//! Copies into the ring learn the best for themselves and their reader together: some are samples.
//! A sample's number goes along in the slot, and the reader answers with it and with the time of
//! taking that chunk out. Copies out of the ring learn from their own time.

use std::sync::atomic::{AtomicU64, Ordering};

use pinfold::copy::{Algorithm, CacheState, Done, Handler, Hints, InForce, Reader, Site};

use crate::shared::Shared;

/// Numbers of samples: 1 to this.
const NUMBERS: u64 = (1 << 16) - 1;

/// The reader's answer to sample `number`: its copy took `ns`.
pub(super) fn took(number: u64, ns: u64) -> u64 {
    ns.max(1) << 16 | number
}

/// The learner of one sending end.
pub(super) struct CopyIn {
    handler: Handler<InForce>,
    site: Site,
    /// The number of the last sample.
    last: u64,
    /// The sample, if the reader has not answered.
    open: Option<Done>,
}

impl CopyIn {
    const HINTS: Hints = Hints {
        reader: Reader::OtherCore,
        source: CacheState::Unknown,
        destination: CacheState::Unknown,
        hears_reader: true,
    };

    pub(super) fn new() -> CopyIn {
        CopyIn { handler: Handler::new(InForce), site: Site::new(), last: 0, open: None }
    }

    /// Copies a chunk to `at`; the reader answers in `answer`. Returns the number of the sample, 0
    /// if it is none.
    pub(super) fn copy_in(
        &mut self,
        shared: &Shared,
        at: usize,
        part: &[u8],
        answer: &AtomicU64,
    ) -> u64 {
        if let Some(done) = &self.open {
            let word = answer.load(Ordering::Relaxed);
            if word & NUMBERS == self.last {
                done.learn(&mut self.site, word >> 16);
                self.open = None;
            }
        }
        let means = (&mut self.handler, &mut self.site, CopyIn::HINTS);
        let done = shared.copy_in_for(means, at, part, self.open.is_none());
        self.open = self.open.take().or(done.filter(|done| done.ns.is_some()));
        if done.is_some_and(|done| done.ns.is_some()) {
            self.last = self.last % NUMBERS + 1;
            return self.last;
        }
        0
    }

    /// The algorithm that copies of `len` bytes use at present.
    pub(super) fn using(&self, len: usize) -> Algorithm {
        self.site.using(len).unwrap_or(Algorithm::LIBC)
    }
}

/// The learner of one receiving end.
pub(super) struct CopyOut {
    handler: Handler<InForce>,
    site: Site,
}

impl CopyOut {
    const HINTS: Hints = Hints {
        reader: Reader::Me,
        source: CacheState::Unknown,
        destination: CacheState::Unknown,
        hears_reader: false,
    };

    pub(super) fn new() -> CopyOut {
        CopyOut { handler: Handler::new(InForce), site: Site::new() }
    }

    /// Copies a chunk out of `at`, and returns the algorithm.
    pub(super) fn copy_out(&mut self, shared: &Shared, at: usize, part: &mut [u8]) -> Algorithm {
        shared.copy_out_for((&mut self.handler, &mut self.site, CopyOut::HINTS), at, part)
    }
}
