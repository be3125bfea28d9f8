//! The order of the steps, against a model of a kernel in which anything may happen between two.
use std::cell::{Cell, RefCell};

use proptest::{collection::vec, prelude::*};

use super::super::keep::{Steps, keep};
use super::*;
use crate::memory::translate::pincache::{Area, Handle, Refused};

#[derive(Clone, Copy, Debug)]
enum Act {
    Unmap,
    Map,
    /// A discard's event is sent.
    Announce,
    /// The oldest event that was sent is read; its sender goes on.
    Read,
    /// Events that were read are applied.
    Apply,
    /// The thread that was to discard does so.
    Discard,
    /// Other memory, or the memory from before, and no event tells.
    Guard,
    Restore,
    /// The quarantine ends, if all that was noted is over.
    Settle,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sent {
    Unmapped,
    Removed,
}

/// One area. Memory is known by a number that is another for each new one; 0 is none.
#[derive(Default)]
struct Kernel {
    memory: Cell<u64>,
    newest: Cell<u64>,
    watched: Cell<bool>,
    unread: RefCell<Vec<Sent>>,
    read: RefCell<Vec<Sent>>,
    seq: Cell<u64>,
    applied: Cell<u64>,
    /// Discards that have not taken place though their event was read.
    to_come: Cell<u32>,
    quarantined: Cell<bool>,
    pins: Cell<i32>,
    /// The memory that was seen, and the faults until then.
    seen: Cell<(u64, u64)>,
    faults: Cell<u64>,
    /// The page that a guard has taken away last: it may be given out again.
    freed: Cell<u64>,
    script: RefCell<Vec<Vec<Act>>>,
    calls: RefCell<Vec<&'static str>>,
}

impl Kernel {
    fn act(&self, act: Act) {
        match act {
            Act::Unmap if self.memory.get() != 0 => {
                self.memory.set(0);
                if self.watched.replace(false) {
                    self.unread.borrow_mut().push(Sent::Unmapped);
                }
            }
            Act::Map if self.memory.get() == 0 => self.renew(),
            Act::Announce if self.memory.get() != 0 => {
                if self.watched.get() {
                    self.unread.borrow_mut().push(Sent::Removed);
                } else {
                    self.renew();
                }
            }
            Act::Read if !self.unread.borrow().is_empty() => {
                let sent = self.unread.borrow_mut().remove(0);
                self.to_come.set(self.to_come.get() + u32::from(sent == Sent::Removed));
                self.read.borrow_mut().push(sent);
                self.seq.set(self.seq.get() + 1);
            }
            Act::Apply => {
                let removed = self.read.borrow_mut().drain(..).any(|sent| sent == Sent::Removed);
                self.quarantined.set(self.quarantined.get() || removed);
                self.applied.set(self.seq.get());
            }
            Act::Discard if self.to_come.get() > 0 => {
                self.to_come.set(self.to_come.get() - 1);
                if self.memory.get() != 0 {
                    self.renew();
                }
            }
            Act::Guard if self.memory.get() != 0 => {
                self.freed.set(self.memory.get());
                self.faults.set(self.faults.get() + 1);
                self.renew();
            }
            Act::Restore if self.memory.get() != 0 && self.freed.get() != 0 => {
                self.memory.set(self.freed.replace(0));
                self.faults.set(self.faults.get() + 1);
            }
            Act::Settle if self.to_come.get() == 0 => self.quarantined.set(false),
            _ => {}
        }
    }

    fn renew(&self) {
        self.newest.set(self.newest.get() + 1);
        self.memory.set(self.newest.get());
    }

    fn meanwhile(&self, call: &'static str) {
        self.calls.borrow_mut().push(call);
        let acts = self.script.borrow_mut().pop();
        acts.into_iter().flatten().for_each(|act| self.act(act));
    }
}

impl Steps for Kernel {
    type Stamp = u64;
    type Pinned = u64;

    fn stamp(&self) -> u64 {
        self.meanwhile("stamp");
        self.applied.get()
    }

