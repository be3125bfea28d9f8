//! The parts of libfabric's binary interface in use: the beginnings of its structures, which only
//! ever grow at their ends, and its constants. See `fi_getinfo(3)`, `fi_endpoint(3)`,
//! `fi_tagged(3)`, `fi_cq(3)`, and the headers of libfabric 1.17 in `rdma/`.
#![allow(unsafe_code)]

use std::{
    ffi::{c_char, c_int, c_void},
    mem::{MaybeUninit, offset_of},
    ptr,
};

/// `FI_VERSION(1, 9)`, the version that is asked for; later ones give it, too.
pub(super) const VERSION: u32 = 1 << 16 | 9;

pub(super) const FI_TAGGED: u64 = 1 << 3;
pub(super) const FI_RECV: u64 = 1 << 10;
pub(super) const FI_SEND: u64 = 1 << 11;
pub(super) const FI_SOURCE: u64 = 1 << 57;
pub(super) const FI_ORDER_SAS: u64 = 1 << 8;
pub(super) const FI_SOCKADDR_IN: u32 = 2;
pub(super) const FI_EP_RDM: c_int = 3;
pub(super) const FI_THREAD_DOMAIN: c_int = 3;
pub(super) const FI_PROGRESS_MANUAL: c_int = 2;
pub(super) const FI_CQ_FORMAT_MSG: c_int = 2;
pub(super) const FI_AV_TABLE: c_int = 2;
pub(super) const FI_ENABLE: c_int = 6;
pub(super) const FI_EAGAIN: i64 = libc::EAGAIN as i64;
pub(super) const FI_EAVAIL: i64 = 259;

/// An address as it is in an address vector: `fi_addr_t`.
pub(super) type FiAddr = u64;

/// `struct fi_info`. Made and freed by the library alone.
#[repr(C)]
pub(super) struct Info {
    next: *mut Info,
    pub(super) caps: u64,
    pub(super) mode: u64,
    pub(super) addr_format: u32,
    src_addrlen: usize,
    dest_addrlen: usize,
    src_addr: *mut c_void,
    dest_addr: *mut c_void,
    handle: *mut c_void,
    pub(super) tx_attr: *mut TransferAttr,
    pub(super) rx_attr: *mut TransferAttr,
    pub(super) ep_attr: *mut EndpointAttr,
    pub(super) domain_attr: *mut DomainAttr,
    pub(super) fabric_attr: *mut FabricAttr,
}

/// The common beginning of `struct fi_tx_attr` and `struct fi_rx_attr`.
#[repr(C)]
pub(super) struct TransferAttr {
    caps: u64,
    mode: u64,
    op_flags: u64,
    pub(super) msg_order: u64,
}

/// `struct fi_ep_attr`.
#[repr(C)]
pub(super) struct EndpointAttr {
    pub(super) kind: c_int,
}

/// `struct fi_domain_attr`.
#[repr(C)]
pub(super) struct DomainAttr {
    domain: *mut c_void,
    name: *mut c_char,
    pub(super) threading: c_int,
    pub(super) control_progress: c_int,
    pub(super) data_progress: c_int,
}

/// `struct fi_fabric_attr`.
#[repr(C)]
pub(super) struct FabricAttr {
    fabric: *mut c_void,
    name: *mut c_char,
    /// Memory of `malloc(3)`.
    pub(super) prov_name: *mut c_char,
}

/// `struct fid`: the beginning of every object.
#[repr(C)]
pub(super) struct Fid {
    class: usize,
    context: *mut c_void,
    pub(super) ops: *const FidOps,
}

#[repr(C)]
pub(super) struct FidOps {
    size: usize,
    pub(super) close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub(super) bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub(super) control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
}

#[repr(C)]
pub(super) struct Fabric {
    fid: Fid,
    pub(super) ops: *const FabricOps,
}

#[repr(C)]
pub(super) struct FabricOps {
    size: usize,
    pub(super) domain:
        unsafe extern "C" fn(*mut Fabric, *mut Info, *mut *mut Domain, *mut c_void) -> c_int,
}

#[repr(C)]
pub(super) struct Domain {
    fid: Fid,
    pub(super) ops: *const DomainOps,
}

#[repr(C)]
pub(super) struct DomainOps {
    size: usize,
    pub(super) av_open:
        unsafe extern "C" fn(*mut Domain, *mut AvAttr, *mut *mut Av, *mut c_void) -> c_int,
    pub(super) cq_open:
        unsafe extern "C" fn(*mut Domain, *mut CqAttr, *mut *mut Cq, *mut c_void) -> c_int,
    pub(super) endpoint:
        unsafe extern "C" fn(*mut Domain, *mut Info, *mut *mut Ep, *mut c_void) -> c_int,
}

/// An address vector.
#[repr(C)]
pub(super) struct Av {
    fid: Fid,
    pub(super) ops: *const AvOps,
}

#[repr(C)]
pub(super) struct AvOps {
    size: usize,
    pub(super) insert:
        unsafe extern "C" fn(*mut Av, *const c_void, usize, *mut FiAddr, u64, *mut c_void) -> c_int,
}

