//! Active messages: callables of Python as handlers, and calls of handlers of peers.
//!
//! The library calls a handler on whichever thread makes progress, after it has left its own lock,
//! so a handler may wait for the interpreter's. The callables are the endpoint object's, so that
//! the collector sees them; the library has functions that look there.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use pinfold::{CompletionQueue, Error, PeerId, Replier};
use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::{PyKeyboardInterrupt, PyTypeError},
    ffi,
    prelude::*,
    types::PyBytes,
};

use crate::{
    endpoint::Endpoint,
    error::{or_raise, raised},
    given::{Source, release_ended},
    operation::Operation,
    receipt::Receipt,
    request::Request,
    wait::{drop_released, patience, wait},
};

/// The handlers of an endpoint, by their numbers.
#[derive(Default)]
pub(crate) struct Handlers(Mutex<HashMap<u32, Py<PyAny>>>);

impl Handlers {
    fn table(&self) -> MutexGuard<'_, HashMap<u32, Py<PyAny>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets one.
    ///
    /// # Errors
    /// `TypeError`: it cannot be called.
    pub fn set(&self, id: u32, function: &Bound<'_, PyAny>) -> PyResult<()> {
        if !function.is_callable() {
            return Err(PyTypeError::new_err("a handler is called with an Active"));
        }
        let before = self.table().insert(id, function.clone().unbind());
        // Outside the table's lock: this may run code of the program's.
        drop(before);
        Ok(())
    }

    /// Forgets them all.
    pub fn clear(&self) {
        let table = std::mem::take(&mut *self.table());
        drop(table);
    }

    /// Shows them to the collector, unless somebody is at the table.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(table) = self.0.try_lock() else { return Ok(()) };
        table.values().try_for_each(|function| visit.call(function))
    }

    /// The function that the library calls.
    pub fn function(self: &Arc<Self>) -> impl Fn(pinfold::Active<'_>) + Send + Sync + 'static {
        let handlers = Arc::clone(self);
        move |active| {
            // Without an interpreter, which exits, a request is answered by an error.
            Python::try_attach(|py| {
                // A message may be handled in the midst of anything, an object's end even.
                let before = PyErr::take(py);
                handlers.run(py, &active);
                if let Some(before) = before {
                    before.restore(py);
                }
            });
        }
    }

    fn run(&self, py: Python<'_>, active: &pinfold::Active<'_>) {
        let function = self.table().get(&active.id()).map(|function| function.clone_ref(py));
        let Some(function) = function else { return };
        let ended = Bound::new(py, Active::new(py, active)).and_then(|active| {
            let ended = function.call1(py, (&active,)).and_then(|given| {
                let given = given.bind(py);
                if given.is_none() { Ok(()) } else { active.get().answered_by(py, given) }
            });
            if ended.is_err() {
                // The traceback may keep the object.
                active.get().give_up();
            }
            ended
        });
        if let Err(error) = ended {
            report(py, error, &function);
        }
        release_ended(py);
    }
}

/// Reports what a handler raised by `sys.unraisablehook`. Ctrl-C goes to the main thread.
fn report(py: Python<'_>, error: PyErr, function: &Py<PyAny>) {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        interrupt();
        return;
    }
    error.write_unraisable(py, Some(function.bind(py)));
}

#[allow(unsafe_code)]
fn interrupt() {
    // SAFETY: it has no requirements.
    unsafe { ffi::PyErr_SetInterrupt() };
}

/// An active message, as its handler is called with it.
///
/// A handler answers a request by returning bytes, or anything with memory, other than None; or by
/// `reply`, then or later, from any thread. When nothing refers to this any more and there was no
/// answer, the peer's call raises NotHandled.
#[pyclass(frozen, module = "pinfold")]
pub(crate) struct Active {
    peer: u64,
    id: u32,
    data: Py<PyBytes>,
    receipt: pinfold::Receipt,
    is_request: bool,
    answer: Mutex<Option<Replier>>,
}

impl Active {
    fn new(py: Python<'_>, active: &pinfold::Active<'_>) -> Active {
        Active {
            peer: active.peer().to_bits(),
            id: active.id(),
            data: PyBytes::new(py, active.payload()).unbind(),
            receipt: active.receipt(),
            is_request: active.is_request(),
            answer: Mutex::new(active.reply_later()),
        }
    }

    fn take(&self) -> Option<Replier> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Answers by what the handler returned, unless it has answered already.
    fn answered_by(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        if !self.is_request {
            return Ok(());
        }
        self.reply(py, data)
    }
}

#[pymethods]
impl Active {
    /// The number of the peer that sent it.
    #[getter]
    fn peer(&self) -> u64 {
        self.peer
    }

    /// The number of its handler.
    #[getter]
    fn id(&self) -> u32 {
        self.id
    }

    /// Its bytes.
    #[getter]
    fn data(&self, py: Python<'_>) -> Py<PyBytes> {
        self.data.clone_ref(py)
    }

    /// How it came.
    #[getter]
    fn receipt(&self) -> Receipt {
        self.receipt.into()
    }

