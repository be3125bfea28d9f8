//! How an operation was done, for C.

use std::{
    ffi::{CString, c_char},
    ptr,
    sync::OnceLock,
};

use pinfold::{Path, Receipt, Refusal};

/// A way for a message to reach a peer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum pinfold_path {
    /// In the descriptor itself: at most 56 bytes.
    PINFOLD_INLINE = 0,
    /// Two copies through the pair's ring; to another host, over the connection.
    PINFOLD_EAGER = 1,
    /// One copy by the kernel, out of or into any memory.
    PINFOLD_CMA = 2,
    /// One copy by this process, out of or into an arena that the peer has mapped.
    PINFOLD_MAPPED = 3,
    /// No copy: the memory itself was given.
    PINFOLD_HANDOFF = 4,
}

/// Paths.
pub const PINFOLD_PATHS: usize = 5;

/// How one operation was done, and why not otherwise.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct pinfold_receipt {
    /// The path that was taken: a pinfold_path.
    pub path: u32,
    /// 0.
    pub reserved: u32,
    /// Bytes of the message that this side sent or took in.
    pub bytes: u64,
    /// Bytes copied by this process at user level.
    pub copied_user: u64,
    /// Bytes copied by the kernel in calls of this process.
    pub copied_kernel: u64,
    /// By path, why it was not taken: a number for pinfold_refusal_text(); 0 for the path that was
    /// taken, and for those that were not considered.
    pub refused: [u32; PINFOLD_PATHS],
    /// 0.
    pub reserved_too: u32,
}

impl pinfold_receipt {
    /// Nothing was done.
    pub(crate) const NONE: pinfold_receipt = pinfold_receipt {
        path: 0,
        reserved: 0,
        bytes: 0,
        copied_user: 0,
        copied_kernel: 0,
        refused: [0; PINFOLD_PATHS],
        reserved_too: 0,
    };
}

impl From<&Receipt> for pinfold_receipt {
    fn from(receipt: &Receipt) -> pinfold_receipt {
        pinfold_receipt {
            path: receipt.path as u32,
            bytes: receipt.bytes,
            copied_user: receipt.copied_user,
            copied_kernel: receipt.copied_kernel,
            refused: Path::ALL.map(|path| receipt.refused(path).map_or(0, code)),
            ..pinfold_receipt::NONE
        }
    }
}

/// The kinds of refusal, those with an `errno` last; a kind's number is its place, from 1 on.
const KINDS: [Refusal; 17] = [
    Refusal::TooLong,
    Refusal::Slower,
    Refusal::SwitchedOff,
    Refusal::SwitchedOffByPeer,
    Refusal::NoCredit,
    Refusal::Declined,
    Refusal::NotShareable,
    Refusal::Kept,
    Refusal::NotMapped,
    Refusal::NotLeft,
    Refusal::WrongProcess,
    Refusal::Confined,
    Refusal::Fickle,
    Refusal::Stalled,
    Refusal::OtherHost,
    Refusal::OtherNamespace,
    Refusal::Encrypted,
];

/// The numbers of the kinds with an `errno`, which lies in the upper 16 bits, and of the rest.
const DENIED: u32 = 18;
const OUT_OF_REACH: u32 = 19;
const OTHER: u32 = 20;

/// The number of a refusal.
fn code(refusal: Refusal) -> u32 {
    let with = |kind: u32, errno: i32| kind | (errno.clamp(0, 0xFFFF) as u32) << 16;
    match refusal {
        Refusal::Denied(errno) => with(DENIED, errno),
        Refusal::OutOfReach(errno) => with(OUT_OF_REACH, errno),
        plain => KINDS.iter().position(|kind| *kind == plain).map_or(OTHER, |at| at as u32 + 1),
    }
}

/// The refusal with a number. `None`: it is of none, or of a kind that has no name here.
fn refusal(code: u32) -> Option<Refusal> {
    let errno = (code >> 16) as i32;
    match code & 0xFFFF {
        0 => None,
        DENIED => Some(Refusal::Denied(errno)),
        OUT_OF_REACH => Some(Refusal::OutOfReach(errno)),
        kind => KINDS.get(kind as usize - 1).copied(),
    }
}

/// The name of a path, such as "cma"; "unknown" for another number. Good for ever.
#[unsafe(no_mangle)]
pub extern "C" fn pinfold_path_name(path: u32) -> *const c_char {
    static NAMES: OnceLock<[CString; PINFOLD_PATHS]> = OnceLock::new();
    let names =
        NAMES.get_or_init(|| Path::ALL.map(|it| CString::new(it.name()).unwrap_or_default()));
    names.get(path as usize).map_or(c"unknown".as_ptr(), |name| name.as_ptr())
}

/// Writes the sentence of a number of pinfold_receipt.refused, cut to `capacity` bytes, the 0 at
/// its end included. Returns its whole length without the 0; 0 for a number that is none.
///
/// # Safety
/// `text` has `capacity` bytes, or is NULL with none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_refusal_text(
    refused: u32,
    text: *mut c_char,
    capacity: usize,
) -> usize {
    crate::status::value(0, || {
        let said = match refusal(refused) {
            Some(refusal) => refusal.to_string(),
            None if refused == 0 => String::new(),
            None => "another reason".to_owned(),
        };
        // SAFETY: the caller's.
        unsafe { write_text(&said, text, capacity) };
        said.len()
    })
}

/// Writes text, cut to `capacity` bytes with the 0 at its end.
///
/// # Safety
/// `to` has `capacity` bytes, or is NULL.
pub(crate) unsafe fn write_text(said: &str, to: *mut c_char, capacity: usize) {
    if to.is_null() || capacity == 0 {
        return;
    }
    let len = said.len().min(capacity - 1);
    // SAFETY: `len` is less than `capacity`.
    unsafe {
        ptr::copy_nonoverlapping(said.as_ptr(), to.cast(), len);
        to.add(len).write(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_means_its_refusal() {
        let with = [Refusal::Denied(1), Refusal::Denied(38), Refusal::OutOfReach(0)];
        for kind in KINDS.into_iter().chain(with) {
            assert_eq!(refusal(code(kind)), Some(kind));
        }
        assert_eq!(refusal(0), None);
        assert_eq!(refusal(OTHER), None);
        assert_eq!(refusal(u32::MAX), None);
    }
}
