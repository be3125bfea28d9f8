//! Unix sockets that keep message boundaries: greetings, descriptors and doorbells.
#![allow(unsafe_code)]
// Invariant: every option read here is handed a buffer of the length it is told, and a
// descriptor the kernel returned is owned by exactly one `OwnedFd`.

mod emptied;
mod foreign;

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    path::Path,
};

use rustix::{
    io::Errno,
    net::{
        self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
        SocketType,
    },
};

pub use self::emptied::Socket;
use crate::{
    failed::{Failed, may_be_denied},
    process::{pidfd_alive, pidfd_open},
    socket::inherit::keep_from_children,
};

/// The most descriptors one message carries here, either way.
pub const FDS_MAX: usize = 8;

/// The most messages one [`drain`] takes, so that a flooding peer cannot hold it.
const DRAIN_MAX: usize = 64;

/// The most descriptors that the kernel lets come with one message (`SCM_MAX_FD`).
const FDS_ALL: usize = 253;

/// `SO_PEERPIDFD` of Linux 6.5, younger than the C library's headers.
const SO_PEERPIDFD: i32 = 77;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// The process that connected, or that listens; as this process's namespaces know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process id; 0 if it lies in another process-id namespace.
    pub pid: u32,
    /// Effective user; the overflow user (65534) if it is not mapped here.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

/// The message that [`recv`] got.
#[derive(Debug)]
pub struct RecvMsg {
    /// Bytes written to the buffer. 0 means the peer closed, or sent an empty message.
    pub len: usize,
    /// The descriptors that came along, all closed on exec; of memory, processes and pipes alone.
    pub fds: Vec<OwnedFd>,
    /// True if bytes or descriptors were cut off for want of room.
    pub truncated: bool,
    /// True if descriptors of other kinds came along, which were put away.
    pub foreign: bool,
}

/// The messages that [`drain`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// The peer rang, once or more.
    Rang,
    /// Nothing was waiting.
    Quiet,
    /// The peer closed its end.
    Closed,
}

/// Makes a socket file at `path` and listens there, non-blocking and closed on exec. `path` is
/// at most 107 bytes; reach longer ones through `/proc/self/fd`. The file's mode is 0777 less
/// the umask.
///
/// # Errors
/// `EADDRINUSE` if the path exists, and else the errors of `socket`, `bind` and `listen`; the error
/// of a filter for `accept4`, without which nobody would be answered.
pub fn bind_listen(path: &Path, backlog: u32) -> Result<Socket, Failed> {
    let socket = unconnected().map_err(Failed::of("socket"))?;
    may_accept(&socket)?;
    let bound = SocketAddrUnix::new(path).and_then(|address| net::bind(&socket, &address));
    bound.map_err(Failed::of("bind"))?;
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    net::listen(&socket, backlog).map_err(Failed::of("listen"))?;
    Ok(socket)
}

/// Checks that no filter keeps callers from being answered: asked of a socket that does not listen
/// yet, so that none is there to be answered.
///
/// # Errors
/// The error of a filter.
pub(crate) fn may_accept(socket: impl AsFd) -> Result<(), Failed> {
    match net::accept_with(socket, FLAGS) {
        Err(errno) if may_be_denied(errno) => Err(Failed { call: "accept4", errno }),
        _ => Ok(()),
    }
}

