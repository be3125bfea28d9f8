//! Waiting for operations, in slices between which signals are looked at.

use std::{
    sync::{OnceLock, atomic::Ordering},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use pinfold::Error;
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{
    error::{not_taken, raised},
    given::release_ended,
    operation::{IsClosed, Operation, Outcome, told},
};

/// The longest time without a look at signals: how late Ctrl-C may be.
const SLICE: Duration = Duration::from_millis(50);
/// The same in threads whose interpreter runs no handlers of signals.
const SLICE_ELSEWHERE: Duration = Duration::from_millis(500);

/// The thread that runs handlers of signals, as far as is known: the one that imported the module.
static MAIN: OnceLock<ThreadId> = OnceLock::new();

/// Notes that this thread runs handlers of signals.
pub(crate) fn note_main_thread() {
    MAIN.get_or_init(|| thread::current().id());
}

fn slice_max() -> Duration {
    let is_main = MAIN.get() == Some(&thread::current().id());
    if is_main { SLICE } else { SLICE_ELSEWHERE }
}

/// The thread in which the interpreter exits, once it does.
static EXITS_IN: OnceLock<ThreadId> = OnceLock::new();

/// The interpreter exits, in this thread: no other thread comes back from a wait, whose exception
/// it could only print while the interpreter takes itself apart.
#[pyfunction]
pub(crate) fn begin_exit() {
    EXITS_IN.get_or_init(|| thread::current().id());
}

/// Runs what may wait without the interpreter's lock.
pub(crate) fn released<T: Send>(py: Python<'_>, function: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        let result = function();
        let exits_elsewhere = |exits: &ThreadId| *exits != thread::current().id();
        while EXITS_IN.get().is_some_and(exits_elsewhere) {
            thread::park();
        }
        result
    })
}

/// Drops what may wait for the library's lock, without the interpreter's.
pub(crate) fn drop_released<T: Send>(it: T) {
    let mut it = Some(it);
    Python::try_attach(|py| {
        let it = it.take();
        py.detach(|| drop(it));
    });
    drop(it);
}

/// A time limit of Python's, in seconds. `None`: there is none.
pub(crate) fn patience(timeout: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = timeout else { return Ok(None) };
    let limit = Duration::try_from_secs_f64(seconds).ok();
    if limit.is_none() && seconds > 0.0 {
        // Beyond all times.
        return Ok(None);
    }
    let why = || PyValueError::new_err(format!("timeout is {seconds} seconds, before now"));
    limit.map(Some).ok_or_else(why)
}

/// How long a send that is taken back waits for its peer to confirm that.
const GRACE: Duration = Duration::from_millis(100);

/// Waits for the end of an operation, and returns its result as Python has it. A signal's handler
/// that raises ends the wait, and takes the operation back.
///
/// # Errors
/// Those of the operation, as exceptions; `Timeout` or `NotTaken` when `limit` is over.
pub(crate) fn wait<'py>(
    py: Python<'py>,
    operation: Operation,
    limit: Option<Duration>,
    is_closed: &IsClosed,
) -> PyResult<Bound<'py, PyAny>> {
    let sends = operation.sends();
    let end = ended(py, operation, limit, is_closed);
    release_ended(py);
    match end? {
        End::Outcome(outcome) => told(py, outcome),
        End::Late(limit, is_sure) if sends => Err(not_taken(py, limit, is_sure)),
        End::Late(limit, _) => Err(raised(py, &Error::Timeout(limit))),
    }
}

/// How a wait ended.
enum End {
    Outcome(Outcome),
    /// After this time the operation was taken back; false: or will be, unless the peer takes it.
    Late(Duration, bool),
}

fn ended(
    py: Python<'_>,
    mut operation: Operation,
    limit: Option<Duration>,
    is_closed: &IsClosed,
) -> PyResult<End> {
    let mut end = limit.and_then(|limit| Instant::now().checked_add(limit));
    let (mut late, slice_max) = (None, slice_max());
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let slice = left.map_or(slice_max, |left| left.min(slice_max));
        let waited = released(py, || match slice.is_zero() {
            true => operation.try_wait(),
            false => operation.wait(slice),
        });
        match (waited, late) {
            (Some(Err(Error::Cancelled)), Some(limit)) => return Ok(End::Late(limit, true)),
            (Some(outcome), _) => return Ok(End::Outcome(outcome)),
            (None, _) => (),
        }
        let signal = py.check_signals();
        if signal.is_err() || is_closed.load(Ordering::Relaxed) {
            // Dropped without the interpreter's lock, since that enters the endpoint.
            py.detach(|| drop(operation));
            signal?;
            return Ok(End::Outcome(Err(Error::Closed)));
        }
        let (Some(limit), true) = (limit, left.is_some_and(|left| left <= slice)) else { continue };
        if late.is_some() || !operation.uses_memory() {
            // A send owns an export of its memory, and may be left behind.
            let is_sure = late.is_none();
            py.detach(|| drop(operation));
            return Ok(End::Late(limit, is_sure));
        }
        late = Some(limit);
        let is_ending = py.detach(|| operation.cancel());
        // One that is moving is waited for without a limit: it uses the memory.
        end = (is_ending && operation.sends()).then(|| Instant::now() + GRACE);
    }
}
