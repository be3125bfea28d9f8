//! The bound on a property's time, so that one that hangs is a failure.

use std::{
    panic,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use crate::pair::Transport;

/// Many times as long as any property takes.
const LIMIT: Duration = Duration::from_secs(90);

/// Runs a property on a thread of its own, which is left behind if it does not end.
pub fn watched(holds: fn(Transport), on: Transport) {
    let (tell, told) = mpsc::channel::<()>();
    let name = thread::current().name().unwrap_or("a property").to_owned();
    let work = thread::Builder::new().name(name).spawn(move || {
        let _told_at_the_end = tell;
        holds(on);
    });
    let work = work.expect("a thread");
    let ended = told.recv_timeout(LIMIT);
    assert_ne!(ended, Err(RecvTimeoutError::Timeout), "WATCHDOG: more than {LIMIT:?}");
    if let Err(panic) = work.join() {
        panic::resume_unwind(panic);
    }
}
