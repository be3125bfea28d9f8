//! The transport of a peer: the link beside its lanes.

use pinfold_sys::{io::poll::Epoll, socket::seqpacket::Socket};

use crate::transport::tcp::bridge::Bridge;

pub(crate) enum PeerTransport {
    /// A socket of this host, for doorbells and memory: the peer serves the other ends of the
    /// lanes.
    Shm(Socket),
    /// A connection with another host, and the other ends of the lanes.
    Tcp(Box<Bridge>),
}

impl PeerTransport {
    /// The socket of a peer on this host.
    pub(crate) fn shm(&self) -> Option<&Socket> {
        match self {
            PeerTransport::Shm(socket) => Some(socket),
            PeerTransport::Tcp(_) => None,
        }
    }

    /// The connection with a peer on another host.
    #[inline(always)]
    pub(crate) fn tcp(&mut self) -> Option<&mut Bridge> {
        match self {
            PeerTransport::Shm(_) => None,
            PeerTransport::Tcp(bridge) => Some(bridge),
        }
    }

    /// The same, to look at.
    pub(crate) fn as_tcp(&self) -> Option<&Bridge> {
        match self {
            PeerTransport::Shm(_) => None,
            PeerTransport::Tcp(bridge) => Some(bridge),
        }
    }

    /// Removes the peer's socket from the epoll.
    pub(crate) fn unwatch(&self, epoll: &Epoll) {
        let _ = match self {
            PeerTransport::Shm(socket) => epoll.remove(socket),
            PeerTransport::Tcp(bridge) => {
                bridge.socket().map_or(Ok(()), |socket| epoll.remove(socket))
            }
        };
    }

    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self, PeerTransport::Tcp(_))
    }

    /// Returns whether all that is in the lane has been handed on.
    pub(crate) fn is_sent(&self) -> bool {
        match self {
            PeerTransport::Shm(_) => true,
            PeerTransport::Tcp(bridge) => bridge.is_sent(),
        }
    }

    /// Returns whether that has left this host as well, so that no memory of messages is read any
    /// more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_sent() && !self.has_in_flight()
    }

    /// Returns whether memory of messages in flight is still being read.
    pub(crate) fn has_in_flight(&self) -> bool {
        match self {
            PeerTransport::Shm(_) => false,
            PeerTransport::Tcp(bridge) => bridge.has_in_flight(),
        }
    }
}
