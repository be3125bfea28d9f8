//! Memory: mappings, files, pages, pins.

pub mod advice;
pub mod fault_safe_change;
pub mod fault_safe_copy;
pub mod frames;
pub mod mapping;
pub mod maps;
pub mod memfd;
pub(crate) mod pagemap;
pub mod pin;
pub mod prefault;
pub mod presence;
pub mod reserved;
pub(crate) mod resident;
pub mod userfault;
