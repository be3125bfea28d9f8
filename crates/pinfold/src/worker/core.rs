//! The state that the operations of all peers share.

use std::{collections::VecDeque, sync::Arc};

use super::{
    envelope::Probe,
    matching::Matcher,
    op::{Bytes, OpKey, RecvStage, Wakes, gone},
    op_table::OpTable,
    peer::Peer,
    prefault::Prefault,
    unlocked_counts::UnlockedCopies,
};
use crate::{
    Error, Gone, PeerId, Receipt,
    copy::{BULK, Copier, Largest},
    memory::imported_extents::ImportedExtents,
    policy::route::CostModel,
    protocol::{
        active::queue::Queues,
        handoff::{parts::List, state::Left},
        rendezvous::copy_job::CopyJob,
        rma::registry::Registry,
    },
    status::Status,
    transport::{Driver, shm::budget::Budget},
    wire::rendezvous::Rts,
};

/// A message that came before a receive asked for it.
pub(crate) enum Unexpected {
    /// All of the message is here.
    Whole { bytes: Bytes, cost: u64, inline: bool, by: Largest },
    /// It is coming in as stream `sid`.
    Arriving { sid: u32, len: u64 },
    /// It is in its sender's memory; in these parts, if it was given away in several.
    Waiting { sid: u32, rts: Rts, list: Option<List> },
    /// Its sender is gone, and it is in the memory that the sender gave.
    Left { len: u64, memory: Left },
    /// A receive that was given up still takes it in.
    Passing { of: OpKey, len: u64 },
    /// A receive that was given up had it; `receipt` tells how it came.
    Again { bytes: Bytes, receipt: Box<Receipt> },
    /// The same, but there was no memory to keep it in.
    NoMemory { len: u64 },
    /// Its sender went before it was complete.
    Lost,
}

impl Unexpected {
    /// The length of the message, bytes. `None`: it is lost.
    pub(crate) fn message_len(&self) -> Option<u64> {
        match self {
            Unexpected::Whole { bytes, .. } | Unexpected::Again { bytes, .. } => Some(bytes.len()),
            Unexpected::Arriving { len, .. }
            | Unexpected::Left { len, .. }
            | Unexpected::Passing { len, .. }
            | Unexpected::NoMemory { len } => Some(*len),
            Unexpected::Waiting { rts, .. } => Some(rts.len),
            Unexpected::Lost => None,
        }
    }
}

pub(crate) struct Core {
    pub matcher: Matcher<OpKey, Unexpected>,
    pub ops: OpTable,
    /// Probes that wait.
    pub probes: Vec<Probe>,
    /// Messages being read out of their senders' memory.
    pub gets: VecDeque<OpKey>,
    /// Messages being written into their receivers' memory.
    pub puts: VecDeque<OpKey>,
    /// Parts of those that some thread has to copy outside of the engine.
    pub lent: Vec<CopyJob>,
    /// Peers (by index) with something queued that found no room.
    pub blocked: Vec<u32>,
    pub wakes: Wakes,
    /// Memory for growing lanes.
    pub lane_budget: Budget,
    /// Credit granted to all peers together.
    pub grants: Budget,
    /// Arenas of peers.
    pub imported: ImportedExtents,
    /// Donated buffers whose return is counted and that are still out.
    pub donations_out: usize,
    /// Threads that wait for memory given to peers to come back.
    pub awaits_returns: usize,
    /// Receives whose memory is not there yet.
    pub prefault: Prefault,
    /// Memory that peers can ask for.
    pub registry: Registry,
    /// The counters, and the state that other processes may see.
    pub status: Status,
    /// Messages for handlers.
    pub active: Queues,
    /// Bulk copies, by algorithm and size.
    pub copies: Arc<crate::copy::Tally>,
    /// Copies outside the lock.
    pub unlocked: Arc<UnlockedCopies>,
    /// Copies of messages that were stored until they were asked for.
    pub store: Copier,
    /// The driver that sends long messages to other hosts.
    pub driver: Arc<Driver>,
    /// True if something was sent to another host since the last look.
    pub has_sent: bool,
    pub model: &'static CostModel,
    pub strict: bool,
    /// True if pages of messages may be moved, where the program has said so.
    pub moves: Option<bool>,
    pub closed: bool,
    /// True if there are fewer processors than threads that want one.
    pub is_short: bool,
    /// True if this side has rung a sleeping peer, or slept, since a thread last gave its processor
    /// away for that.
    pub yields_once: bool,
    /// True if more threads than the endpoint's first have come to it lately: they would wait for
    /// a copy that is made inside.
    pub is_shared: bool,
}

impl Core {
    /// Returns whether a peer may be waiting for the very processor of the calling thread, which
    /// then looks once and does not spin.
    #[inline(always)]
    pub(crate) fn may_hold_up_a_peer(&self) -> bool {
        self.is_short || self.yields_once
    }

    /// How `bytes` bytes were copied under the lock just now: the largest part of them.
    #[inline]
    pub(crate) fn copied_by(&self, bytes: u64) -> Largest {
        if bytes < BULK as u64 { Largest::NONE } else { self.copies.take_largest() }
    }

    /// Puts a peer on the list of those to try again.
    pub(crate) fn block(&mut self, peer: &mut Peer) {
        if !peer.blocked {
            peer.blocked = true;
            peer.room_asked = false;
            self.blocked.push(peer.id.index());
        }
    }

    /// The peer out of whose memory this receive is being filled.
    pub(crate) fn peer_of_get(&mut self, key: OpKey) -> Option<PeerId> {
        match &self.ops.recv_mut(key)?.stage {
            RecvStage::Getting(get) => Some(get.peer),
            RecvStage::Requested(requested) => Some(requested.peer),
            _ => None,
        }
    }

    /// The error of an operation with a peer that is gone, `how`, or that went with the endpoint.
    pub(crate) fn why_gone(&self, name: &str, how: Gone) -> Error {
        if self.closed { Error::Closed } else { gone(name, how) }
    }

    /// Returns whether some push can claim a chunk, or end.
    pub(crate) fn has_put_work(&self) -> bool {
        self.puts.iter().any(|key| !self.ops.is_lent(*key))
    }

    /// Returns whether some pull has bytes that this side can copy now, or soon.
    pub(crate) fn has_get_work(&mut self) -> bool {
        let gets = std::mem::take(&mut self.gets);
        let work = gets.iter().any(|key| match self.ops.recv_mut(*key).map(|op| &op.stage) {
            // The thread that has a part of it goes on.
            Some(RecvStage::Getting(get)) if get.is_lent() => false,
            Some(RecvStage::Getting(get)) => {
                let claims = get.shared.is_none_or(|shared| shared.theirs.is_none());
                get.reads && (claims || get.left.is_some())
            }
            Some(RecvStage::Requested(requested)) => requested.is_watched(),
            _ => false,
        });
        self.gets = gets;
        work
    }
}
