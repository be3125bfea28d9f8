//! Completion queues: entries in the order in which operations ended, errors among them.
#![allow(unsafe_code)]
// Invariant: pointers of C's are read and written as the manual pages say what they point to; an
// entry of any format is the beginning of a tagged one, and no more than that is written.

use std::{
    collections::VecDeque,
    ffi::{c_char, c_int, c_void},
    os::fd::{AsFd, AsRawFd},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use pinfold_sys::io::poll::{Epoll, EventFd, Interest};

use crate::{
    domain::{self, Domain},
    ep::Ep,
    fabric,
    ffi::{
        flags::*,
        object::{FiOps, Fid, FidDomain},
        queue::{FiCqAttr, FiCqErrEntry, FiCqTaggedEntry, FiOpsCq, FidCq},
    },
    guard::{self, Answer, Code},
    handle::{self, Face},
    idle,
    lock::{Guarded, Held},
};

/// How long a thread looks for completions before it sleeps.
const SPIN: Duration = Duration::from_micros(20);

/// The end of an operation that went well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub context: usize,
    pub flags: u64,
    pub len: usize,
    pub buf: usize,
    pub data: u64,
    pub tag: u64,
    /// The number of the sender; of no use in other operations.
    pub source: u64,
}

/// The end of an operation that did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    pub event: Event,
    pub code: Code,
    /// Bytes that there was no room for.
    pub beyond: usize,
}

/// A completion queue.
pub struct Cq {
    pub domain: Arc<Domain>,
    /// Length of an entry, bytes.
    entry_bytes: usize,
    /// Completions that are not taken, from which on nothing more is sent.
    size: usize,
    is_thresholded: bool,
    wait: Option<Wait>,
    pub entries: Guarded<VecDeque<Result<Event, Failure>>>,
    /// The endpoints that it is bound to.
    endpoints: Guarded<Vec<Arc<Ep>>>,
    is_signalled: AtomicBool,
    _domain: Arc<()>,
}

/// The bell that its callers sleep on.
struct Wait {
    pollable: Epoll,
    bell: EventFd,
    /// True if the bell is to be rung for the next completion.
    is_armed: AtomicBool,
    has_fd: bool,
}

impl Wait {
    fn new(has_fd: bool) -> Answer<Wait> {
        let failed = |_| Code(libc::EMFILE);
        let (pollable, bell) = (Epoll::new().map_err(failed)?, EventFd::new().map_err(failed)?);
        pollable.add(&bell, 0, Interest::Read).map_err(failed)?;
        Ok(Wait { pollable, bell, is_armed: AtomicBool::new(false), has_fd })
    }

    fn ring(&self) {
        if self.is_armed.load(Ordering::SeqCst) && self.is_armed.swap(false, Ordering::SeqCst) {
            let _ = self.bell.signal();
        }
    }
}

impl Cq {
    /// An endpoint is bound to it.
    pub fn attach(&self, held: &Held<'_>, ep: &Arc<Ep>) -> Answer {
        let mut endpoints = self.endpoints.open(held);
        if endpoints.iter().any(|other| Arc::ptr_eq(other, ep)) {
            return Ok(());
        }
        if let Some(wait) = &self.wait {
            let added = wait.pollable.add(&ep.queue, 1, Interest::Read);
            added.map_err(|_| Code(libc::EMFILE))?;
        }
        endpoints.push(Arc::clone(ep));
        Ok(())
    }

    /// The endpoint closes.
    pub fn detach(&self, held: &Held<'_>, ep: &Arc<Ep>) {
        if let Some(wait) = &self.wait {
            let _ = wait.pollable.remove(&ep.queue);
        }
        self.endpoints.open(held).retain(|other| !Arc::ptr_eq(other, ep));
    }

    /// An operation has ended.
    pub fn push(&self, held: &Held<'_>, entry: Result<Event, Failure>) {
        self.entries.open(held).push_back(entry);
        if let Some(wait) = &self.wait {
            wait.ring();
        }
    }

    /// An endpoint was entered: who sleeps on the queue has to arm it anew.
    pub fn disturb(&self) {
        if let Some(wait) = &self.wait {
            wait.ring();
        }
    }

    /// True if nobody can sleep on it.
    pub fn only_polls(&self) -> bool {
        self.wait.is_none()
    }

    /// True if the program has left so many completions that it should take some first.
    pub fn is_full(&self, held: &Held<'_>) -> bool {
        self.entries.open(held).len() >= self.size
    }

    fn progress(&self, held: &Held<'_>) {
        for ep in self.endpoints.open(held).iter() {
            ep.progress(held);
        }
    }

    /// Takes up to `max` completions that went well, in order; `each` gets their number and
    /// themselves. An error is not passed over.
    fn take(
        &self,
        held: &Held<'_>,
        max: usize,
        mut each: impl FnMut(usize, &Event),
    ) -> Answer<usize> {
        let mut entries = self.entries.open(held);
        let mut taken = 0;
        while taken < max {
            match entries.front() {
                Some(Ok(event)) => each(taken, event),
                Some(Err(_)) if taken == 0 => return Err(Code(FI_EAVAIL)),
                _ => break,
            }
            entries.pop_front();
            taken += 1;
        }
        if taken > 0 { Ok(taken) } else { Err(Code::AGAIN) }
    }

