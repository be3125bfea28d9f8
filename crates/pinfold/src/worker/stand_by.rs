//! Standing by: the endpoint's own thread leaves the endpoint to threads that wait in calls.
//!
//! A call that waits drives the endpoint itself. Were the endpoint's own thread to poll beside it,
//! the two would take the lock, the lanes' lines and, on few processors, the processor from each
//! other; were it to sleep on the descriptor, each message would ring for it. So it naps, and looks
//! after each nap if a call has waited meanwhile. It drives again after a nap in which none has.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use super::followers::Slot;

/// The length of the first nap, and of the longest. Each is twice as long as the one before, since
/// each takes a processor from the calls for a moment. Messages that come once a program has
/// stopped to wait are taken at most two naps later.
const NAP_FIRST: Duration = Duration::from_micros(100);
const NAP_MAX: Duration = Duration::from_millis(1);

/// Counts the looks of calls that wait. Written by the thread that has the engine, read by any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits(Arc<AtomicU32>);

impl Waits {
    /// A call that waits has looked. The caller has the engine.
    #[inline(always)]
    pub(super) fn note(&self) {
        self.0.store(self.count().wrapping_add(1), Ordering::Relaxed);
    }

    /// The number of looks, which wraps around.
    #[inline(always)]
    pub(super) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Naps, parked in this thread's slot, until no call has looked for the length of a nap, or the
    /// thread is woken.
    pub(super) fn stand_by(&self, slot: &Slot) {
        let (mut nap, mut before) = (NAP_FIRST, self.count());
        while !slot.park(Some(Instant::now() + nap)) {
            let count = self.count();
            if count == before {
                return;
            }
            (nap, before) = ((2 * nap).min(NAP_MAX), count);
        }
    }
}
