//! Copies from and to addresses of this process where there may be no memory: the kernel looks, and
//! says so, where a load or a store would end the process.
#![allow(unsafe_code)]
// Invariant: memory at a foreign address is reached by system calls alone.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    ptr,
};

use rustix::{
    io::Errno,
    param::page_size,
    pipe::{PipeFlags, pipe_with},
};

use crate::{
    mem::{advice, resident},
    process,
};

/// Bytes that go through a pipe at a time: its capacity.
const PIPE_BYTES: usize = 64 << 10;

/// The most bytes of which it is asked whether they are in memory.
const RESIDENT_MAX: u64 = 1 << 20;

/// Copies the bytes at `addr` into `into`. Returns how many there were: fewer where memory ends.
///
/// The memory may change meanwhile; any mixture then arrives. One `process_vm_readv(2)`; where that
/// is forbidden a pipe for each 64 KiB, of which none is copied if any is missing.
///
/// # Errors
/// `EFAULT` if there is no memory at `addr`, or none that may be read.
pub fn read_own(addr: u64, into: &mut [u8]) -> io::Result<usize> {
    match process::read_remote_into(std::process::id(), addr, into) {
        Err(error) if is_denied(&error) => in_parts(into.len(), |at, len| {
            // SAFETY: the kernel only reads at the address, or says that it cannot; the rest is
            // borrowed.
            unsafe {
                through_pipe(addr + at as u64, into.as_mut_ptr().addr() as u64 + at as u64, len)
            }
        }),
        done => done,
    }
}

/// Copies `from` to `addr`. Returns how many bytes: fewer where memory ends that may be written.
/// Costs as much as [`read_own`].
///
/// # Errors
/// `EFAULT` if there is no memory at `addr` that may be written.
///
/// # Safety
/// Any memory there may be overwritten: no references to it, and nothing may go wrong by that.
pub unsafe fn write_own(addr: u64, from: &[u8]) -> io::Result<usize> {
    // SAFETY: as the caller promised, and the kernel looks whether there is memory.
    match unsafe { process::write_remote_from(std::process::id(), addr, from) } {
        Err(error) if is_denied(&error) => in_parts(from.len(), |at, len| {
            // SAFETY: as the caller promised.
            unsafe { through_pipe(from.as_ptr().addr() as u64 + at as u64, addr + at as u64, len) }
        }),
        done => done,
    }
}

/// Returns whether all of `len` bytes at `addr` are there and in memory, so that a thread that
/// touches them does not wait for a disk. `mincore(2)`; of 1 MiB at most, more are said not to be.
pub fn is_resident(addr: u64, len: u64) -> bool {
    let page = page_size() as u64;
    let start = addr / page * page;
    let Some(bytes) = addr.checked_add(len).map(|end| end - start) else { return false };
    bytes <= RESIDENT_MAX + page && resident::all(start as usize, bytes as usize) == Ok(true)
}

