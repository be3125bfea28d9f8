//! The operations under way: what the program is told when one has ended. No I/O.

use pinfold::Completion;

use crate::{cq::Event, state::Inside};

/// An operation.
pub struct Op {
    pub kind: Kind,
    /// The event of its success, as far as that is known.
    pub event: Event,
    /// True if the program wants to know.
    pub reports: bool,
    /// The number of operations before it: receives match in this order.
    pub sequence: u64,
}

/// The end of an operation of another file's.
pub type Finish = Box<dyn FnOnce(&mut Inside<'_>, Op, Completion) + Send>;

/// The kind of an operation.
pub enum Kind {
    /// A send, of which the program's memory is in use.
    Send,
    /// A send whose receiver is to confirm.
    Confirmed(Confirmed),
    /// A receive of one message.
    Receive,
    /// A receive of many, into a buffer at this address.
    Multi(usize),
    /// A call to a contact, by one of its ways.
    Dial { contact: usize, way: usize },
    /// A wait for the next that calls.
    Accept,
    /// A receive of a message of the provider's own.
    Own,
    /// A message of the provider's own.
    Silent,
    /// An operation that this ends.
    Other(Finish),
}

/// The state of a send whose receiver is to confirm.
#[derive(Clone, Copy)]
pub struct Confirmed {
    pub peer: pinfold::PeerId,
    /// The library is done with its memory.
    pub is_sent: bool,
    pub is_confirmed: bool,
}

/// The name of an operation: its place, and how often that was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(u64);

impl Key {
    pub fn number(self) -> u64 {
        self.0
    }

    pub fn of(number: u64) -> Key {
        Key(number)
    }

    /// Its place, which no other operation has at the time.
    pub fn place(self) -> u32 {
        self.0 as u32
    }
}

/// All operations of an endpoint.
#[derive(Default)]
pub struct Ops {
    slots: Vec<(u32, Option<Op>)>,
    free: Vec<u32>,
    sequence: u64,
    /// Operations by direction that the program has to be told of.
    pub sends: usize,
    pub receives: usize,
}

impl Op {
    fn is_send(&self) -> bool {
        matches!(self.kind, Kind::Send | Kind::Confirmed(_) | Kind::Other(_))
    }

    fn is_receive(&self) -> bool {
        matches!(self.kind, Kind::Receive | Kind::Multi(_))
    }
}

impl Ops {
    pub fn insert(&mut self, kind: Kind, event: Event, reports: bool) -> Key {
        self.sequence += 1;
        let op = Op { kind, event, reports, sequence: self.sequence };
        self.sends += usize::from(op.is_send());
        self.receives += usize::from(op.is_receive());
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.slots.push((0, None));
                self.slots.len() as u32 - 1
            }
        };
        let (uses, slot) = &mut self.slots[place as usize];
        *uses = uses.wrapping_add(1);
        *slot = Some(op);
        Key(u64::from(*uses) << 32 | u64::from(place))
    }

    pub fn get(&mut self, key: Key) -> Option<&mut Op> {
        let (uses, slot) = self.slots.get_mut(key.place() as usize)?;
        if u64::from(*uses) == key.0 >> 32 { slot.as_mut() } else { None }
    }

    pub fn remove(&mut self, key: Key) -> Option<Op> {
        self.get(key)?;
        let op = self.slots[key.place() as usize].1.take()?;
        self.free.push(key.place());
        self.sends -= usize::from(op.is_send());
        self.receives -= usize::from(op.is_receive());
        Some(op)
    }

    /// The operation at a place.
    pub fn at(&self, place: u32) -> Option<Key> {
        let (uses, slot) = self.slots.get(place as usize)?;
        slot.as_ref().map(|_| Key(u64::from(*uses) << 32 | u64::from(place)))
    }

    pub fn iter(&self) -> impl Iterator<Item = (Key, &Op)> {
        self.slots.iter().enumerate().filter_map(|(place, (uses, slot))| {
            slot.as_ref().map(|op| (Key(u64::from(*uses) << 32 | place as u64), op))
        })
    }

    /// The first receive with this context.
    pub fn receive_of(&self, context: usize) -> Option<Key> {
        self.iter()
            .filter(|(_, op)| op.is_receive() && op.event.context == context)
            .min_by_key(|(_, op)| op.sequence)
            .map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(context: usize) -> Event {
        Event { context, ..Event::default() }
    }

    #[test]
    fn a_key_dies_with_its_operation() {
        let mut ops = Ops::default();
        let one = ops.insert(Kind::Send, event(1), true);
        assert_eq!((ops.sends, ops.receives), (1, 0));
        assert!(ops.remove(one).is_some());
        let two = ops.insert(Kind::Receive, event(2), true);
        assert_eq!(one.place(), two.place());
        assert!(ops.get(one).is_none() && ops.remove(one).is_none());
        assert_eq!(ops.at(two.place()), Some(two));
        assert_eq!((ops.sends, ops.receives), (0, 1));
    }

    #[test]
    fn receives_are_found_by_context_the_oldest_first() {
        let mut ops = Ops::default();
        let gone = ops.insert(Kind::Send, event(0), true);
        ops.insert(Kind::Send, event(7), true);
        let first = ops.insert(Kind::Receive, event(7), true);
        ops.remove(gone);
        ops.insert(Kind::Receive, event(7), true);
        assert_eq!(ops.receive_of(7), Some(first));
        assert_eq!(ops.receive_of(8), None);
    }
}
