//! Copying and zeroing blocks of memory, each by the algorithm that suits where its source and
//! destination are cached, its size, and who reads next.
//!
//! After Calhoun, *Characterization of Block Memory Operations*: no one algorithm is best.

mod facts;

pub use facts::{CacheState, Reader};
pub use pinfold_sys::block::{Algorithm, Isa, Prefetch, Stores};
