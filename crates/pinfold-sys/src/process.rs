//! Other processes: whether they live, and the contents of their memory.
#![allow(unsafe_code)]
// Invariant: a `Segment` or `RemoteSegment` is laid out as `struct iovec`, so slices of them go
// to the kernel as they are; and no call here reads or writes this process's memory outside the
// local segments it is given.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags},
    process::{Pid, PidfdFlags, getpid, pidfd_open as open},
};

use crate::io::poll;

/// The most segments the kernel takes in one call, on each side (`UIO_MAXIOV`).
pub const SEGMENTS_MAX: usize = 1024;

/// A piece of this process's memory. Laid out as `struct iovec`.
///
/// It is an address, not a right to it: the caller that passes one to a system call answers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Segment {
    /// Its first byte.
    pub ptr: *mut u8,
    /// Its length, bytes.
    pub len: usize,
}

// SAFETY: an address and a number; every use of the address is an unsafe call of its own.
unsafe impl Send for Segment {}
// SAFETY: as for `Send`.
unsafe impl Sync for Segment {}

/// A piece of another process's memory. Laid out as `struct iovec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RemoteSegment {
    /// The address of its first byte, in that process.
    pub addr: u64,
    /// Its length, bytes.
    pub len: u64,
}

const _: () = {
    use libc::iovec;
    use std::mem::offset_of;
    assert!(size_of::<Segment>() == size_of::<iovec>());
    assert!(align_of::<Segment>() == align_of::<iovec>());
    assert!(offset_of!(Segment, ptr) == offset_of!(iovec, iov_base));
    assert!(offset_of!(Segment, len) == offset_of!(iovec, iov_len));
    assert!(size_of::<RemoteSegment>() == size_of::<iovec>());
    assert!(align_of::<RemoteSegment>() == align_of::<iovec>());
    assert!(offset_of!(RemoteSegment, addr) == offset_of!(iovec, iov_base));
    assert!(offset_of!(RemoteSegment, len) == offset_of!(iovec, iov_len));
};

/// Opens a descriptor for the process `pid`; closed on exec. See `pidfd_open(2)`.
///
/// # Errors
/// `ESRCH` if there is none, `EINVAL` if `pid` is no process's, `ENOSYS` before Linux 5.3,
/// `EPERM` under a filter.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    Ok(open(checked(pid)?, PidfdFlags::empty())?)
}

/// Opens a descriptor for this process.
///
/// # Errors
/// As [`pidfd_open`].
pub fn self_pidfd() -> io::Result<OwnedFd> {
    Ok(open(getpid(), PidfdFlags::empty())?)
}

/// The start of a process, in ticks since the system's: together with its number, it tells the
/// process from all others. `None` if there is none, or it is not to be seen. See
/// `proc_pid_stat(5)`.
pub fn began_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which is in parentheses and may be anything, the state is field 3.
    let behind = stat.iter().rposition(|byte| *byte == b')')? + 1;
    str::from_utf8(&stat[behind..]).ok()?.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

/// Returns whether the process behind a pidfd has yet to exit. A zombie is not alive. One
/// `poll(2)`.
pub fn pidfd_alive(pidfd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    loop {
        match poll::ready(&mut fds, Some(Duration::ZERO)) {
            Err(rustix::io::Errno::INTR) => {}
            // Readable, or not a pidfd at all: then there is nothing to count on.
            Ok(ready) => return ready == 0,
            // Want of kernel memory says nothing about the process.
            Err(_) => return true,
        }
    }
}

/// The process id behind a pidfd as this process's namespace knows it: `Some(0)` if it lies in
/// another one, `None` if the descriptor is no pidfd or `/proc` is missing. An exited process
/// has -1 there, reported as `Some(0)`.
pub fn pidfd_pid(fd: BorrowedFd<'_>) -> Option<u32> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    Some(line.trim().parse().unwrap_or(0))
}

