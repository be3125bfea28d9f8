//! Structures that may grow: their size comes with them.
//!
//! **Invariant.** Only plain data goes through here: structures of integers, booleans and pointers
//! in C's layout, of which all bits 0 are a value ([`Plain`]).

use std::ptr;

use crate::status::{Failure, Outcome};

/// The most bytes that any structure of a later version may have.
const MOST: usize = 4096;

/// A structure that may be read and written byte by byte.
///
/// # Safety
/// All bits 0 are a value of it, and so is what a program of C stores in its fields.
pub(crate) unsafe trait Plain: Copy {
    /// # Safety
    /// `from` has `size` readable bytes.
    unsafe fn read(from: *const Self, size: usize, name: &str) -> Outcome<Self> {
        let known = check::<Self>(from, size, name)?;
        // SAFETY: all bits 0 are a value.
        let mut value: Self = unsafe { std::mem::zeroed() };
        // SAFETY: `known` bytes are in both; the rest is looked at alone.
        let rest = unsafe {
            ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut value).cast(), known);
            std::slice::from_raw_parts(from.cast::<u8>().add(known), size - known)
        };
        if rest.iter().any(|byte| *byte != 0) {
            return Err(Failure::invalid(format!(
                "{name} sets a field that this version of the library does not know; update the \
                 library, or leave it 0"
            )));
        }
        Ok(value)
    }

    /// # Safety
    /// `to` is valid for a write of `size` bytes.
    unsafe fn write(&self, to: *mut Self, size: usize, name: &str) -> Outcome {
        let known = check::<Self>(to, size, name)?;
        // SAFETY: as long as both; plain bytes.
        unsafe {
            ptr::write_bytes(to.cast::<u8>().add(known), 0, size - known);
            ptr::copy_nonoverlapping(ptr::from_ref(self).cast::<u8>(), to.cast(), known);
        }
        Ok(())
    }
}

/// The bytes that both sides know.
fn check<T>(at: *const T, size: usize, name: &str) -> Outcome<usize> {
    if at.is_null() {
        return Err(Failure::invalid(format!("{name} is NULL")));
    }
    if !(8..=MOST).contains(&size) {
        let why = format!("{size} is no size of {name}; pass sizeof of its type");
        return Err(Failure::invalid(why));
    }
    Ok(size.min(size_of::<T>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Two(u64, u64);

    // SAFETY: integers.
    unsafe impl Plain for Two {}

    #[test]
    fn a_shorter_one_has_zeros_for_the_rest() {
        let short = 7u64;
        // SAFETY: eight bytes.
        let read = unsafe { Two::read((&raw const short).cast(), 8, "it") }.unwrap();
        assert_eq!(read, Two(7, 0));
        let mut place = 0u64;
        // SAFETY: eight bytes.
        unsafe { Two(1, 2).write((&raw mut place).cast(), 8, "it") }.unwrap();
        assert_eq!(place, 1);
    }

    #[test]
    fn a_longer_one_may_not_ask_for_what_is_unknown() {
        for (long, ok) in [([1u64, 2, 0], true), ([1, 2, 3], false)] {
            // SAFETY: 24 bytes.
            let read = unsafe { Two::read(long.as_ptr().cast(), 24, "it") };
            assert_eq!(read.is_ok(), ok);
        }
        let mut place = [9u64; 3];
        // SAFETY: 24 bytes.
        unsafe { Two(1, 2).write(place.as_mut_ptr().cast(), 24, "it") }.unwrap();
        assert_eq!(place, [1, 2, 0]);
    }

    #[test]
    fn sizes_that_no_structure_has_are_refused() {
        for size in [0, 7, MOST + 1] {
            // SAFETY: not touched.
            assert!(unsafe { Two::read([0u64; 2].as_ptr().cast(), size, "it") }.is_err());
        }
        // SAFETY: NULL is refused.
        assert!(unsafe { Two::read(ptr::null(), 16, "it") }.is_err());
    }
}
