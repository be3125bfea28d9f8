//! Names of hosts, and the addresses that they stand for. See `getaddrinfo(3)`.
#![allow(unsafe_code)]
// Invariant: a list that the C library hands out is read before it is given back, once, and nothing
// of it outlives the lookup here.

use std::{
    ffi::CString,
    fmt, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    ptr,
};

use rustix::io::Errno;

/// The reason why a name leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nowhere {
    /// No name server answers now (`EAI_AGAIN`).
    NoAnswer,
    /// There is no such name, or none with addresses (`EAI_NONAME`, `EAI_NODATA`).
    Unknown,
    /// The name servers fail, or another failure of this number (`EAI_*`).
    Failed(i32),
    /// A system call failed.
    Os(Errno),
}

impl fmt::Display for Nowhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nowhere::NoAnswer => f.write_str("no name server answers"),
            Nowhere::Unknown => f.write_str("there is no host of that name"),
            Nowhere::Failed(code) => write!(f, "the name servers fail (getaddrinfo: {code})"),
            Nowhere::Os(errno) => errno.fmt(f),
        }
    }
}

impl std::error::Error for Nowhere {}

impl From<Nowhere> for io::Error {
    fn from(nowhere: Nowhere) -> io::Error {
        let kind = match nowhere {
            Nowhere::NoAnswer => io::ErrorKind::TimedOut,
            Nowhere::Unknown => io::ErrorKind::NotFound,
            Nowhere::Failed(_) => io::ErrorKind::Other,
            Nowhere::Os(errno) => return errno.into(),
        };
        io::Error::new(kind, nowhere)
    }
}

/// The addresses of `name`, in the order of RFC 6724, with this port. Asks the system's resolver,
/// and waits for that.
///
/// # Errors
/// [`Nowhere`].
pub fn addresses(name: &str, port: u16) -> Result<Vec<SocketAddr>, Nowhere> {
    let name = CString::new(name).map_err(|_| Nowhere::Unknown)?;
    // SAFETY: all zeros are hints that ask for nothing.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut list = ptr::null_mut();
    // SAFETY: the name is a C string, there is no service, and hints and list are alive.
    let code =
        unsafe { libc::getaddrinfo(name.as_ptr(), ptr::null(), &raw const hints, &raw mut list) };
    match code {
        0 => {}
        libc::EAI_AGAIN => return Err(Nowhere::NoAnswer),
        libc::EAI_NONAME | libc::EAI_NODATA => return Err(Nowhere::Unknown),
        libc::EAI_MEMORY => return Err(Nowhere::Os(Errno::NOMEM)),
        libc::EAI_SYSTEM => {
            let errno = Errno::from_io_error(&io::Error::last_os_error());
            return Err(Nowhere::Os(errno.unwrap_or(Errno::IO)));
        }
        code => return Err(Nowhere::Failed(code)),
    }
    let mut found = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: it is an entry of the list, which is alive; so is the address that it points to,
        // which is as long as its family says.
        let entry = unsafe { &*at };
        // SAFETY: as above.
        found.extend(unsafe { address(entry, port) });
        at = entry.ai_next;
    }
    // SAFETY: the list came from `getaddrinfo`, and is given back once.
    unsafe { libc::freeaddrinfo(list) };
    if found.is_empty() { Err(Nowhere::Unknown) } else { Ok(found) }
}

/// # Safety
/// The entry's address is as long as it says.
unsafe fn address(entry: &libc::addrinfo, port: u16) -> Option<SocketAddr> {
    let len = entry.ai_addrlen as usize;
    match entry.ai_family {
        libc::AF_INET if len >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: by contract; it need not be aligned.
            let inet = unsafe { entry.ai_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(inet.sin_addr.s_addr));
            Some((ip, port).into())
        }
        libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: by contract; it need not be aligned.
            let inet = unsafe { entry.ai_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(inet.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, port, 0, inet.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_somewhere_or_nowhere() {
        let here = addresses("localhost", 7).unwrap();
        assert!(here.iter().all(|at| at.ip().is_loopback() && at.port() == 7), "{here:?}");
        assert_eq!(addresses("127.0.0.1", 9).unwrap(), [([127, 0, 0, 1], 9).into()]);
        let six = "[fd00::1]:9".parse::<SocketAddr>().unwrap();
        assert_eq!(addresses("fd00::1", 9).unwrap(), [six]);
        // A host without a name server is told that none answers.
        let nowhere = addresses("no-such-host.invalid", 7).unwrap_err();
        assert!(!matches!(nowhere, Nowhere::Os(_)), "{nowhere}");
        assert_eq!(addresses("a\0b", 7), Err(Nowhere::Unknown));
        let error = io::Error::from(Nowhere::Unknown);
        assert_eq!(error.to_string(), "there is no host of that name");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
