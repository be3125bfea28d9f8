//! Operations under way, of all kinds.

use std::{sync::Arc, time::Duration};

use pinfold::{
    AcceptRequest, ByAddress, ByOffset, ConnectRequest, CopyRequest, Endpoint, Error, Handoff,
    MessageRequest, OpenRequest, PeerId, RecvRequest, Reply, SendRequest, View, ViewRequest,
};
use pyo3::{IntoPyObjectExt, prelude::*, sync::PyOnceLock};

use crate::{
    block::Block,
    error::or_raise,
    given::{Fresh, Source, Target},
    receipt::{Receipt, Received},
    remote::{self, Memory},
    words::{Posted, Was},
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
    Ask(Reply),
    OpenRegion(OpenRequest<ByOffset>, IsClosed),
    OpenSpace(OpenRequest<ByAddress>, IsClosed),
    Write(CopyRequest<Source>),
    ReadInto(CopyRequest<Target>),
    Read(CopyRequest<Fresh>),
    Change(Posted),
}

/// The result of one that went well.
pub(crate) enum Ended {
    Sent(pinfold::Receipt),
    Received(pinfold::Received),
    Message(Box<pinfold::Message>),
    View(Box<View<'static>>, Endpoint),
    Peer(PeerId),
    Remote(Memory, IsClosed),
    Bytes(Fresh),
    Was(Was),
}

fn region(memory: pinfold::RemoteRegion, is_closed: &IsClosed) -> Ended {
    Ended::Remote(Memory::Offsets(memory), IsClosed::clone(is_closed))
}

fn space(memory: pinfold::RemoteSpace, is_closed: &IsClosed) -> Ended {
    Ended::Remote(Memory::Addresses(memory), IsClosed::clone(is_closed))
}

fn bytes((done, bytes): (pinfold::Result<pinfold::Receipt>, Fresh)) -> Outcome {
    done.map(|_| Ended::Bytes(bytes))
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
            Operation::Ask(request) => request.try_wait()?.map(Box::new).map(Ended::Message),
            Operation::OpenRegion(request, is_closed) => {
                request.try_wait()?.map(|memory| region(memory, is_closed))
            }
            Operation::OpenSpace(request, is_closed) => {
                request.try_wait()?.map(|memory| space(memory, is_closed))
            }
            Operation::Write(request) => request.try_wait()?.0.map(Ended::Sent),
            Operation::ReadInto(request) => request.try_wait()?.0.map(Ended::Sent),
            Operation::Read(request) => bytes(request.try_wait()?),
            Operation::Change(request) => request.try_wait()?.map(Ended::Was),
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
            Operation::Ask(request) => {
                request.wait_timeout(limit)?.map(Box::new).map(Ended::Message)
            }
            Operation::OpenRegion(request, is_closed) => {
                request.wait_timeout(limit)?.map(|memory| region(memory, is_closed))
            }
            Operation::OpenSpace(request, is_closed) => {
                request.wait_timeout(limit)?.map(|memory| space(memory, is_closed))
            }
            Operation::Write(request) => request.wait_timeout(limit)?.0.map(Ended::Sent),
            Operation::ReadInto(request) => request.wait_timeout(limit)?.0.map(Ended::Sent),
            Operation::Read(request) => bytes(request.wait_timeout(limit)?),
            Operation::Change(request) => request.wait(limit)?.map(Ended::Was),
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
            // It was sent, and is handled.
            Operation::Ask(_) => false,
            Operation::OpenRegion(request, _) => request.cancel(),
            Operation::OpenSpace(request, _) => request.cancel(),
            Operation::Write(request) => request.cancel(),
            Operation::ReadInto(request) => request.cancel(),
            Operation::Read(request) => request.cancel(),
            Operation::Change(request) => request.cancel(),
        }
    }

    /// True if it uses memory of the caller's, so that it may not just be left behind.
    pub fn uses_memory(&self) -> bool {
        matches!(self, Operation::Send(_) | Operation::RecvInto(_) | Operation::ReadInto(_))
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

/// A message as Python has it.
pub(crate) fn message(py: Python<'_>, message: pinfold::Message) -> PyResult<Bound<'_, PyAny>> {
    static MESSAGE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    memory(py, &MESSAGE, "Message", Block::of_message(message))
}

/// The result as Python has it.
pub(crate) fn told<'py>(py: Python<'py>, outcome: Outcome) -> PyResult<Bound<'py, PyAny>> {
    static VIEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    match or_raise(py, outcome)? {
        Ended::Sent(receipt) => Receipt::from(receipt).into_bound_py_any(py),
        Ended::Received(received) => Received::from(&received).into_bound_py_any(py),
        Ended::Message(it) => message(py, *it),
        Ended::View(view, open) => memory(py, &VIEW, "View", Block::of_view(*view, open)),
        Ended::Peer(peer) => peer.to_bits().into_bound_py_any(py),
        Ended::Remote(memory, is_closed) => remote::told(py, memory, is_closed),
        Ended::Bytes(read) => Ok(remote::bytes(py, read)),
        Ended::Was(was) => was.told(py),
    }
}

/// A flag that all operations of an endpoint look at.
pub(crate) type IsClosed = Arc<std::sync::atomic::AtomicBool>;
