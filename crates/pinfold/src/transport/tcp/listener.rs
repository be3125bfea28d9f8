//! The sockets at which an endpoint can be called from other hosts.

#[cfg(test)]
use std::net::Ipv6Addr;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::Arc,
};

use pinfold_sys::{
    failed::Failed,
    io::poll::{Epoll, Interest},
    socket::{host_names, stream},
};
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

/// Ports that are tried for one that is free at all addresses.
const PORTS_TRIED: usize = 64;

/// Sockets that listen: one for each address that a name stands for.
#[derive(Debug)]
pub(crate) struct Listener {
    sockets: Vec<OwnedFd>,
    name: String,
    way: HostsWay,
    /// True if the socket is somebody else's as well.
    adopted: bool,
}

/// The proof that is asked for at `ip`, given the key, if there is one.
///
/// # Errors
/// [`Error::KeyNeeded`] if hosts other than this one can call there.
pub(crate) fn auth(ip: IpAddr, key: Option<&Arc<Key>>, address: &str) -> Result<Auth> {
    match (key, Loopback::of(ip)) {
        (Some(key), _) => Ok(Auth::Key(Arc::clone(key))),
        (None, Some(loopback)) => Ok(Auth::None(loopback)),
        (None, None) => Err(Error::KeyNeeded { address: address.to_owned() }),
    }
}

/// The socket addresses of an address. Asks the system's resolver for a name, and waits for that.
///
/// # Errors
/// [`Error::Os`].
pub(crate) fn resolve(address: &Address) -> Result<Vec<SocketAddr>> {
    let port = address.port();
    match address.host() {
        Host::Ip(ip) => Ok(vec![(*ip, port).into()]),
        Host::Name(name) => host_names::addresses(name, port)
            .map_err(|nowhere| Error::os("getaddrinfo", address.to_string(), nowhere)),
    }
}

impl Listener {
    /// Listens at all addresses that an address stands for and this host has; at one free port for
    /// all if it says 0.
    ///
    /// # Errors
    /// [`Error::KeyNeeded`], [`Error::NameInUse`], [`Error::Os`].
    pub(crate) fn bind(address: &Address, key: Option<&Arc<Key>>) -> Result<Listener> {
        let mut to = resolve(address)?;
        to.sort_unstable();
        to.dedup();
        Listener::bind_all(address, &to, key)
    }

    /// The same, of addresses that it is known to stand for.
    fn bind_all(address: &Address, to: &[SocketAddr], key: Option<&Arc<Key>>) -> Result<Listener> {
        let name = address.to_string();
        for place in to {
            auth(place.ip(), key, &name)?;
        }
        for tries_left in (0..PORTS_TRIED).rev() {
            match sockets(to) {
                Ok(sockets) => {
                    let at = stream::local_address(&sockets[0]);
                    let at = at.map_err(|error| Error::os("getsockname", name.clone(), error))?;
                    let name = match address.host() {
                        Host::Name(host) if sockets.len() > 1 => format!("{host}:{}", at.port()),
                        _ => at.to_string(),
                    };
                    // Accepted sockets do as the listener.
                    let way = HostsWay::put_off(&sockets[0]);
                    sockets[1..].iter().for_each(|socket| drop(HostsWay::put_off(socket)));
                    return Ok(Listener { sockets, name, way, adopted: false });
                }
                Err(Failed { errno: Errno::ADDRINUSE, .. })
                    if address.port() == 0 && tries_left > 0 => {}
                Err(Failed { errno: Errno::ADDRINUSE, .. }) => {
                    return Err(Error::NameInUse { name });
                }
                Err(failed) => return Err(Error::failed(name)(failed)),
            }
        }
        Err(Error::NameInUse { name })
    }

    /// Listens at a socket that listens already, and goes on doing so when this ends. It has to be
    /// at `address`, by its port, unless that is 0, and its host.
    ///
    /// # Errors
    /// [`Error::NotAllowed`] if it is elsewhere; [`Error::KeyNeeded`], [`Error::Os`].
    pub(crate) fn adopt(
        address: &Address,
        socket: &OwnedFd,
        key: Option<&Arc<Key>>,
    ) -> Result<Listener> {
        let name = address.to_string();
        let os = |call| Error::failed(format!("the socket that was passed for {name}"))(call);
        stream::adopt(socket).map_err(os)?;
        let at = stream::local_address(socket);
        let at = at.map_err(|error| Error::os("getsockname", name.clone(), error))?;
        let is_meant =
            |to: &SocketAddr| to.ip() == at.ip() && (to.port() == at.port() || to.port() == 0);
        if !resolve(address)?.iter().any(is_meant) {
            let why = format!(
                "the socket that was passed listens at tcp:{at}; name that address, or have it \
                 listen at this one"
            );
            return Err(Error::NotAllowed { name, why });
        }
        auth(at.ip(), key, &name)?;
        let socket = socket.try_clone().map_err(|error| Error::os("fcntl", name, error))?;
        let sockets = vec![socket];
        Ok(Listener { sockets, name: at.to_string(), way: HostsWay::default(), adopted: true })
    }

