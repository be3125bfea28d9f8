//! A socket that is emptied before it is closed.
#![allow(unsafe_code)]
// Invariant: the kernel is given buffers of ours by their true lengths, and each descriptor that it
// puts into one is owned once.

use std::{
    mem::{self, MaybeUninit},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    process, ptr,
};

use rustix::net::{Shutdown, shutdown, sockopt};

use super::{FDS_ALL, accept, foreign};

/// Messages that are taken off a socket before it is closed: more than the kernel lets anybody
/// leave there.
const LEFT_MAX: usize = 4096;

/// An end of a connection between two processes, or a socket where such are asked for.
///
/// Unread messages are taken out before it is closed: the kernel would close descriptors that came
/// along, and the thread that closes those may have to wait.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    /// The process that unread messages are for.
    made_by: u32,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Socket {
        Socket { fd, made_by: process::id() }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Nothing more comes from now on. A socket that is not connected has nothing.
        if self.made_by != process::id() || shutdown(&self.fd, Shutdown::Read).is_err() {
            return;
        }
        // Callers that nobody answered leave something, too.
        while let Ok(Some(caller)) = accept(&self.fd) {
            mem::drop(caller);
        }
        // Then the kernel names the sender of each message, and none for the end: either may have
        // no bytes.
        if sockopt::set_socket_passcred(&self.fd, true).is_ok() {
            for _ in 0..LEFT_MAX {
                if !self.take() {
                    return;
                }
            }
        }
    }
}

impl Socket {
    /// Takes out a message. Returns whether there was one.
    fn take(&self) -> bool {
        const ROOM: usize = 32 + 8 * FDS_ALL;
        #[repr(align(8))]
        struct Control(MaybeUninit<[u8; ROOM]>);
        let mut control = Control(MaybeUninit::uninit());
        // SAFETY: all zeros is a header without anything.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_control = (&raw mut control.0).cast();
        header.msg_controllen = ROOM as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the header names no buffer but the control data's, which has so much room.
        if unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut header, flags) } < 0
            || header.msg_controllen == 0
        {
            return false;
        }
        let mut files = Vec::new();
        // SAFETY: the kernel has filled in the control data, of the length that the header says.
        let mut at = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
        // SAFETY: null, or one of the parts that lie in the control data.
        while let Some(part) = unsafe { at.as_ref() } {
            if part.cmsg_level == libc::SOL_SOCKET && part.cmsg_type == libc::SCM_RIGHTS {
                // SAFETY: of no contents this is the length of the part's head.
                let bytes = part.cmsg_len - unsafe { libc::CMSG_LEN(0) } as usize;
                for number in 0..bytes / size_of::<RawFd>() {
                    // SAFETY: the part has so many descriptors, each new and nobody else's.
                    files.push(unsafe {
                        let data = libc::CMSG_DATA(at).cast::<RawFd>();
                        OwnedFd::from_raw_fd(ptr::read_unaligned(data.add(number)))
                    });
                }
            }
            // SAFETY: as for the first.
            at = unsafe { libc::CMSG_NXTHDR(&raw const header, at) };
        }
        foreign::discard(&mut files);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
        time::Duration,
    };

    use super::*;
    use crate::{mem::memfd, socket::seqpacket};

    /// A connection whose last closer waits for ten minutes.
    fn lingering() -> (OwnedFd, TcpListener, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (two, _) = listener.accept().unwrap();
        one.set_nonblocking(true).unwrap();
        while one.write(&[0; 1 << 16]).is_ok() {}
        sockopt::set_socket_linger(&one, Some(Duration::from_secs(600))).unwrap();
        (one.into(), listener, two)
    }

    /// Sends the file away for good, with or without a byte.
    fn pass(socket: &Socket, file: OwnedFd, bytes: &[u8]) {
        seqpacket::send(socket, bytes, &[file.as_fd()]).unwrap();
    }

    /// Returns whether a message and the end of a connection differ, as in [`Socket::drop`].
    fn is_end_told() -> bool {
        let (one, two) = seqpacket::pair().unwrap();
        drop(one);
        sockopt::set_socket_passcred(&two, true).unwrap();
        !two.take()
    }

    /// If one of them were closed here, this would take ten minutes.
    #[test]
    fn nobody_waits_for_what_came_along() {
        if !is_end_told() {
            return crate::skip::skip("the end of a connection looks like a message without bytes");
        }
        let mut others = Vec::new();
        let mut next = || {
            let (one, _, two) = lingering();
            others.push(two);
            one
        };
        // A message that is taken, with a wanted descriptor beside the foreign one.
        let (one, two) = seqpacket::pair().unwrap();
        let memory = memfd::create_sealed("pinfold-foreign", 4096).unwrap();
        let file = next();
        seqpacket::send(&one, b"x", &[memory.as_fd(), file.as_fd()]).unwrap();
        drop(file);
        let got = seqpacket::recv(&two, &mut [0; 8], 2).unwrap();
        assert!(got.foreign && got.fds.len() == 1 && got.len == 1);
        // A descriptor that was not asked for.
        pass(&one, next(), b"x");
        let got = seqpacket::recv(&two, &mut [0; 8], 0).unwrap();
        assert!(got.foreign && got.fds.is_empty());
        // Messages left unread, behind some that look like the end.
        for bytes in [&b""[..], b"", b"xy"] {
            pass(&one, next(), bytes);
        }
        drop(two);
        // A caller that nobody answers.
        let path = std::env::temp_dir().join(format!("pinfold-emptied-{}", process::id()));
        let listener = seqpacket::bind_listen(&path, 8).unwrap();
        let caller = seqpacket::connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        pass(&caller, next(), b"x");
        drop(listener);
        drop(caller);
        // The far ends: then the threads that close end, too.
        drop(others);
    }

    #[test]
    fn what_others_made_is_left_alone() {
        let (one, two) = seqpacket::pair().unwrap();
        seqpacket::send(&one, b"x", &[]).unwrap();
        let copy = Socket { fd: two.as_fd().try_clone_to_owned().unwrap(), made_by: 1 };
        drop(copy);
        assert_eq!(seqpacket::recv(&two, &mut [0; 8], 0).unwrap().len, 1);
    }
}
