//! Operations that outlive the call that posted them.

use std::{any::Any, collections::VecDeque, sync::Arc, task::Waker};

use crate::{
    Error, Path, PeerId, Receipt, Result,
    endpoint::{
        DonatedBuf,
        received::{MultiReceived, Received},
    },
    memory::{imported_extents::Loan, scatter::Scatter, store::Landing},
    protocol::{
        active::act::Act,
        handoff::parts::{List, Parts},
        rma::way::{Asked, Opening, Served, ServedRequest},
    },
    transport::shm::fragment::Cut,
    wire::{
        active::Verb,
        rendezvous::{Request, Rts},
    },
    worker::{
        envelope::Envelope,
        lent::Lent,
        matching::{PostedKey, UnexpectedKey},
    },
};

pub(crate) use super::op_key::OpKey;

pub(crate) use super::wakes::{Deliver, Wakes};
pub(crate) use crate::memory::store::Bytes;
pub(crate) use crate::protocol::rendezvous::transfer::Copied;
pub(crate) use crate::protocol::rendezvous::transfer::Get;
pub(crate) use crate::protocol::rendezvous::transfer::Putting;
pub(crate) use crate::protocol::rendezvous::transfer::Requested;
pub(crate) use crate::protocol::rendezvous::transfer::SharedGet;
pub(crate) use crate::protocol::rendezvous::transfer::There;

/// The result of a finished receive.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub peer: PeerId,
    pub tag: u64,
    /// The message's true length, bytes.
    pub len: u64,
    pub receipt: Receipt,
    /// The message, if the receive brought no memory of its own. Boxed, since results are moved
    /// about a few times.
    pub bytes: Option<Box<Bytes>>,
    /// The message where it is, if its sender gave it away.
    pub loan: Option<Lending>,
}

impl Arrived {
    /// A message that came into memory of the caller's.
    pub(crate) fn of(Received { peer, tag, len, receipt }: Received) -> Arrived {
        Arrived { peer, tag, len, receipt, bytes: None, loan: None }
    }
}

impl From<&Arrived> for Received {
    fn from(arrived: &Arrived) -> Received {
        let Arrived { peer, tag, len, receipt, .. } = *arrived;
        Received { peer, tag, len, receipt }
    }
}

/// A message in its sender's memory.
#[derive(Debug)]
pub(crate) enum Lending {
    One(Box<Loan>),
    Parts(Box<Parts>),
}

/// The result of a finished operation.
#[derive(Debug)]
pub(crate) enum Done {
    Sent(Receipt),
    Arrived(Arrived),
    Opened(Box<Opening>),
    /// The value of a word before it was changed.
    Was(u64),
    /// The peer that this endpoint called.
    Connected(PeerId),
    /// A peer that called.
    Accepted(PeerId),
    /// A message that a receive would take.
    Probed(Envelope),
    /// A receive of many messages has no more room; its last message, if that was not taken
    /// otherwise.
    UsedUp(Option<Box<MultiReceived>>),
}

impl From<Received> for Done {
    fn from(received: Received) -> Done {
        Done::Arrived(Arrived::of(received))
    }
}

/// A send on its way.
pub(crate) struct SendOp {
    pub peer: PeerId,
    pub tag: u64,
    /// The purpose of the message; if not for a receive, the tag tells for whom.
    pub verb: Verb,
    pub memory: Scatter,
    pub stage: SendStage,
    pub receipt: Receipt,
    /// True if the receipt has the choice of the cost model; that is asked once a message.
    pub routed: bool,
    /// The time at which its first descriptor was written, ticks.
    pub started: u64,
    /// The time at which its first piece was out, ticks.
    pub first_out: u64,
    /// The path that the caller insists on.
    pub required: Option<Path>,
    /// The extent out of which the receiver was told it can read the message.
    pub offered: Option<u64>,
    /// True if the caller has given the memory away.
    pub given: bool,
    /// The charge for that, once it was made.
    pub charge: u64,
    /// True if only the newest of such messages counts.
    pub is_frame: bool,
    /// The stream number under which the message is out, if that is not the operation's index.
    pub stream: Option<u32>,
    /// The answer of the kernel when either side asked it to copy the message; 0 if it did not
    /// fail.
    pub errno: u32,
    /// True if its memory may be wanted back before it has ended: its receiver is not told where
    /// that is, if it lacks only credit.
    pub timed: bool,
    /// The kind of the send, if it is no message.
    pub served: Option<Box<Served>>,
}

