#![allow(unsafe_code)]
//! Operations by the owner's agent, through the ring.
//!
//! An operation is one entry of the table of operations, as any other is, and goes on in parts: a
//! question to the agent for each, a few of them out at a time. Whoever hears an answer asks the
//! next question.
//!
//! **Invariant.** The operation's memory on this side is touched under the engine's lock alone, and
//! only while the operation has not ended: its maker keeps the memory until then.

use std::{
    any::Any,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::agent::PART_MAX;
use crate::{
    Error, Message, Path, PeerId, Receipt, Refusal, Result,
    endpoint::{
        blocking::BlockingOp,
        payload::{Owned, Payload, keep},
        reply::Reply,
    },
    error::NotHandled,
    memory::scatter::{Part, Scatter},
    wire::{
        active::{Label, Verb},
        change::Change,
        space::{ANSWER_HEAD, Answered, Ask, Claim, Refused},
    },
    worker::{
        Engine,
        op::{Deliver, Done, Op, OpKey, OpKind, RecvOp, RecvStage, Taker},
        post,
        shared::Shared,
    },
};

/// Questions that are out at a time for one operation.
const AHEAD: usize = 4;

/// Asks the agent.
pub(super) fn ask(shared: &Arc<Shared>, peer: PeerId, claim: Claim, ask: Ask) -> Reply {
    Reply::ask_agent(shared, peer, Owned(ask.payload(claim, 0)))
}

/// The error of the operation, for the error of a question.
pub(super) fn failed(error: Error) -> Error {
    match error {
        // Nothing was ever exposed there.
        Error::NotHandled { why: NotHandled::NoHandler, .. } => Error::BadKey,
        other => other,
    }
}

/// The agent, as this side asks it.
pub(super) struct Served {
    pub shared: Arc<Shared>,
    pub peer: PeerId,
    pub claim: Claim,
}

/// Memory of the peer's, and of this side's that its bytes come from or go to.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub address: u64,
    pub memory: Part,
}

// SAFETY: two addresses and a length; the memory is touched under the engine's lock alone.
unsafe impl Send for Span {}
// SAFETY: as for `Send`.
unsafe impl Sync for Span {}

/// The spans of one operation.
pub(super) type Spans = SmallVec<[Span; 1]>;

/// An operation for the agent, on addresses inside the exposed range. The receipt is that of its
/// end.
pub(super) enum Does {
    Write(Spans, Receipt),
    Read(Spans, Receipt),
    Change(u64, Change),
}

impl Served {
    /// Begins an operation, whose memory on this side its maker keeps until it has ended.
    pub(super) fn begin(&self, does: Does) -> Result<OpKey> {
        let origin = self.shared.origin_here();
        let mut engine = self.shared.enter()?;
        engine.check()?;
        engine.present(self.peer)?;
        let stage = RecvStage::InParts { peer: self.peer };
        let op = Op::new(OpKind::Recv(RecvOp { stage, ..RecvOp::new(None) }));
        let whole = engine.core.ops.insert(op);
        let transfer = Arc::new(Transfer {
            shared: Arc::downgrade(&self.shared),
            peer: self.peer,
            claim: self.claim,
            origin,
            whole,
            does,
            course: Mutex::default(),
        });
        transfer.go_on(&self.shared, &mut engine);
        Ok(whole)
    }

    /// Does an operation, whose memory on this side is borrowed meanwhile.
    pub(super) fn perform(&self, does: Does) -> Result<Done> {
        BlockingOp::new(&self.shared, self.begin(does)?).wait()
    }
}

/// An operation under way.
struct Transfer {
    shared: Weak<Shared>,
    peer: PeerId,
    claim: Claim,
    /// The peer whose message a handler was seeing to when it began this.
    origin: Option<PeerId>,
    /// The operation, as its maker knows it.
    whole: OpKey,
    does: Does,
    course: Mutex<Course>,
}

/// How far it has come.
#[derive(Default)]
struct Course {
    /// The span that the next question is about, and bytes of it that were asked for.
    span: usize,
    asked: usize,
    /// Questions that are out.
    out: usize,
}

/// A question that is out.
struct Asked {
    transfer: Arc<Transfer>,
    about: Span,
    result: Option<Result<Done>>,
}

impl Transfer {
    /// The next question, and its subject. `None`: all have been asked.
    fn next(&self, course: &mut Course) -> Option<(Vec<u8>, Span)> {
        let spans = match &self.does {
            Does::Write(spans, _) | Does::Read(spans, _) => spans,
            Does::Change(address, change) if course.span == 0 => {
                course.span = 1;
                let (address, change) = (*address, *change);
                // SAFETY: no memory.
                let memory = unsafe { Part::new(std::ptr::null_mut(), 0) };
                let question = Ask::Change { address, change }.payload(self.claim, 0);
                return Some((question, Span { address, memory }));
            }
            Does::Change(..) => return None,
        };
        let (ptr, whole) = spans.get(course.span)?.memory.raw();
        let len = (whole - course.asked).min(PART_MAX);
        let at = ptr.wrapping_add(course.asked);
        let address = spans[course.span].address + course.asked as u64;
        // SAFETY: a part of the memory, which is kept as long.
        let memory = unsafe { Part::new(at, len) };
        course.asked += len;
        if course.asked == whole {
            (course.span, course.asked) = (course.span + 1, 0);
        }
        let question = match &self.does {
            Does::Write(..) => {
                let mut question = Ask::Write { address }.payload(self.claim, len);
                let head = question.len();
                question.reserve_exact(len);
                // SAFETY: the one is readable, by the module's invariant, and the other was
                // reserved just now.
                unsafe {
                    std::ptr::copy_nonoverlapping(at, question.as_mut_ptr().add(head), len);
                    question.set_len(head + len);
                }
                question
            }
            _ => Ask::Read { address, len: len as u64 }.payload(self.claim, 0),
        };
        Some((question, Span { address, memory }))
    }

