//! Operations under way, as Python holds them.

use std::sync::{Mutex, PoisonError, atomic::Ordering};

use pinfold::Error;
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{
    error::raised,
    given::release_ended,
    operation::{IsClosed, Operation, told},
    wait::{patience, wait},
};

/// An operation under way. Its result is handed out once. Dropped before it is taken back if that
/// can be: a message that has come for it goes to the next receive that matches.
#[pyclass(frozen, module = "pinfold")]
pub(crate) struct Request {
    operation: Mutex<Option<Operation>>,
    is_closed: IsClosed,
}

impl Request {
    pub fn new(operation: Operation, is_closed: &IsClosed) -> Request {
        Request { operation: Mutex::new(Some(operation)), is_closed: IsClosed::clone(is_closed) }
    }

    /// The operation, for this caller alone.
    pub fn take(&self) -> PyResult<Operation> {
        let taken = self.operation.lock().unwrap_or_else(PoisonError::into_inner).take();
        let why = "the request has ended, or another thread waits for it";
        taken.ok_or_else(|| PyValueError::new_err(why))
    }

    pub fn put_back(&self, operation: Operation) {
        *self.operation.lock().unwrap_or_else(PoisonError::into_inner) = Some(operation);
    }
}

#[pymethods]
impl Request {
    /// The result if there is one after a turn of progress, else None. Never waits.
    fn try_wait<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut operation = self.take()?;
        if self.is_closed.load(Ordering::Relaxed) {
            py.detach(|| drop(operation));
            return Err(raised(py, &Error::Closed));
        }
        match py.detach(|| operation.try_wait()) {
            Some(outcome) => {
                drop(operation);
                release_ended(py);
                told(py, outcome).map(Some)
            }
            None => {
                self.put_back(operation);
                Ok(None)
            }
        }
    }

    /// Waits for the result, at most `timeout` seconds: then the operation is taken back.
    #[pyo3(signature = (timeout=None))]
    fn wait<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let limit = patience(timeout)?;
        wait(py, self.take()?, limit, &self.is_closed)
    }

    /// Asks for its end. Returns whether it will end by that, with Cancelled.
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        let mut operation = self.take()?;
        let is_ending = py.detach(|| operation.cancel());
        self.put_back(operation);
        Ok(is_ending)
    }

    /// Gives it up: see the class.
    fn drop(&self, py: Python<'_>) {
        if let Ok(operation) = self.take() {
            py.detach(|| drop(operation));
            release_ended(py);
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let operation = self.operation.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        drop(operation);
        Python::try_attach(release_ended);
    }
}
