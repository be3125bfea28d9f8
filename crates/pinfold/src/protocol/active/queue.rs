//! Messages that wait for their handlers; no I/O.
//!
//! There is a queue for each peer. Its messages go to their handlers one after the other, in the
//! order they were sent. Queues whose first message is whole are *ready*, in turn; one whose first
//! message is still in its sender's memory is a *chore*: it has to be fetched, which is done one at
//! a time per peer and within a budget over all.
//!
//! A queue rests while many bytes that its handlers sent are still kept here ([`BACKLOG_MAX`]), or
//! while they owe many answers, or wait for many ([`OPEN_MAX`]). So the memory that a peer can make
//! this endpoint keep is bounded, even if the peer takes and answers nothing.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::{
    PeerId, Receipt,
    protocol::active::handlers::{Handler, Handlers},
    transport::shm::budget::Budget,
    wire::{
        active::{Label, Verb},
        rendezvous::Rts,
    },
    worker::op::{Bytes, OpKey, Wakes},
};

/// Bytes that the handlers of one peer's messages have sent and that are still here, at which its
/// queue rests.
pub(crate) const BACKLOG_MAX: u64 = 4 << 20;
/// Number of answers owed to one peer, plus answers that the handlers of its messages wait for from
/// any peer, at which its queue rests.
pub(crate) const OPEN_MAX: u32 = 1024;

/// A message in a queue.
pub(crate) struct Item {
    pub label: Label,
    pub what: What,
    /// The credit it holds, in cost units.
    pub cost: u64,
    /// Bytes of the budget that it holds.
    pub room: usize,
}

/// State of a message.
pub(crate) enum What {
    Whole {
        bytes: Bytes,
        receipt: Receipt,
    },
    /// This operation is receiving the message.
    Coming(OpKey),
    /// The message is in its sender's memory.
    Waiting {
        sid: u32,
        rts: Rts,
    },
    /// There was no memory for the message; its sender has not been told.
    Lost,
}

impl What {
    /// Returns whether nothing more of the message comes.
    fn is_here(&self) -> bool {
        matches!(self, What::Whole { .. } | What::Lost)
    }
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    /// True while a handler runs for the message that was first.
    running: bool,
    /// True if the queue is among the ready ones.
    ready: bool,
    /// True if the queue is among the chores, or waits for room in the budget.
    chore: bool,
    backlog: u64,
    open: u32,
    /// True if the peer is gone.
    gone: bool,
}

pub(crate) struct Queues {
    queues: FxHashMap<PeerId, Queue>,
    ready: VecDeque<PeerId>,
    chores: VecDeque<PeerId>,
    /// Peers whose queues wait for room in the budget.
    hungry: Vec<PeerId>,
    budget: Budget,
    budget_max: usize,
    handlers: Handlers,
    agent: Option<Handler>,
    /// True if a queue has become ready since a thread was last told.
    news: bool,
}

impl Queues {
    pub(crate) fn new(budget_max: usize, handlers: Handlers) -> Queues {
        Queues {
            queues: FxHashMap::default(),
            ready: VecDeque::new(),
            chores: VecDeque::new(),
            hungry: Vec::new(),
            budget: Budget::new(budget_max),
            budget_max,
            handlers,
            agent: None,
            news: false,
        }
    }

    /// Length of the longest message that is taken, bytes.
    pub(crate) fn len_max(&self) -> u64 {
        self.budget_max as u64
    }

    pub(crate) fn handler(&self, label: Label) -> Option<Handler> {
        match label.verb {
            Verb::Serve => self.agent.clone(),
            _ => self.handlers.get(label.id),
        }
    }

    pub(crate) fn has_handler(&self, label: Label) -> bool {
        match label.verb {
            Verb::Serve => self.agent.is_some(),
            _ => self.handlers.has(label.id),
        }
    }

    /// Sets the handler that answers peers that ask for memory by address, if none is set yet.
    pub(crate) fn set_agent(&mut self, agent: impl FnOnce() -> Handler) {
        self.agent.get_or_insert_with(agent);
    }

