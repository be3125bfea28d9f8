//! The border to C: codes of errors, panics that stop here, and the functions that refuse.
//!
//! Functions that this provider does not have: shared and scalable contexts, passive endpoints and
//! connections (endpoints are reliable datagrams), wait sets and poll sets (a queue's descriptor
//! serves), collectives and multicast, symmetric insertion, and named operations. Each of them
//! answers `-FI_ENOSYS`.
#![allow(unsafe_code)]
// Invariant: no panic leaves a function of a table. The refusing functions touch no argument.

use std::{
    ffi::{c_char, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

use crate::ffi::{
    ep::FidEp,
    flags::FI_EOTHER,
    info::FiInfo,
    object::{Fid, FidAv, FidDomain, FidFabric},
};

/// The code of an error, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub c_int);

/// A result of the interface.
pub type Answer<T = ()> = Result<T, Code>;

impl Code {
    pub const AGAIN: Code = Code(libc::EAGAIN);
    pub const INVALID: Code = Code(libc::EINVAL);
    pub const NO_SYS: Code = Code(libc::ENOSYS);
    pub const NO_DATA: Code = Code(libc::ENODATA);
    pub const BUSY: Code = Code(libc::EBUSY);
    pub const OTHER: Code = Code(FI_EOTHER);
}

/// Runs a function of a table that returns 0 or an error.
pub fn status(run: impl FnOnce() -> Answer) -> c_int {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(Code(code))) => -code,
        Err(_) => -FI_EOTHER,
    }
}

/// Runs a function of a table that returns a number or an error.
pub fn count(run: impl FnOnce() -> Answer<usize>) -> isize {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(count)) => count as isize,
        Ok(Err(Code(code))) => -code as isize,
        Err(_) => -FI_EOTHER as isize,
    }
}

/// Runs a function that returns something else, `otherwise` after a panic.
pub fn value<T>(otherwise: T, run: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(otherwise)
}

/// The slots that refuse, by the names of their tables.
macro_rules! refusals {
    ($($name:ident($($arg:ty),*) -> $out:ty;)*) => {$(
        pub unsafe extern "C" fn $name($(_: $arg),*) -> $out {
            -libc::ENOSYS as $out
        }
    )*};
}

pub(crate) use refusals;

refusals! {
    no_bind(*mut Fid, *mut Fid, u64) -> c_int;
    no_control(*mut Fid, c_int, *mut c_void) -> c_int;
    no_ops_open(*mut Fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int;
    no_tostr(*const Fid, *mut c_char, usize) -> c_int;
    no_ops_set(*mut Fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int;
    no_passive_ep(*mut FidFabric, *mut FiInfo, *mut *mut c_void, *mut c_void) -> c_int;
    no_wait_open(*mut FidFabric, *mut c_void, *mut *mut c_void) -> c_int;
    no_scalable_ep(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, *mut c_void) -> c_int;
    no_poll_open(*mut FidDomain, *mut c_void, *mut *mut c_void) -> c_int;
    no_stx_ctx(*mut FidDomain, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int;
    no_srx_ctx(*mut FidDomain, *mut c_void, *mut *mut FidEp, *mut c_void) -> c_int;
    no_query_collective(*mut FidDomain, c_int, *mut c_void, u64) -> c_int;
    no_insertsym(
        *mut FidAv, *const c_char, usize, *const c_char, usize, *mut u64, u64, *mut c_void
    ) -> c_int;
    no_av_set(*mut FidAv, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int;
    no_context(*mut FidEp, c_int, *mut c_void, *mut *mut FidEp, *mut c_void) -> c_int;
    no_size_left(*mut FidEp) -> isize;
    no_getpeer(*mut FidEp, *mut c_void, *mut usize) -> c_int;
    no_connect(*mut FidEp, *const c_void, *const c_void, usize) -> c_int;
    no_listen(*mut c_void) -> c_int;
    no_accept(*mut FidEp, *const c_void, usize) -> c_int;
    no_reject(*mut c_void, *mut Fid, *const c_void, usize) -> c_int;
    no_shutdown(*mut FidEp, u64) -> c_int;
    no_join(*mut FidEp, *const c_void, u64, *mut *mut c_void, *mut c_void) -> c_int;
}

/// Puts the text for `code` into `buf`, if there is one, and returns it.
///
/// # Safety
/// `buf` is null or has room for `len` bytes.
pub unsafe fn describe(code: c_int, buf: *mut c_char, len: usize) -> *const c_char {
    let text = std::io::Error::from_raw_os_error(code.abs()).to_string();
    static UNKNOWN: &std::ffi::CStr = c"see fi_strerror";
    if buf.is_null() || len == 0 {
        return UNKNOWN.as_ptr();
    }
    let count = text.len().min(len - 1);
    // SAFETY: within the room that the caller has.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), count);
        *buf.add(count) = 0;
    }
    buf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_stop_here() {
        assert_eq!(status(|| panic!("on purpose")), -FI_EOTHER);
        assert_eq!(count(|| panic!("on purpose")), -FI_EOTHER as isize);
        assert_eq!(value(7, || panic!("on purpose")), 7);
        assert_eq!(count(|| Ok(3)), 3);
        assert_eq!(status(|| Err(Code::AGAIN)), -libc::EAGAIN);
    }
}
