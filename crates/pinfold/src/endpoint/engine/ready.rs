//! Memory of receives that is made ready before their messages come, by a thread that waits anyway: its
//! pages are put there, zeroed or their own again after a fork. (U-Net/MM translates receive buffers when they
//! are posted: Welsh and others, section 4.) Otherwise the copy would come to a halt at each page.
//!
//! Which pages; no I/O. One thing is taken for granted of the addresses: that it does no harm to put pages
//! there, whoever has the memory by then.

use std::collections::VecDeque;

use super::{
    Engine,
    op::{OpKey, OpTable, RecvStage},
};

/// Receives of less are not looked at: to find out costs some hundred nanoseconds.
pub(crate) const READY_FROM: u64 = 256 << 10;

/// Of a receive so much is made ready at most. One that is posted in case has room for more than will come.
pub(crate) const READY_MAX: u64 = 16 << 20;

/// Receives that are noted at a time; older ones have most likely got their messages.
const NOTED_MAX: usize = 64;

/// Bytes at a time: a message that comes meanwhile waits so long.
const STEP: u64 = 128 << 10;

/// Addresses that pages are to be put at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unready {
    pub address: u64,
    pub len: u64,
}

#[derive(Default)]
pub(crate) struct Ready {
    queue: VecDeque<(OpKey, Unready)>,
    /// The kernel cannot.
    given_up: bool,
}

impl Ready {
    /// Whether the memory of a receive of so many bytes is worth a look.
    #[inline]
    pub(crate) fn wants(&self, len: u64) -> bool {
        len >= READY_FROM && !self.given_up
    }

    /// The memory of a receive is not there, or some of it.
    pub(crate) fn add(&mut self, key: OpKey, address: u64, len: u64) {
        if self.queue.len() == NOTED_MAX {
            self.queue.pop_front();
        }
        self.queue.push_back((key, Unready { address, len: len.min(READY_MAX) }));
    }

    /// What is next: of receives that still wait for their messages.
    pub(crate) fn next(&mut self, ops: &mut OpTable) -> Option<Unready> {
        while let Some((key, rest)) = self.queue.front_mut() {
            let op = ops.recv_mut(*key);
            let waits = op.is_some_and(|op| matches!(op.stage, RecvStage::Posted(_)));
            if !waits || rest.len == 0 {
                self.queue.pop_front();
                continue;
            }
            let step = Unready { address: rest.address, len: rest.len.min(STEP) };
            rest.address += step.len;
            rest.len -= step.len;
            return Some(step);
        }
        None
    }

    /// It could not be done. `never`: nor can it be elsewhere.
    pub(crate) fn failed(&mut self, never: bool) {
        self.queue.pop_front();
        self.given_up |= never;
    }
}

impl Engine {
    /// The next addresses that pages should be put at, if nobody has anything better to do.
    #[inline]
    pub(crate) fn next_unready(&mut self) -> Option<Unready> {
        self.core.ready.next(&mut self.core.ops)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{
        super::op::{Op, OpKind, RecvOp},
        *,
    };
    use crate::endpoint::matching::{Matcher, Source, TagMatch};

    /// Receives that wait.
    fn waiting(count: usize) -> (OpTable, Vec<OpKey>) {
        let (mut ops, mut matcher) = (OpTable::default(), Matcher::<OpKey, ()>::new(1));
        let keys = (0..count).map(|_| {
            let key = ops.insert(Op::new(OpKind::Recv(RecvOp::new(None))));
            let posted = matcher.post(Source::Any, TagMatch::from(1), key);
            if let Some(op) = ops.recv_mut(key) {
                op.stage = RecvStage::Posted(posted);
            }
            key
        });
        let keys = keys.collect();
        (ops, keys)
    }

    #[test]
    fn memory_is_made_ready_step_by_step_until_the_message_comes() {
        let (mut ops, keys) = waiting(2);
        let mut ready = Ready::default();
        assert!(ready.wants(READY_FROM) && !ready.wants(READY_FROM - 1));
        assert_eq!(ready.next(&mut ops), None);
        ready.add(keys[0], 4096, STEP + 5);
        ready.add(keys[1], 1 << 30, 10 * READY_MAX);
        assert_eq!(ready.next(&mut ops), Some(Unready { address: 4096, len: STEP }));
        assert_eq!(ready.next(&mut ops), Some(Unready { address: 4096 + STEP, len: 5 }));
        let mut done = 0;
        while done < READY_MAX / 2 {
            let step = ready.next(&mut ops).unwrap();
            assert_eq!(step.address, (1 << 30) + done);
            done += step.len;
        }
        if let Some(op) = ops.recv_mut(keys[1]) {
            op.stage = RecvStage::Moving;
        }
        assert_eq!(ready.next(&mut ops), None);
    }

    #[test]
    fn no_more_than_some_is_made_ready_and_what_fails_is_left() {
        let (mut ops, keys) = waiting(NOTED_MAX + 10);
        let mut ready = Ready::default();
        ready.add(keys[0], 0, 10 * READY_MAX);
        let mut steps = 0;
        while ready.next(&mut ops).is_some() {
            steps += 1;
        }
        assert_eq!(steps, READY_MAX / STEP);
        keys.iter().for_each(|key| ready.add(*key, 0, 1));
        assert_eq!(ready.queue.len(), NOTED_MAX);
        ready.failed(false);
        assert!(ready.queue.len() == NOTED_MAX - 1 && ready.wants(READY_FROM));
        ready.failed(true);
        assert!(!ready.wants(u64::MAX));
    }
}
