//! Messages: sent, received, given away, looked at in place.

use std::time::{Duration, Instant};

use pinfold::{Error, Handoff, PeerId, Source as From, TagMatch};
use pyo3::{IntoPyObjectExt, prelude::*};

use crate::{
    block::Block,
    endpoint::Endpoint,
    error::{or_raise, raised},
    given::{Source, Target, release_ended},
    operation::Operation,
    receipt::Received,
    request::Request,
    wait::{patience, released, wait},
};

/// Tags with this bit are the package's own, for the parts of objects: no receive of any tag takes
/// their messages.
const OWN_TAGS: u64 = 1 << 63;

/// The most bytes that are copied with the interpreter's lock held: to release it costs as much.
const SHORT: usize = 4096;

fn source(peer: Option<u64>) -> From {
    peer.map_or(From::Any, |peer| PeerId::from_bits(peer).into())
}

fn matching(tag: Option<u64>) -> TagMatch {
    match tag {
        Some(tag) => TagMatch::masked(tag, 0),
        None => TagMatch::masked(0, !OWN_TAGS),
    }
}

impl Endpoint {
    fn sending(&self, py: Python<'_>, peer: u64, data: Source, tag: u64) -> PyResult<Operation> {
        let (handle, peer) = (self.open(py)?, PeerId::from_bits(peer));
        let is_short = data.len() <= SHORT;
        let post = || handle.send_owned(peer, tag, data);
        Ok(Operation::Send(if is_short { post() } else { py.detach(post) }))
    }

    fn receiving(
        &self,
        py: Python<'_>,
        peer: Option<u64>,
        tag: Option<u64>,
        how: How,
    ) -> PyResult<Operation> {
        let (handle, from, tag) = (self.open(py)?, source(peer), matching(tag));
        Ok(py.detach(|| match how {
            How::Message => Operation::Recv(handle.recv_request(from, tag)),
            How::View => Operation::RecvView(handle.recv_view_request(from, tag), handle.clone()),
            How::Into(target) => Operation::RecvInto(handle.recv_owned(from, tag, target)),
        }))
    }
}

/// The place of a message.
enum How {
    Message,
    View,
    Into(Target),
}

#[pymethods]
impl Endpoint {
    /// Sends the memory of `data`, and returns the receipt when it is the caller's again.
    #[pyo3(signature = (peer, data, tag=0, timeout=None))]
    fn send<'py>(
        &self,
        py: Python<'py>,
        peer: u64,
        data: &Bound<'py, PyAny>,
        tag: u64,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let limit = patience(timeout)?;
        let operation = self.sending(py, peer, Source::of(data)?, tag)?;
        wait(py, operation, limit, &self.is_closed)
    }

    /// As `send`, as a request.
    #[pyo3(signature = (peer, data, tag=0))]
    fn post_send(
        &self,
        py: Python<'_>,
        peer: u64,
        data: &Bound<'_, PyAny>,
        tag: u64,
    ) -> PyResult<Request> {
        Ok(Request::new(self.sending(py, peer, Source::of(data)?, tag)?, &self.is_closed))
    }

    /// Waits for a message of any length.
    #[pyo3(signature = (peer=None, tag=None, timeout=None))]
    fn recv<'py>(
        &self,
        py: Python<'py>,
        peer: Option<u64>,
        tag: Option<u64>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let limit = patience(timeout)?;
        let operation = self.receiving(py, peer, tag, How::Message)?;
        wait(py, operation, limit, &self.is_closed)
    }

    /// As `recv`, as a request.
    #[pyo3(signature = (peer=None, tag=None))]
    fn post_recv(&self, py: Python<'_>, peer: Option<u64>, tag: Option<u64>) -> PyResult<Request> {
        Ok(Request::new(self.receiving(py, peer, tag, How::Message)?, &self.is_closed))
    }

    /// Waits for a message, which may stay where it is.
    #[pyo3(signature = (peer=None, tag=None, timeout=None))]
    fn recv_view<'py>(
        &self,
        py: Python<'py>,
        peer: Option<u64>,
        tag: Option<u64>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let limit = patience(timeout)?;
        let operation = self.receiving(py, peer, tag, How::View)?;
        wait(py, operation, limit, &self.is_closed)
    }

    /// As `recv_view`, as a request.
    #[pyo3(signature = (peer=None, tag=None))]
    fn post_recv_view(
        &self,
        py: Python<'_>,
        peer: Option<u64>,
        tag: Option<u64>,
    ) -> PyResult<Request> {
        Ok(Request::new(self.receiving(py, peer, tag, How::View)?, &self.is_closed))
    }

    /// Waits for a message and receives it into the memory of `buffer`.
    #[pyo3(signature = (buffer, peer=None, tag=None, timeout=None))]
    fn recv_into<'py>(
        &self,
        py: Python<'py>,
        buffer: &Bound<'py, PyAny>,
        peer: Option<u64>,
        tag: Option<u64>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let limit = patience(timeout)?;
        let operation = self.receiving(py, peer, tag, How::Into(Target::of(buffer)?))?;
        wait(py, operation, limit, &self.is_closed)
    }

    /// As `recv_into`, as a request.
    #[pyo3(signature = (buffer, peer=None, tag=None))]
    fn post_recv_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        peer: Option<u64>,
        tag: Option<u64>,
    ) -> PyResult<Request> {
        let how = How::Into(Target::of(buffer)?);
        Ok(Request::new(self.receiving(py, peer, tag, how)?, &self.is_closed))
    }

    /// The facts of the message that a receive would take now; None: there is none.
    #[pyo3(signature = (peer=None, tag=None))]
    fn probe<'py>(
        &self,
        py: Python<'py>,
        peer: Option<u64>,
        tag: Option<u64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (handle, from, tag) = (self.open(py)?, source(peer), matching(tag));
        let found = or_raise(py, py.detach(|| handle.try_probe(from, tag)))?;
        found.map(|found| Received::from(&found).into_bound_py_any(py)).transpose()
    }

    /// Gives the memory of a block away; waits while the peer has as much as it may have.
    #[pyo3(signature = (peer, block, tag=0, timeout=None))]
    fn give(
        &self,
        py: Python<'_>,
        peer: u64,
        block: &Bound<'_, Block>,
        tag: u64,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (handle, peer) = (self.open(py)?, PeerId::from_bits(peer));
        let limit = patience(timeout)?;
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut donation = block.get().donation(py)?;
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let slice = Duration::from_millis(50).min(left.unwrap_or(Duration::MAX));
            let given = released(py, || handle.give_timeout(peer, tag, donation, slice));
            let Err(not) = given else {
                block.get().note_given();
                return Ok(());
            };
            py.check_signals()?;
            match not.error {
                Error::LimitReached { .. } if self.is_closed.load(RELAXED) => {
                    return Err(raised(py, &Error::Closed));
                }
                Error::LimitReached { .. } if left.is_none_or(|left| !left.is_zero()) => {
                    donation = not.donation;
                }
                error => return Err(raised(py, &error)),
            }
        }
    }

    /// As `give`, as a request: it ends when the receiver has done with the memory.
    #[pyo3(signature = (peer, block, tag=0))]
    fn post_give(
        &self,
        py: Python<'_>,
        peer: u64,
        block: &Bound<'_, Block>,
        tag: u64,
    ) -> PyResult<Request> {
        let (handle, donation) = (self.open(py)?, block.get().donation(py)?);
        let handoff: Handoff = handle.handoff(PeerId::from_bits(peer), tag, donation);
        block.get().note_given();
        release_ended(py);
        Ok(Request::new(Operation::Handoff(handoff), &self.is_closed))
    }
}

const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;