    /// Sets or removes a handler. Returns the one before, for the caller to drop outside the
    /// engine.
    pub(crate) fn set_handler(&mut self, id: u32, handler: Option<Handler>) -> Option<Handler> {
        match handler {
            Some(handler) => self.handlers.set(id, handler),
            None => self.handlers.remove(id),
        }
    }

    /// Returns whether some message could go to its handler.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns whether some message has to be fetched.
    #[inline(always)]
    pub(crate) fn has_chores(&self) -> bool {
        !self.chores.is_empty()
    }

    /// Returns whether there is something ready that no other thread was told of.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Adds a message behind all others of its peer.
    pub(crate) fn push(&mut self, peer: PeerId, item: Item) {
        self.queues.entry(peer).or_default().items.push_back(item);
        self.look(peer);
    }

    /// Puts a queue where it belongs, after its first message, or the number of answers it owes,
    /// has changed.
    fn look(&mut self, peer: PeerId) {
        let Some(queue) = self.queues.get_mut(&peer) else { return };
        match queue.items.front().map(|item| &item.what) {
            Some(what) if what.is_here() => {
                let rests = queue.backlog >= BACKLOG_MAX || queue.open >= OPEN_MAX;
                if !queue.running && !queue.ready && !rests {
                    queue.ready = true;
                    self.ready.push_back(peer);
                    self.news = true;
                }
            }
            Some(What::Waiting { .. }) if !queue.chore => {
                queue.chore = true;
                self.chores.push_back(peer);
            }
            None if queue.gone && !queue.running => drop(self.queues.remove(&peer)),
            _ => {}
        }
    }

    /// Takes the next message for its handler; the end of the handler is reported by
    /// [`Queues::done`].
    pub(crate) fn next(&mut self) -> Option<(PeerId, Item)> {
        while let Some(peer) = self.ready.pop_front() {
            if self.ready.is_empty() {
                self.news = false;
            }
            let Some(queue) = self.queues.get_mut(&peer) else { continue };
            queue.ready = false;
            if queue.items.front().is_some_and(|item| item.what.is_here())
                && let Some(item) = queue.items.pop_front()
            {
                queue.running = true;
                // The message behind it can be fetched meanwhile.
                self.look(peer);
                return Some((peer, item));
            }
        }
        None
    }

    /// Notes that the handler of the message that was taken has ended, and gives back its room.
    pub(crate) fn done(&mut self, peer: PeerId, room: usize) {
        self.give(room);
        if let Some(queue) = self.queues.get_mut(&peer) {
            queue.running = false;
            self.look(peer);
        }
    }

    fn give(&mut self, room: usize) {
        if room > 0 {
            self.budget.give(room);
            self.chores.extend(self.hungry.drain(..));
        }
    }

    /// The next message to be fetched, if there is room for it or no room is needed: its peer, its
    /// stream, its announcement, its label.
    pub(crate) fn next_chore(&mut self) -> Option<(PeerId, u32, Rts, Label)> {
        while let Some(peer) = self.chores.pop_front() {
            let Some(queue) = self.queues.get_mut(&peer) else { continue };
            queue.chore = false;
            let Some(Item { what: What::Waiting { sid, rts }, label, .. }) = queue.items.front()
            else {
                continue;
            };
            let (sid, rts, label) = (*sid, *rts, *label);
            let is_wanted = self.has_handler(label);
            if is_wanted && !self.budget.take(rts.len as usize) {
                if let Some(queue) = self.queues.get_mut(&peer) {
                    queue.chore = true;
                }
                self.hungry.push(peer);
                continue;
            }
            return Some((peer, sid, rts, label));
        }
        None
    }

    /// Notes that operation `key` fetches the first message of a peer.
    pub(crate) fn fetching(&mut self, peer: PeerId, key: OpKey) {
        if let Some(item) = self.queues.get_mut(&peer).and_then(|queue| queue.items.front_mut()) {
            item.what = What::Coming(key);
        }
    }

