//! Calling contacts, and the provider's own messages: greetings and confirmations.

use pinfold::{PeerId, Source, TagMatch};

use crate::{
    address::{self, Address},
    contacts::{Dial, Next},
    cq::Event,
    guard::Code,
    header::{self, Header},
    op::{Key, Kind},
    state::{Inside, code},
};

/// Receives of own messages that are posted at a time.
const POSTED: usize = 8;

const GREETING: u32 = 1;
const CONFIRMATION: u32 = 2;

/// A message of the provider's own.
#[derive(Debug, PartialEq, Eq)]
pub enum Own {
    /// The address of its sender, which uses this connection from now on.
    Greeting(Address),
    /// The message with this number has arrived.
    Confirmation(u32),
}

impl Own {
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Own::Greeting(address) => {
                let mut bytes = GREETING.to_le_bytes().to_vec();
                bytes.extend_from_slice(address.bytes());
                bytes
            }
            Own::Confirmation(number) => {
                [CONFIRMATION, *number].iter().flat_map(|word| word.to_le_bytes()).collect()
            }
        }
    }

    pub fn read(bytes: &[u8]) -> Option<Own> {
        let (kind, rest) = bytes.split_first_chunk::<4>()?;
        match u32::from_le_bytes(*kind) {
            GREETING if rest.len() == address::BYTES => Address::read(rest).map(Own::Greeting),
            CONFIRMATION => Some(Own::Confirmation(u32::from_le_bytes(rest.try_into().ok()?))),
            _ => None,
        }
    }
}

impl Inside<'_> {
    /// Begins to be reachable: takes calls, and own messages.
    pub fn open_doors(&mut self) {
        self.accept();
        for _ in 0..POSTED {
            self.await_own();
        }
    }

    pub fn accept(&mut self) {
        let key = self.state.ops.insert(Kind::Accept, Event::default(), false);
        let request = self.state.endpoint.accept_request();
        self.queue().add(key.number(), request);
    }

    pub fn await_own(&mut self) {
        let key = self.state.ops.insert(Kind::Own, Event::default(), false);
        let tag = TagMatch::exact(header::OWN);
        let request = self.state.endpoint.recv_request(Source::Any, tag);
        self.queue().add(key.number(), request);
    }

    /// Calls a contact, by the way with this number.
    pub fn dial(&mut self, contact: usize, way: usize) {
        let it = self.state.contacts.get(contact);
        let Some(address) = it.address.ways().into_iter().nth(way) else {
            it.dial = Dial::Failed(Code(libc::EHOSTUNREACH));
            return;
        };
        it.dial = Dial::Under;
        let kind = Kind::Dial { contact, way };
        let key = self.state.ops.insert(kind, Event::default(), false);
        let request = self.state.endpoint.connect_request(&address);
        self.queue().add(key.number(), request);
    }

    /// A call has ended.
    pub fn dialled(&mut self, contact: usize, way: usize, result: pinfold::Result<PeerId>) {
        match result {
            Ok(peer) => {
                self.state.contacts.connected(contact, peer);
                self.greet(peer);
            }
            Err(error) => {
                tracing::debug!(%error, "a call of libfabric's failed");
                self.dial(contact, way + 1);
                let it = self.state.contacts.get(contact);
                if it.dial == Dial::Failed(Code(libc::EHOSTUNREACH)) {
                    it.dial = Dial::Failed(code(&error));
                }
            }
        }
    }

    fn greet(&mut self, peer: PeerId) {
        let address = self.state.address;
        self.tell(peer, &Own::Greeting(address));
    }

    /// Tells a sender that its message has arrived, if it wants to know.
    pub fn confirm(&mut self, peer: PeerId, header: Header) {
        if let Some(number) = header.ack {
            self.tell(peer, &Own::Confirmation(number));
        }
    }

    fn tell(&mut self, peer: PeerId, own: &Own) {
        let key = self.state.ops.insert(Kind::Silent, Event::default(), false);
        let request = self.state.endpoint.send_owned(peer, header::OWN, own.bytes());
        self.queue().add(key.number(), request);
    }

    /// A message of a peer's provider has come.
    pub fn heard(&mut self, peer: PeerId, bytes: &[u8]) {
        match Own::read(bytes) {
            Some(Own::Greeting(address)) => {
                let contact = self.state.contacts.of_address(address);
                if let Some(to) = self.state.contacts.get(contact).to
                    && self.state.endpoint.peer(to).is_none()
                {
                    // It is gone, and nothing was sent since: the other side made a new one.
                    self.state.contacts.lost(to);
                }
                if self.state.contacts.greeted(peer, address) == Next::GreetBack {
                    self.greet(peer);
                }
                self.unpark();
            }
            Some(Own::Confirmation(number)) => {
                if let Some(key) = self.state.ops.at(number) {
                    self.confirmed(key, peer);
                }
            }
            None => tracing::warn!(?peer, "a message of its provider that means nothing"),
        }
    }

    /// The receiver of a send confirms that it has come.
    fn confirmed(&mut self, key: Key, by: PeerId) {
        let Some(op) = self.state.ops.get(key) else { return };
        let Kind::Confirmed(state) = &mut op.kind else { return };
        if state.peer != by {
            return;
        }
        state.is_confirmed = true;
        self.end_confirmed(key);
    }

    /// Ends a send that is both done and confirmed.
    pub fn end_confirmed(&mut self, key: Key) {
        let Some(op) = self.state.ops.get(key) else { return };
        if !matches!(&op.kind, Kind::Confirmed(it) if it.is_sent && it.is_confirmed) {
            return;
        }
        self.state.unconfirmed.retain(|other| *other != key);
        if let Some(op) = self.state.ops.remove(key) {
            self.report(&op, Ok(op.event));
        }
    }

    /// Fails the sends whose receivers are gone before they could confirm.
    pub fn fail_unconfirmed(&mut self) {
        let keys = self.state.unconfirmed.clone();
        for key in keys {
            let Some(op) = self.state.ops.get(key) else { continue };
            let Kind::Confirmed(state) = op.kind else { continue };
            if state.is_sent && self.state.endpoint.peer(state.peer).is_none() {
                self.state.contacts.lost(state.peer);
                self.state.unconfirmed.retain(|other| *other != key);
                self.fail_key(key, Code(libc::ECONNRESET));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_messages_survive_their_bytes() {
        let greeting = Own::Greeting(Address::fresh().unwrap());
        for own in [greeting, Own::Confirmation(7)] {
            assert_eq!(Own::read(&own.bytes()), Some(own));
        }
        assert_eq!(Own::read(&[]), None);
        assert_eq!(Own::read(&[3, 0, 0, 0, 1, 2, 3, 4]), None);
        let cut = &Own::Confirmation(7).bytes()[..7];
        assert_eq!(Own::read(cut), None);
    }
}
