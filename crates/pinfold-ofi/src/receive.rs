#![allow(unsafe_code)]
//! Receives: posted to the library, which matches. One that is directed at a contact from which no
//! connection leads here yet waits, and so do later ones that could take the same messages.
//!
//! **Invariant.** The program's parts are kept by it until the operation has ended.

use pinfold::{Source, TagMatch};

use crate::{
    buffer::{Memory, Whole},
    contacts::Dial,
    cq::Event,
    ffi::flags::*,
    guard::{Answer, Code},
    header::{self, Header},
    newest::Newest,
    op::{Key, Kind},
    send::length,
    state::Inside,
};

/// A receive to be posted.
pub struct Receive<'a> {
    pub from: u64,
    /// The library's tag.
    pub tag: TagMatch,
    pub parts: &'a [libc::iovec],
    pub context: usize,
    pub flags: u64,
}

/// A receive that is not posted yet.
pub struct Deferred {
    key: Key,
    /// The contact that it is directed at.
    source: Option<usize>,
    tag: TagMatch,
    memory: Into,
}

/// The memory of a receive.
pub enum Into {
    One(Memory),
    /// That many bytes at least are to be left for the next message.
    Many(Whole, usize),
}

impl Deferred {
    /// True if a message could be for both.
    fn overlaps(&self, source: Option<usize>, tag: TagMatch) -> bool {
        let sources = self.source.is_none() || source.is_none() || self.source == source;
        sources && overlap(self.tag, tag)
    }
}

/// True if both accept some tag.
fn overlap(one: TagMatch, other: TagMatch) -> bool {
    (one.tag() ^ other.tag()) & !(one.ignore() | other.ignore()) == 0
}