    /// Drops the first message of a peer.
    pub(crate) fn skip(&mut self, peer: PeerId) {
        if let Some(queue) = self.queues.get_mut(&peer) {
            queue.items.pop_front();
            self.look(peer);
        }
    }

    /// Notes that the operation that received a message has ended; `None` if it failed.
    pub(crate) fn landed(
        &mut self,
        peer: PeerId,
        key: OpKey,
        room: usize,
        came: Option<(Bytes, Receipt)>,
    ) {
        let Some(queue) = self.queues.get_mut(&peer) else { return self.give(room) };
        let is_it = |item: &Item| matches!(item.what, What::Coming(other) if other == key);
        // A message that is fetched is the first, one that comes in pieces most likely the last.
        let at = match queue.items.front() {
            Some(first) if is_it(first) => Some(0),
            _ => queue.items.iter().rposition(is_it),
        };
        match (at, came) {
            (Some(at), Some((bytes, receipt))) => {
                let item = &mut queue.items[at];
                item.what = What::Whole { bytes, receipt };
                item.room = room;
            }
            (Some(at), None) => {
                // The sender of an announced message has been told.
                match queue.items[at].cost {
                    0 => drop(queue.items.remove(at)),
                    _ => queue.items[at].what = What::Lost,
                }
                self.give(room);
            }
            (None, _) => self.give(room),
        }
        self.look(peer);
    }

    /// Drops a message that its sender takes back.
    pub(crate) fn take_back(&mut self, peer: PeerId, sid: u32) {
        let Some(queue) = self.queues.get_mut(&peer) else { return };
        let is_it =
            |item: &Item| matches!(item.what, What::Waiting { sid: other, .. } if other == sid);
        if let Some(at) = queue.items.iter().position(is_it) {
            queue.items.remove(at);
            self.look(peer);
        }
    }

    /// Charges bytes that a handler sent to the peer whose message it handled.
    pub(crate) fn charge(&mut self, peer: PeerId, bytes: u64) {
        if let Some(queue) = self.queues.get_mut(&peer) {
            queue.backlog += bytes;
        }
    }

    /// Takes back a charge whose bytes have gone.
    pub(crate) fn discharge(&mut self, peer: PeerId, bytes: u64) {
        if let Some(queue) = self.queues.get_mut(&peer) {
            queue.backlog = queue.backlog.saturating_sub(bytes);
            self.look(peer);
        }
    }

    /// Notes that an answer is owed, to be given after its handler has ended; or that a handler
    /// waits for one.
    pub(crate) fn open(&mut self, peer: PeerId) {
        if let Some(queue) = self.queues.get_mut(&peer) {
            queue.open += 1;
        }
    }

    /// Notes that such an answer has been given, or has come.
    pub(crate) fn shut(&mut self, peer: PeerId) {
        if let Some(queue) = self.queues.get_mut(&peer) {
            queue.open = queue.open.saturating_sub(1);
            self.look(peer);
        }
    }

    /// Notes that a peer is gone: its messages up to the first that is not whole still go to their
    /// handlers. Returns how many do not.
    pub(crate) fn cut(&mut self, peer: PeerId) -> u64 {
        let Some(queue) = self.queues.get_mut(&peer) else { return 0 };
        queue.gone = true;
        let whole = |item: &Item| matches!(item.what, What::Whole { .. });
        let keep = queue.items.iter().position(|item| !whole(item)).unwrap_or(queue.items.len());
        let cut = queue.items.drain(keep..);
        let (count, room) = cut.fold((0, 0), |(count, room), item| (count + 1, room + item.room));
        self.give(room);
        self.look(peer);
        count
    }

    /// Drops all messages at once, and has the handlers dropped: the endpoint closes.
    pub(crate) fn close(&mut self, wakes: &mut Wakes) {
        self.queues.clear();
        self.ready.clear();
        self.chores.clear();
        self.hungry.clear();
        self.news = false;
        wakes.drops.push(Box::new(std::mem::take(&mut self.handlers)));
    }
}

#[cfg(test)]
mod tests;
