//! Inbound streams: messages that come in pieces, and the destinations of the pieces.

use super::{op::OpKey, peer::Peer};
use crate::{
    copy::Largest, memory::store::Kept, protocol::rma::served::landing::Landing,
    wire::rendezvous::Request, worker::matching::UnexpectedKey,
};

/// A message that comes in pieces.
pub(crate) struct Inbound {
    pub sid: u32,
    pub tag: u64,
    /// Its true length.
    pub len: u64,
    /// Bytes that are to come.
    pub end: u64,
    /// Bytes that have come.
    pub got: u64,
    pub came: Came,
    /// True if the sender took it to be mapped here.
    pub offered: bool,
    /// The answer of the kernel when it was asked for the message; 0 if it was not.
    pub errno: u32,
    pub sink: Sink,
    /// The credit that it holds while no receive has asked for it.
    pub cost: u64,
    /// When its first piece came, ticks, if it is long enough for the time to be reported to its
    /// sender.
    pub started: u64,
    /// The word in which the sender claims what it copies, if the rest may be taken over.
    pub request: Option<Request>,
    /// The number under which the sender asked for its time from the first piece on.
    pub sample_number: Option<u8>,
}

impl Inbound {
    /// A message of `len` bytes, of which none have come yet and all are to.
    pub(crate) fn new(sid: u32, tag: u64, len: u64, sink: Sink) -> Inbound {
        Inbound {
            sid,
            tag,
            len,
            end: len,
            got: 0,
            came: Came::default(),
            offered: false,
            errno: 0,
            sink,
            cost: 0,
            started: 0,
            request: None,
            sample_number: None,
        }
    }
}

/// The copied part of an inbound message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Came {
    /// Bytes copied to where they belong.
    pub copied: u64,
    /// Those of them that were stored before.
    pub stored: u64,
    /// Those of them that the kernel copied there.
    pub cma: u64,
    pub by: Largest,
}

/// The destination of the pieces of an inbound message.
pub(crate) enum Sink {
    /// To the memory of a receive.
    Op(OpKey),
    /// To memory of ours, until a receive asks for it.
    Keep(UnexpectedKey, Kept),
    /// To the memory of a read of a region.
    Read(OpKey),
    /// To a region of ours.
    Write(Box<Landing>),
}

impl Peer {
    /// The inbound stream `sid`.
    pub(crate) fn inbound_at(&self, sid: u32) -> Option<usize> {
        self.inbound.iter().position(|stream| stream.sid == sid)
    }
}
