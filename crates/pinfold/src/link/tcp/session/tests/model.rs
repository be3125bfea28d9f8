//! Two sessions over connections that break anywhere, with real frames between them; and the same with
//! faults, each of which has to be noticed.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::wire::{
    active::Verb,
    tcp::{
        decoder::Decoder,
        frame::{
            Frame,
            body::{MessageHead, What},
        },
    },
};

/// What one side does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// It says that it has received one more than it has.
    TellsOneMore,
    /// ...one less.
    TellsOneLess,
    /// The same in a greeting.
    ResumesOneLater,
    /// It counts a frame as received when its head has come.
    CountsHeads,
    /// It delivers what was received before, after a greeting that says one less.
    DeliversAgain,
    /// It forgets, when a connection breaks, what was sent and not acknowledged.
    Forgets,
    /// It sends again from the end.
    SendsBackwards,
}

struct End {
    session: Session<usize>,
    fault: Fault,
    sent: Vec<Vec<u8>>,
    delivered: Vec<Vec<u8>>,
    released: Vec<usize>,
    decoder: Decoder,
    /// The frame whose payload is coming, and what has come of it.
    coming: Option<(Frame, Vec<u8>)>,
    /// On their way to the other end.
    wire: VecDeque<u8>,
}

type Checked = Result<(), String>;

impl End {
    fn new(fault: Fault) -> End {
        End {
            session: session(),
            fault,
            sent: Vec::new(),
            delivered: Vec::new(),
            released: Vec::new(),
            decoder: Decoder::new(),
            coming: None,
            wire: VecDeque::new(),
        }
    }

    /// Sends a message, if there is room.
    fn send(&mut self, len: usize) {
        let index = self.sent.len();
        if let Ok(seq) = self.session.outbox.push(len as u64, index) {
            self.sent.push((0..len).map(|at| (index * 31 + at) as u8).collect());
            self.write(seq, index);
        }
    }

    fn write(&mut self, seq: u64, index: usize) {
        let payload = self.sent[index].len() as u64;
        let (tag, id) = (index as u64, index as u64 + 1);
        let head = MessageHead { tag, len: payload, id, verb: Verb::Tagged };
        let acked = self.tell();
        let frame = Frame { seq, acked, credit: 0, payload, what: What::First(head) };
        self.wire.extend(frame.encode().iter());
        self.wire.extend(&self.sent[index]);
    }

    /// Acknowledges, if something is owed.
    fn acknowledge(&mut self) {
        if self.session.inbox.owes() {
            let acked = self.tell();
            let frame = Frame { seq: 0, acked, credit: 0, payload: 0, what: What::Ack };
            self.wire.extend(frame.encode().iter());
        }
    }

    fn tell(&mut self) -> u64 {
        let upto = self.session.inbox.tell();
        match self.fault {
            Fault::TellsOneMore => upto + 1,
            Fault::TellsOneLess => upto.saturating_sub(1),
            _ => upto,
        }
    }

    /// Takes a byte off the other end's wire.
    fn hear(&mut self, byte: u8) -> Checked {
        if let Some((_, payload)) = &mut self.coming {
            payload.push(byte);
            self.decoder.skip(1);
        } else {
            let (used, frame) = self.decoder.feed(&[byte]).map_err(|why| why.to_string())?;
            assert_eq!(used, 1);
            let Some(frame) = frame else { return Ok(()) };
            let released = &mut self.released;
            self.session
                .outbox
                .acknowledge(frame.acked, |index| released.push(index))
                .map_err(|why| why.to_string())?;
            if frame.seq == 0 {
                return Ok(());
            }
            if self.fault == Fault::CountsHeads && frame.seq == self.session.inbox.last() + 1 {
                self.session.inbox.received(frame.seq, frame.payload);
            }
            self.coming = Some((frame, Vec::new()));
        }
        match self.coming.take() {
            Some((frame, payload)) if payload.len() as u64 == frame.payload => {
                self.take(frame, payload)
            }
            coming => {
                self.coming = coming;
                Ok(())
            }
        }
    }

    fn take(&mut self, frame: Frame, payload: Vec<u8>) -> Checked {
        if self.fault == Fault::CountsHeads {
            self.delivered.push(payload);
            return Ok(());
        }
        match self.session.inbox.accept(frame.seq) {
            Verdict::Deliver => {
                self.session.inbox.received(frame.seq, frame.payload);
                self.delivered.push(payload);
            }
            Verdict::Duplicate if self.fault == Fault::DeliversAgain => {
                self.delivered.push(payload);
            }
            Verdict::Duplicate => {}
            Verdict::Gap(violation) => return Err(violation.to_string()),
        }
        Ok(())
    }

    /// What it says in the next greeting.
    fn received(&mut self) -> u64 {
        let upto = self.session.inbox.tell();
        match self.fault {
            Fault::ResumesOneLater => upto + 1,
            Fault::DeliversAgain => upto.saturating_sub(1),
            _ => upto,
        }
    }

    /// The connection broke, and another began in which the peer said what it has received.
    fn resume(&mut self, received: u64) -> Checked {
        self.wire.clear();
        (self.decoder, self.coming) = (Decoder::new(), None);
        if self.fault == Fault::Forgets {
            let last = self.session.outbox.last();
            self.session.outbox.acknowledge(last, |_| {}).map_err(|why| why.to_string())?;
            return Ok(());
        }
        let released = &mut self.released;
        let again = self.session.outbox.resume(received, |index| released.push(index));
        let mut again: Vec<_> =
            again.map_err(|why| why.to_string())?.map(|(seq, &index)| (seq, index)).collect();
        if self.fault == Fault::SendsBackwards {
            again.reverse();
        }
        for (seq, index) in again {
            self.write(seq, index);
        }
        Ok(())
    }
}

