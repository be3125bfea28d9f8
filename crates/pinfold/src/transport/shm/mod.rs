//! Shared-memory lanes: descriptors, bulk bytes, bells, claims and hazard words between two
//! processes.

#[cfg(not(loom))]
pub(crate) mod budget;
pub(crate) mod bulk;
pub(crate) mod claim;
#[cfg(not(loom))]
pub(crate) mod copy_learner;
pub(crate) mod doorbell;
#[cfg(not(loom))]
pub(crate) mod fragment;
pub(crate) mod hazard;
#[cfg(not(loom))]
pub(crate) mod hazards;
#[cfg(not(loom))]
pub(crate) mod lane;
pub(crate) mod laps;
#[cfg(not(loom))]
pub(crate) mod link;
pub(crate) mod ring;
#[cfg(not(loom))]
pub(crate) mod segment;
pub(crate) mod validity;

#[cfg(test)]
mod model_tests;
