//! The endpoints that this one talks to, by address: which connections lead there. No I/O.
//!
//! A side that wants to send calls, and says who it is by a greeting, the first message on each
//! connection that it uses. A pair that call each other at the same time have two connections, and
//! each side sends on the one it made: neither has to yield. Otherwise both use the same.

use pinfold::PeerId;
use rustc_hash::FxHashMap;

use crate::{
    address::Address,
    av::Table,
    guard::{Answer, Code},
};

/// An endpoint that this one talks to.
pub struct Contact {
    pub address: Address,
    /// The connection on which messages go there.
    pub to: Option<PeerId>,
    /// The connection on which messages come from there.
    pub from: Option<PeerId>,
    pub dial: Dial,
    /// Its number, and of which edition of the table.
    number: (u64, u64),
}

/// The state of calling a contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dial {
    No,
    Under,
    Failed(Code),
}

/// The step that a greeting asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: the other side knows this one, or will.
    Nothing,
    /// The other side is to be greeted on the same connection.
    GreetBack,
}

/// All of them.
#[derive(Default)]
pub struct Contacts {
    all: Vec<Contact>,
    by_address: FxHashMap<Address, usize>,
    by_peer: FxHashMap<PeerId, usize>,
    /// The contacts of numbers, and of which edition of the table.
    by_number: Vec<(u64, usize)>,
}

impl Contacts {
    pub fn get(&mut self, contact: usize) -> &mut Contact {
        &mut self.all[contact]
    }

    /// The contact with this address.
    pub fn of_address(&mut self, address: Address) -> usize {
        *self.by_address.entry(address).or_insert_with(|| {
            let number = (u64::MAX, 0);
            self.all.push(Contact { address, to: None, from: None, dial: Dial::No, number });
            self.all.len() - 1
        })
    }

    /// The contact with this number, which the table must have.
    pub fn of_number(&mut self, table: &Table, number: u64) -> Answer<usize> {
        let place = number as usize;
        if let Some(&(epoch, contact)) = self.by_number.get(place)
            && epoch == table.epoch
        {
            return Ok(contact);
        }
        let address = table.address(number).ok_or(Code::INVALID)?;
        let contact = self.of_address(address);
        if self.by_number.len() <= place {
            self.by_number.resize(place + 1, (u64::MAX, 0));
        }
        self.by_number[place] = (table.epoch, contact);
        Ok(contact)
    }

    /// The contact at the other end of a connection, if it has said who it is.
    pub fn of_peer(&self, peer: PeerId) -> Option<usize> {
        self.by_peer.get(&peer).copied()
    }

    /// The number of a contact in the table, if it has one.
    pub fn number(&mut self, table: &Table, contact: usize) -> Option<u64> {
        let contact = &mut self.all[contact];
        if contact.number.0 != table.epoch {
            let number = table.number(&contact.address).unwrap_or(u64::MAX);
            contact.number = (table.epoch, number);
        }
        Some(contact.number.1).filter(|&number| number != u64::MAX)
    }

    /// A contact was called, and is connected: it is to be greeted.
    pub fn connected(&mut self, contact: usize, peer: PeerId) {
        self.by_peer.insert(peer, contact);
        let contact = &mut self.all[contact];
        contact.dial = Dial::No;
        contact.to = Some(peer);
    }

    /// The other end of a connection has said who it is.
    pub fn greeted(&mut self, peer: PeerId, address: Address) -> Next {
        let contact = self.of_address(address);
        self.by_peer.insert(peer, contact);
        let contact = &mut self.all[contact];
        contact.from = Some(peer);
        if contact.to.is_none() && contact.dial != Dial::Under {
            contact.to = Some(peer);
            contact.dial = Dial::No;
            return Next::GreetBack;
        }
        Next::Nothing
    }

