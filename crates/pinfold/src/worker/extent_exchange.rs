//! Memory that is handed to peers and by peers, over the sockets of the pairs.

use super::{engine::Engine, op::Wakes, peer::Peer};
use crate::{
    Path,
    failpoint::{self, Point},
    memory::{
        arena::{self, ArenaRef},
        imported_extents::ImportedExtents,
        scatter::Part,
    },
    transport::{
        descriptor_channel::{self, ChannelMessage},
        shm::ring::Violation,
    },
    wire::rendezvous::Exported,
};

/// Channel messages taken from one peer before others get their turn.
const MESSAGES_A_TURN: usize = 64;

/// Turns at the messages in a peer's socket, until the arena is found that a message lies in. The
/// queue of a socket holds some hundred channel messages (`net.core.wmem_default`).
const EXCHANGE_TURNS: u32 = 8;

/// The result of a look at a peer's socket.
pub(crate) enum Exchanged {
    None,
    Some,
    /// The peer closed the connection.
    Closed,
}

/// Takes the channel messages that a peer has sent over its socket, up to the first bell: one is
/// sent for each sleep, so seldom does anything come behind it, and the epoll tells of that.
pub(crate) fn take_extents_to_bell(
    imported: &mut ImportedExtents,
    peer: &mut Peer,
) -> Result<Exchanged, Violation> {
    take(imported, peer, true)
}

/// Takes all channel messages that a peer has sent over its socket.
pub(crate) fn take_extents(
    imported: &mut ImportedExtents,
    peer: &mut Peer,
) -> Result<Exchanged, Violation> {
    take(imported, peer, false)
}

fn take(
    imported: &mut ImportedExtents,
    peer: &mut Peer,
    to_bell: bool,
) -> Result<Exchanged, Violation> {
    let may_map = [Path::Mapped, Path::Handoff].iter().any(|p| peer.permissions.may(*p));
    let mut exchanged = Exchanged::None;
    for _ in 0..MESSAGES_A_TURN {
        let Some(socket) = peer.transport.channel() else { return Ok(Exchanged::None) };
        match descriptor_channel::take(socket) {
            Ok(None) => break,
            Ok(Some(ChannelMessage::Bell)) if to_bell => return Ok(Exchanged::Some),
            Ok(Some(ChannelMessage::Bell)) => {}
            Ok(Some(ChannelMessage::Extent(_))) if !may_map => {
                return Err(Violation("it sent memory although neither side maps any"));
            }
            Ok(Some(ChannelMessage::Extent(extent))) => {
                // Where it cannot be mapped, messages out of it come by other paths.
                imported.add(peer.id, extent, peer.rx.tie());
                failpoint::hit(Point::ExtentTaken);
            }
            Ok(Some(ChannelMessage::Gone { id })) => imported.remove(peer.id, id),
            Ok(Some(ChannelMessage::Pipe(pipe))) => peer.transport.hear(pipe),
            Ok(Some(ChannelMessage::Heard)) => peer.transport.is_heard(),
            Ok(Some(ChannelMessage::Closed)) => return Ok(Exchanged::Closed),
            Ok(Some(ChannelMessage::Senseless)) => {
                return Err(Violation("it sent something senseless over its socket"));
            }
            Ok(Some(ChannelMessage::Lost)) => {
                tracing::debug!(peer = peer.info.name, "no descriptor is left for an arena");
                imported.close_descriptors();
            }
            Err(error) => {
                tracing::debug!(%error, peer = peer.info.name, "the socket cannot be read");
                break;
            }
        }
        exchanged = Exchanged::Some;
    }
    Ok(exchanged)
}

/// As [`take_extents`], for a thread that may not be the one that sleeps on the socket:
/// the bells among the channel messages were for that thread, which then looks for itself.
fn take_extents_now(
    wakes: &mut Wakes,
    imported: &mut ImportedExtents,
    peer: &mut Peer,
) -> Result<Exchanged, Violation> {
    wakes.leader = true;
    take_extents(imported, peer)
}

/// Takes the channel messages of a peer until the extent is there that a descriptor has named:
/// it was sent before that, behind not more than a socket's queue holds. A connection that was
/// closed meanwhile tells the thread that polls it.
pub(crate) fn await_extent(
    wakes: &mut Wakes,
    imported: &mut ImportedExtents,
    peer: &mut Peer,
    extent: u64,
) -> Result<(), Violation> {
    let mut turns = 0;
    while imported.get(peer.id, extent).is_none()
        && turns < EXCHANGE_TURNS
        && matches!(take_extents_now(wakes, imported, peer)?, Exchanged::Some)
    {
        turns += 1;
    }
    Ok(())
}

/// Sees to it that the peer has the extent that a message lies in, and returns the place in it.
/// `None`: the extent could not be sent.
pub(crate) fn export_part(peer: &mut Peer, memory: Part) -> Option<Exported> {
    let (extent, offset) = memory.locate()?;
    export_at(peer, &extent, offset)
}

/// The same, for a place in an extent.
pub(crate) fn export_at(peer: &mut Peer, extent: &ArenaRef, offset: u64) -> Option<Exported> {
    let id = extent.id();
    if !peer.exported_extents.has(id) {
        if let Err(error) = export(peer, extent) {
            tracing::debug!(%error, peer = peer.info.name, "an arena cannot be handed over");
            peer.exported_extents.failed(id);
            return None;
        }
        peer.exported_extents.sent(id);
    }
    Some(Exported { extent: id, offset })
}

fn export(peer: &Peer, extent: &ArenaRef) -> crate::Result<()> {
    let socket = peer.transport.channel().ok_or(crate::Error::Withdrawn)?;
    let fd = extent.fd_for_peers()?;
    let (id, bytes) = (extent.id(), extent.bytes_max());
    failpoint::hit(Point::BeforeExtent);
    let sent = descriptor_channel::send_extent(socket, id, bytes, extent.peers_may_write(), fd);
    failpoint::hit(Point::AfterExtent);
    sent.map_err(|error| crate::Error::os("sendmsg", "an arena", error))
}

/// Tells peers which arenas are no longer in use, so that their mappings do not keep the
/// memory.
#[inline]
pub(crate) fn tell_of_gone_arenas(engine: &mut Engine) {
    let gone = arena::gone();
    if gone != engine.gone_told {
        sweep_exported_extents(engine, gone);
    }
}

#[cold]
fn sweep_exported_extents(engine: &mut Engine, gone: u64) {
    let mut all = true;
    for id in engine.peers.ids() {
        let Some(peer) = engine.peers.get_mut(id) else { continue };
        let Some(socket) = peer.transport.channel() else { continue };
        peer.exported_extents.sweep(
            |extent| !arena::is_live(extent),
            |extent| {
                // A full queue: tried again at the next turn.
                failpoint::hit(Point::BeforeGone);
                let told = descriptor_channel::send_gone(socket, extent).is_ok();
                failpoint::hit(Point::AfterGone);
                all &= told;
                told
            },
        );
    }
    if all {
        engine.gone_told = gone;
    }
}
