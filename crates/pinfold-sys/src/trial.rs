//! Calls that are made to learn whether they are allowed. What they open is closed again.
#![allow(unsafe_code)]
// Invariant: each call is given integers, or one structure of ours that lives through the call and
// is at least as long as the kernel writes; a descriptor that the kernel returned is owned once.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

use rustix::mm::{self, Advice};

use crate::mapping::SharedMapping;

/// `MEMBARRIER_CMD_GLOBAL_EXPEDITED` and its registration.
pub const BARRIER_GLOBAL: [i32; 2] = [1 << 1, 1 << 2];
/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and its registration.
pub const BARRIER_PRIVATE: [i32; 2] = [1 << 3, 1 << 4];

/// Registers for a kind of barrier and executes one. See `membarrier(2)`.
///
/// # Errors
/// `EINVAL` if the kernel has no such barrier, `ENOSYS` or `EPERM` under a filter.
pub fn membarrier([command, register]: [i32; 2]) -> io::Result<()> {
    for command in [register, command] {
        // SAFETY: the call takes three integers and touches no memory of ours.
        check(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) })?;
    }
    Ok(())
}

/// Asks for huge pages in all of a mapping; what it holds stays. See `MADV_HUGEPAGE` in
/// `madvise(2)`.
///
/// # Errors
/// `EINVAL` in a kernel without huge pages.
pub fn advise_huge(map: &SharedMapping) -> io::Result<()> {
    // SAFETY: the range is the whole of a live mapping, and the advice changes no contents.
    Ok(unsafe { mm::madvise(map.as_ptr().cast(), map.len(), Advice::LinuxHugepage) }?)
}

/// Reserves memory for all of a mapping, by the one call and no other way. See
/// `MADV_POPULATE_WRITE` in `madvise(2)`.
///
/// # Errors
/// `EINVAL` before Linux 5.14, `ENOMEM`, or what a filter says.
pub fn populate_write(map: &SharedMapping) -> io::Result<()> {
    // SAFETY: the range is the whole of a live mapping, and the advice changes no contents.
    Ok(unsafe { mm::madvise(map.as_ptr().cast(), map.len(), Advice::LinuxPopulateWrite) }?)
}

/// `UFFDIO_API`, and what it takes.
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFD_API: u64 = 0xaa;
const UFFD_USER_MODE_ONLY: libc::c_int = 1;

#[repr(C)]
#[derive(Default)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

const _: () = assert!(size_of::<UffdioApi>() == 0x18);

/// Opens a `userfaultfd(2)`, for faults of user mode only if `user_mode_only`, and asks what it
/// can do: the `UFFD_FEATURE_*` bits.
///
/// # Errors
/// `EPERM` for want of a privilege or under a filter, `ENOSYS`, `EINVAL` before Linux 5.11 if
/// `user_mode_only`.
pub fn userfaultfd(user_mode_only: bool) -> io::Result<u64> {
    let flags = libc::O_CLOEXEC | if user_mode_only { UFFD_USER_MODE_ONLY } else { 0 };
    // SAFETY: the call takes one integer.
    let fd = owned(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) })?;
    let mut api = UffdioApi { api: UFFD_API, ..UffdioApi::default() };
    // SAFETY: the kernel reads and writes one `UffdioApi`.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &raw mut api) }.into())?;
    Ok(api.features)
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

/// Whether an io_uring sends without copying: `IORING_OP_SEND_ZC`.
///
/// # Errors
/// `ENOSYS` before Linux 6.0, and what making a ring says, see [`io_uring()`].
pub fn send_zc() -> io::Result<()> {
    let (ring, mut probe) = (io_uring::IoUring::new(1)?, io_uring::Probe::new());
    ring.submitter().register_probe(&mut probe)?;
    let there = probe.is_supported(io_uring::opcode::SendZc::CODE);
    if there { Ok(()) } else { Err(rustix::io::Errno::NOSYS.into()) }
}

/// Whether `socket` can be told to send without copying: `SO_ZEROCOPY`, see `MSG_ZEROCOPY` in the kernel's
/// documentation of networking.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 4.14, `ENOTSUPP` for a kind of socket that cannot.
pub fn zerocopy(socket: impl AsFd) -> io::Result<()> {
    let (on, len): (libc::c_int, _) = (1, size_of::<libc::c_int>() as libc::socklen_t);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads one integer.
    let set = unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, (&raw const on).cast(), len)
    };
    check(set.into())
}

/// How this thread's system calls are filtered: 0 not at all, 1 strictly, 2 by a program. See
/// `PR_GET_SECCOMP`.
///
/// # Errors
/// `EINVAL` in a kernel without filters, or what a filter says.
pub fn seccomp_mode() -> io::Result<i32> {
    // SAFETY: the call takes integers.
    let mode = unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) };
    check(mode.into())?;
    Ok(mode)
}

/// Whether it is known that no filter on system calls is in force: some end who makes a call that they do not know.
/// One system call.
pub fn is_unfiltered() -> bool {
    seccomp_mode().is_ok_and(|mode| mode == 0)
}

/// The soft and the hard limit that `resource`, an `RLIMIT_*`, has in this process; `None` is no
/// limit. See `getrlimit(2)`.
///
/// # Errors
/// What a filter says.
pub fn limits(resource: u32) -> io::Result<(Option<u64>, Option<u64>)> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one `rlimit`.
    check(unsafe { libc::getrlimit(resource, &raw mut limits) }.into())?;
    let some = |limit: libc::rlim_t| (limit != libc::RLIM_INFINITY).then_some(limit);
    Ok((some(limits.rlim_cur), some(limits.rlim_max)))
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

    /// Each either works or says why not.
    #[test]
    fn answers_are_errors_or_facts() {
        let said = |error: io::Error| assert!(error.raw_os_error().is_some_and(|errno| errno > 0));
        for kind in [BARRIER_GLOBAL, BARRIER_PRIVATE] {
            membarrier(kind).unwrap_or_else(said);
        }
        assert!(membarrier([1 << 30, 1 << 30]).is_err());
        userfaultfd(true).map_or_else(said, |features| assert_ne!(features, 0));
        io_uring().map_or_else(said, |features| assert_ne!(features, 0));
        send_zc().unwrap_or_else(said);
        zerocopy(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap_or_else(said);
        let (soft, hard) = limits(libc::RLIMIT_NOFILE).unwrap();
        assert!(soft.is_some_and(|soft| hard.is_none_or(|hard| soft <= hard)));
        seccomp_mode().map_or_else(said, |mode| assert!((0..=2).contains(&mode)));
    }

    #[test]
    fn advice_keeps_the_contents() {
        let file = crate::memfd::create_sealed("pinfold-test", 4 << 20).unwrap();
        let map = SharedMapping::map(file.as_fd(), 4 << 20).unwrap();
        // SAFETY: within the mapping; nothing else uses it.
        unsafe { map.as_ptr().add(5).write_volatile(7) };
        let _ = advise_huge(&map);
        // SAFETY: as above.
        assert_eq!(unsafe { map.as_ptr().add(5).read_volatile() }, 7);
    }
}
