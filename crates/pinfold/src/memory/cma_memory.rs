//! Memory of a peer, reached by the kernel.

use std::io;

use pinfold_sys::{
    mem::presence::{Presence, Touch},
    process::RemoteSegment,
};
use rustix::param::page_size;
use smallvec::SmallVec;

use super::segments::{Join, List, SEGMENTS_A_CALL};
use crate::wire::rendezvous::Place;

/// Memory of a peer, as the peer described it. Nothing about it is trusted but its length.
#[derive(Debug)]
pub(crate) struct Remote {
    /// No part goes on where the one before ends.
    parts: SmallVec<[RemoteSegment; 1]>,
}

/// Parts a peer's memory may have.
const REMOTE_PARTS_MAX: u32 = 1 << 20;

impl Remote {
    /// No memory.
    pub(crate) fn none() -> Remote {
        Remote { parts: SmallVec::new() }
    }

    /// The memory that `place` of process `pid` describes, which must be `len` bytes.
    ///
    /// # Errors
    /// The error of reading the array of parts, or `EINVAL` if it does not add up.
    pub(crate) fn fetch(pid: u32, place: Place, len: u64) -> io::Result<Remote> {
        let invalid = || io::Error::from_raw_os_error(rustix::io::Errno::INVAL.raw_os_error());
        let mut parts = SmallVec::new();
        match place.parts {
            0 if len == 0 => return Ok(Remote { parts }),
            0 => return Err(invalid()),
            1 => {
                parts.push(RemoteSegment { addr: place.at, len });
                return Ok(Remote { parts });
            }
            many if many > REMOTE_PARTS_MAX => return Err(invalid()),
            _ => {}
        }
        let count = place.parts as usize;
        let mut bytes = vec![0u8; place.list_len() as usize];
        let mut done = 0;
        while done < bytes.len() {
            let got = pinfold_sys::process::read_remote_into(
                pid,
                place.at + done as u64,
                &mut bytes[done..],
            )?;
            if got == 0 {
                return Err(invalid());
            }
            done += got;
        }
        let word = |at: usize| {
            let word: [u8; 8] = std::array::from_fn(|b| bytes[at + b]);
            u64::from_ne_bytes(word)
        };
        let mut sum = 0u64;
        for i in 0..count {
            let part = RemoteSegment { addr: word(16 * i), len: word(16 * i + 8) };
            sum = sum.checked_add(part.len).ok_or_else(invalid)?;
            if part.len > 0
                && !parts.last_mut().is_some_and(|last: &mut RemoteSegment| last.join(part))
            {
                parts.push(part);
            }
        }
        if sum < len { Err(invalid()) } else { Ok(Remote { parts }) }
    }

    /// Returns whether all of the memory is present, so that to `touch` it blocks on no other
    /// process. A system call for each run of pages that parts lie in.
    ///
    /// # Errors
    /// As for [`Presence::vouches`].
    pub(crate) fn is_there(&self, presence: &Presence, touch: Touch) -> io::Result<bool> {
        let page = page_size() as u64;
        let mut parts = self.parts.iter().peekable();
        while let Some(first) = parts.next() {
            let mut end = first.addr.saturating_add(first.len);
            // Those that go on in the same page, or in the next.
            while let Some(next) =
                parts.next_if(|next| (first.addr..=end.next_multiple_of(page)).contains(&next.addr))
            {
                end = end.max(next.addr.saturating_add(next.len));
            }
            if !presence.vouches(first.addr, end - first.addr, touch)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The segments of bytes `at..at + len`, as many as go into one call.
    pub(crate) fn range(&self, at: u64, len: u64) -> List<RemoteSegment> {
        let mut out = List::new();
        let (mut skip, mut left) = (at, len);
        for part in &self.parts {
            if left == 0 || out.len() == SEGMENTS_A_CALL {
                break;
            }
            if skip >= part.len {
                skip -= part.len;
                continue;
            }
            let len = left.min(part.len - skip);
            out.push(RemoteSegment { addr: part.addr.wrapping_add(skip), len });
            left -= len;
            skip = 0;
        }
        out
    }
}
