//! The places of the threads of this process, as the kernel shows them.

use pinfold_sys::threads::{self, Place};

use super::quarantine::Places;

/// Looks at `/proc/self/task`.
pub(super) struct Tasks;

#[cfg(target_arch = "x86_64")]
const MADVISE: i64 = 28;
#[cfg(not(target_arch = "x86_64"))]
const MADVISE: i64 = 233;
/// The same everywhere.
const PROCESS_MADVISE: i64 = 440;

impl Places for Tasks {
    fn threads(&self) -> Option<Vec<u32>> {
        let own = threads::own();
        let mut all = threads::list().ok().flatten()?;
        all.retain(|thread| *thread != own);
        Some(all)
    }

    fn is_outside(&self, thread: u32) -> bool {
        match threads::place(thread) {
            Ok(Place::Call(number)) => number != MADVISE && number != PROCESS_MADVISE,
            Ok(Place::NoCall | Place::RingWaits | Place::Gone) => true,
            Ok(Place::Running | Place::RingBusy) | Err(_) => false,
        }
    }
}
