//! The names of operations.

/// Names an operation until it is taken off the table; never a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OpKey {
    pub index: u32,
    pub(super) generation: u32,
}

impl OpKey {
    /// The key as one number.
    pub(crate) fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The key with this number.
    pub(crate) fn of_word(word: u64) -> OpKey {
        OpKey { index: word as u32, generation: (word >> 32) as u32 }
    }
}
