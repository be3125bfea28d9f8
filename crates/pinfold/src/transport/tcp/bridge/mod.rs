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
//! - `transport`: the bridge as the endpoint knows it.
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
mod transport;

use std::{os::fd::AsFd, sync::Arc};

use pinfold_sys::{failed::Failed, mem::mapping::SharedMapping, socket::stream};

use self::{receiving::Receiving, sending::Sending};
use crate::{
    copy::Tally,
    sync::LightFence,
    transport::{
        Ended, Transport,
        shm::segment::Segment,
        tcp::{connection::Connection, keep_alive::KeepAlive},
    },
    wire::{
        layout::{Direction, SEGMENT_BYTES},
        tcp::offer::Reached,
    },
};

/// The direction in which the endpoint sends in the segment of a bridge.
pub(crate) const WAY: Direction = Direction::ToConnecting;

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
    /// [`WAY`]. `rest` has come already. `resumes`: it may [go on](Bridge::go_on_over) over another
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
            receiving: Receiving::new(&segment, WAY.reverse(), tally, resumes, rest),
            mute: None,
            ended: None,
            keep_alive: None,
            on_watch: false,
        });
        Ok((bridge, segment))
    }

    /// The connection has broken, or is to be replaced: it is given back. Until
    /// [another](Bridge::go_on_over) is there, nothing is sent and nothing comes.
    fn lose_connection(&mut self) -> Option<Connection> {
        (self.mute, self.ended) = (None, None);
        self.sending.break_off(self.socket.as_ref().map(AsFd::as_fd));
        self.receiving.break_off();
        self.socket.take()
    }

    /// Goes on over another connection, of which `rest` has come already. The peer has received so
    /// much, as it says.
    ///
    /// # Errors
    /// The peer cannot have received so much.
    fn go_on_over(
        &mut self,
        socket: Connection,
        rest: Vec<u8>,
        received: Reached,
    ) -> Result<(), Ended> {
        self.lose_connection();
        self.socket = Some(socket);
        self.unless_ended(|bridge| {
            bridge.receiving.resume(received.frames, rest);
            let word = bridge.receiving.word(false);
            Ok(bridge.sending.resume(received, &word)?)
        })
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
