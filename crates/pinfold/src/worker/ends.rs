//! How operations end, and to whom their results go.

use super::{
    core::{Core, Unexpected},
    op::{
        Arrived, Bytes, Done, Keeps, Next, OpKey, OpKind, PartOf, RecvOp, RecvStage, SendOp, Taker,
        Wakes,
    },
    op_table::{OpTable, PassedOn},
};
use crate::{
    Error, PeerId, Receipt, Received, Result, endpoint::received::MultiReceived,
    memory::store::Kept, protocol::active::settle, status::Tally,
};

impl OpTable {
    /// Ends an operation. Its waker, if any, is pushed onto `wakes`.
    pub(crate) fn finish(&mut self, key: OpKey, mut result: Result<Done>, wakes: &mut Wakes) {
        let Some(op) = self.get_mut(key) else { return };
        if op.done.is_some() {
            return;
        }
        if op.lent.is_out() {
            return op.lent.end_later(result);
        }
        if let OpKind::Multi(multi) = &mut op.kind
            && multi.running > 0
        {
            // It ends with the last of its messages.
            multi.posted = None;
            multi.end.get_or_insert(result);
            return;
        }
        let origin = op.origin.take();
        let charge = match &op.kind {
            OpKind::Send(SendOp { peer, tag, charge: charge @ 1.., is_frame, .. }) => {
                Some((*peer, *charge, is_frame.then_some(*tag)))
            }
            _ => None,
        };
        let mut passed_on = None;
        if let OpKind::Recv(recv) = &mut op.kind {
            // The result may be taken much later: the sender's memory is not kept mapped for that.
            if matches!(recv.stage, RecvStage::Getting(_)) {
                recv.stage = RecvStage::Moving;
            }
            if recv.next != Next::Own {
                let result = std::mem::replace(&mut result, Err(Error::Cancelled));
                let recv = std::mem::replace(recv, RecvOp::new(None));
                passed_on = Some(PassedOn { recv, result });
            }
        }
        if let Some(mut taker) = op.taker.take() {
            wakes.wakers.extend(op.waker.take());
            self.remove(key);
            taker.take(result);
            wakes.results.push(taker);
            wakes.any = true;
        } else if op.abandoned {
            match self.remove(key).and_then(|op| op.keeps) {
                Some(Keeps::Buffer(buffer)) => wakes.drops.push(buffer),
                Some(Keeps::Act(act)) => self.settled.push((key, act, result)),
                Some(Keeps::Part(part)) => self.end_part(part, result, wakes),
                Some(Keeps::DonatedBuf { .. } | Keeps::DonatedBufs { .. }) | None => {}
            }
        } else {
            op.done = Some(result);
            // The giver of the memory wants to be the last to have it.
            op.keeps = None;
            wakes.wakers.extend(op.waker.take());
            wakes.note_end(op.waiting);
        }
        self.answered.extend(origin);
        if let Some((peer, charge, frame)) = charge {
            self.given.end(peer, charge, frame);
        }
        self.passed_on.extend(passed_on);
    }

    /// A message of a receive of many has ended, and with the last one the receive, if it takes no
    /// more.
    fn end_part(&mut self, part: PartOf, result: Result<Done>, wakes: &mut Wakes) {
        let Some(op) = self.get_mut(part.multi) else { return };
        let OpKind::Multi(multi) = &mut op.kind else { return };
        multi.running -= 1;
        let mut end = if multi.running == 0 { multi.end.take() } else { None };
        let is_last = matches!(end, Some(Ok(_)));
        let room = multi.memory.len() - part.at;
        let message = message(&part, room, result, is_last);
        match &mut op.taker {
            _ if op.abandoned => {}
            Some(_) if is_last => end = Some(Ok(Done::UsedUp(Some(Box::new(message))))),
            Some(taker) => {
                wakes.results.extend(taker.take_message(message));
                wakes.any = true;
            }
            None => {
                multi.ended.push_back(message);
                wakes.wakers.extend(op.waker.take());
                wakes.note_end(op.waiting);
            }
        }
        if let Some(end) = end {
            self.finish(part.multi, end, wakes);
        }
    }

    /// Leaves the result of an operation to a taker. Returns both if there is a result already.
    pub(crate) fn leave_to(
        &mut self,
        key: OpKey,
        mut taker: Box<dyn Taker>,
        wakes: &mut Wakes,
    ) -> Option<(Result<Done>, Box<dyn Taker>)> {
        let Some(op) = self.get_mut(key) else { return Some((Err(Error::Closed), taker)) };
        let mut done = op.done.take();
        if let OpKind::Multi(multi) = &mut op.kind {
            for message in multi.ended.drain(..) {
                if message.is_last {
                    done = Some(Ok(Done::UsedUp(Some(Box::new(message)))));
                } else {
                    wakes.results.extend(taker.take_message(message));
                    wakes.any = true;
                }
            }
        }
        match done {
            Some(done) => {
                self.remove(key);
                Some((done, taker))
            }
            None => {
                op.taker = Some(taker);
                None
            }
        }
    }
}