impl SendOp {
    /// A tagged message of which only the memory is known yet.
    #[inline(always)]
    pub(crate) fn new(peer: PeerId, tag: u64, memory: Scatter, receipt: Receipt) -> SendOp {
        SendOp {
            peer,
            tag,
            verb: Verb::Tagged,
            memory,
            stage: SendStage::Fresh,
            receipt,
            routed: false,
            started: 0,
            first_out: 0,
            required: None,
            offered: None,
            given: false,
            charge: 0,
            is_frame: false,
            stream: None,
            errno: 0,
            timed: false,
            served: None,
        }
    }

    /// The number by which the receiver knows the message, if operation `key` is this.
    pub(crate) fn sid(&self, key: OpKey) -> u32 {
        self.stream.unwrap_or(key.index)
    }
}

/// The stage of a send.
pub(crate) enum SendStage {
    /// Queued; nothing is out.
    Fresh,
    /// Queued; its pieces up to `at` are out, `end` is where it stops. `announced`: the receiver
    /// asked for it.
    ///
    /// It is cut as was decided before the first piece. With a request, each piece is claimed
    /// before it is copied.
    Streaming { at: u64, end: u64, announced: bool, cut: Option<Cut>, request: Option<Request> },
    /// This side has copied so many bytes of it into the ring, and the receiver has taken over the
    /// rest.
    TakenOver { copied: u64 },
    /// So many bytes of it are in flight over a connection, out of its memory.
    Handed { bytes: u64 },
    /// It is out, and done only when its receiver says so.
    Asked,
    /// Announced; the receiver has not answered.
    Waiting { cancelled: bool },
    /// The receiver may be reading, and this side writes what it can claim.
    Putting(Box<Putting>),
    /// This side has written its part; the receiver reports when it has the rest.
    PutDone(Copied),
}

/// A receive, posted or matched.
pub(crate) struct RecvOp {
    pub memory: Scatter,
    /// Memory made for the message, when the caller brought none; `memory` points to it.
    pub own: Option<Landing>,
    /// True if the caller brought none.
    pub as_message: bool,
    /// True if the message may stay where it is.
    pub as_view: bool,
    /// Bytes of the memory whose pages were put there before its message came.
    pub prefaulted: u64,
    pub stage: RecvStage,
    /// The number of the message it has matched; 0 if it has matched none.
    pub arrival: u64,
    /// The owner of its message.
    pub next: Next,
    /// The announcement of its message, if that stays where it is.
    pub lent: Option<Box<Announced>>,
}

impl RecvOp {
    /// A receive into `memory`, or of a message, not matched yet.
    pub(crate) fn new(memory: Option<Scatter>) -> RecvOp {
        RecvOp {
            as_message: memory.is_none(),
            memory: memory.unwrap_or(Scatter::empty()),
            own: None,
            as_view: false,
            prefaulted: 0,
            stage: RecvStage::Moving,
            arrival: 0,
            next: Next::Own,
            lent: None,
        }
    }
}

/// The owner of the message of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The caller that posted the receive.
    Own,
    /// No receive yet: the message is stored.
    Stored(UnexpectedKey),
    /// That receive, which follows.
    Receive(OpKey),
}

/// The announcement of a message that stays where it is.
pub(crate) struct Announced {
    pub sid: u32,
    pub rts: Rts,
    pub list: Option<List>,
}

/// The stage of a receive.
pub(crate) enum RecvStage {
    /// Waits for a message.
    Posted(PostedKey),
    /// Waits for the answer of handler `id` of this peer.
    Asked { peer: PeerId, id: u32 },
    /// Goes on in parts, for each of which there is a request to this peer's agent. `next`: it
    /// waits for others to end, and then goes on with that.
    InParts { peer: PeerId, next: Option<Arc<dyn Any + Send + Sync>> },
    /// Waits for the answer of the owner of a region.
    ServedRequest(Box<ServedRequest>),
    /// Matched with an inbound stream of this peer.
    Streaming { peer: PeerId },
    /// Matched with a message that its sender was asked to send through the ring.
    Requested(Box<Requested>),
    /// Matched with a message in its sender's memory.
    Getting(Box<Get>),
    /// Matched with the message of another receive, which was given up and still takes it in.
    Following(OpKey),
    /// Between stages, inside one call.
    Moving,
}

