//! Tagged messages by libfabric, where it is installed: measurements set Pinfold beside them.
//!
//! libfabric is found when it is asked for, not when the program starts, and no header of it is
//! needed: its functions are few, versioned, and called through tables whose layout is in `abi`.
//!
//! - [`Endpoint`]: one end, over its provider for TCP.
//! - `library`: its loading, which leaves signals alone.

mod abi;
mod endpoint;
mod error;
mod library;
#[cfg(test)]
mod tests;

pub use self::{endpoint::Endpoint, error::Error};
