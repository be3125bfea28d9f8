//! The quick way: a short message in one call, when nothing stands in its way.
//!
//! Nothing here fails. Whatever is unusual (a peer that is gone, no room, no credit, a queue, a
//! posted receive, a descriptor that makes no sense) is left as it is for the ordinary way, which
//! finds it again and says what is wrong. Nothing here wants anybody woken, either.

use pinfold_sys::clock;

use super::{
    Engine, POLLS_A_CLOCK, PUBLISH_AFTER,
    core::Core,
    outbound::PIECE_WHOLE,
    peer::{MESSAGE_COST, Peer},
};
use crate::{
    Path, PeerId, Receipt, Result,
    endpoint::{
        matching::{Source, TagMatch},
        message::Received,
        scatter::Part,
    },
    failpoint::{self, Point},
    wire::descriptor::{Eager, Header, INLINE_MAX, Kind},
};

/// Looks at a lane before a receive is posted: a message that is about to come needs no entry.
const LOOKS: u32 = 200;

/// What became of a send.
pub(crate) enum Now {
    Sent(Receipt),
    /// It has to be posted; with what the cost model chose, if it was asked.
    Later(Option<Receipt>),
}

/// What a look at the heads of the lanes found.
pub(crate) enum Look {
    /// The message, received.
    Took(Result<Received>),
    /// It has to be posted.
    Later,
}

impl Engine {
    #[inline(always)]
    fn is_usable(&self) -> bool {
        !self.closed && !self.fork.is_child()
    }

    /// Sends a message of one part that fits a descriptor or one piece.
    #[inline]
    pub(crate) fn send_quick(&mut self, id: PeerId, tag: u64, memory: Part) -> Now {
        if !self.is_usable() {
            return Now::Later(None);
        }
        let (core, Some(peer)) = (&mut self.core, self.peers.get_mut(id)) else {
            return Now::Later(None);
        };
        if peer.leaving.is_some() || !peer.out.is_empty() || !peer.control.is_empty() {
            return Now::Later(None);
        }
        let has_room = peer.tx.has_room_known() || core.look_for_room(peer);
        if !has_room || !peer.has_credit(memory.len()) {
            return Now::Later(None);
        }
        if memory.len() <= INLINE_MAX as u64 {
            core.send_quick_inline(peer, tag, memory)
        } else {
            core.send_quick_piece(peer, tag, memory)
        }
    }

    /// Receives the next message of a lane into one part, if it matches, is whole and short, and
    /// nothing else is posted or stored. Waits for it a few microseconds.
    #[inline]
    pub(crate) fn recv_quick(&mut self, from: Source, tag: TagMatch, memory: Part) -> Look {
        if !self.is_usable() || !self.core.matcher.is_idle() || self.armed && !self.driven {
            return Look::Later;
        }
        // Now and then the ordinary way looks at the sockets.
        self.polls += 1;
        if self.polls > POLLS_A_CLOCK {
            return Look::Later;
        }
        match from {
            Source::Peer(id) => {
                let Some(peer) = self.peers.get_mut(id) else { return Look::Later };
                if peer.leaving.is_some() {
                    return Look::Later;
                }
                match await_head(&mut self.core, peer) {
                    Some(header) => take_head(&mut self.core, peer, header, tag, memory),
                    None => Look::Later,
                }
            }
            Source::Any => {
                for _ in 0..LOOKS {
                    for &index in &self.hot {
                        let Some(peer) = self.peers.at_mut(index) else { continue };
                        if let (Some(header), None) = (peer.rx.head(), peer.leaving) {
                            return take_head(&mut self.core, peer, header, tag, memory);
                        }
                    }
                    clock::relax();
                }
                Look::Later
            }
        }
    }
}

impl Core {
    #[cold]
    fn look_for_room(&mut self, peer: &mut Peer) -> bool {
        peer.tx.has_room(&mut self.lane_budget) == Ok(true)
    }

    /// Sends a message in its descriptor. The peer has room and credit.
    #[inline(always)]
    fn send_quick_inline(&mut self, peer: &mut Peer, tag: u64, memory: Part) -> Now {
        let len = memory.len();
        if (tag >> 32) as u32 != peer.tag_high_tx || !peer.permissions.may(Path::Inline) {
            return Now::Later(None);
        }
        failpoint::hit(Point::BeforeInline);
        let header = Header::new(Kind::Inline, len as u8, tag as u32);
        peer.tx.push_with(header, |slot| memory.read_words(slot));
        failpoint::hit(Point::AfterInline);
        peer.sent_cost += MESSAGE_COST + len;
        self.ring(peer);
        self.counters.count_sent(Path::Inline, len);
        self.counters.copied_user += len;
        let mut receipt = Receipt::new(Path::Inline, len);
        receipt.copied_user = len;
        Now::Sent(receipt)
    }

