//! Memory regions.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use crate::{
    ffi::object::{FiMrAttr, FiOpsMr, Fid, FidMr},
    guard::refusals,
};

pub static OPS: FiOpsMr = FiOpsMr { size: size_of::<FiOpsMr>(), reg, regv, regattr };

refusals! {
    reg(
        *mut Fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void
    ) -> c_int;
    regv(
        *mut Fid, *const libc::iovec, usize, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void
    ) -> c_int;
    regattr(*mut Fid, *const FiMrAttr, u64, *mut *mut FidMr) -> c_int;
}
