//! Counters: how many operations have ended well, and how many have failed.
#![allow(unsafe_code)]
// Invariant: pointers of C's are read and written as the manual pages say what they point to.

use std::{
    ffi::{c_int, c_void},
    os::fd::{AsFd, AsRawFd},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use pinfold::CompletionQueue;
use pinfold_sys::io::poll::{Epoll, EventFd, Interest};

use crate::{
    domain::{self, Domain},
    fabric,
    ffi::{
        flags::{
            FI_CLASS_CNTR, FI_CNTR_EVENTS_COMP, FI_EAVAIL, FI_GETWAIT, FI_GETWAITOBJ, FI_WAIT_FD,
            FI_WAIT_NONE, FI_WAIT_UNSPEC,
        },
        object::{FiOps, Fid, FidDomain},
        queue::{FiCntrAttr, FiOpsCntr, FidCntr},
    },
    guard::{self, Answer, Code},
    handle::{self, Face},
};

/// The longest sleep of a wait: another thread may have made the progress that it waits for.
const LONGEST: Duration = Duration::from_millis(20);

/// A counter.
pub struct Cntr {
    value: AtomicU64,
    errors: AtomicU64,
    domain: Arc<Domain>,
    /// Its kind of wait.
    wait: c_int,
    /// Calls that sleep for it, and programs that may.
    waiting: AtomicUsize,
    bell: EventFd,
    /// The bell, and the descriptors of the domain's endpoints.
    pollable: Epoll,
    pub uses: Arc<()>,
    _domain: Arc<()>,
}

impl Face for FidCntr {
    type Inner = Cntr;
    const CLASS: usize = FI_CLASS_CNTR;
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

static CNTR_OPS: FiOpsCntr =
    FiOpsCntr { size: size_of::<FiOpsCntr>(), read, readerr, add, set, wait, adderr, seterr };

/// `fi_cntr_open`.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut FiCntrAttr,
    cntr: *mut *mut FidCntr,
    context: *mut c_void,
) -> c_int {
    guard::status(|| {
        // SAFETY: the program's domain.
        let domain = unsafe { handle::of(domain)? };
        // SAFETY: null, or attributes that are there during the call.
        let attr = unsafe { attr.as_ref() };
        let (events, wait, flags) = attr.map_or((FI_CNTR_EVENTS_COMP, FI_WAIT_UNSPEC, 0), |attr| {
            (attr.events, attr.wait_obj, attr.flags)
        });
        if flags != 0 {
            return Err(Code(crate::ffi::flags::FI_EBADFLAGS));
        }
        let waits = matches!(wait, FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_FD);
        if events != FI_CNTR_EVENTS_COMP || !waits {
            return Err(Code::NO_SYS);
        }
        let failed = |_| Code(libc::EMFILE);
        let (bell, pollable) = (EventFd::new().map_err(failed)?, Epoll::new().map_err(failed)?);
        pollable.add(&bell, 0, Interest::Read).map_err(failed)?;
        let inner = Arc::new(Cntr {
            value: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            domain: Arc::clone(domain),
            wait,
            waiting: AtomicUsize::new(0),
            bell,
            pollable,
            uses: Arc::new(()),
            _domain: Arc::clone(&domain.uses),
        });
        let face = FidCntr { fid: handle::fid::<FidCntr>(context, &OPS), ops: &CNTR_OPS };
        // SAFETY: the program's place for the result.
        unsafe { handle::put(cntr, || Ok(handle::give(face, inner))) }
    })
}

impl Cntr {
    /// Counts an operation that has ended well.
    pub fn count(&self) {
        self.value.fetch_add(1, Ordering::SeqCst);
        self.ring();
    }

    /// Counts an operation that has failed.
    pub fn count_failed(&self) {
        self.errors.fetch_add(1, Ordering::SeqCst);
        self.ring();
    }

    /// Has those that sleep look again.
    fn ring(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _ = self.bell.signal();
        }
    }

    /// A turn of progress of the domain.
    fn progress(&self) {
        let held = self.domain.hold();
        self.domain.progress(&held);
    }

    /// Prepares for a sleep on the descriptor. `false`: something may have happened.
    fn arm(&self) -> bool {
        let held = self.domain.hold();
        let queues: Vec<CompletionQueue> =
            self.domain.endpoints.open(&held).iter().map(|ep| ep.queue.clone()).collect();
        drop(held);
        let _ = self.bell.clear();
        queues.iter().all(|queue| {
            // One that is in there already is refused, and one that is closed is out of it.
            let _ = self.pollable.add(queue, 1, Interest::Read);
            queue.arm().unwrap_or(true)
        })
    }

    /// Waits until the counter has reached `least`, an operation has failed, or a time has come.
    fn wait_for(&self, least: u64, deadline: Option<Instant>) -> Answer {
        let errors = self.errors.load(Ordering::SeqCst);
        let reached = || {
            if self.value.load(Ordering::SeqCst) >= least {
                return Some(Ok(()));
            }
            let failed = self.errors.load(Ordering::SeqCst) != errors;
            failed.then_some(Err(Code(FI_EAVAIL)))
        };
        loop {
            self.progress();
            if let Some(end) = reached() {
                return end;
            }
            let now = Instant::now();
            if deadline.is_some_and(|end| now >= end) {
                return Err(Code(libc::ETIMEDOUT));
            }
            self.waiting.fetch_add(1, Ordering::SeqCst);
            if self.arm() && reached().is_none() {
                let left = deadline.map_or(LONGEST, |end| end - now);
                let _ = self.pollable.sleep(Some(left.min(LONGEST)));
            }
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// May the program sleep on the counter's descriptor?
pub fn may_sleep(cntr: &Cntr) -> Answer {
    if cntr.wait == FI_WAIT_NONE {
        return Err(Code::INVALID);
    }
    let before = cntr.value.load(Ordering::SeqCst) + cntr.errors.load(Ordering::SeqCst);
    cntr.progress();
    let is_quiet = cntr.arm();
    let after = cntr.value.load(Ordering::SeqCst) + cntr.errors.load(Ordering::SeqCst);
    if is_quiet && before == after { Ok(()) } else { Err(Code::AGAIN) }
}

/// The counter behind a pointer of C's, and 0 for one that is none.
fn with(cntr: *mut FidCntr, run: impl FnOnce(&Cntr) -> u64) -> u64 {
    // SAFETY: the program's counter, or null.
    let counter = unsafe { handle::of(cntr) };
    guard::value(0, || counter.map_or(0, |cntr| run(cntr)))
}

fn change(cntr: *mut FidCntr, run: impl FnOnce(&Cntr)) -> c_int {
    guard::status(|| {
        // SAFETY: the program's counter, or null.
        let cntr = unsafe { handle::of(cntr)? };
        run(cntr);
        cntr.ring();
        Ok(())
    })
}

unsafe extern "C" fn read(cntr: *mut FidCntr) -> u64 {
    with(cntr, |cntr| {
        cntr.progress();
        cntr.value.load(Ordering::SeqCst)
    })
}

unsafe extern "C" fn readerr(cntr: *mut FidCntr) -> u64 {
    with(cntr, |cntr| {
        cntr.progress();
        cntr.errors.load(Ordering::SeqCst)
    })
}

unsafe extern "C" fn add(cntr: *mut FidCntr, more: u64) -> c_int {
    change(cntr, |cntr| {
        cntr.value.fetch_add(more, Ordering::SeqCst);
    })
}

unsafe extern "C" fn set(cntr: *mut FidCntr, to: u64) -> c_int {
    change(cntr, |cntr| cntr.value.store(to, Ordering::SeqCst))
}

unsafe extern "C" fn adderr(cntr: *mut FidCntr, more: u64) -> c_int {
    change(cntr, |cntr| {
        cntr.errors.fetch_add(more, Ordering::SeqCst);
    })
}

unsafe extern "C" fn seterr(cntr: *mut FidCntr, to: u64) -> c_int {
    change(cntr, |cntr| cntr.errors.store(to, Ordering::SeqCst))
}

unsafe extern "C" fn wait(cntr: *mut FidCntr, least: u64, timeout: c_int) -> c_int {
    guard::status(|| {
        // SAFETY: the program's counter, or null.
        let cntr = unsafe { handle::of(cntr)? };
        if cntr.wait == FI_WAIT_NONE {
            return Err(Code::NO_SYS);
        }
        cntr.wait_for(least, domain::deadline(timeout)?)
    })
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    guard::status(|| {
        // SAFETY: the program's counter.
        let cntr = unsafe { handle::of_fid::<FidCntr>(fid)? };
        if arg.is_null() {
            return Err(Code::INVALID);
        }
        let answer = match command {
            FI_GETWAIT if cntr.wait != FI_WAIT_FD => return Err(Code::NO_DATA),
            FI_GETWAIT => {
                // A thread may sleep on the descriptor at any time.
                cntr.waiting.fetch_add(1, Ordering::SeqCst);
                cntr.pollable.as_fd().as_raw_fd()
            }
            FI_GETWAITOBJ => cntr.wait,
            _ => return Err(Code::NO_SYS),
        };
        // SAFETY: the program's place for an `int`.
        unsafe { arg.cast::<c_int>().write(answer) };
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    guard::status(|| {
        let may = |it: &Arc<Cntr>| fabric::unused(&it.uses);
        // SAFETY: the program closes an object that it has, once.
        unsafe { handle::take::<FidCntr>(fid, may) }.map(drop)
    })
}
