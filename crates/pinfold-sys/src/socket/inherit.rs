//! Sockets that stay with the process that made them, though it forks.
//!
//! `FD_CLOEXEC` keeps a descriptor from programs that are started, but a child of `fork(2)` that
//! starts none has copies of all its parent's. A copy keeps a socket open when the parent has died:
//! names and ports stay taken, nobody answers there, and peers do not learn of the death. So a
//! handler of `pthread_atfork(3)` puts an unconnected socket in place of each copy. The number
//! stays in use, for the code in the child that closes it later.
//!
//! A child of `vfork(2)`, `posix_spawn(3)` or a bare `clone(2)` runs no such handler. The first two
//! start a program; a child of the last has copies, and so has one of a fork at the very moment
//! when another thread makes a socket.
#![allow(unsafe_code)]
// Invariant: a descriptor is replaced in a forked child alone, by the one thread there is, and only
// if it is, by the kernel's number for it, the very socket that was noted: those numbers are never
// used again, so an entry that is out of date does no harm.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, RawFd},
    ptr,
    sync::{
        Once,
        atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering},
    },
};

/// Descriptors of a chunk, and chunks: the most that a process may have is `CHUNK * CHUNKS`.
const CHUNK: usize = 1024;
const CHUNKS: usize = 1024;

/// The kernel's number for the socket at each descriptor, or 0.
type Cookies = [AtomicU64; CHUNK];

static NOTED: [AtomicPtr<Cookies>; CHUNKS] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];

/// Descriptors that have been noted lie below this one.
static END: AtomicUsize = AtomicUsize::new(0);

/// Keeps a socket from children that this process forks from now on. A look-up, once for each
/// socket; where the kernel has no numbers for sockets (before Linux 4.12) nothing happens.
pub(crate) fn keep_from_children(socket: impl AsFd) {
    static HANDLER: Once = Once::new();
    let fd = socket.as_fd().as_raw_fd();
    let (Some(cookie), Ok(at)) = (cookie_of(fd), usize::try_from(fd)) else { return };
    let Some(noted) = chunk_of(at) else { return };
    HANDLER.call_once(|| {
        // SAFETY: the handler does only calls that a child may make before it starts a program. For
        // want of memory there is none, and children have copies.
        unsafe { libc::pthread_atfork(None, None, Some(replace_all)) };
    });
    // A fork by another thread sees all of it or, as if it had come earlier, nothing.
    noted[at % CHUNK].store(cookie, Ordering::Release);
    END.fetch_max(at + 1, Ordering::Release);
}

/// The chunk of a descriptor, made if need be.
fn chunk_of(fd: usize) -> Option<&'static Cookies> {
    let slot = NOTED.get(fd / CHUNK)?;
    if slot.load(Ordering::Acquire).is_null() {
        let fresh: Box<Cookies> = Box::new([const { AtomicU64::new(0) }; CHUNK]);
        let fresh = Box::into_raw(fresh);
        let put =
            slot.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
        if put.is_err() {
            // SAFETY: it came out of a box just now, and nobody else has it.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
    // SAFETY: a pointer put there is a whole chunk out of a box, and stays.
    unsafe { slot.load(Ordering::Acquire).as_ref() }
}

/// The kernel's number for a socket, which no other ever has. See `SO_COOKIE` in `socket(7)`.
fn cookie_of(fd: RawFd) -> Option<u64> {
    let mut cookie = 0u64;
    let mut len = size_of_val(&cookie) as libc::socklen_t;
    let into = (&raw mut cookie).cast();
    // SAFETY: the kernel writes no more than `len` bytes to `cookie`.
    let done =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, into, &raw mut len) };
    (done == 0 && len as usize == size_of_val(&cookie) && cookie != 0).then_some(cookie)
}

