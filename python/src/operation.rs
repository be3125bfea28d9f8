//! Operations under way, of all kinds.

use std::{sync::Arc, time::Duration};

use pinfold::{
    AcceptRequest, ConnectRequest, Endpoint, Error, Handoff, MessageRequest, PeerId, RecvRequest,
    SendRequest, View, ViewRequest,
};
use pyo3::{IntoPyObjectExt, prelude::*, sync::PyOnceLock};

use crate::{
    block::Block,
    error::or_raise,
    given::{Source, Target},
    receipt::{Receipt, Received},
};

/// An operation under way. Dropped early it is taken back, as the library's request is.
pub(crate) enum Operation {
    Send(SendRequest<Source>),
    RecvInto(RecvRequest<Target>),
    Recv(MessageRequest),
    /// A view keeps the endpoint open.
    RecvView(ViewRequest, Endpoint),
    Handoff(Handoff),
    Connect(ConnectRequest),
    Accept(AcceptRequest),
}

/// The result of one that went well.
pub(crate) enum Ended {
    Sent(pinfold::Receipt),
    Received(pinfold::Received),
    Message(Box<pinfold::Message>),
    View(Box<View<'static>>, Endpoint),
    Peer(PeerId),
}

pub(crate) type Outcome = Result<Ended, Error>;

impl Operation {
    /// Its result if it has ended, after a turn of progress. Never waits.
    pub fn try_wait(&mut self) -> Option<Outcome> {
        Some(match self {
            Operation::Send(request) => request.try_wait()?.0.map(Ended::Sent),
            Operation::Handoff(request) => request.try_wait()?.0.map(Ended::Sent),
            Operation::RecvInto(request) => request.try_wait()?.0.map(Ended::Received),
            Operation::Recv(request) => request.try_wait()?.map(Box::new).map(Ended::Message),
            Operation::RecvView(request, endpoint) => {
                request.try_wait()?.map(|view| Ended::View(Box::new(view), endpoint.clone()))
            }
            Operation::Connect(request) => request.try_wait()?.map(Ended::Peer),
            Operation::Accept(request) => request.try_wait()?.map(Ended::Peer),
        })
    }

    /// Its result if it ends within `limit`.
    pub fn wait(&mut self, limit: Duration) -> Option<Outcome> {
        Some(match self {
            Operation::Send(request) => request.wait_timeout(limit)?.0.map(Ended::Sent),
            Operation::Handoff(request) => request.wait_timeout(limit)?.0.map(Ended::Sent),
            Operation::RecvInto(request) => request.wait_timeout(limit)?.0.map(Ended::Received),
            Operation::Recv(request) => {
                request.wait_timeout(limit)?.map(Box::new).map(Ended::Message)
            }
            Operation::RecvView(request, endpoint) => {
                let view = request.wait_timeout(limit)?;
                view.map(|view| Ended::View(Box::new(view), endpoint.clone()))
            }
            Operation::Connect(request) => request.wait_timeout(limit)?.map(Ended::Peer),
            Operation::Accept(request) => request.wait_timeout(limit)?.map(Ended::Peer),
        })
    }

    /// Asks for its end. Returns whether it will end by that.
    pub fn cancel(&mut self) -> bool {
        match self {
            Operation::Send(request) => request.cancel(),
            Operation::Handoff(request) => request.cancel(),
            Operation::RecvInto(request) => request.cancel(),
            Operation::Recv(request) => request.cancel(),
            Operation::RecvView(request, _) => request.cancel(),
            Operation::Connect(request) => request.cancel(),
            Operation::Accept(request) => request.cancel(),
        }
    }

    /// True if it uses memory of the caller's, so that it may not just be left behind.
    pub fn uses_memory(&self) -> bool {
        matches!(self, Operation::Send(_) | Operation::RecvInto(_))
    }

    /// True if it sends.
    pub fn sends(&self) -> bool {
        matches!(self, Operation::Send(_) | Operation::Handoff(_))
    }
}

/// A block as an object of the class `name` in `pinfold.memory`.
fn memory<'py>(
    py: Python<'py>,
    class: &PyOnceLock<Py<PyAny>>,
    name: &str,
    block: Block,
) -> PyResult<Bound<'py, PyAny>> {
    let import = || Ok::<_, PyErr>(py.import("pinfold.memory")?.getattr(name)?.unbind());
    class.get_or_try_init(py, import)?.bind(py).call1((Bound::new(py, block)?,))
}

/// The result as Python has it.
pub(crate) fn told<'py>(py: Python<'py>, outcome: Outcome) -> PyResult<Bound<'py, PyAny>> {
    static MESSAGE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static VIEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    match or_raise(py, outcome)? {
        Ended::Sent(receipt) => Receipt::from(receipt).into_bound_py_any(py),
        Ended::Received(received) => Received::from(&received).into_bound_py_any(py),
        Ended::Message(message) => memory(py, &MESSAGE, "Message", Block::of_message(*message)),
        Ended::View(view, open) => memory(py, &VIEW, "View", Block::of_view(*view, open)),
        Ended::Peer(peer) => peer.to_bits().into_bound_py_any(py),
    }
}

/// A flag that all operations of an endpoint look at.
pub(crate) type IsClosed = Arc<std::sync::atomic::AtomicBool>;
