//! TCP connections that never wait. See `tcp(7)`.
#![allow(unsafe_code)]
// Invariant: the kernel is given lists of memory as long as it is told, and the callers of `send`
// and `recv` vouch for the memory itself.

pub mod congestion;
mod info;
pub mod signs;
pub mod zerocopy;

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    time::Duration,
};

use rustix::{
    fs,
    io::Errno,
    net::{self, AddressFamily, SocketFlags, SocketType, sockopt},
};

use crate::{
    failed::{Failed, may_be_denied},
    process::Segment,
    socket::{inherit::keep_from_children, seqpacket::may_accept},
};

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// The most parts that [`send`] and [`recv`] take at a time. `IOV_MAX` is more.
pub const PARTS_MAX: usize = 64;

/// The outcome of [`recv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The number of bytes.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The peer has closed its end in good order, after all that it sent.
    End,
}

fn family(address: &SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// Listens at `address`; port 0 is any that is free. Possible at once after a listener there has
/// ended (`SO_REUSEADDR`).
///
/// # Errors
/// `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES` for a port below 1024, and any other error of `bind(2)`;
/// the error of a filter for `accept4`, without which nobody would be answered.
pub fn listen(address: SocketAddr, backlog: u32) -> Result<OwnedFd, Failed> {
    listen_by(address, backlog, false)
}

/// The same, for callers of the address's own family alone (`IPV6_V6ONLY`).
///
/// # Errors
/// As for [`listen`].
pub fn listen_alone(address: SocketAddr, backlog: u32) -> Result<OwnedFd, Failed> {
    listen_by(address, backlog, address.is_ipv6())
}

fn listen_by(address: SocketAddr, backlog: u32, six_only: bool) -> Result<OwnedFd, Failed> {
    let socket = unconnected(&address)?;
    may_accept(&socket)?;
    // Without it the port is free only minutes after the end of the last listener there.
    let _ = sockopt::set_socket_reuseaddr(&socket, true);
    if six_only {
        sockopt::set_ipv6_v6only(&socket, true).map_err(Failed::of("setsockopt"))?;
    }
    net::bind(&socket, &address).map_err(Failed::of("bind"))?;
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    net::listen(&socket, backlog).map_err(Failed::of("listen"))?;
    Ok(socket)
}

/// Makes a socket that somebody else listens at ready for [`accept`]: it does not wait from now on,
/// for anyone who has it.
///
/// # Errors
/// `EINVAL`: it is no TCP socket, or does not listen. Else as for [`listen`].
pub fn adopt(socket: impl AsFd) -> Result<(), Failed> {
    let asked = Failed::of("getsockopt");
    let listens = sockopt::socket_acceptconn(&socket).map_err(&asked)?;
    let is_stream = sockopt::socket_type(&socket).map_err(&asked)? == SocketType::STREAM;
    let family = sockopt::socket_domain(&socket).map_err(&asked)?;
    let is_tcp = is_stream && [AddressFamily::INET, AddressFamily::INET6].contains(&family);
    if !listens || !is_tcp {
        return Err(Failed { call: "accept4", errno: Errno::INVAL });
    }
    let flags = fs::fcntl_getfl(&socket).map_err(Failed::of("fcntl"))?;
    fs::fcntl_setfl(&socket, flags | fs::OFlags::NONBLOCK).map_err(Failed::of("fcntl"))?;
    keep_from_children(&socket);
    Ok(())
}

/// A socket, which children that this process forks do not get.
fn unconnected(to: &SocketAddr) -> Result<OwnedFd, Failed> {
    let made = net::socket_with(family(to), SocketType::STREAM, FLAGS, None);
    let socket = made.map_err(Failed::of("socket"))?;
    keep_from_children(&socket);
    Ok(socket)
}

/// The address of a socket.
///
/// # Errors
/// The error of `getsockname(2)`.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(net::getsockname(socket)?)?)
}

/// The address of its peer.
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
            // The caller has gone again.
            Ok((_, None)) | Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Begins to connect. The socket can be written to once that has ended, well or not.
