//! Memory of peers, as this process uses it.

use std::sync::atomic::Ordering;

use pinfold::{Error, Path, PeerId, RegionKey, RemoteRegion, RemoteSpace, Rights};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};

use crate::{
    endpoint::Endpoint,
    error::{or_raise, raised},
    given::{Fresh, Source, Target},
    operation::{IsClosed, Operation},
    request::Request,
    wait::{drop_released, patience, released, wait},
    words::{Change, Kind, Words, atomic_operations},
};

/// The memory, by how places in it are named.
#[derive(Clone)]
pub(crate) enum Memory {
    Offsets(RemoteRegion),
    Addresses(RemoteSpace),
}

/// Runs an expression with the memory, however its places are named.
macro_rules! with {
    ($memory:expr, $it:ident => $do:expr) => {
        match $memory {
            Memory::Offsets($it) => $do,
            Memory::Addresses($it) => $do,
        }
    };
}

/// The most bytes that are copied with the interpreter's lock held, where no peer is waited for.
const SHORT: usize = 4096;

/// Memory of a peer: a Region, or memory that it has registered. Made by `Endpoint.open_region`:
/// places are offsets in bytes; or by `Endpoint.open_space`: places are addresses in the peer's
/// process, from `address` on.
///
/// A write that has returned has left this process's memory, and is in the peer's in the order of
/// the operations; a message that is sent after it is received after it. Errors: OutOfBounds,
/// ReadOnly, Misaligned: nothing was changed. Revoked, Withdrawn, PeerGone, NotMapped: the memory
/// is gone, in part perhaps.
#[pyclass(frozen, module = "pinfold")]
pub(crate) struct Remote {
    /// `None` while it is dropped.
    memory: Option<Memory>,
    is_closed: IsClosed,
}

impl Remote {
    pub fn new(memory: Memory, is_closed: IsClosed) -> Remote {
        Remote { memory: Some(memory), is_closed }
    }

    /// The memory.
    ///
    /// # Errors
    /// `Closed`: its endpoint is.
    fn memory(&self, py: Python<'_>) -> PyResult<&Memory> {
        match &self.memory {
            Some(memory) if !self.is_closed.load(Ordering::Relaxed) => Ok(memory),
            _ => Err(raised(py, &Error::Closed)),
        }
    }

    fn fact<T>(&self, of: impl FnOnce(&Memory) -> T) -> PyResult<T> {
        let gone = || PyValueError::new_err("the memory is being dropped");
        self.memory.as_ref().map(of).ok_or_else(gone)
    }

    /// True if an operation on so many bytes is over before the interpreter's lock could be had
    /// again.
    fn is_brief(&self, len: usize) -> bool {
        let is_mapped = |memory: &Memory| with!(memory, it => it.path()) == Path::Mapped;
        len <= SHORT && self.memory.as_ref().is_some_and(is_mapped)
    }

    fn writing(&self, py: Python<'_>, at: u64, data: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let memory = self.memory(py)?;
        let source = Source::of(data)?;
        let is_brief = self.is_brief(source.len());
        let post = || Operation::Write(with!(memory, it => it.write_owned(at, source)));
        Ok(if is_brief { post() } else { released(py, post) })
    }

    fn reading(&self, py: Python<'_>, at: u64, buffer: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let memory = self.memory(py)?;
        let target = Target::of(buffer)?;
        let is_brief = self.is_brief(target.len());
        let post = || Operation::ReadInto(with!(memory, it => it.read_owned(at, target)));
        Ok(if is_brief { post() } else { released(py, post) })
    }

    fn changing(&self, py: Python<'_>, at: u64, change: Change) -> PyResult<Operation> {
        let memory = self.memory(py)?;
        let post = || Operation::Change(with!(memory, it => change.posted(it, at)));
        Ok(if self.is_brief(8) { post() } else { released(py, post) })
    }
}

#[pymethods]
impl Remote {
    /// Its length in bytes.
    #[getter]
    fn nbytes(&self) -> PyResult<u64> {
        self.fact(|memory| with!(memory, it => it.len()))
    }

    /// The address of its first byte in the peer's process.
    #[getter]
    fn address(&self) -> PyResult<u64> {
        self.fact(|memory| with!(memory, it => it.addresses().start))
    }

    /// The number of the peer that owns it.
    #[getter]
    fn peer(&self) -> PyResult<u64> {
        self.fact(|memory| with!(memory, it => it.peer().to_bits()))
    }

    /// True if this side may write it.
    #[getter]
    fn writable(&self) -> PyResult<bool> {
        self.fact(|memory| with!(memory, it => it.rights()) == Rights::ReadWrite)
    }

