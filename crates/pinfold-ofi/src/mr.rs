//! Memory regions.
#![allow(unsafe_code)]
// Invariant: pointers of C's are read and written as the manual pages say what they point to.

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::Arc,
};

use crate::{
    domain::Domain,
    ffi::{
        flags::{
            FI_CLASS_CNTR, FI_CLASS_EP, FI_CLASS_MR, FI_EBADFLAGS, FI_ENABLE, FI_MR_BASIC,
            FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_READ, FI_RECV, FI_SEND, FI_WRITE,
        },
        object::{FiMrAttr, FiOps, FiOpsMr, Fid, FidDomain, FidMr},
        queue::FidCntr,
    },
    guard::{self, Answer, Code},
    handle::{self, Face},
    regions::{REMOTE, Region},
};

pub static OPS: FiOpsMr = FiOpsMr { size: size_of::<FiOpsMr>(), reg, regv, regattr };

static FID_OPS: FiOps = FiOps {
    size: size_of::<FiOps>(),
    close,
    bind,
    control,
    ops_open: guard::no_ops_open,
    tostr: guard::no_tostr,
    ops_set: guard::no_ops_set,
};

/// A memory region.
pub struct Mr {
    region: Arc<Region>,
    domain: Arc<Domain>,
    _domain: Arc<()>,
}

impl Face for FidMr {
    type Inner = Mr;
    const CLASS: usize = FI_CLASS_MR;
}

/// The wishes of a registration.
struct Wish {
    memory: libc::iovec,
    access: u64,
    offset: u64,
    key: u64,
    context: *mut c_void,
}

/// Registers memory.
///
/// # Safety
/// The domain and the place for the result are the program's.
unsafe fn register(domain: *mut Fid, wish: &Wish, flags: u64, mr: *mut *mut FidMr) -> Answer {
    // SAFETY: the caller's.
    let domain = unsafe { handle::of_fid::<FidDomain>(domain)? };
    if mr.is_null() {
        return Err(Code::INVALID);
    }
    if flags & !crate::ffi::flags::FI_RMA_EVENT != 0 {
        return Err(Code(FI_EBADFLAGS));
    }
    if wish.access & !(FI_SEND | FI_RECV | FI_READ | FI_WRITE | REMOTE) != 0 {
        return Err(Code::INVALID);
    }
    let start = wish.memory.iov_base.expose_provenance();
    let end = start.checked_add(wish.memory.iov_len).ok_or(Code::INVALID)?;
    if start == 0 && end > 0 {
        return Err(Code::INVALID);
    }
    let is_basic = domain.mr_mode & FI_MR_BASIC != 0;
    let by_address = is_basic || domain.mr_mode & FI_MR_VIRT_ADDR != 0;
    let chooses = is_basic || domain.mr_mode & FI_MR_PROV_KEY != 0;
    let base = if by_address { start as u64 } else { wish.offset };
    let key = (!chooses).then_some(wish.key);
    let region = domain.regions.add(key, start..end, base, wish.access & REMOTE)?;
    let key = region.key;
    let inner =
        Arc::new(Mr { region, domain: Arc::clone(domain), _domain: Arc::clone(&domain.uses) });
    let fid = handle::fid::<FidMr>(wish.context, &FID_OPS);
    // Memory of this side needs no description: any will do.
    let face = FidMr { fid, mem_desc: ptr::without_provenance_mut(1), key };
    // SAFETY: the caller's.
    unsafe { handle::put(mr, || Ok(handle::give(face, inner))) }
}

unsafe extern "C" fn reg(
    domain: *mut Fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    let memory = libc::iovec { iov_base: buf.cast_mut(), iov_len: len };
    let wish = Wish { memory, access, offset, key, context };
    // SAFETY: the program's objects and places.
    guard::status(|| unsafe { register(domain, &wish, flags, mr) })
}

unsafe extern "C" fn regv(
    domain: *mut Fid,
    iov: *const libc::iovec,
    count: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    guard::status(|| {
        // SAFETY: the program's array.
        let memory = unsafe { only(iov, count)? };
        let wish = Wish { memory, access, offset, key, context };
        // SAFETY: the program's objects and places.
        unsafe { register(domain, &wish, flags, mr) }
    })
}

unsafe extern "C" fn regattr(
    domain: *mut Fid,
    attr: *const FiMrAttr,
    flags: u64,
    mr: *mut *mut FidMr,
) -> c_int {
    guard::status(|| {
        // SAFETY: attributes of the program's, which are there during the call.
        let attr = unsafe { attr.as_ref() }.ok_or(Code::INVALID)?;
        // SAFETY: the program's array.
        let memory = unsafe { only(attr.mr_iov, attr.iov_count)? };
        let wish = Wish {
            memory,
            access: attr.access,
            offset: attr.offset,
            key: attr.requested_key,
            context: attr.context,
        };
        // SAFETY: the program's objects and places.
        unsafe { register(domain, &wish, flags, mr) }
    })
}

/// The one part of a region (`mr_iov_limit`).
///
/// # Safety
/// The array has `count` parts.
unsafe fn only(iov: *const libc::iovec, count: usize) -> Answer<libc::iovec> {
    if iov.is_null() || count != crate::rma::REGION_PARTS_MAX {
        return Err(Code::INVALID);
    }
    // SAFETY: the caller's.
    Ok(unsafe { *iov })
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    guard::status(|| {
        // SAFETY: the program's objects.
        let mr = unsafe { handle::of_fid::<FidMr>(fid)? };
        // SAFETY: as above.
        match unsafe { handle::class(other) } {
            FI_CLASS_CNTR => {
                // SAFETY: as above.
                let cntr = unsafe { handle::of_fid::<FidCntr>(other)? };
                if flags & !REMOTE != 0 || flags == 0 {
                    return Err(Code(FI_EBADFLAGS));
                }
                mr.region.bind(cntr, flags);
                Ok(())
            }
            // Every endpoint of the domain serves it.
            FI_CLASS_EP => Ok(()),
            _ => Err(Code::INVALID),
        }
    })
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, _: *mut c_void) -> c_int {
    guard::status(|| {
        // SAFETY: the program's object.
        unsafe { handle::of_fid::<FidMr>(fid)? };
        if command == FI_ENABLE { Ok(()) } else { Err(Code::NO_SYS) }
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    guard::status(|| {
        // SAFETY: the program closes an object that it has, once.
        let mr = unsafe { handle::take::<FidMr>(fid, |_| Ok(()))? };
        mr.domain.regions.remove(&mr.region);
        Ok(())
    })
}
