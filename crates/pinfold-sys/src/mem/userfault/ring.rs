//! A queue of events from one thread to others that never makes its writer wait or take memory.
//!
//! Invariant: cells from `taken` up to `put` hold events; only the one writer changes `put` and the
//! cells outside of that, only the holder of `taken`'s lock changes `taken`. When the queue is full
//! the event is dropped and `lost` set, before `put` moves again.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::{abi::Message, event::Event};

/// Events that fit.
pub(super) const ROOM: u64 = 1024;

#[derive(Debug)]
pub(super) struct Ring {
    cells: Box<[[AtomicU64; 4]]>,
    put: AtomicU64,
    /// A copy of the value that the lock guards, for the writer.
    free: AtomicU64,
    taken: Mutex<u64>,
    lost: AtomicBool,
}

impl Ring {
    pub(super) fn new() -> Ring {
        Ring {
            cells: (0..ROOM).map(|_| Default::default()).collect(),
            put: AtomicU64::new(0),
            free: AtomicU64::new(0),
            taken: Mutex::new(0),
            lost: AtomicBool::new(false),
        }
    }

    /// By the one writer.
    pub(super) fn put(&self, message: &Message) {
        let at = self.put.load(Ordering::Relaxed);
        // Pairs with `take`: a cell is written only after it was read.
        if at - self.free.load(Ordering::Acquire) == ROOM {
            // Published with the next event or, if none follows, by the reader's own count.
            self.lost.store(true, Ordering::Release);
            return;
        }
        let cell = &self.cells[(at % ROOM) as usize];
        let words = [u64::from(message.event), message.arg[0], message.arg[1], message.arg[2]];
        for (cell, word) in cell.iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
        // Pairs with `take`: the cell is complete.
        self.put.store(at + 1, Ordering::Release);
    }

    /// Takes all events there are, in order; [`Event::Lost`] first if some are missing.
    pub(super) fn take(&self, mut each: impl FnMut(Event)) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if self.lost.load(Ordering::Relaxed) && self.lost.swap(false, Ordering::Acquire) {
            each(Event::Lost);
        }
        let put = self.put.load(Ordering::Acquire);
        while *taken < put {
            let cell = &self.cells[(*taken % ROOM) as usize];
            let [event, arg @ ..] = [0, 1, 2, 3].map(|word| cell[word].load(Ordering::Relaxed));
            let event = u8::try_from(event).unwrap_or(0);
            *taken += 1;
            self.free.store(*taken, Ordering::Release);
            each(Event::decode(&Message { event, reserved: [0; 7], arg }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(n: u64) -> Message {
        Message { event: 0x16, reserved: [0; 7], arg: [n, n + 1, 0] }
    }

    fn taken(ring: &Ring) -> Vec<Event> {
        let mut found = Vec::new();
        ring.take(|event| found.push(event));
        found
    }

    #[test]
    fn events_come_in_order_or_are_known_to_be_lost() {
        let ring = Ring::new();
        assert!(taken(&ring).is_empty());
        for round in [3, ROOM, 1, ROOM] {
            (0..round).for_each(|n| ring.put(&message(n)));
            let wanted: Vec<_> = (0..round as usize).map(|n| Event::Unmapped(n..n + 1)).collect();
            assert_eq!(taken(&ring), wanted);
        }
        (0..ROOM + 2).for_each(|n| ring.put(&message(n)));
        let found = taken(&ring);
        assert_eq!(found.len() as u64, ROOM + 1);
        assert_eq!(found[..2], [Event::Lost, Event::Unmapped(0..1)]);
        assert!(taken(&ring).is_empty());
    }

    #[test]
    fn two_threads_lose_nothing_silently() {
        let ring = Ring::new();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..100_000).for_each(|n| ring.put(&message(n))));
            let (mut next, mut lost, mut last) = (0, false, false);
            while !last {
                last = writer.is_finished();
                ring.take(|event| match event {
                    Event::Lost => lost = true,
                    Event::Unmapped(range) => {
                        assert!(range.start == next || lost && range.start > next);
                        assert_eq!(range.len(), 1);
                        next = range.end;
                    }
                    other => panic!("{other:?}"),
                });
            }
            assert!(next == 100_000 || lost);
        });
    }
}
