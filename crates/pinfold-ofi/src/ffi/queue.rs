//! Completion queues and counters: tables, attributes and entries.

use std::ffi::{c_char, c_int, c_void};

use super::object::{FiAddr, Fid};

/// `struct fi_cq_attr` of 1.17; later fields are not read.
#[repr(C)]
pub struct FiCqAttr {
    pub size: usize,
    pub flags: u64,
    pub format: c_int,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_cond: c_int,
    pub wait_set: *mut c_void,
}

/// `struct fid_cq`.
#[repr(C)]
pub struct FidCq {
    pub fid: Fid,
    pub ops: *const FiOpsCq,
}

/// `struct fi_ops_cq`.
#[repr(C)]
pub struct FiOpsCq {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize,
    pub readfrom: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *mut FiAddr) -> isize,
    pub readerr: unsafe extern "C" fn(*mut FidCq, *mut FiCqErrEntry, u64) -> isize,
    pub sread: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *const c_void, c_int) -> isize,
    pub sreadfrom: unsafe extern "C" fn(
        *mut FidCq,
        *mut c_void,
        usize,
        *mut FiAddr,
        *const c_void,
        c_int,
    ) -> isize,
    pub signal: unsafe extern "C" fn(*mut FidCq) -> c_int,
    pub strerror:
        unsafe extern "C" fn(*mut FidCq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

/// `struct fi_cq_tagged_entry`; the entries of other formats are its beginnings.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiCqTaggedEntry {
    pub context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
}

/// `struct fi_cq_err_entry` of 1.17.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FiCqErrEntry {
    pub context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

/// `struct fi_cntr_attr` of 1.17; later fields are not read.
#[repr(C)]
pub struct FiCntrAttr {
    pub events: c_int,
    pub wait_obj: c_int,
    pub wait_set: *mut c_void,
    pub flags: u64,
}

/// `struct fid_cntr`.
#[repr(C)]
pub struct FidCntr {
    pub fid: Fid,
    pub ops: *const FiOpsCntr,
}

/// `struct fi_ops_cntr`.
#[repr(C)]
pub struct FiOpsCntr {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut FidCntr) -> u64,
    pub readerr: unsafe extern "C" fn(*mut FidCntr) -> u64,
    pub add: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
    pub set: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
    pub wait: unsafe extern "C" fn(*mut FidCntr, u64, c_int) -> c_int,
    pub adderr: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
    pub seterr: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
}

const _: () = {
    assert!(size_of::<FiCqAttr>() == 40 && size_of::<FiOpsCq>() == 64);
    assert!(size_of::<FiCqTaggedEntry>() == 48 && size_of::<FiCqErrEntry>() == 80);
    assert!(size_of::<FiCntrAttr>() == 24 && size_of::<FiOpsCntr>() == 64);
    assert!(size_of::<FidCq>() == 32 && size_of::<FidCntr>() == 32);
};