/// Returns whether a descriptor is one for a process. Two system calls, or four where `/proc` has
/// to be asked. `false` where that cannot be known.
pub fn is_pidfd(fd: BorrowedFd<'_>) -> bool {
    let (call, nothing) = (libc::SYS_pidfd_send_signal, std::ptr::null::<libc::siginfo_t>());
    // SAFETY: sends nothing, and only says whether it could.
    let may = unsafe { libc::syscall(call, fd.as_raw_fd(), 0, nothing, 0) };
    match may {
        0 => true,
        _ => match io::Error::last_os_error().raw_os_error() {
            Some(libc::ESRCH) => true,
            Some(libc::EBADF | libc::EINVAL) => false,
            // The process is another user's, or the answer is a filter's.
            _ => pidfd_pid(fd).is_some(),
        },
    }
}

/// Copies bytes of process `pid`'s memory here: fills `local` in order from `remote` in order.
/// Returns the bytes copied, which may be fewer than asked for: the kernel stops at the first
/// remote page it cannot reach, at 2 GiB, and at [`SEGMENTS_MAX`] segments of either list.
/// See `process_vm_readv(2)`.
///
/// # Errors
/// `ESRCH` if there is no such process, `EPERM` if the pair may not, `EFAULT` if the first
/// remote byte cannot be reached, `ENOSYS` under a kernel or filter without the call.
///
/// # Safety
/// Every local segment must be valid for writes, and nothing else in this process may read or
/// write it during the call other than through raw pointers that tolerate it.
pub unsafe fn read_remote(
    pid: u32,
    local: &[Segment],
    remote: &[RemoteSegment],
) -> io::Result<usize> {
    let pid = checked(pid)?.as_raw_nonzero().get();
    let (local, locals) = (local.as_ptr().cast(), local.len().min(SEGMENTS_MAX) as libc::c_ulong);
    let (remote, remotes) =
        (remote.as_ptr().cast(), remote.len().min(SEGMENTS_MAX) as libc::c_ulong);
    // SAFETY: both lists are laid out as iovecs (checked above) and live as long as their
    // slices; the kernel writes only the local segments, for which the caller answers.
    let copied = unsafe { libc::process_vm_readv(pid, local, locals, remote, remotes, 0) };
    result(copied)
}

/// Copies bytes of this process into process `pid`'s memory: `local` in order into `remote` in
/// order. Returns the bytes copied, which may be fewer than asked for, as with
/// [`read_remote`]. See `process_vm_writev(2)`.
///
/// # Errors
/// As [`read_remote`].
///
/// # Safety
/// Every local segment must be valid for reads during the call. If `pid` is this process, the
/// remote segments must be valid for writes as in [`read_remote`].
pub unsafe fn write_remote(
    pid: u32,
    local: &[Segment],
    remote: &[RemoteSegment],
) -> io::Result<usize> {
    let pid = checked(pid)?.as_raw_nonzero().get();
    let (local, locals) = (local.as_ptr().cast(), local.len().min(SEGMENTS_MAX) as libc::c_ulong);
    let (remote, remotes) =
        (remote.as_ptr().cast(), remote.len().min(SEGMENTS_MAX) as libc::c_ulong);
    // SAFETY: both lists are laid out as iovecs (checked above) and live as long as their
    // slices; the kernel only reads the local segments, for which the caller answers.
    let copied = unsafe { libc::process_vm_writev(pid, local, locals, remote, remotes, 0) };
    result(copied)
}

/// Copies the bytes at `addr` of process `pid` into `buf`. Returns how many.
///
/// # Errors
/// As [`read_remote`].
pub fn read_remote_into(pid: u32, addr: u64, buf: &mut [u8]) -> io::Result<usize> {
    let local = [Segment { ptr: buf.as_mut_ptr(), len: buf.len() }];
    // SAFETY: `buf` is borrowed mutably, so valid for writes and seen by nobody else.
    unsafe { read_remote(pid, &local, &[RemoteSegment { addr, len: buf.len() as u64 }]) }
}

/// Copies `bytes` to `addr` of process `pid`. Returns how many were copied.
///
/// # Errors
/// As [`write_remote`].
///
/// # Safety
/// If `pid` is this process, the memory at `addr` must be valid for writes of `bytes.len()`
/// bytes, and nothing may read or write it meanwhile other than in ways that tolerate it.
pub unsafe fn write_remote_from(pid: u32, addr: u64, bytes: &[u8]) -> io::Result<usize> {
    let local = [Segment { ptr: bytes.as_ptr().cast_mut(), len: bytes.len() }];
    // SAFETY: `bytes` is borrowed, so valid for reads, and the kernel does not write it; the
    // caller answers for `addr`.
    unsafe { write_remote(pid, &local, &[RemoteSegment { addr, len: bytes.len() as u64 }]) }
}

