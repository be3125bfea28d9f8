//! Messages without a tag.
#![allow(unsafe_code)]
// Invariant: pointers of C's are read as the manual pages say what they point to.

use std::ffi::c_void;

use pinfold::TagMatch;

use crate::{
    ffi::{
        ep::{FiMsg, FiOpsMsg, FidEp},
        flags::*,
    },
    guard::{self, Answer, Code},
    handle, header,
    receive::Receive,
    send::Send,
};

pub static OPS: FiOpsMsg = FiOpsMsg {
    size: size_of::<FiOpsMsg>(),
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

/// One part.
pub fn one(buf: *const c_void, len: usize) -> [libc::iovec; 1] {
    [libc::iovec { iov_base: buf.cast_mut(), iov_len: len }]
}

/// The program's parts.
///
/// # Safety
/// `iov` has `count` parts, or `count` is 0.
pub unsafe fn many<'a>(iov: *const libc::iovec, count: usize) -> Answer<&'a [libc::iovec]> {
    if count == 0 {
        return Ok(&[]);
    }
    if iov.is_null() {
        return Err(Code::INVALID);
    }
    // SAFETY: the caller's.
    Ok(unsafe { std::slice::from_raw_parts(iov, count) })
}

/// Posts a receive; `flags` are the operation's own, or else the endpoint's.
///
/// # Safety
/// The endpoint is the program's.
unsafe fn post_receive(
    ep: *mut FidEp,
    parts: &[libc::iovec],
    from: u64,
    context: *mut c_void,
    flags: Option<u64>,
) -> isize {
    guard::count(|| {
        // SAFETY: the caller's.
        let ep = unsafe { handle::of(ep)? };
        ep.inside(|inside| {
            let flags = flags.unwrap_or(inside.state.rx.op_flags);
            let tag = TagMatch::exact(header::MESSAGE);
            let context = context as usize;
            inside.receive(&Receive { from, tag, parts, context, flags }).map(|()| 0)
        })
    })
}

/// Sends; `flags` as in [`post_receive`].
///
/// # Safety
/// The endpoint is the program's.
unsafe fn post_send(
    ep: *mut FidEp,
    parts: &[libc::iovec],
    (to, data): (u64, Option<u64>),
    context: *mut c_void,
    flags: Option<u64>,
) -> isize {
    guard::count(|| {
        // SAFETY: the caller's.
        let ep = unsafe { handle::of(ep)? };
        ep.inside(|inside| {
            let flags = flags.unwrap_or(inside.state.tx.op_flags);
            let context = context as usize;
            let tag = header::MESSAGE;
            inside.send(&Send { to, tag, data, parts, context, flags }).map(|()| 0)
        })
    })
}

unsafe extern "C" fn recv(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's endpoint.
    unsafe { post_receive(ep, &one(buf, len), from, context, None) }
}

unsafe extern "C" fn recvv(
    ep: *mut FidEp,
    iov: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's parts and endpoint.
    unsafe {
        match many(iov, count) {
            Ok(parts) => post_receive(ep, parts, from, context, None),
            Err(Code(code)) => -code as isize,
        }
    }
}

unsafe extern "C" fn recvmsg(ep: *mut FidEp, msg: *const FiMsg, flags: u64) -> isize {
    // SAFETY: the program's message and endpoint.
    unsafe {
        let Some(msg) = msg.as_ref() else { return -libc::EINVAL as isize };
        match many(msg.msg_iov, msg.iov_count) {
            Ok(parts) => post_receive(ep, parts, msg.addr, msg.context, Some(flags)),
            Err(Code(code)) => -code as isize,
        }
    }
}

unsafe extern "C" fn send(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's endpoint.
    unsafe { post_send(ep, &one(buf, len), (to, None), context, None) }
}

unsafe extern "C" fn sendv(
    ep: *mut FidEp,
    iov: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's parts and endpoint.
    unsafe {
        match many(iov, count) {
            Ok(parts) => post_send(ep, parts, (to, None), context, None),
            Err(Code(code)) => -code as isize,
        }
    }
}

unsafe extern "C" fn sendmsg(ep: *mut FidEp, msg: *const FiMsg, flags: u64) -> isize {
    // SAFETY: the program's message and endpoint.
    unsafe {
        let Some(msg) = msg.as_ref() else { return -libc::EINVAL as isize };
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        match many(msg.msg_iov, msg.iov_count) {
            Ok(parts) => post_send(ep, parts, (msg.addr, data), msg.context, Some(flags)),
            Err(Code(code)) => -code as isize,
        }
    }
}

unsafe extern "C" fn inject(ep: *mut FidEp, buf: *const c_void, len: usize, to: u64) -> isize {
    // SAFETY: the program's endpoint.
    unsafe { post_inject(ep, &one(buf, len), (to, None)) }
}

unsafe extern "C" fn senddata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's endpoint.
    unsafe { post_send(ep, &one(buf, len), (to, Some(data)), context, None) }
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: u64,
) -> isize {
    // SAFETY: the program's endpoint.
    unsafe { post_inject(ep, &one(buf, len), (to, Some(data))) }
}

/// Sends a message whose memory is the program's again at once, and of which it is not told.
///
/// # Safety
/// The endpoint is the program's.
unsafe fn post_inject(
    ep: *mut FidEp,
    parts: &[libc::iovec],
    (to, data): (u64, Option<u64>),
) -> isize {
    let nothing = std::ptr::null_mut();
    // SAFETY: the caller's.
    unsafe { post_send(ep, parts, (to, data), nothing, Some(FI_INJECT | SILENT)) }
}

/// Says that the program is not told of the end of an operation: no flag of the interface's.
pub const SILENT: u64 = 1 << 63;
