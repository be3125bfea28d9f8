#![allow(unsafe_code)]
//! A lane whose other end is in this process: descriptors that are put into it go to a connection,
//! and those that come from there are put into it.
//!
//! So everything above a lane is the same for peers of this host and of others: order, credit, and
//! the things to wait for. Descriptors and their bulk bytes stay in the lane until the peer has
//! acknowledged them: the lane is the buffer for retransmission. A full lane of the peer's stops
//! this side's reading, the connection's window stops the peer's writing, and its own lane then
//! stops its senders: memory does not grow on either side.
//!
//! Long messages need not go through the lane: they are sent straight from their memory and put
//! straight to their place, in their turn.
//!
//! **Invariant.** None of its own: `sending` and `receiving` have theirs.
//!
//! - `sending`: from the lane to the connection; `retransmit`: the frames that may have to be sent
//!   again; `transmit_done`: the messages whose memory is read no more.
//! - `receiving`: the other way round; `partial_receive`: a message of which a part has come.

mod partial_receive;
mod receiving;
mod retransmit;
mod sending;
#[cfg(test)]
mod tests;
mod transmit_done;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use pinfold_sys::{
    failed::Failed,
    mem::mapping::SharedMapping,
    process::Segment as Part,
    socket::stream::{self, signs::signs},
};

use rustix::io::Errno;

use self::{receiving::Receiving, sending::Sending};
use crate::{
    copy::Tally,
    sync::LightFence,
    transport::{
        shm::{budget::Budget, ring::Violation, segment::Segment},
        tcp::{
            connection::Connection,
            keep_alive::{KeepAlive, Verdict},
            transmit::{Transmitted, Transmitter},
        },
    },
    wire::{
        descriptor::Header,
        layout::{Direction, SEGMENT_BYTES},
        tcp::offer::Reached,
    },
};

/// The direction in which the endpoint sends in the segment of a bridge.
pub(crate) const WAY: Direction = Direction::ToConnecting;

/// The reason why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The peer closed it.
    Closed,
    /// Its process has gone without a word.
    Gone,
    /// It broke: the `errno`.
    Broken(i32),
    /// The peer sent bytes that no honest peer sends.
    Violation(Violation),
}

impl From<Violation> for Ended {
    fn from(violation: Violation) -> Ended {
        Ended::Violation(violation)
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        Ended::Broken(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()))
    }
}

/// The far end of a peer's lanes, and the connection.
pub(crate) struct Bridge {
    /// `None` while the pair has none.
    socket: Option<Connection>,
    sending: Sending,
    receiving: Receiving,
    /// The reason why nothing more can be sent. Bytes that have come are taken all the same.
    mute: Option<Ended>,
    /// The way the connection ended; nothing is sent or taken after that.
    ended: Option<Ended>,
    /// The check that the peer still answers.
    keep_alive: Option<KeepAlive>,
    /// True if something was sent that may not have come to the peer's host.
    on_watch: bool,
}

impl Bridge {
    /// A bridge, and the segment whose lanes it serves: the endpoint sends in the direction
    /// [`WAY`]. `rest` has come already. `resumes`: it may [go on](Bridge::resume) over another
    /// connection.
    ///
    /// # Errors
    /// There is no memory for the lanes.
    pub(crate) fn new(
        socket: Connection,
        rest: Vec<u8>,
        resumes: bool,
        tally: &Arc<Tally>,
    ) -> Result<(Box<Bridge>, Arc<Segment>), Failed> {
        let memory = SharedMapping::anonymous(SEGMENT_BYTES).map_err(Failed::of("mmap"))?;
        let segment = Segment::new(memory);
        // Both ends are moved by the thread that holds the engine.
        let fence = LightFence::Compiler;
        let bridge = Box::new(Bridge {
            socket: Some(socket),
            sending: Sending::new(&segment, WAY, fence, tally, resumes),
            receiving: Receiving::new(&segment, WAY.reverse(), fence, tally, resumes, rest),
            mute: None,
            ended: None,
            keep_alive: None,
            on_watch: false,
        });
        Ok((bridge, segment))
    }

