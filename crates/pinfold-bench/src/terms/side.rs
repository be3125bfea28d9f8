//! The two processes of a pair.

/// The process of the pair that this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Says what is measured, holds the watch and prints.
    First,
    /// Follows the first one's orders.
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
