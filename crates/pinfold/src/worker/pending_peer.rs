//! Who is about to be a peer, whatever link it came by.

use std::{net::SocketAddr, os::fd::OwnedFd, sync::Arc};

use pinfold_sys::{
    failed::Failed,
    mem::{mapping::SharedMapping, presence::Presence},
};

use super::peer_transport::PeerTransport;
use crate::{
    copy::Tally,
    policy::route::{Path, PathSet, Refusal},
    transport::{
        local::{Established, Limits, Side},
        tcp::{
            bridge::Bridge, connection::Connection, greeting::Ticket, handshake::Home,
            lookup::Lookup,
        },
    },
    wire::tcp::offer::Reached,
};

/// What a greeting has come to.
pub(crate) enum Outcome {
    Joins(Box<PendingPeer>),
    Returns(Back),
}

/// Another connection of a pair that had lost one.
pub(crate) struct Back {
    pub socket: Connection,
    /// What has come of its frames.
    pub rest: Vec<u8>,
    /// How much has come to the peer.
    pub received: Reached,
    /// Where it was called.
    pub to: Option<SocketAddr>,
}

/// With what a pair goes on if its connection breaks.
pub(crate) struct Session {
    pub ticket: Ticket,
    /// Where this side called; `None` if it was called, and will be again.
    pub home: Option<Home>,
    /// Where else that may be by now.
    pub lookup: Option<Lookup>,
}

/// A pair that is ready to exchange messages.
pub(crate) struct PendingPeer {
    pub side: Side,
    pub mapping: SharedMapping,
    pub transport: PeerTransport,
    pub session: Option<Session>,
    /// Whether it does what it is asked to do to its regions.
    pub serves_regions: bool,
    /// Readable once the peer's process has exited, if that is on this host.
    pub pidfd: Option<OwnedFd>,
    /// Where the kernel reaches memory of the peer.
    pub presence: Option<Presence>,
    pub pid: u32,
    pub uid: u32,
    pub label: String,
    pub endpoint_id: [u8; 16],
    /// Where this side connected to.
    pub address: Option<String>,
    /// Where the peer is, if that is another host.
    pub place: Option<String>,
    pub paths: PathSet,
    pub our_paths: PathSet,
    pub barrier_global: bool,
    /// What the peer allows us.
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
            mapping: established.mapping,
            transport: PeerTransport::Shm(established.socket),
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

/// What a peer on another host has said of itself.
pub(crate) struct TcpPeer {
    pub socket: Connection,
    /// What has come of its frames.
    pub rest: Vec<u8>,
    pub session: Option<Session>,
    pub serves_regions: bool,
    pub label: String,
    pub endpoint_id: [u8; 16],
    /// Where this side connected to.
    pub address: Option<String>,
    pub place: String,
    /// Why memory of neither can be reached by the other.
    pub apart: Refusal,
    /// The paths that the peer has not switched off.
    pub paths: PathSet,
    pub granted: Limits,
}

impl PendingPeer {
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
        let (bridge, mapping) = Bridge::new(socket, rest, session.is_some(), tally)?;
        let away = Err(tcp_peer.apart);
        let common = paths.iter().filter(|&path| our_paths.contains(path));
        let common = common.filter(|path| matches!(path, Path::Inline | Path::Eager));
        Ok(PendingPeer {
            side: Side::Accepting,
            mapping,
            transport: PeerTransport::Tcp(bridge),
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
