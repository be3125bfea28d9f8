//! The beginnings of all objects, and the tables of fabrics, domains, address vectors, memory and event queues.

use std::ffi::{c_char, c_int, c_void};

use super::{
    ep::FidEp,
    info::{FiFabricAttr, FiInfo},
    queue::{FiCntrAttr, FiCqAttr, FidCntr, FidCq},
};

/// An address as it is in an address vector: `fi_addr_t`.
pub type FiAddr = u64;

/// `struct fid`: the beginning of every object.
#[repr(C)]
pub struct Fid {
    pub class: usize,
    pub context: *mut c_void,
    pub ops: *const FiOps,
}

/// `struct fi_ops`.
#[repr(C)]
pub struct FiOps {
    pub size: usize,
    pub close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
    pub ops_open:
        unsafe extern "C" fn(*mut Fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int,
    pub tostr: unsafe extern "C" fn(*const Fid, *mut c_char, usize) -> c_int,
    pub ops_set:
        unsafe extern "C" fn(*mut Fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int,
}

/// `struct fi_provider`.
#[repr(C)]
pub struct FiProvider {
    pub version: u32,
    pub fi_version: u32,
    pub context: [*mut c_void; 4],
    pub name: *const c_char,
    pub getinfo: unsafe extern "C" fn(
        u32,
        *const c_char,
        *const c_char,
        u64,
        *const FiInfo,
        *mut *mut FiInfo,
    ) -> c_int,
    pub fabric: unsafe extern "C" fn(*mut FiFabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
    pub cleanup: unsafe extern "C" fn(),
}

/// `struct fid_fabric`.
#[repr(C)]
pub struct FidFabric {
    pub fid: Fid,
    pub ops: *const FiOpsFabric,
    pub api_version: u32,
}

/// `struct fi_ops_fabric`.
#[repr(C)]
pub struct FiOpsFabric {
    pub size: usize,
    pub domain: unsafe extern "C" fn(
        *mut FidFabric,
        *mut FiInfo,
        *mut *mut FidDomain,
        *mut c_void,
    ) -> c_int,
    pub passive_ep:
        unsafe extern "C" fn(*mut FidFabric, *mut FiInfo, *mut *mut c_void, *mut c_void) -> c_int,
    pub eq_open:
        unsafe extern "C" fn(*mut FidFabric, *mut FiEqAttr, *mut *mut FidEq, *mut c_void) -> c_int,
    pub wait_open: unsafe extern "C" fn(*mut FidFabric, *mut c_void, *mut *mut c_void) -> c_int,
    pub trywait: unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int,
    pub domain2: unsafe extern "C" fn(
        *mut FidFabric,
        *mut FiInfo,
        *mut *mut FidDomain,
        u64,
        *mut c_void,
    ) -> c_int,
}

/// `struct fid_domain`.
#[repr(C)]
pub struct FidDomain {
    pub fid: Fid,
    pub ops: *const FiOpsDomain,
    pub mr: *const FiOpsMr,
}

/// `struct fi_ops_domain`.
#[repr(C)]
pub struct FiOpsDomain {
    pub size: usize,
    pub av_open:
        unsafe extern "C" fn(*mut FidDomain, *mut FiAvAttr, *mut *mut FidAv, *mut c_void) -> c_int,
    pub cq_open:
        unsafe extern "C" fn(*mut FidDomain, *mut FiCqAttr, *mut *mut FidCq, *mut c_void) -> c_int,
    pub endpoint:
        unsafe extern "C" fn(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, *mut c_void) -> c_int,
    pub scalable_ep:
        unsafe extern "C" fn(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, *mut c_void) -> c_int,
    pub cntr_open: unsafe extern "C" fn(
        *mut FidDomain,
        *mut FiCntrAttr,
        *mut *mut FidCntr,
        *mut c_void,
    ) -> c_int,
    pub poll_open: unsafe extern "C" fn(*mut FidDomain, *mut c_void, *mut *mut c_void) -> c_int,
    pub stx_ctx:
        unsafe extern "C" fn(*mut FidDomain, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
    pub srx_ctx:
        unsafe extern "C" fn(*mut FidDomain, *mut c_void, *mut *mut FidEp, *mut c_void) -> c_int,
    pub query_atomic:
        unsafe extern "C" fn(*mut FidDomain, c_int, c_int, *mut FiAtomicAttr, u64) -> c_int,
    pub query_collective: unsafe extern "C" fn(*mut FidDomain, c_int, *mut c_void, u64) -> c_int,
    pub endpoint2: unsafe extern "C" fn(
        *mut FidDomain,
        *mut FiInfo,
        *mut *mut FidEp,
        u64,
        *mut c_void,
    ) -> c_int,
}

/// `struct fi_atomic_attr`.
#[repr(C)]
pub struct FiAtomicAttr {
    pub count: usize,
    pub size: usize,
}

/// `struct fi_ops_mr`.
#[repr(C)]
pub struct FiOpsMr {
    pub size: usize,
    pub reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub regv: unsafe extern "C" fn(
        *mut Fid,
        *const libc::iovec,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub regattr: unsafe extern "C" fn(*mut Fid, *const FiMrAttr, u64, *mut *mut FidMr) -> c_int,
}

/// `struct fid_mr`.
#[repr(C)]
pub struct FidMr {
    pub fid: Fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

/// `struct fi_mr_attr` of 1.17; later fields are not read.
#[repr(C)]
pub struct FiMrAttr {
    pub mr_iov: *const libc::iovec,
    pub iov_count: usize,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    pub iface: c_int,
    pub device: u64,
}

/// `struct fi_av_attr`.
#[repr(C)]
pub struct FiAvAttr {
    pub kind: c_int,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

/// `struct fid_av`.
#[repr(C)]
pub struct FidAv {
    pub fid: Fid,
    pub ops: *const FiOpsAv,
}

/// `struct fi_ops_av` of 1.17.
#[repr(C)]
pub struct FiOpsAv {
    pub size: usize,
    pub insert: unsafe extern "C" fn(
        *mut FidAv,
        *const c_void,
        usize,
        *mut FiAddr,
        u64,
        *mut c_void,
    ) -> c_int,
    pub insertsvc: unsafe extern "C" fn(
        *mut FidAv,
        *const c_char,
        *const c_char,
        *mut FiAddr,
        u64,
        *mut c_void,
    ) -> c_int,
    pub insertsym: unsafe extern "C" fn(
        *mut FidAv,
        *const c_char,
        usize,
        *const c_char,
        usize,
        *mut FiAddr,
        u64,
        *mut c_void,
    ) -> c_int,
    pub remove: unsafe extern "C" fn(*mut FidAv, *mut FiAddr, usize, u64) -> c_int,
    pub lookup: unsafe extern "C" fn(*mut FidAv, FiAddr, *mut c_void, *mut usize) -> c_int,
    pub straddr:
        unsafe extern "C" fn(*mut FidAv, *const c_void, *mut c_char, *mut usize) -> *const c_char,
    pub av_set:
        unsafe extern "C" fn(*mut FidAv, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
}

/// `struct fi_eq_attr`.
#[repr(C)]
pub struct FiEqAttr {
    pub size: usize,
    pub flags: u64,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_set: *mut c_void,
}

/// `struct fid_eq`.
#[repr(C)]
pub struct FidEq {
    pub fid: Fid,
    pub ops: *const FiOpsEq,
}

/// `struct fi_eq_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FiEqEntry {
    pub fid: *mut Fid,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_eq_err_entry`.
#[repr(C)]
pub struct FiEqErrEntry {
    pub fid: *mut Fid,
    pub context: *mut c_void,
    pub data: u64,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

/// `struct fi_ops_eq`.
#[repr(C)]
pub struct FiOpsEq {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, u64) -> isize,
    pub readerr: unsafe extern "C" fn(*mut FidEq, *mut FiEqErrEntry, u64) -> isize,
    pub write: unsafe extern "C" fn(*mut FidEq, u32, *const c_void, usize, u64) -> isize,
    pub sread: unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, c_int, u64) -> isize,
    pub strerror:
        unsafe extern "C" fn(*mut FidEq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

const _: () = {
    assert!(size_of::<Fid>() == 24 && size_of::<FiOps>() == 56);
    assert!(size_of::<FiProvider>() == 72);
    assert!(size_of::<FidFabric>() == 40 && size_of::<FiOpsFabric>() == 56);
    assert!(size_of::<FidDomain>() == 40 && size_of::<FiOpsDomain>() == 96);
    assert!(size_of::<FiOpsMr>() == 32 && size_of::<FidMr>() == 40);
    assert!(size_of::<FiMrAttr>() == 80 && size_of::<FiAvAttr>() == 48);
    assert!(size_of::<FidAv>() == 32 && size_of::<FiOpsAv>() == 64);
    assert!(size_of::<FiEqAttr>() == 32 && size_of::<FiOpsEq>() == 48);
    assert!(size_of::<FiEqEntry>() == 24 && size_of::<FiEqErrEntry>() == 48);
};
