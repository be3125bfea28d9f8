//! Calls that are made to learn whether they are allowed. Descriptors that they open are closed
//! again.
#![allow(unsafe_code)]
// Invariant: each call is given integers, or one structure of ours that lives through the call and
// is at least as long as the kernel writes; a descriptor that the kernel returned is owned once.

use std::{
    io,
    os::fd::{AsFd, FromRawFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    mm::{self, Advice},
};

use crate::{
    cpu::clock,
    io::send_ring::{Order, SendRing, Way},
    mem::{
        mapping::SharedMapping,
        pin::{Error, Pin, Registered},
    },
    process::Segment,
};

/// `MEMBARRIER_CMD_GLOBAL_EXPEDITED` and its registration.
pub const BARRIER_GLOBAL: [i32; 2] = [1 << 1, 1 << 2];
/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and its registration.
pub const BARRIER_PRIVATE: [i32; 2] = [1 << 3, 1 << 4];

/// `MEMBARRIER_CMD_QUERY`.
const BARRIER_QUERY: i32 = 0;

/// Asks for a kind of barrier, registers for it and executes one: the calls of
/// [`barrier`](crate::cpu::barrier), in their order. See `membarrier(2)`.
///
/// # Errors
/// `EINVAL` if the kernel has no such barrier, `ENOSYS` or `EPERM` under a filter.
pub fn membarrier([command, register]: [i32; 2]) -> io::Result<()> {
    // SAFETY: the call takes three integers and touches no memory of ours.
    let known = unsafe { libc::syscall(libc::SYS_membarrier, BARRIER_QUERY, 0, 0) };
    check(known)?;
    let both = libc::c_long::from(command | register);
    if known & both != both {
        return Err(Errno::INVAL.into());
    }
    for command in [register, command] {
        // SAFETY: the call takes three integers and touches no memory of ours.
        check(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) })?;
    }
    Ok(())
}

/// Reserves memory for all of a mapping, by the one call and no other way. See
/// `MADV_POPULATE_WRITE` in `madvise(2)`.
///
/// # Errors
/// `EINVAL` before Linux 5.14, `ENOMEM`, or the error of a filter.
pub fn populate_write(map: &SharedMapping) -> io::Result<()> {
    // SAFETY: the range is the whole of a live mapping, and the advice changes no contents.
    Ok(unsafe { mm::madvise(map.as_ptr().cast(), map.len(), Advice::LinuxPopulateWrite) }?)
}

/// Has children of this process not get a mapping. See `MADV_DONTFORK` in `madvise(2)`.
///
/// # Errors
/// The error of a filter.
pub fn dont_fork(map: &SharedMapping) -> io::Result<()> {
    // SAFETY: the range is the whole of a live mapping, and the advice changes no contents.
    Ok(unsafe { mm::madvise(map.as_ptr().cast(), map.len(), Advice::LinuxDontFork) }?)
}

/// Makes an io_uring of one entry: the `IORING_FEAT_*` bits. See `io_uring_setup(2)`.
///
/// # Errors
/// `EPERM` where `kernel.io_uring_disabled` or a filter forbids it, `ENOSYS`, `ENOMEM` at
/// `RLIMIT_MEMLOCK` of old kernels.
pub fn io_uring() -> io::Result<u32> {
    /// `struct io_uring_params`: 120 bytes, of which the sixth word are the features.
    const WORDS: usize = 30;
    let mut params = [0u32; WORDS];
    // SAFETY: the kernel reads and writes 120 bytes.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) };
    owned(ring)?;
    Ok(params[5])
}

/// The kernel may look at bytes sent over a loopback for so long, whose other end is in this
/// process.
const LANDS_WITHIN: Duration = Duration::from_secs(5);

