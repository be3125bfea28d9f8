//! Atomic operations on memory of peers: their owners' endpoints do them, in the order of a peer's
//! requests.
#![allow(unsafe_code)]
// Invariant: pointers of C's are read and written as the manual pages say what they point to.

use std::ffi::{c_int, c_void};

use crate::{
    arithmetic::Call,
    change::{Ask, limits},
    ffi::{
        atomic::{FiIoc, FiMsgAtomic, FiOpsAtomic, FiRmaIoc},
        ep::FidEp,
        flags::*,
        object::{FiAtomicAttr, FidDomain},
    },
    guard::{self, Answer, Code},
    handle,
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
    writevalid,
    readwritevalid,
    compwritevalid,
};

const MESSAGE_FLAGS: u64 = FI_COMPLETION
    | FI_MORE
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_FENCE;

/// The lists of a call with one list each.
fn one(addr: *const c_void, count: usize) -> [FiIoc; 1] {
    [FiIoc { addr: addr.cast_mut(), count }]
}

/// # Safety
/// The list has `count` entries.
unsafe fn many<'a, T>(list: *const T, count: usize) -> Answer<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() || count > crate::rma::PARTS_MAX {
        return Err(Code::INVALID);
    }
    // SAFETY: the caller's.
    Ok(unsafe { std::slice::from_raw_parts(list, count) })
}

/// Elements of all lists: what a range of the other side is as long as.
fn elements(lists: &[FiIoc]) -> Answer<usize> {
    let sum = |sum: usize, list: &FiIoc| sum.checked_add(list.count);
    lists.iter().try_fold(0, sum).ok_or(Code::INVALID)
}

/// Posts an operation, with its endpoint's flags unless it has its own.
///
/// # Safety
/// The endpoint and all lists are the program's.
unsafe fn post(ep: *mut FidEp, own_flags: bool, ask: &Ask<'_>) -> Answer<usize> {
    // SAFETY: the caller's.
    let ep = unsafe { handle::of(ep)? };
    ep.inside(|inside| {
        let of_ep = inside.state.tx.op_flags;
        let flags = ask.flags.map(|flags| if own_flags { flags } else { flags | of_ep });
        // SAFETY: the caller's.
        unsafe { inside.change(&Ask { flags, ..*ask }) }
    })?;
    Ok(0)
}

/// The operation that a message describes.
///
/// # Safety
/// The message is null, or as the manual says.
unsafe fn asked<'a>(call: Call, msg: *const FiMsgAtomic, flags: u64) -> Answer<Ask<'a>> {
    // SAFETY: the caller's.
    let msg = unsafe { msg.as_ref() }.ok_or(Code::INVALID)?;
    if flags & !MESSAGE_FLAGS != 0 {
        return Err(Code(FI_EBADFLAGS));
    }
    // SAFETY: the caller's.
    let (operands, ranges) =
        unsafe { (many(msg.msg_iov, msg.iov_count)?, many(msg.rma_iov, msg.rma_iov_count)?) };
    Ok(Ask {
        call,
        op: msg.op,
        of: msg.datatype,
        to: msg.addr,
        ranges,
        operands,
        compares: &[],
        results: &[],
        context: msg.context as usize,
        flags: Some(flags),
    })
}

unsafe extern "C" fn write(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    desc: *mut c_void,
    to: u64,
    addr: u64,
    key: u64,
    of: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let list = one(buf, count);
    let descs = desc.cast();
    // SAFETY: the program's.
    unsafe { writev(ep, list.as_ptr(), descs, 1, to, addr, key, of, op, context) }
}

unsafe extern "C" fn writev(
    ep: *mut FidEp,
    iov: *const FiIoc,
    _: *mut *mut c_void,
    count: usize,
    to: u64,
    addr: u64,
    key: u64,
    of: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's.
    unsafe { changed(ep, iov, count, (to, addr, key), (of, op), context, Some(0)) }
}

unsafe extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    to: u64,
    addr: u64,
    key: u64,
    of: c_int,
    op: c_int,
) -> isize {
    let list = one(buf, count);
    let at = (to, addr, key);
    // SAFETY: the program's.
    unsafe { changed(ep, list.as_ptr(), 1, at, (of, op), std::ptr::null_mut(), None) }
}

/// A change that fetches nothing.
///
/// # Safety
/// As [`post`].
unsafe fn changed(
    ep: *mut FidEp,
    iov: *const FiIoc,
    count: usize,
    (to, addr, key): (u64, u64, u64),
    (of, op): (c_int, c_int),
    context: *mut c_void,
    flags: Option<u64>,
) -> isize {
    guard::count(|| {
        // SAFETY: the caller's.
        let operands = unsafe { many(iov, count)? };
        let ranges = &[FiRmaIoc { addr, count: elements(operands)?, key }];
        let ask = Ask {
            call: Call::Change,
            op,
            of,
            to,
            ranges,
            operands,
            compares: &[],
            results: &[],
            context: context as usize,
            flags,
        };
        // SAFETY: the caller's.
        unsafe { post(ep, false, &ask) }
    })
}

unsafe extern "C" fn writemsg(ep: *mut FidEp, msg: *const FiMsgAtomic, flags: u64) -> isize {
    guard::count(|| {
        // SAFETY: the program's.
        let ask = unsafe { asked(Call::Change, msg, flags)? };
        // SAFETY: the program's.
        unsafe { post(ep, true, &ask) }
    })
}

