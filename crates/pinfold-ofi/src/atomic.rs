//! Atomic operations on memory of peers.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use crate::{
    ffi::{
        atomic::{FiIoc, FiMsgAtomic, FiOpsAtomic},
        ep::FidEp,
        object::{FiAtomicAttr, FidDomain},
    },
    guard::refusals,
};

pub static OPS: FiOpsAtomic = FiOpsAtomic {
    size: size_of::<FiOpsAtomic>(),
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid: valid,
    readwritevalid: valid,
    compwritevalid: valid,
};

refusals! {
    write(
        *mut FidEp, *const c_void, usize, *mut c_void, u64, u64, u64, c_int, c_int, *mut c_void
    ) -> isize;
    writev(
        *mut FidEp, *const FiIoc, *mut *mut c_void, usize, u64, u64, u64, c_int, c_int, *mut c_void
    ) -> isize;
    writemsg(*mut FidEp, *const FiMsgAtomic, u64) -> isize;
    inject(*mut FidEp, *const c_void, usize, u64, u64, u64, c_int, c_int) -> isize;
    readwrite(
        *mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, u64,
        c_int, c_int, *mut c_void
    ) -> isize;
    readwritev(
        *mut FidEp, *const FiIoc, *mut *mut c_void, usize, *mut FiIoc, *mut *mut c_void, usize, u64,
        u64, u64, c_int, c_int, *mut c_void
    ) -> isize;
    readwritemsg(
        *mut FidEp, *const FiMsgAtomic, *mut FiIoc, *mut *mut c_void, usize, u64
    ) -> isize;
    compwrite(
        *mut FidEp, *const c_void, usize, *mut c_void, *const c_void, *mut c_void, *mut c_void,
        *mut c_void, u64, u64, u64, c_int, c_int, *mut c_void
    ) -> isize;
    compwritev(
        *mut FidEp, *const FiIoc, *mut *mut c_void, usize, *const FiIoc, *mut *mut c_void, usize,
        *mut FiIoc, *mut *mut c_void, usize, u64, u64, u64, c_int, c_int, *mut c_void
    ) -> isize;
    compwritemsg(
        *mut FidEp, *const FiMsgAtomic, *const FiIoc, *mut *mut c_void, usize, *mut FiIoc,
        *mut *mut c_void, usize, u64
    ) -> isize;
    valid(*mut FidEp, c_int, c_int, *mut usize) -> c_int;
    query(*mut FidDomain, c_int, c_int, *mut FiAtomicAttr, u64) -> c_int;
}
