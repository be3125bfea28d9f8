//! Tagged messages.
#![allow(unsafe_code)]
// Invariant: pointers of C's are read as the manual pages say what they point to.

use std::ffi::c_void;

use pinfold::TagMatch;

use crate::{
    ffi::{
        ep::{FiMsgTagged, FiOpsTagged, FidEp},
        flags::*,
    },
    guard::{self, Code},
    handle,
    header::TAG_BITS,
    msg::{SILENT, many, one},
    receive::Receive,
    send::Send,
};

pub static OPS: FiOpsTagged = FiOpsTagged {
    size: size_of::<FiOpsTagged>(),
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

/// The tags that a program's receive accepts, among those of tagged messages.
fn accepts(tag: u64, ignore: u64) -> TagMatch {
    TagMatch::masked(tag & TAG_BITS, ignore & TAG_BITS)
}

/// Posts a receive, a look or a claim; `flags` are the operation's own, or else the endpoint's.
///
/// # Safety
/// The endpoint is the program's.
unsafe fn post_receive(
    ep: *mut FidEp,
    parts: &[libc::iovec],
    from: u64,
    tag: TagMatch,
    context: *mut c_void,
    flags: Option<u64>,
) -> isize {
    guard::count(|| {
        // SAFETY: the caller's.
        let ep = unsafe { handle::of(ep)? };
        ep.inside(|inside| {
            let flags = flags.unwrap_or(inside.state.rx.op_flags) & !FI_MULTI_RECV;
            let context = context as usize;
            let receive = Receive { from, tag, parts, context, flags };
            let posted = match flags & (FI_PEEK | FI_CLAIM) {
                0 => inside.receive(&receive),
                FI_CLAIM => inside.receive_claimed(&receive),
                _ => inside.peek(&receive),
            };
            posted.map(|()| 0)
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
    (to, tag, data): (u64, u64, Option<u64>),
    context: *mut c_void,
    flags: Option<u64>,
) -> isize {
    guard::count(|| {
        // SAFETY: the caller's.
        let ep = unsafe { handle::of(ep)? };
        ep.inside(|inside| {
            let flags = flags.unwrap_or(inside.state.tx.op_flags);
            let (tag, context) = (tag & TAG_BITS, context as usize);
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
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's endpoint.
    unsafe { post_receive(ep, &one(buf, len), from, accepts(tag, ignore), context, None) }
}

unsafe extern "C" fn recvv(
    ep: *mut FidEp,
    iov: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's parts and endpoint.
    unsafe {
        match many(iov, count) {
            Ok(parts) => post_receive(ep, parts, from, accepts(tag, ignore), context, None),
            Err(Code(code)) => -code as isize,
        }
    }
}

unsafe extern "C" fn recvmsg(ep: *mut FidEp, msg: *const FiMsgTagged, flags: u64) -> isize {
    // SAFETY: the program's message and endpoint.
    unsafe {
        let Some(msg) = msg.as_ref() else { return -libc::EINVAL as isize };
        let tag = accepts(msg.tag, msg.ignore);
        match many(msg.msg_iov, msg.iov_count) {
            Ok(parts) => post_receive(ep, parts, msg.addr, tag, msg.context, Some(flags)),
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
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's endpoint.
    unsafe { post_send(ep, &one(buf, len), (to, tag, None), context, None) }
}

unsafe extern "C" fn sendv(
    ep: *mut FidEp,
    iov: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's parts and endpoint.
    unsafe {
        match many(iov, count) {
            Ok(parts) => post_send(ep, parts, (to, tag, None), context, None),
            Err(Code(code)) => -code as isize,
        }
    }
}

unsafe extern "C" fn sendmsg(ep: *mut FidEp, msg: *const FiMsgTagged, flags: u64) -> isize {
    // SAFETY: the program's message and endpoint.
    unsafe {
        let Some(msg) = msg.as_ref() else { return -libc::EINVAL as isize };
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        let to = (msg.addr, msg.tag, data);
        match many(msg.msg_iov, msg.iov_count) {
            Ok(parts) => post_send(ep, parts, to, msg.context, Some(flags)),
            Err(Code(code)) => -code as isize,
        }
    }
}

unsafe extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    to: u64,
    tag: u64,
) -> isize {
    let flags = Some(FI_INJECT | SILENT);
    // SAFETY: the program's endpoint.
    unsafe { post_send(ep, &one(buf, len), (to, tag, None), std::ptr::null_mut(), flags) }
}

unsafe extern "C" fn senddata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's endpoint.
    unsafe { post_send(ep, &one(buf, len), (to, tag, Some(data)), context, None) }
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: u64,
    tag: u64,
) -> isize {
    let flags = Some(FI_INJECT | SILENT);
    // SAFETY: the program's endpoint.
    unsafe { post_send(ep, &one(buf, len), (to, tag, Some(data)), std::ptr::null_mut(), flags) }
}
