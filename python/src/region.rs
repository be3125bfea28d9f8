//! Memory of this process that peers may use by one-sided operations: regions, which the library
//! makes, and objects of the program's.
//!
//! **Invariant.** The export of an exposed object's memory is held until the exposure has ended; if
//! it does not end, the export is never released.
#![allow(unsafe_code)]

use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pinfold::{Error, Exposed, OwnedBuf, OwnedBufMut, Rights};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};

use crate::{
    endpoint::Endpoint,
    error::{or_raise, raised},
    given::{Source, Target, release_ended},
    wait::drop_released,
    words::{Change, Kind, Words, atomic_operations},
};

fn rights(writable: bool) -> Rights {
    if writable { Rights::ReadWrite } else { Rights::Read }
}

fn outside(at: u64, len: usize, size: usize) -> Error {
    Error::OutOfBounds { offset: at, len: len as u64, size: size as u64 }
}

/// Memory that peers which have its key read, and write if it is `writable`, without this process's
/// help. All zeros at first. Places are offsets in bytes.
///
/// Made by `Endpoint.region`. Its owner uses it as peers do: by copies, of which eight aligned
/// bytes are always whole, and by atomic operations. Dropped it is revoked.
#[pyclass(frozen, module = "pinfold")]
pub(crate) struct Region {
    /// `None` while it is dropped.
    region: RwLock<Option<pinfold::Region>>,
    nbytes: usize,
}

impl Region {
    fn new(region: pinfold::Region) -> Region {
        Region { nbytes: region.len(), region: RwLock::new(Some(region)) }
    }

    fn read_lock(&self) -> RwLockReadGuard<'_, Option<pinfold::Region>> {
        self.region.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_lock(&self) -> RwLockWriteGuard<'_, Option<pinfold::Region>> {
        self.region.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the region, without the interpreter's lock, since a revocation takes its time.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&pinfold::Region) -> pinfold::Result<T> + Send,
    ) -> PyResult<T> {
        let looked = py.detach(|| self.read_lock().as_ref().map_or(Err(Error::Closed), look));
        or_raise(py, looked)
    }
}

#[pymethods]
impl Region {
    /// Its length in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// True if peers may write it.
    #[getter]
    fn writable(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |region| Ok(region.rights() == Rights::ReadWrite))
    }

    /// The key, 24 bytes, that peers need: to be sent to them. None: it was revoked.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = self.with(py, |region| Ok(region.key()))?;
        Ok(key.map(|key| PyBytes::new(py, &key.to_bytes())))
    }

    /// A copy of `nbytes` bytes at `at`; all to the end without `nbytes`.
    #[pyo3(signature = (at=0, nbytes=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        at: usize,
        nbytes: Option<usize>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let nbytes = nbytes.unwrap_or_else(|| self.nbytes.saturating_sub(at));
        if at.checked_add(nbytes).is_none_or(|end| end > self.nbytes) {
            return Err(raised(py, &outside(at as u64, nbytes, self.nbytes)));
        }
        PyBytes::new_with(py, nbytes, |into| self.with(py, |region| region.read(at, into)))
    }

    /// Copies the bytes at `at` into the memory of `buffer`, as many as that has.
    #[pyo3(signature = (buffer, at=0))]
    fn read_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, at: usize) -> PyResult<()> {
        let mut target = Target::of(buffer)?;
        let read = self.with(py, |region| region.read(at, target.as_mut()));
        drop(target);
        release_ended(py);
        read
    }

    /// Copies the memory of `data` in at `at`.
    #[pyo3(signature = (data, at=0))]
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>, at: usize) -> PyResult<()> {
        let source = Source::of(data)?;
        let written = self.with(py, |region| region.write(at, source.as_ref()));
        drop(source);
        release_ended(py);
        written
    }

    /// Ends all use by peers: when this returns nothing that they do changes it any more, and
    /// operations of theirs that had succeeded have had their effect. It stays the owner's.
    fn revoke(&self, py: Python<'_>) -> PyResult<()> {
        let revoked =
            py.detach(|| self.write_lock().as_mut().map_or(Ok(()), pinfold::Region::revoke));
        or_raise(py, revoked)
    }

    /// Lets peers use it again after it was revoked, by another key, which is returned.
    fn expose<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let exposed = py.detach(|| match self.write_lock().as_mut() {
            Some(region) => region.expose(),
            None => Err(Error::Closed),
        });
        Ok(PyBytes::new(py, &or_raise(py, exposed)?.to_bytes()))
    }

    fn __len__(&self) -> usize {
        self.nbytes
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let is_revoked = self.with(py, |region| Ok(region.key().is_none()))?;
        let state = if is_revoked { ", revoked" } else { "" };
        Ok(format!("<pinfold.Region: {} bytes{state}>", self.nbytes))
    }
}

impl Words for Region {
    fn changed<'py>(
        &self,
        py: Python<'py>,
        at: u64,
        change: Change,
    ) -> PyResult<Bound<'py, PyAny>> {
        let size = change.size();
        let was = self.with(py, |region| {
            // Forked, or outside.
            region.read(at as usize, &mut [0; 8][..size])?;
            let word = match size {
                4 => region.word32(at as usize).map(|word| word.as_ptr().cast()),
                _ => region.word64(at as usize).map(|word| word.as_ptr().cast()),
            };
            let word = word.ok_or(Error::Misaligned { offset: at, size: size as u64 })?;
            // SAFETY: a word of that size, which the region keeps for the whole call.
            Ok(unsafe { change.here(word) })
        })?;
        was.told(py)
    }
}

atomic_operations!(Region);

