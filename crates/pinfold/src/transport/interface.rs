//! The interface of transports, as the worker and the protocols know them.
//!
//! Every pair has two lanes, a queue of descriptors each way (the send and the receive queue of
//! U-Net/MM, the queue pair of today's network interfaces). A [`Transport`] serves their far ends:
//! on one host the peer does that itself, out of shared memory; with another host this process
//! does, and a connection carries what they hold. Nothing outside of `transport` asks which of them
//! a peer has: [`Capabilities`] tell what protocols have to know.

use std::{io, net::SocketAddr, os::fd::OwnedFd, sync::Arc, time::Duration};

use pinfold_sys::{io::poll::Epoll, process::Segment as Part, socket::seqpacket::Socket};
use rustix::io::Errno;

pub(crate) use super::tcp::transmit::{Driver, Transmitted};
use super::{
    shm::{budget::Budget, ring::Violation},
    tcp::connection::Connection,
};
use crate::wire::{descriptor::Header, tcp::offer::Reached};

/// The properties of a transport on which protocols depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// True if descriptors move only while this process [turns](Transport::turn) the transport, so
    /// that a look at it is a system call.
    pub is_turned: bool,
    /// True if memory of one side can be reached by the other: what was given away outlives the
    /// connection, and regions need nobody's help. Otherwise all bytes go with messages.
    pub shares_memory: bool,
}

/// The way a connection has ended.
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

/// The far ends of a pair's lanes.
///
/// The methods given here are those of a transport that is not [turned](Capabilities::is_turned):
/// it has nothing to say about connections.
pub(crate) trait Transport: Send {
    fn capabilities(&self) -> Capabilities;

    /// The cipher suite, if bytes are encrypted on their way.
    fn encryption(&self) -> Option<&'static str> {
        None
    }

    /// Makes ready to carry messages: long ones leave by `driver`; from here on the peer is given
    /// up if it stays silent for `silence` although it was sent something.
    fn begin(&mut self, _driver: &Arc<Driver>, _silence: Duration) {}

    /// Has the epoll tell of news under the token `news`, and of rings that come otherwise under
    /// `bell`.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    fn watch(&mut self, epoll: &Arc<Epoll>, news: u64, bell: u64) -> io::Result<()>;

    /// Ends that.
    fn unwatch(&self, epoll: &Epoll);

    /// Wakes the peer, which has asked for that. A transport that is turned is
    /// [handed](Transport::hand_on) what there is instead.
    ///
    /// # Errors
    /// The peer could not be told. One that is gone is found out by other means.
    fn ring(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The peer would rather ring by this pipe.
    fn hear(&mut self, _pipe: OwnedFd) {}

    /// The peer hears the pipe that it was sent last.
    fn is_heard(&mut self) {}

    /// The socket by which descriptors of files go to the peer, if any can.
    fn channel(&self) -> Option<&Socket> {
        None
    }

    /// Moves descriptors out of the lane to the peer, and what has come into the lane. Returns
    /// whether anything came, or there is more to be sent at once. `waits`: the endpoint has found
    /// no room in its lane, or is about to sleep. Otherwise the acknowledgement of what came is
    /// left to be [handed on](Transport::hand_on) if a long message is to be taken past the
    /// lane next: it can go with the end of that message.
    ///
    /// # Errors
    /// The connection has ended. Descriptors that came before that are in the lane.
    fn turn(&mut self, _waits: bool, _budget: &mut Budget) -> Result<bool, Ended> {
        Ok(false)
    }

    /// Sends the lane's descriptors, as far as there is room. The next turn reports an error.
    fn hand_on(&mut self) {}

    /// Returns whether there was nothing more to take at the last [turn](Transport::turn), and the
    /// epoll tells of new bytes.
    fn is_drained(&self) -> bool {
        false
    }

    /// Returns whether all that was put into the lane has been handed on, or nothing takes it any
    /// more.
    fn is_sent(&self) -> bool {
        true
    }

    /// Returns whether all that was put into the lane has come to the peer.
    fn is_flushed(&self) -> bool {
        true
    }

    /// Returns whether memory of messages in flight is still being read.
    fn has_in_flight(&self) -> bool {
        false
    }

    /// Returns whether all has left this host, so that no memory of messages is read any more.
    fn is_quiet(&self) -> bool {
        self.is_sent() && !self.has_in_flight()
    }

    /// Returns whether something was sent since the last call, so that the peer is to be
    /// [looked](Transport::look) at.
    fn take_has_sent(&mut self) -> bool {
        false
    }

    /// Looks whether the peer answers, if it has to. Returns when to do so again.
    ///
    /// # Errors
    /// The peer does not answer.
    fn look(&mut self, _now_ns: u64) -> Result<Option<u64>, Ended> {
        Ok(None)
    }

    /// A message that went past the lane, and whose memory is read no more.
    fn take_sent(&mut self) -> Option<Transmitted> {
        None
    }

    /// The way past the lane, for long messages, if there is one.
    fn past_lane(&mut self) -> Option<&mut dyn Direct> {
        None
    }

    /// Returns whether the bytes that come next need not go through the lane.
    fn brings_direct(&self) -> bool {
        false
    }

    /// The means to go on over another connection, if there are any.
    fn resume(&mut self) -> Option<&mut dyn Resume> {
        None
    }

    /// The count of frames and bytes that have come from the peer, by which the pair can go on.
    fn reached(&self) -> Option<Reached> {
        None
    }

    /// Says that this side closes the connection, after all that is in the lane.
    fn say_goodbye(&mut self) {}

    /// Has the memory of no message read any more. If some of it is, that ends the connection.
    fn settle(&mut self) {}

    /// Bytes to give back to the budget when the transport goes.
    fn budgeted(&self) -> usize {
        0
    }
}

