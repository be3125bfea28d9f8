//! Words of 32 and 64 bits, and the atomic changes of them.

use std::time::Duration;

use pinfold::{Addressing, AtomicChange, AtomicRequest, AtomicWord, Error, Remote};
use pyo3::{IntoPyObjectExt, exceptions::PyValueError, prelude::*};

/// A change of a word, of any kind of word.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    U32(AtomicChange<u32>),
    U64(AtomicChange<u64>),
    I32(AtomicChange<i32>),
    I64(AtomicChange<i64>),
}

/// A word's value.
#[derive(Clone, Copy)]
pub(crate) enum Was {
    Unsigned(u64),
    Signed(i64),
}

impl Was {
    pub fn told(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Was::Unsigned(word) => word.into_bound_py_any(py),
            Was::Signed(word) => word.into_bound_py_any(py),
        }
    }
}

/// The kinds of changes, without their operands.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Add,
    And,
    Or,
    Xor,
    Min,
    Max,
    Swap,
    Replace,
}

impl Kind {
    fn of<W: Copy>(self, operand: W, compare: W) -> AtomicChange<W> {
        match self {
            Kind::Add => AtomicChange::Add(operand),
            Kind::And => AtomicChange::And(operand),
            Kind::Or => AtomicChange::Or(operand),
            Kind::Xor => AtomicChange::Xor(operand),
            Kind::Min => AtomicChange::Min(operand),
            Kind::Max => AtomicChange::Max(operand),
            Kind::Swap => AtomicChange::Swap(operand),
            Kind::Replace => AtomicChange::Replace(compare, operand),
        }
    }
}

impl Change {
    /// The change that a program names. `compare` is of `Kind::Replace` alone.
    ///
    /// # Errors
    /// `ValueError`: no such kind of word. `OverflowError`, `TypeError`: no value of it.
    pub fn new(
        kind: Kind,
        word: &str,
        operand: &Bound<'_, PyAny>,
        compare: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Change> {
        let compare = compare.unwrap_or(operand);
        Ok(match word {
            "u32" => Change::U32(kind.of(operand.extract()?, compare.extract()?)),
            "u64" => Change::U64(kind.of(operand.extract()?, compare.extract()?)),
            "i32" => Change::I32(kind.of(operand.extract()?, compare.extract()?)),
            "i64" => Change::I64(kind.of(operand.extract()?, compare.extract()?)),
            _ => {
                let why = format!("there is no word {word:?}: give u32, u64, i32 or i64");
                return Err(PyValueError::new_err(why));
            }
        })
    }

    /// Bytes of its word.
    pub fn size(&self) -> usize {
        match self {
            Change::U32(_) | Change::I32(_) => 4,
            Change::U64(_) | Change::I64(_) => 8,
        }
    }

    /// Changes the word of this process's own at `at`, in one order with the changes of peers.
    ///
    /// # Safety
    /// `at` is valid for reads and writes of [`Change::size`] bytes, at a multiple of that, and
    /// reached atomically only meanwhile.
    #[allow(unsafe_code)]
    pub unsafe fn here(self, at: *mut u8) -> Was {
        // SAFETY: by contract.
        unsafe {
            match self {
                Change::U32(change) => Was::Unsigned(change.apply(at.cast()).into()),
                Change::U64(change) => Was::Unsigned(change.apply(at.cast())),
                Change::I32(change) => Was::Signed(change.apply(at.cast()).into()),
                Change::I64(change) => Was::Signed(change.apply(at.cast())),
            }
        }
    }

    /// Posts the change of a word of a peer's.
    pub fn posted<N: Addressing>(self, remote: &Remote<N>, at: u64) -> Posted {
        match self {
            Change::U32(change) => Posted::U32(remote.atomic(at, change)),
            Change::U64(change) => Posted::U64(remote.atomic(at, change)),
            Change::I32(change) => Posted::I32(remote.atomic(at, change)),
            Change::I64(change) => Posted::I64(remote.atomic(at, change)),
        }
    }
}

/// A change of a peer's word under way.
pub(crate) enum Posted {
    U32(AtomicRequest<u32>),
    U64(AtomicRequest<u64>),
    I32(AtomicRequest<i32>),
    I64(AtomicRequest<i64>),
}

/// Runs an expression with the request, and makes its word a [`Was`].
macro_rules! with {
    ($posted:expr, $it:ident => $do:expr) => {
        match $posted {
            Posted::U32($it) => word($do, |was| Was::Unsigned(was.into())),
            Posted::U64($it) => word($do, Was::Unsigned),
            Posted::I32($it) => word($do, |was| Was::Signed(was.into())),
            Posted::I64($it) => word($do, Was::Signed),
        }
    };
}

fn word<W: AtomicWord>(
    ended: Option<Result<W, Error>>,
    of: impl FnOnce(W) -> Was,
) -> Option<Result<Was, Error>> {
    ended.map(|ended| ended.map(of))
}

impl Posted {
    pub fn try_wait(&mut self) -> Option<Result<Was, Error>> {
        with!(self, it => it.try_wait())
    }

