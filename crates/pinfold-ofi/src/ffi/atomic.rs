//! Atomic operations: their table and the descriptions of operands.

use std::ffi::{c_int, c_void};

use super::{ep::FidEp, object::FiAddr};

/// `struct fi_ioc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FiIoc {
    pub addr: *mut c_void,
    pub count: usize,
}

/// `struct fi_rma_ioc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FiRmaIoc {
    pub addr: u64,
    pub count: usize,
    pub key: u64,
}

/// `struct fi_msg_atomic`.
#[repr(C)]
pub struct FiMsgAtomic {
    pub msg_iov: *const FiIoc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: FiAddr,
    pub rma_iov: *const FiRmaIoc,
    pub rma_iov_count: usize,
    pub datatype: c_int,
    pub op: c_int,
    pub context: *mut c_void,
    pub data: u64,
}

/// Words that stand in every call: the endpoint, the address of the peer, address and key of the memory, type and
/// operation. The functions' types are spelled out by these.
type Buf = *const c_void;
type Desc = *mut c_void;
type Descs = *mut *mut c_void;

pub type Write = unsafe extern "C" fn(
    *mut FidEp,
    Buf,
    usize,
    Desc,
    FiAddr,
    u64,
    u64,
    c_int,
    c_int,
    *mut c_void,
) -> isize;
pub type Writev = unsafe extern "C" fn(
    *mut FidEp,
    *const FiIoc,
    Descs,
    usize,
    FiAddr,
    u64,
    u64,
    c_int,
    c_int,
    *mut c_void,
) -> isize;
pub type Writemsg = unsafe extern "C" fn(*mut FidEp, *const FiMsgAtomic, u64) -> isize;
pub type Inject =
    unsafe extern "C" fn(*mut FidEp, Buf, usize, FiAddr, u64, u64, c_int, c_int) -> isize;
pub type Readwrite = unsafe extern "C" fn(
    *mut FidEp,
    Buf,
    usize,
    Desc,
    *mut c_void,
    Desc,
    FiAddr,
    u64,
    u64,
    c_int,
    c_int,
    *mut c_void,
) -> isize;
pub type Readwritev = unsafe extern "C" fn(
    *mut FidEp,
    *const FiIoc,
    Descs,
    usize,
    *mut FiIoc,
    Descs,
    usize,
    FiAddr,
    u64,
    u64,
    c_int,
    c_int,
    *mut c_void,
) -> isize;
pub type Readwritemsg =
    unsafe extern "C" fn(*mut FidEp, *const FiMsgAtomic, *mut FiIoc, Descs, usize, u64) -> isize;
pub type Compwrite = unsafe extern "C" fn(
    *mut FidEp,
    Buf,
    usize,
    Desc,
    Buf,
    Desc,
    *mut c_void,
    Desc,
    FiAddr,
    u64,
    u64,
    c_int,
    c_int,
    *mut c_void,
) -> isize;
pub type Compwritev = unsafe extern "C" fn(
    *mut FidEp,
    *const FiIoc,
    Descs,
    usize,
    *const FiIoc,
    Descs,
    usize,
    *mut FiIoc,
    Descs,
    usize,
    FiAddr,
    u64,
    u64,
    c_int,
    c_int,
    *mut c_void,
) -> isize;
pub type Compwritemsg = unsafe extern "C" fn(
    *mut FidEp,
    *const FiMsgAtomic,
    *const FiIoc,
    Descs,
    usize,
    *mut FiIoc,
    Descs,
    usize,
    u64,
) -> isize;
pub type Valid = unsafe extern "C" fn(*mut FidEp, c_int, c_int, *mut usize) -> c_int;

/// `struct fi_ops_atomic`.
#[repr(C)]
pub struct FiOpsAtomic {
    pub size: usize,
    pub write: Write,
    pub writev: Writev,
    pub writemsg: Writemsg,
    pub inject: Inject,
    pub readwrite: Readwrite,
    pub readwritev: Readwritev,
    pub readwritemsg: Readwritemsg,
    pub compwrite: Compwrite,
    pub compwritev: Compwritev,
    pub compwritemsg: Compwritemsg,
    pub writevalid: Valid,
    pub readwritevalid: Valid,
    pub compwritevalid: Valid,
}

const _: () = {
    assert!(size_of::<FiIoc>() == 16 && size_of::<FiRmaIoc>() == 24);
    assert!(size_of::<FiMsgAtomic>() == 72 && size_of::<FiOpsAtomic>() == 112);
};
