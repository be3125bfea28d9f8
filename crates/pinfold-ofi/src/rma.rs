//! Remote memory access: `fi_read`, `fi_write` and their like.
#![allow(unsafe_code)]
// Invariant: pointers of C's are read as the manual pages say what they point to.

use std::ffi::c_void;

use crate::{
    access::{Ask, Does},
    ffi::{
        ep::{FiMsgRma, FiOpsRma, FiRmaIov, FidEp},
        flags::*,
    },
    guard::{self, Answer, Code},
    handle,
    msg::{many, one},
};

/// The capabilities that memory adds to those of messages.
pub const CAPS: u64 = FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// The orders that are kept beside that of messages: of atomic operations, all.
pub const ORDER: u64 =
    FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
/// Parts of remote memory in an operation.
pub const PARTS_MAX: usize = 8;
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

/// The flags of a message's own call that mean something here.
const MESSAGE_FLAGS: u64 = FI_COMPLETION
    | FI_MORE
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_FENCE
    | FI_REMOTE_CQ_DATA;

/// Posts an operation with the flags of its endpoint.
///
/// # Safety
/// The endpoint is the program's; the parts are as the manual says.
unsafe fn post(ep: *mut FidEp, ask: &Ask<'_>) -> isize {
    guard::count(|| {
        // SAFETY: the caller's.
        let ep = unsafe { handle::of(ep)? };
        ep.inside(|inside| {
            let flags = ask.flags | inside.state.tx.op_flags;
            inside.access(&Ask { flags, ..*ask })
        })?;
        Ok(0)
    })
}

/// As [`post`], of a call that names its own flags.
///
/// # Safety
/// As [`post`]; the message is null, or as the manual says.
unsafe fn post_message(ep: *mut FidEp, does: Does, msg: *const FiMsgRma, flags: u64) -> isize {
    guard::count(|| {
        // SAFETY: the caller's.
        let (ep, msg) = unsafe { (handle::of(ep)?, msg.as_ref().ok_or(Code::INVALID)?) };
        let allowed = if does == Does::Read {
            MESSAGE_FLAGS & !(FI_INJECT | FI_REMOTE_CQ_DATA)
        } else {
            MESSAGE_FLAGS
        };
        if flags & !allowed != 0 {
            return Err(Code(FI_EBADFLAGS));
        }
        // SAFETY: the caller's.
        let parts = unsafe { many(msg.msg_iov, msg.iov_count)? };
        // SAFETY: the caller's.
        let ranges = unsafe { ranges(msg.rma_iov, msg.rma_iov_count)? };
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        let context = msg.context as usize;
        let ask = Ask { does, to: msg.addr, parts, ranges, data, context, flags };
        ep.inside(|inside| inside.access(&ask))?;
        Ok(0)
    })
}

/// # Safety
/// The array has `count` ranges.
unsafe fn ranges<'a>(iov: *const FiRmaIov, count: usize) -> Answer<&'a [FiRmaIov]> {
    if iov.is_null() || count == 0 {
        return Err(Code::INVALID);
    }
    // SAFETY: the caller's.
    Ok(unsafe { std::slice::from_raw_parts(iov, count) })
}

/// An operation in one range.
///
/// # Safety
/// As [`post`].
unsafe fn simple(
    ep: *mut FidEp,
    does: Does,
    parts: &[libc::iovec],
    (to, addr, key): (u64, u64, u64),
    data: Option<u64>,
    (context, flags): (*mut c_void, u64),
) -> isize {
    let len = parts.iter().map(|part| part.iov_len).sum();
    let ranges = &[FiRmaIov { addr, len, key }];
    let ask = Ask { does, to, parts, ranges, data, context: context as usize, flags };
    // SAFETY: the caller's.
    unsafe { post(ep, &ask) }
}

unsafe extern "C" fn read(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    to: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's.
    unsafe { simple(ep, Does::Read, &one(buf, len), (to, addr, key), None, (context, 0)) }
}

unsafe extern "C" fn readv(
    ep: *mut FidEp,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    to: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's.
    unsafe {
        match many(iov, count) {
            Ok(parts) => simple(ep, Does::Read, parts, (to, addr, key), None, (context, 0)),
            Err(Code(code)) => -code as isize,
        }
    }
}

unsafe extern "C" fn readmsg(ep: *mut FidEp, msg: *const FiMsgRma, flags: u64) -> isize {
    // SAFETY: the program's.
    unsafe { post_message(ep, Does::Read, msg, flags) }
}

unsafe extern "C" fn write(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    to: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's.
    unsafe { simple(ep, Does::Write, &one(buf, len), (to, addr, key), None, (context, 0)) }
}

unsafe extern "C" fn writev(
    ep: *mut FidEp,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    to: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's.
    unsafe {
        match many(iov, count) {
            Ok(parts) => simple(ep, Does::Write, parts, (to, addr, key), None, (context, 0)),
            Err(Code(code)) => -code as isize,
        }
    }
}

unsafe extern "C" fn writemsg(ep: *mut FidEp, msg: *const FiMsgRma, flags: u64) -> isize {
    // SAFETY: the program's.
    unsafe { post_message(ep, Does::Write, msg, flags) }
}

unsafe extern "C" fn writedata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let flags = FI_REMOTE_CQ_DATA;
    // SAFETY: the program's.
    unsafe {
        let (buf, to) = (one(buf, len), (to, addr, key));
        simple(ep, Does::Write, &buf, to, Some(data), (context, flags))
    }
}

/// An injected write, which nothing tells of unless it fails.
///
/// # Safety
/// As [`post`].
unsafe fn injected(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    (to, addr, key): (u64, u64, u64),
    data: Option<u64>,
) -> isize {
    guard::count(|| {
        // SAFETY: the caller's.
        let ep = unsafe { handle::of(ep)? };
        let ranges = &[FiRmaIov { addr, len, key }];
        let parts = &one(buf, len);
        let flags = FI_INJECT;
        let ask = Ask { does: Does::Write, to, parts, ranges, data, context: 0, flags };
        ep.inside(|inside| inside.access_silently(&ask))?;
        Ok(0)
    })
}

unsafe extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    to: u64,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: the program's.
    unsafe { injected(ep, buf, len, (to, addr, key), None) }
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: u64,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: the program's.
    unsafe { injected(ep, buf, len, (to, addr, key), Some(data)) }
}