///
/// # Errors
/// `ENETUNREACH`, `EADDRNOTAVAIL`, `EMFILE`, and any other error that is known at once.
pub fn connect(address: SocketAddr) -> Result<OwnedFd, Failed> {
    connect_after(address, |_| {})
}

/// As [`connect`], by a socket that is to be prepared for it.
///
/// # Errors
/// As for [`connect`].
pub fn connect_after(
    address: SocketAddr,
    prepare: impl FnOnce(&OwnedFd),
) -> Result<OwnedFd, Failed> {
    let socket = unconnected(&address)?;
    prepare(&socket);
    match net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(errno) => Err(Failed { call: CONNECT, errno }),
    }
}

/// Returns whether a connection that was begun is there: `false` while that is under way.
///
/// # Errors
/// The reason why there is none: `ECONNREFUSED`, `ETIMEDOUT`, `EHOSTUNREACH`, ...
pub fn is_connected(socket: impl AsFd) -> Result<bool, Failed> {
    // A send of nothing takes a connection, and tells why there is none, by calls that are needed
    // anyway.
    let nothing = [Segment { ptr: std::ptr::null_mut(), len: 0 }];
    // SAFETY: of no bytes none is read.
    match unsafe { raw_send(socket.as_fd().as_raw_fd(), &nothing, 0) } {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(errno @ (Errno::PERM | Errno::NOSYS)) => Err(Failed { call: SENDMSG, errno }),
        Err(errno) => Err(Failed { call: CONNECT, errno }),
    }
}

const CONNECT: &str = "connect";
/// The call that sends where `sendto` is denied.
const SENDMSG: &str = "sendmsg";

/// `TCP_RTO_MAX_MS` of `linux/tcp.h`, Linux 6.15.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// Has short messages go at once, and a peer that is gone noticed where nothing is on its way to
/// it: the peer is probed after `silence` without a word, and given up when it does not answer for
/// three times that. In whole seconds, at least 1. Where something is on its way, the peer is
/// probed about as often where the kernel can do that, and [`signs::signs`] tells whether it
/// answers.
///
/// # Errors
/// The error of `setsockopt(2)` for the first option that is denied. The others are set, and the
/// connection can be used: short messages may wait for others then, and an end that is gone is
/// noticed later or not at all.
pub fn tune(socket: impl AsFd, silence: Duration) -> io::Result<()> {
    let seconds = silence.as_secs().clamp(1, 120);
    let period = Duration::from_secs(seconds);
    let all = [
        sockopt::set_tcp_nodelay(&socket, true),
        sockopt::set_socket_keepalive(&socket, true),
        sockopt::set_tcp_keepidle(&socket, period),
        sockopt::set_tcp_keepintvl(&socket, period),
        sockopt::set_tcp_keepcnt(&socket, 3),
    ];
    let most_ms = 1000 * seconds as libc::c_int;
    let (socket, len) = (socket.as_fd().as_raw_fd(), size_of_val(&most_ms) as libc::socklen_t);
    let most = (&raw const most_ms).cast();
    // SAFETY: the option is an `int`, which is read. Without it that takes longer, up to two
    // minutes.
    unsafe { libc::setsockopt(socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, most, len) };
    Ok(all.into_iter().collect::<Result<(), Errno>>()?)
}

/// If both ends are on this host, has nothing held back for a network that is not there: one way to
/// control congestion (`bbr`) sends at a pace, which it guesses too low wherever the sender waits
/// now and then. Any process may choose `reno`. See `tcp(7)`, `TCP_CONGESTION`. Returns whether
/// both are, by their addresses.
///
/// # Errors
/// The error of `setsockopt(2)`, or of `getpeername(2)`.
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

/// Says that nothing more will be sent. Bytes that were sent still arrive.
///
/// # Errors
/// `ENOTCONN` if the connection is broken.
pub fn end(socket: impl AsFd) -> io::Result<()> {
    Ok(net::shutdown(socket, net::Shutdown::Write)?)
}

