//! The checks of kept memory before a hit is believed: a type, so that they cost nothing.

mod sealed {
    pub trait Sealed {}
}

/// The checks of kept memory before a hit is believed.
pub trait Validation: sealed::Sealed + Send + Sync + 'static {
    /// True if events of changes are checked for.
    const CHECKS: bool;
    /// True if a hit looks which pages are there.
    const LOOKS: bool;
}

/// Kept memory is checked.
#[derive(Debug)]
pub enum Watched {}

/// Only changes that are told are heard, and transfers carry wrong bytes after those that are not:
/// for tests that show the use of looking.
#[doc(hidden)]
#[derive(Debug)]
pub enum Heard {}

/// Kept memory is not checked, and transfers carry wrong bytes when memory changes: for tests that
/// show the use of checking.
#[doc(hidden)]
#[derive(Debug)]
pub enum Blind {}

impl sealed::Sealed for Watched {}
impl sealed::Sealed for Heard {}
impl sealed::Sealed for Blind {}

impl Validation for Watched {
    const CHECKS: bool = true;
    const LOOKS: bool = true;
}

impl Validation for Heard {
    const CHECKS: bool = true;
    const LOOKS: bool = false;
}

impl Validation for Blind {
    const CHECKS: bool = false;
    const LOOKS: bool = false;
}
