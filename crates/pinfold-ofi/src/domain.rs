//! Domains: they hold the lock of all that is opened in them.
#![allow(unsafe_code)]
// Invariant: pointers of C's are read and written as the manual pages say what they point to.

use std::{
    ffi::{c_int, c_void},
    sync::Arc,
};

use crate::{
    atomic, auto, av, cntr, cq,
    ep::{self, Ep},
    eq::Eq,
    fabric,
    ffi::{
        flags::{FI_CLASS_DOMAIN, FI_CLASS_EQ, FI_PROGRESS_AUTO, FI_THREAD_DOMAIN, FI_THREAD_SAFE},
        info::FiInfo,
        object::{FiOps, FiOpsDomain, Fid, FidDomain, FidEq, FidFabric},
    },
    guard::{self, Answer, Code},
    handle::{self, Face},
    lock::{Guarded, Held, Lock},
    mr,
    regions::Regions,
};

/// A domain.
pub struct Domain {
    pub lock: Lock,
    /// The version of the interface that the program speaks.
    pub api_version: u32,
    /// The mode of registration, of this domain's description.
    pub mr_mode: c_int,
    /// Its endpoints that are open.
    pub endpoints: Guarded<Vec<Arc<Ep>>>,
    /// The queue for events of objects that have none of their own.
    pub eq: Guarded<Option<Arc<Eq>>>,
    /// The memory that peers may use.
    pub regions: Arc<Regions>,
    /// The thread that makes progress where the program does not.
    pub driver: Option<auto::Driver>,
    /// Cloned by all that stands on it.
    pub uses: Arc<()>,
    _fabric: Arc<()>,
}

impl Domain {
    pub fn hold(&self) -> Held<'_> {
        self.lock.hold()
    }

    /// A turn of progress of all of its endpoints.
    pub fn progress(&self, held: &Held<'_>) {
        for ep in self.endpoints.open(held).iter() {
            ep.progress(held);
        }
    }
}

impl Face for FidDomain {
    type Inner = Domain;
    const CLASS: usize = FI_CLASS_DOMAIN;
}

static OPS: FiOps = FiOps {
    size: size_of::<FiOps>(),
    close,
    bind,
    control: guard::no_control,
    ops_open: guard::no_ops_open,
    tostr: guard::no_tostr,
    ops_set: guard::no_ops_set,
};

static DOMAIN_OPS: FiOpsDomain = FiOpsDomain {
    size: size_of::<FiOpsDomain>(),
    av_open: av::open,
    cq_open: cq::open,
    endpoint: ep::open,
    scalable_ep: guard::no_scalable_ep,
    cntr_open: cntr::open,
    poll_open: guard::no_poll_open,
    stx_ctx: guard::no_stx_ctx,
    srx_ctx: guard::no_srx_ctx,
    query_atomic: atomic::query,
    query_collective: guard::no_query_collective,
    endpoint2,
};

/// `fi_domain`.
pub unsafe extern "C" fn open(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    domain: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    guard::status(|| {
        // SAFETY: the program's fabric.
        let fabric = unsafe { handle::of(fabric)? };
        // SAFETY: the program's description, which is there during the call.
        let info = unsafe { info.as_ref() }.ok_or(Code::INVALID)?;
        // SAFETY: as above.
        let attr = unsafe { info.domain_attr.as_ref() };
        let threading = attr.map_or(FI_THREAD_SAFE, |it| it.threading);
        let is_driven = attr.is_some_and(|it| it.data_progress == FI_PROGRESS_AUTO);
        let inner = Domain {
            // A thread that makes progress is one more caller.
            lock: Lock::new(threading != FI_THREAD_DOMAIN || is_driven),
            api_version: fabric.api_version,
            mr_mode: attr.map_or(0, |it| it.mr_mode),
            endpoints: Guarded::new(Vec::new()),
            eq: Guarded::new(None),
            regions: Arc::default(),
            driver: if is_driven { Some(auto::Driver::new()?) } else { None },
            uses: Arc::new(()),
            _fabric: Arc::clone(&fabric.uses),
        };
        let inner = Arc::new(inner);
        if let Some(driver) = &inner.driver {
            driver.start(&inner)?;
        }
        let fid = handle::fid::<FidDomain>(context, &OPS);
        let face = FidDomain { fid, ops: &DOMAIN_OPS, mr: &mr::OPS };
        // SAFETY: the program's place for the result.
        unsafe { handle::put(domain, || Ok(handle::give(face, inner))) }
    })
}

/// `fi_domain2`: there are no flags.
pub unsafe extern "C" fn open2(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    domain: *mut *mut FidDomain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -crate::ffi::flags::FI_EBADFLAGS;
    }
    // SAFETY: the caller's.
    unsafe { open(fabric, info, domain, context) }
}

/// `fi_endpoint2`: there are no flags.
unsafe extern "C" fn endpoint2(
    domain: *mut FidDomain,
    info: *mut FiInfo,
    ep: *mut *mut crate::ffi::ep::FidEp,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -crate::ffi::flags::FI_EBADFLAGS;
    }
    // SAFETY: the caller's.
    unsafe { ep::open(domain, info, ep, context) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    guard::status(|| {
        // SAFETY: the program closes an object that it has, once.
        let domain = unsafe { handle::take::<FidDomain>(fid, |it| fabric::unused(&it.uses))? };
        if let Some(driver) = &domain.driver {
            driver.stop();
        }
        Ok(())
    })
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, _flags: u64) -> c_int {
    guard::status(|| {
        // SAFETY: the program's objects.
        let domain = unsafe { handle::of_fid::<FidDomain>(fid)? };
        // SAFETY: as above.
        match unsafe { handle::class(other) } {
            FI_CLASS_EQ => {
                // SAFETY: as above.
                let eq = unsafe { handle::of_fid::<FidEq>(other)? };
                let held = domain.hold();
                *domain.eq.open(&held) = Some(Arc::clone(eq));
                Ok(())
            }
            _ => Err(Code::INVALID),
        }
    })
}

/// A number out of what C calls a `size_t` or `int`, at least one.
pub fn or_default(number: usize, default: usize) -> usize {
    if number == 0 { default } else { number }
}

/// The end of a wait that lasts `timeout` milliseconds, for ever if that is negative.
pub fn deadline(timeout: c_int) -> Answer<Option<std::time::Instant>> {
    use std::time::{Duration, Instant};
    if timeout < 0 {
        return Ok(None);
    }
    Ok(Instant::now().checked_add(Duration::from_millis(timeout as u64)))
}