    /// The connection, to be watched for [changes](pinfold_sys::io::poll::Interest::Changes).
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// The TLS suite of the connection, if it is encrypted: over such a one long messages leave by
    /// copies only.
    pub(crate) fn suite(&self) -> Option<&'static str> {
        self.socket.as_ref().and_then(Connection::suite)
    }

    /// The connection has broken, or is to be replaced: it is given back. Until
    /// [another](Bridge::resume) is there, nothing is sent and nothing comes.
    pub(crate) fn break_off(&mut self) -> Option<Connection> {
        (self.mute, self.ended) = (None, None);
        self.sending.break_off(self.socket.as_ref().map(AsFd::as_fd));
        self.receiving.break_off();
        self.socket.take()
    }

    /// From here on the peer is given up if it does not answer. Its connection may be silent for so
    /// long.
    pub(crate) fn check_keep_alive(&mut self, silence: Duration) {
        self.keep_alive = Some(KeepAlive::new(silence));
    }

    /// Returns whether something was sent since the last call, so that the peer is to be
    /// [looked](Bridge::look) at.
    #[inline]
    pub(crate) fn take_has_sent(&mut self) -> bool {
        let has_sent = self.sending.take_has_sent();
        self.on_watch |= has_sent;
        has_sent
    }

    /// Looks whether the peer answers, if it has to. Returns when to do so again.
    ///
    /// # Errors
    /// The peer does not answer.
    pub(crate) fn look(&mut self, now_ns: u64) -> Result<Option<u64>, Ended> {
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

    /// The count of frames and bytes that have come from the peer.
    pub(crate) fn reached(&self) -> Reached {
        self.receiving.reached()
    }

    /// Goes on over another connection, of which `rest` has come already. The peer has received so
    /// much, as it says.
    ///
    /// # Errors
    /// The peer cannot have received so much.
    pub(crate) fn resume(
        &mut self,
        socket: Connection,
        rest: Vec<u8>,
        received: Reached,
    ) -> Result<(), Ended> {
        self.break_off();
        self.socket = Some(socket);
        self.unless_ended(|bridge| {
            bridge.receiving.resume(received.frames, rest);
            let word = bridge.receiving.word(false);
            Ok(bridge.sending.resume(received, &word)?)
        })
    }

    /// Moves descriptors from the lane to the connection, and bytes from the connection to the
    /// lane. Returns whether anything came, or there is more to be sent at once. `waits`: the
    /// endpoint has found no room in its lane, or is about to sleep. Otherwise the acknowledgement
    /// of what came is left to be [handed on](Bridge::hand_on) if a long message is to be
    /// [taken](Bridge::direct) next: it can go with the end of that message.
    ///
    /// # Errors
    /// The connection has ended. Frames that came before that are in the lane.
    pub(crate) fn turn(&mut self, waits: bool, budget: &mut Budget) -> Result<bool, Ended> {
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

    /// Returns whether the connection had nothing more to take at the last [turn](Bridge::turn),
    /// and reports new bytes. Without a connection there is nothing to take.
    pub(crate) fn is_drained(&self) -> bool {
        self.socket.is_none() || self.receiving.is_drained()
    }

    /// Runs `act` unless the connection has ended; `act` may find that it has.
    fn unless_ended<T>(
        &mut self,
        act: impl FnOnce(&mut Bridge) -> Result<T, Ended>,
    ) -> Result<T, Ended> {
        match self.ended {
            Some(ended) => Err(ended),
            None => act(self).inspect_err(|ended| self.ended = Some(*ended)),
        }
    }

    /// Sends the lane's descriptors over the connection, as far as there is room. The next turn
    /// reports an error.
    pub(crate) fn hand_on(&mut self) {
        let _ = self.unless_ended(|bridge| match bridge.mute {
            None => bridge.send(false, false),
            Some(_) => Ok(()),
        });
    }

    /// `later`: the acknowledgement may be sent later.
    fn send(&mut self, waits: bool, later: bool) -> Result<(), Ended> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        let mut word = self.receiving.word(waits);
        word.is_due &= waits || !later;
        match self.sending.send(socket, &word, waits) {
            Ok(()) if self.sending.has_told(&word) => self.receiving.told(&word),
            Ok(()) => {}
            Err(ended @ Ended::Broken(_)) => self.mute = Some(ended),
            Err(ended) => return Err(ended),
        }
        Ok(())
    }

    /// Sends a message straight from its memory, after all that is in the lane: `words` begin its
    /// frame, and `name` is its name in [`take_sent`](Bridge::take_sent). It goes with the next
    /// turn.
    ///
    /// # Safety
    /// The parts can be read until it is named there, or the bridge has [settled](Bridge::settle).
    pub(crate) unsafe fn send_directly(
        &mut self,
        name: u64,
        header: Header,
        words: &[u64],
        parts: impl Iterator<Item = Part>,
    ) -> Result<(), Violation> {
        let word = self.receiving.word(false);
        // SAFETY: by contract.
        unsafe { self.sending.send_directly(name, &word, header, words, parts) }
    }

    /// Messages that are on their way past the lane.
    pub(crate) fn direct_ones(&self) -> usize {
        self.sending.direct_ones()
    }

    /// A message whose memory is read no more.
    pub(crate) fn take_sent(&mut self) -> Option<Transmitted> {
        self.sending.take_sent(self.socket.as_ref().map(AsFd::as_fd))
    }

    /// From here on long messages leave by this transmitter. None is on its way.
    pub(crate) fn leave_by(&mut self, transmitter: Transmitter) {
        self.sending.leave_by(transmitter);
    }

    /// Returns whether the kernel still reads memory of messages that were handed to it.
    pub(crate) fn has_in_flight(&self) -> bool {
        self.sending.has_in_flight()
    }

    /// Has the memory of no message read any more. If some of it is, that ends the connection.
    pub(crate) fn settle(&mut self) {
        if self.sending.has_in_flight() {
            self.ended.get_or_insert(Ended::Broken(Errno::CONNABORTED.raw_os_error()));
            // Without a connection nothing is in flight.
            if let Some(socket) = &self.socket {
                self.sending.settle(socket.as_fd());
            }
        }
    }

    /// The message whose bytes come next, and how many there are, if they need not go through the
    /// lane.
    pub(crate) fn direct(&self) -> Option<(u32, u64)> {
        self.receiving.direct()
    }

    /// They go through the lane after all.
    pub(crate) fn through_lane(&mut self) {
        self.receiving.through_lane();
    }

    /// Puts some of them to their place and returns how many, 0 if no more have come yet. `put`
    /// copies the bytes that have come already; the kernel does the rest.
    ///
    /// # Errors
    /// As for [`Bridge::turn`].
    ///
    /// # Safety
    /// `to` can be written.
    pub(crate) unsafe fn take_directly(
        &mut self,
        to: Part,
        put: impl FnOnce(&[u8]),
    ) -> Result<usize, Ended> {
        self.unless_ended(|bridge| {
            let Some(socket) = &mut bridge.socket else { return Ok(0) };
            // SAFETY: by contract.
            unsafe { bridge.receiving.take_directly(socket, to, put) }
        })
    }

    /// Says that this side closes the connection, after all that is in the lane.
    pub(crate) fn say_goodbye(&mut self) {
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

    /// Returns whether the kernel has got all that was put into the lane, or nothing takes it any
    /// more. Without a connection: whether it has come to the peer.
    pub(crate) fn is_sent(&self) -> bool {
        match &self.socket {
            Some(socket) => {
                self.sending.is_empty() && socket.is_flushed() || self.ended.or(self.mute).is_some()
            }
            None => self.sending.is_flushed(),
        }
    }

    /// Returns whether all that was put into the lane has come to the peer.
    pub(crate) fn is_flushed(&self) -> bool {
        self.sending.is_flushed()
    }

    /// Bytes to give back to the budget when the bridge goes.
    pub(crate) fn budgeted(&self) -> usize {
        self.receiving.budgeted()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.settle();
        // So that the last word arrives even if the peer was still speaking.
        if let Some(socket) = &self.socket {
            stream::discard(socket);
        }
    }
}

/// The acknowledgement and credit that one side sends the other with each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// Descriptors that have come.
    received: u64,
    /// Credit that was given back.
    released: u64,
    /// True if it is worth a frame of its own.
    is_due: bool,
}