    pub fn wait(&mut self, limit: Duration) -> Option<Result<Was, Error>> {
        with!(self, it => it.wait_timeout(limit))
    }

    pub fn cancel(&mut self) -> bool {
        match self {
            Posted::U32(it) => it.cancel(),
            Posted::U64(it) => it.cancel(),
            Posted::I32(it) => it.cancel(),
            Posted::I64(it) => it.cancel(),
        }
    }
}

/// Memory with words.
pub(crate) trait Words {
    /// Changes the word at a place, and returns what it was.
    fn changed<'py>(&self, py: Python<'py>, at: u64, change: Change)
    -> PyResult<Bound<'py, PyAny>>;
}

/// The atomic operations of a class that has [`Words`].
macro_rules! atomic_operations {
    ($class:ident) => {
        #[pyo3::pymethods]
        impl $class {
            /// Adds `by` to the word at a place, wrapping, and returns what it was. `word` is
            /// "u32", "u64", "i32" or "i64"; places are multiples of its size.
            #[pyo3(signature = (at, by, word="u64"))]
            fn fetch_add<'py>(
                &self,
                py: Python<'py>,
                at: u64,
                by: &Bound<'py, PyAny>,
                word: &str,
            ) -> PyResult<Bound<'py, PyAny>> {
                self.changed(py, at, Change::new(Kind::Add, word, by, None)?)
            }

            /// Makes the word its bitwise and with `bits`; returns what it was.
            #[pyo3(signature = (at, bits, word="u64"))]
            fn fetch_and<'py>(
                &self,
                py: Python<'py>,
                at: u64,
                bits: &Bound<'py, PyAny>,
                word: &str,
            ) -> PyResult<Bound<'py, PyAny>> {
                self.changed(py, at, Change::new(Kind::And, word, bits, None)?)
            }

            /// Makes the word its bitwise or with `bits`; returns what it was.
            #[pyo3(signature = (at, bits, word="u64"))]
            fn fetch_or<'py>(
                &self,
                py: Python<'py>,
                at: u64,
                bits: &Bound<'py, PyAny>,
                word: &str,
            ) -> PyResult<Bound<'py, PyAny>> {
                self.changed(py, at, Change::new(Kind::Or, word, bits, None)?)
            }

            /// Makes the word its bitwise exclusive or with `bits`; returns what it was.
            #[pyo3(signature = (at, bits, word="u64"))]
            fn fetch_xor<'py>(
                &self,
                py: Python<'py>,
                at: u64,
                bits: &Bound<'py, PyAny>,
                word: &str,
            ) -> PyResult<Bound<'py, PyAny>> {
                self.changed(py, at, Change::new(Kind::Xor, word, bits, None)?)
            }

            /// Makes the word the lesser of itself and `value`; returns what it was.
            #[pyo3(signature = (at, value, word="u64"))]
            fn fetch_min<'py>(
                &self,
                py: Python<'py>,
                at: u64,
                value: &Bound<'py, PyAny>,
                word: &str,
            ) -> PyResult<Bound<'py, PyAny>> {
                self.changed(py, at, Change::new(Kind::Min, word, value, None)?)
            }

            /// Makes the word the greater of itself and `value`; returns what it was.
            #[pyo3(signature = (at, value, word="u64"))]
            fn fetch_max<'py>(
                &self,
                py: Python<'py>,
                at: u64,
                value: &Bound<'py, PyAny>,
                word: &str,
            ) -> PyResult<Bound<'py, PyAny>> {
                self.changed(py, at, Change::new(Kind::Max, word, value, None)?)
            }

            /// Makes the word `value`; returns what it was.
            #[pyo3(signature = (at, value, word="u64"))]
            fn swap<'py>(
                &self,
                py: Python<'py>,
                at: u64,
                value: &Bound<'py, PyAny>,
                word: &str,
            ) -> PyResult<Bound<'py, PyAny>> {
                self.changed(py, at, Change::new(Kind::Swap, word, value, None)?)
            }

            /// Makes the word `value` if it is `expected`; returns what it was.
            #[pyo3(signature = (at, expected, value, word="u64"))]
            fn compare_swap<'py>(
                &self,
                py: Python<'py>,
                at: u64,
                expected: &Bound<'py, PyAny>,
                value: &Bound<'py, PyAny>,
                word: &str,
            ) -> PyResult<Bound<'py, PyAny>> {
                self.changed(py, at, Change::new(Kind::Replace, word, value, Some(expected))?)
            }
        }
    };
}
pub(crate) use atomic_operations;
