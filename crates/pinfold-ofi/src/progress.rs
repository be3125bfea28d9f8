#![allow(unsafe_code)]
//! Progress: what has ended in the library is told to the program.
//!
//! **Invariant.** Of a buffer for many messages, only the headers of messages that are complete are
//! read, before the program is told of them.

use pinfold::{Completed, Completion, Error, PeerId, Received};

use crate::{
    buffer::{Memory, Whole},
    cq::{Event, Failure},
    ffi::flags::*,
    guard::Code,
    header::{self, Header},
    idle,
    op::{Key, Kind, Op},
    state::{Inside, code},
};

/// Completions that are taken at a time.
const BATCH: usize = 64;

/// Turns after which the library makes progress even if messages are always there, and after which
/// news that other threads have brought are looked at.
const LOOK_AROUND_TURNS: u32 = 16;

/// Turns between two looks at peers whose word is awaited.
const LOOK_TURNS: u32 = 256;

impl Inside<'_> {
    /// A turn of progress.
    pub fn turn(&mut self) {
        self.state.turns = self.state.turns.wrapping_add(1);
        let looks_around = self.state.turns.is_multiple_of(LOOK_AROUND_TURNS);
        let mut ended = self.take_ended();
        let is_over = ended > 0 || self.state.newest.is_some() && self.take_newest();
        if !is_over || looks_around {
            let (taken, moved) = self.make_progress();
            ended += taken;
            self.look_after_newest(moved);
            if moved || looks_around {
                self.turn_memory();
            }
        }
        self.lower_fence();
        self.post_deferred();
        // The newest receive says so itself.
        if ended > 0 {
            idle::end();
        }
        if !self.state.unconfirmed.is_empty() && self.state.turns.is_multiple_of(LOOK_TURNS) {
            self.fail_unconfirmed();
        }
    }

    /// Tells the program of what has ended in the library. Returns how much that was.
    pub fn take_ended(&mut self) -> usize {
        let mut ended = 0;
        loop {
            let taken = self.ep.queue.take(&mut self.state.batch, BATCH);
            if taken == 0 {
                return ended;
            }
            ended += taken;
            self.tell_batch();
        }
    }

    /// Tells the program of a batch.
    fn tell_batch(&mut self) {
        let mut batch = std::mem::take(&mut self.state.batch);
        batch.drain(..).for_each(|completion| self.ended(completion));
        self.state.batch = batch;
    }

    /// Has the library make progress. Returns how much has ended, and whether anything was done.
    fn make_progress(&mut self) -> (usize, bool) {
        let state = &mut *self.state;
        // An error in a forked child.
        let turn = self.ep.queue.poll_of(&state.endpoint, &mut state.batch, BATCH);
        let (taken, moved) = turn.unwrap_or_default();
        if taken == 0 {
            return (0, moved);
        }
        self.tell_batch();
        (taken + self.take_ended(), moved)
    }

    /// An operation has ended in the library.
    fn ended(&mut self, completion: Completion) {
        let key = Key::of(completion.context);
        let Some(op) = self.state.ops.get(key) else { return };
        match op.kind {
            Kind::Receive | Kind::Multi(_) => self.received(key, completion),
            Kind::Confirmed(ref mut state) if completion.result.is_ok() => {
                state.is_sent = true;
                self.end_confirmed(key);
            }
            _ => {
                if let Some(op) = self.state.ops.remove(key) {
                    self.other_ended(key, op, completion);
                }
            }
        }
    }

    /// An operation that is no receive has ended; it is off the table.
    fn other_ended(&mut self, key: Key, op: Op, completion: Completion) {
        match op.kind {
            Kind::Send | Kind::Confirmed(_) => {
                self.state.unconfirmed.retain(|other| *other != key);
                match completion.result {
                    Ok(_) => self.report(&op, Ok(op.event)),
                    Err(error) => {
                        self.lose(&error);
                        self.fail(&op, code(&error));
                    }
                }
            }
            Kind::Silent => {
                if let Err(error) = completion.result {
                    self.lose(&error);
                }
            }
            Kind::Dial { contact, way } => {
                let result = completion.result.and_then(|completed| match completed {
                    Completed::Connected(peer) => Ok(peer),
                    _ => Err(Error::Cancelled),
                });
                self.dialled(contact, way, result);
            }
            // The caller says who it is by its first message.
            Kind::Accept => match completion.result {
                Err(Error::Closed | Error::Forked | Error::Cancelled) => {}
                _ => self.accept(),
            },
            Kind::Own => match completion.result {
                Ok(Completed::Message(message)) => {
                    self.await_own();
                    self.heard(message.peer(), &message);
                }
                Err(Error::Closed | Error::Forked | Error::Cancelled) => {}
                _ => self.await_own(),
            },
            Kind::Other(_) => {
                let Op { kind, event, reports, sequence } = op;
                if let Kind::Other(finish) = kind {
                    let op = Op { kind: Kind::Silent, event, reports, sequence };
                    finish(self, op, completion);
                }
            }
            Kind::Receive | Kind::Multi(_) => {}
        }
    }

    /// Forgets connections that are gone, of which an error may tell.
    fn lose(&mut self, error: &Error) {
        if matches!(error, Error::PeerGone { .. } | Error::UnknownPeer { .. }) {
            let endpoint = self.state.endpoint.clone();
            self.state.contacts.lose_all(|peer| endpoint.peer(peer).is_none());
        }
    }

    /// A receive has got a message, or has ended.
    fn received(&mut self, key: Key, completion: Completion) {
        if self.ep.caps & FI_SOURCE != 0
            && let Some(peer) = sender(&completion)
            && self.state.contacts.of_peer(peer).is_none()
        {
            // Its greeting comes first, but may be taken after it.
            self.state.parked.push_back((key, completion));
            return;
        }
        self.deliver(key, completion);
    }

    /// Takes what has ended if a peer, of which a message is here, has not said who it is: its
    /// greeting came before the message, and may have come by the same look.
    pub fn hear_greeting(&mut self, peer: PeerId) {
        if self.state.contacts.of_peer(peer).is_none() {
            self.take_ended();
        }
    }

    /// Messages of a peer that has said who it is are delivered.
    pub fn unpark(&mut self) {
        for (key, completion) in std::mem::take(&mut self.state.parked) {
            self.received(key, completion);
        }
    }

    fn deliver(&mut self, key: Key, mut completion: Completion) {
        let Some(op) = self.state.ops.get(key) else { return };
        if let Kind::Multi(at) = op.kind {
            self.deliver_one_of_many(key, at, completion);
            return;
        }
        let header = completion.take_buffer::<Memory>().map(|memory| memory.header());
        let header = header.unwrap_or_default();
        let Some(op) = self.state.ops.remove(key) else { return };
        match completion.result {
            Ok(Completed::Received(received)) => self.end_receive(&op, Ok(received), header),
            Ok(_) => self.fail(&op, Code::OTHER),
            Err(error) => self.end_receive(&op, Err(error), header),
        }
    }

    /// Tells the program of the end of a receive of one message, which is off the table.
    pub fn end_receive(&mut self, op: &Op, result: Result<Received, Error>, header: Header) {
        match result {
            Ok(Received { peer, tag, len, .. }) => {
                let event = self.arrived(op.event, peer, tag, len, header);
                self.confirm(peer, header);
                self.report(op, Ok(event));
            }
            Err(Error::Truncated { len, capacity, peer, tag, .. }) => {
                let event = self.arrived(op.event, peer, tag, capacity, header);
                self.confirm(peer, header);
                let beyond = len.saturating_sub(capacity) as usize;
                self.report(op, Err(Failure { event, code: Code(FI_ETRUNC), beyond }));
            }
            Err(error) => {
                self.lose(&error);
                self.fail(op, code(&error));
            }
        }
    }

    /// A message has come into a buffer for many, or it takes no more.
    fn deliver_one_of_many(&mut self, key: Key, at: usize, completion: Completion) {
        let message = match completion.result {
            Ok(Completed::MultiReceived(message)) => message,
            Ok(_) => return self.fail_key(key, Code::OTHER),
            Err(error) => {
                self.lose(&error);
                return self.fail_key(key, code(&error));
            }
        };
        let (start, placed) = (message.range.start, message.range.len());
        let is_whole = placed >= header::BYTES && placed as u64 == message.len;
        let header = if placed >= header::BYTES {
            // SAFETY: complete, and the program has not been told.
            unsafe { Whole::header(at as *const u8, start) }
        } else {
            Header::default()
        };
        let Some(op) = self.state.ops.get(key) else { return };
        let (mut event, reports) = (op.event, op.reports);
        event.buf = at + start + header::BYTES;
        if !message.is_last {
            event.flags &= !FI_MULTI_RECV;
        }
        let event = self.arrived(event, message.peer, message.tag, placed as u64, header);
        self.confirm(message.peer, header);
        if message.is_last {
            self.state.ops.remove(key);
        }
        let result = match message.result {
            Ok(_) if is_whole => Ok(event),
            Err(Error::Truncated { .. }) | Ok(_) => {
                let beyond = (message.len as usize).saturating_sub(placed);
                Err(Failure { event, code: Code(FI_ETRUNC), beyond })
            }
            Err(error) => Err(Failure { event, code: code(&error), beyond: 0 }),
        };
        self.report_as(event.flags, reports, result);
    }

    /// The event that tells the program of a message that has come.
    fn arrived(&mut self, event: Event, peer: PeerId, tag: u64, len: u64, header: Header) -> Event {
        let source = match self.state.contacts.of_peer(peer) {
            Some(contact) if self.ep.caps & FI_SOURCE != 0 => self.number_of(contact),
            _ => FI_ADDR_UNSPEC,
        };
        Event {
            len: (len as usize).saturating_sub(header::BYTES),
            tag: if event.flags & FI_TAGGED != 0 { tag & header::TAG_BITS } else { 0 },
            data: u64::from(header.data.unwrap_or(0)),
            flags: event.flags | if header.data.is_some() { FI_REMOTE_CQ_DATA } else { 0 },
            source,
            ..event
        }
    }
}

/// The sender of a message that has come.
fn sender(completion: &Completion) -> Option<PeerId> {
    match &completion.result {
        Ok(Completed::Received(received)) => Some(received.peer),
        Ok(Completed::MultiReceived(message)) => Some(message.peer),
        Err(Error::Truncated { peer, .. }) => Some(*peer),
        _ => None,
    }
}
