//! What leads to a peer beside its lanes.

use pinfold_sys::{poll::Epoll, socket::Socket};

use crate::link::tcp::bridge::Bridge;

pub(crate) enum Line {
    /// A socket of this host, for doorbells and memory: the peer serves the other ends of the lanes.
    Host(Socket),
    /// A connection with another host, and the other ends of the lanes.
    Wire(Box<Bridge>),
}

impl Line {
    /// The socket of a peer on this host.
    pub(crate) fn host(&self) -> Option<&Socket> {
        match self {
            Line::Host(socket) => Some(socket),
            Line::Wire(_) => None,
        }
    }

    /// The connection with a peer on another host.
    #[inline(always)]
    pub(crate) fn wire(&mut self) -> Option<&mut Bridge> {
        match self {
            Line::Host(_) => None,
            Line::Wire(bridge) => Some(bridge),
        }
    }

    /// The same to look at.
    pub(crate) fn as_wire(&self) -> Option<&Bridge> {
        match self {
            Line::Host(_) => None,
            Line::Wire(bridge) => Some(bridge),
        }
    }

    /// Has the epoll tell nothing of it any more.
    pub(super) fn unwatch(&self, epoll: &Epoll) {
        let _ = match self {
            Line::Host(socket) => epoll.remove(socket),
            Line::Wire(bridge) => bridge.socket().map_or(Ok(()), |socket| epoll.remove(socket)),
        };
    }

    pub(crate) fn is_wire(&self) -> bool {
        matches!(self, Line::Wire(_))
    }

    /// Whether all that is in the lane has been handed on.
    pub(crate) fn is_sent(&self) -> bool {
        match self {
            Line::Host(_) => true,
            Line::Wire(bridge) => bridge.is_sent(),
        }
    }

    /// Whether that has left this host as well, as far as it has to: no memory of messages is read.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_sent() && !self.is_airborne()
    }

    /// Whether memory of messages is read that are handed on.
    pub(crate) fn is_airborne(&self) -> bool {
        match self {
            Line::Host(_) => false,
            Line::Wire(bridge) => bridge.is_airborne(),
        }
    }
}
