//! One connected peer: its lanes, its queues, its credit.

use std::{collections::VecDeque, mem::offset_of, sync::Arc};

use rustc_hash::FxHashMap;

use super::{
    inbound_stream::Inbound,
    op::OpKey,
    peer_times::PeerTimes,
    pending_peer::{PendingPeer, Session},
    send_waits::Waits,
};
use crate::{
    Gone, PathSet, PeerId, Receipt,
    copy::{Copier, Reader, Tally},
    failpoint::{self, Point},
    memory::exported_extents::ExportedExtents,
    policy::{
        route::{CostModel, Path, Permissions, Refusal},
        two_way::TwoWay,
    },
    protocol::{
        handoff::{
            returns::{Given, Returns},
            state::Fate,
        },
        rma::{
            cma::{CmaAccess, Way},
            way::ServedRma,
        },
    },
    status::PeerRecord,
    sync::LightFence,
    transport::{
        Capabilities, Transport,
        local::Side,
        shm::{
            claim,
            hazards::Hazards,
            lane::{LANE_TX_HOT, LaneRx, LaneTx},
        },
    },
    wire::{
        descriptor::{Header, INLINE_MAX, Kind},
        layout::{Direction, LINE},
    },
    worker::matching::UnexpectedKey,
};

pub(crate) use self::queues::Control;
use self::queues::Obstacles;
pub(crate) use crate::status::MESSAGE_COST;

mod queues;
#[cfg(test)]
mod tests;

/// Facts about a connected peer.
///
/// ```
/// use pinfold::{Endpoint, Path};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-peer-info-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let info = endpoint.peer(itself).expect("it is connected");
/// assert_eq!(info.pid, std::process::id());
/// assert_eq!(info.address.as_deref(), Some(&*name));
/// assert!(info.paths.contains(Path::Eager) && info.encryption.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// Its identifier at this endpoint.
    pub id: PeerId,
    /// Its label and process id: the name that errors use.
    pub name: String,
    /// Its process id in the namespace of this process; 0 if it lies outside, or on another host.
    pub pid: u32,
    /// Its user id; the largest number for a peer on another host.
    pub uid: u32,
    /// The address that was connected to; `None` for a peer that connected to this endpoint. One
    /// of the form `tcp:HOST:PORT` may have led to a peer on this host.
    pub address: Option<String>,
    /// The cipher suite by which the connection with a peer on another host is
    /// [encrypted](crate::Builder::encrypt), as TLS 1.3 calls it; `None` if it is not, and for a
    /// peer on this host.
    pub encryption: Option<&'static str>,
    /// How often a connection with another host broke and another took its place.
    pub reconnections: u64,
    /// The paths by which messages to it can go.
    pub paths: PathSet,
    /// Why messages to it cannot go by `cma`; `None` if they can.
    pub cma_refused: Option<Refusal>,
}

/// A connected peer.
///
/// A short message that goes at once reads and writes the first two cache lines and nothing else of
/// it: the fields up to `tx`, and [`LANE_TX_HOT`] bytes of that.
#[repr(C, align(64))]
pub(crate) struct Peer {
    /// Its counters, and the state that other processes may see.
    pub record: PeerRecord,
    /// Eager cost sent, ever.
    pub sent_cost: u64,
    /// The most of it that the receiver's credit covers: `released` and `window` together.
    pub credit_end: u64,
    pub tag_high_tx: u32,
    /// The fence between publishing something and looking at a flag of the other side.
    pub fence: LightFence,
    obstacles: Obstacles,
    pub tx: LaneTx,

    pub id: PeerId,
    pub info: PeerInfo,
    pub rx: LaneRx,
    pub transport: Box<dyn Transport>,
    /// The properties of that.
    pub capabilities: Capabilities,
    /// The session by which the pair goes on if its connection breaks, if it does.
    pub session: Option<Session>,
    pub cma_access: Arc<CmaAccess>,

    pub tag_high_rx: u32,

