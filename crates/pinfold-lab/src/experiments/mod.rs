//! The experiments: a folder for each paper, a file for each experiment.

pub mod ape;
pub mod bmo;
pub mod pm;
pub mod unet;
pub mod vmmr;
