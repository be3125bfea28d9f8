//! Rounds: a thread that calls again, in intervals, those of the other side that may have come or
//! may answer now. There is one only where it is needed.

use std::{sync::Arc, thread::JoinHandle, time::Duration};

use parking_lot::{Condvar, Mutex};
use pinfold_sys::threads::Kind as ThreadKind;

use crate::{Error, Result};

const THREAD: ThreadKind = ThreadKind::new("pinfold-topic", 256 << 10);

/// The time between two rounds.
const INTERVAL: Duration = Duration::from_secs(1);

/// The thread; dropping this ends it, as soon as the round under way has ended.
pub(super) struct Rounds {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
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
        Ok(Rounds { stop, thread: Some(thread) })
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

impl Drop for Rounds {
    fn drop(&mut self) {
        *self.stop.is_set.lock() = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