    /// The path of its operations: "mapped" (loads and stores), "cma" (the kernel copies) or
    /// "eager" (the peer's endpoint does them while it makes progress). Parts of registered memory
    /// that lie in an arena are mapped in any case.
    #[getter]
    fn path(&self) -> PyResult<&'static str> {
        self.fact(|memory| with!(memory, it => it.path()).name())
    }

    /// The reason why it is not mapped, as a sentence; None if it is, or may be in part.
    #[getter]
    fn why_not_mapped(&self) -> PyResult<Option<String>> {
        self.fact(|memory| with!(memory, it => it.why_not_mapped()).map(|why| why.to_string()))
    }

    /// The bytes at a place, `nbytes` of them.
    fn read<'py>(&self, py: Python<'py>, at: u64, nbytes: usize) -> PyResult<Bound<'py, PyAny>> {
        let memory = self.memory(py)?;
        // Before memory is taken for them.
        if nbytes as u64 > self.nbytes()? {
            let size = self.nbytes()?;
            let error = Error::OutOfBounds { offset: at, len: nbytes as u64, size };
            return Err(raised(py, &error));
        }
        let fresh = Fresh::new(py, nbytes)?;
        let post = || Operation::Read(with!(memory, it => it.read_owned(at, fresh)));
        let operation = if self.is_brief(nbytes) { post() } else { released(py, post) };
        wait(py, operation, None, &self.is_closed)
    }

    /// Reads the bytes at a place into the memory of `buffer`, as many as that has. Returns the
    /// receipt.
    fn read_into<'py>(
        &self,
        py: Python<'py>,
        at: u64,
        buffer: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        wait(py, self.reading(py, at, buffer)?, None, &self.is_closed)
    }

    /// As `read_into`, as a request.
    fn post_read_into(
        &self,
        py: Python<'_>,
        at: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<Request> {
        Ok(Request::new(self.reading(py, at, buffer)?, &self.is_closed))
    }

    /// Writes the memory of `data` at a place. Returns the receipt.
    fn write<'py>(
        &self,
        py: Python<'py>,
        at: u64,
        data: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        wait(py, self.writing(py, at, data)?, None, &self.is_closed)
    }

    /// As `write`, as a request. One that is dropped goes on.
    fn post_write(&self, py: Python<'_>, at: u64, data: &Bound<'_, PyAny>) -> PyResult<Request> {
        Ok(Request::new(self.writing(py, at, data)?, &self.is_closed))
    }

    /// As `fetch_add`, as a request.
    #[pyo3(signature = (at, by, word="u64"))]
    fn post_fetch_add(
        &self,
        py: Python<'_>,
        at: u64,
        by: &Bound<'_, PyAny>,
        word: &str,
    ) -> PyResult<Request> {
        let change = Change::new(Kind::Add, word, by, None)?;
        Ok(Request::new(self.changing(py, at, change)?, &self.is_closed))
    }

    /// As `compare_swap`, as a request.
    #[pyo3(signature = (at, expected, value, word="u64"))]
    fn post_compare_swap(
        &self,
        py: Python<'_>,
        at: u64,
        expected: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        word: &str,
    ) -> PyResult<Request> {
        let change = Change::new(Kind::Replace, word, value, Some(expected))?;
        Ok(Request::new(self.changing(py, at, change)?, &self.is_closed))
    }

    /// Returns when everything written so far is in the peer's memory for all to see, and the
    /// memory still stands.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let memory = self.memory(py)?;
        or_raise(py, released(py, || with!(memory, it => it.flush())))
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.nbytes()?).unwrap_or(usize::MAX))
    }

    fn __repr__(&self) -> PyResult<String> {
        let (nbytes, peer, path) = (self.nbytes()?, self.peer()?, self.path()?);
        Ok(format!("<pinfold.Remote: {nbytes} bytes of peer {peer}, {path}>"))
    }
}

impl Words for Remote {
    fn changed<'py>(
        &self,
        py: Python<'py>,
        at: u64,
        change: Change,
    ) -> PyResult<Bound<'py, PyAny>> {
        wait(py, self.changing(py, at, change)?, None, &self.is_closed)
    }
}

atomic_operations!(Remote);

impl Drop for Remote {
    fn drop(&mut self) {
        drop_released(self.memory.take());
    }
}

impl Endpoint {
    fn opening(
        &self,
        py: Python<'_>,
        peer: u64,
        key: &Bound<'_, PyAny>,
        by_address: bool,
    ) -> PyResult<Operation> {
        let (handle, peer) = (self.open(py)?, PeerId::from_bits(peer));
        let key = or_raise(py, RegionKey::from_bytes(Source::of(key)?.as_ref()))?;
        let is_closed = IsClosed::clone(&self.is_closed);
        Ok(match by_address {
            false => Operation::OpenRegion(handle.open_region_request(peer, &key), is_closed),
            true => Operation::OpenSpace(handle.open_space_request(peer, &key), is_closed),
        })
    }
}

#[pymethods]
impl Endpoint {
    /// Opens memory of a peer by its key: a Remote whose places are offsets. The owner answers
    /// while it makes progress.
    #[pyo3(signature = (peer, key, timeout=None))]
    fn open_region<'py>(
        &self,
        py: Python<'py>,
        peer: u64,
        key: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let limit = patience(timeout)?;
        wait(py, self.opening(py, peer, key, false)?, limit, &self.is_closed)
    }

    /// As `open_region`, as a request.
    fn post_open_region(
        &self,
        py: Python<'_>,
        peer: u64,
        key: &Bound<'_, PyAny>,
    ) -> PyResult<Request> {
        Ok(Request::new(self.opening(py, peer, key, false)?, &self.is_closed))
    }

    /// Opens memory of a peer by its key: a Remote whose places are addresses in the peer's
    /// process.
    #[pyo3(signature = (peer, key, timeout=None))]
    fn open_space<'py>(
        &self,
        py: Python<'py>,
        peer: u64,
        key: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let limit = patience(timeout)?;
        wait(py, self.opening(py, peer, key, true)?, limit, &self.is_closed)
    }

    /// As `open_space`, as a request.
    fn post_open_space(
        &self,
        py: Python<'_>,
        peer: u64,
        key: &Bound<'_, PyAny>,
    ) -> PyResult<Request> {
        Ok(Request::new(self.opening(py, peer, key, true)?, &self.is_closed))
    }
}

/// The memory as Python has it.
pub(crate) fn told<'py>(
    py: Python<'py>,
    memory: Memory,
    is_closed: IsClosed,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(Bound::new(py, Remote::new(memory, is_closed))?.into_any())
}

/// The bytes that were read.
pub(crate) fn bytes<'py>(py: Python<'py>, read: Fresh) -> Bound<'py, PyAny> {
    let object: Py<PyBytes> = read.into_object();
    object.into_bound(py).into_any()
}