    /// True if its sender waits for an answer.
    #[getter]
    fn is_request(&self) -> bool {
        self.is_request
    }

    /// Answers a request with the memory of `data`; does nothing for a call. Never waits; what
    /// cannot go at once is copied. AlreadyAnswered: it was.
    fn reply(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        if !self.is_request {
            return Ok(());
        }
        let source = Source::of(data)?;
        let answer = self.take().ok_or_else(|| raised(py, &Error::AlreadyAnswered))?;
        let sent = py.detach(|| answer.reply(source.as_ref()));
        drop(source);
        release_ended(py);
        or_raise(py, sent)
    }

    /// Gives a request no answer: the one that asked gets NotHandled. Does nothing after a reply.
    fn give_up(&self) {
        drop_released(self.take());
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (kind, nbytes) = (if self.is_request { "request" } else { "call" }, self.nbytes(py)?);
        Ok(format!("<pinfold.Active: {kind} {}, {nbytes} bytes from peer {}>", self.id, self.peer))
    }
}

impl Active {
    fn nbytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.data.bind(py).len()
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let answer = self.answer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        drop_released(answer);
    }
}

impl Endpoint {
    fn calling(
        &self,
        py: Python<'_>,
        peer: u64,
        id: u32,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<Operation> {
        let (handle, source) = (self.open(py)?, Source::of(data)?);
        let called = py.detach(|| handle.call_owned(PeerId::from_bits(peer), id, source));
        Ok(Operation::Send(called))
    }

    fn asking(
        &self,
        py: Python<'_>,
        peer: u64,
        id: u32,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<Operation> {
        let (handle, source) = (self.open(py)?, Source::of(data)?);
        let asked = py.detach(|| handle.request_owned(PeerId::from_bits(peer), id, source));
        Ok(Operation::Ask(asked))
    }

    /// Asks, and has the answer come to a queue with a number, in one call without the
    /// interpreter's lock.
    pub(crate) fn ask_into(
        &self,
        py: Python<'_>,
        (queue, number): (&CompletionQueue, u64),
        peer: u64,
        id: u32,
        data: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (handle, source) = (self.open(py)?, Source::of(&or_nothing(py, data))?);
        py.detach(|| {
            queue.add(number, handle.request_owned(PeerId::from_bits(peer), id, source));
        });
        Ok(())
    }
}

#[pymethods]
impl Endpoint {
    /// Makes a callable the handler of active messages with number `id`, in place of an earlier
    /// one. It is called with an Active, on threads that call this endpoint.
    fn handle(&self, py: Python<'_>, id: u32, function: &Bound<'_, PyAny>) -> PyResult<()> {
        let handle = self.open(py)?;
        self.handlers.set(id, function)?;
        let function = self.handlers.function();
        or_raise(py, py.detach(|| handle.handle(id, function)))
    }

    /// Removes the handler with number `id`. True: there was one.
    fn unhandle(&self, py: Python<'_>, id: u32) -> PyResult<bool> {
        let handle = self.open(py)?;
        let there = py.detach(|| handle.unhandle(id));
        self.handlers.forget(id);
        Ok(there)
    }

    /// Has handler `id` of a peer called with the memory of `data`, and returns the receipt when
    /// that is the caller's again. Nothing comes back.
    #[pyo3(signature = (peer, id, data=None, timeout=None))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        peer: u64,
        id: u32,
        data: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let limit = patience(timeout)?;
        wait(py, self.calling(py, peer, id, &or_nothing(py, data))?, limit, &self.is_closed)
    }

    /// As `call`, as a request.
    #[pyo3(signature = (peer, id, data=None))]
    fn post_call(
        &self,
        py: Python<'_>,
        peer: u64,
        id: u32,
        data: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        let called = self.calling(py, peer, id, &or_nothing(py, data))?;
        Ok(Request::new(called, &self.is_closed))
    }

    /// Has handler `id` of a peer called with the memory of `data`, and waits for its answer, a
    /// Message.
    #[pyo3(signature = (peer, id, data=None, timeout=None))]
    fn ask<'py>(
        &self,
        py: Python<'py>,
        peer: u64,
        id: u32,
        data: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let limit = patience(timeout)?;
        wait(py, self.asking(py, peer, id, &or_nothing(py, data))?, limit, &self.is_closed)
    }

    /// As `ask`, as a request. One that is dropped is handled all the same.
    #[pyo3(signature = (peer, id, data=None))]
    fn post_ask(
        &self,
        py: Python<'_>,
        peer: u64,
        id: u32,
        data: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        let asked = self.asking(py, peer, id, &or_nothing(py, data))?;
        Ok(Request::new(asked, &self.is_closed))
    }
}

/// The data of a message; no bytes if there is none.
fn or_nothing<'py>(py: Python<'py>, data: Option<&Bound<'py, PyAny>>) -> Bound<'py, PyAny> {
    data.map_or_else(|| PyBytes::new(py, b"").into_any(), Bound::clone)
}

impl Handlers {
    fn forget(&self, id: u32) {
        let before = self.table().remove(&id);
        drop(before);
    }
}
