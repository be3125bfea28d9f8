//! Memory of the library's as Python objects keep it: buffers of arenas, views, messages.
//!
//! **Invariant.** The memory stays where it is as long as the block lives, whoever else has done
//! with it: exports (`exporter`) keep the block, and arrays keep the exports. So a buffer that was
//! given away stays allocated, and a view keeps its loan, and its endpoint open, until the last
//! array over it is gone.
#![allow(unsafe_code)]

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use pinfold::{ArenaBuf, DonatedBuf, Endpoint, Error, Message, SharedBuf, View};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{error::raised, receipt::Receipt};

/// The holder of the memory.
enum Holder {
    Arena(ArenaBuf),
    Shared(SharedBuf),
    /// Given away, or to have been.
    Donated(DonatedBuf),
    View {
        view: View<'static>,
        _open: Endpoint,
    },
    Message(Message),
    /// Nothing: for the time of an exchange.
    Nobody,
}

/// Memory of the library's: contiguous bytes, with the facts of a message if they are one.
#[pyclass(frozen, module = "pinfold._native")]
pub(crate) struct Block {
    holder: Mutex<Holder>,
    at: usize,
    len: usize,
    facts: Option<Facts>,
    is_writable: bool,
    is_shared: bool,
    is_given: AtomicBool,
    process: u32,
}

#[derive(Clone, Copy)]
struct Facts {
    peer: u64,
    tag: u64,
    receipt: pinfold::Receipt,
}

impl Block {
    fn new(holder: Holder, len: usize, facts: Option<Facts>, is_writable: bool) -> Block {
        let process = std::process::id();
        let is_shared = matches!(holder, Holder::Shared(_));
        let (holder, is_given) = (Mutex::new(holder), AtomicBool::new(false));
        Block { holder, at: 0, len, facts, is_writable, is_shared, is_given, process }
    }

    pub fn of_arena(mut buf: ArenaBuf) -> Block {
        let (at, len) = (buf.as_mut_ptr().expose_provenance(), buf.len());
        Block { at, ..Block::new(Holder::Arena(buf), len, None, true) }
    }

    pub fn of_shared(buf: SharedBuf) -> Block {
        let (at, len) = (buf.addresses().start, buf.len());
        Block { at, ..Block::new(Holder::Shared(buf), len, None, true) }
    }

    pub fn of_message(message: Message) -> Block {
        let (peer, tag) = (message.peer().to_bits(), message.tag());
        let facts = Facts { peer, tag, receipt: message.receipt() };
        let len = message.len();
        Block::new(Holder::Message(message), len, Some(facts), false)
    }

    /// A view, which keeps `open` open.
    pub fn of_view(view: View<'static>, open: Endpoint) -> Block {
        let facts = Facts { peer: view.peer().to_bits(), tag: view.tag(), receipt: view.receipt() };
        let (len, is_writable) = (view.len(), view.is_writable());
        Block::new(Holder::View { view, _open: open }, len, Some(facts), is_writable)
    }

    fn holder(&self) -> MutexGuard<'_, Holder> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its first byte, its length, and whether it can only be read.
    ///
    /// # Errors
    /// `Forked`: the memory is not there in a child. `Withdrawn`: it went back to its owner.
    pub fn memory(&self, py: Python<'_>) -> PyResult<(*mut u8, usize, bool)> {
        let elsewhere = self.process != std::process::id();
        let holder = self.holder();
        let at = match &*holder {
            // Messages lie in memory of this process's own, of which a child has a copy.
            Holder::Message(message) => message.as_ptr().cast_mut(),
            _ if elsewhere => return Err(raised(py, &Error::Forked)),
            // SAFETY: the package's documentation leaves the sender's honesty to the program, as
            // `View::as_slice` wants it; of the slice only the address is used.
            Holder::View { view, .. } => match unsafe { view.as_slice() } {
                Ok(bytes) => bytes.as_ptr().cast_mut(),
                Err(error) => return Err(raised(py, &error)),
            },
            _ => std::ptr::with_exposed_provenance_mut(self.at),
        };
        Ok((at, self.len, !self.is_writable))
    }

    /// The memory, to be given away. This block keeps it as well.
    ///
    /// # Errors
    /// `ValueError`: it is no buffer of an arena.
    pub fn donation(&self, py: Python<'_>) -> PyResult<DonatedBuf> {
        if self.process != std::process::id() {
            return Err(raised(py, &Error::Forked));
        }
        let mut holder = self.holder();
        let donation = match std::mem::replace(&mut *holder, Holder::Nobody) {
            Holder::Arena(buf) => DonatedBuf::from(buf),
            Holder::Shared(buf) => DonatedBuf::from(buf),
            Holder::Donated(donation) => donation,
            other => {
                *holder = other;
                let why =
                    "only memory of an arena can be given away; Arena.empty makes such arrays";
                return Err(PyValueError::new_err(why));
            }
        };
        *holder = Holder::Donated(donation.clone());
        Ok(donation)
    }

    /// Notes that it was given away.
    pub fn note_given(&self) {
        self.is_given.store(true, Ordering::Relaxed);
    }

    fn fact<T>(&self, of: impl FnOnce(&Facts) -> T) -> PyResult<T> {
        let none = || PyValueError::new_err("this memory is no message");
        self.facts.as_ref().map(of).ok_or_else(none)
    }
}

#[pymethods]
impl Block {
    /// Its length, bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.len
    }

    /// The address of its first byte.
    #[getter]
    fn address(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.memory(py)?.0.addr())
    }

    /// True if it cannot be written.
    #[getter]
    fn readonly(&self) -> bool {
        !self.is_writable
    }

    /// True if peers can write it as well.
    #[getter]
    fn shared(&self) -> bool {
        self.is_shared
    }

    /// True if it was given away.
    #[getter]
    fn given(&self) -> bool {
        self.is_given.load(Ordering::Relaxed)
    }

    /// The peer that sent it.
    #[getter]
    fn peer(&self) -> PyResult<u64> {
        self.fact(|facts| facts.peer)
    }

    /// Its tag.
    #[getter]
    fn tag(&self) -> PyResult<u64> {
        self.fact(|facts| facts.tag)
    }

    /// How it came.
    #[getter]
    fn receipt(&self) -> PyResult<Receipt> {
        self.fact(|facts| facts.receipt.into())
    }
}
