//! One send, many datagrams.
#![allow(unsafe_code)]
// Invariant: the one system call reads an `int` of its caller's.

use std::{io, net::UdpSocket, os::fd::AsRawFd};

/// Has the network cut each send on `socket` into datagrams of `bytes` bytes, the last one shorter;
/// with 0, into none. Generic segmentation offload: one way through the network's layers for all of
/// them, and where a device can do it, or none is in the way, they are not cut at all.
/// `UDP_SEGMENT` in `udp(7)`; Linux 4.18. At most 64 datagrams a send, 128 since Linux 6.9; a send
/// that is more says `EINVAL`.
///
/// # Errors
/// `ENOPROTOOPT` where the kernel cannot.
pub fn set_segment_bytes(socket: &UdpSocket, bytes: u16) -> io::Result<()> {
    let value = libc::c_int::from(bytes);
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` is as long as is said, and read before the call returns.
    let done = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, len)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
