//! Memory that peers may use by one-sided operations, for C.

use std::{ffi::c_void, ptr};

use pinfold::{Exposed, Region};

use crate::{
    endpoint::{pinfold_endpoint, the},
    key::pinfold_key,
    status::{Failure, Outcome, give_out, given, pinfold_status, place, run, take_back, value},
};

/// The rights of peers that have the key.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum pinfold_rights {
    /// To read.
    PINFOLD_READ = 0,
    /// To read, to write, and to change by atomic operations.
    PINFOLD_READ_WRITE = 1,
}

/// Memory of this process that peers may use: a region that the library made, or memory of the
/// program's.
pub struct pinfold_region(Kind);

enum Kind {
    Made(Region),
    Exposed(Exposed),
}

/// The rights that a number means.
fn rights(number: u32) -> Outcome<pinfold::Rights> {
    match number {
        0 => Ok(pinfold::Rights::Read),
        1 => Ok(pinfold::Rights::ReadWrite),
        _ => Err(Failure::invalid(format!("{number} is no pinfold_rights"))),
    }
}

/// Makes a region of `len` bytes, a multiple of 8, all of them 0, which peers map: the cheapest
/// memory for one-sided operations. `rights` is a pinfold_rights.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_region_open(
    endpoint: *const pinfold_endpoint,
    len: usize,
    rights: u32,
    region: *mut *mut pinfold_region,
) -> pinfold_status {
    run(|| {
        let place = place(region, "region")?;
        if len == 0 || !len.is_multiple_of(8) {
            return Err(Failure::invalid(format!("len is {len}, no multiple of 8 from 8 on")));
        }
        // SAFETY: the caller's.
        let made = unsafe { the(endpoint) }?.region(len, self::rights(rights)?)?;
        // SAFETY: the caller's.
        unsafe { give_out(place, pinfold_region(Kind::Made(made))) };
        Ok(())
    })
}

/// Lets peers use `len` bytes of the program's own memory at `data`, wherever that lies. Nothing is
/// pinned or copied. Until pinfold_region_free() has returned PINFOLD_OK peers may read it at any
/// moment, and with PINFOLD_READ_WRITE write it.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_region_expose(
    endpoint: *const pinfold_endpoint,
    data: *mut c_void,
    len: usize,
    rights: u32,
    region: *mut *mut pinfold_region,
) -> pinfold_status {
    run(|| {
        let place = place(region, "region")?;
        let start = data.expose_provenance();
        let end = start.checked_add(len);
        let end = end.ok_or_else(|| Failure::invalid(format!("data has {len} bytes, too many")))?;
        // SAFETY: the caller's.
        let endpoint = unsafe { the(endpoint) }?;
        // SAFETY: the header leaves it to the caller that peers may use the memory.
        let exposed = unsafe { endpoint.expose(start..end, self::rights(rights)?) }?;
        // SAFETY: the caller's.
        unsafe { give_out(place, pinfold_region(Kind::Exposed(exposed))) };
        Ok(())
    })
}

/// Its memory, to be used as memory that other processes change is: by atomic operations, or when
/// no peer is at it. It moves when the region is revoked. NULL for NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_region_data(region: *const pinfold_region) -> *mut c_void {
    value(ptr::null_mut(), || {
        // SAFETY: the caller's.
        match unsafe { region.as_ref() }.map(|it| &it.0) {
            None => ptr::null_mut(),
            Some(Kind::Exposed(exposed)) => {
                ptr::with_exposed_provenance_mut(exposed.addresses().start)
            }
            Some(Kind::Made(made)) => {
                made.word64(0).map_or(ptr::null_mut(), |word| word.as_ptr().cast())
            }
        }
    })
}

/// Its length, bytes; 0 for NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_region_len(region: *const pinfold_region) -> usize {
    // SAFETY: the caller's.
    value(0, || match unsafe { region.as_ref() }.map(|it| &it.0) {
        None => 0,
        Some(Kind::Exposed(exposed)) => exposed.addresses().len(),
        Some(Kind::Made(made)) => made.len(),
    })
}

/// Its key, for peers. PINFOLD_REVOKED once it was revoked.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_region_key(
    region: *const pinfold_region,
    key: *mut pinfold_key,
) -> pinfold_status {
    run(|| {
        let place = place(key, "key")?;
        // SAFETY: the caller's.
        let key = match &unsafe { given(region, "region") }?.0 {
            Kind::Made(made) => made.key().ok_or(pinfold::Error::Revoked)?,
            Kind::Exposed(exposed) => exposed.key(),
        };
        // SAFETY: the caller's.
        unsafe { place.write(key.into()) };
        Ok(())
    })
}

/// Ends all use by peers and frees the handle; waits for those that are using it, mostly some
/// microseconds, 10 s at most: PINFOLD_STILL_VISITED after that, and memory of the program's has to
/// stay as it is until they have ended. Takes NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_region_free(region: *mut pinfold_region) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        match unsafe { take_back(region) }.map(|it| it.0) {
            Some(Kind::Exposed(exposed)) => Ok(exposed.revoke()?),
            Some(Kind::Made(_)) | None => Ok(()),
        }
    })
}