    /// Returns whether the descriptor tells of all that comes from now on.
    fn arm(&self) -> bool {
        let Some(wait) = &self.wait else { return false };
        let _ = wait.bell.clear();
        wait.is_armed.store(true, Ordering::SeqCst);
        let held = self.domain.hold();
        let is_quiet = self.entries.open(&held).is_empty()
            && self.endpoints.open(&held).iter().all(|ep| ep.queue.arm().unwrap_or(true));
        if !is_quiet {
            wait.is_armed.store(false, Ordering::SeqCst);
        }
        is_quiet
    }

    /// Waits for completions to be there, at least `count` if the program may say how many.
    fn wait(&self, count: usize, deadline: Option<Instant>) -> Answer {
        let wait = self.wait.as_ref().ok_or(Code::NO_SYS)?;
        let begun = Instant::now();
        loop {
            {
                let held = self.domain.hold();
                self.progress(&held);
                let entries = self.entries.open(&held);
                if entries.len() >= count || entries.iter().any(Result::is_err) {
                    return Ok(());
                }
            }
            if self.is_signalled.swap(false, Ordering::SeqCst) {
                return Err(Code(libc::ECANCELED));
            }
            if deadline.is_some_and(|end| Instant::now() >= end) {
                return Err(Code::AGAIN);
            }
            if begun.elapsed() < SPIN {
                std::hint::spin_loop();
            } else if count > 1 || self.arm() {
                // A thread that waits for several entries looks now and then.
                let longest = (count > 1).then_some(Duration::from_millis(1));
                let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
                let patience = left.into_iter().chain(longest).min();
                wait.pollable.sleep(patience).map_err(|_| Code(libc::EINTR))?;
            }
        }
    }
}

/// Nothing is there, after a turn of progress.
pub fn is_quiet(cq: &Arc<Cq>) -> Answer {
    if cq.wait.is_none() {
        return Err(Code::NO_SYS);
    }
    let held = cq.domain.hold();
    cq.progress(&held);
    if cq.entries.open(&held).is_empty() { Ok(()) } else { Err(Code::AGAIN) }
}

/// Nothing is there, and the descriptor tells of the next completion.
pub fn may_sleep(cq: &Arc<Cq>) -> Answer {
    if cq.arm() { Ok(()) } else { Err(Code::AGAIN) }
}

