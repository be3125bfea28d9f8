//! Pieces of messages, copied out of the ring.

use pinfold_sys::cpu::clock;

use crate::{
    policy::route::TOLD_FROM,
    protocol::{rendezvous::request, rma::served::writes},
    transport::shm::ring::Violation,
    wire::descriptor::{Eager, Piece},
    worker::{
        core::Core,
        inbound_stream::{Inbound, Sink},
        peer::Peer,
        streams,
    },
};

/// Copies a piece to where it belongs; ends the stream or puts it back.
pub(crate) fn take_piece(
    core: &mut Core,
    peer: &mut Peer,
    mut stream: Inbound,
    piece: Piece,
) -> Result<(), Violation> {
    if u64::from(piece.len) > stream.end - stream.got {
        return Err(Violation("it sent more of a message than it announced"));
    }
    if stream.got == 0 && stream.end >= TOLD_FROM {
        stream.started = clock::ticks();
        stream.sample_number =
            Some(piece.sample_number()).filter(|sample_number| *sample_number != 0);
    }
    match &mut stream.sink {
        Sink::Op(key) | Sink::Read(key) => {
            if let Some(op) = core.ops.recv_mut(*key) {
                stream.came.copied += op.memory.drain(&mut peer.rx, piece, stream.got)?;
            }
        }
        Sink::Keep(_, kept) => {
            kept.append(&mut peer.rx, piece)?;
            stream.came.copied += u64::from(piece.len);
        }
        Sink::Write(landing) => {
            stream.came.copied += writes::land_piece(core, peer, landing, piece, stream.got)?;
        }
    }
    stream.came.by = stream.came.by.and(core.copied_by(piece.len.into()));
    stream.got += u64::from(piece.len);
    peer.pieces += u64::from(stream.request.is_some());
    if stream.got < stream.end {
        peer.inbound.push(stream);
    } else if let (Some(request), Sink::Op(key)) = (stream.request, &stream.sink) {
        if !request::take_over_rest(core, peer, *key, &stream)? {
            peer.claims.give_request(request);
            streams::all_came(core, peer, stream);
        }
    } else {
        streams::all_came(core, peer, stream);
    }
    Ok(())
}

/// Checks the first piece of a message.
pub(crate) fn check_first(peer: &Peer, sid: u32, eager: &Eager) -> Result<(), Violation> {
    let piece = u64::from(eager.piece.len);
    if piece > eager.len || eager.len > peer.granted {
        return Err(Violation("it sent a piece that does not fit its message"));
    }
    if piece != eager.len && peer.inbound_at(sid).is_some() {
        return Err(Violation("it began a stream twice"));
    }
    Ok(())
}
