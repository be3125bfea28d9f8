//! Pending peers: those about to join, by any link.

use std::{os::fd::OwnedFd, sync::Arc};

use pinfold_sys::{failed::Failed, mem::presence::Presence};

use crate::{
    copy::Tally,
    policy::route::{Path, PathSet, Refusal},
    transport::{
        Back, Transport,
        local::{Established, Limits, Side},
        shm::{link::Link, segment::Segment},
        tcp::{
            bridge::Bridge, connection::Connection, greeting::Ticket, handshake::Home,
            lookup::Lookup,
        },
    },
};

/// The outcome of a greeting.
pub(crate) enum Outcome {
    Joins(Box<PendingPeer>),
    Returns(Back),
}

/// The session by which a pair goes on if its connection breaks.
pub(crate) struct Session {
    pub ticket: Ticket,
    /// The address that this side called; `None` if it was called, and will be again.
    pub home: Option<Home>,
    /// The look-up of further addresses.
    pub lookup: Option<Lookup>,
}

/// A pair that is ready to exchange messages.
pub(crate) struct PendingPeer {
    pub side: Side,
    /// The memory of the lanes.
    pub segment: Arc<Segment>,
    pub transport: Box<dyn Transport>,
    pub session: Option<Session>,
    /// True if it carries out operations asked for on its regions.
    pub serves_regions: bool,
    /// Readable once the peer's process has exited, if that is on this host.
    pub pidfd: Option<OwnedFd>,
    /// The place by which the kernel reaches memory of the peer.
    pub presence: Option<Presence>,
    pub pid: u32,
    pub uid: u32,
    pub label: String,
    pub endpoint_id: [u8; 16],
    /// The address that this side connected to.
    pub address: Option<String>,
    /// The place of the peer, if it is on another host.
    pub place: Option<String>,
    pub paths: PathSet,
    pub our_paths: PathSet,
    pub barrier_global: bool,
    /// The credit that the peer grants us.
    pub granted: Limits,
    pub we_read: Result<(), Refusal>,
    pub we_write: Result<(), Refusal>,
    pub peer_reads: Result<(), Refusal>,
    pub peer_writes: Result<(), Refusal>,
}

impl From<Established> for PendingPeer {
    fn from(established: Established) -> PendingPeer {
        PendingPeer {
            side: established.side,
            segment: Segment::new(established.mapping),
            transport: Box::new(Link::new(established.socket)),
            session: None,
            serves_regions: false,
            pidfd: Some(established.pidfd),
            presence: established.presence,
            pid: established.pid,
            uid: established.uid,
            label: established.label,
            endpoint_id: established.endpoint_id,
            address: established.address.map(|address| address.to_string()),
            place: None,
            paths: established.paths,
            our_paths: established.our_paths,
            barrier_global: established.barrier_global,
            granted: established.granted,
            we_read: established.we_read,
            we_write: established.we_write,
            peer_reads: established.peer_reads,
            peer_writes: established.peer_writes,
        }
    }
}

/// The offer of a peer on another host, as a connection came to it.
pub(crate) struct TcpPeer {
    pub socket: Connection,
    /// The frames that have come already.
    pub rest: Vec<u8>,
    pub session: Option<Session>,
    pub serves_regions: bool,
    pub label: String,
    pub endpoint_id: [u8; 16],
    /// The address that this side connected to.
    pub address: Option<String>,
    pub place: String,
    /// Why memory of neither can be reached by the other.
    pub apart: Refusal,
    /// The paths that the peer has not switched off.
    pub paths: PathSet,
    pub granted: Limits,
}

impl PendingPeer {
    /// The same, over a transport that has faults, if a seed for them is given.
    #[cfg(test)]
    pub(crate) fn with_faults(mut self, seed: Option<u64>) -> PendingPeer {
        if let Some(seed) = seed {
            let breaks = self.session.is_some();
            let faulty = crate::transport::faulty::Faulty::new(self.transport, seed, breaks);
            self.transport = Box::new(faulty);
        }
        self
    }

    /// A peer on another host.
    ///
    /// # Errors
    /// There is no memory for its lanes.
    pub(crate) fn from_tcp(
        tcp_peer: TcpPeer,
        our_paths: PathSet,
        tally: &Arc<Tally>,
    ) -> Result<PendingPeer, Failed> {
        let TcpPeer { socket, rest, session, label, endpoint_id, address, place, .. } = tcp_peer;
        let (paths, granted) = (tcp_peer.paths, tcp_peer.granted);
        let (bridge, segment) = Bridge::new(socket, rest, session.is_some(), tally)?;
        let away = Err(tcp_peer.apart);
        let common = paths.iter().filter(|&path| our_paths.contains(path));
        let common = common.filter(|path| matches!(path, Path::Inline | Path::Eager));
        Ok(PendingPeer {
            side: Side::Accepting,
            segment,
            transport: bridge,
            session,
            serves_regions: tcp_peer.serves_regions,
            pidfd: None,
            presence: None,
            pid: 0,
            uid: u32::MAX,
            label,
            endpoint_id,
            address,
            place: Some(place),
            paths: common.fold(PathSet::none(), PathSet::with),
            our_paths,
            barrier_global: true,
            granted,
            we_read: away,
            we_write: away,
            peer_reads: away,
            peer_writes: away,
        })
    }
}
