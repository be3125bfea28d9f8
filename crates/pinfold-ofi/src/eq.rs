//! Event queues: insertions into address vectors that were asked for as events end here.
#![allow(unsafe_code)]
// Invariant: pointers of C's are read and written as the manual pages say what they point to.

use std::{
    collections::VecDeque,
    ffi::{c_char, c_int, c_void},
    os::fd::{AsFd, AsRawFd},
    ptr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use pinfold_sys::io::poll::{Epoll, EventFd, Interest};

use crate::{
    fabric,
    ffi::{
        flags::{
            FI_CLASS_EQ, FI_EAVAIL, FI_ETOOSMALL, FI_GETWAIT, FI_PEEK, FI_WAIT_FD, FI_WAIT_NONE,
            FI_WAIT_UNSPEC,
        },
        object::{FiEqAttr, FiEqEntry, FiEqErrEntry, FiOps, FiOpsEq, Fid, FidEq, FidFabric},
    },
    guard::{self, Answer, Code},
    handle::{self, Face},
};

/// An event queue.
pub struct Eq {
    events: Mutex<VecDeque<Result<Event, Failed>>>,
    bell: EventFd,
    pollable: Epoll,
    waits: bool,
    _fabric: Arc<()>,
}

/// An event: its number and its bytes.
#[derive(Clone)]
pub struct Event {
    pub number: u32,
    pub bytes: Vec<u8>,
}

/// An event that failed.
#[derive(Clone, Copy)]
pub struct Failed {
    pub fid: usize,
    pub context: usize,
    pub data: u64,
    pub code: Code,
}

impl Face for FidEq {
    type Inner = Eq;
    const CLASS: usize = FI_CLASS_EQ;
}

static OPS: FiOps = FiOps {
    size: size_of::<FiOps>(),
    close,
    bind: guard::no_bind,
    control,
    ops_open: guard::no_ops_open,
    tostr: guard::no_tostr,
    ops_set: guard::no_ops_set,
};

static EQ_OPS: FiOpsEq =
    FiOpsEq { size: size_of::<FiOpsEq>(), read, readerr, write, sread, strerror };

/// `fi_eq_open`.
pub unsafe extern "C" fn open(
    fabric: *mut FidFabric,
    attr: *mut FiEqAttr,
    eq: *mut *mut FidEq,
    context: *mut c_void,
) -> c_int {
    guard::status(|| {
        // SAFETY: the program's fabric.
        let fabric = unsafe { handle::of(fabric)? };
        // SAFETY: null, or attributes that are there during the call.
        let wait = unsafe { attr.as_ref() }.map_or(FI_WAIT_NONE, |attr| attr.wait_obj);
        if !matches!(wait, FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_FD) {
            return Err(Code::NO_SYS);
        }
        let failed = |_| Code(libc::EMFILE);
        let (bell, pollable) = (EventFd::new().map_err(failed)?, Epoll::new().map_err(failed)?);
        pollable.add(&bell, 0, Interest::Read).map_err(failed)?;
        let inner = Arc::new(Eq {
            events: Mutex::default(),
            bell,
            pollable,
            waits: wait != FI_WAIT_NONE,
            _fabric: Arc::clone(&fabric.uses),
        });
        let face = FidEq { fid: handle::fid::<FidEq>(context, &OPS), ops: &EQ_OPS };
        // SAFETY: the program's place for the result.
        unsafe { handle::put(eq, || Ok(handle::give(face, inner))) }
    })
}

impl Eq {
    fn events(&self) -> std::sync::MutexGuard<'_, VecDeque<Result<Event, Failed>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event.
    pub fn push(&self, event: Result<Event, Failed>) {
        self.events().push_back(event);
        let _ = self.bell.signal();
    }

    /// Adds an event with the usual entry.
    pub fn push_entry(&self, number: u32, entry: FiEqEntry) {
        let FiEqEntry { fid, context, data } = entry;
        let words = [fid as u64, context as u64, data];
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.push(Ok(Event { number, bytes }));
    }

    /// The next event, left there if `peeks`, if it fits.
    fn next(&self, len: usize, peeks: bool) -> Answer<Event> {
        let mut events = self.events();
        let event = match events.front() {
            None => {
                let _ = self.bell.clear();
                return Err(Code::AGAIN);
            }
            Some(Err(_)) => return Err(Code(FI_EAVAIL)),
            Some(Ok(event)) if event.bytes.len() > len => return Err(Code(FI_ETOOSMALL)),
            Some(Ok(event)) => event.clone(),
        };
        if !peeks {
            events.pop_front();
        }
        Ok(event)
    }
}

/// Nothing is there, so the descriptor tells of the next event.
pub fn may_sleep(eq: &Arc<Eq>) -> Answer {
    let events = eq.events();
    if !events.is_empty() {
        return Err(Code::AGAIN);
    }
    let _ = eq.bell.clear();
    Ok(())
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    guard::status(|| {
        // SAFETY: the program closes an object that it has, once.
        unsafe { handle::take::<FidEq>(fid, fabric::unbound) }.map(drop)
    })
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    guard::status(|| {
        // SAFETY: the program's queue.
        let eq = unsafe { handle::of_fid::<FidEq>(fid)? };
        if command != FI_GETWAIT || !eq.waits || arg.is_null() {
            return Err(Code::NO_SYS);
        }
        // SAFETY: for this command it points to a place for a descriptor.
        unsafe { *arg.cast::<c_int>() = eq.pollable.as_fd().as_raw_fd() };
        Ok(())
    })
}

/// Copies an event out.
///
/// # Safety
/// `number` and `buf` may be written; the bytes fit.
unsafe fn hand_out(event: &Event, number: *mut u32, buf: *mut c_void) -> usize {
    // SAFETY: the caller's.
    unsafe {
        if !number.is_null() {
            *number = event.number;
        }
        ptr::copy_nonoverlapping(event.bytes.as_ptr(), buf.cast(), event.bytes.len());
    }
    event.bytes.len()
}

unsafe extern "C" fn read(
    eq: *mut FidEq,
    number: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    guard::count(|| {
        // SAFETY: the program's queue.
        let event = unsafe { handle::of(eq)? }.next(len, flags & FI_PEEK != 0)?;
        // SAFETY: the program's places; `next` checked the length.
        Ok(unsafe { hand_out(&event, number, buf) })
    })
}

unsafe extern "C" fn readerr(eq: *mut FidEq, buf: *mut FiEqErrEntry, flags: u64) -> isize {
    guard::count(|| {
        // SAFETY: the program's queue.
        let eq = unsafe { handle::of(eq)? };
        let mut events = eq.events();
        let Some(Err(failed)) = events.front().cloned() else { return Err(Code::AGAIN) };
        if flags & FI_PEEK == 0 {
            events.pop_front();
        }
        // SAFETY: the program's place for an entry.
        let entry = unsafe { buf.as_mut() }.ok_or(Code::INVALID)?;
        *entry = FiEqErrEntry {
            fid: failed.fid as *mut Fid,
            context: failed.context as *mut c_void,
            data: failed.data,
            err: failed.code.0,
            prov_errno: failed.code.0,
            err_data: ptr::null_mut(),
            err_data_size: 0,
        };
        Ok(size_of::<FiEqErrEntry>())
    })
}

unsafe extern "C" fn write(
    eq: *mut FidEq,
    number: u32,
    buf: *const c_void,
    len: usize,
    _flags: u64,
) -> isize {
    guard::count(|| {
        // SAFETY: the program's queue.
        let eq = unsafe { handle::of(eq)? };
        if buf.is_null() && len > 0 {
            return Err(Code::INVALID);
        }
        let bytes = match len {
            0 => Vec::new(),
            // SAFETY: the program's bytes.
            _ => unsafe { std::slice::from_raw_parts(buf.cast::<u8>(), len) }.to_vec(),
        };
        eq.push(Ok(Event { number, bytes }));
        Ok(len)
    })
}

unsafe extern "C" fn sread(
    eq: *mut FidEq,
    number: *mut u32,
    buf: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    guard::count(|| {
        // SAFETY: the program's queue.
        let eq = unsafe { handle::of(eq)? };
        if !eq.waits {
            return Err(Code::NO_SYS);
        }
        let patience = (timeout >= 0).then(|| Duration::from_millis(timeout as u64));
        let event = match eq.next(len, flags & FI_PEEK != 0) {
            Err(Code::AGAIN) => {
                eq.pollable.sleep(patience).map_err(|_| Code(libc::EINTR))?;
                eq.next(len, flags & FI_PEEK != 0)?
            }
            other => other?,
        };
        // SAFETY: the program's places; `next` checked the length.
        Ok(unsafe { hand_out(&event, number, buf) })
    })
}

unsafe extern "C" fn strerror(
    _: *mut FidEq,
    code: c_int,
    _: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: the program's room for a text.
    guard::value(ptr::null(), || unsafe { guard::describe(code, buf, len) })
}
