//! Counters.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use crate::{
    ffi::{
        flags::FI_CLASS_CNTR,
        object::FidDomain,
        queue::{FiCntrAttr, FidCntr},
    },
    guard::refusals,
    handle::Face,
};

/// A counter.
pub struct Cntr;

impl Face for FidCntr {
    type Inner = Cntr;
    const CLASS: usize = FI_CLASS_CNTR;
}

impl Cntr {
    /// An operation that it counts has ended well.
    pub fn count(&self) {}

    /// An operation that it counts has failed.
    pub fn count_failed(&self) {}
}

refusals! {
    open(*mut FidDomain, *mut FiCntrAttr, *mut *mut FidCntr, *mut c_void) -> c_int;
}