    fn watch(&mut self, _area: Area) -> Result<(), Why> {
        self.meanwhile("watch");
        if self.memory.get() == 0 {
            return Err(Why::Kind);
        }
        self.watched.set(true);
        Ok(())
    }

    fn unwatch(&mut self, _area: Area) {
        self.meanwhile("unwatch");
        self.watched.set(false);
    }

    fn may_be_discarded(&self, _area: Area) -> bool {
        self.meanwhile("may_be_discarded");
        self.quarantined.get()
    }

    fn look(&mut self, _area: Area) -> Result<(), Why> {
        self.meanwhile("look");
        self.seen.set((self.memory.get(), self.faults.get()));
        Ok(())
    }

    fn pin(&mut self, _area: Area) -> Result<u64, Refused> {
        self.meanwhile("pin");
        if self.memory.get() == 0 {
            return Err(Refused::NotMapped);
        }
        self.pins.set(self.pins.get() + 1);
        Ok(self.memory.get())
    }

    fn unpin(&mut self, _pinned: u64) {
        self.meanwhile("unpin");
        self.pins.set(self.pins.get() - 1);
    }

    fn is_private(&self, _area: Area) -> bool {
        self.meanwhile("is_private");
        true
    }

    fn holds(&self, stamp: u64) -> Result<bool, Why> {
        self.meanwhile("holds");
        Ok(self.seq.get() == stamp && self.unread.borrow().is_empty())
    }

    fn stayed(&self, _area: Area) -> bool {
        self.meanwhile("stayed");
        let (memory, faults) = self.seen.get();
        self.memory.get() == memory && self.faults.get() == faults
    }
}

fn area() -> Area {
    Area { space: HERE, start: 0, end: PAGE as u64 }
}

fn any_acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        Just(Act::Unmap),
        Just(Act::Map),
        Just(Act::Announce),
        Just(Act::Read),
        Just(Act::Read),
        Just(Act::Apply),
        Just(Act::Discard),
        Just(Act::Settle),
        Just(Act::Guard),
        Just(Act::Restore),
    ];
    vec(act, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]
    /// Kept memory is the memory that was seen, is watched, and is not about to be discarded by a
    /// call that was told already; memory that is not kept leaves no trace.
    #[test]
    fn what_is_kept_will_be_told_of(
        before in vec(any_acts(), 0..4),
        script in vec(any_acts(), 0..8),
    ) {
        let mut kernel = Kernel { script: RefCell::new(script), ..Kernel::default() };
        kernel.act(Act::Map);
        // Some of it was watched before, for another area.
        kernel.watched.set(true);
        before.into_iter().flatten().for_each(|act| kernel.act(act));
        match keep(&mut kernel, area()) {
            Ok(pinned) => {
                prop_assert_eq!(kernel.pins.get(), 1);
                prop_assert!(kernel.watched.get());
                prop_assert_eq!(pinned, kernel.seen.get().0);
                prop_assert_eq!(kernel.to_come.get(), 0, "stale as soon as that comes");
            }
            Err(_) => {
                prop_assert_eq!(kernel.pins.get(), 0);
                let calls = kernel.calls.borrow();
                let watched = calls.contains(&"may_be_discarded");
                prop_assert_eq!(watched, calls.last() == Some(&"unwatch"));
            }
        }
    }
}

#[test]
fn when_nothing_happens_it_is_kept() {
    let mut kernel = Kernel::default();
    kernel.act(Act::Map);
    assert_eq!(keep(&mut kernel, area()), Ok(1));
    let wanted =
        ["stamp", "watch", "may_be_discarded", "look", "pin", "is_private", "holds", "stayed"];
    assert_eq!(*kernel.calls.borrow(), wanted);
    let _ = Handle(0);
}

#[test]
fn reasons_have_numbers() {
    for number in 0..=255 {
        if let Some(why) = Why::of_number(number) {
            assert_eq!(why.number(), number);
        }
    }
    assert!((1..=6).all(|number| Why::of_number(number).is_some()));
}