/// The way of long messages past the lanes, in their turn: sent straight from their memory, and put
/// straight to their place.
pub(crate) trait Direct {
    /// Sends a message straight from its memory, after all that is in the lane: `words` begin its
    /// frame, and `name` is its name in [`take_sent`](Transport::take_sent). It goes with the next
    /// turn.
    ///
    /// # Errors
    /// The peer has written nonsense into the lane.
    ///
    /// # Safety
    /// The parts can be read until it is named there, or the transport has
    /// [settled](Transport::settle).
    #[allow(unsafe_code)]
    unsafe fn send_directly(
        &mut self,
        name: u64,
        header: Header,
        words: &[u64],
        parts: &mut dyn Iterator<Item = Part>,
    ) -> Result<(), Violation>;

    /// Messages that are on their way.
    fn direct_ones(&mut self) -> usize;

    /// The message whose bytes come next, and how many there are, if they need not go through the
    /// lane.
    fn direct(&mut self) -> Option<(u32, u64)>;

    /// They go through the lane after all.
    fn through_lane(&mut self);

    /// Puts some of them to their place and returns how many, 0 if no more have come yet. `put`
    /// copies the bytes that have come already; the kernel does the rest.
    ///
    /// # Errors
    /// As for [`Transport::turn`].
    ///
    /// # Safety
    /// `to` can be written.
    #[allow(unsafe_code)]
    unsafe fn take_directly(
        &mut self,
        to: Part,
        put: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, Ended>;
}

/// Another connection of a pair that had lost one.
pub(crate) struct Back {
    pub socket: Connection,
    /// The frames that have come already.
    pub rest: Vec<u8>,
    /// How far the peer has received.
    pub received: Reached,
    /// The address at which it was called.
    pub to: Option<SocketAddr>,
}

/// Going on over another connection when one has broken.
pub(crate) trait Resume {
    /// The connection has broken, or is to be replaced: it is closed. Nothing is sent and nothing
    /// comes until the pair [goes on](Resume::go_on). Returns whether there was one.
    fn break_off(&mut self, epoll: &Epoll) -> bool;

    /// Goes on over this connection.
    ///
    /// # Errors
    /// The peer cannot have received as much as it says.
    fn go_on(&mut self, back: Back) -> Result<(), Ended>;
}