/// A receive of many messages into one buffer. Each of them has an operation of its own, whose
/// memory is a part of the buffer.
pub(crate) struct MultiOp {
    pub memory: Scatter,
    /// The place of the next message, bytes.
    pub at: u64,
    /// The room below which it is used up, bytes; at least 1.
    pub min_free: u64,
    pub posted: Option<PostedKey>,
    /// Messages that are still coming in.
    pub running: usize,
    /// Messages that have ended and were not taken.
    pub ended: VecDeque<MultiReceived>,
    /// Its result, once it takes no more messages.
    pub end: Option<Result<Done>>,
}

/// The place of a message within a [`MultiOp`].
pub(crate) struct PartOf {
    pub multi: OpKey,
    /// The first byte.
    pub at: u64,
    pub peer: PeerId,
    pub tag: u64,
    /// The message's true length, bytes.
    pub len: u64,
    /// The number of the message.
    pub arrival: u64,
}

pub(crate) enum OpKind {
    Send(SendOp),
    Recv(RecvOp),
    Multi(Box<MultiOp>),
    /// A peer was asked for memory.
    Open(Asked),
    /// A peer is called; see [`Call`](super::handshakes::Call).
    Connect,
    /// Waits for a peer that calls.
    Accept,
    /// Waits for a message, and takes none; see [`probes`](super::probes).
    Probe,
}

/// The taker of an operation's result, if that is not the caller or future that waits for it.
pub(crate) trait Taker: Deliver {
    /// Takes the result, to deliver it outside of the engine.
    fn take(&mut self, result: Result<Done>);

    /// Takes a message of a [`MultiOp`] that goes on, if it is a taker of such. Returns the rest of
    /// the delivery, outside of the engine.
    fn take_message(&mut self, _message: MultiReceived) -> Option<Box<dyn Deliver>> {
        None
    }

    /// Returns whether it takes results for the queue with this number.
    fn is_of(&self, queue: u64) -> bool;

    /// Returns whether it takes results for the queue with this number, with this context.
    fn is_named(&self, _queue: u64, _context: u64) -> bool {
        false
    }

    /// The buffer of the operation, whose result is no longer wanted.
    fn into_buffer(self: Box<Self>) -> Box<dyn Any + Send>;
}

pub(crate) struct Op {
    pub kind: OpKind,
    pub done: Option<Result<Done>>,
    pub waker: Option<Waker>,
    /// The number of the [wait](super::followers::Waiting) for it; 0: none that is parked or
    /// leads.
    pub waiting: u64,
    /// True if the result is not wanted any more: the entry goes when it is done.
    pub abandoned: bool,
    /// The buffer of an abandoned operation, or the memory that was given away.
    pub keeps: Option<Keeps>,
    /// The sender of the message that a handler was seeing to when it asked for this.
    pub origin: Option<PeerId>,
    pub taker: Option<Box<dyn Taker>>,
    pub lent: Lent,
}

/// The memory or state that has to stay until an operation has ended.
pub(crate) enum Keeps {
    /// A buffer of the caller's, whose drop is code of the caller's.
    Buffer(Box<dyn Any + Send>),
    /// A buffer of an arena: dropped within the engine.
    DonatedBuf { donation: DonatedBuf },
    /// Several buffers of an arena.
    DonatedBufs { donations: Vec<DonatedBuf> },
    /// The meaning of its end to active messages.
    Act(Act),
    /// The receive of many messages that this is a part of.
    Part(PartOf),
}

impl Op {
    pub(crate) fn new(kind: OpKind) -> Op {
        Op::kept(None, kind)
    }

    /// An operation whose result is not wanted, if it keeps something.
    #[inline(always)]
    pub(crate) fn kept(keeps: Option<Keeps>, kind: OpKind) -> Op {
        let abandoned = keeps.is_some();
        let (done, waker, waiting) = (None, None, 0);
        let (origin, taker, lent) = (None, None, Lent::None);
        Op { kind, done, waker, waiting, abandoned, keeps, origin, taker, lent }
    }
}

/// The error of every operation with a peer that is gone.
pub(crate) fn gone(name: &str, how: crate::Gone) -> Error {
    Error::PeerGone { peer: name.to_owned(), how }
}