impl Drop for Region {
    fn drop(&mut self) {
        let region = self.region.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        drop_released(region);
    }
}

/// Memory of an object's, as it is exposed.
enum Memory {
    Read(Source),
    Written(Target),
}

impl Memory {
    fn place(&mut self) -> (usize, usize) {
        match self {
            Memory::Read(source) => {
                let (at, len) = source.bytes();
                (at.expose_provenance(), len)
            }
            Memory::Written(target) => {
                let (at, len) = target.bytes_mut();
                (at.expose_provenance(), len)
            }
        }
    }
}

/// An exposure, and the memory that it is of.
struct Standing {
    exposed: Exposed,
    memory: Memory,
}

impl Standing {
    /// Ends it. The memory stays if that fails.
    fn end(self) -> pinfold::Result<()> {
        let ended = self.exposed.revoke();
        if ended.is_err() {
            std::mem::forget(self.memory);
        }
        ended
    }
}

/// Memory of an object of the program's that peers which have its key read, and write if it is
/// `writable`, where it lies: nothing is copied or pinned. Made by `Endpoint.register`.
///
/// The object stays usable; its memory stays in place until `revoke`, or until this is dropped.
/// Places are offsets in bytes for the atomic operations here.
#[pyclass(frozen, module = "pinfold")]
pub(crate) struct Registered {
    standing: Mutex<Option<Standing>>,
    at: usize,
    nbytes: usize,
    is_writable: bool,
}

impl Registered {
    fn take(&self) -> Option<Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Registered {
    /// Its length in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// The address of its first byte in this process, for `Endpoint.open_space`.
    #[getter]
    fn address(&self) -> usize {
        self.at
    }

    /// True if peers may write it.
    #[getter]
    fn writable(&self) -> bool {
        self.is_writable
    }

    /// The key, 24 bytes, that peers need: to be sent to them. None: it was revoked.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.as_ref().map(|it| PyBytes::new(py, &it.exposed.key().to_bytes()))
    }

    /// Ends the use by peers, and waits for those that are using it, mostly some microseconds, 10 s
    /// at most: StillVisited after that, and then the memory stays as it is for good.
    fn revoke(&self, py: Python<'_>) -> PyResult<()> {
        let Some(standing) = self.take() else { return Ok(()) };
        let ended = py.detach(|| standing.end());
        release_ended(py);
        or_raise(py, ended)
    }

    fn __len__(&self) -> usize {
        self.nbytes
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = if self.key(py).is_none() { ", revoked" } else { "" };
        format!("<pinfold.Registered: {} bytes{state}>", self.nbytes)
    }
}

impl Words for Registered {
    fn changed<'py>(
        &self,
        py: Python<'py>,
        at: u64,
        change: Change,
    ) -> PyResult<Bound<'py, PyAny>> {
        let size = change.size();
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        // Without it nothing keeps the memory.
        if standing.is_none() {
            return Err(raised(py, &Error::Revoked));
        }
        if !self.is_writable {
            return Err(raised(py, &Error::ReadOnly));
        }
        let end = at.checked_add(size as u64);
        if end.is_none_or(|end| end > self.nbytes as u64) {
            return Err(raised(py, &outside(at, size, self.nbytes)));
        }
        let place = self.at + at as usize;
        if !place.is_multiple_of(size) {
            return Err(raised(py, &Error::Misaligned { offset: at, size: size as u64 }));
        }
        // SAFETY: inside the memory, which can be written and stays while the lock is held; at a
        // multiple of the word's size.
        let was = unsafe { change.here(std::ptr::with_exposed_provenance_mut(place)) };
        drop(standing);
        was.told(py)
    }
}

atomic_operations!(Registered);

impl Drop for Registered {
    fn drop(&mut self) {
        let Some(standing) = self.take() else { return };
        let mut standing = Some(standing);
        Python::try_attach(|py| {
            let standing = standing.take();
            py.detach(|| standing.map(Standing::end));
            release_ended(py);
        });
        // A failure is logged by the library's own drop alone; there is no caller to tell.
        drop(standing.map(Standing::end));
    }
}

#[pymethods]
impl Endpoint {
    /// A Region of `nbytes` bytes, all zeros, that peers which have its key may read, and write if
    /// `writable`.
    #[pyo3(signature = (nbytes, *, writable=false))]
    fn region(&self, py: Python<'_>, nbytes: usize, writable: bool) -> PyResult<Region> {
        if nbytes == 0 {
            return Err(PyValueError::new_err("a region of 0 bytes is of no use"));
        }
        let handle = self.open(py)?;
        let made = py.detach(|| handle.region(nbytes, rights(writable)));
        or_raise(py, made).map(Region::new)
    }

    /// Lets peers that have the key of the Registered which is returned use the memory of `buffer`
    /// where it lies, as it is.
    #[pyo3(signature = (buffer, *, writable=false))]
    fn register(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        writable: bool,
    ) -> PyResult<Registered> {
        let handle = self.open(py)?;
        let mut memory = match writable {
            true => Memory::Written(Target::of(buffer)?),
            false => Memory::Read(Source::in_place(buffer)?),
        };
        let (at, nbytes) = memory.place();
        let place = at..at + nbytes;
        // SAFETY: the memory stays while its export is held, which `Standing` sees to; the
        // package's documentation leaves it to the program that peers may use it at any moment.
        let exposed = py.detach(|| unsafe { handle.expose(place, rights(writable)) });
        let standing = Mutex::new(Some(Standing { exposed: or_raise(py, exposed)?, memory }));
        Ok(Registered { standing, at, nbytes, is_writable: writable })
    }
}