impl Face for FidCq {
    type Inner = Cq;
    const CLASS: usize = FI_CLASS_CQ;
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

static CQ_OPS: FiOpsCq = FiOpsCq {
    size: size_of::<FiOpsCq>(),
    read,
    readfrom,
    readerr,
    sread,
    sreadfrom,
    signal,
    strerror,
};

/// `fi_cq_open`.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut FiCqAttr,
    cq: *mut *mut FidCq,
    context: *mut c_void,
) -> c_int {
    guard::status(|| {
        // SAFETY: the program's domain.
        let domain = unsafe { handle::of(domain)? };
        // SAFETY: the program's attributes, which are there during the call.
        let attr = unsafe { attr.as_mut() }.ok_or(Code::INVALID)?;
        let entry_bytes = match attr.format {
            FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_CONTEXT => 8,
            FI_CQ_FORMAT_MSG => 24,
            FI_CQ_FORMAT_DATA => 40,
            FI_CQ_FORMAT_TAGGED => 48,
            _ => return Err(Code::INVALID),
        };
        let wait = match attr.wait_obj {
            FI_WAIT_NONE => None,
            FI_WAIT_UNSPEC | FI_WAIT_YIELD => Some(Wait::new(false)?),
            FI_WAIT_FD => Some(Wait::new(true)?),
            _ => return Err(Code::NO_SYS),
        };
        let is_thresholded = match attr.wait_cond {
            FI_CQ_COND_NONE => false,
            FI_CQ_COND_THRESHOLD => true,
            _ => return Err(Code::INVALID),
        };
        attr.size = domain::or_default(attr.size, crate::attr::OPERATIONS);
        let inner = Arc::new(Cq {
            domain: Arc::clone(domain),
            entry_bytes,
            size: attr.size,
            is_thresholded,
            wait,
            entries: Guarded::new(VecDeque::new()),
            endpoints: Guarded::new(Vec::new()),
            is_signalled: AtomicBool::new(false),
            _domain: Arc::clone(&domain.uses),
        });
        let face = FidCq { fid: handle::fid::<FidCq>(context, &OPS), ops: &CQ_OPS };
        // SAFETY: the program's place for the result.
        unsafe { handle::put(cq, || Ok(handle::give(face, inner))) }
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    guard::status(|| {
        // SAFETY: the program closes an object that it has, once.
        unsafe { handle::take::<FidCq>(fid, fabric::unbound) }.map(drop)
    })
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    guard::status(|| {
        // SAFETY: the program's queue.
        let cq = unsafe { handle::of_fid::<FidCq>(fid)? };
        let wait = cq.wait.as_ref().ok_or(Code::NO_SYS)?;
        if arg.is_null() {
            return Err(Code::INVALID);
        }
        let number = match command {
            FI_GETWAIT if wait.has_fd => wait.pollable.as_fd().as_raw_fd(),
            FI_GETWAITOBJ if wait.has_fd => FI_WAIT_FD,
            FI_GETWAITOBJ => FI_WAIT_UNSPEC,
            _ => return Err(Code::NO_SYS),
        };
        // SAFETY: for these commands it points to a place for a number.
        unsafe { *arg.cast::<c_int>() = number };
        Ok(())
    })
}

/// Reads without waiting.
///
/// # Safety
/// `buf` has room for `count` entries of the queue's format, `sources` is null or has for as many.
unsafe fn read_some(cq: &Cq, buf: *mut c_void, count: usize, sources: *mut u64) -> Answer<usize> {
    if buf.is_null() && count > 0 {
        return Err(Code::INVALID);
    }
    let held = cq.domain.hold();
    if cq.entries.open(&held).is_empty() || count == 0 {
        cq.progress(&held);
    }
    if count == 0 {
        return Ok(0);
    }
    let bytes = cq.entry_bytes;
    let taken = cq.take(&held, count, |at, event| {
        let entry = FiCqTaggedEntry {
            context: event.context as *mut c_void,
            flags: event.flags,
            len: event.len,
            buf: event.buf as *mut c_void,
            data: event.data,
            tag: event.tag,
        };
        // SAFETY: the caller's; the beginning of an entry as long as the format's.
        unsafe {
            let place = buf.cast::<u8>().add(at * bytes);
            ptr::copy_nonoverlapping(ptr::from_ref(&entry).cast::<u8>(), place, bytes);
            if !sources.is_null() {
                *sources.add(at) = event.source;
            }
        }
    });
    if taken != Err(Code::AGAIN) {
        idle::end();
    } else if idle::poll() {
        // The program polls; whoever it waits for may need this core.
        drop(held);
        std::thread::yield_now();
    }
    taken
}

unsafe extern "C" fn read(cq: *mut FidCq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: the program's queue, and its room.
    guard::count(|| unsafe { read_some(handle::of(cq)?, buf, count, ptr::null_mut()) })
}

unsafe extern "C" fn readfrom(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    sources: *mut u64,
) -> isize {
    // SAFETY: the program's queue, and its room.
    guard::count(|| unsafe { read_some(handle::of(cq)?, buf, count, sources) })
}

unsafe extern "C" fn readerr(cq: *mut FidCq, buf: *mut FiCqErrEntry, flags: u64) -> isize {
    guard::count(|| {
        // SAFETY: the program's queue.
        let cq = unsafe { handle::of(cq)? };
        if buf.is_null() {
            return Err(Code::INVALID);
        }
        let held = cq.domain.hold();
        let mut entries = cq.entries.open(&held);
        let Some(Err(failure)) = entries.front().copied() else { return Err(Code::AGAIN) };
        if flags & FI_PEEK == 0 {
            entries.pop_front();
        }
        let Failure { event, code, beyond } = failure;
        let entry = FiCqErrEntry {
            context: event.context as *mut c_void,
            flags: event.flags,
            len: event.len,
            buf: event.buf as *mut c_void,
            data: event.data,
            tag: event.tag,
            olen: beyond,
            err: code.0,
            prov_errno: code.0,
            err_data: ptr::null_mut(),
            err_data_size: 0,
        };
        // SAFETY: the program's room for an entry; from 1.20 on it has the source behind.
        unsafe {
            buf.write(entry);
            if cq.domain.api_version >= version(1, 20) {
                buf.add(1).cast::<u64>().write(event.source);
            }
        }
        Ok(1)
    })
}

unsafe extern "C" fn sread(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: the caller's.
    unsafe { sreadfrom(cq, buf, count, ptr::null_mut(), cond, timeout) }
}

unsafe extern "C" fn sreadfrom(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    sources: *mut u64,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    guard::count(|| {
        // SAFETY: the program's queue.
        let cq = unsafe { handle::of(cq)? };
        // The number is passed in place of a pointer.
        let wanted = if cq.is_thresholded { (cond as usize).clamp(1, count.max(1)) } else { 1 };
        cq.wait(wanted, domain::deadline(timeout)?)?;
        // SAFETY: the program's room.
        unsafe { read_some(cq, buf, count, sources) }
    })
}

unsafe extern "C" fn signal(cq: *mut FidCq) -> c_int {
    guard::status(|| {
        // SAFETY: the program's queue.
        let cq = unsafe { handle::of(cq)? };
        let wait = cq.wait.as_ref().ok_or(Code::NO_SYS)?;
        cq.is_signalled.store(true, Ordering::SeqCst);
        wait.is_armed.store(false, Ordering::SeqCst);
        wait.bell.signal().map_err(|_| Code::OTHER)
    })
}

unsafe extern "C" fn strerror(
    _: *mut FidCq,
    code: c_int,
    _: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: the program's room for a text.
    guard::value(ptr::null(), || unsafe { guard::describe(code, buf, len) })
}