struct Pair {
    ends: [End; 2],
}

impl Pair {
    fn new(fault: Fault) -> Pair {
        Pair { ends: [End::new(fault), End::new(Fault::None)] }
    }

    /// Moves so many bytes away from one end.
    fn move_bytes(&mut self, from: usize, bytes: usize) -> Checked {
        for _ in 0..bytes {
            let Some(byte) = self.ends[from].wire.pop_front() else { break };
            self.ends[1 - from].hear(byte)?;
        }
        Ok(())
    }

    fn break_off(&mut self) -> Checked {
        let received = [self.ends[0].received(), self.ends[1].received()];
        self.ends[0].resume(received[1])?;
        self.ends[1].resume(received[0])
    }

    /// Until nothing is on its way, and everything is acknowledged; then everything has to be there.
    fn settle(&mut self) -> Checked {
        for _ in 0..3 {
            for from in [0, 1] {
                self.move_bytes(from, usize::MAX)?;
                self.ends[1 - from].acknowledge();
            }
        }
        for (from, to) in [(0, 1), (1, 0)] {
            let (from, to) = (&self.ends[from], &self.ends[to]);
            if from.sent != to.delivered {
                let (sent, delivered) = (from.sent.len(), to.delivered.len());
                return Err(format!("{sent} were sent and {delivered} delivered, or others"));
            }
            if from.released != (0..from.sent.len()).collect::<Vec<_>>() {
                return Err(format!("released: {:?}", from.released));
            }
            if from.session.outbox.held() != (0, 0) {
                return Err(format!("{:?} are still held", from.session.outbox.held()));
            }
        }
        Ok(())
    }
}

/// A few messages each way, of which the first `before` bytes of either side arrive before the
/// connection breaks; then more, and it breaks again.
fn broken_twice(fault: Fault, before: [usize; 2], again: usize) -> Checked {
    let mut pair = Pair::new(fault);
    for len in [3, 0, 5] {
        pair.ends[0].send(len);
        pair.ends[1].send(len + 1);
    }
    pair.move_bytes(0, before[0])?;
    pair.move_bytes(1, before[1])?;
    pair.ends[0].acknowledge();
    pair.ends[1].acknowledge();
    pair.break_off()?;
    pair.ends[0].send(2);
    pair.ends[1].send(4);
    for from in [0, 1] {
        pair.move_bytes(from, again)?;
        pair.ends[1 - from].acknowledge();
    }
    pair.break_off()?;
    pair.settle()
}

/// Bytes of the first three frames of an end, and a few more.
const FIRST_BYTES: usize = 3 * (32 + 24) + 8 + 3 + 1;

#[test]
fn a_connection_may_break_at_every_byte() {
    for first in 0..FIRST_BYTES {
        for second in [0, 1, 40, 56, 59, first, FIRST_BYTES] {
            let again = (first * 7 + second) % 260;
            broken_twice(Fault::None, [first, second], again)
                .unwrap_or_else(|why| panic!("{first} {second} {again}: {why}"));
        }
    }
}

#[test]
fn every_fault_is_noticed() {
    for fault in [
        Fault::TellsOneMore,
        Fault::TellsOneLess,
        Fault::ResumesOneLater,
        Fault::CountsHeads,
        Fault::DeliversAgain,
        Fault::Forgets,
        Fault::SendsBackwards,
    ] {
        let noticed = (0..FIRST_BYTES)
            .filter(|&at| broken_twice(fault, [at, FIRST_BYTES - at], at).is_err())
            .count();
        assert!(noticed > 0, "{fault:?}");
    }
}

#[derive(Clone, Debug)]
enum Op {
    Send(usize, usize),
    Move(usize, usize),
    Acknowledge(usize),
    Break,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let end = 0usize..2;
    // 0 and the lengths of a head, of a head with its body, and around them.
    let bytes = prop_oneof![Just(0), 1usize..80, Just(32), Just(56), 80usize..400];
    prop::collection::vec(
        prop_oneof![
            4 => (end.clone(), 0usize..60).prop_map(|(end, len)| Op::Send(end, len)),
            4 => (end.clone(), bytes).prop_map(|(end, bytes)| Op::Move(end, bytes)),
            2 => end.prop_map(Op::Acknowledge),
            1 => Just(Op::Break),
        ],
        0..80,
    )
}

proptest! {
    #[test]
    fn every_message_arrives_once_and_in_order(ops in ops()) {
        let mut pair = Pair::new(Fault::None);
        let mut run = || -> Checked {
            for op in &ops {
                match *op {
                    Op::Send(end, len) => pair.ends[end].send(len),
                    Op::Move(end, bytes) => pair.move_bytes(end, bytes)?,
                    Op::Acknowledge(end) => pair.ends[end].acknowledge(),
                    Op::Break => pair.break_off()?,
                }
                for end in &pair.ends {
                    let (frames, bytes) = end.session.outbox.held();
                    let kept = frames <= BOUNDS.unacknowledged_frames_max
                        && (bytes <= BOUNDS.unacknowledged_bytes_max || frames == 1);
                    if !kept {
                        return Err(format!("{frames} frames of {bytes} bytes are held"));
                    }
                }
            }
            pair.break_off()?;
            pair.settle()
        };
        prop_assert_eq!(run(), Ok(()));
    }
}
