//! The application of events: memory that they concern is neither kept nor found any more.

use std::sync::{Arc, atomic::Ordering};

use pinfold_sys::mem::userfault::{Event, Stamp};

use super::{OwnMemory, ROUNDS, Validation, backend::Guard, looking::Tasks, pause, quarantine};

/// Behind all addresses of programs.
const ADDRESSES_END: usize = 1 << 47;

impl<V: Validation> OwnMemory<V> {
    /// Returns whether all events that were told are applied.
    #[inline]
    pub(super) fn is_applied(&self, guard: &Guard) -> bool {
        !V::CHECKS || guard.reader.is_unchanged(guard.applied.get())
    }

    /// Returns whether nothing has happened to watched memory since, told or not.
    pub(super) fn holds(&self, stamp: Stamp) -> bool {
        let holds = |guard: &Arc<Guard>| guard.reader.holds(stamp).unwrap_or(false);
        !V::CHECKS || self.guard.as_ref().is_some_and(holds)
    }

    /// Takes and applies events until all are applied. `false`: ever more come, and no kept memory
    /// may be believed.
    pub(super) fn apply(&self, guard: &Guard) -> bool {
        for round in 0..ROUNDS {
            if self.is_applied(guard) {
                return true;
            }
            let applying = self.applying.lock();
            if !self.is_applied(guard) {
                let mut events = Vec::new();
                let stamp = guard.reader.take(|event| events.push(event));
                self.events.fetch_add(events.len() as u64, Ordering::Relaxed);
                events.iter().for_each(|event| self.apply_one(guard, event));
                // Only now: a thread that sees the stamp finds no area that the events concern.
                guard.applied.put(stamp);
            }
            drop(applying);
            pause(round);
        }
        false
    }

    fn apply_one(&self, guard: &Guard, event: &Event) {
        let Some(cache) = &self.cache else { return };
        let gone = |start: usize, end: usize| {
            guard.watchlist.lock().cut(start as u64, end as u64);
        };
        let forget = |start: usize, end: usize| {
            cache.pins().invalidate_everywhere(start as u64, end.saturating_sub(start) as u64);
        };
        match *event {
            Event::Unmapped(ref range) => {
                gone(range.start, range.end);
                forget(range.start, range.end);
            }
            Event::Removed(ref range) => {
                guard.quarantine.lock().note(range.start as u64, range.end as u64);
                forget(range.start, range.end);
            }
            Event::Remapped { from, to, len } => {
                let to_end = to.saturating_add(len);
                gone(from, from.saturating_add(len));
                gone(to, to_end);
                forget(from, from.saturating_add(len));
                forget(to, to_end);
                // The memory came along watched, and none of it is kept.
                let _ = guard.reader.watch().unwatch(to..to_end);
            }
            Event::Lost => {
                guard.quarantine.lock().note_all();
                guard.watchlist.lock().clear();
                forget(0, usize::MAX);
                let _ = guard.reader.watch().unwatch(0..ADDRESSES_END);
            }
        }
    }

    /// Returns whether some of it is in quarantine, after a look if one is due.
    pub(super) fn may_be_discarded(&self, guard: &Guard, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len);
        if !guard.quarantine.lock().concerns(start, end) {
            return false;
        }
        let now_ns = || u64::try_from(self.made.elapsed().as_nanos()).unwrap_or(u64::MAX);
        quarantine::look(&guard.quarantine, &Tasks, now_ns);
        guard.quarantine.lock().concerns(start, end)
    }
}
