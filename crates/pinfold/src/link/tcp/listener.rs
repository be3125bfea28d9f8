//! Where an endpoint can be called from other hosts.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use pinfold_sys::stream;
use rustix::io::Errno;

use super::{
    address::{Address, Host},
    congestion::HostsWay,
    greeting::{Auth, proof::Loopback},
    key::Key,
};
use crate::{Error, Result};

/// Callers that may wait to be answered.
const BACKLOG: u32 = 1024;

/// A socket that listens.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    at: SocketAddr,
    way: HostsWay,
}

/// What stands for proof at `ip`, given the key, if there is one.
///
/// # Errors
/// [`Error::KeyNeeded`] where others than this host can be.
pub(crate) fn auth(ip: IpAddr, key: Option<&Arc<Key>>, address: &str) -> Result<Auth> {
    match (key, Loopback::of(ip)) {
        (Some(key), _) => Ok(Auth::Key(Arc::clone(key))),
        (None, Some(loopback)) => Ok(Auth::None(loopback)),
        (None, None) => Err(Error::KeyNeeded { address: address.to_owned() }),
    }
}

/// Where an address leads. Asks the system's resolver for a name, and waits for that.
///
/// # Errors
/// [`Error::Os`].
pub(crate) fn resolve(address: &Address) -> Result<Vec<SocketAddr>> {
    let port = address.port();
    let found = match address.host() {
        Host::Ip(ip) => return Ok(vec![(*ip, port).into()]),
        Host::Name(name) => (name.as_str(), port).to_socket_addrs(),
    };
    let found: Vec<SocketAddr> =
        found.map_err(|error| Error::os("getaddrinfo", address.to_string(), error))?.collect();
    if found.is_empty() {
        let none = io::Error::from(io::ErrorKind::NotFound);
        return Err(Error::os("getaddrinfo", address.to_string(), none));
    }
    Ok(found)
}

impl Listener {
    /// Listens at an address; at a port that is free if it says 0.
    ///
    /// # Errors
    /// [`Error::KeyNeeded`], [`Error::NameInUse`], [`Error::Os`].
    pub(crate) fn bind(address: &Address, key: Option<&Arc<Key>>) -> Result<Listener> {
        let name = address.to_string();
        let to = resolve(address)?[0];
        auth(to.ip(), key, &name)?;
        let failed = |error| match Errno::from_io_error(&error) {
            Some(Errno::ADDRINUSE) => Error::NameInUse { name: name.clone() },
            _ => Error::os("bind", name.clone(), error),
        };
        let socket = stream::listen(to, BACKLOG).map_err(failed)?;
        let at = stream::local_address(&socket).map_err(failed)?;
        // Those who call do as the listener.
        let way = HostsWay::put_off(&socket);
        Ok(Listener { socket, at, way })
    }

    /// Where it listens.
    pub(crate) fn at(&self) -> SocketAddr {
        self.at
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next caller, if there is one, and the way that the connection has yet to take.
    pub(crate) fn accept(&self) -> io::Result<Option<((OwnedFd, HostsWay), SocketAddr)>> {
        let caller = stream::accept(&self.socket)?;
        Ok(caller.map(|(socket, from)| ((socket, self.way.clone()), from)))
    }
}
