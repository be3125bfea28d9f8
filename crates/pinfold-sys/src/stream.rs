//! TCP connections that never wait. See `tcp(7)`.
#![allow(unsafe_code)]
// Invariant: the kernel is given lists of memory as long as it is told, and the callers of `send` and
// `recv` vouch for the memory itself.

pub mod congestion;
mod info;
pub mod ring;
pub mod signs;
pub mod zerocopy;

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{self, AddressFamily, SocketFlags, SocketType, sockopt},
};

use crate::{inherit::keep_from_children, process::Segment};

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// The most parts that [`send`] and [`recv`] take at a time. `IOV_MAX` is more.
pub const PARTS_MAX: usize = 64;

/// What [`recv`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The peer has closed its end in good order, after all that it sent.
    End,
}

fn family(address: &SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// A socket, which children that this process forks do not get.
fn new(address: &SocketAddr) -> io::Result<OwnedFd> {
    let socket = net::socket_with(family(address), SocketType::STREAM, FLAGS, None)?;
    keep_from_children(&socket);
    Ok(socket)
}

/// Listens at `address`; port 0 is any that is free. At once again after a listener there has ended
/// (`SO_REUSEADDR`).
///
/// # Errors
/// `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES` for a port below 1024, and whatever else `bind(2)` says.
pub fn listen(address: SocketAddr, backlog: u32) -> io::Result<OwnedFd> {
    listen_by(address, backlog, false)
}

/// The same, for callers of the address's own family alone (`IPV6_V6ONLY`).
///
/// # Errors
/// As for [`listen`].
pub fn listen_alone(address: SocketAddr, backlog: u32) -> io::Result<OwnedFd> {
    listen_by(address, backlog, address.is_ipv6())
}

fn listen_by(address: SocketAddr, backlog: u32, six_only: bool) -> io::Result<OwnedFd> {
    let socket = new(&address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if six_only {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket)
}

/// Where a socket is.
///
/// # Errors
/// What `getsockname(2)` says.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(net::getsockname(socket)?)?)
}

/// Where its peer is.
///
/// # Errors
/// `ENOTCONN`, before it is connected or once the connection is broken.
pub fn peer_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(net::getpeername(socket)?.ok_or(Errno::NOTCONN)?)?)
}

