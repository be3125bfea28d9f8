//! The entries that the ring is given.
#![allow(unsafe_code)]
// Invariant: an entry names bytes of an area, and for several pieces the header in `Heads` that
// belongs to the same area; both stay where they are while the sender lives. The kernel reads the
// header when the entry is submitted (`IORING_FEAT_SUBMIT_STABLE`), the bytes until it says so.

use std::{ops::Range, ptr};

use io_uring::{opcode, squeue, types::Fd};

use super::{PIECES_MAX, Way};

/// `IORING_RECVSEND_FIXED_BUF` and `IORING_SEND_ZC_REPORT_USAGE` of `linux/io_uring.h`.
const FIXED: u16 = 1 << 2;
const REPORT: u16 = 1 << 3;
/// In the result of a notice: `IORING_NOTIF_USAGE_ZC_COPIED`.
pub(super) const COPIED: u32 = 1 << 31;

/// The offset of `buf_index` in an entry, in bytes; see `struct io_uring_sqe`.
const BUF_INDEX: usize = 40;
const _: () = assert!(size_of::<squeue::Entry>() == 64);

/// The buffer that all areas are registered as.
const BUFFER: u16 = 0;

/// The message headers of all areas.
#[derive(Debug)]
pub(super) struct Heads {
    heads: Box<[libc::msghdr]>,
    pieces: Box<[[libc::iovec; PIECES_MAX]]>,
}

impl Heads {
    pub(super) fn new(count: usize) -> Heads {
        let piece = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: all zeros is an empty header.
        let head: libc::msghdr = unsafe { std::mem::zeroed() };
        Heads {
            heads: vec![head; count].into_boxed_slice(),
            pieces: vec![[piece; PIECES_MAX]; count].into_boxed_slice(),
        }
    }

    /// The header of area `index`, filled in: `pieces`, at most [`PIECES_MAX`], of the memory at
    /// `at`.
    pub(super) fn fill(
        &mut self,
        index: u32,
        at: usize,
        pieces: &[Range<usize>],
    ) -> *const libc::msghdr {
        let (head, own) = (&mut self.heads[index as usize], &mut self.pieces[index as usize]);
        for (own, piece) in own.iter_mut().zip(pieces) {
            own.iov_base = ptr::with_exposed_provenance_mut(at + piece.start);
            own.iov_len = piece.len();
        }
        head.msg_iov = own.as_mut_ptr();
        head.msg_iovlen = pieces.len() as _;
        head
    }
}

/// A send of the connected socket `fd`: `pieces` of the memory at `at`, which area `index` has.
pub(super) fn entry(
    heads: &mut Heads,
    fd: Fd,
    index: u32,
    at: usize,
    pieces: &[Range<usize>],
    way: Way,
) -> squeue::Entry {
    let fixed = way == Way::Registered;
    let flags = if fixed { REPORT | FIXED } else { REPORT };
    let entry = if let [piece] = pieces {
        let bytes = ptr::with_exposed_provenance(at + piece.start);
        let len = piece.len() as u32;
        match way {
            Way::Call | Way::Copied => opcode::Send::new(fd, bytes, len).build(),
            Way::Pinned => opcode::SendZc::new(fd, bytes, len).zc_flags(REPORT).build(),
            Way::Registered => {
                let send = opcode::SendZc::new(fd, bytes, len).zc_flags(REPORT);
                send.buf_index(Some(BUFFER)).build()
            }
        }
    } else {
        let head = heads.fill(index, at, pieces);
        match way {
            Way::Call | Way::Copied => opcode::SendMsg::new(fd, head).build(),
            Way::Pinned => opcode::SendMsgZc::new(fd, head).ioprio(flags).build(),
            Way::Registered => {
                in_buffer(opcode::SendMsgZc::new(fd, head).ioprio(flags).build(), BUFFER)
            }
        }
    };
    entry.user_data(u64::from(index))
}

/// The same entry, of the registered buffer `buffer`.
fn in_buffer(mut entry: squeue::Entry, buffer: u16) -> squeue::Entry {
    // SAFETY: an entry is the kernel's 64 bytes (`repr(C)`, checked above), plain numbers; these
    // two are within, and aligned.
    unsafe { (&raw mut entry).cast::<u8>().add(BUF_INDEX).cast::<u16>().write(buffer) };
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library says for one piece where the index of the buffer goes.
    #[test]
    fn the_buffer_is_named_where_the_kernel_looks() {
        let bytes = |entry: &squeue::Entry| -> [u8; 64] {
            // SAFETY: plain numbers.
            unsafe { ptr::from_ref(entry).cast::<[u8; 64]>().read() }
        };
        let send = || opcode::SendZc::new(Fd(3), ptr::null(), 9);
        let theirs = bytes(&send().buf_index(Some(0x1234)).build());
        let ours = bytes(&in_buffer(send().zc_flags(FIXED).build(), 0x1234));
        assert_eq!(theirs, ours);
        assert_eq!(ours[BUF_INDEX..BUF_INDEX + 2], 0x1234u16.to_ne_bytes());
    }
}
