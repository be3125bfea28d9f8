//! The transport within a host: the peer serves the far ends of the lanes itself.

use std::io;

use pinfold_sys::{
    io::poll::{Epoll, Interest},
    socket::seqpacket::{self, Socket},
};

use crate::transport::{Capabilities, Transport};

/// A pair's socket, for doorbells and descriptors of files.
pub(crate) struct Link(pub Socket);

impl Transport for Link {
    fn capabilities(&self) -> Capabilities {
        Capabilities { is_turned: false, shares_memory: true }
    }

    fn watch(&self, epoll: &Epoll, token: u64) -> io::Result<()> {
        epoll.add(&self.0, token, Interest::Read)
    }

    fn unwatch(&self, epoll: &Epoll) {
        let _ = epoll.remove(&self.0);
    }

    fn ring(&mut self) -> io::Result<()> {
        seqpacket::ring(&self.0)
    }

    fn channel(&self) -> Option<&Socket> {
        Some(&self.0)
    }
}
