//! Shared-memory lanes: descriptors, bulk bytes, bells, claims and visits between two processes.

pub(crate) mod bell;
#[cfg(not(loom))]
pub(crate) mod budget;
pub(crate) mod bulk;
pub(crate) mod claim;
#[cfg(not(loom))]
pub(crate) mod copies;
#[cfg(not(loom))]
pub(crate) mod lane;
pub(crate) mod ring;
#[cfg(not(loom))]
pub(crate) mod segment;
pub(crate) mod standing;
#[cfg(not(loom))]
pub(crate) mod stride;
pub(crate) mod visit;
#[cfg(not(loom))]
pub(crate) mod visits;

#[cfg(test)]
mod model_tests;