/// Puts a page of its own behind each of these addresses, so that a thread that writes there does
/// not have to wait for one. Contents stay; pages shared with a child since a `fork(2)` are copied.
/// One `madvise(MADV_POPULATE_WRITE)`: some 0.2 µs a page.
///
/// # Errors
/// `EINVAL` before Linux 5.14, or where advice is not [followed](super::advice); `ENOMEM` or
/// `EFAULT` where nothing is mapped, or nothing that may be written.
pub fn put_pages(addr: u64, len: u64) -> io::Result<()> {
    let page = page_size() as u64;
    let start = addr / page * page;
    let end = addr.saturating_add(len).div_ceil(page).saturating_mul(page);
    let at = ptr::with_exposed_provenance_mut::<libc::c_void>(start as usize);
    if !advice::is_followed() {
        return Err(Errno::INVAL.into());
    }
    // SAFETY: changes no contents, of any memory.
    match unsafe { libc::madvise(at, (end - start) as usize, libc::MADV_POPULATE_WRITE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Checks that this process may read all of `len` bytes at `addr`, or, if it `writes`, write them,
/// in memory of any kind: mappings of devices too, which `process_vm_readv(2)` does not reach.
/// Contents stay, unless another thread writes there meanwhile. Two system calls a page.
///
/// # Errors
/// `EFAULT` if not; the error of `pipe2(2)`.
///
/// # Safety
/// If it `writes`, nobody else writes there meanwhile.
pub unsafe fn check_own(addr: u64, len: u64, writes: bool) -> io::Result<()> {
    let page = page_size() as u64;
    let end = addr.checked_add(len).ok_or(Errno::FAULT)?;
    let mut byte = 0u8;
    let scratch = (&raw mut byte).addr() as u64;
    let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(io::Error::from)?;
    let mut at = addr;
    while at < end {
        // SAFETY: the byte is put back where it was, or into the scratch.
        unsafe { through(&pipe, at, if writes { at } else { scratch }, 1)? };
        at = (at / page + 1) * page;
    }
    Ok(())
}

fn is_denied(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::PERM | Errno::NOSYS | Errno::ACCESS))
}

/// Does `part` to one part after the other until one comes up short.
fn in_parts(
    len: usize,
    mut part: impl FnMut(usize, usize) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut done = 0;
    while done < len {
        let wanted = (len - done).min(PIPE_BYTES);
        match part(done, wanted) {
            Ok(copied) if copied == wanted => done += copied,
            Ok(copied) => return Ok(done + copied),
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Copies up to [`PIPE_BYTES`] from one address to another, neither of which is touched but by the
/// kernel.
///
/// # Safety
/// Any memory at `to` may be overwritten.
unsafe fn through_pipe(from: u64, to: u64, len: usize) -> io::Result<usize> {
    let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(io::Error::from)?;
    // SAFETY: as the caller promised.
    unsafe { through(&pipe, from, to, len) }
}

/// The same through an empty pipe, which is empty again if all goes well.
///
/// # Safety
/// As for [`through_pipe`].
unsafe fn through(
    (out, into): &(OwnedFd, OwnedFd),
    from: u64,
    to: u64,
    len: usize,
) -> io::Result<usize> {
    let from = ptr::with_exposed_provenance::<libc::c_void>(from as usize);
    let to = ptr::with_exposed_provenance_mut::<libc::c_void>(to as usize);
    // SAFETY: the kernel reads the memory there, or says that it cannot.
    let written = counted(unsafe { libc::write(into.as_raw_fd(), from, len) })?;
    // SAFETY: as the caller promised.
    counted(unsafe { libc::read(out.as_raw_fd(), to, written) })
}

fn counted(copied: isize) -> io::Result<usize> {
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::userfault::Pages;

    /// Three pages, of which the middle one cannot be touched. It stays mapped: other threads would
    /// get its place.
    fn with_hole() -> (Pages, u64) {
        let pages = Pages::new(3 * page_size(), false).unwrap();
        let at = pages.addr();
        let hole = (at + page_size()) as *mut libc::c_void;
        // SAFETY: nobody uses the page.
        assert_eq!(unsafe { libc::mprotect(hole, page_size(), libc::PROT_NONE) }, 0);
        (pages, at as u64)
    }

    /// Returns whether the kernel's calls copy what lies before a hole.
    fn goes_up_to(hole: u64) -> bool {
        let (_out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let from = ptr::with_exposed_provenance::<libc::c_void>(hole as usize - 50);
        // SAFETY: the kernel reads the memory there, or says that it cannot.
        unsafe { libc::write(into.as_raw_fd(), from, 100) == 50 }
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let (_pages, at) = with_hole();
        let page = page_size() as u64;
        if !goes_up_to(at + page) {
            return crate::skip::skip("calls fail that meet a hole, and copy nothing before it");
        }
        let mut into = [1u8; 100];
        assert_eq!(read_own(at + page - 50, &mut into).unwrap(), 50);
        assert_eq!((into[49], into[50]), (0, 1));
        assert_eq!(read_own(at + page, &mut into).unwrap_err().raw_os_error(), Some(libc::EFAULT));
        // SAFETY: nobody uses the pages.
        unsafe {
            assert_eq!(write_own(at + page - 50, &[7; 100]).unwrap(), 50);
            assert_eq!(
                write_own(at + 2 * page - 1, &[7; 100]).unwrap_err().raw_os_error(),
                Some(libc::EFAULT)
            );
            assert_eq!(write_own(at + 2 * page, &[9; 100]).unwrap(), 100);
        }
        assert_eq!(read_own(at + 2 * page + 99, &mut into[..2]).unwrap(), 2);
        assert_eq!(into[..2], [9, 0]);
    }

    #[test]
    fn a_pipe_does_as_well() {
        let from: Vec<u8> = (0..200_000).map(|at| (at % 251) as u8).collect();
        let mut to = vec![0u8; from.len()];
        let (source, target) = (from.as_ptr().addr() as u64, to.as_mut_ptr().addr() as u64);
        let copied = in_parts(from.len(), |at, len| {
            // SAFETY: `to` is not looked at meanwhile.
            unsafe { through_pipe(source + at as u64, target + at as u64, len) }
        });
        assert_eq!(copied.unwrap(), from.len());
        assert_eq!(to, from);
        let (_pages, at) = with_hole();
        let page = page_size() as u64;
        // SAFETY: nobody uses the pages.
        unsafe {
            assert_eq!(through_pipe(at + page - 6, target, 6).unwrap(), 6);
            assert_eq!(through_pipe(source, at + page - 6, 6).unwrap(), 6);
            assert!(through_pipe(at + page - 6, target, 100).is_err());
            assert!(through_pipe(source, at + page - 6, 100).is_err());
            assert!(through_pipe(at + page, target, 100).is_err());
            assert!(through_pipe(source, at + page, 100).is_err());
        }
    }

    #[test]
    fn what_may_be_touched_is_known() {
        let (_pages, at) = with_hole();
        let page = page_size() as u64;
        // SAFETY: nobody else uses the pages.
        unsafe {
            write_own(at + page - 1, &[7]).unwrap();
            for writes in [false, true] {
                let check = |at, len| check_own(at, len, writes).map_err(|it| it.raw_os_error());
                assert_eq!(check(at, 0), Ok(()));
                assert_eq!(check(at + 1, page - 1), Ok(()));
                assert_eq!(check(at + 1, page), Err(Some(libc::EFAULT)));
                assert_eq!(check(at + page, 1), Err(Some(libc::EFAULT)));
                assert_eq!(check(u64::MAX, 2), Err(Some(libc::EFAULT)));
            }
            let last = [5u8; 3].as_ptr().addr() as u64;
            assert_eq!(check_own(last, 3, false).map_err(|it| it.raw_os_error()), Ok(()));
            let code = what_may_be_touched_is_known as fn() as usize as u64;
            assert!(check_own(code, 1, false).is_ok());
            assert_eq!(check_own(code, 1, true).unwrap_err().raw_os_error(), Some(libc::EFAULT));
        }
        let mut into = [0];
        read_own(at + page - 1, &mut into).unwrap();
        assert_eq!(into, [7]);
    }

    #[test]
    fn what_is_resident_is_known() {
        let (_pages, at) = with_hole();
        let page = page_size() as u64;
        assert!(!is_resident(at, page), "never touched");
        // SAFETY: nobody uses the page.
        unsafe { write_own(at, &[1]).unwrap() };
        assert!(is_resident(at, 1) && is_resident(at + page - 1, 1));
        assert!(!is_resident(at, page + 1) && !is_resident(at + page, 1));
        assert!(!is_resident(at, 4 << 20) && !is_resident(u64::MAX, 1));
    }

    #[test]
    fn pages_are_put_where_there_are_none_and_keep_what_they_had() {
        let pages = Pages::new(20 * page_size(), false).unwrap();
        let (at, page) = (pages.addr() as u64, page_size() as u64);
        // SAFETY: nobody uses the page.
        unsafe { write_own(at + page, &[5]).unwrap() };
        match put_pages(at + page + 100, 2 * page) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                return crate::skip::skip("there is no MADV_POPULATE_WRITE");
            }
            done => done.unwrap(),
        }
        assert!(is_resident(at + page, 3 * page));
        let mut byte = [0];
        assert_eq!((read_own(at + page, &mut byte).unwrap(), byte), (1, [5]));
        assert!(put_pages(1 << 30, page).is_err() && put_pages(u64::MAX - 5, 6).is_err());
    }
}
