#![allow(unsafe_code)]
//! Sends: short messages go at once out of the program's memory or a copy, long ones are left to
//! the library, which reads the program's memory until they have ended.
//!
//! **Invariant.** The program's parts are read within the call, or kept by it until the operation
//! has ended.

use std::io::IoSlice;

use pinfold::PeerId;

use crate::{
    attr,
    buffer::Memory,
    contacts::Dial,
    cq::Event,
    ffi::flags::*,
    guard::{Answer, Code},
    header::{self, Header},
    newest,
    op::{Confirmed, Key, Kind},
    state::{Inside, code},
};

/// A message to be sent.
pub struct Send<'a> {
    pub to: u64,
    /// The library's tag.
    pub tag: u64,
    pub data: Option<u64>,
    pub parts: &'a [libc::iovec],
    pub context: usize,
    /// The flags of the operation, those of the endpoint included.
    pub flags: u64,
}

impl Inside<'_> {
    /// The connection to a contact. If there is none, it is called, and the program tries again.
    pub fn connection(&mut self, contact: usize) -> Answer<PeerId> {
        let it = self.state.contacts.get(contact);
        if let Some(peer) = it.to {
            return Ok(peer);
        }
        match it.dial {
            Dial::Failed(code) => {
                it.dial = Dial::No;
                return Err(code);
            }
            Dial::No => self.dial(contact, 0),
            Dial::Under => {}
        }
        Err(Code::AGAIN)
    }

    /// Sends a message. `FI_EAGAIN`: nothing was sent; the program is to make progress first.
    pub fn send(&mut self, send: &Send<'_>) -> Answer {
        self.check()?;
        let len = length(send.parts)?;
        let injects = send.flags & FI_INJECT != 0;
        if len > attr::MESSAGE_BYTES_MAX || injects && len > attr::INJECT_BYTES_MAX {
            return Err(Code(libc::EMSGSIZE));
        }
        let reports = self.state.tx.reports(send.flags);
        let is_busy = self.state.ops.sends >= self.state.tx.size
            || reports && self.state.tx.cq.as_ref().is_some_and(|cq| cq.is_full(self.held))
            || self.state.fence.is_up();
        if is_busy {
            return self.again();
        }
        let contact = self.contact(send.to)?;
        let peer = match self.connection(contact) {
            Err(Code::AGAIN) => return self.again(),
            other => other?,
        };
        let untagged = send.tag & !header::TAG_BITS != 0;
        let event = Event {
            context: send.context,
            flags: FI_SEND | if untagged { FI_MSG } else { FI_TAGGED },
            ..Event::default()
        };
        if send.flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE) != 0 {
            return self.send_confirmed(send, peer, event, reports);
        }
        let header = Header { data: send.data.map(|data| data as u32), ack: None };
        let is_fenced = send.flags & FI_FENCE != 0 && self.state.ops.sends > 0;
        if !is_fenced && self.send_short(peer, send.tag, header, send.parts, len)? {
            self.report_as(event.flags, reports, Ok(event));
            return Ok(());
        }
        let key = self.state.ops.insert(Kind::Send, event, reports);
        self.send_long(peer, send, header, injects, key)
    }

    /// Makes progress, and has the program try again.
    fn again(&mut self) -> Answer {
        self.turn();
        Err(Code::AGAIN)
    }

    /// Sends a message that is confirmed by its receiver.
    fn send_confirmed(
        &mut self,
        send: &Send<'_>,
        peer: PeerId,
        event: Event,
        reports: bool,
    ) -> Answer {
        let confirmed = Confirmed { peer, is_sent: false, is_confirmed: false };
        let key = self.state.ops.insert(Kind::Confirmed(confirmed), event, reports);
        self.state.unconfirmed.push(key);
        let ack = Some(key.place() & header::ACK_BITS);
        let header = Header { data: send.data.map(|data| data as u32), ack };
        self.send_long(peer, send, header, send.flags & FI_INJECT != 0, key)
    }

    /// Sends a message if it is short and can go now.
    fn send_short(
        &mut self,
        peer: PeerId,
        tag: u64,
        header: Header,
        parts: &[libc::iovec],
        len: usize,
    ) -> Answer<bool> {
        if len > attr::INJECT_BYTES_MAX {
            return Ok(false);
        }
        let bytes = header.bytes();
        let state = &mut *self.state;
        let sent = if header::BYTES + len <= newest::BYTES_MAX {
            // In one part it costs the library less than the copy does.
            let mut filled = header::BYTES;
            state.short[..filled].copy_from_slice(&bytes);
            for part in slices(parts) {
                state.short[filled..filled + part.len()].copy_from_slice(part);
                filled += part.len();
            }
            state.endpoint.try_send(peer, tag, &state.short[..filled])
        } else {
            let mut list = [IoSlice::new(&[]); attr::PARTS_MAX + 1];
            list[0] = IoSlice::new(&bytes);
            let mut count = 1;
            for part in slices(parts) {
                list[count] = IoSlice::new(part);
                count += 1;
            }
            state.endpoint.try_send_vectored(peer, tag, &list[..count])
        };
        match sent {
            Ok(sent) => Ok(sent),
            // The pair has no ring: the other paths may do.
            Err(pinfold::Error::PathRefused { .. }) => Ok(false),
            Err(error) => {
                self.note_loss(peer, &error);
                Err(code(&error))
            }
        }
    }

    /// Leaves a message to the library, out of a copy if the program wants its memory back.
    fn send_long(
        &mut self,
        peer: PeerId,
        send: &Send<'_>,
        header: Header,
        copies: bool,
        key: Key,
    ) -> Answer {
        let memory = if copies {
            // The header stays a part of its own: the receiver knows it before the rest.
            let parts: Vec<&[u8]> = slices(send.parts).collect();
            Memory::copied(header, parts.concat())
        } else {
            // SAFETY: libfabric has the program leave its parts until the operation has ended.
            unsafe { Memory::new(header, send.parts) }
        };
        let tag = send.tag;
        self.begin(send.flags, move |inside| {
            let request = inside.state.endpoint.send_owned(peer, tag, memory);
            inside.queue().add(key.number(), request);
        });
        Ok(())
    }

    /// A connection that an operation failed on may be gone.
    pub fn note_loss(&mut self, peer: PeerId, error: &pinfold::Error) {
        use pinfold::Error as E;
        if matches!(error, E::PeerGone { .. } | E::UnknownPeer { .. }) {
            self.state.contacts.lost(peer);
        }
    }
}

/// The length of a message in parts.
pub fn length(parts: &[libc::iovec]) -> Answer<usize> {
    if parts.len() > attr::PARTS_MAX {
        return Err(Code::INVALID);
    }
    let mut len = 0usize;
    for part in parts {
        if part.iov_base.is_null() && part.iov_len > 0 {
            return Err(Code::INVALID);
        }
        len = len.checked_add(part.iov_len).ok_or(Code(libc::EMSGSIZE))?;
    }
    Ok(len)
}

/// The program's bytes, for the call.
fn slices<'a>(parts: &'a [libc::iovec]) -> impl Iterator<Item = &'a [u8]> + 'a {
    parts.iter().filter(|part| part.iov_len > 0).map(|part| {
        // SAFETY: memory that the program has handed over for the call.
        unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) }
    })
}