    /// The connections of which `is_gone` says so are gone.
    pub fn lose_all(&mut self, is_gone: impl Fn(PeerId) -> bool) {
        for contact in &mut self.all {
            for way in [&mut contact.to, &mut contact.from] {
                if way.is_some_and(&is_gone) {
                    *way = None;
                }
            }
        }
    }

    /// A connection is gone: the next message needs a new one. Messages that have come by it can
    /// still be told apart.
    pub fn lost(&mut self, peer: PeerId) {
        let Some(&contact) = self.by_peer.get(&peer) else { return };
        let contact = &mut self.all[contact];
        for way in [&mut contact.to, &mut contact.from] {
            if *way == Some(peer) {
                *way = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Identifiers of peers of an endpoint that is connected with itself that often.
    fn peers(count: usize) -> Vec<PeerId> {
        let address = Address::fresh().unwrap().local();
        let endpoint = pinfold::Endpoint::listen(&address).unwrap();
        let calls: Vec<_> = (0..count).map(|_| endpoint.connect_request(&address)).collect();
        calls.into_iter().map(|call| call.wait().unwrap()).collect()
    }

    #[test]
    fn who_is_greeted_first_greets_back_on_the_same_connection() {
        let mut contacts = Contacts::default();
        let address = Address::fresh().unwrap();
        let [peer, other] = peers(2)[..] else { panic!() };
        assert_eq!(contacts.greeted(peer, address), Next::GreetBack);
        let contact = contacts.of_address(address);
        assert_eq!(contacts.of_peer(peer), Some(contact));
        assert_eq!(
            (contacts.get(contact).to, contacts.get(contact).from),
            (Some(peer), Some(peer))
        );
        // Another connection of theirs: messages come by it, and go as before.
        assert_eq!(contacts.greeted(other, address), Next::Nothing);
        assert_eq!(
            (contacts.get(contact).to, contacts.get(contact).from),
            (Some(peer), Some(other))
        );
    }

    #[test]
    fn who_calls_at_the_same_time_sends_on_its_own_connection() {
        let mut contacts = Contacts::default();
        let address = Address::fresh().unwrap();
        let [made, taken] = peers(2)[..] else { panic!() };
        let contact = contacts.of_address(address);
        contacts.get(contact).dial = Dial::Under;
        assert_eq!(contacts.greeted(taken, address), Next::Nothing);
        assert_eq!(contacts.get(contact).to, None);
        contacts.connected(contact, made);
        let it = contacts.get(contact);
        assert_eq!((it.to, it.from, it.dial), (Some(made), Some(taken), Dial::No));
    }

    #[test]
    fn what_is_lost_is_lost_in_both_directions() {
        let mut contacts = Contacts::default();
        let address = Address::fresh().unwrap();
        let [peer, later] = peers(2)[..] else { panic!() };
        contacts.greeted(peer, address);
        let contact = contacts.of_address(address);
        contacts.lost(peer);
        assert_eq!((contacts.get(contact).to, contacts.get(contact).from), (None, None));
        assert_eq!(contacts.greeted(later, address), Next::GreetBack);
        contacts.lose_all(|peer| peer == later);
        assert_eq!((contacts.get(contact).to, contacts.get(contact).from), (None, None));
        // Messages that came by it are still theirs.
        assert_eq!(contacts.of_peer(later), Some(contact));
    }

    #[test]
    fn a_number_that_is_removed_means_nobody() {
        let (mut contacts, mut table) = (Contacts::default(), Table::default());
        let [one, two] = [(); 2].map(|()| Address::fresh().unwrap());
        let number = table.insert(one);
        let contact = contacts.of_number(&table, number).unwrap();
        assert_eq!(contacts.number(&table, contact), Some(number));
        table.remove(number);
        assert_eq!(contacts.of_number(&table, number), Err(Code::INVALID));
        assert_eq!(contacts.number(&table, contact), None);
        assert_eq!(table.insert(two), number);
        assert_ne!(contacts.of_number(&table, number), Ok(contact));
    }
}
