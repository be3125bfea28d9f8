#![allow(unsafe_code)]
//! The newest receive of a short message, which is not posted at first: most often its message is
//! the next that comes, and to look for that is cheaper than to post a receive.
//!
//! It is posted before anything else that messages could match, and as soon as something comes that
//! is not for it, or is stored: receives match in the order in which the program posted them.
//!
//! **Invariant.** The program's part is kept by it until the operation has ended.

use std::ptr;

use pinfold::{Error, Received, Source, TagMatch};

use crate::{
    buffer::Memory,
    ffi::flags::FI_SOURCE,
    header::{self, Header},
    idle,
    op::Key,
    receive::Receive,
    state::Inside,
};

/// Bytes of the longest message that is looked for, its header included: it is copied once more.
pub const BYTES_MAX: usize = header::BYTES + ROOM_MAX;
const ROOM_MAX: usize = 504;

/// Looks after which it is posted.
const LOOKS_MAX: u32 = 256;
/// Looks between two turns of the library's.
const LOOKS_A_TURN: u32 = 4;

/// A receive that is not posted.
pub struct Newest {
    key: Key,
    source: Source,
    tag: TagMatch,
    /// The program's memory, whose address is that of the operation's event.
    room: usize,
    looks: u32,
}

impl Newest {
    pub fn new(key: Key, source: Source, receive: &Receive<'_>) -> Newest {
        let room = receive.parts.first().map_or(0, |part| part.iov_len);
        Newest { key, source, tag: receive.tag, room, looks: 0 }
    }
}

impl Inside<'_> {
    /// Returns whether a receive may stay unposted: its thread polls, and nothing is before it.
    pub fn may_be_newest(&self, receive: &Receive<'_>) -> bool {
        let is_short = match receive.parts {
            [] => true,
            [part] => part.iov_len <= ROOM_MAX,
            _ => false,
        };
        let polls = |side: &crate::state::Side| side.cq.as_ref().is_some_and(|cq| cq.only_polls());
        is_short
            && self.state.deferred.is_empty()
            && polls(&self.state.rx)
            && self.ep.domain.driver.is_none()
            && !self.has_stored()
    }

    /// Returns whether the library stores messages: one of them may be for the newest receive, and
    /// is found by those that are posted alone.
    fn has_stored(&self) -> bool {
        self.state.endpoint.has_stored().unwrap_or(true)
    }

    /// Takes the message of the newest receive, if it is the next. Returns whether that is all for
    /// this turn.
    #[inline]
    pub fn take_newest(&mut self) -> bool {
        if !self.state.parked.is_empty() {
            // Its message may be one of those behind them.
            self.post_newest();
        }
        let state = &mut *self.state;
        let Some(newest) = &mut state.newest else { return false };
        newest.looks += 1;
        let (key, room) = (newest.key, newest.room);
        let into = &mut state.short[..header::BYTES + room];
        let result = match state.endpoint.try_recv_into(newest.source, newest.tag, into) {
            Ok(Some(received)) => Ok(received),
            Err(error @ Error::Truncated { .. }) => Err(error),
            // Its end is that of a posted one.
            Err(_) => {
                self.post_newest();
                return true;
            }
            Ok(None) => {
                let is_over = !newest.looks.is_multiple_of(LOOKS_A_TURN);
                // A call that made progress may have stored its message.
                if !is_over && self.has_stored() {
                    self.post_newest();
                }
                return is_over;
            }
        };
        self.end_newest(key, room, result);
        true
    }

    fn end_newest(&mut self, key: Key, room: usize, result: Result<Received, Error>) {
        self.state.newest = None;
        idle::end();
        if self.ep.caps & FI_SOURCE != 0
            && let Ok(Received { peer, .. }) | Err(Error::Truncated { peer, .. }) = &result
        {
            self.hear_greeting(*peer);
        }
        let Some(op) = self.state.ops.remove(key) else { return };
        let placed = match &result {
            Ok(received) => received.len as usize,
            Err(_) => header::BYTES + room,
        };
        let header = self.state.short.first_chunk().copied().filter(|_| placed >= header::BYTES);
        let len = placed.saturating_sub(header::BYTES).min(room);
        if len > 0 {
            let from = self.state.short[header::BYTES..].as_ptr();
            // SAFETY: the program's part has that room, and the other is at least as long.
            unsafe { ptr::copy_nonoverlapping(from, op.event.buf as *mut u8, len) };
        }
        self.end_receive(&op, result, header.map(Header::read).unwrap_or_default());
    }

    /// Posts the newest receive, if it is not yet.
    pub fn post_newest(&mut self) {
        let Some(newest) = self.state.newest.take() else { return };
        let Some(op) = self.state.ops.get(newest.key) else { return };
        let iov_base = ptr::with_exposed_provenance_mut(op.event.buf);
        let part = libc::iovec { iov_base, iov_len: newest.room };
        // SAFETY: libfabric has the program leave its part until the operation has ended.
        let memory = unsafe { Memory::new(Header::default(), &[part]) };
        self.post_one(newest.key, newest.source, newest.tag, memory);
    }

    /// Posts the newest receive if something came that was not for it, or nothing for long.
    pub fn look_after_newest(&mut self, moved: bool) {
        if self.state.newest.as_ref().is_some_and(|it| moved || it.looks >= LOOKS_MAX) {
            self.post_newest();
        }
    }
}

#[cfg(test)]
mod tests;