    /// Sends that have descriptors to write, in order.
    sends: VecDeque<OpKey>,
    /// Sends that the peer has asked for, or asked to be answered: they need no credit, and do not
    /// wait behind those that do.
    pub asked: VecDeque<OpKey>,
    controls: VecDeque<Control>,
    /// Operations on its regions that it is asked for.
    pub served_rma: ServedRma,
    /// Operations that its agent is asked for.
    pub agent_rma: ServedRma,
    /// True if it carries those out, for it is on another host.
    pub serves_regions: bool,
    /// True if it is on the list of peers that wait for room.
    pub blocked: bool,
    /// True if, since then, it has been asked to ring when it makes room.
    pub room_asked: bool,
    /// Unmatched eager cost that the receiver allows.
    pub window: u64,
    /// Eager cost that the receiver had released at the last look.
    pub released: u64,
    /// Announced messages that the receiver has not answered.
    pub waiting: u32,
    pub waiting_max: u32,
    /// The times since when sends to it wait.
    pub waits: Waits,
    pub permissions: Permissions,
    /// The times of its long messages.
    pub times: PeerTimes,
    /// Copies out of its arenas, and into them.
    pub copies_in: Copier,
    pub copies_out: Copier,
    pub two_way: TwoWay,
    pub exported_extents: ExportedExtents,
    /// Memory given to it, and donated buffers of it that were given back, as far as that is
    /// counted.
    pub given: Given<Fate>,
    pub returns: Returns,

    pub inbound: Vec<Inbound>,
    /// Unmatched eager cost here, and the granted cost.
    pub owed: u64,
    pub granted: u64,
    /// Announced messages here that are unmatched, and how many were granted.
    /// Those for handlers are not with the matcher.
    pub announced: FxHashMap<u32, Option<UnexpectedKey>>,
    pub announced_max: u32,
    /// Parts of those that were given away in several, as far as they are kept where they lie.
    pub listed: usize,
    /// The words in which it claims what it copies of its messages.
    pub claims: claim::Words,
    /// Pieces that have come of messages that were asked for.
    pub pieces: u64,

    /// Its number among those that called this endpoint; 0 if it did not.
    pub came: u64,

    /// Set while the peer is being let go: it may still be writing into memory of a receive of
    /// ours, which must not be given back before it has reported.
    leaving: Option<Gone>,
    /// Parts of messages to it that threads copy into its memory outside of the engine.
    pub lent_puts: u32,
    /// True if it is to be told that this side is gone as soon as those have ended.
    pub owes_farewell: bool,

    /// True if its lane is polled.
    pub hot: bool,
    /// Polls of its lane since something was in it.
    pub idle_polls: u32,
}

/// Bytes of a peer that sending a short message touches.
const HOT: usize = 2 * LINE;
const _: () = assert!(offset_of!(Peer, tx) + LANE_TX_HOT <= HOT);

impl Peer {
    pub(crate) fn new(
        id: PeerId,
        pending: PendingPeer,
        granted: crate::transport::local::Limits,
        model: &CostModel,
        own_barrier: bool,
        copies: &Arc<Tally>,
        record: PeerRecord,
    ) -> Peer {
        let PendingPeer { side, segment, transport, session, pidfd, presence, pid, uid, .. } =
            pending;
        let PendingPeer { label, address, place, .. } = pending;
        let (send_way, fence) = (
            match side {
                Side::Accepting => Direction::ToConnecting,
                Side::Connecting => Direction::ToAccepting,
            },
            if own_barrier && pending.barrier_global {
                LightFence::Compiler
            } else {
                LightFence::Full
            },
        );
        let capabilities = transport.capabilities();
        let cma = pending.peer_reads.or(pending.we_write);
        let (allowed, ours) = (pending.paths, pending.our_paths);
        let permissions = Permissions::new(|path| match path {
            Path::Cma => cma,
            Path::Mapped | Path::Handoff if !capabilities.shares_memory => {
                Err(cma.err().unwrap_or(Refusal::OtherHost))
            }
            _ if allowed.contains(path) => Ok(()),
            _ if ours.contains(path) => Err(Refusal::SwitchedOffByPeer),
            _ => Err(Refusal::SwitchedOff),
        });
        let tried = [pending.we_read, pending.we_write, pending.peer_reads, pending.peer_writes];
        let hazards = Hazards::new(&segment, send_way);
        let cma_access = Arc::new(CmaAccess::new(pid, pidfd, hazards, presence, tried));
        let mut paths = allowed;
        if cma.is_err() {
            paths = paths.without(Path::Cma);
        }
        let whose = place.clone().unwrap_or_else(|| format!("pid {pid}"));
        let name = if label.is_empty() { whose } else { format!("{label} ({whose})") };
        let mut tx = LaneTx::new(&segment, send_way, copies);
        if capabilities.is_turned {
            tx = tx.without_waiting();
        }
        let window = pending.granted.unexpected_bytes;
        Peer {
            record,
            sent_cost: 0,
            credit_end: window,
            tag_high_tx: 0,
            fence,
            obstacles: Obstacles::of(&permissions),
            tx,
            id,
            info: PeerInfo {
                id,
                name,
                pid,
                uid,
                address,
                encryption: transport.encryption(),
                reconnections: 0,
                paths,
                cma_refused: cma.err(),
            },
            rx: LaneRx::new(&segment, send_way.reverse(), fence, copies),
            copies_in: Copier::new(Reader::Me, copies),
            copies_out: Copier::new(Reader::OtherCore, copies),
            transport,
            capabilities,
            session,
            cma_access,
            tag_high_rx: 0,
            sends: VecDeque::new(),
            asked: VecDeque::new(),
            controls: VecDeque::new(),
            served_rma: ServedRma::default(),
            agent_rma: ServedRma::default(),
            serves_regions: pending.serves_regions,
            blocked: false,
            room_asked: false,
            window,
            released: 0,
            waiting: 0,
            waits: Waits::default(),
            waiting_max: pending.granted.rendezvous_max,
            permissions,
            times: PeerTimes::new(model),
            two_way: TwoWay::default(),
            exported_extents: ExportedExtents::default(),
            given: Given::default(),
            returns: Returns::default(),
            inbound: Vec::new(),
            owed: 0,
            granted: granted.unexpected_bytes,
            announced: FxHashMap::default(),
            announced_max: granted.rendezvous_max,
            listed: 0,
            claims: claim::Words::default(),
            pieces: 0,
            came: 0,
            leaving: None,
            lent_puts: 0,
            owes_farewell: false,
            hot: false,
            idle_polls: 0,
        }
    }

