//! The extents of this process's arenas that a peer has been sent. A policy; no I/O.

use rustc_hash::FxHashSet;

/// Messages that are not offered after a peer had no mapping; doubled each time it has none again.
const REST_MIN: u32 = 1;
const REST_MAX: u32 = 1024;

/// The extents that a peer has, as far as this side knows.
#[derive(Debug)]
pub(crate) struct ExportedExtents {
    sent: FxHashSet<u64>,
    /// One of them, asked for last: most messages lie in the same extent as the one before.
    recent: Option<u64>,
    /// Messages still not to be offered.
    rest: u32,
    /// Their number after the next failure.
    next_rest: u32,
}

impl Default for ExportedExtents {
    fn default() -> ExportedExtents {
        ExportedExtents { sent: FxHashSet::default(), recent: None, rest: 0, next_rest: REST_MIN }
    }
}

impl ExportedExtents {
    /// Returns whether a message may be offered to be read out of its arena; asked once a message.
    #[inline]
    pub(crate) fn may_offer(&mut self) -> bool {
        if self.rest == 0 {
            return true;
        }
        self.rest -= 1;
        false
    }

    /// Returns whether the peer was sent extent `id`.
    #[inline]
    pub(crate) fn has(&mut self, id: u64) -> bool {
        if self.recent != Some(id) && self.sent.contains(&id) {
            self.recent = Some(id);
        }
        self.recent == Some(id)
    }

    /// The peer was sent extent `id`.
    pub(crate) fn sent(&mut self, id: u64) {
        self.sent.insert(id);
    }

    /// The peer read a message out of an extent.
    #[inline]
    pub(crate) fn worked(&mut self) {
        self.next_rest = REST_MIN;
    }

    /// Extent `id` could not be sent, or the peer has not, or no longer, mapped it.
    pub(crate) fn failed(&mut self, id: u64) {
        self.sent.remove(&id);
        self.recent = None;
        self.rest = self.next_rest;
        self.next_rest = (2 * self.next_rest).min(REST_MAX);
    }

    /// The same of several, for one message.
    pub(crate) fn all_failed(&mut self, ids: impl Iterator<Item = u64>) {
        let mut last = None;
        for id in ids.filter(|id| last.replace(*id) != Some(*id)) {
            self.sent.remove(&id);
        }
        if let Some(id) = last {
            self.failed(id);
        }
    }

    /// Those extents the peer was sent that are `gone`; they are forgotten where `tell` says so.
    pub(crate) fn sweep(&mut self, gone: impl Fn(u64) -> bool, mut tell: impl FnMut(u64) -> bool) {
        self.recent = None;
        self.sent.retain(|id| !(gone(*id) && tell(*id)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_does_not_map_is_asked_ever_more_rarely() {
        let mut exported_extents = ExportedExtents::default();
        let mut offers = Vec::new();
        for message in 0..5000 {
            if exported_extents.may_offer() {
                offers.push(message);
                exported_extents.failed(1);
            }
        }
        let gaps: Vec<i32> = offers.windows(2).map(|pair| pair[1] - pair[0] - 1).collect();
        assert_eq!(gaps[..6], [1, 2, 4, 8, 16, 32]);
        assert!(gaps.iter().all(|gap| *gap <= 1024) && gaps.contains(&1024));
        while !exported_extents.may_offer() {}
        exported_extents.worked();
        exported_extents.failed(1);
        assert!(!exported_extents.may_offer() && exported_extents.may_offer());
    }

    #[test]
    fn several_that_fail_count_as_one() {
        let mut exported_extents = ExportedExtents::default();
        (1..=4).for_each(|id| exported_extents.sent(id));
        exported_extents.all_failed([1, 1, 2, 4, 1].into_iter());
        assert_eq!([1, 2, 3, 4].map(|id| exported_extents.has(id)), [false, false, true, false]);
        assert!(!exported_extents.may_offer() && exported_extents.may_offer());
        exported_extents.all_failed(std::iter::empty());
        assert!(exported_extents.may_offer() && exported_extents.has(3));
    }

    #[test]
    fn what_is_gone_is_told_once() {
        let mut exported_extents = ExportedExtents::default();
        (1..=4).for_each(|id| exported_extents.sent(id));
        exported_extents.sweep(|id| id % 2 == 0, |id| id == 2);
        assert!(exported_extents.has(1) && !exported_extents.has(2) && exported_extents.has(4));
        exported_extents.sweep(|id| id % 2 == 0, |id| id == 4);
        assert!(!exported_extents.has(4));
    }
}
