//! The kernel's state of a connection: `struct tcp_info` of `linux/tcp.h`.
#![allow(unsafe_code)]
// Invariant: the kernel is given room for as much as it is told.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// The first fields of it. Fields that an older kernel does not have are 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Info {
    state: u8,
    ca_state: u8,
    pub retransmits: u8,
    pub probes: u8,
    more: [u8; 4],
    /// Microseconds of timers, and sizes of segments.
    times: [u32; 4],
    /// Packets that are not acknowledged.
    pub unacked: u32,
    counts: [u32; 4],
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    pub last_ack_recv: u32,
    windows: [u32; 10],
    pub total_retrans: u32,
    rates: [u64; 2],
    bytes: [u64; 2],
    segments: [u32; 2],
    /// Bytes that were never sent yet; Linux 4.6.
    pub unsent_bytes: u32,
    /// Microseconds; Linux 4.6.
    pub min_rtt: u32,
    data_segs_in: u32,
    pub data_segs_out: u32,
    spans: [u64; 4],
    delivered: [u32; 2],
    sent: [u64; 2],
    /// Linux 4.19.
    pub dsack_dups: u32,
    reord_seen: u32,
}

const _: () = assert!(std::mem::offset_of!(Info, total_retrans) == 100);
const _: () = assert!(std::mem::offset_of!(Info, unacked) == 24);
const _: () = assert!(std::mem::offset_of!(Info, unsent_bytes) == 144);
const _: () = assert!(std::mem::offset_of!(Info, min_rtt) == 148);
const _: () = assert!(std::mem::offset_of!(Info, data_segs_out) == 156);
const _: () = assert!(std::mem::offset_of!(Info, dsack_dups) == 216);
const _: () = assert!(size_of::<Info>() == 224);

/// Asks for it: one system call. Returns also how many bytes of it this kernel has.
///
/// # Errors
/// The error of `getsockopt(2)` for `TCP_INFO`.
pub(super) fn info(socket: impl AsFd) -> io::Result<(Info, usize)> {
    let socket = socket.as_fd().as_raw_fd();
    let mut info = Info::default();
    let mut len = size_of::<Info>() as libc::socklen_t;
    let to = &raw mut info;
    // SAFETY: the kernel writes as much as `len` says at most; any bytes are such numbers.
    let got = unsafe {
        libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, to.cast(), &raw mut len)
    };
    match got {
        0 => Ok((info, len as usize)),
        _ => Err(io::Error::last_os_error()),
    }
}
