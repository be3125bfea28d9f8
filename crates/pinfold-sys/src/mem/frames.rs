//! The page behind each address of this process: by the numbers in `/proc/self/pagemap`.
#![allow(unsafe_code)]
//! A page that is pinned keeps its number, and no other page has it meanwhile. So a pinned page
//! whose number is found at an address is mapped there at that moment, regardless of earlier calls,
//! told of or not. Nothing else that a kernel says does as much: guards (`MADV_GUARD_INSTALL`)
//! change neither mapping nor protection, and once they are lifted and the memory is written there
//! is no trace of them.
//!
//! The kernel shows numbers to a process that had `CAP_SYS_ADMIN` when it opened the file (not in a
//! user namespace of its own), and zeros to all others.
// Invariant: the one call is given room of ours.

use std::{fs::File, io, mem::MaybeUninit, ops::Range, os::fd::AsRawFd};

use rustix::{io::Errno, param::page_size};

use crate::mem::pagemap::State;

/// Pages that one call reads of: as many as the kernel looks at in one go.
const PAGES: usize = 512;
/// Pages that one call reads of where there are fewer.
const FEW: usize = 32;

/// The file of the numbers. Speaks of the process that opened it, also in children of that.
#[derive(Debug)]
pub struct Frames(File);

/// The number of a page; 0 where none is.
pub type Frame = u64;

impl Frames {
    /// Some 20 µs.
    ///
    /// # Errors
    /// `EPERM` where the kernel does not show the numbers; where no `proc(5)` is mounted, or this
    /// process may not look at itself.
    pub fn open() -> io::Result<Frames> {
        let frames = Frames(File::open("/proc/self/pagemap")?);
        // The stack of the caller will do: it is there.
        let sample = 0u8;
        let page = (&raw const sample).addr() / page_size() * page_size();
        match frames.read(page..page + page_size())?[..] {
            [0] | [] => Err(Errno::PERM.into()),
            _ => Ok(frames),
        }
    }

    /// The pages of a range, whole pages. Costs as much as [`are`](Frames::are).
    ///
    /// # Errors
    /// The error of `pread(2)`.
    pub fn read(&self, range: Range<usize>) -> io::Result<Box<[Frame]>> {
        let mut all = Vec::with_capacity(range.len() / page_size());
        self.each(range, |frames| {
            all.extend_from_slice(frames);
            true
        })?;
        Ok(all.into())
    }

    /// Returns whether the pages from address `start` on are just these now. A system call for 512
    /// pages: 0.9 µs and 23 ns a page.
    pub fn are(&self, start: usize, frames: &[Frame]) -> bool {
        let mut left = frames;
        let range = start..start + frames.len() * page_size();
        let seen = self.each(range, |found| {
            let Some((these, rest)) = left.split_at_checked(found.len()) else { return false };
            left = rest;
            !these.contains(&0) && these == found
        });
        seen.is_ok_and(|all| all)
    }

    /// Shows the pages of a range, some at a time, as long as `see` returns true; returns whether
    /// it always did.
    fn each(&self, range: Range<usize>, mut see: impl FnMut(&[Frame]) -> bool) -> io::Result<bool> {
        let mut first = range.start / page_size();
        let end = range.end / page_size();
        while first < end {
            let pages = (end - first).min(PAGES);
            // Room that is not used costs as much to clear as a page to look at.
            let seen = match pages <= FEW {
                true => see(self.some(first, &mut [MaybeUninit::uninit(); FEW][..pages])?),
                false => see(self.some(first, &mut [MaybeUninit::uninit(); PAGES][..pages])?),
            };
            if !seen {
                return Ok(false);
            }
            first += pages;
        }
        Ok(true)
    }

    /// The pages from this one on.
    fn some<'a>(
        &self,
        first: usize,
        room: &'a mut [MaybeUninit<Frame>],
    ) -> io::Result<&'a [Frame]> {
        let (at, bytes) = (room.as_mut_ptr(), size_of_val(room));
        let offset = i64::try_from(first * size_of::<Frame>()).map_err(|_| Errno::OVERFLOW)?;
        // SAFETY: the room is ours, and has so many bytes.
        let read = unsafe { libc::pread(self.0.as_raw_fd(), at.cast(), bytes, offset) };
        let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
        if read < bytes {
            return Err(Errno::IO.into());
        }
        // SAFETY: all of it was written just now, and any bytes are a number.
        let words = unsafe { std::slice::from_raw_parts_mut(at.cast::<Frame>(), room.len()) };
        words.iter_mut().for_each(|word| *word = State::of(*word).frame());
        Ok(words)
    }
}

/// Page faults of this process by the kernel's count: each is counted when its page is there,
/// before its thread goes on. 0.5 µs, and some ns a thread.
pub fn faults() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the room is ours, and of the size that the kernel fills.
    let done = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    assert_eq!(done, 0, "it fails for other arguments alone");
    // SAFETY: filled just now.
    let usage = unsafe { usage.assume_init() };
    (usage.ru_minflt as u64).wrapping_add(usage.ru_majflt as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::userfault::Pages;

    #[test]
    fn other_pages_have_other_numbers() {
        let Ok(frames) = Frames::open() else { return crate::skip::skip("no numbers") };
        let page = page_size();
        for count in [1, FEW, FEW + 1, PAGES, PAGES + 1, 3 * PAGES] {
            let mut pages = Pages::new(count * page, false).unwrap();
            let at = pages.addr()..pages.addr() + pages.len();
            assert!(frames.read(at.clone()).unwrap().iter().all(|frame| *frame == 0));
            assert!(!frames.are(at.start, &frames.read(at.clone()).unwrap()), "there is nothing");
            let before = faults();
            pages.as_mut_slice().fill(1);
            assert!(faults() > before);
            let all = frames.read(at.clone()).unwrap();
            assert!(all.len() == count && !all.contains(&0));
            assert!(frames.are(at.start, &all) && frames.are(at.start, &[]));
            assert!(frames.are(at.start + (count - 1) * page, &all[count - 1..]));
            // From the last one on, so that those before are there.
            for gone in [count - 1, count / 2, 0] {
                pages.discard(gone * page..(gone + 1) * page).unwrap();
                assert!(!frames.are(at.start, &all));
                assert!(frames.are(at.start, &all[..gone]));
            }
            let mut twice = all.to_vec();
            twice.push(all[0]);
            assert!(!frames.are(at.start, &twice));
        }
    }
}
