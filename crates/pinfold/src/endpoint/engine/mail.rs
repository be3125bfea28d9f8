//! Memory that is handed to peers and by peers, over the sockets of the pairs.

use super::{Engine, core::Core, peer::Peer};
use crate::{
    Path,
    arena::{self, ArenaRef},
    endpoint::scatter::Part,
    failpoint::{self, Point},
    link::{
        parcel::{self, Parcel},
        shm::ring::Violation,
    },
    wire::waiting::Shelf,
};

/// Parcels taken from one peer before others get their turn.
const PARCELS_A_TURN: usize = 64;

/// Turns at what is in a peer's socket, until the arena is found that a message lies in. The queue
/// of a socket holds some hundred parcels (`net.core.wmem_default`).
const TURNS_AT_MAIL: u32 = 8;

/// What was on a peer's socket.
pub(crate) enum Mail {
    None,
    Some,
    /// The peer closed the connection.
    Closed,
}

impl Core {
    /// Takes what a peer has sent over its socket.
    pub(crate) fn take_parcels(&mut self, peer: &mut Peer) -> Result<Mail, Violation> {
        let may_map = [Path::Mapped, Path::Handoff].iter().any(|p| peer.permissions.may(*p));
        let mut mail = Mail::None;
        let Some(socket) = peer.line.host() else { return Ok(Mail::None) };
        for _ in 0..PARCELS_A_TURN {
            match parcel::take(socket) {
                Ok(None) => break,
                Ok(Some(Parcel::Bell)) => {}
                Ok(Some(Parcel::Extent(_))) if !may_map => {
                    return Err(Violation("it sent memory although neither side maps any"));
                }
                Ok(Some(Parcel::Extent(extent))) => {
                    // Where it cannot be mapped, messages out of it come by other paths.
                    self.maps.add(peer.id, extent, peer.rx.tie());
                    failpoint::hit(Point::ParcelTaken);
                }
                Ok(Some(Parcel::Gone { id })) => self.maps.remove(peer.id, id),
                Ok(Some(Parcel::Closed)) => return Ok(Mail::Closed),
                Ok(Some(Parcel::Senseless)) => {
                    return Err(Violation("it sent something senseless over its socket"));
                }
                Ok(Some(Parcel::Lost)) => {
                    tracing::debug!(peer = peer.info.name, "no descriptor is left for an arena");
                    self.maps.close_descriptors();
                }
                Err(error) => {
                    tracing::debug!(%error, peer = peer.info.name, "the socket cannot be read");
                    break;
                }
            }
            mail = Mail::Some;
        }
        Ok(mail)
    }

    /// As [`Core::take_parcels`], for a thread that may not be the one that sleeps on the socket: the
    /// bells among the parcels were for that one, which then looks for itself.
    fn take_parcels_now(&mut self, peer: &mut Peer) -> Result<Mail, Violation> {
        self.wakes.leader = true;
        self.take_parcels(peer)
    }

    /// Takes what a peer has sent over its socket until its extent is there that a descriptor has
    /// named: it was sent before that, behind not more than a socket's queue holds. A connection that
    /// was closed meanwhile says so to whoever polls it.
    pub(super) fn await_extent(&mut self, peer: &mut Peer, extent: u64) -> Result<(), Violation> {
        let mut turns = 0;
        while self.maps.get(peer.id, extent).is_none()
            && turns < TURNS_AT_MAIL
            && matches!(self.take_parcels_now(peer)?, Mail::Some)
        {
            turns += 1;
        }
        Ok(())
    }

    /// Sees to it that the peer has the extent a message lies in, and says where in it. `None`: it
    /// could not be sent.
    pub(crate) fn shelve(&self, peer: &mut Peer, memory: Part) -> Option<Shelf> {
        let (extent, offset) = memory.locate()?;
        self.shelve_at(peer, &extent, offset)
    }

    /// The same, of a place in an extent.
    pub(crate) fn shelve_at(
        &self,
        peer: &mut Peer,
        extent: &ArenaRef,
        offset: u64,
    ) -> Option<Shelf> {
        let id = extent.id();
        if !peer.exports.has(id) {
            if let Err(error) = export(peer, extent) {
                tracing::debug!(%error, peer = peer.info.name, "an arena cannot be handed over");
                peer.exports.failed(id);
                return None;
            }
            peer.exports.sent(id);
        }
        Some(Shelf { extent: id, offset })
    }
}

fn export(peer: &Peer, extent: &ArenaRef) -> crate::Result<()> {
    let socket = peer.line.host().ok_or(crate::Error::Withdrawn)?;
    let fd = extent.fd_for_peers()?;
    let (id, bytes) = (extent.id(), extent.bytes_max());
    failpoint::hit(Point::BeforeParcel);
    let sent = parcel::send_extent(socket, id, bytes, extent.peers_may_write(), fd);
    failpoint::hit(Point::AfterParcel);
    sent.map_err(|error| crate::Error::os("sendmsg", "an arena", error))
}

impl Engine {
    /// Tells peers which arenas are in use no more, so that their mappings do not keep the memory.
    #[inline]
    pub(crate) fn tell_of_gone_arenas(&mut self) {
        let gone = arena::gone();
        if gone != self.gone_told {
            self.sweep_exports(gone);
        }
    }

    #[cold]
    fn sweep_exports(&mut self, gone: u64) {
        let mut all = true;
        for id in self.peers.ids() {
            let Some(peer) = self.peers.get_mut(id) else { continue };
            let Some(socket) = peer.line.host() else { continue };
            peer.exports.sweep(
                |extent| !arena::is_live(extent),
                |extent| {
                    // A full queue: at the next turn again.
                    failpoint::hit(Point::BeforeGone);
                    let told = parcel::send_gone(socket, extent).is_ok();
                    failpoint::hit(Point::AfterGone);
                    all &= told;
                    told
                },
            );
        }
        if all {
            self.gone_told = gone;
        }
    }
}
