//! The cases to measure: those that can be told apart, those that matter most first.

use pinfold_sys::cpu::block::{Algorithm, Isa, Prefetch};

use super::class_bytes;
use crate::copy::{
    CacheState, Reader,
    table::{CLASSES, LOOPS_FROM, OTHERS_FROM, Operation, Placement, Situation, class_of},
};

/// Above this, only every second size is measured, bytes; and from here on not every algorithm in
/// every placement: it would take most of the time.
pub(super) const LONG: usize = 1 << 20;

/// From here on the placement of blocks makes no difference: a copy that waits for memory does not
/// wait for that.
const VERY_LONG: usize = 16 << 20;

/// One situation and class of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Case {
    pub(super) situation: Situation,
    pub(super) class: usize,
}

impl Case {
    pub(super) fn len(&self) -> usize {
        class_bytes(self.class)
    }

    /// Returns whether all is after it as it was before, so that it can be measured again and again
    /// at one go.
    pub(super) fn is_steady(&self) -> bool {
        let it = self.situation;
        let is_source = it.operation == Operation::Zero || it.source == CacheState::Cached;
        is_source && it.destination == CacheState::Dirty && it.reader != Reader::OtherCore
    }

    /// Returns whether a side is in a cache: else the former use of caches does not matter.
    pub(super) fn is_cached(&self) -> bool {
        let it = self.situation;
        it.source == CacheState::Cached || it.destination != CacheState::Uncached
    }

    /// The share of the time it is due: long blocks take longer, but need fewer repetitions.
    pub(super) fn weight(&self) -> f64 {
        4.0 + (self.len() as f64 / 65536.0).powf(0.7)
    }

    /// The number of rounds of a visit: one of long blocks is as good as several of short ones,
    /// which are over before a disturbance is.
    pub(super) fn rounds(&self) -> usize {
        match self.len() {
            VERY_LONG.. => 1,
            len if len > LONG => 2,
            _ => 5,
        }
    }

    /// The case in which the same algorithms do well as here, and are found in less time: of long
    /// blocks that lie oddly, that where they lie plainly; of very long ones, that of shorter ones.
    /// `None` of others.
    pub(super) fn alike(&self) -> Option<Case> {
        let is_odd = self.situation.placement != Placement::Plain;
        let situation = Situation { placement: Placement::Plain, ..self.situation };
        if self.len() >= VERY_LONG {
            Some(Case { situation, class: class_of(VERY_LONG / 4) })
        } else if is_odd && self.len() >= LONG {
            Some(Case { situation, ..*self })
        } else {
            None
        }
    }

    /// Returns whether `algorithm` makes sense here: a zeroing has no source to fetch, and a short
    /// block is copied by the C library, or if it is not too short by one instruction or a loop.
    pub(super) fn suits(&self, algorithm: Algorithm) -> bool {
        let has =
            self.situation.operation == Operation::Copy || algorithm.prefetch() != Prefetch::Source;
        has && match algorithm.isa() {
            Isa::Libc => true,
            Isa::Rep => self.class >= OTHERS_FROM,
            _ => self.class >= LOOPS_FROM,
        }
    }
}

/// The longest block that is measured. Twice the last cache, nothing changes any more.
pub(super) fn len_max(last_cache_bytes: usize) -> usize {
    let lens = (0..CLASSES).map(class_bytes);
    lens.take_while(|&len| len / 2 <= last_cache_bytes.max(1 << 20))
        .last()
        .unwrap_or(class_bytes(0))
}

/// Returns whether source and destination of so many bytes cannot both be in the cache, so that
/// their stated places do not matter.
pub(super) fn overflows(len: usize, last_cache_bytes: usize) -> bool {
    len >= last_cache_bytes / 2
}

/// The situation whose case stands for a situation: a device that reads is none of our caches,
/// another core is as far away as it is, a block that no cache holds is uncached however it lies,
/// and a zeroing has no source.
pub(super) fn measured_as(situation: Situation, len: usize, last_cache_bytes: usize) -> Situation {
    let mut it = situation;
    it.reader = match it.reader {
        Reader::Device => Reader::Nobody,
        reader if reader.is_other_core() => Reader::OtherCore,
        reader => reader,
    };
    if it.operation == Operation::Zero {
        it.source = CacheState::Unknown;
    }
    if len >= VERY_LONG {
        it.placement = Placement::Plain;
    }
    if overflows(len, last_cache_bytes) {
        it.destination = CacheState::Uncached;
        it.placement = Placement::Plain;
        if it.operation == Operation::Copy {
            it.source = CacheState::Uncached;
        }
    }
    it
}

/// All cases. Every second size first, then the others, then the odd placements: a case that there
/// is no time for has a neighbour.
pub(super) fn cases(last_cache_bytes: usize) -> Vec<Case> {
    let is_known = |it: Situation| {
        let source = it.operation == Operation::Zero || it.source != CacheState::Unknown;
        source && !matches!(it.destination, CacheState::Unknown | CacheState::Cached)
    };
    let mut cases: Vec<Case> = Situation::all()
        .filter(|situation| is_known(*situation))
        .flat_map(|situation| {
            let classes = situation.classes();
            classes.map(move |class| Case { situation, class })
        })
        .filter(|case| {
            let (len, situation) = (case.len(), case.situation);
            // Long blocks take long, and half as many sizes of them do.
            let is_left_out = len > LONG && case.class % 2 == 1 && len < len_max(last_cache_bytes);
            !is_left_out
                && len <= len_max(last_cache_bytes)
                && measured_as(situation, len, last_cache_bytes) == situation
        })
        .collect();
    cases.sort_by_key(|case| {
        let odd = case.situation.placement != Placement::Plain;
        (odd, case.class % 2, case.class)
    });
    cases
}
