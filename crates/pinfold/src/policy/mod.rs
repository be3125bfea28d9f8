//! Policy: plain state that is handed sizes and times and hands back decisions; no I/O but the
//! route's calibration.

pub(crate) mod backoff;
// The rest is for tests, measurements and simulators.
#[cfg_attr(not(feature = "internals"), allow(dead_code, unused_imports))]
pub mod route;
pub(crate) mod sleep;
pub(crate) mod spin;
pub(crate) mod two_way;
