//! Endpoints: opened, driven, closed; and their peers.

use std::{
    os::fd::{AsFd, AsRawFd},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use pinfold::{Error, PeerId};
use pyo3::{PyTraverseError, PyVisit, prelude::*, types::PyDict};

use crate::{
    active::Handlers,
    error::{or_raise, raised},
    operation::{IsClosed, Operation},
    request::Request,
    settings::{address, builder},
    wait::{drop_released, patience, released, wait},
};

/// The number, the name, the process and the user of a peer, and the names of its paths.
type PeerFacts = (u64, String, u32, u32, Vec<&'static str>);

/// One party to the exchange of messages, see `pinfold.Endpoint`.
#[pyclass(frozen, subclass, module = "pinfold._native")]
pub(crate) struct Endpoint {
    /// `None` once it is closed. Views have handles of their own.
    handle: Mutex<Option<pinfold::Endpoint>>,
    pub is_closed: IsClosed,
    pub handlers: Arc<Handlers>,
}

impl Endpoint {
    /// The library's handle.
    ///
    /// # Errors
    /// `Closed`.
    pub fn open(&self, py: Python<'_>) -> PyResult<pinfold::Endpoint> {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).clone();
        handle.ok_or_else(|| raised(py, &Error::Closed))
    }

    fn take(&self) -> Option<pinfold::Endpoint> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Endpoint {
    /// Listens at `name`, if it is given, and at `listen`, as `tcp:HOST:PORT`; with `handlers`, by
    /// their numbers.
    #[new]
    #[pyo3(signature = (name=None, *, listen=None, handlers=None, **settings))]
    fn new(
        py: Python<'_>,
        name: Option<&str>,
        listen: Option<&str>,
        handlers: Option<&Bound<'_, PyDict>>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Endpoint> {
        let mut builder = builder(settings)?;
        let table = Arc::new(Handlers::default());
        for (id, function) in handlers.into_iter().flatten() {
            let id: u32 = id.extract()?;
            table.set(id, &function)?;
            builder = builder.handle(id, table.function());
        }
        for at in name.into_iter().chain(listen) {
            builder = builder.listen(&address(at));
        }
        let made = py.detach(|| builder.build());
        let handle = Mutex::new(Some(or_raise(py, made)?));
        Ok(Endpoint { handle, is_closed: IsClosed::default(), handlers: table })
    }

    /// True once it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Closes it: calls that wait end with Closed. Memory of peers that arrays still show is kept,
    /// and the connections with it, until the last of them is gone; `force` gives it back at once.
    #[pyo3(signature = (*, force=false))]
    fn close(&self, py: Python<'_>, force: bool) {
        self.is_closed.store(true, Ordering::Relaxed);
        if let Some(handle) = self.take() {
            py.detach(|| {
                if force {
                    handle.close();
                }
                drop(handle);
            });
        }
        self.handlers.clear();
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.handlers.traverse(&visit)
    }

    fn __clear__(&self) {
        self.handlers.clear();
    }

    /// Waits until everything sent has been delivered, at most `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn drain(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let (handle, limit) = (self.open(py)?, patience(timeout)?);
        let mut left = limit.unwrap_or(Duration::MAX);
        loop {
            let slice = left.min(Duration::from_millis(50));
            left = left.saturating_sub(slice);
            match released(py, || handle.drain(slice)) {
                Err(Error::Undelivered { left: rest, .. }) => {
                    py.check_signals()?;
                    if left.is_zero() {
                        let patience = limit.unwrap_or_default();
                        return Err(raised(py, &Error::Undelivered { patience, left: rest }));
                    }
                }
                done => return or_raise(py, done),
            }
        }
    }

    /// Makes progress and never waits. True if anything happened.
    fn progress(&self, py: Python<'_>) -> PyResult<bool> {
        let handle = self.open(py)?;
        or_raise(py, py.detach(|| handle.progress()))
    }

    /// Prepares for waiting on the descriptor. False: something is there already.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        let handle = self.open(py)?;
        or_raise(py, py.detach(|| handle.arm()))
    }

    /// The descriptor for event loops, readable when there is something to do after `arm`.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.open(py)?.as_fd().as_raw_fd())
    }

    /// The address at which other hosts can connect, with the port it got; None: there is none.
    #[getter]
    fn listens_at(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.open(py)?.listens_at())
    }

    /// Connects to the endpoint at `address`, waiting at most `timeout` seconds for it to be there.
    #[pyo3(signature = (at, timeout=Some(30.0)))]
    fn connect<'py>(
        &self,
        py: Python<'py>,
        at: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // The library's own limit ends it: its error says what stood in the way.
        wait(py, self.connecting(py, at, timeout)?, None, &self.is_closed)
    }

    /// As `connect`, as a request.
    #[pyo3(signature = (at, timeout=Some(30.0)))]
    fn post_connect(&self, py: Python<'_>, at: &str, timeout: Option<f64>) -> PyResult<Request> {
        Ok(Request::new(self.connecting(py, at, timeout)?, &self.is_closed))
    }

    /// Waits for a peer to connect, at most `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn accept<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let (handle, limit) = (self.open(py)?, patience(timeout)?);
        wait(py, Operation::Accept(handle.accept_request()), limit, &self.is_closed)
    }

    /// As `accept`, as a request.
    fn post_accept(&self, py: Python<'_>) -> PyResult<Request> {
        let handle = self.open(py)?;
        Ok(Request::new(Operation::Accept(handle.accept_request()), &self.is_closed))
    }

    /// Ends the connection with a peer.
    fn disconnect(&self, py: Python<'_>, peer: u64) -> PyResult<()> {
        let (handle, peer) = (self.open(py)?, PeerId::from_bits(peer));
        handle.peer(peer).ok_or_else(|| raised(py, &Error::UnknownPeer { peer }))?;
        py.detach(|| handle.disconnect(peer));
        Ok(())
    }

    /// The connected peers, each as (number, name, process, user, names of paths).
    fn peer_facts(&self, py: Python<'_>) -> PyResult<Vec<PeerFacts>> {
        let told = |peer: pinfold::PeerInfo| {
            let paths = peer.paths.iter().map(|path| path.name()).collect();
            (peer.id.to_bits(), peer.name, peer.pid, peer.uid, paths)
        };
        Ok(self.open(py)?.peers().into_iter().map(told).collect())
    }
}

impl Endpoint {
    fn connecting(&self, py: Python<'_>, at: &str, timeout: Option<f64>) -> PyResult<Operation> {
        let (handle, at) = (self.open(py)?, address(at));
        Ok(Operation::Connect(match patience(timeout)? {
            Some(Duration::ZERO) => handle.connect_request(&at),
            limit => handle.connect_wait_request(&at, limit.unwrap_or(Duration::MAX)),
        }))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Closing may wait for a peer, in this process even, so not with the interpreter's lock.
        drop_released(self.take());
    }
}
