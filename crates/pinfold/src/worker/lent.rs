//! Operations of which a part is lent: a thread copies it outside of the engine.
//!
//! **Invariant.** As long as a part of an operation is lent, the operation does not end: its memory
//! stays its own, no matter what ends it, until [`OpTable::take_back`].

use super::{
    op::{Done, OpKey, OpKind, RecvOp, RecvStage},
    op_table::OpTable,
};
use crate::{Result, memory::scatter::Scatter};

/// The lent part of an operation.
#[derive(Default)]
pub(crate) enum Lent {
    #[default]
    None,
    /// A thread copies it.
    Out,
    /// The same, and the operation ends so as soon as it is back.
    Ends(Box<Result<Done>>),
}

impl Lent {
    /// Returns whether a part is lent.
    #[inline]
    pub(super) fn is_out(&self) -> bool {
        !matches!(self, Lent::None)
    }

    /// Returns whether a part is lent, and the operation goes on once it is back.
    pub(super) fn has_no_end(&self) -> bool {
        matches!(self, Lent::Out)
    }

    /// The operation ends with `result` once its part is back, unless it was ended before.
    #[cold]
    pub(super) fn end_later(&mut self, result: Result<Done>) {
        if let Lent::Out = self {
            *self = Lent::Ends(Box::new(result));
        }
    }
}

impl OpTable {
    /// Lends a part of an operation that has not ended. Returns the memory of all of it.
    pub(crate) fn lend(&mut self, key: OpKey) -> Option<&Scatter> {
        let op = self.get_mut(key).filter(|op| op.done.is_none())?;
        let memory = match &op.kind {
            OpKind::Send(send) => &send.memory,
            OpKind::Recv(recv) => &recv.memory,
            _ => return None,
        };
        op.lent = Lent::Out;
        Some(memory)
    }

    /// The part of an operation is back. Returns the result with which it is to end, if it is.
    pub(crate) fn take_back(&mut self, key: OpKey) -> Option<Box<Result<Done>>> {
        match std::mem::take(&mut self.get_mut(key)?.lent) {
            Lent::Ends(result) => Some(result),
            Lent::None | Lent::Out => None,
        }
    }

    /// Returns whether a part of an operation is lent.
    #[inline]
    pub(crate) fn is_lent(&self, key: OpKey) -> bool {
        self.get(key).is_some_and(|op| op.lent.is_out())
    }

    /// Returns whether the sender of a message is gone and has left its memory here.
    pub(crate) fn is_left(&self, key: OpKey) -> bool {
        self.get(key).is_some_and(|op| {
            matches!(&op.kind, OpKind::Recv(RecvOp { stage: RecvStage::Getting(get), .. })
                if get.is_left)
        })
    }
}