impl Inside<'_> {
    /// Posts a receive.
    pub fn receive(&mut self, receive: &Receive<'_>) -> Answer {
        self.check()?;
        if self.state.ops.receives >= self.state.rx.size {
            self.turn();
            if self.state.ops.receives >= self.state.rx.size {
                return Err(Code::AGAIN);
            }
        }
        length(receive.parts)?;
        let source = self.source(receive.from)?;
        self.post_newest();
        let is_untagged = receive.tag.tag() & !header::TAG_BITS != 0;
        let mut event = Event {
            context: receive.context,
            flags: FI_RECV | if is_untagged { FI_MSG } else { FI_TAGGED },
            buf: receive.parts.first().map_or(0, |part| part.iov_base as usize),
            source: FI_ADDR_UNSPEC,
            ..Event::default()
        };
        let reports = self.state.rx.reports(receive.flags);
        let (kind, memory) = if receive.flags & FI_MULTI_RECV != 0 {
            let [part] = receive.parts else { return Err(Code::INVALID) };
            let (at, len) = (part.iov_base.cast::<u8>(), part.iov_len);
            let min_free = self.state.min_multi_recv + header::BYTES;
            event.flags |= FI_MULTI_RECV;
            (Kind::Multi(at as usize), Into::Many(Whole { at, len }, min_free.min(len)))
        } else if self.may_be_newest(receive)
            && let Some(from) = self.library_source(source)
        {
            let key = self.state.ops.insert(Kind::Receive, event, reports);
            self.state.newest = Some(Newest::new(key, from, receive));
            return Ok(());
        } else {
            // SAFETY: libfabric has the program leave its parts until the operation has ended.
            let memory = unsafe { Memory::new(Header::default(), receive.parts) };
            (Kind::Receive, Into::One(memory))
        };
        let key = self.state.ops.insert(kind, event, reports);
        self.post_in_turn(Deferred { key, source, tag: receive.tag, memory });
        Ok(())
    }

    /// The contact that a receive is directed at, if the endpoint has such receives.
    pub fn source(&mut self, from: u64) -> Answer<Option<usize>> {
        if from == FI_ADDR_UNSPEC || self.ep.caps & FI_DIRECTED_RECV == 0 {
            return Ok(None);
        }
        self.contact(from).map(Some)
    }

    /// Posts a receive, or has it wait for those before it.
    fn post_in_turn(&mut self, receive: Deferred) {
        let waits = |it: &Deferred| it.overlaps(receive.source, receive.tag);
        let is_behind = self.state.deferred.iter().any(waits);
        match self.library_source(receive.source) {
            Some(source) if !is_behind => self.post(source, receive.tag, receive),
            _ => {
                if let Some(contact) = receive.source {
                    self.call_for(contact);
                }
                self.state.deferred.push_back(receive);
            }
        }
    }

    /// The library's source for a contact, or for anybody. `None`: it is not known yet.
    pub fn library_source(&mut self, source: Option<usize>) -> Option<Source> {
        match source {
            None => Some(Source::Any),
            Some(contact) => self.state.contacts.get(contact).from.map(Source::Peer),
        }
    }

    /// Has a contact say on which connection its messages come.
    fn call_for(&mut self, contact: usize) {
        let it = self.state.contacts.get(contact);
        if it.to.is_none() && it.dial != Dial::Under {
            self.dial(contact, 0);
        }
    }

    fn post(&mut self, source: Source, tag: TagMatch, receive: Deferred) {
        match receive.memory {
            Into::One(memory) => self.post_one(receive.key, source, tag, memory),
            Into::Many(whole, min_free) => {
                let request = self.state.endpoint.multi_recv(source, tag, whole, min_free);
                self.queue().add(receive.key.number(), request);
            }
        }
    }

    /// Posts a receive of one message.
    pub fn post_one(&self, key: Key, source: Source, tag: TagMatch, memory: Memory) {
        self.queue().add(key.number(), self.state.endpoint.recv_owned(source, tag, memory));
    }

    /// Posts the receives whose turn has come.
    pub fn post_deferred(&mut self) {
        if self.state.deferred.is_empty() {
            return;
        }
        let mut all = std::mem::take(&mut self.state.deferred);
        while let Some(receive) = all.pop_front() {
            if let Some(contact) = receive.source
                && let Some(code) = self.unreachable(contact)
            {
                self.fail_key(receive.key, code);
                continue;
            }
            let waits = |it: &&Deferred| it.overlaps(receive.source, receive.tag);
            let is_behind = self.state.deferred.iter().any(|it| waits(&it));
            match self.library_source(receive.source) {
                Some(source) if !is_behind => self.post(source, receive.tag, receive),
                Some(Source::Any) => match self.message_for(&receive) {
                    Some((peer, tag)) => self.post(Source::Peer(peer), tag, receive),
                    None => self.state.deferred.push_back(receive),
                },
                _ => self.state.deferred.push_back(receive),
            }
        }
    }

    /// A message that no receive before this one can take, although some of them wait.
    fn message_for(&mut self, receive: &Deferred) -> Option<(pinfold::PeerId, TagMatch)> {
        let found = self.state.endpoint.try_probe(Source::Any, receive.tag).ok()??;
        let contact = self.state.contacts.of_peer(found.peer)?;
        let tag = TagMatch::exact(found.tag);
        let is_taken = self.state.deferred.iter().any(|it| it.overlaps(Some(contact), tag));
        (!is_taken).then_some((found.peer, tag))
    }

    /// The error of a contact that receives wait for, if it cannot be reached.
    fn unreachable(&mut self, contact: usize) -> Option<Code> {
        let it = self.state.contacts.get(contact);
        if it.from.is_some() {
            return None;
        }
        match (it.dial, it.to) {
            (Dial::Failed(code), _) => Some(code),
            (Dial::Under, _) => None,
            (Dial::No, Some(peer)) => {
                if self.state.endpoint.peer(peer).is_some() {
                    return None;
                }
                self.state.contacts.lost(peer);
                Some(Code(libc::ECONNRESET))
            }
            (Dial::No, None) => Some(Code(libc::ECONNRESET)),
        }
    }

    /// Ends a receive that nothing has matched. `false`: there is none with this context.
    pub fn cancel(&mut self, context: usize) -> bool {
        self.post_newest();
        let Some(key) = self.state.ops.receive_of(context) else { return false };
        let waits = self.state.deferred.iter().position(|it| it.key == key);
        if let Some(at) = waits {
            self.state.deferred.remove(at);
            self.fail_key(key, Code(libc::ECANCELED));
        } else {
            self.queue().cancel(key.number());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_say_which_receives_compete() {
        let (one, two) = (TagMatch::exact(1), TagMatch::exact(2));
        assert!(!overlap(one, two));
        assert!(overlap(one, TagMatch::any()));
        assert!(overlap(TagMatch::masked(0x10, 0xf), TagMatch::exact(0x17)));
        assert!(!overlap(TagMatch::masked(0x10, 0xf), TagMatch::exact(0x27)));
        assert!(overlap(TagMatch::masked(0x10, 0xf), TagMatch::masked(0x07, 0xf0)));
    }
}