/// Takes the next caller off a listener's queue, if there is one.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`, `ENOBUFS`: the caller stays queued.
pub fn accept(listener: impl AsFd) -> io::Result<Option<(OwnedFd, SocketAddr)>> {
    loop {
        match net::acceptfrom_with(&listener, FLAGS) {
            Ok((socket, Some(address))) => {
                keep_from_children(&socket);
                return Ok(Some((socket, address.try_into()?)));
            }
            // It has gone again.
            Ok((_, None)) | Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Begins to connect. The socket can be written to once that has ended, well or not.
///
/// # Errors
/// `ENETUNREACH`, `EADDRNOTAVAIL`, `EMFILE`, and whatever else is known at once.
pub fn connect(address: SocketAddr) -> io::Result<OwnedFd> {
    connect_after(address, |_| {})
}

/// As [`connect`], by a socket that is to be prepared for it.
///
/// # Errors
/// As for [`connect`].
pub fn connect_after(address: SocketAddr, prepare: impl FnOnce(&OwnedFd)) -> io::Result<OwnedFd> {
    let socket = new(&address)?;
    prepare(&socket);
    match net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether a connection that was begun is there: `false` while that is under way.
///
/// # Errors
/// Why there is none: `ECONNREFUSED`, `ETIMEDOUT`, `EHOSTUNREACH`, ...
pub fn is_connected(socket: impl AsFd) -> io::Result<bool> {
    sockopt::socket_error(&socket)??;
    match net::getpeername(&socket) {
        Ok(_) => Ok(true),
        Err(Errno::NOTCONN) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// `TCP_RTO_MAX_MS` of `linux/tcp.h`, Linux 6.15.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// Has short messages go at once, and a peer that is not there any more noticed where nothing is on its way to it:
/// asked after `silence` without a word, and given up when it does not answer for three times that. In whole
/// seconds, at least 1. Where something is on its way, it is asked about as often where the kernel can do that, and
/// [`signs::signs`] tells whether it answers.
///
/// # Errors
/// What `setsockopt(2)` says.
pub fn tune(socket: impl AsFd, silence: Duration) -> io::Result<()> {
    let seconds = silence.as_secs().clamp(1, 120);
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, Duration::from_secs(seconds))?;
    sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(seconds))?;
    sockopt::set_tcp_keepcnt(&socket, 3)?;
    let most_ms = 1000 * seconds as libc::c_int;
    let (socket, len) = (socket.as_fd().as_raw_fd(), size_of_val(&most_ms) as libc::socklen_t);
    let most = (&raw const most_ms).cast();
    // SAFETY: the option is an `int`, which is read. Without it that takes longer, up to two minutes.
    unsafe { libc::setsockopt(socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, most, len) };
    Ok(())
}

/// If both ends are on this host, has nothing held back for a network that is not there: one way to control
/// congestion (`bbr`) sends at a pace, which it guesses too low wherever who sends waits now and then. Any process
/// may choose `reno`. See `tcp(7)`, `TCP_CONGESTION`. Whether they are, by their addresses.
///
/// # Errors
/// What `setsockopt(2)` says, or `getpeername(2)`.
pub fn hurry_within_host(socket: impl AsFd) -> io::Result<bool> {
    let ip = |address| SocketAddr::try_from(address).map(|address| address.ip()).ok();
    let here = ip(net::getsockname(&socket)?);
    let there = net::getpeername(&socket)?.and_then(ip);
    let is_within = there.is_some_and(|there| there.is_loopback() || Some(there) == here);
    if is_within {
        congestion::choose(&socket, congestion::RENO)?;
    }
    Ok(is_within)
}

/// Says that nothing more will be sent. What was sent still arrives.
///
/// # Errors
/// `ENOTCONN` if the connection is broken.
pub fn end(socket: impl AsFd) -> io::Result<()> {
    Ok(net::shutdown(socket, net::Shutdown::Write)?)
}

/// How often [`discard`] looks for more.
const LOOKS: usize = 16;

/// Throws away what has come and was not received. Who closes a connection with something unread resets it,
/// and what was sent and has not arrived is lost. Nothing is copied (`MSG_TRUNC`); what comes after this, or
/// without end, stays.
pub fn discard(socket: impl AsFd) {
    let socket = socket.as_fd().as_raw_fd();
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    for _ in 0..LOOKS {
        // SAFETY: with this flag a TCP socket writes nothing.
        let gone = unsafe { libc::recv(socket, std::ptr::null_mut(), i32::MAX as usize, flags) };
        if gone <= 0 {
            return;
        }
    }
}

/// Breaks a connection off: what was sent and has not arrived is thrown away, and the peer is told that there
/// is no connection. The socket stays.
///
/// # Errors
/// What `connect(2)` says of an address of no family.
pub fn sever(socket: impl AsFd) -> io::Result<()> {
    Ok(net::connect_unspec(socket)?)
}

/// Sends what is in these parts, one behind the other, as far as there is room: how many bytes, 0 if
/// there is none. The kernel has copied them when this returns. At most [`PARTS_MAX`] parts. `more` follows at
/// once: a packet that is not full may wait for it (`MSG_MORE`).
///
/// # Errors
/// `EPIPE`, `ECONNRESET`, `ETIMEDOUT`: the connection is broken.
///
/// # Safety
/// Each part can be read.
pub unsafe fn send(socket: impl AsFd, parts: &[Segment], more: bool) -> io::Result<usize> {
    let socket = socket.as_fd().as_raw_fd();
    let more = if more { libc::MSG_MORE } else { 0 };
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more;
    let done = restarted(|| match parts {
        // SAFETY: the part can be read, by contract.
        [part] => unsafe { libc::send(socket, part.ptr.cast(), part.len, flags) },
        _ => {
            let message = message(parts);
            // SAFETY: the list is as long as it says, and its parts can be read, by contract.
            unsafe { libc::sendmsg(socket, &raw const message, flags) }
        }
    });
    match done {
        Ok(bytes) => Ok(bytes),
        Err(Errno::AGAIN) => Ok(0),
        Err(errno) => Err(errno.into()),
    }
}

/// Puts what has come into these parts, one after the other. At most [`PARTS_MAX`], and not all empty.
///
/// # Errors
/// `ECONNRESET`, `ETIMEDOUT`: the connection is broken.
///
/// # Safety
/// Each part can be written.
pub unsafe fn recv(socket: impl AsFd, parts: &[Segment]) -> io::Result<Received> {
    let socket = socket.as_fd().as_raw_fd();
    let done = restarted(|| match parts {
        // SAFETY: the part can be written, by contract.
        [part] => unsafe { libc::recv(socket, part.ptr.cast(), part.len, libc::MSG_DONTWAIT) },
        _ => {
            let mut message = message(parts);
            // SAFETY: the list is as long as it says, and its parts can be written, by contract.
            unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_DONTWAIT) }
        }
    });
    match done {
        Ok(0) => Ok(Received::End),
        Ok(bytes) => Ok(Received::Bytes(bytes)),
        Err(Errno::AGAIN) => Ok(Received::Nothing),
        Err(errno) => Err(errno.into()),
    }
}

pub(crate) fn message(parts: &[Segment]) -> libc::msghdr {
    // SAFETY: all zeros is a `msghdr` without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len().min(PARTS_MAX);
    message
}

fn restarted(mut call: impl FnMut() -> isize) -> Result<usize, Errno> {
    loop {
        match usize::try_from(call()) {
            Ok(bytes) => return Ok(bytes),
            Err(_) => match Errno::from_io_error(&io::Error::last_os_error()) {
                Some(Errno::INTR) => {}
                errno => return Err(errno.unwrap_or(Errno::IO)),
            },
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
