//! Whether what is kept is checked before it is believed: a type, so that it costs nothing.

mod sealed {
    pub trait Sealed {}
}

/// Whether what is kept is checked before it is believed.
pub trait Validation: sealed::Sealed + Send + Sync + 'static {
    /// Whether what was told of changes is.
    const CHECKS: bool;
    /// Whether it is looked which pages are there.
    const LOOKS: bool;
}

/// It is checked.
#[derive(Debug)]
pub enum Watched {}

/// Only what is told of changes is heard, and transfers carry wrong bytes after those that nobody tells of:
/// for tests that show what looking is for.
#[doc(hidden)]
#[derive(Debug)]
pub enum Heard {}

/// It is not, and transfers carry wrong bytes when memory changes: for tests that show what checking
/// is for.
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