/// In a child: puts a socket that is nobody's in place of all that were noted.
///
/// No allocation, no lock: only loads, stores and system calls.
extern "C" fn replace_all() {
    let end = END.swap(0, Ordering::Relaxed);
    let errno = io::Error::last_os_error().raw_os_error();
    let mut blank = None;
    for at in 0..end {
        let chunk = NOTED[at / CHUNK].load(Ordering::Acquire);
        // SAFETY: null, or a whole chunk that stays.
        let Some(chunk) = (unsafe { chunk.as_ref() }) else { continue };
        let cookie = chunk[at % CHUNK].swap(0, Ordering::Relaxed);
        let fd = at as RawFd;
        if cookie == 0 || cookie_of(fd) != Some(cookie) {
            continue;
        }
        let blank = *blank.get_or_insert_with(|| {
            let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            // SAFETY: makes a descriptor.
            unsafe { libc::socket(libc::AF_UNIX, kind, 0) }
        });
        if blank >= 0 {
            // SAFETY: the number is that of a socket of this library's, as it would have closed it
            // here; the number's holder goes on to have a descriptor.
            unsafe { libc::dup3(blank, fd, libc::O_CLOEXEC) };
        }
    }
    if let Some(blank) = blank.filter(|blank| *blank >= 0) {
        // SAFETY: it was made above, and nobody else knows of it.
        unsafe { libc::close(blank) };
    }
    if let Some(errno) = errno {
        // SAFETY: this thread's own. The caller of `fork` finds the value that it left there.
        unsafe { *libc::__errno_location() = errno };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        child,
        socket::seqpacket::{self, Socket},
    };

    fn pair_kept() -> (Socket, Socket) {
        let (one, two) = seqpacket::pair().unwrap();
        keep_from_children(&one);
        (one, two)
    }

    /// Returns the status of a child that does this.
    fn in_child(work: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the work makes system calls alone, so other threads do not matter.
        child::status_of(unsafe { child::spawn(work) }.unwrap()).unwrap()
    }

    #[test]
    fn a_child_has_other_sockets_at_the_same_numbers() {
        let (one, two) = pair_kept();
        let Some(before) = cookie_of(one.as_raw_fd()) else {
            return crate::skip::skip("sockets have no numbers here");
        };
        let fds = [one.as_raw_fd(), two.as_raw_fd()];
        let status = in_child(|| {
            let [theirs, ours] = fds.map(cookie_of);
            i32::from(theirs.is_some_and(|it| it != before)) + 2 * i32::from(ours.is_some())
        });
        assert_eq!(status, 3);
        // The parent's socket is still the parent's.
        assert_eq!(cookie_of(fds[0]), Some(before));
        seqpacket::send(&one, b"x", &[]).unwrap();
        assert_eq!(seqpacket::recv(&two, &mut [0; 8], 0).unwrap().len, 1);
    }

    #[test]
    fn what_has_the_number_of_a_socket_that_is_gone_is_left_alone() {
        let (one, _two) = pair_kept();
        let fd = one.as_raw_fd();
        let (other, _another) = seqpacket::pair().unwrap();
        // Another socket takes its place, under the same number.
        // SAFETY: the number stays that of an open descriptor, which `one` closes.
        assert_eq!(unsafe { libc::dup3(other.as_raw_fd(), fd, libc::O_CLOEXEC) }, fd);
        let cookie = cookie_of(other.as_raw_fd());
        assert_eq!(in_child(|| i32::from(cookie_of(fd) == cookie)), 1);
    }

    #[test]
    fn the_dead_are_heard_of_though_their_children_live() {
        let (one, two) = pair_kept();
        if cookie_of(one.as_raw_fd()).is_none() {
            return crate::skip::skip("sockets have no numbers here");
        }
        let (go, wait) = seqpacket::pair().unwrap();
        let fds = [&one, &two, &go, &wait].map(AsRawFd::as_raw_fd);
        let (hold, held) = (fds[3], fds[0]);
        // SAFETY: makes system calls alone.
        let child = unsafe {
            child::spawn(|| {
                let mut byte = 0u8;
                let mut poll = libc::pollfd { fd: hold, events: libc::POLLIN, revents: 0 };
                libc::poll(&raw mut poll, 1, 60_000);
                let read = libc::read(hold, (&raw mut byte).cast(), 1);
                i32::from(read == 1 && libc::fcntl(held, libc::F_GETFD) >= 0)
            })
        }
        .unwrap();
        drop(one);
        // No copy is left, so this is the end of it; except those of a program that another test
        // starts, until it runs.
        let is_closed = || seqpacket::drain(&two).unwrap() == seqpacket::Drained::Closed;
        let pause = || std::thread::sleep(std::time::Duration::from_millis(1));
        assert!((0..10_000).any(|_| is_closed() || {
            pause();
            false
        }));
        seqpacket::send(&go, b"x", &[]).unwrap();
        assert_eq!(child::status_of(child), Some(1));
    }
}
