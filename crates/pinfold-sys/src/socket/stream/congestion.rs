#![allow(unsafe_code)]
//! The control that keeps a connection from sending more than the network takes: `TCP_CONGESTION`
//! of `tcp(7)`, and the kernel's account of how that goes.
//!
//! **Invariant.** The kernel is given room of ours by its true length.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use rustix::{io::Errno, net::sockopt};

use super::info::{Info, info};

/// The oldest way there is, which does not pace its sends. Every kernel has it, and every process
/// may choose it.
pub const RENO: &str = "reno";

/// The way in force: `reno`, `cubic`, `bbr`, ...
///
/// # Errors
/// The error of `getsockopt(2)`; `ENOPROTOOPT` if what it gave is no whole name, as under an
/// emulator that takes all settings for numbers.
pub fn way(socket: impl AsFd) -> io::Result<String> {
    /// Bytes of a name and its end: `TCP_CA_NAME_MAX`.
    const NAME_MAX: usize = 16;
    let mut name = [0u8; NAME_MAX];
    let mut len = NAME_MAX as libc::socklen_t;
    let (fd, into) = (socket.as_fd().as_raw_fd(), name.as_mut_ptr().cast());
    // SAFETY: the kernel writes no more than `len` bytes to `name`.
    let done = unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, into, &raw mut len)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let name = name[..NAME_MAX.min(len as usize)].split(|&byte| byte == 0).next();
    match name {
        Some(name) if !name.is_empty() && name.len() < len as usize => {
            Ok(String::from_utf8_lossy(name).into_owned())
        }
        _ => Err(Errno::NOPROTOOPT.into()),
    }
}

/// Chooses another. Bytes on their way are not affected.
///
/// # Errors
/// `EPERM` if only some processes may choose it, `ENOENT` if this kernel has not got it.
pub fn choose(socket: impl AsFd, way: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(socket, way)?)
}

/// The progress of sending since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The shortest way there and back in the last minutes, in whole microseconds.
    pub shortest_trip: Duration,
    /// Packets with something in them that were sent, modulo 2^32.
    pub packets: u32,
    /// Those of them sent once more, likewise.
    pub again: u32,
    /// Those of them sent in vain: the other end had got them already, and said so. Likewise.
    pub in_vain: u32,
}

/// Reads the progress. One system call. `None`: the kernel does not say (before Linux 4.19).
///
/// # Errors
/// The error of `getsockopt(2)` for `TCP_INFO`.
pub fn progress(socket: impl AsFd) -> io::Result<Option<Progress>> {
    let (info, len) = info(socket)?;
    if len < size_of::<Info>() {
        return Ok(None);
    }
    Ok(Some(Progress {
        shortest_trip: Duration::from_micros(info.min_rtt.into()),
        packets: info.data_segs_out,
        again: info.total_retrans,
        in_vain: info.dsack_dups,
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::socket::stream::{
        self,
        tests::{pair, part_of, take},
    };

    #[test]
    fn every_process_may_choose_reno_and_the_old_way_again() {
        let (one, two) = pair();
        let Ok(own) = way(&one) else {
            return crate::skip::skip("there is no TCP_CONGESTION");
        };
        choose(&one, RENO).unwrap();
        match way(&one) {
            Ok(now) => assert_eq!(now, RENO),
            Err(why) => return crate::skip::skip(&format!("names are cut: {why}")),
        }
        assert_eq!(way(&two).unwrap(), own);
        choose(&one, &own).unwrap();
        assert_eq!(way(&one).unwrap(), own);
        let unknown = choose(&one, "pinfold").unwrap_err();
        assert!(unknown.raw_os_error().is_some(), "{unknown}");
    }

    #[test]
    fn what_is_sent_is_counted() {
        let (one, two) = pair();
        let Some(before) = progress(&one).unwrap() else {
            crate::skip::skip("Linux before 4.19 does not count what is sent again");
            return;
        };
        let trip = before.shortest_trip;
        assert!(trip > Duration::ZERO && trip < Duration::from_secs(20), "{trip:?}");
        let bytes = vec![7; 100_000];
        // SAFETY: it is this vector.
        let sent = unsafe { stream::send(&one, &[part_of(&bytes)], false) }.unwrap();
        assert!(sent > 0);
        let end = Instant::now() + Duration::from_secs(20);
        let mut into = Vec::new();
        while into.len() < sent {
            assert!(Instant::now() < end);
            take(&two, &mut into);
        }
        let after = progress(&one).unwrap().unwrap();
        assert!(after.packets > before.packets && after.packets <= sent as u32, "{after:?}");
        assert!(after.again <= after.packets && after.in_vain <= after.again, "{after:?}");
    }
}
