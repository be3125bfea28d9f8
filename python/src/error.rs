//! Exceptions, made of the library's errors: each has the library's sentence.

use std::time::Duration;

use pinfold::{Error, Gone};
use pyo3::{prelude::*, sync::PyOnceLock};

use crate::receipt::Receipt;

/// The name of the class in `pinfold.errors` that an error is raised as.
fn name_of(error: &Error) -> &'static str {
    match error {
        Error::NameInUse { .. } => "NameInUse",
        Error::NameLost { .. } => "NameLost",
        Error::NameGone { .. } => "NameGone",
        Error::BadAddress { .. } => "BadAddress",
        Error::NotAllowed { .. } => "NotAllowed",
        Error::VersionMismatch { .. } => "VersionMismatch",
        Error::LimitReached { .. } => "LimitReached",
        Error::NoMemory { .. } => "NoMemory",
        Error::Truncated { .. } => "Truncated",
        Error::PeerGone { how: Gone::Died, .. } => "PeerDied",
        Error::PeerGone { .. } => "PeerGone",
        Error::NobodyLeft { .. } => "NobodyLeft",
        Error::UnknownPeer { .. } => "UnknownPeer",
        Error::PathRefused { .. } => "PathRefused",
        Error::OutOfReach { .. } => "OutOfReach",
        Error::Transfer { .. } => "TransferFailed",
        Error::OutOfBounds { .. } => "OutOfBounds",
        Error::Misaligned { .. } => "Misaligned",
        Error::BadKey => "BadKey",
        Error::Revoked => "Revoked",
        Error::NotMapped { .. } => "NotMapped",
        Error::StillVisited { .. } => "StillVisited",
        Error::NotHandled { .. } => "NotHandled",
        Error::AlreadyAnswered => "AlreadyAnswered",
        Error::ReadOnly => "ReadOnly",
        Error::Withdrawn => "Withdrawn",
        Error::Undelivered { .. } => "Undelivered",
        Error::Cancelled => "Cancelled",
        Error::NoAnswer { .. } => "NoAnswer",
        Error::KeyNeeded { .. } => "KeyNeeded",
        Error::UnusableKey(_) => "UnusableKey",
        Error::Greeting { .. } => "GreetingFailed",
        Error::NotListening => "NotListening",
        Error::NotTaken { .. } => "NotTaken",
        Error::Timeout(_) => "Timeout",
        Error::Forked => "Forked",
        Error::Closed => "Closed",
        Error::Os { .. } => "SystemFailed",
        _ => "Error",
    }
}

/// The class of that name.
fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let import = || Ok::<_, PyErr>(py.import("pinfold.errors")?.unbind());
    MODULE.get_or_try_init(py, import)?.bind(py).getattr(name)
}

/// An exception of the class `name` with this sentence.
fn made<'py>(py: Python<'py>, name: &str, sentence: &str) -> PyResult<Bound<'py, PyAny>> {
    class(py, name)?.call1((sentence,))
}

/// The exception of an error.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    try_raised(py, error).unwrap_or_else(|failed| failed)
}

fn try_raised(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let exception = made(py, name_of(error), &error.to_string())?;
    match error {
        Error::Truncated { len, capacity, peer, tag, receipt } => {
            exception.setattr("length", len)?;
            exception.setattr("capacity", capacity)?;
            exception.setattr("peer", peer.to_bits())?;
            exception.setattr("tag", tag)?;
            exception.setattr("receipt", Receipt::from(*receipt))?;
        }
        Error::Os { source, .. } | Error::Transfer { source, .. } => {
            exception.setattr("errno", source.raw_os_error())?;
        }
        _ => (),
    }
    Ok(PyErr::from_value(exception))
}

/// The exception of a result's error.
pub(crate) fn or_raise<T>(py: Python<'_>, result: pinfold::Result<T>) -> PyResult<T> {
    result.map_err(|error| raised(py, &error))
}

/// The exception of a send that was taken back when its time was up. If that is not sure, its peer
/// has not confirmed it.
pub(crate) fn not_taken(py: Python<'_>, patience: Duration, is_sure: bool) -> PyErr {
    let rest = if is_sure {
        "nothing was sent: have it receive, or wait longer"
    } else {
        "it knows of the message and does not answer: it may receive it yet, so leave the memory \
         as it is, and do not send it again unless twice is no harm"
    };
    let sentence = format!("the peer did not take the message within {patience:?}; {rest}");
    let made = made(py, "NotTaken", &sentence).and_then(|exception| {
        exception.setattr("unsure", !is_sure)?;
        Ok(exception)
    });
    made.map_or_else(|failed| failed, PyErr::from_value)
}
