//! One row of what is measured.

use super::what::What;

/// One measure with one size: what one row of a table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) what: What,
    pub(crate) size: usize,
    pub(crate) touched: bool,
}
