//! Words of 32 and 64 bits, and the atomic changes of them.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    time::Duration,
};

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

    /// Changes a word of this process's own, in one order with the changes of peers.
    pub fn here(self, word: Word<'_>) -> Was {
        match (self, word) {
            (Change::U64(change), Word::Long(word)) => Was::Unsigned(long(word, change, |w| w)),
            (Change::I64(change), Word::Long(word)) => {
                Was::Signed(long(word, change, u64::cast_signed))
            }
            (Change::U32(change), Word::Short(word)) => {
                Was::Unsigned(short(word, change, |w| w).into())
            }
            (Change::I32(change), Word::Short(word)) => {
                Was::Signed(short(word, change, u32::cast_signed).into())
            }
            // Callers take the word of `Change::size`.
            (_, Word::Long(word)) => Was::Unsigned(word.load(SeqCst)),
            (_, Word::Short(word)) => Was::Unsigned(word.load(SeqCst).into()),
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

/// A word of this process's own.
pub(crate) enum Word<'a> {
    Short(&'a AtomicU32),
    Long(&'a AtomicU64),
}

/// Arithmetic of words.
trait Arithmetic: Copy + Ord {
    fn sum(self, by: Self) -> Self;
    fn both(self, with: Self) -> Self;
    fn either(self, with: Self) -> Self;
    fn one(self, with: Self) -> Self;
}

macro_rules! arithmetic {
    ($($word:ty),*) => {$(
        impl Arithmetic for $word {
            fn sum(self, by: Self) -> Self { self.wrapping_add(by) }
            fn both(self, with: Self) -> Self { self & with }
            fn either(self, with: Self) -> Self { self | with }
            fn one(self, with: Self) -> Self { self ^ with }
        }
    )*};
}
arithmetic!(u32, u64, i32, i64);

/// The value of a word after a change.
fn changed<W: Arithmetic>(was: W, change: AtomicChange<W>) -> W {
    match change {
        AtomicChange::Add(by) => was.sum(by),
        AtomicChange::And(with) => was.both(with),
        AtomicChange::Or(with) => was.either(with),
        AtomicChange::Xor(with) => was.one(with),
        AtomicChange::Min(with) => was.min(with),
        AtomicChange::Max(with) => was.max(with),
        AtomicChange::Swap(to) => to,
        AtomicChange::Replace(from, to) if was == from => to,
        AtomicChange::Replace(..) => was,
    }
}

/// A word whose bits are those of an unsigned one.
trait Bits<B> {
    fn bits(self) -> B;
}

impl Bits<u32> for u32 {
    fn bits(self) -> u32 {
        self
    }
}

impl Bits<u64> for u64 {
    fn bits(self) -> u64 {
        self
    }
}

impl Bits<u32> for i32 {
    fn bits(self) -> u32 {
        self.cast_unsigned()
    }
}

impl Bits<u64> for i64 {
    fn bits(self) -> u64 {
        self.cast_unsigned()
    }
}

fn long<W: Arithmetic + Bits<u64>>(
    word: &AtomicU64,
    change: AtomicChange<W>,
    of: impl Fn(u64) -> W,
) -> W {
    let next = |was| Some(changed(of(was), change).bits());
    of(word.fetch_update(SeqCst, SeqCst, next).unwrap_or_else(|was| was))
}

fn short<W: Arithmetic + Bits<u32>>(
    word: &AtomicU32,
    change: AtomicChange<W>,
    of: impl Fn(u32) -> W,
) -> W {
    let next = |was| Some(changed(of(was), change).bits());
    of(word.fetch_update(SeqCst, SeqCst, next).unwrap_or_else(|was| was))
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