/// The message of a part that has ended, which had `room` bytes.
fn message(part: &PartOf, room: u64, result: Result<Done>, is_last: bool) -> MultiReceived {
    let PartOf { at, peer, tag, len, arrival, .. } = *part;
    let result = match result {
        Ok(Done::Arrived(arrived)) => Ok(arrived.receipt),
        Ok(_) => Err(Error::Closed),
        Err(error) => Err(error),
    };
    let range = at as usize..(at + len.min(room)) as usize;
    MultiReceived { peer, tag, len, range, result, is_last, arrival }
}

/// The error of a receive for whose message there is no memory.
pub(crate) fn no_memory(len: u64) -> Error {
    Error::LimitReached {
        what: "the memory for one message, in bytes,",
        limit: len,
        remedy: "receive it in parts, or into memory of your own",
    }
}

/// Hands on the messages of receives that were given up.
#[cold]
pub(crate) fn pass_on(core: &mut Core) {
    while let Some(PassedOn { recv, result }) = core.ops.passed_on.pop() {
        match (recv.next, result) {
            (Next::Stored(stored), Ok(Done::Arrived(arrived))) => {
                let again = again(core, &recv, arrived);
                if let Some(entry) = core.matcher.unexpected_mut(stored) {
                    *entry = again;
                }
            }
            (Next::Stored(stored), _) => {
                // A failed message goes; but if its sender is gone, a receive has to hear of
                // that.
                let entry = core.matcher.unexpected_mut(stored);
                if entry.is_some_and(|entry| !matches!(entry, Unexpected::Lost)) {
                    core.matcher.remove_unexpected(stored);
                }
            }
            (Next::Receive(key), Ok(Done::Arrived(arrived))) => {
                let of = (arrived.peer, arrived.tag);
                match again(core, &recv, arrived) {
                    Unexpected::Again { bytes, receipt } => {
                        deliver_again(core, key, of, bytes, *receipt);
                    }
                    _ => finish(core, key, Err(no_memory(recv.memory.len()))),
                }
            }
            (Next::Receive(key), result) => finish(core, key, result),
            (Next::Own, _) => {}
        }
    }
}

/// The stored form of a message that a receive has, in memory of the library's.
pub(crate) fn again(core: &mut Core, recv: &RecvOp, arrived: Arrived) -> Unexpected {
    let Arrived { len, mut receipt, bytes, .. } = arrived;
    let bytes = match bytes {
        Some(bytes) => *bytes,
        None => {
            let Some(mut kept) = Kept::new(len, core.moves) else {
                return Unexpected::NoMemory { len };
            };
            let copied = kept.append_from(&recv.memory, len, &mut core.store);
            receipt.note_copies(core.copied_by(copied));
            receipt.copied_user += copied;
            core.status.copied_user.add(copied);
            kept.into_bytes()
        }
    };
    Unexpected::Again { bytes, receipt: Box::new(receipt) }
}

/// Ends a receive with a message that another one had.
pub(crate) fn deliver_again(
    core: &mut Core,
    key: OpKey,
    (peer, tag): (PeerId, u64),
    bytes: Bytes,
    mut receipt: Receipt,
) {
    let Some(op) = core.ops.recv_mut(key) else { return };
    let len = bytes.len();
    let bytes = if op.as_message {
        receipt.bytes = len;
        Some(Box::new(bytes))
    } else {
        receipt.bytes = bytes.write_to(&op.memory, &mut core.store);
        receipt.note_copies(core.copied_by(receipt.bytes));
        receipt.copied_user += receipt.bytes;
        core.status.copied_user.add(receipt.bytes);
        None
    };
    conclude(core, key, Arrived { peer, tag, len, receipt, bytes, loan: None });
}

/// Ends an operation.
pub(crate) fn finish(core: &mut Core, key: OpKey, result: Result<Done>) {
    core.ops.finish(key, result, &mut core.wakes);
    if !core.ops.settled.is_empty() || !core.ops.answered.is_empty() {
        settle::settle(core);
    }
    if !core.ops.passed_on.is_empty() {
        pass_on(core);
    }
}

/// The same of a message that was counted before.
pub(crate) fn conclude(core: &mut Core, key: OpKey, arrived: Arrived) {
    let result = match arrived.receipt.bytes < arrived.len {
        true => Received::from(&arrived).checked().map(Done::from),
        false => Ok(Done::Arrived(arrived)),
    };
    finish(core, key, result);
}
