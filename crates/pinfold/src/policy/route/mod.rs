//! The path of a message, its expected cost, and its observed cost.
//!
//! Everything here but `calibrate` and `keep` is policy without I/O: sizes, times and facts go in,
//! decisions come out.

mod asking;
mod calibrate;
mod choose;
mod cost;
pub(crate) mod halves;
mod keep;
mod learn;
mod path;
mod pin_limits;
mod receipt;
mod refusal;
mod send_costs;
mod send_modes;
mod send_route;

pub(crate) use asking::Asking;
pub use choose::INLINE_MAX;
pub(crate) use choose::{Permissions, choose, choose_ring, choose_strict, ring_is_settled};
pub use cost::{CostModel, Line};
pub(crate) use halves::{Half, Halves, TOLD_FROM};
pub(crate) use keep::{measures, model};
pub(crate) use learn::Learner;
pub use path::{Path, PathSet};
pub use pin_limits::PinLimits;
pub use receipt::Receipt;
pub(crate) use receipt::Why;
pub(crate) use refusal::MISSING;
pub use refusal::Refusal;
pub use send_modes::{
    CostCurve, DIRECT_FROM, Outgoing, PAGES_MAX, SendCost, SendDriver, SendMemory, SendMode,
    SendModes, SendPicker, SentFrom, SourceCost,
};
pub(crate) use send_route::SendRoute;
