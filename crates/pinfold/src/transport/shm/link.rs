//! The transport within a host: the peer serves the far ends of the lanes itself.

use std::{io, os::fd::OwnedFd, sync::Arc};

use pinfold_sys::{
    io::{
        pipe_bell::{self, PipeBell},
        poll::{Epoll, Interest},
    },
    socket::seqpacket::{self, Socket},
};

use crate::transport::{Capabilities, Transport, descriptor_channel};

/// Rings by the socket until a pipe is made for them: most pairs sleep seldom, and a pipe takes
/// descriptors.
const RINGS_BY_SOCKET: u32 = 16;

/// A pair's socket, for descriptors of files and the first doorbells, and the pipes for the others.
pub(crate) struct Link {
    socket: Socket,
    ours: Ours,
    /// The pipe by which the peer rings.
    theirs: Option<OwnedFd>,
    /// The epoll to tell of its rings, and the token for it.
    watched: Option<(Arc<Epoll>, u64)>,
}

/// The pipe by which this side rings.
enum Ours {
    /// There is none. So many rings went by the socket.
    None(u32),
    /// The peer has been sent it, and has not said that it hears it.
    Offered(PipeBell),
    Heard(PipeBell),
    /// There can be none.
    Denied,
}

impl Link {
    pub(crate) fn new(socket: Socket) -> Link {
        Link { socket, ours: Ours::None(0), theirs: None, watched: None }
    }

    /// Offers the peer a pipe.
    #[cold]
    fn offer(&mut self) {
        self.ours = match PipeBell::new() {
            Ok(bell) => match descriptor_channel::send_pipe(&self.socket, bell.heard()) {
                Ok(()) => Ours::Offered(bell),
                // The peer has not taken what was sent before.
                Err(_) => Ours::None(0),
            },
            Err(error) => {
                tracing::debug!(%error, "no pipe to ring by");
                Ours::Denied
            }
        };
    }

    fn forget(&mut self, epoll: &Epoll) {
        // The peer has it open as well, so closing it would not end that.
        if let Some(pipe) = self.theirs.take() {
            let _ = epoll.remove(&pipe);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some((epoll, _)) = self.watched.take() {
            self.forget(&epoll);
        }
    }
}

impl Transport for Link {
    fn capabilities(&self) -> Capabilities {
        Capabilities { is_turned: false, shares_memory: true }
    }

    fn watch(&mut self, epoll: &Arc<Epoll>, news: u64, bell: u64) -> io::Result<()> {
        self.watched = Some((Arc::clone(epoll), bell));
        epoll.add(&self.socket, news, Interest::Read)
    }

    fn unwatch(&self, epoll: &Epoll) {
        let _ = epoll.remove(&self.socket);
    }

    fn ring(&mut self) -> io::Result<()> {
        match &mut self.ours {
            Ours::Heard(bell) => match bell.ring() {
                Ok(true) => return Ok(()),
                Ok(false) => self.offer(),
                Err(error) => {
                    tracing::debug!(%error, "a pipe cannot be rung by");
                    self.ours = Ours::Denied;
                }
            },
            Ours::None(rings) if *rings < RINGS_BY_SOCKET => *rings += 1,
            Ours::None(_) => self.offer(),
            Ours::Offered(_) | Ours::Denied => {}
        }
        seqpacket::ring(&self.socket)
    }

    fn hear(&mut self, pipe: OwnedFd) {
        let Some((epoll, bell)) = self.watched.clone() else { return };
        self.forget(&epoll);
        // A peer that is not told that it is heard goes on ringing by the socket.
        if pipe_bell::tells_each_time() && epoll.add(&pipe, bell, Interest::Changes).is_ok() {
            self.theirs = Some(pipe);
            if descriptor_channel::send_heard(&self.socket).is_err() {
                self.forget(&epoll);
            }
        }
    }

    fn is_heard(&mut self) {
        self.ours = match std::mem::replace(&mut self.ours, Ours::Denied) {
            Ours::Offered(bell) => Ours::Heard(bell),
            ours => ours,
        };
    }

    fn channel(&self) -> Option<&Socket> {
        Some(&self.socket)
    }
}

#[cfg(test)]
mod tests;