    /// Returns whether descriptors for it and from it move only while this process
    /// [turns](Transport::turn) its transport.
    #[inline(always)]
    pub(crate) fn is_turned(&self) -> bool {
        self.capabilities.is_turned
    }

    /// Returns whether memory of one of the two can be reached by the other.
    #[inline(always)]
    pub(crate) fn shares_memory(&self) -> bool {
        self.capabilities.shares_memory
    }

    /// The kernel does not carry out this way for the pair any more, with this `errno`.
    #[cold]
    pub(crate) fn withdraw(&mut self, way: Way, errno: u32) {
        let why = Refusal::Denied(errno as i32);
        tracing::debug!(peer = self.info.name, ?way, %why, "withdrawn");
        self.cma_access.withdraw(way, why);
        self.note_withdrawn();
    }

    /// A way may have been withdrawn: `cma` is no longer a path of the pair if no way is left out
    /// of this side's memory.
    #[cold]
    pub(crate) fn note_withdrawn(&mut self) {
        if let Err(why) = self.cma_access.sends()
            && self.permissions.may(Path::Cma)
        {
            self.permissions.withdraw(Path::Cma, why);
            self.info.paths = self.info.paths.without(Path::Cma);
            self.info.cma_refused = Some(why);
            let refusal = |path| self.permissions.refusal(path);
            self.record.note_paths(self.info.paths, refusal);
        }
    }

    /// Returns whether the peer has given memory back that is not known here yet.
    pub(crate) fn has_returns(&self) -> bool {
        self.given.is_ended_by(self.tx.returned())
    }

    /// Tells it the high half of the tags of messages that follow. There is room.
    pub(crate) fn send_tag_high(&mut self, tag: u64) {
        self.tag_high_tx = (tag >> 32) as u32;
        self.tx.push(Header::new(Kind::TagHigh, 0, self.tag_high_tx), &[]);
        failpoint::hit(Point::TagHighSent);
    }

    /// The receipt of a message of `len` bytes received from it, of which `bytes` were taken.
    pub(crate) fn receipt(&self, path: Path, bytes: u64, len: u64) -> Receipt {
        let mut receipt = Receipt::new(path, bytes);
        if path != Path::Inline && len > INLINE_MAX as u64 {
            receipt.refuse(Path::Inline, Refusal::TooLong);
        }
        match path {
            Path::Inline => {}
            Path::Eager => {
                receipt.refuse(Path::Cma, self.info.cma_refused.unwrap_or(Refusal::Slower));
            }
            Path::Cma | Path::Mapped => receipt.refuse(Path::Eager, Refusal::Slower),
            Path::Handoff => {}
        }
        if path == Path::Mapped {
            receipt.refuse(Path::Cma, self.info.cma_refused.unwrap_or(Refusal::Slower));
        }
        receipt
    }
}
