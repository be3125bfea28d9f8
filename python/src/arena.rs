//! Memory that peers can map.

use pinfold::{ArenaBuilder, SharedArena};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{block::Block, error::or_raise};

/// The heap, by whether peers may write it.
enum Heap {
    Private(pinfold::Arena),
    Shared(SharedArena),
}

/// A heap whose buffers peers can map.
#[pyclass(frozen, module = "pinfold._native", subclass)]
pub(crate) struct Arena(Heap);

#[pymethods]
impl Arena {
    /// At most `bytes_max` bytes of address space (0: 64 GiB) and `bytes_budget` of memory (0: half
    /// of the machine's). Peers can read its buffers, and write them if `writable`.
    #[new]
    #[pyo3(signature = (*, bytes_max=0, bytes_budget=0, writable=false, huge_pages=true))]
    fn new(
        py: Python<'_>,
        bytes_max: usize,
        bytes_budget: u64,
        writable: bool,
        huge_pages: bool,
    ) -> PyResult<Arena> {
        let mut builder = ArenaBuilder::default().huge_pages(huge_pages);
        if bytes_max > 0 {
            builder = builder.bytes_max(bytes_max);
        }
        if bytes_budget > 0 {
            builder = builder.bytes_budget(bytes_budget);
        }
        Ok(Arena(match writable {
            false => Heap::Private(or_raise(py, builder.build())?),
            true => Heap::Shared(or_raise(py, builder.build_shared())?),
        }))
    }

    /// A buffer of `nbytes` bytes at a multiple of `align`. Its contents are not cleared, unless
    /// peers may write.
    #[pyo3(signature = (nbytes, align=64))]
    fn block(&self, py: Python<'_>, nbytes: usize, align: usize) -> PyResult<Block> {
        if !align.is_power_of_two() || align > 2 << 20 {
            let why = format!("align is {align}, no power of two up to 2 MiB");
            return Err(PyValueError::new_err(why));
        }
        let align = align.max(64);
        // Memory may have to be had from the system, which takes its time.
        let made = py.detach(|| match &self.0 {
            Heap::Private(arena) => arena.alloc_aligned(nbytes, align).map(Block::of_arena),
            Heap::Shared(arena) => arena.alloc_aligned(nbytes, align).map(Block::of_shared),
        });
        or_raise(py, made)
    }

    /// True if peers can write its buffers.
    #[getter]
    fn writable(&self) -> bool {
        matches!(self.0, Heap::Shared(_))
    }

    /// Gives memory that no buffer uses back to the system. Returns the number of bytes.
    fn trim(&self, py: Python<'_>) -> u64 {
        py.detach(|| match &self.0 {
            Heap::Private(arena) => arena.trim(),
            Heap::Shared(arena) => arena.trim(),
        })
    }

    /// The number of buffers in use.
    #[getter]
    fn buffers(&self) -> usize {
        match &self.0 {
            Heap::Private(arena) => arena.stats().buffers as usize,
            Heap::Shared(arena) => arena.stats().buffers as usize,
        }
    }
}