/// Sends `bytes`, some KiB at most, over a connection twice by an io_uring, without copying: once
/// with their pages pinned for the send, once with pages that are registered. Waits until the
/// kernel is done with them.
///
/// # Errors The call that failed, and why: `ENOSYS` before Linux 6.1, `ENOMEM` at `RLIMIT_MEMLOCK`,
/// or as for [`Registered::new`].
pub fn send_zc(socket: impl AsFd, bytes: &[u8]) -> Result<(), Error> {
    const ENTER: &str = "io_uring_enter";
    let registered = Arc::new(Registered::new(1)?);
    let at = bytes.as_ptr().expose_provenance();
    let slot = registered.pin(at..at + bytes.len())?;
    let mut ring = SendRing::new(Arc::clone(&registered))?;
    for way in [Way::Pinned, Way::Registered(slot.id())] {
        let parts = [Segment { ptr: bytes.as_ptr().cast_mut(), len: bytes.len() }];
        let mut launched = Vec::new();
        // SAFETY: the bytes can be read. Should the kernel read them after this returns, it may:
        // their owner may change them, and the other end takes nothing from them.
        let sent = unsafe { ring.send(&socket, &[Order { parts: &parts, way }], &mut launched) };
        sent.map_err(|errno| Error::new(ENTER, errno))?;
        let until = Instant::now() + LANDS_WITHIN;
        for mut flight in launched.into_iter().filter_map(|one| one.flight) {
            loop {
                ring.collect();
                match ring.land(flight) {
                    Ok(_) => break,
                    Err(_) if Instant::now() >= until => {
                        return Err(Error::new(ENTER, Errno::TIMEDOUT));
                    }
                    Err(still) => flight = still,
                }
                // The kernel says so when this thread makes a call.
                clock::pause(Duration::from_micros(100));
            }
        }
    }
    drop(ring);
    registered.unpin(slot)
}

/// The filter mode of this thread's system calls: 0 none, 1 strict, 2 by a program. See
/// `PR_GET_SECCOMP`.
///
/// # Errors
/// `EINVAL` in a kernel without filters, or the error of a filter.
pub fn seccomp_mode() -> io::Result<i32> {
    // SAFETY: the call takes integers.
    let mode = unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) };
    check(mode.into())?;
    Ok(mode)
}

/// Returns whether it is known that no filter on system calls is in force: some filters end a
/// process that makes a call they do not know. One system call.
pub fn is_unfiltered() -> bool {
    seccomp_mode().is_ok_and(|mode| mode == 0)
}

/// The soft and the hard limit that `resource`, an `RLIMIT_*`, has in this process; `None` is no
/// limit. See `getrlimit(2)`.
///
/// # Errors
/// The error of a filter.
pub fn limits(resource: u32) -> io::Result<(Option<u64>, Option<u64>)> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one `rlimit`.
    check(unsafe { libc::getrlimit(resource, &raw mut limits) }.into())?;
    let some = |limit: libc::rlim_t| (limit != libc::RLIM_INFINITY).then_some(limit);
    Ok((some(limits.rlim_cur), some(limits.rlim_max)))
}

/// Resources of a process that may be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// The bytes of a file (`RLIMIT_FSIZE`), of one in memory as well.
    FileBytes,
    /// One more than the highest number of a descriptor (`RLIMIT_NOFILE`).
    OpenFiles,
    /// Bytes of memory that are kept in place (`RLIMIT_MEMLOCK`).
    LockedBytes,
}

/// The soft limit of this process; `None` is without limit, or that a filter denies the question.
pub fn soft_limit(of: Limited) -> Option<u64> {
    let resource = match of {
        Limited::FileBytes => libc::RLIMIT_FSIZE,
        Limited::OpenFiles => libc::RLIMIT_NOFILE,
        Limited::LockedBytes => libc::RLIMIT_MEMLOCK,
    };
    limits(resource).map_or(None, |(soft, _)| soft)
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        // SAFETY: the kernel has just opened it for this call, and nobody else knows of it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each call either works or returns its reason.
    #[test]
    fn answers_are_errors_or_facts() {
        let said = |error: io::Error| assert!(error.raw_os_error().is_some_and(|errno| errno > 0));
        for kind in [BARRIER_GLOBAL, BARRIER_PRIVATE] {
            membarrier(kind).unwrap_or_else(said);
        }
        assert!(membarrier([1 << 30, 1 << 30]).is_err());
        io_uring().map_or_else(said, |features| assert_ne!(features, 0));
        let (soft, hard) = limits(libc::RLIMIT_NOFILE).unwrap();
        assert!(soft.is_some_and(|soft| hard.is_none_or(|hard| soft <= hard)));
        seccomp_mode().map_or_else(said, |mode| assert!((0..=2).contains(&mode)));
    }

    /// All that is sent arrives, both times.
    #[test]
    fn bytes_are_sent_by_a_ring() {
        use std::{
            io::Read,
            net::{TcpListener, TcpStream},
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let bytes = vec![7; 8192];
        if let Err(error) = send_zc(&socket, &bytes) {
            // Not here: then the errno says why.
            assert!(error.errno() != Errno::TIMEDOUT && error.errno() != Errno::FAULT, "{error}");
            return;
        }
        let mut got = vec![0; 16384];
        other.read_exact(&mut got).unwrap();
        assert!(got.iter().all(|&byte| byte == 7));
    }
}