/// A socket that is not connected yet, for [`dial`]. Children that this process forks do not get
/// it, nor sockets that it [listens](bind_listen) at or [accepts](accept).
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`, or the error of a filter.
pub fn unconnected() -> io::Result<Socket> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    keep_from_children(&socket);
    Ok(socket.into())
}

/// Connects an unconnected socket to the socket file at `path`, at once or not at all; after
/// `EAGAIN` the same socket can be tried again.
///
/// # Errors
/// `ENOENT` or `ECONNREFUSED` if nobody listens there, `EAGAIN` if the listener's queue is
/// full, `EACCES` if this user may not, `EPROTOTYPE` if it is a socket of another type.
pub fn dial(socket: impl AsFd, path: &Path) -> io::Result<()> {
    let address = SocketAddrUnix::new(path)?;
    loop {
        match net::connect(&socket, &address) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A socket connected to the socket file at `path`: [`unconnected`], then [`dial`].
///
/// # Errors
/// As those.
pub fn connect(path: &Path) -> io::Result<Socket> {
    let socket = unconnected()?;
    dial(&socket, path)?;
    Ok(socket)
}

/// Returns whether a socket of some process is bound to the socket file at `path`, without
/// disturbing that process. A file whose owner is gone, or that is no socket, is not bound.
///
/// # Errors
/// `ENOENT` if there is no such file, `EACCES` if this user may not know.
pub fn is_bound(path: &Path) -> io::Result<bool> {
    // The kernel looks for the bound socket first and compares types second, so a datagram
    // socket learns of a listener without ever entering its queue.
    let probe = net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, FLAGS, None)?;
    match net::connect(&probe, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::PROTOTYPE) => Ok(true),
        Err(Errno::CONNREFUSED) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns whether the process that listens, or listened, at the other end of a connected socket
/// has ended. Its children may have copies of the socket that it listened with: then there is a
/// connection, and nobody to answer. `false` where that cannot be known.
pub fn is_orphaned(socket: impl AsFd) -> bool {
    let is = |error: &io::Error, errnos: &[i32]| {
        error.raw_os_error().is_some_and(|errno| errnos.contains(&errno))
    };
    match peer_pidfd(&socket) {
        Ok(pidfd) => !pidfd_alive(pidfd),
        Err(error) if is(&error, &[libc::ESRCH, libc::EINVAL]) => true,
        // Before Linux 6.5: by its number, which may be another's by now.
        Err(error) if is(&error, &[libc::ENOPROTOOPT]) => {
            let pid = peer_credentials(&socket).map_or(0, |who| who.pid);
            pid != 0 && pidfd_open(pid).is_err_and(|error| is(&error, &[libc::ESRCH]))
        }
        Err(_) => false,
    }
}

/// As [`is_bound`], for a socket of this type whose owner lives: one that only a forked child of a
/// dead owner still has does not count. The owner finds a connection in its queue that was closed.
///
/// # Errors
/// As for [`is_bound`].
pub fn is_served(path: &Path) -> io::Result<bool> {
    Ok(is_bound(path)? && !connect(path).is_ok_and(is_orphaned))
}

/// A connected pair, for tests and for a parent and its child.
///
/// # Errors
/// `EMFILE`, `ENFILE` or `ENOMEM`.
pub fn pair() -> io::Result<(Socket, Socket)> {
    let (one, two) = net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    Ok((one.into(), two.into()))
}

/// Takes the next connection of a listening socket; `None` if none is waiting.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`: the connection stays queued.
pub fn accept(listener: impl AsFd) -> io::Result<Option<Socket>> {
    loop {
        match net::accept_with(&listener, FLAGS) {
            Ok(socket) => {
                keep_from_children(&socket);
                return Ok(Some(socket.into()));
            }
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Sends one message with up to [`FDS_MAX`] descriptors, whole or not at all. Never raises
/// `SIGPIPE`.
///
/// # Errors
/// `EAGAIN` if the peer's queue is full, `EPIPE` or `ECONNRESET` if it closed, `EMSGSIZE`,
/// `EINVAL` for too many descriptors, `ETOOMANYREFS` if too many are in flight.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty()
        && (fds.len() > FDS_MAX || !control.push(SendAncillaryMessage::ScmRights(fds)))
    {
        return Err(Errno::INVAL.into());
    }
    loop {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(sent) if sent == bytes.len() => return Ok(()),
            Ok(_) => return Err(Errno::MSGSIZE.into()),
            Err(Errno::INTR) => {}
            // Without descriptors there is another call.
            Err(errno) if fds.is_empty() && may_be_denied(errno) => {
                net::send(&socket, bytes, flags)?;
                return Ok(());
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Takes one message and at most `fds_max` (up to [`FDS_MAX`]) descriptors; further ones are closed
/// and reported as truncated, as are bytes that `buf` has no room for. Descriptors that are of
/// neither memory nor a process are never returned, but closed by another thread: that may take
/// long.
///
/// # Errors
/// `EAGAIN` if nothing is waiting, `ECONNRESET` if the peer closed with messages unread.
pub fn recv(socket: impl AsFd, buf: &mut [u8], fds_max: usize) -> io::Result<RecvMsg> {
    let fds_max = fds_max.min(FDS_MAX);
    // For all that may come: the kernel closes descriptors that there is no room for, here and now.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_ALL))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = loop {
        match net::recvmsg(&socket, &mut [IoSliceMut::new(buf)], &mut control, flags) {
            Ok(got) => break got,
            Err(Errno::INTR) => {}
            // Without descriptors there is another call.
            Err(errno) if fds_max == 0 && may_be_denied(errno) => {
                let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
                let (len, whole) = net::recv(&socket, &mut *buf, flags)?;
                let (fds, foreign) = (Vec::new(), false);
                return Ok(RecvMsg { len, fds, truncated: whole > len, foreign });
            }
            Err(errno) => return Err(errno.into()),
        }
    };
    let mut fds: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            fds.extend(passed);
        }
    }
    let foreign = foreign::discard(&mut fds) > 0;
    let cut = got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    let truncated = cut || fds.len() > fds_max;
    fds.truncate(fds_max);
    Ok(RecvMsg { len: got.bytes.min(buf.len()), fds, truncated, foreign })
}

/// Wakes the peer: one byte, if its queue has room; a full queue wakes it anyway. About 1 µs.
///
/// # Errors
/// `EPIPE` or `ECONNRESET` if the peer closed.
pub fn ring(socket: impl AsFd) -> io::Result<()> {
    loop {
        match net::send(&socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) if may_be_denied(errno) => {
                return match send(&socket, &[1], &[]) {
                    Err(error) if Errno::from_io_error(&error) == Some(Errno::AGAIN) => Ok(()),
                    sent => sent,
                };
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Takes waiting messages, at most 64, and forgets their bytes and descriptors.
///
/// # Errors
/// The error of `recvmsg(2)`; a reset by the peer is [`Drained::Closed`].
pub fn drain(socket: impl AsFd) -> io::Result<Drained> {
    let mut found = Drained::Quiet;
    for _ in 0..DRAIN_MAX {
        let got = recv(&socket, &mut [0], 0);
        match got.map_err(|error| (Errno::from_io_error(&error), error)) {
            Ok(RecvMsg { len: 0, .. }) | Err((Some(Errno::CONNRESET | Errno::PIPE), _)) => {
                return Ok(Drained::Closed);
            }
            Ok(_) => found = Drained::Rang,
            Err((Some(Errno::AGAIN), _)) => break,
            Err((_, error)) => return Err(error),
        }
    }
    Ok(found)
}

/// The process that was at the other end when it connected or began to listen. See `SO_PEERCRED` in
/// `unix(7)`.
///
/// # Errors
/// `ENOTCONN` or `ENODATA` if there is no peer.
pub fn peer_credentials(socket: impl AsFd) -> io::Result<Credentials> {
    // Not by rustix: its process ids are never 0, and this one may be.
    let mut who = [0u32; 3];
    let len = get(socket.as_fd(), libc::SO_PEERCRED, &mut who)?;
    if len != size_of_val(&who) || who[1] == u32::MAX {
        return Err(io::Error::from_raw_os_error(libc::ENOTCONN));
    }
    Ok(Credentials { pid: who[0], uid: who[1], gid: who[2] })
}

const _: () = assert!(size_of::<libc::ucred>() == size_of::<[u32; 3]>());

/// The supplementary groups of the peer, as of when it connected. See `SO_PEERGROUPS`,
/// Linux 4.13; empty where the kernel does not say.
pub fn peer_groups(socket: impl AsFd) -> Vec<u32> {
    // The kernel allows a process 65536 groups.
    let mut room = 64;
    while room <= 65536 {
        let mut groups = vec![0u32; room];
        match get(socket.as_fd(), libc::SO_PEERGROUPS, &mut groups) {
            Ok(len) => {
                groups.truncate(len / size_of::<u32>());
                return groups;
            }
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) => room *= 32,
            Err(_) => break,
        }
    }
    Vec::new()
}

/// A pidfd of the process that [`peer_credentials`] names, safe against its id being used
/// again; closed on exec. See `SO_PEERPIDFD`, Linux 6.5.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.5, `ESRCH` or `EINVAL` if the process is gone, `ENODATA` if
/// there is no peer, `EMFILE`.
pub fn peer_pidfd(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut fd = [u32::MAX];
    let len = get(socket.as_fd(), SO_PEERPIDFD, &mut fd)?;
    let fd = i32::from_ne_bytes(fd[0].to_ne_bytes());
    if len != size_of::<i32>() || fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::ENODATA));
    }
    // SAFETY: the kernel has just installed this descriptor for this call, so it is open and
    // nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads a socket option made of 32-bit numbers; returns the bytes the kernel wrote.
fn get(socket: BorrowedFd<'_>, option: i32, into: &mut [u32]) -> io::Result<usize> {
    let mut len = size_of_val(into) as libc::socklen_t;
    // SAFETY: `into` is valid for writes of `len` bytes, every bit pattern is a `u32`, and the
    // kernel writes no more than `len` says.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            into.as_mut_ptr().cast(),
            &mut len,
        )
    };
    if done == 0 { Ok(len as usize) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests;
