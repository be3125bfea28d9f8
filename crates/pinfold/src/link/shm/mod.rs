//! Shared-memory lanes: descriptors, bulk bytes, bells and claims between two processes.

pub(crate) mod bell;
#[cfg(not(loom))]
pub(crate) mod budget;
pub(crate) mod bulk;
pub(crate) mod claim;
#[cfg(not(loom))]
pub(crate) mod lane;
pub(crate) mod ring;
#[cfg(not(loom))]
pub(crate) mod segment;

#[cfg(test)]
mod model_tests;
