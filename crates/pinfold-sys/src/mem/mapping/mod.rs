//! Memory mapped from a shared file.
//!
//! Another process may write every byte of it at any time, so nothing here makes a reference into
//! it.

mod readonly;
mod shared;
mod span;
#[cfg(test)]
mod tests;

pub use self::{readonly::ReadOnlyMapping, shared::SharedMapping};
