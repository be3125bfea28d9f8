//! The ends of many operations, taken together: what an event loop stands on.

use std::os::fd::{AsFd, AsRawFd};

use pinfold::{Completed, CompletionQueue, Error};
use pyo3::{IntoPyObjectExt, prelude::*};

use crate::{
    error::{or_raise, raised},
    given::release_ended,
    operation::{self, Operation},
    receipt::Receipt,
    request::Request,
    wait::drop_released,
};

/// The most completions that are taken in one call, so that a loop has its turn.
const TAKEN_MAX: usize = 1024;

/// An operation's number, whether it went well, and its result or its exception.
type Ended<'py> = (u64, bool, Bound<'py, PyAny>);

/// A queue of the ends of sends, calls and requests. One call takes many of them, and each costs
/// the same however many are outstanding.
#[pyclass(frozen, module = "pinfold._native")]
pub(crate) struct Queue {
    /// `None` while it is dropped.
    queue: Option<CompletionQueue>,
}

impl Queue {
    fn queue(&self, py: Python<'_>) -> PyResult<&CompletionQueue> {
        self.queue.as_ref().ok_or_else(|| raised(py, &Error::Closed))
    }
}

#[pymethods]
impl Queue {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Queue> {
        Ok(Queue { queue: Some(or_raise(py, CompletionQueue::new())?) })
    }

    /// Lets the result of a request come here, with a number. False: it is of another kind than
    /// sends, calls and requests, and stays a request.
    fn add(&self, py: Python<'_>, request: &Request, number: u64) -> PyResult<bool> {
        let queue = self.queue(py)?;
        match request.take()? {
            Operation::Send(request) => queue.add(number, request),
            Operation::Ask(request) => queue.add(number, request),
            other => {
                request.put_back(other);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The operations that have ended: (number, True, result) or (number, False, exception). Those
    /// that are there, or else come by a turn of progress. Never waits.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Vec<Ended<'py>>> {
        let queue = self.queue(py)?;
        let mut ended = Vec::new();
        or_raise(py, py.detach(|| queue.poll(&mut ended, TAKEN_MAX)))?;
        let told = ended.into_iter().map(|completion| {
            let result = match completion.result {
                Ok(Completed::Sent(receipt)) => Receipt::from(receipt).into_bound_py_any(py),
                Ok(Completed::Message(message)) => operation::message(py, message),
                Ok(_) => Err(raised(py, &Error::Cancelled)),
                Err(error) => Err(raised(py, &error)),
            };
            match result {
                Ok(value) => Ok((completion.context, true, value)),
                Err(error) => Ok((completion.context, false, error.into_bound_py_any(py)?)),
            }
        });
        let told = told.collect();
        release_ended(py);
        told
    }

    /// Asks for the end of one operation. True: it will end by that, with Cancelled.
    fn cancel(&self, py: Python<'_>, number: u64) -> PyResult<bool> {
        let queue = self.queue(py)?;
        Ok(py.detach(|| queue.cancel(number)))
    }

    /// Prepares for waiting on the descriptor, and its endpoint's. False: something is there.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        let queue = self.queue(py)?;
        or_raise(py, py.detach(|| queue.arm()))
    }

    /// Its descriptor, readable when there is something to take after `arm`.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.queue(py)?.as_fd().as_raw_fd())
    }

    /// Operations that have not ended, or whose ends were not taken.
    #[getter]
    fn outstanding(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.queue(py)?.outstanding())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        drop_released(self.queue.take());
        Python::try_attach(release_ended);
    }
}