    /// Asks as many questions as may be out, or ends the operation if all have been answered.
    fn go_on(self: &Arc<Transfer>, shared: &Shared, engine: &mut Engine) {
        let mut course = self.course.lock();
        while course.out < AHEAD {
            let Some((question, about)) = self.next(&mut course) else { break };
            if let Err(error) = self.ask(shared, engine, question, about) {
                return engine.core.finish(self.whole, Err(error));
            }
            course.out += 1;
        }
        let receipt = match &self.does {
            Does::Write(_, receipt) | Does::Read(_, receipt) => receipt,
            Does::Change(..) => return,
        };
        if course.out == 0 {
            engine.core.finish(self.whole, Ok(Done::Sent(*receipt)));
        }
    }

    fn ask(
        self: &Arc<Transfer>,
        shared: &Shared,
        engine: &mut Engine,
        question: Vec<u8>,
        about: Span,
    ) -> Result<()> {
        let answer = engine.expect_answer(self.peer, 0, self.origin)?;
        let label = Label { verb: Verb::Serve, id: 0, token: answer.index };
        let question = Owned(question);
        let goes =
            question.short().is_some_and(|short| engine.call_at_once(self.peer, label, short));
        if !goes {
            let kept = keep(shared, question);
            engine.post_request(self.peer, label, answer, self.origin, kept)?;
        }
        let transfer = Arc::clone(self);
        match engine.core.ops.get_mut(answer) {
            Some(op) if op.done.is_none() => {
                op.taker = Some(Box::new(Asked { transfer, about, result: None }));
                Ok(())
            }
            // It could not go.
            _ => engine.take_done(answer).unwrap_or(Err(Error::Closed)).map(drop),
        }
    }

    /// Takes an answer, unless the operation has ended.
    fn heard(
        self: &Arc<Transfer>,
        shared: &Shared,
        engine: &mut Engine,
        about: Span,
        answer: Result<&Message>,
    ) {
        let is_open = engine.core.ops.get(self.whole).is_some_and(|op| op.done.is_none());
        if !is_open {
            return;
        }
        self.course.lock().out -= 1;
        match self.taken(engine, about, answer) {
            Err(error) => engine.core.finish(self.whole, Err(error)),
            Ok(Some(was)) => engine.core.finish(self.whole, Ok(Done::Was(was))),
            Ok(None) => self.go_on(shared, engine),
        }
        // The thread that sleeps for all may wait for this operation, or has to look for work that
        // this left behind.
        (engine.kick, engine.core.wakes.any) = (true, true);
    }

    /// Takes the bytes of an answer, or returns the old value of a word.
    fn taken(
        &self,
        engine: &mut Engine,
        Span { address, memory }: Span,
        answer: Result<&Message>,
    ) -> Result<Option<u64>> {
        let message = answer.map_err(failed)?;
        let bytes = message.get(ANSWER_HEAD..).unwrap_or(&[]);
        let len = match &self.does {
            Does::Change(_, change) => change.word.size(),
            Does::Write(..) | Does::Read(..) => memory.len(),
        };
        match (&self.does, Answered::read(message)) {
            (Does::Write(..), Some(Answered::Done)) if bytes.is_empty() => Ok(None),
            (Does::Read(..), Some(Answered::Done)) if bytes.len() as u64 == len => {
                Scatter::from(memory).write(&mut engine.core.store, 0, bytes);
                Ok(None)
            }
            (Does::Change(..), Some(Answered::Was(was))) => Ok(Some(was)),
            (_, Some(Answered::Refused(why))) => Err(refused(why, address, len)),
            _ => Err(Error::NotMapped { address, len }),
        }
    }
}

impl Deliver for Asked {
    fn deliver(self: Box<Self>) {
        let Asked { transfer, about, result } = *self;
        let Some(shared) = transfer.shared.upgrade() else { return };
        // A long answer is put together, and given back, outside of the engine.
        let message;
        let answer = match post::arrived(result.unwrap_or(Err(Error::Closed))) {
            Ok(arrived) => {
                message = Message::new(arrived);
                Ok(&message)
            }
            Err(error) => Err(error),
        };
        // In a forked child the operation is the parent's.
        let Ok(mut engine) = shared.enter() else { return };
        transfer.heard(&shared, &mut engine, about, answer);
    }
}

impl Taker for Asked {
    fn take(&mut self, result: Result<Done>) {
        self.result = Some(result);
    }

    fn is_of(&self, _: u64) -> bool {
        false
    }

    fn into_buffer(self: Box<Self>) -> Box<dyn Any + Send> {
        Box::new(())
    }
}

/// The error that a refusal is.
fn refused(why: Refused, address: u64, len: u64) -> Error {
    match why {
        Refused::Unknown => Error::Revoked,
        Refused::ReadOnly => Error::ReadOnly,
        Refused::Misaligned => Error::Misaligned { offset: address, size: len },
        Refused::NoMeans => Error::PathRefused { path: Path::Mapped, why: Refusal::NotShareable },
        // This side knows the exposed range: an owner that says so of an address inside has no
        // memory there.
        Refused::Outside | Refused::NotMapped | Refused::Full | Refused::Senseless => {
            Error::NotMapped { address, len }
        }
    }
}
