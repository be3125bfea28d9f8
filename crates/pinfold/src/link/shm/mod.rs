//! Shared-memory lanes: descriptors, bulk bytes, bells and claims between two processes.

pub(crate) mod bell;
pub(crate) mod budget;
pub(crate) mod bulk;
pub(crate) mod claim;
pub(crate) mod lane;
pub(crate) mod ring;
pub(crate) mod segment;
