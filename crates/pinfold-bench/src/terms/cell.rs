//! One row of what is measured.

use super::{setting::Setting, what::What};

/// One measure with one size under one setting: the subject of one row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) what: What,
    pub(crate) size: usize,
    pub(crate) touched: bool,
    pub(crate) setting: Setting,
}

#[cfg(test)]
impl Cell {
    /// A cell with nothing out of the ordinary.
    pub(crate) const fn alone(what: What, size: usize, touched: bool) -> Cell {
        Cell { what, size, touched, setting: Setting::Alone }
    }
}
