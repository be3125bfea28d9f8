//! Whether what is kept is checked before it is believed: a type, so that it costs nothing.

mod sealed {
    pub trait Sealed {}
}

/// Whether what is kept is checked before it is believed.
pub trait Validation: sealed::Sealed + Send + Sync + 'static {
    /// Whether it is.
    const CHECKS: bool;
}

/// It is checked.
#[derive(Debug)]
pub enum Watched {}

/// It is not, and transfers carry wrong bytes when memory changes: for tests that show what checking
/// is for.
#[doc(hidden)]
#[derive(Debug)]
pub enum Blind {}

impl sealed::Sealed for Watched {}
impl sealed::Sealed for Blind {}

impl Validation for Watched {
    const CHECKS: bool = true;
}

impl Validation for Blind {
    const CHECKS: bool = false;
}
