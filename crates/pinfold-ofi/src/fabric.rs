//! Fabrics: they open domains and event queues.
#![allow(unsafe_code)]
// Invariant: pointers of C's are read and written as the manual pages say what they point to.

use std::{
    ffi::{c_int, c_void},
    sync::Arc,
};

use crate::{
    cntr,
    cq::{self, Cq},
    domain, eq,
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

/// `fi_trywait`: may the program sleep on the descriptors of these objects?
unsafe extern "C" fn trywait(_: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int {
    guard::status(|| {
        for at in 0..count.max(0) as usize {
            // SAFETY: the program's array has `count` objects.
            let fid = unsafe { *fids.add(at) };
            // SAFETY: an object of the interface.
            match unsafe { handle::class(fid) } {
                FI_CLASS_CQ => {
                    // SAFETY: as above.
                    let cq: &Arc<Cq> = unsafe { handle::of_fid::<FidCq>(fid)? };
                    cq::may_sleep(cq)?;
                }
                FI_CLASS_EQ => {
                    // SAFETY: as above.
                    eq::may_sleep(unsafe { handle::of_fid::<FidEq>(fid)? })?;
                }
                FI_CLASS_CNTR => {
                    // SAFETY: as above.
                    cntr::may_sleep(unsafe { handle::of_fid::<FidCntr>(fid)? })?;
                }
                _ => return Err(Code::INVALID),
            }
        }
        Ok(())
    })
}
