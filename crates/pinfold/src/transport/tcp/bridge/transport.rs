#![allow(unsafe_code)]
//! The bridge as a transport.
//!
//! **Invariant.** None of its own: contracts are passed on to `sending` and `receiving`.

use std::{io, os::fd::AsFd, sync::Arc, time::Duration};

use pinfold_sys::{
    io::poll::{Epoll, Interest},
    process::Segment as Part,
    socket::stream::{self, signs::signs},
};
use rustix::io::Errno;

use super::Bridge;
use crate::{
    transport::{
        Back, Capabilities, Direct, Ended, Resume, Transmitted, Transport,
        shm::{budget::Budget, ring::Violation},
        tcp::{
            connection::Connection,
            keep_alive::{KeepAlive, Verdict},
            transmit::{Driver, Transmitter},
        },
    },
    wire::{descriptor::Header, tcp::offer::Reached},
};

impl Transport for Bridge {
    fn capabilities(&self) -> Capabilities {
        Capabilities { is_turned: true, shares_memory: false }
    }

    fn encryption(&self) -> Option<&'static str> {
        self.socket.as_ref().and_then(Connection::suite)
    }

    fn begin(&mut self, driver: &Arc<Driver>, silence: Duration) {
        // Encrypted bytes have to be read by this process.
        if self.encryption().is_none() {
            self.sending.leave_by(Transmitter::new(Arc::clone(driver)));
        }
        self.keep_alive = Some(KeepAlive::new(silence));
    }

    fn watch(&mut self, epoll: &Arc<Epoll>, news: u64, _bell: u64) -> io::Result<()> {
        let changes = Interest::Changes;
        self.socket.as_ref().map_or(Ok(()), |socket| epoll.add(socket, news, changes))
    }

    fn unwatch(&self, epoll: &Epoll) {
        let _ = self.socket.as_ref().map_or(Ok(()), |socket| epoll.remove(socket));
    }

    fn turn(&mut self, waits: bool, budget: &mut Budget) -> Result<bool, Ended> {
        self.unless_ended(|bridge| {
            let Some(socket) = &mut bridge.socket else { return Ok(()) };
            let came = bridge.receiving.take(socket, budget);
            let done = bridge.sending.heard(bridge.receiving.heard())?;
            bridge.receiving.acknowledge(done);
            match (came, bridge.mute) {
                (Ok(()), None) => bridge.send(waits, bridge.receiving.direct().is_some()),
                // The sender has been told why it broke.
                (Err(Ended::Gone), Some(why)) => Err(why),
                (came, _) => came,
            }
        })?;
        // Bytes that came before it broke are taken to the end.
        Ok(self.receiving.has_moved() || self.sending.is_cut_short() || self.mute.is_some())
    }

    fn hand_on(&mut self) {
        let _ = self.unless_ended(|bridge| match bridge.mute {
            None => bridge.send(false, false),
            Some(_) => Ok(()),
        });
    }

    // Without a connection there is nothing to take.
    fn is_drained(&self) -> bool {
        self.socket.is_none() || self.receiving.is_drained()
    }

    // Without a connection: whether it has come to the peer.
    fn is_sent(&self) -> bool {
        match &self.socket {
            Some(socket) => {
                self.sending.is_empty() && socket.is_flushed() || self.ended.or(self.mute).is_some()
            }
            None => self.sending.is_flushed(),
        }
    }

    fn is_flushed(&self) -> bool {
        self.sending.is_flushed()
    }

    fn has_in_flight(&self) -> bool {
        self.sending.has_in_flight()
    }

    #[inline]
    fn take_has_sent(&mut self) -> bool {
        let has_sent = self.sending.take_has_sent();
        self.on_watch |= has_sent;
        has_sent
    }

    fn look(&mut self, now_ns: u64) -> Result<Option<u64>, Ended> {
        self.unless_ended(|bridge| {
            let (Some(socket), Some(keep_alive), true) =
                (&bridge.socket, &mut bridge.keep_alive, bridge.on_watch)
            else {
                return Ok(None);
            };
            match keep_alive.look(signs(socket)?, now_ns) {
                Verdict::Wait(at_ns) => Ok(Some(at_ns)),
                Verdict::Gone => Err(Ended::Broken(Errno::TIMEDOUT.raw_os_error())),
                Verdict::Idle => {
                    bridge.on_watch = false;
                    Ok(None)
                }
            }
        })
    }

    fn take_sent(&mut self) -> Option<Transmitted> {
        self.sending.take_sent(self.socket.as_ref().map(AsFd::as_fd))
    }

    fn past_lane(&mut self) -> Option<&mut dyn Direct> {
        Some(self)
    }

    fn brings_direct(&self) -> bool {
        self.receiving.direct().is_some()
    }

    fn resume(&mut self) -> Option<&mut dyn Resume> {
        Some(self)
    }

    fn reached(&self) -> Option<Reached> {
        Some(self.receiving.reached())
    }

    fn say_goodbye(&mut self) {
        self.sending.end();
        // If it is broken, there is no peer to tell.
        let sent = self.unless_ended(|bridge| match bridge.mute {
            None => bridge.send(true, false),
            Some(why) => Err(why),
        });
        if let Some(socket) = &self.socket
            && sent.is_ok()
            && self.sending.is_empty()
            && socket.is_flushed()
        {
            let _ = stream::end(socket);
        }
    }

    fn settle(&mut self) {
        if self.sending.has_in_flight() {
            self.ended.get_or_insert(Ended::Broken(Errno::CONNABORTED.raw_os_error()));
            // Without a connection nothing is in flight.
            if let Some(socket) = &self.socket {
                self.sending.settle(socket.as_fd());
            }
        }
    }

    fn budgeted(&self) -> usize {
        self.receiving.budgeted()
    }
}

impl Direct for Bridge {
    unsafe fn send_directly(
        &mut self,
        name: u64,
        header: Header,
        words: &[u64],
        parts: &mut dyn Iterator<Item = Part>,
    ) -> Result<(), Violation> {
        let word = self.receiving.word(false);
        // SAFETY: by contract.
        unsafe { self.sending.send_directly(name, &word, header, words, parts) }
    }

    fn direct_ones(&mut self) -> usize {
        self.sending.direct_ones()
    }

    fn direct(&mut self) -> Option<(u32, u64)> {
        self.receiving.direct()
    }

    fn through_lane(&mut self) {
        self.receiving.through_lane();
    }

    unsafe fn take_directly(
        &mut self,
        to: Part,
        put: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, Ended> {
        self.unless_ended(|bridge| {
            let Some(socket) = &mut bridge.socket else { return Ok(0) };
            // SAFETY: by contract.
            unsafe { bridge.receiving.take_directly(socket, to, put) }
        })
    }
}

impl Resume for Bridge {
    fn break_off(&mut self, epoll: &Epoll) -> bool {
        match self.lose_connection() {
            Some(socket) => {
                let _ = epoll.remove(&socket);
                true
            }
            None => false,
        }
    }

    fn go_on(&mut self, back: Back) -> Result<(), Ended> {
        self.go_on_over(back.socket, back.rest, back.received)
    }
}
