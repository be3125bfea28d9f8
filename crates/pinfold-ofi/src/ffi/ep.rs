//! Endpoints: their tables and the descriptions of messages.

use std::ffi::{c_int, c_void};

use super::object::{FiAddr, Fid};

/// `struct fid_ep`.
#[repr(C)]
pub struct FidEp {
    pub fid: Fid,
    pub ops: *const FiOpsEp,
    pub cm: *const FiOpsCm,
    pub msg: *const FiOpsMsg,
    pub rma: *const FiOpsRma,
    pub tagged: *const FiOpsTagged,
    pub atomic: *const FiOpsAtomic,
    pub collective: *const c_void,
}

/// `struct fi_ops_ep`.
#[repr(C)]
pub struct FiOpsEp {
    pub size: usize,
    pub cancel: unsafe extern "C" fn(*mut Fid, *mut c_void) -> isize,
    pub getopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
    pub setopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int,
    pub tx_ctx:
        unsafe extern "C" fn(*mut FidEp, c_int, *mut c_void, *mut *mut FidEp, *mut c_void) -> c_int,
    pub rx_ctx:
        unsafe extern "C" fn(*mut FidEp, c_int, *mut c_void, *mut *mut FidEp, *mut c_void) -> c_int,
    pub rx_size_left: unsafe extern "C" fn(*mut FidEp) -> isize,
    pub tx_size_left: unsafe extern "C" fn(*mut FidEp) -> isize,
}

/// `struct fi_ops_cm`.
#[repr(C)]
pub struct FiOpsCm {
    pub size: usize,
    pub setname: unsafe extern "C" fn(*mut Fid, *mut c_void, usize) -> c_int,
    pub getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
    pub getpeer: unsafe extern "C" fn(*mut FidEp, *mut c_void, *mut usize) -> c_int,
    pub connect: unsafe extern "C" fn(*mut FidEp, *const c_void, *const c_void, usize) -> c_int,
    pub listen: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub accept: unsafe extern "C" fn(*mut FidEp, *const c_void, usize) -> c_int,
    pub reject: unsafe extern "C" fn(*mut c_void, *mut Fid, *const c_void, usize) -> c_int,
    pub shutdown: unsafe extern "C" fn(*mut FidEp, u64) -> c_int,
    pub join: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        u64,
        *mut *mut c_void,
        *mut c_void,
    ) -> c_int,
}

/// `struct fi_msg`.
#[repr(C)]
pub struct FiMsg {
    pub msg_iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: FiAddr,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_ops_msg`.
#[repr(C)]
pub struct FiOpsMsg {
    pub size: usize,
    pub recv: unsafe extern "C" fn(
        *mut FidEp,
        *mut c_void,
        usize,
        *mut c_void,
        FiAddr,
        *mut c_void,
    ) -> isize,
    pub recvv: unsafe extern "C" fn(
        *mut FidEp,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        FiAddr,
        *mut c_void,
    ) -> isize,
    pub recvmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsg, u64) -> isize,
    pub send: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        FiAddr,
        *mut c_void,
    ) -> isize,
    pub sendv: unsafe extern "C" fn(
        *mut FidEp,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        FiAddr,
        *mut c_void,
    ) -> isize,
    pub sendmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsg, u64) -> isize,
    pub inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, FiAddr) -> isize,
    pub senddata: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        FiAddr,
        *mut c_void,
    ) -> isize,
    pub injectdata: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, FiAddr) -> isize,
}

/// `struct fi_msg_tagged`.
#[repr(C)]
pub struct FiMsgTagged {
    pub msg_iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: FiAddr,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_ops_tagged`.
#[repr(C)]
pub struct FiOpsTagged {
    pub size: usize,
    pub recv: unsafe extern "C" fn(
        *mut FidEp,
        *mut c_void,
        usize,
        *mut c_void,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub recvv: unsafe extern "C" fn(
        *mut FidEp,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub recvmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgTagged, u64) -> isize,
    pub send: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        FiAddr,
        u64,
        *mut c_void,
    ) -> isize,
    pub sendv: unsafe extern "C" fn(
        *mut FidEp,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        FiAddr,
        u64,
        *mut c_void,
    ) -> isize,
    pub sendmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgTagged, u64) -> isize,
    pub inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, FiAddr, u64) -> isize,
    pub senddata: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        FiAddr,
        u64,
        *mut c_void,
    ) -> isize,
    pub injectdata:
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, FiAddr, u64) -> isize,
}

/// `struct fi_rma_iov`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FiRmaIov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

/// `struct fi_msg_rma`.
#[repr(C)]
pub struct FiMsgRma {
    pub msg_iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: FiAddr,
    pub rma_iov: *const FiRmaIov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_ops_rma`.
#[repr(C)]
pub struct FiOpsRma {
    pub size: usize,
    pub read: unsafe extern "C" fn(
        *mut FidEp,
        *mut c_void,
        usize,
        *mut c_void,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub readv: unsafe extern "C" fn(
        *mut FidEp,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub readmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgRma, u64) -> isize,
    pub write: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub writev: unsafe extern "C" fn(
        *mut FidEp,
        *const libc::iovec,
        *mut *mut c_void,
        usize,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub writemsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgRma, u64) -> isize,
    pub inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, FiAddr, u64, u64) -> isize,
    pub writedata: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub injectdata:
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, FiAddr, u64, u64) -> isize,
}

const _: () = {
    assert!(size_of::<FidEp>() == 80 && size_of::<FiOpsEp>() == 64);
    assert!(size_of::<FiOpsCm>() == 80);
    assert!(size_of::<FiMsg>() == 48 && size_of::<FiOpsMsg>() == 80);
    assert!(size_of::<FiMsgTagged>() == 64 && size_of::<FiOpsTagged>() == 80);
    assert!(size_of::<FiRmaIov>() == 24 && size_of::<FiMsgRma>() == 64);
    assert!(size_of::<FiOpsRma>() == 80);
};

pub use super::atomic::FiOpsAtomic;