unsafe extern "C" fn readwrite(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    to: u64,
    addr: u64,
    key: u64,
    of: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (list, results) = (one(buf, count), one(result, count));
    let none = std::ptr::null_mut();
    // SAFETY: the program's.
    unsafe {
        let (list, results) = (list.as_ptr(), results.as_ptr().cast_mut());
        readwritev(ep, list, none, 1, results, none, 1, to, addr, key, of, op, context)
    }
}

unsafe extern "C" fn readwritev(
    ep: *mut FidEp,
    iov: *const FiIoc,
    _: *mut *mut c_void,
    count: usize,
    results: *mut FiIoc,
    _: *mut *mut c_void,
    result_count: usize,
    to: u64,
    addr: u64,
    key: u64,
    of: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    guard::count(|| {
        // SAFETY: the program's.
        let (operands, results) = unsafe { (many(iov, count)?, many(results, result_count)?) };
        let ranges = &[FiRmaIoc { addr, count: elements(results)?, key }];
        let ask = Ask {
            call: Call::Fetch,
            op,
            of,
            to,
            ranges,
            operands,
            compares: &[],
            results,
            context: context as usize,
            flags: Some(0),
        };
        // SAFETY: the program's.
        unsafe { post(ep, false, &ask) }
    })
}

unsafe extern "C" fn readwritemsg(
    ep: *mut FidEp,
    msg: *const FiMsgAtomic,
    results: *mut FiIoc,
    _: *mut *mut c_void,
    count: usize,
    flags: u64,
) -> isize {
    guard::count(|| {
        // SAFETY: the program's.
        let (ask, results) = unsafe { (asked(Call::Fetch, msg, flags)?, many(results, count)?) };
        // SAFETY: the program's.
        unsafe { post(ep, true, &Ask { results, ..ask }) }
    })
}

unsafe extern "C" fn compwrite(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    _: *mut c_void,
    compare: *const c_void,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    to: u64,
    addr: u64,
    key: u64,
    of: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (list, compares, results) = (one(buf, count), one(compare, count), one(result, count));
    let none = std::ptr::null_mut();
    // SAFETY: the program's.
    unsafe {
        compwritev(
            ep,
            list.as_ptr(),
            none,
            1,
            compares.as_ptr(),
            none,
            1,
            results.as_ptr().cast_mut(),
            none,
            1,
            to,
            addr,
            key,
            of,
            op,
            context,
        )
    }
}

unsafe extern "C" fn compwritev(
    ep: *mut FidEp,
    iov: *const FiIoc,
    _: *mut *mut c_void,
    count: usize,
    compares: *const FiIoc,
    _: *mut *mut c_void,
    compare_count: usize,
    results: *mut FiIoc,
    _: *mut *mut c_void,
    result_count: usize,
    to: u64,
    addr: u64,
    key: u64,
    of: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    guard::count(|| {
        // SAFETY: the program's.
        let (operands, compares, results) = unsafe {
            (many(iov, count)?, many(compares, compare_count)?, many(results, result_count)?)
        };
        let ranges = &[FiRmaIoc { addr, count: elements(operands)?, key }];
        let ask = Ask {
            call: Call::Compare,
            op,
            of,
            to,
            ranges,
            operands,
            compares,
            results,
            context: context as usize,
            flags: Some(0),
        };
        // SAFETY: the program's.
        unsafe { post(ep, false, &ask) }
    })
}

unsafe extern "C" fn compwritemsg(
    ep: *mut FidEp,
    msg: *const FiMsgAtomic,
    compares: *const FiIoc,
    _: *mut *mut c_void,
    compare_count: usize,
    results: *mut FiIoc,
    _: *mut *mut c_void,
    count: usize,
    flags: u64,
) -> isize {
    guard::count(|| {
        // SAFETY: the program's.
        let (ask, compares, results) = unsafe {
            let ask = asked(Call::Compare, msg, flags)?;
            (ask, many(compares, compare_count)?, many(results, count)?)
        };
        // SAFETY: the program's.
        unsafe { post(ep, true, &Ask { compares, results, ..ask }) }
    })
}

/// Answers how many elements such a call takes.
///
/// # Safety
/// The place for the count is null, or the program's.
unsafe fn valid(of: c_int, op: c_int, call: Call, count: *mut usize) -> c_int {
    guard::status(|| {
        let (count_max, _) = limits(of, op, call)?;
        // SAFETY: the caller's.
        *unsafe { count.as_mut() }.ok_or(Code::INVALID)? = count_max;
        Ok(())
    })
}

unsafe extern "C" fn writevalid(_: *mut FidEp, of: c_int, op: c_int, count: *mut usize) -> c_int {
    // SAFETY: the program's.
    unsafe { valid(of, op, Call::Change, count) }
}

unsafe extern "C" fn readwritevalid(
    _: *mut FidEp,
    of: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: the program's.
    unsafe { valid(of, op, Call::Fetch, count) }
}

unsafe extern "C" fn compwritevalid(
    _: *mut FidEp,
    of: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: the program's.
    unsafe { valid(of, op, Call::Compare, count) }
}

/// `fi_query_atomic`.
pub unsafe extern "C" fn query(
    _: *mut FidDomain,
    of: c_int,
    op: c_int,
    attr: *mut FiAtomicAttr,
    flags: u64,
) -> c_int {
    guard::status(|| {
        let call = match flags {
            0 => Call::Change,
            FI_FETCH_ATOMIC => Call::Fetch,
            FI_COMPARE_ATOMIC => Call::Compare,
            _ => return Err(Code(FI_EBADFLAGS)),
        };
        let (count, size) = limits(of, op, call)?;
        // SAFETY: the program's place for the answer.
        *unsafe { attr.as_mut() }.ok_or(Code::INVALID)? = FiAtomicAttr { count, size };
        Ok(())
    })
}
