//! Rounds: a thread that calls again, in intervals, those of the other side that may have come or
//! may answer now. There is one only where it is needed.

use std::{sync::Arc, thread::JoinHandle, time::Duration};

use parking_lot::{Condvar, Mutex};
use pinfold_sys::threads::Kind as ThreadKind;

use crate::{Endpoint, Error, Result};

const THREAD: ThreadKind = ThreadKind::new("pinfold-topic", 256 << 10);

/// The time between two rounds.
const INTERVAL: Duration = Duration::from_secs(1);

/// The thread.
pub(super) struct Rounds {
    stop: Arc<Stop>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Rounds {
    /// Makes rounds until one says that no more are needed, or fails.
    ///
    /// # Errors
    /// [`Error::Os`] at a limit on threads.
    pub(super) fn begin(
        mut round: impl FnMut() -> Result<bool> + Send + 'static,
    ) -> Result<Rounds> {
        let stop = Arc::new(Stop::default());
        let told = Arc::clone(&stop);
        let thread = THREAD
            .start(move || {
                while !told.waits(INTERVAL) {
                    match round() {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(error) => return tracing::debug!(%error, "no more rounds of a topic"),
                    }
                }
            })
            .map_err(|error| Error::os("clone", "the thread of a topic", error))?;
        Ok(Rounds { stop, thread })
    }
}

impl Stop {
    /// Waits so long. Returns whether to stop.
    fn waits(&self, time: Duration) -> bool {
        let mut is_set = self.is_set.lock();
        self.changed.wait_while_for(&mut is_set, |is_set| !*is_set, time);
        *is_set
    }
}

impl Rounds {
    /// Ends them, as soon as the round under way has ended: its endpoint is closed.
    pub(super) fn end(self, endpoint: &Endpoint) {
        // In a child made by `fork(2)` the thread is not there, and its lock may be held.
        if !endpoint.shared().is_forked() {
            *self.stop.is_set.lock() = true;
            self.stop.changed.notify_all();
            let _ = self.thread.join();
        }
    }
}
