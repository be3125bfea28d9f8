//! Ends a process that no longer gets anywhere.
//!
//! The waits of this command itself notice the death of the other process. But a call into the
//! kernel or into the library may wait for a process that lives and does nothing: one that was
//! stopped, say. A thread that sleeps nearly all the time watches the runs, and ends the process,
//! and so the run, if no run has begun or ended for long.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::console::progress::say;

/// Time that one run may take. Planned runs take under a second.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// The runs begun and ended: odd while one is under way.
static MARK: AtomicU64 = AtomicU64::new(0);

/// The current task, for the message.
static DOING: Mutex<String> = Mutex::new(String::new());

/// The process to kill as well: a child of this one, not yet waited for.
static CHILD: AtomicU64 = AtomicU64::new(0);

/// Lets the child end with this process.
pub(crate) fn take_along(child: u32) {
    CHILD.store(child.into(), Ordering::Relaxed);
}

/// Work is under way, until this is dropped.
pub(crate) struct Busy(());

/// Begins to watch one piece of work, which is called `doing`.
pub(crate) fn busy(doing: &str) -> Busy {
    doing.clone_into(&mut DOING.lock().unwrap_or_else(PoisonError::into_inner));
    MARK.fetch_add(1, Ordering::Relaxed);
    Busy(())
}

impl Drop for Busy {
    fn drop(&mut self) {
        MARK.fetch_add(1, Ordering::Relaxed);
    }
}

/// Starts the thread, which ends a run that is under way when all of `limit` has passed as well.
/// Without the thread the command still runs.
///
/// Before it ends the process it asks `claim` for the last word: `None` if the process is about to
/// end by itself, else a function that says it.
pub(crate) fn start<L: FnOnce()>(
    limit: Option<Duration>,
    claim: impl FnOnce() -> Option<L> + Send + 'static,
) {
    let start = Instant::now();
    let watch = move || {
        let (mut seen, mut idle) = (0, Duration::ZERO);
        loop {
            pinfold_sys::cpu::clock::pause(LOOK);
            let mark = MARK.load(Ordering::Relaxed);
            let busy = mark % 2 == 1;
            idle = if mark == seen && busy { idle + LOOK } else { Duration::ZERO };
            seen = mark;
            let too_late = busy && limit.is_some_and(|limit| start.elapsed() >= limit);
            if idle >= PATIENCE || too_late {
                let Some(last) = claim() else { return };
                let doing = DOING.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let after = if idle >= PATIENCE { idle } else { start.elapsed() };
                say(format_args!(
                    "{doing} was still going on after {} seconds, and is given up: is one of the \
                     two processes stopped, or the machine very busy?",
                    after.as_secs()
                ));
                let child = i32::try_from(CHILD.load(Ordering::Relaxed)).ok();
                if let Some(child) = child.and_then(Pid::from_raw) {
                    let _ = kill_process(child, Signal::KILL);
                }
                // A process that is no child notices by itself.
                last();
                std::process::exit(1);
            }
        }
    };
    let _ = std::thread::Builder::new().name("watchdog".into()).spawn(watch);
}
