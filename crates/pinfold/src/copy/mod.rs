//! Copying and zeroing blocks of memory, each by the algorithm that suits the places where its
//! source and destination are cached, its size, and its next reader.
//!
//! After Calhoun, *Characterization of Block Memory Operations*: no one algorithm is best.
//!
//! - [`copy`], [`zero`], [`move_within`]: for slices; [`copy_pieces`]: many at once.
//! - [`Handler`]: all bulk copies go through it; asks a [`Site`], which learns the time of its
//!   copies, and else the plan. [`Sites`]: the callers of late.
//! - [`plan()`]: the plan of this process; [`Plan::pick`] chooses the algorithm for a [`Block`].
//! - [`table`]: the table of a plan; [`tuned`]: kept for this [`Machine`]; [`tune()`]: measured.
//! - [`probe()`]: tells whether a block is cached, if the processor's clock can tell.
//! - [`engine`]: copies that go on while their callers do something else.

pub mod class;
mod copier;
pub mod engine;
mod facts;
mod handler;
mod in_force;
mod largest;
mod machine;
mod plan;
mod planned;
#[cfg(any(test, feature = "internals"))]
mod probe;
mod sites;
pub mod table;
#[cfg(any(test, feature = "internals"))]
mod tune;
pub mod tuned;

pub(crate) use copier::{BULK, Copier, CopyBytes};
pub use facts::{CacheState, Reader};
pub(crate) use handler::copy_for;
pub use handler::{
    BlockError, Choose, Count, Counts, Done, Fixed, Handler, Hints, InForce, Piece, PiecesDone,
    SHORT, SIZES, Tally, copy, copy_pieces, counts, move_within, size_class, zero,
};
pub use in_force::{TooLate, insist, plan};
pub(crate) use largest::Largest;
pub use machine::{Machine, Maker};
pub use pinfold_sys::cpu::block::{Algorithm, Isa, Prefetch, Stores};
pub use plan::{Block, Origin, Plan};
pub use planned::copy_as_planned;
#[cfg(any(test, feature = "internals"))]
pub use probe::{CannotTell, Probe, probe};
pub use sites::{CANDIDATES_MAX, Caller, Choice, LEARNT_MIN, Site, SiteCount, Sites};
#[cfg(any(test, feature = "internals"))]
pub use tune::{CannotTune, Found, tune};
