//! The messages of a userfaultfd, as `linux/userfaultfd.h` has them, and the calls themselves.
#![allow(unsafe_code)]
// Invariant: each ioctl is given one structure of ours, of the size that its number says, which
// lives through the call; `read` is given room of ours. The only calls that change contents of
// memory are `move_pages`, which is unsafe, and `discard`, which only tests have.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use rustix::io::Errno;

pub(super) const EVENT_FORK: u64 = 1 << 1;
pub(super) const EVENT_REMAP: u64 = 1 << 2;
pub(super) const EVENT_REMOVE: u64 = 1 << 3;
pub(super) const EVENT_UNMAP: u64 = 1 << 6;
pub(super) const PAGEFAULT_FLAG_WP: u64 = 1 << 0;
pub(super) const WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
pub(super) const WP_ASYNC: u64 = 1 << 15;
pub(super) const MOVE: u64 = 1 << 16;

pub(super) const MODE_WP: u64 = 1 << 1;

/// `UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES`
pub(super) const ALLOW_SRC_HOLES: u64 = 1 << 1;

const UFFD_API: u64 = 0xaa;
const USER_MODE_ONLY: libc::c_int = 1;

const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_UNREGISTER: libc::c_ulong = 0x8010_aa01;
const UFFDIO_MOVE: libc::c_ulong = 0xc028_aa05;
const UFFDIO_CONTINUE: libc::c_ulong = 0xc020_aa07;
const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xc018_aa06;
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xaa00;

#[repr(C)]
#[derive(Default)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct Span {
    start: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Register {
    range: Span,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct WriteProtect {
    range: Span,
    mode: u64,
}

#[repr(C)]
#[derive(Default)]
struct Move {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    moved: i64,
}

#[repr(C)]
#[derive(Default)]
struct Continue {
    range: Span,
    mode: u64,
    mapped: i64,
}

/// `struct uffd_msg`, which the kernel packs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) event: u8,
    pub(super) reserved: [u8; 7],
    pub(super) arg: [u64; 3],
}

const _: () = {
    assert!(size_of::<Api>() == 0x18);
    assert!(size_of::<Register>() == 0x20);
    assert!(size_of::<Span>() == 0x10);
    assert!(size_of::<Move>() == 0x28);
    assert!(size_of::<WriteProtect>() == 0x18);
    assert!(size_of::<Continue>() == 0x20);
    assert!(size_of::<Message>() == 32);
};

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Span {
        Span { start: range.start as u64, len: range.len() as u64 }
    }
}

/// A userfaultfd, closed on `exec` and never waited for by `read`.
#[derive(Debug)]
pub(super) struct Fd(OwnedFd);

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Fd {
    /// By the system call, for faults of user mode only.
    pub(super) fn by_call() -> Result<Fd, Errno> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: the call takes one integer.
        owned(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) })
    }

    /// By the device, which a filter on the call does not see.
    pub(super) fn by_device() -> Result<Fd, Errno> {
        use rustix::fs::{Mode, OFlags, open};
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = open("/dev/userfaultfd", flags, Mode::empty())?;
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: the call takes one integer.
        let fd = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW, flags) };
        owned(fd.into())
    }

    /// Agrees on features; can be done once. With none asked for, answers all that there are.
    pub(super) fn agree(&self, features: u64) -> Result<u64, Errno> {
        let mut api = Api { api: UFFD_API, features, ioctls: 0 };
        // SAFETY: an `Api` is the structure of that number.
        unsafe { self.ioctl(UFFDIO_API, &mut api) }?;
        Ok(api.features)
    }

    pub(super) fn register(&self, range: Range<usize>, mode: u64) -> Result<(), Errno> {
        let mut register = Register { range: range.into(), mode, ioctls: 0 };
        // SAFETY: a `Register` is the structure of that number; contents stay.
        unsafe { self.ioctl(UFFDIO_REGISTER, &mut register) }
    }

    pub(super) fn unregister(&self, range: Range<usize>) -> Result<(), Errno> {
        let mut span = Span::from(range);
        // SAFETY: a `Span` is the structure of that number; contents stay.
        unsafe { self.ioctl(UFFDIO_UNREGISTER, &mut span) }
    }

    /// Lifts write protection, of which there is none: only the answer counts.
    pub(super) fn unprotect(&self, range: Range<usize>) -> Result<(), Errno> {
        let mut wp = WriteProtect { range: range.into(), mode: 0 };
        // SAFETY: a `WriteProtect` is the structure of that number; contents stay.
        unsafe { self.ioctl(UFFDIO_WRITEPROTECT, &mut wp) }
    }

    /// Has pages of a file that are there come into a mapping of it. `ENOENT` if no userfaultfd has
    /// the mapping, or there is none; `EINVAL` for private memory, and before Linux 5.13.
    pub(super) fn resume(&self, range: Range<usize>) -> Result<(), Errno> {
        let mut order = Continue { range: range.into(), mode: 0, mapped: 0 };
        // SAFETY: a `Continue` is the structure of that number; contents stay.
        unsafe { self.ioctl(UFFDIO_CONTINUE, &mut order) }
    }

    /// Moves pages; returns the bytes that were moved, and why not all were.
    ///
    /// # Safety
    /// Both ranges are the caller's to change: nobody looks at them through a reference.
    pub(super) unsafe fn move_pages(
        &self,
        dst: usize,
        src: Range<usize>,
        mode: u64,
    ) -> (usize, Result<(), Errno>) {
        let (start, len) = (src.start as u64, src.len() as u64);
        let mut order = Move { dst: dst as u64, src: start, len, mode, moved: 0 };
        // SAFETY: a `Move` is the structure of that number; the memory is the caller's to change.
        let done = unsafe { self.ioctl(UFFDIO_MOVE, &mut order) };
        (usize::try_from(order.moved).unwrap_or(0), done)
    }

    /// Reads as many messages as there are and as fit; each lets the thread that caused it go on.
    pub(super) fn read(&self, room: &mut [Message]) -> Result<usize, Errno> {
        // SAFETY: the room is ours, and any bytes are a `Message`.
        let read =
            unsafe { libc::read(self.0.as_raw_fd(), room.as_mut_ptr().cast(), size_of_val(room)) };
        match usize::try_from(read) {
            Ok(bytes) => Ok(bytes / size_of::<Message>()),
            Err(_) => Err(last()),
        }
    }

    /// # Safety
    /// `T` is the structure that `number` wants, and the call's effects on memory are allowed.
    unsafe fn ioctl<T>(&self, number: libc::c_ulong, arg: &mut T) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), number, std::ptr::from_mut(arg)) };
        if done < 0 { Err(last()) } else { Ok(()) }
    }
}

fn last() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn owned(result: libc::c_long) -> Result<Fd, Errno> {
    match i32::try_from(result) {
        // SAFETY: the kernel has just opened it for this call, and nobody else knows of it.
        Ok(fd) if fd >= 0 => Ok(Fd(unsafe { OwnedFd::from_raw_fd(fd) })),
        _ => Err(last()),
    }
}
