//! Ends a process that no longer gets anywhere.
//!
//! Waits that this command makes itself notice when the other process is gone. But a call into
//! the kernel or into the library may wait for a process that lives and does nothing: one that
//! was stopped, say. A thread that sleeps nearly all the time watches the runs go by, and ends the
//! process, and so the run, when none has for long.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

/// How long one run may take. Those that are planned take under a second.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_secs(5);

/// The runs begun, and what is being done; odd while one is under way.
static MARK: AtomicU64 = AtomicU64::new(0);

/// The process to take along: a child of this one, not yet waited for.
static CHILD: AtomicU64 = AtomicU64::new(0);

/// Has the child ended with this process.
pub(crate) fn take_along(child: u32) {
    CHILD.store(child.into(), Ordering::Relaxed);
}

/// Something is under way, until this is dropped.
pub(crate) struct Busy(());

/// Begins to watch one piece of work.
pub(crate) fn busy() -> Busy {
    MARK.fetch_add(1, Ordering::Relaxed);
    Busy(())
}

impl Drop for Busy {
    fn drop(&mut self) {
        MARK.fetch_add(1, Ordering::Relaxed);
    }
}

/// Starts the thread. Without it the command still runs.
pub(crate) fn start() {
    let watch = || {
        let (mut seen, mut idle) = (0, Duration::ZERO);
        loop {
            std::thread::sleep(LOOK);
            let mark = MARK.load(Ordering::Relaxed);
            idle = if mark == seen && mark % 2 == 1 { idle + LOOK } else { Duration::ZERO };
            seen = mark;
            if idle >= PATIENCE {
                eprintln!(
                    "pinfold: a run has not ended for {} seconds: is one of the two processes \
                     stopped?",
                    PATIENCE.as_secs()
                );
                let child = i32::try_from(CHILD.load(Ordering::Relaxed)).ok();
                if let Some(child) = child.and_then(Pid::from_raw) {
                    let _ = kill_process(child, Signal::KILL);
                }
                // One that is no child notices by itself.
                std::process::exit(1);
            }
        }
    };
    let _ = std::thread::Builder::new().name("watchdog".into()).spawn(watch);
}