    /// Sends a message as one piece, if the cost model says so. The peer has room and credit.
    #[inline]
    fn send_quick_piece(&mut self, peer: &mut Peer, tag: u64, memory: Part) -> Now {
        let len = memory.len();
        let Ok(mut receipt) = self.choose(peer, len) else { return Now::Later(None) };
        let later = Now::Later(Some(receipt));
        if receipt.path != Path::Eager || len > PIECE_WHOLE || !self.fits_eager(peer, len) {
            return later;
        }
        let piece = match peer.tx.lend_known(len as u32) {
            Some(piece) => piece,
            None => match self.lend(peer, len as u32) {
                Ok(Some(piece)) if u64::from(piece.len) == len => piece,
                // A shorter range goes back with the next descriptor.
                _ => return later,
            },
        };
        if memory.fill(&peer.tx, piece).is_err() {
            return later;
        }
        failpoint::hit(Point::BeforeEager);
        let body = Eager { tag, len, piece }.body();
        peer.tx.push(Header::new(Kind::Eager, 0, u32::MAX), &body);
        failpoint::hit(Point::AfterPiece);
        peer.sent_cost += MESSAGE_COST + len;
        self.ring(peer);
        self.counters.count_sent(Path::Eager, len);
        self.counters.copied_user += len;
        receipt.copied_user = len;
        Now::Sent(receipt)
    }
}

/// Waits a moment for the next descriptor of a lane.
#[inline(always)]
fn await_head(core: &mut Core, peer: &mut Peer) -> Option<Header> {
    if let Some(header) = peer.rx.head() {
        return Some(header);
    }
    // There is time to say what has been taken so far.
    if peer.rx.unpublished() > 0 {
        Engine::publish(core, peer);
    }
    for _ in 0..LOOKS {
        // Between two looks the sender gets the line for itself.
        clock::relax();
        if let Some(header) = peer.rx.head() {
            return Some(header);
        }
    }
    None
}

/// Receives the message that the descriptor at the head of a lane brings.
#[inline(always)]
fn take_head(
    core: &mut Core,
    peer: &mut Peer,
    header: Header,
    tag: TagMatch,
    memory: Part,
) -> Look {
    let (got_tag, len, mut receipt);
    if header.is_inline() {
        got_tag = u64::from(peer.tag_high_rx) << 32 | u64::from(header.aux());
        // A length that no honest peer writes is for the ordinary way to judge.
        let Some(bytes) = header.inline_len(INLINE_MAX).filter(|_| tag.matches(got_tag)) else {
            return Look::Later;
        };
        len = bytes as u64;
        receipt = Receipt::new(Path::Inline, memory.write_words(bytes, |i| peer.rx.word(i)));
    } else if header.kind() == Some(Kind::Eager) {
        let eager = Eager::read(&peer.rx.body());
        if !tag.matches(eager.tag)
            || u64::from(eager.piece.len) != eager.len
            || eager.len > peer.granted
        {
            return Look::Later;
        }
        (got_tag, len) = (eager.tag, eager.len);
        let Ok(taken) = memory.drain(&peer.rx, eager.piece) else { return Look::Later };
        receipt = peer.receipt(Path::Eager, taken, len);
    } else {
        return Look::Later;
    }
    receipt.copied_user = receipt.bytes;
    if peer.rx.advance(header).is_err() {
        // The ordinary way finds the same and cuts the peer off.
        return Look::Later;
    }
    peer.tx.passed(header, peer.rx.consumed());
    peer.rx.release(MESSAGE_COST + len);
    // The sender hears of slots with our next message, or when we wait; of bulk bytes, which are
    // fewer, at once if nothing more is there to take.
    let unpublished = peer.rx.unpublished();
    if unpublished >= PUBLISH_AFTER || receipt.path == Path::Eager && peer.rx.head().is_none() {
        Engine::publish(core, peer);
    }
    core.counters.count_received(receipt.path, receipt.bytes);
    core.counters.copied_user += receipt.copied_user;
    Look::Took(Received { peer: peer.id, tag: got_tag, len, receipt }.checked())
}
