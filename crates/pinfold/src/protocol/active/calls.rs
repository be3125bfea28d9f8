//! Active messages on their way into the ring.

use crate::{
    Result,
    failpoint::{self, Point},
    memory::scatter::{Part, Scatter},
    transport::shm::{budget::Budget, ring::Violation},
    wire::{
        active::{ACTIVE_MAX, Label},
        descriptor::{Header, Kind},
    },
    worker::peer::{MESSAGE_COST, Peer},
};

/// A message that fits a descriptor, copied out of its buffer.
#[derive(Clone, Copy)]
pub(crate) struct Short {
    pub(super) len: usize,
    pub(super) words: [u64; ACTIVE_MAX / 8],
}

impl Short {
    /// Returns `None` if the bytes do not fit.
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Option<Short> {
        if bytes.len() > ACTIVE_MAX {
            return None;
        }
        let mut words = [0; ACTIVE_MAX / 8];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut eight = [0; 8];
            eight[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(eight);
        }
        Some(Short { len: bytes.len(), words })
    }

    /// The same from memory that peers may write.
    pub(crate) fn of_part(part: Part) -> Option<Short> {
        let len = part.len() as usize;
        (len <= ACTIVE_MAX).then(|| Short { len, words: Scatter::from(part).read_words() })
    }
}

/// Writes an active message of up to 48 bytes, if there is room and credit. Returns whether
/// there was.
#[inline]
pub(crate) fn send_active(
    lane_budget: &mut Budget,
    peer: &mut Peer,
    label: Label,
    len: usize,
    words: &[u64],
) -> Result<bool, Violation> {
    let costs = !label.verb.is_answer();
    if !peer.tx.has_room(lane_budget)? || costs && !peer.has_credit(len as u64) {
        return Ok(false);
    }
    let count = len.div_ceil(8);
    let mut body = [0; 7];
    body[0] = label.word();
    body[1..][..count].copy_from_slice(&words[..count]);
    failpoint::hit(if costs { Point::BeforeCall } else { Point::BeforeReply });
    peer.tx.push(Header::new(Kind::Active, len as u8, label.id), &body[..1 + count]);
    failpoint::hit(if costs { Point::AfterCall } else { Point::AfterReply });
    if costs {
        peer.sent_cost += MESSAGE_COST + len as u64;
    }
    Ok(true)
}