#[repr(C)]
pub(super) struct AvAttr {
    kind: c_int,
    rx_ctx_bits: c_int,
    count: usize,
    ep_per_node: usize,
    name: *const c_char,
    map_addr: *mut c_void,
    flags: u64,
}

impl AvAttr {
    pub(super) fn new(kind: c_int) -> AvAttr {
        let (name, map_addr) = (ptr::null(), ptr::null_mut());
        AvAttr { kind, rx_ctx_bits: 0, count: 0, ep_per_node: 0, name, map_addr, flags: 0 }
    }
}

/// A completion queue.
#[repr(C)]
pub(super) struct Cq {
    fid: Fid,
    pub(super) ops: *const CqOps,
}

#[repr(C)]
pub(super) struct CqOps {
    size: usize,
    pub(super) read: unsafe extern "C" fn(*mut Cq, *mut CqEntry, usize) -> isize,
    readfrom: *const c_void,
    pub(super) readerr: unsafe extern "C" fn(*mut Cq, *mut CqErrEntry, u64) -> isize,
}

#[repr(C)]
pub(super) struct CqAttr {
    size: usize,
    flags: u64,
    format: c_int,
    wait_obj: c_int,
    signaling_vector: c_int,
    wait_cond: c_int,
    wait_set: *mut c_void,
}

impl CqAttr {
    /// Attributes of a queue that nobody sleeps on.
    pub(super) fn new(size: usize, format: c_int) -> CqAttr {
        let (wait_obj, signaling_vector, wait_cond, wait_set) = (0, 0, 0, ptr::null_mut());
        CqAttr { size, flags: 0, format, wait_obj, signaling_vector, wait_cond, wait_set }
    }
}

/// `struct fi_cq_msg_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CqEntry {
    context: *mut c_void,
    pub(super) flags: u64,
    /// Length of a receive, bytes.
    pub(super) len: usize,
}

impl CqEntry {
    pub(super) const NONE: CqEntry = CqEntry { context: ptr::null_mut(), flags: 0, len: 0 };
}

/// `struct fi_cq_err_entry`.
#[repr(C)]
pub(super) struct CqErrEntry {
    context: *mut c_void,
    pub(super) flags: u64,
    len: usize,
    buf: *mut c_void,
    data: u64,
    tag: u64,
    olen: usize,
    pub(super) err: c_int,
    prov_errno: c_int,
    err_data: *mut c_void,
    err_data_size: usize,
    /// Room for the fields that later versions put behind.
    more: [u64; 8],
}

impl CqErrEntry {
    pub(super) fn new() -> CqErrEntry {
        // SAFETY: numbers and pointers, which may all be zero.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }
}

/// An endpoint.
#[repr(C)]
pub(super) struct Ep {
    pub(super) fid: Fid,
    ops: *const c_void,
    pub(super) cm: *const CmOps,
    msg: *const c_void,
    rma: *const c_void,
    pub(super) tagged: *const TaggedOps,
}

#[repr(C)]
pub(super) struct CmOps {
    size: usize,
    setname: *const c_void,
    pub(super) getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
}

#[repr(C)]
pub(super) struct TaggedOps {
    size: usize,
    pub(super) recv: unsafe extern "C" fn(
        *mut Ep,
        *mut c_void,
        usize,
        *mut c_void,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    recvv: *const c_void,
    recvmsg: *const c_void,
    pub(super) send: unsafe extern "C" fn(
        *mut Ep,
        *const c_void,
        usize,
        *mut c_void,
        FiAddr,
        u64,
        *mut c_void,
    ) -> isize,
}

// As the C compiler lays out the headers' structures, on 64-bit machines.
const _: () = {
    assert!(offset_of!(Info, addr_format) == 24 && offset_of!(Info, tx_attr) == 72);
    assert!(offset_of!(Info, fabric_attr) == 104);
    assert!(offset_of!(TransferAttr, msg_order) == 24);
    assert!(offset_of!(DomainAttr, threading) == 16 && offset_of!(DomainAttr, data_progress) == 24);
    assert!(offset_of!(FabricAttr, prov_name) == 16);
    assert!(offset_of!(Fid, ops) == 16 && size_of::<Fid>() == 24);
    assert!(offset_of!(FidOps, bind) == 16 && offset_of!(FidOps, control) == 24);
    assert!(offset_of!(DomainOps, endpoint) == 24);
    assert!(size_of::<AvAttr>() == 48 && size_of::<CqAttr>() == 40);
    assert!(offset_of!(CqOps, readerr) == 24 && size_of::<CqEntry>() == 24);
    assert!(offset_of!(CqErrEntry, err) == 56 && offset_of!(CqErrEntry, more) == 80);
    assert!(offset_of!(Ep, cm) == 32 && offset_of!(Ep, tagged) == 56);
    assert!(offset_of!(CmOps, getname) == 16);
    assert!(offset_of!(TaggedOps, recv) == 8 && offset_of!(TaggedOps, send) == 32);
};
