//! The ends of many operations, taken together: what an event loop stands on.

use std::os::fd::{AsFd, AsRawFd};

use pinfold::{Completed, Completion, CompletionQueue, Error};
use pyo3::{IntoPyObjectExt, intern, prelude::*, types::PyDict};

use crate::{
    endpoint::Endpoint,
    error::{or_raise, raised},
    given::release_ended,
    operation::{self, Operation},
    receipt::Receipt,
    request::Request,
    wait::drop_released,
};

/// The most completions that are taken in one call, so that a loop has its turn.
const TAKEN_MAX: usize = 1024;

/// Gives a future its result or its exception, unless it is done.
fn settle(future: &Bound<'_, PyAny>, result: pinfold::Result<Completed>) -> PyResult<()> {
    let py = future.py();
    if future.call_method0(intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    let result = match result {
        Ok(Completed::Sent(receipt)) => Receipt::from(receipt).into_bound_py_any(py),
        Ok(Completed::Message(message)) => operation::message(py, message),
        Ok(_) => Err(raised(py, &Error::Cancelled)),
        Err(error) => Err(raised(py, &error)),
    };
    match result {
        Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
        Err(error) => future.call_method1(intern!(py, "set_exception"), (error,))?,
    };
    Ok(())
}

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

    /// Has handler `id` of a peer of an endpoint called with the memory of `data`, and lets the
    /// answer come here, with a number: `Endpoint.post_ask` and `add` in one.
    #[pyo3(signature = (endpoint, number, peer, id, data=None))]
    fn ask(
        &self,
        py: Python<'_>,
        endpoint: &Endpoint,
        number: u64,
        peer: u64,
        id: u32,
        data: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        endpoint.ask_into(py, (self.queue(py)?, number), peer, id, data)
    }

    /// Takes the operations that have ended: those that are there, or else come by a turn of
    /// progress. Never waits. `futures` has a future for each number, which is taken out of it and
    /// gets the result, or the exception, unless it is done. Returns how many operations ended.
    fn settle(&self, py: Python<'_>, futures: &Bound<'_, PyDict>) -> PyResult<usize> {
        let queue = self.queue(py)?;
        let mut ended = Vec::new();
        or_raise(py, py.detach(|| queue.poll(&mut ended, TAKEN_MAX)))?;
        let count = ended.len();
        for Completion { context, result, .. } in ended {
            let Some(future) = futures.get_item(context)? else { continue };
            futures.del_item(context)?;
            if let Err(error) = settle(&future, result) {
                // One that cannot be told takes nothing from those behind it.
                error.write_unraisable(py, Some(&future));
            }
        }
        release_ended(py);
        Ok(count)
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
