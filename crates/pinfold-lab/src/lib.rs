//! The lab: experiments of the five papers that Pinfold stands on, by model and on this machine.
//!
//! Each experiment has up to three columns. *Paper* is the stated value, *model* the paper's
//! hardware simulated from parameters that the paper or a data sheet states, *here* a measurement
//! on this machine. A claim is the shape that the paper says its values have; it is judged in the
//! model and here.
//!
//! The modules, top to bottom; each uses only those below it:
//!
//! - [`size`]: settings for a program, by the library's own policies and a trace.
//! - [`report`], [`table`], [`plot`], [`compare`]: the ways to show results.
//! - [`runner`], [`store`]: running what is not stored yet; the results that are kept.
//! - [`registry`]: the table of all experiments.
//! - [`experiments`]: a folder for each paper, a file for each experiment.
//! - [`here`]: measurements on this machine.
//! - [`models`]: the papers' hardware, a file each, parameters on top.
//! - [`workloads`]: parallel programs whose transfers are traced.
//! - [`trace`]: recorded traces of any program's buffers: recording, files, tools.
//! - [`experiment`], [`outcome`], [`agreement`]: an experiment, its results, and their judgement.
//! - [`clock`], [`random`]: virtual time and seeded randomness, for models.
//! - [`golden`]: the committed tables that models are compared with.
//!
//! To add an experiment: write the hardware's model below `models/`, with the source of every
//! parameter; write a file below `experiments/PAPER/` with a function that takes a
//! [`Run`](experiment::Run) and returns an [`Outcome`](outcome::Outcome); add a line to the paper's
//! table in `experiments/PAPER/mod.rs`; make the golden table with
//! `PINFOLD_LAB_GOLDEN=write cargo test -p pinfold-lab --test golden`, and read it.

pub mod agreement;
pub mod clock;
pub mod compare;
mod error;
pub mod experiment;
pub mod experiments;
pub mod golden;
pub mod here;
pub mod models;
pub mod outcome;
pub mod plot;
pub mod random;
pub mod registry;
pub mod report;
pub mod runner;
pub mod size;
pub mod store;
pub mod table;
pub mod trace;
pub mod workloads;

pub use error::LabError;
