//! Memory of the program's as operations own it.
//!
//! **Invariant.** The program leaves the memory alone, and in place, until its operation has ended:
//! the header demands that of every function that posts one.

use std::{
    io::{IoSlice, IoSliceMut},
    slice,
};

use libc::iovec;
use pinfold::{OwnedBuf, OwnedBufMut};

use crate::status::{Failure, Outcome};

/// The most parts that one message may have here, as `IOV_MAX` of `readv(2)`.
pub(crate) const PARTS_MAX: usize = 1024;

/// Memory in one part.
pub(crate) struct One(*mut u8, usize);

// SAFETY: plain memory, bound to no thread.
unsafe impl Send for One {}

impl One {
    /// # Safety
    /// `at` has `len` bytes, which stay in place until the buffer is dropped.
    pub unsafe fn new(at: *const u8, len: usize, name: &str) -> Outcome<One> {
        // SAFETY: the caller's.
        let bytes = unsafe { bytes(at, len, name) }?;
        Ok(One(bytes.as_ptr().cast_mut(), bytes.len()))
    }
}

// SAFETY: see the invariant.
unsafe impl OwnedBuf for One {
    fn bytes(&self) -> (*const u8, usize) {
        (self.0, self.1)
    }
}

// SAFETY: see the invariant.
unsafe impl OwnedBufMut for One {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.0, self.1)
    }
}

impl AsRef<[u8]> for One {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: see the invariant.
        unsafe { slice::from_raw_parts(self.0, self.1) }
    }
}

impl AsMut<[u8]> for One {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: see the invariant.
        unsafe { slice::from_raw_parts_mut(self.0, self.1) }
    }
}

/// Memory in several parts.
pub(crate) struct Many(Vec<(*mut u8, usize)>);

// SAFETY: as of `One`.
unsafe impl Send for Many {}

impl Many {
    /// # Safety
    /// As of [`One::new`], for each part.
    pub unsafe fn new(parts: *const iovec, count: usize) -> Outcome<Many> {
        // SAFETY: the caller's.
        let parts = unsafe { parts_of(parts, count) }?;
        let part = |part: &iovec| match part.iov_len {
            // May be NULL.
            0 => (std::ptr::dangling_mut(), 0),
            len => (part.iov_base.cast(), len),
        };
        Ok(Many(parts.iter().map(part).collect()))
    }
}

// SAFETY: see the invariant.
unsafe impl OwnedBuf for Many {
    fn bytes(&self) -> (*const u8, usize) {
        self.0.first().map_or((std::ptr::dangling(), 0), |(at, len)| (at.cast_const(), *len))
    }

    fn parts(&self) -> Option<&[(*const u8, usize)]> {
        // SAFETY: pointers to const and to mut have the same layout.
        Some(unsafe { slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len()) })
    }
}

// SAFETY: see the invariant.
unsafe impl OwnedBufMut for Many {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        self.0.first().map_or((std::ptr::dangling_mut(), 0), |(at, len)| (*at, *len))
    }

    fn parts_mut(&mut self) -> Option<&[(*mut u8, usize)]> {
        Some(&self.0)
    }
}

/// Bytes to send.
///
/// # Safety
/// `at` has `len` bytes that nothing writes for `'a`; NULL only with none.
#[inline]
pub(crate) unsafe fn bytes<'a>(at: *const u8, len: usize, name: &str) -> Outcome<&'a [u8]> {
    match check(at, len, name)? {
        0 => Ok(&[]),
        // SAFETY: the caller's.
        len => Ok(unsafe { slice::from_raw_parts(at, len) }),
    }
}

/// Bytes to receive into.
///
/// # Safety
/// `at` has `len` bytes that nothing else touches for `'a`; NULL only with none.
#[inline]
pub(crate) unsafe fn bytes_mut<'a>(at: *mut u8, len: usize, name: &str) -> Outcome<&'a mut [u8]> {
    match check(at, len, name)? {
        0 => Ok(&mut []),
        // SAFETY: the caller's.
        len => Ok(unsafe { slice::from_raw_parts_mut(at, len) }),
    }
}

#[inline]
fn check(at: *const u8, len: usize, name: &str) -> Outcome<usize> {
    if at.is_null() && len > 0 {
        return Err(Failure::invalid(format!("{name} is NULL, but has {len} bytes")));
    }
    if isize::try_from(len).is_err() {
        return Err(Failure::invalid(format!("{name} has {len} bytes, more than memory can have")));
    }
    Ok(len)
}

/// Parts to send from.
///
/// # Safety
/// As of [`bytes`], for each part.
pub(crate) unsafe fn slices<'a>(parts: *const iovec, count: usize) -> Outcome<Vec<IoSlice<'a>>> {
    // SAFETY: the caller's.
    let parts = unsafe { parts_of(parts, count) }?.iter();
    // SAFETY: the caller's.
    parts
        .map(|it| Ok(IoSlice::new(unsafe { bytes(it.iov_base.cast(), it.iov_len, "a part") }?)))
        .collect()
}

/// Parts to receive into.
///
/// # Safety
/// As of [`bytes_mut`], for each part.
pub(crate) unsafe fn slices_mut<'a>(
    parts: *const iovec,
    count: usize,
) -> Outcome<Vec<IoSliceMut<'a>>> {
    // SAFETY: the caller's.
    let parts = unsafe { parts_of(parts, count) }?.iter();
    let slice = |it: &iovec| {
        // SAFETY: the caller's.
        let bytes = unsafe { bytes_mut(it.iov_base.cast(), it.iov_len, "a part") }?;
        Ok(IoSliceMut::new(bytes))
    };
    parts.map(slice).collect()
}

/// # Safety
/// `parts` has `count` of them.
unsafe fn parts_of<'a>(parts: *const iovec, count: usize) -> Outcome<&'a [iovec]> {
    if count > PARTS_MAX {
        return Err(Failure::invalid(format!("{count} parts; a message has at most {PARTS_MAX}")));
    }
    if count == 0 {
        return Ok(&[]);
    }
    if parts.is_null() {
        return Err(Failure::invalid(format!("parts is NULL, but there are {count}")));
    }
    // SAFETY: the caller's.
    let parts = unsafe { slice::from_raw_parts(parts, count) };
    for part in parts {
        check(part.iov_base.cast(), part.iov_len, "a part")?;
    }
    Ok(parts)
}
