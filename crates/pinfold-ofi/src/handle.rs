//! Objects in the hands of C: a structure of the interface in front, what stands for it behind.
#![allow(unsafe_code)]
// Invariant: a pointer that `give` made is used as what it was made as until `take` takes it back.
// The class in front of each object is looked at before an object is taken for one of its kind.

use std::{ffi::c_void, ptr, sync::Arc};

use crate::{
    ffi::object::{FiOps, Fid},
    guard::{Answer, Code},
};

#[repr(C)]
struct Handle<F, T> {
    face: F,
    inner: Arc<T>,
}

/// An object of this kind: its structure begins with a `Fid` of this class.
pub trait Face: Sized {
    /// The object behind it.
    type Inner;
    const CLASS: usize;
}

/// Makes an object for C.
pub fn give<F: Face>(face: F, inner: Arc<F::Inner>) -> *mut F {
    Box::into_raw(Box::new(Handle { face, inner })).cast()
}

/// The object behind a pointer of C's.
///
/// # Safety
/// The pointer is null, or `give` made it and `take` has not taken it; or it is that of another
/// object of the interface.
pub unsafe fn of<'a, F: Face>(face: *mut F) -> Answer<&'a Arc<F::Inner>> {
    // SAFETY: the caller's.
    unsafe { check::<F>(face.cast())? };
    // SAFETY: an object of this class, so `give` made it as such.
    Ok(unsafe { &(*face.cast::<Handle<F, F::Inner>>()).inner })
}

/// As [`of`], of the beginning of an object.
///
/// # Safety
/// As [`of`].
pub unsafe fn of_fid<'a, F: Face>(fid: *mut Fid) -> Answer<&'a Arc<F::Inner>> {
    // SAFETY: the caller's.
    unsafe { of::<F>(fid.cast()) }
}

/// Takes an object back, which C does not use any more, if `may` says so.
///
/// # Safety
/// As [`of`].
pub unsafe fn take<F: Face>(
    fid: *mut Fid,
    may: impl FnOnce(&Arc<F::Inner>) -> Answer,
) -> Answer<Arc<F::Inner>> {
    // SAFETY: the caller's.
    may(unsafe { of_fid::<F>(fid)? })?;
    // SAFETY: made by `give`, and taken back once: C closes an object once.
    let handle = unsafe { Box::from_raw(fid.cast::<Handle<F, F::Inner>>()) };
    Ok(handle.inner)
}

/// The class of an object, and null.
///
/// # Safety
/// As [`of`].
unsafe fn check<F: Face>(fid: *const Fid) -> Answer {
    // SAFETY: every object of the interface begins with a `Fid`.
    if fid.is_null() || unsafe { (*fid).class } != F::CLASS {
        return Err(Code::INVALID);
    }
    Ok(())
}

/// The class of an object; 0 of none.
///
/// # Safety
/// As [`of`].
pub unsafe fn class(fid: *const Fid) -> usize {
    // SAFETY: every object of the interface begins with a `Fid`.
    if fid.is_null() { 0 } else { unsafe { (*fid).class } }
}

/// The beginning of an object.
pub fn fid<F: Face>(context: *mut c_void, ops: &'static FiOps) -> Fid {
    Fid { class: F::CLASS, context, ops: ptr::from_ref(ops) }
}

/// Puts a made object where C wants it.
///
/// # Safety
/// `at` is null, or may be written.
pub unsafe fn put<F>(at: *mut *mut F, made: impl FnOnce() -> Answer<*mut F>) -> Answer {
    if at.is_null() {
        return Err(Code::INVALID);
    }
    let made = made()?;
    // SAFETY: the caller's.
    unsafe { *at = made };
    Ok(())
}
