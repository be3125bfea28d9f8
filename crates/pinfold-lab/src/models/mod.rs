//! Models of the papers' hardware: a small file each, its parameters on top with their sources.
//! Everything is deterministic from its parameters and a seed.

pub mod again;
pub mod ape25;
pub mod cache;
pub mod copying;
pub mod dram;
pub mod driver;
pub mod engine;
pub mod eviction;
pub mod hierarchy;
pub mod offload;
pub mod pm;
pub mod ppc601;
pub mod predictor;
pub mod present;
pub mod residency;
pub mod sbus;
pub mod sets;
pub mod unet;
