//! Copying and zeroing blocks of memory, each by the algorithm that suits where its source and
//! destination are cached, its size, and who reads next.
//!
//! After Calhoun, *Characterization of Block Memory Operations*: no one algorithm is best.
//!
//! - [`plan()`]: the plan of this process; [`Plan::pick`] says which algorithm for which [`Block`].
//! - [`table`]: what it looks into; [`tuned`]: kept for this [`Machine`]; [`tune()`]: measured.
//! - [`probe()`]: whether a block is cached, where the processor's clock can tell.

mod facts;
mod in_force;
mod machine;
mod plan;
mod probe;
pub mod table;
mod tune;
pub mod tuned;

pub use facts::{CacheState, Reader};
pub use in_force::plan;
pub use machine::Machine;
pub use pinfold_sys::block::{Algorithm, Isa, Prefetch, Stores};
pub use plan::{Block, Origin, Plan};
pub use probe::{CannotTell, Probe, probe};
pub use tune::{CannotTune, Found, tune};