    /// The address at which it listens, `HOST:PORT`.
    pub(crate) fn at(&self) -> &str {
        &self.name
    }

    /// Has the epoll tell of callers. Some of the sockets may be watched already.
    ///
    /// # Errors
    /// [`Error::Os`].
    pub(crate) fn watch(&self, epoll: &Epoll, token: u64) -> Result<()> {
        for socket in &self.sockets {
            let watched = epoll.add(socket, token, Interest::Read);
            watched.map_err(|error| Error::os("epoll_ctl", "the endpoint", error))?;
        }
        Ok(())
    }

    /// Ends that.
    pub(crate) fn unwatch(&self, epoll: &Epoll) {
        self.sockets.iter().for_each(|socket| drop(epoll.remove(socket)));
    }

    /// The next caller, if there is one, and the way that the connection has yet to take.
    pub(crate) fn accept(&self) -> io::Result<Option<((OwnedFd, HostsWay), SocketAddr)>> {
        for socket in &self.sockets {
            if let Some((socket, from)) = stream::accept(socket)? {
                // A socket of somebody else's stays as it is; what comes from it is this one's.
                let way = if self.adopted { HostsWay::put_off(&socket) } else { self.way.clone() };
                return Ok(Some(((socket, way), from)));
            }
        }
        Ok(None)
    }
}

/// A socket for each of these addresses that this host has, one at least, all with one port.
fn sockets(to: &[SocketAddr]) -> Result<Vec<OwnedFd>, Failed> {
    let mut sockets = Vec::with_capacity(to.len());
    let mut port = None;
    let mut lacking = Failed { call: "bind", errno: Errno::ADDRNOTAVAIL };
    for place in to {
        let place = SocketAddr::new(place.ip(), port.unwrap_or(place.port()));
        // Of several, each is for its own family.
        let listening = if to.len() > 1 { stream::listen_alone } else { stream::listen };
        match listening(place, BACKLOG) {
            Ok(socket) => {
                let at = stream::local_address(&socket).map_err(Failed::of("getsockname"));
                port = Some(at?.port());
                sockets.push(socket);
            }
            // A host without IPv6 may have names for it.
            Err(failed @ Failed { errno: Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT, .. }) => {
                lacking = failed;
            }
            Err(failed) => return Err(failed),
        }
    }
    if sockets.is_empty() { Err(lacking) } else { Ok(sockets) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn places(port: u16) -> [SocketAddr; 3] {
        [
            ([127, 0, 0, 1], port).into(),
            ([127, 0, 0, 2], port).into(),
            (Ipv6Addr::LOCALHOST, port).into(),
        ]
    }

    fn bound(port: u16, to: &[SocketAddr]) -> Result<Listener> {
        Listener::bind_all(&format!("tcp:here.test:{port}").parse().unwrap(), to, None)
    }

    #[test]
    fn a_name_is_listened_to_at_all_its_addresses_and_one_port() {
        let listener = bound(0, &places(0)).unwrap();
        let port = listener.at().strip_prefix("here.test:").unwrap().parse().unwrap();
        // There may be no IPv6 here.
        let ours = listener.sockets.len();
        assert!(ours >= 2, "{ours}");
        for place in &places(port)[..ours] {
            let caller = TcpStream::connect(place).unwrap();
            let (_, from) = listener.accept().unwrap().unwrap();
            assert_eq!(from, caller.local_addr().unwrap());
        }
        assert!(listener.accept().unwrap().is_none());
        assert!(matches!(bound(port, &places(port)[1..2]), Err(Error::NameInUse { .. })));
    }

    #[test]
    fn what_this_host_has_not_is_left_out() {
        // RFC 5737: no host has it. A key would be needed there, and is asked for first.
        let (here, nowhere) = (places(0)[0], SocketAddr::from(([192, 0, 2, 1], 0)));
        assert!(matches!(bound(0, &[here, nowhere]), Err(Error::KeyNeeded { .. })));
        let sockets = sockets(&[here, nowhere]).unwrap();
        assert_eq!(sockets.len(), 1);
        assert_eq!(super::sockets(&[nowhere]).unwrap_err().errno, Errno::ADDRNOTAVAIL);
    }

    #[test]
    fn one_address_that_is_taken_is_an_error() {
        let other = stream::listen(places(0)[1], 1).unwrap();
        let port = stream::local_address(&other).unwrap().port();
        assert!(matches!(bound(port, &places(port)), Err(Error::NameInUse { .. })));
        drop(other);
        bound(port, &places(port)).unwrap();
    }
}
