//! The step after a greeting of two sides that both want to be encrypted, over the same connection.
//!
//! One function for each step: the stack of one step is free again while TLS goes on, which takes
//! most of a thread's stack.

use std::os::fd::OwnedFd;

use pinfold_sys::socket::stream;

use super::{ENCRYPTING, Handshake, recv, refused};
use crate::{
    Error, Result,
    transport::tcp::{
        connection::Outgoing,
        greeting::Failure,
        tls::{Securing, Trouble},
    },
};

impl Handshake {
    /// Goes on with the encryption, as far as it can now. Returns whether the channel is there.
    pub(super) fn secure(&mut self, socket: &OwnedFd) -> Result<bool> {
        loop {
            let is_there = self.go_on_securing()?;
            let Some(securing) = &mut self.securing else { return Ok(false) };
            let (session, place) = (securing.session(), &self.place);
            let sent = session.send(Outgoing::new(socket, false));
            sent.map_err(|error| refused("sendto", place, error))?;
            if session.wants_sending() {
                return Ok(false);
            }
            if is_there {
                return Ok(true);
            }
            match recv(socket, session.room()).map_err(|error| refused("recvfrom", place, error))? {
                stream::Received::Nothing => return Ok(false),
                stream::Received::Bytes(bytes) => session.came(bytes),
                stream::Received::End => return Err(self.ended_securing()),
            }
        }
    }

    /// Takes the bytes of the encryption that have come. Returns whether the channel is there, once
    /// all of it is sent.
    fn go_on_securing(&mut self) -> Result<bool> {
        if self.securing.is_none() {
            let Some(agreed) = &self.agreed else { return Ok(false) };
            let made = Securing::new(agreed.role);
            let made =
                made.map_err(|error| Error::os("getrandom", "an encrypted connection", error))?;
            self.securing = Some(made);
        }
        let Handshake { securing: Some(securing), greeting, rest, .. } = self else {
            return Ok(false);
        };
        // The bytes behind the greeting are no longer than its packets.
        if !rest.is_empty() {
            let room = securing.session().room();
            let len = rest.len().min(room.len());
            room[..len].copy_from_slice(&rest[..len]);
            securing.session().came(len);
            rest.drain(..len);
        }
        securing
            .step(|exported| greeting.bind(exported))
            .map_err(|trouble| self.not_secured(trouble))
    }

    fn ended_securing(&mut self) -> Error {
        let hint = "see what the other side logs";
        let (peer, missing) = (self.peer(), ENCRYPTING);
        self.failed(Failure::Closed { peer, missing, hint })
    }

    fn not_secured(&mut self, trouble: Trouble) -> Error {
        let peer = self.peer();
        self.failed(match trouble {
            Trouble::Tls(error) => Failure::Tls { peer, what: error.to_string() },
            Trouble::Unbound => Failure::Intercepted { peer },
        })
    }
}
