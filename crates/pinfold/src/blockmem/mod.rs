//! Copying and zeroing blocks of memory, each by the algorithm that suits where its source and
//! destination are cached, its size, and who reads next.
//!
//! After Calhoun, *Characterization of Block Memory Operations*: no one algorithm is best.
//!
//! - [`Site`]: what one call site has learnt, and [`Sites`], the callers of late.
//! - [`Handler`]: where bulk copies go through; [`copy`], [`zero`] and [`move_within`] are for slices.
//! - [`engine`]: copies that go on while their callers do something else.

pub mod engine;
mod facts;
mod handler;
mod sites;

pub use facts::{CacheState, Reader};
pub use handler::{
    Block, BlockError, Choose, Count, Counts, Done, Fixed, Handler, Hints, Merged, Piece, SHORT,
    SIZES, Tally, copy, counts, merge, move_within, size_class, zero,
};
pub use pinfold_sys::block::{Algorithm, Isa, Prefetch, Stores};
pub use sites::{CANDIDATES_MAX, Caller, Choice, Site, SiteCount, Sites};
