//! Remote memory access: `fi_read`, `fi_write` and their like.
#![allow(unsafe_code)]

use std::ffi::c_void;

use crate::{
    ffi::ep::{FiMsgRma, FiOpsRma, FidEp},
    guard::refusals,
};

/// The capabilities that memory adds to those of messages.
pub const CAPS: u64 = 0;
/// The orders that are kept beside that of messages.
pub const ORDER: u64 = 0;
/// Parts of remote memory in an operation.
pub const PARTS_MAX: usize = 1;
/// Parts of a region.
pub const REGION_PARTS_MAX: usize = 1;
/// Bytes of operations that are in order.
pub const ORDERED_BYTES_MAX: usize = 0;

pub static OPS: FiOpsRma = FiOpsRma {
    size: size_of::<FiOpsRma>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

refusals! {
    read(*mut FidEp, *mut c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize;
    readv(
        *mut FidEp, *const libc::iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void
    ) -> isize;
    readmsg(*mut FidEp, *const FiMsgRma, u64) -> isize;
    write(*mut FidEp, *const c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize;
    writev(
        *mut FidEp, *const libc::iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void
    ) -> isize;
    writemsg(*mut FidEp, *const FiMsgRma, u64) -> isize;
    inject(*mut FidEp, *const c_void, usize, u64, u64, u64) -> isize;
    writedata(
        *mut FidEp, *const c_void, usize, *mut c_void, u64, u64, u64, u64, *mut c_void
    ) -> isize;
    injectdata(*mut FidEp, *const c_void, usize, u64, u64, u64, u64) -> isize;
}
