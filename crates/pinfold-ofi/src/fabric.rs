//! Fabrics: they open domains and event queues.
#![allow(unsafe_code)]
// Invariant: pointers of C's are read and written as the manual pages say what they point to.

use std::{
    ffi::{c_int, c_void},
    sync::Arc,
};

use crate::{
    cntr, cq, domain, eq,
    ffi::{
        flags::{FI_CLASS_CNTR, FI_CLASS_CQ, FI_CLASS_EQ, FI_CLASS_FABRIC},
        info::FiFabricAttr,
        object::{FiOps, FiOpsFabric, Fid, FidEq, FidFabric},
        queue::{FidCntr, FidCq},
    },
    guard::{self, Code},
    handle::{self, Face},
};

/// A fabric.
pub struct Fabric {
    /// The version of the interface that the program speaks.
    pub api_version: u32,
    /// Cloned by all that stands on it.
    pub uses: Arc<()>,
}

impl Face for FidFabric {
    type Inner = Fabric;
    const CLASS: usize = FI_CLASS_FABRIC;
}

static OPS: FiOps = FiOps {
    size: size_of::<FiOps>(),
    close,
    bind: guard::no_bind,
    control: guard::no_control,
    ops_open: guard::no_ops_open,
    tostr: guard::no_tostr,
    ops_set: guard::no_ops_set,
};

static FABRIC_OPS: FiOpsFabric = FiOpsFabric {
    size: size_of::<FiOpsFabric>(),
    domain: domain::open,
    passive_ep: guard::no_passive_ep,
    eq_open: eq::open,
    wait_open: guard::no_wait_open,
    trywait,
    domain2: domain::open2,
};

/// `fi_fabric`.
pub unsafe extern "C" fn open(
    attr: *mut FiFabricAttr,
    fabric: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    guard::status(|| {
        if attr.is_null() {
            return Err(Code::INVALID);
        }
        // SAFETY: attributes of the program's, which are there during the call.
        let api_version = unsafe { (*attr).api_version };
        let inner = Arc::new(Fabric { api_version, uses: Arc::new(()) });
        let fid = handle::fid::<FidFabric>(context, &OPS);
        let face = FidFabric { fid, ops: &FABRIC_OPS, api_version };
        // SAFETY: the program's place for the result.
        unsafe { handle::put(fabric, || Ok(handle::give(face, inner))) }
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    guard::status(|| {
        let may = |it: &Arc<Fabric>| unused(&it.uses);
        // SAFETY: the program closes an object that it has, once.
        unsafe { handle::take::<FidFabric>(fid, may) }.map(drop)
    })
}

/// Nothing stands on an object any more, or it is busy.
pub fn unused(uses: &Arc<()>) -> guard::Answer {
    if Arc::strong_count(uses) > 1 { Err(Code::BUSY) } else { Ok(()) }
}

/// Nothing is bound to an object any more, or it is busy.
pub fn unbound<T>(object: &Arc<T>) -> guard::Answer {
    if Arc::strong_count(object) > 1 { Err(Code::BUSY) } else { Ok(()) }
}

/// `fi_trywait`: may the program sleep on the descriptors of these objects?
unsafe extern "C" fn trywait(_: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int {
    guard::status(|| {
        let all = (0..count.max(0) as usize).map(|at| {
            // SAFETY: the program's array has `count` objects.
            unsafe { *fids.add(at) }
        });
        // A turn of progress for one takes back what another was armed for.
        for fid in all.clone() {
            // SAFETY: an object of the interface.
            match unsafe { handle::class(fid) } {
                // SAFETY: as above.
                FI_CLASS_CQ => cq::is_quiet(unsafe { handle::of_fid::<FidCq>(fid)? })?,
                // SAFETY: as above.
                FI_CLASS_CNTR => cntr::may_sleep(unsafe { handle::of_fid::<FidCntr>(fid)? })?,
                FI_CLASS_EQ => {}
                _ => return Err(Code::INVALID),
            }
        }
        for fid in all {
            // SAFETY: as above.
            match unsafe { handle::class(fid) } {
                // SAFETY: as above.
                FI_CLASS_CQ => cq::may_sleep(unsafe { handle::of_fid::<FidCq>(fid)? })?,
                // SAFETY: as above.
                FI_CLASS_EQ => eq::may_sleep(unsafe { handle::of_fid::<FidEq>(fid)? })?,
                _ => {}
            }
        }
        Ok(())
    })
}