/// Times that [`discard`] looks for more.
const LOOKS: usize = 16;

/// Throws away bytes that have come and were not received. To close a connection with something
/// unread resets it, and bytes that were sent and have not arrived are lost. Nothing is copied
/// (`MSG_TRUNC`); bytes that come after this, or without end, stay.
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

/// Breaks a connection off: bytes that were sent and have not arrived are thrown away, and the peer
/// is told that there is no connection. The socket stays.
///
/// # Errors
/// The error of `connect(2)` for an address of no family.
pub fn sever(socket: impl AsFd) -> io::Result<()> {
    Ok(net::connect_unspec(socket)?)
}

/// Sends the bytes in these parts, one behind the other, as far as there is room: returns how many
/// bytes, 0 if there is none. The kernel has copied them when this returns. At most [`PARTS_MAX`]
/// parts. `more` follows at once: a packet that is not full may wait for it (`MSG_MORE`).
///
/// # Errors
/// `EPIPE`, `ECONNRESET`, `ETIMEDOUT`: the connection is broken.
///
/// # Safety
/// Each part can be read.
pub unsafe fn send(socket: impl AsFd, parts: &[Segment], more: bool) -> io::Result<usize> {
    let socket = socket.as_fd().as_raw_fd();
    let more = if more { libc::MSG_MORE } else { 0 };
    // SAFETY: by contract.
    match unsafe { raw_send(socket, parts, more) } {
        Ok(bytes) => Ok(bytes),
        Err(Errno::AGAIN) => Ok(0),
        Err(errno) => Err(errno.into()),
    }
}

/// Sends by one call or the other: `sendto` takes less time than `sendmsg`, and each does where a
/// filter denies the other.
///
/// # Safety
/// Each part can be read.
unsafe fn raw_send(socket: RawFd, parts: &[Segment], more: libc::c_int) -> Result<usize, Errno> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more;
    let one = |part: &Segment, flags| {
        // SAFETY: the part can be read, by contract.
        restarted(|| unsafe { libc::send(socket, part.ptr.cast(), part.len, flags) })
    };
    let message = message(parts);
    // SAFETY: the list is as long as it says, and its parts can be read, by contract.
    let all = || restarted(|| unsafe { libc::sendmsg(socket, &raw const message, flags) });
    match parts {
        [part] => one(part, flags).or_else(|errno| other_way(errno, all)),
        _ => all().or_else(|errno| {
            // The rest goes with the next send.
            let first = parts.iter().find(|part| part.len > 0);
            other_way(errno, || first.map_or(Ok(0), |part| one(part, flags | libc::MSG_MORE)))
        }),
    }
}

/// The result of `other`, if a call was denied.
fn other_way(errno: Errno, other: impl FnOnce() -> Result<usize, Errno>) -> Result<usize, Errno> {
    if may_be_denied(errno) { other() } else { Err(errno) }
}

/// Puts bytes that have come into these parts, one after the other. At most [`PARTS_MAX`], and not
/// all empty.
///
/// # Errors
/// `ECONNRESET`, `ETIMEDOUT`: the connection is broken.
///
/// # Safety
/// Each part can be written.
pub unsafe fn recv(socket: impl AsFd, parts: &[Segment]) -> io::Result<Received> {
    let socket = socket.as_fd().as_raw_fd();
    let one = |part: &Segment| {
        let (to, flags) = (part.ptr.cast(), libc::MSG_DONTWAIT);
        // SAFETY: the part can be written, by contract.
        restarted(|| unsafe { libc::recv(socket, to, part.len, flags) })
    };
    let mut message = message(parts);
    // SAFETY: the list is as long as it says, and its parts can be written, by contract.
    let mut all =
        || restarted(|| unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_DONTWAIT) });
    // Either call works where a filter denies the other.
    let done = match parts {
        [part] => one(part).or_else(|errno| other_way(errno, all)),
        _ => all().or_else(|errno| {
            let first = parts.iter().find(|part| part.len > 0);
            other_way(errno, || first.map_or(Err(Errno::INVAL), one))
        }),
    };
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
