//! Atomic operations on words, as peers ask for them.

/// The change that has two operands.
const REPLACE: u8 = 7;

/// An atomic operation on a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Below 8; 7 has two operands.
    pub does: u8,
    pub word: Word,
    pub with: u64,
    pub other: u64,
}

/// Kinds of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    U32 = 0,
    U64 = 1,
    I32 = 2,
    I64 = 3,
}

impl Word {
    pub(crate) const ALL: [Word; 4] = [Word::U32, Word::U64, Word::I32, Word::I64];

    /// Its size, bytes.
    pub(crate) const fn size(self) -> u64 {
        match self {
            Word::U32 | Word::I32 => 4,
            Word::U64 | Word::I64 => 8,
        }
    }

    pub(super) const fn has(self, value: u64) -> bool {
        self.size() == 8 || value <= u32::MAX as u64
    }
}

impl Change {
    /// Codes of changes, and of the kinds of their words, are below this.
    pub(crate) const CODES: usize = 32;

    /// The number of the change and of the kind of its word.
    pub(crate) const fn code(&self) -> usize {
        self.does as usize * 4 + self.word as usize
    }

    /// Returns whether it has a second operand.
    pub(crate) const fn has_other(code: usize) -> bool {
        code / 4 == REPLACE as usize
    }

    /// The change of this code, which is below [`CODES`](Change::CODES), with its operands. `None`:
    /// no honest peer asks that.
    pub(crate) fn of_code(code: usize, with: u64, other: u64) -> Option<Change> {
        let word = Word::ALL[code % 4];
        let other = if Change::has_other(code) { other } else { 0 };
        let fits = word.has(with) && word.has(other);
        fits.then_some(Change { does: (code / 4) as u8, word, with, other })
    }
}
