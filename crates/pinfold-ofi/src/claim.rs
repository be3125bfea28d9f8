#![allow(unsafe_code)]
//! Messages that have come before their receives: looked at (`FI_PEEK`), kept for one receive
//! (`FI_CLAIM`), dropped (`FI_DISCARD`).
//!
//! **Invariant.** The program's parts are kept by it until the operation has ended.

use std::collections::hash_map::Entry;

use pinfold::{Envelope, Source};

use crate::{
    buffer::Memory,
    cq::{Event, Failure},
    ffi::flags::*,
    guard::{Answer, Code},
    header::{self, Header},
    op::Kind,
    receive::Receive,
    send::length,
    state::Inside,
};

impl Inside<'_> {
    /// Looks for a message; the program is told of it, or that there is none.
    pub fn peek(&mut self, receive: &Receive<'_>) -> Answer {
        self.check()?;
        let event = Event {
            context: receive.context,
            flags: FI_RECV | FI_TAGGED | receive.flags & (FI_PEEK | FI_CLAIM),
            tag: receive.tag.tag(),
            source: FI_ADDR_UNSPEC,
            ..Event::default()
        };
        let contact = self.source(receive.from)?;
        self.post_newest();
        // Messages that have come by now are to be found.
        self.turn();
        let found = match self.library_source(contact) {
            Some(source) => self.find(source, receive)?,
            None => None,
        };
        let result = match found {
            Some((envelope, header)) => Ok(self.described(event, &envelope, header)),
            None => Err(Failure { event, code: Code(libc::ENOMSG), beyond: 0 }),
        };
        self.report_as(event.flags, self.state.rx.cq.is_some(), result);
        Ok(())
    }

    /// Finds a message whose first bytes are here, and does with it what the flags say.
    fn find(
        &mut self,
        source: Source,
        receive: &Receive<'_>,
    ) -> Answer<Option<(Envelope, Header)>> {
        let endpoint = &self.state.endpoint;
        let keeps = receive.flags & (FI_CLAIM | FI_DISCARD) != 0;
        if !keeps {
            let found = endpoint.try_probe(source, receive.tag).ok().flatten();
            let header = |it: Envelope| Some((it, Header::read(it.head?)));
            return Ok(found.and_then(header));
        }
        let Some(claimed) = endpoint.claim(source, receive.tag).ok().flatten() else {
            return Ok(None);
        };
        let envelope = claimed.envelope();
        // Without its first bytes the message is left for the next look.
        let Some(head) = envelope.head else { return Ok(None) };
        let header = Header::read(head);
        if receive.flags & FI_DISCARD != 0 {
            claimed.discard();
            self.confirm(envelope.peer, header);
        } else {
            match self.state.claims.entry(receive.context) {
                // Dropped, the message is found again.
                Entry::Occupied(_) => return Err(Code(libc::EALREADY)),
                Entry::Vacant(place) => place.insert(claimed),
            };
        }
        Ok(Some((envelope, header)))
    }

    /// The event that tells the program of a message that was found.
    fn described(&mut self, event: Event, envelope: &Envelope, header: Header) -> Event {
        self.hear_greeting(envelope.peer);
        let contact = self.state.contacts.of_peer(envelope.peer);
        Event {
            len: (envelope.len as usize).saturating_sub(header::BYTES),
            tag: envelope.tag & header::TAG_BITS,
            data: u64::from(header.data.unwrap_or(0)),
            flags: event.flags | if header.data.is_some() { FI_REMOTE_CQ_DATA } else { 0 },
            source: contact.map_or(FI_ADDR_UNSPEC, |contact| self.number_of(contact)),
            ..event
        }
    }

    /// Receives a message that was claimed with this context, or drops it.
    pub fn receive_claimed(&mut self, receive: &Receive<'_>) -> Answer {
        self.check()?;
        length(receive.parts)?;
        let claimed = self.state.claims.remove(&receive.context).ok_or(Code::INVALID)?;
        let event = Event {
            context: receive.context,
            flags: FI_RECV | FI_TAGGED | FI_CLAIM,
            buf: receive.parts.first().map_or(0, |part| part.iov_base as usize),
            source: FI_ADDR_UNSPEC,
            ..Event::default()
        };
        let reports = self.state.rx.reports(receive.flags);
        if receive.flags & FI_DISCARD != 0 {
            let envelope = claimed.envelope();
            let header = Header::read(envelope.head.unwrap_or_default());
            claimed.discard();
            self.confirm(envelope.peer, header);
            let event = self.described(event, &envelope, header);
            self.report_as(event.flags, reports, Ok(event));
            return Ok(());
        }
        let key = self.state.ops.insert(Kind::Receive, event, reports);
        // SAFETY: libfabric has the program leave its parts until the operation has ended.
        let memory = unsafe { Memory::new(Header::default(), receive.parts) };
        self.queue().add(key.number(), claimed.recv_owned(memory));
        Ok(())
    }
}
