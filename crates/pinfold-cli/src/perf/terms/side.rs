//! The two processes of a pair.

/// Which process of the pair this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Says what is measured, holds the watch and prints.
    First,
    /// Does as it is told.
    Second,
}

impl Side {
    /// The other one.
    pub(crate) const fn other(self) -> Side {
        match self {
            Side::First => Side::Second,
            Side::Second => Side::First,
        }
    }
}
