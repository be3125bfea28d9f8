//! How operations end, and to whom their results go.

use super::{
    op::{Done, Keeps, Next, OpKey, OpKind, PartOf, RecvOp, RecvStage, SendOp, Taker, Wakes},
    op_table::{OpTable, PassedOn},
};
use crate::{Error, Result, endpoint::received::MultiReceived};

impl OpTable {
    /// Ends an operation. Its waker, if any, is pushed onto `wakes`.
    pub(crate) fn finish(&mut self, key: OpKey, mut result: Result<Done>, wakes: &mut Wakes) {
        let Some(op) = self.get_mut(key) else { return };
        if op.done.is_some() {
            return;
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