/// Zero means "not in this namespace", and a negative number means a group: neither is a process.
fn checked(pid: u32) -> io::Result<Pid> {
    let missing = || io::Error::from_raw_os_error(libc::ESRCH);
    i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(missing)
}

fn result(copied: isize) -> io::Result<usize> {
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> u32 {
        std::process::id()
    }

    /// A filter may forbid the calls; the tests then have nothing to show.
    fn permitted() -> bool {
        let (from, mut to) = ([1u8], [0u8]);
        read_remote_into(me(), from.as_ptr() as u64, &mut to).is_ok()
    }

    #[test]
    fn reads_across_segments() {
        if !permitted() {
            return;
        }
        let from: Vec<u8> = (0..100).collect();
        let mut to = [0u8; 100];
        let at = to.as_mut_ptr();
        let base = from.as_ptr() as u64;
        // SAFETY: both pieces lie within `to`, which nothing else uses.
        let copied = unsafe {
            read_remote(
                me(),
                &[Segment { ptr: at, len: 60 }, Segment { ptr: at.add(60), len: 40 }],
                &[
                    RemoteSegment { addr: base, len: 1 },
                    RemoteSegment { addr: base + 1, len: 0 },
                    RemoteSegment { addr: base + 1, len: 99 },
                ],
            )
        };
        assert_eq!(copied.unwrap(), 100);
        assert_eq!(&to[..], &from[..]);
    }

    #[test]
    fn writes() {
        if !permitted() {
            return;
        }
        let mut to = [0u8; 16];
        let at = to.as_mut_ptr() as u64;
        // SAFETY: the address is that of `to`, which nothing else uses.
        assert_eq!(unsafe { write_remote_from(me(), at, &[5; 16]) }.unwrap(), 16);
        assert_eq!(to, [5; 16]);
    }

    #[test]
    fn many_segments_are_a_short_copy() {
        if !permitted() {
            return;
        }
        let from = [7u8; 2000];
        let mut to = [0u8; 2000];
        let at = to.as_mut_ptr();
        let local: Vec<_> =
            (0..2000).map(|i| Segment { ptr: at.wrapping_add(i), len: 1 }).collect();
        let remote = [RemoteSegment { addr: from.as_ptr() as u64, len: 2000 }];
        // SAFETY: every piece is a byte of `to`, which nothing else uses.
        let copied = unsafe { read_remote(me(), &local, &remote) }.unwrap();
        assert_eq!(copied, SEGMENTS_MAX);
        assert!(to[..1024].iter().all(|&byte| byte == 7) && to[1024] == 0);
    }

    #[test]
    fn faults_are_errors() {
        let mut to = [0u8; 8];
        assert_eq!(
            read_remote_into(0, 4096, &mut to).unwrap_err().raw_os_error(),
            Some(libc::ESRCH)
        );
        assert_eq!(
            read_remote_into(u32::MAX, 4096, &mut to).unwrap_err().raw_os_error(),
            Some(libc::ESRCH)
        );
        assert!(read_remote_into(me(), 8, &mut to).is_err());
    }

    #[test]
    fn processes_live_and_die() {
        let own = self_pidfd().unwrap();
        assert!(pidfd_alive(&own));
        let mut child = std::process::Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let pidfd = pidfd_open(child.id()).unwrap();
        assert!(pidfd_alive(&pidfd));
        assert!(pidfd_pid(pidfd.as_fd()).is_none_or(|pid| pid == child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!pidfd_alive(&pidfd));
        assert_eq!(pidfd_open(0).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(pidfd_pid(null.as_fd()), None);
        // The child has ended.
        assert!(is_pidfd(own.as_fd()) && is_pidfd(pidfd.as_fd()) && !is_pidfd(null.as_fd()));
    }
}
