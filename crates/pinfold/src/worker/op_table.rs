//! The table of all operations of an endpoint.

use super::op::{Done, Get, MultiOp, Op, OpKey, OpKind, RecvOp, RecvStage, SendOp};
use crate::{
    PeerId, Result,
    memory::scatter::Scatter,
    protocol::{active::act::Act, handoff::account::Accounts},
};

/// A receive that has ended and whose message belongs to another.
pub(crate) struct PassedOn {
    pub recv: RecvOp,
    pub result: Result<Done>,
}

/// All operations of an endpoint.
#[derive(Default)]
pub(crate) struct OpTable {
    entries: Vec<(u32, Option<Op>)>,
    free: Vec<u32>,
    /// Ends that mean something to active messages.
    pub settled: Vec<(OpKey, Act, Result<Done>)>,
    /// The [origins](Op::origin) of requests that have ended.
    pub answered: Vec<PeerId>,
    /// The memory given to peers, by operations or without.
    pub given: Accounts,
    /// Receives that have ended and whose messages belong to [others](Next).
    pub passed_on: Vec<PassedOn>,
}

impl OpTable {
    #[inline(always)]
    pub(crate) fn insert(&mut self, op: Op) -> OpKey {
        if let Some(index) = self.free.pop() {
            let entry = &mut self.entries[index as usize];
            entry.1 = Some(op);
            return OpKey { index, generation: entry.0 };
        }
        let index = self.entries.len() as u32;
        self.entries.push((0, Some(op)));
        OpKey { index, generation: 0 }
    }

    pub(crate) fn get(&self, key: OpKey) -> Option<&Op> {
        let (generation, op) = self.entries.get(key.index as usize)?;
        op.as_ref().filter(|_| *generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: OpKey) -> Option<&mut Op> {
        let (generation, op) = self.entries.get_mut(key.index as usize)?;
        op.as_mut().filter(|_| *generation == key.generation)
    }

    pub(crate) fn remove(&mut self, key: OpKey) -> Option<Op> {
        let (generation, op) = self.entries.get_mut(key.index as usize)?;
        if *generation != key.generation {
            return None;
        }
        let op = op.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(key.index);
        Some(op)
    }

    /// Takes the result of an operation that has ended, and the operation off the table.
    #[inline]
    pub(crate) fn take_done(&mut self, key: OpKey) -> Option<Result<Done>> {
        let (generation, entry) = self.entries.get_mut(key.index as usize)?;
        let op = entry.as_mut().filter(|_| *generation == key.generation)?;
        let done = op.done.take()?;
        // In place: an operation is some hundred bytes.
        *entry = None;
        *generation = generation.wrapping_add(1);
        self.free.push(key.index);
        Some(done)
    }

    /// The operation now at `index`, to which a peer's stream number leads.
    pub(crate) fn at(&self, index: u32) -> Option<OpKey> {
        let (generation, op) = self.entries.get(index as usize)?;
        op.is_some().then_some(OpKey { index, generation: *generation })
    }

    pub(crate) fn send_mut(&mut self, key: OpKey) -> Option<&mut SendOp> {
        match self.get_mut(key) {
            Some(Op { kind: OpKind::Send(send), done: None, .. }) => Some(send),
            _ => None,
        }
    }

    pub(crate) fn recv_mut(&mut self, key: OpKey) -> Option<&mut RecvOp> {
        match self.get_mut(key) {
            Some(Op { kind: OpKind::Recv(recv), done: None, .. }) => Some(recv),
            _ => None,
        }
    }

    pub(crate) fn multi_mut(&mut self, key: OpKey) -> Option<&mut MultiOp> {
        match self.get_mut(key) {
            Some(Op { kind: OpKind::Multi(multi), done: None, .. }) => Some(multi),
            _ => None,
        }
    }

    /// The memory of a receive that has not ended.
    pub(crate) fn memory_of(&self, key: OpKey) -> Option<&Scatter> {
        match self.get(key)? {
            Op { kind: OpKind::Recv(recv), done: None, .. } => Some(&recv.memory),
            Op { kind: OpKind::Multi(multi), done: None, .. } => Some(&multi.memory),
            _ => None,
        }
    }

    /// Returns whether the result of an operation is not wanted any more.
    pub(crate) fn is_abandoned(&self, key: OpKey) -> bool {
        self.get(key).is_some_and(|op| op.abandoned)
    }

    /// Returns whether an operation is a receive whose memory its sender may be writing to.
    pub(crate) fn is_awaiting(&self, key: OpKey) -> bool {
        self.active_get(key).is_some_and(Get::awaits_sender)
    }

    /// Returns whether a receive from this peer, which is being let go, has not ended: its memory
    /// may be written to, by the peer or by a thread of this side, and only with the peer can it be
    /// ended.
    pub(crate) fn stays_for(&self, key: OpKey, peer: PeerId) -> bool {
        let is_copied = self.get(key).is_some_and(|op| op.lent.has_no_end());
        self.active_get(key)
            .is_some_and(|get| get.peer == peer && (get.awaits_sender() || is_copied))
    }

    fn active_get(&self, key: OpKey) -> Option<&Get> {
        match self.get(key)? {
            Op { kind: OpKind::Recv(recv), done: None, .. } => match &recv.stage {
                RecvStage::Getting(get) => Some(get),
                _ => None,
            },
            _ => None,
        }
    }

    /// Every operation that has not ended.
    pub(crate) fn open(&self) -> impl Iterator<Item = (OpKey, &Op)> {
        self.entries.iter().enumerate().filter_map(|(index, (generation, op))| {
            let op = op.as_ref().filter(|op| op.done.is_none())?;
            Some((OpKey { index: index as u32, generation: *generation }, op))
        })
    }
}
