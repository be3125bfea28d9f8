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

use crate::{
    Error, Message, Path, PeerId, Receipt, Refusal, Result,
    endpoint::{
        blocking::BlockingOp,
        payload::{Owned, Payload, keep},
        reply::Reply,
    },
    error::NotHandled,
    memory::scatter::{Part, Scatter},
    protocol::{
        active::send,
        rma::way::{OUT_MAX, PARTS_OUT_MAX},
    },
    wire::{
        active::{Label, Verb},
        change::Change,
        space::{ANSWER_HEAD, Answered, Ask, Claim, PART_MAX, Refused},
    },
    worker::{
        ends,
        engine::Engine,
        op::{Deliver, Done, Op, OpKey, OpKind, RecvOp, RecvStage, Taker},
        post,
        shared::Shared,
    },
};

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
pub(super) struct Agent {
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

/// An operation that the owner is asked for, with memory of this side's.
#[derive(Clone, Copy)]
pub(super) enum Does {
    Write(Part),
    Read(Part),
    Change(Change),
}

/// An operation for the agent, on addresses inside the exposed range. The receipt is that of its
/// end.
pub(super) enum Whole {
    Write(Spans, Receipt),
    Read(Spans, Receipt),
    Change(u64, Change),
}

impl Agent {
    /// Begins an operation, whose memory on this side its maker keeps until it has ended. It waits
    /// while as many are under way with the peer as may be.
    pub(super) fn begin(&self, does: Whole) -> Result<OpKey> {
        let origin = self.shared.origin_here();
        let mut engine = self.shared.enter()?;
        engine.check()?;
        engine.present(self.peer)?;
        let op = Op::new(OpKind::Recv(RecvOp::new(None)));
        let whole = engine.core.ops.insert(op);
        let transfer: Arc<dyn Any + Send + Sync> = Arc::new(Transfer {
            shared: Arc::downgrade(&self.shared),
            peer: self.peer,
            claim: self.claim,
            origin,
            whole,
            does,
            course: Mutex::default(),
        });
        if let Some(op) = engine.core.ops.recv_mut(whole) {
            op.stage = RecvStage::InParts { peer: self.peer, next: Some(transfer) };
        }
        engine.peer_mut(self.peer)?.0.agent_rma.waiting.push_back(whole);
        start_waiting(&self.shared, &mut engine, self.peer);
        Ok(whole)
    }

    /// Does an operation, whose memory on this side is borrowed meanwhile.
    pub(super) fn perform(&self, does: Whole) -> Result<Done> {
        BlockingOp::new(&self.shared, self.begin(does)?).wait()
    }
}

/// Starts operations that wait for the agent of a peer, in their order, as many as may be under
/// way.
fn start_waiting(shared: &Shared, engine: &mut Engine, id: PeerId) {
    while let Ok((peer, core)) = engine.peer_mut(id)
        && let Some(key) = peer.agent_rma.next()
    {
        let next = match core.ops.get_mut(key) {
            Some(Op { kind: OpKind::Recv(recv), done: None, .. }) => match &mut recv.stage {
                RecvStage::InParts { next, .. } => next.take(),
                _ => None,
            },
            _ => None,
        };
        match next.and_then(|next| next.downcast::<Transfer>().ok()) {
            Some(transfer) if transfer.begin(shared, engine) => {}
            // It was given up, or could not go.
            _ => {
                let Ok((peer, _)) = engine.peer_mut(id) else { return };
                peer.agent_rma.end();
            }
        }
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
    does: Whole,
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
            Whole::Write(spans, _) | Whole::Read(spans, _) => spans,
            Whole::Change(address, change) if course.span == 0 => {
                course.span = 1;
                let (address, change) = (*address, *change);
                // SAFETY: no memory.
                let memory = unsafe { Part::new(std::ptr::null_mut(), 0) };
                let question = Ask::Change { address, change }.payload(self.claim, 0);
                return Some((question, Span { address, memory }));
            }
            Whole::Change(..) => return None,
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
            Whole::Write(..) => {
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

    /// Asks the first questions. Returns whether any is out.
    fn begin(self: &Arc<Transfer>, shared: &Shared, engine: &mut Engine) -> bool {
        self.go_on(shared, engine);
        self.course.lock().out > 0
    }

    /// Asks as many questions as may be out, or ends the operation if all have been answered.
    fn go_on(self: &Arc<Transfer>, shared: &Shared, engine: &mut Engine) {
        let mut course = self.course.lock();
        while course.out < PARTS_OUT_MAX {
            let Some((question, about)) = self.next(&mut course) else { break };
            if let Err(error) = self.ask(shared, engine, question, about) {
                return ends::finish(&mut engine.core, self.whole, Err(error));
            }
            course.out += 1;
        }
        let receipt = match &self.does {
            Whole::Write(_, receipt) | Whole::Read(_, receipt) => receipt,
            Whole::Change(..) => return,
        };
        if course.out == 0 {
            ends::finish(&mut engine.core, self.whole, Ok(Done::Sent(*receipt)));
        }
    }

    /// Makes room for operations that wait, if no question of this one is out any more.
    fn leave(&self, shared: &Shared, engine: &mut Engine) {
        if self.course.lock().out > 0 {
            return;
        }
        if let Ok((peer, _)) = engine.peer_mut(self.peer) {
            peer.agent_rma.end();
        }
        start_waiting(shared, engine, self.peer);
    }

    fn ask(
        self: &Arc<Transfer>,
        shared: &Shared,
        engine: &mut Engine,
        question: Vec<u8>,
        about: Span,
    ) -> Result<()> {
        let answer = send::expect_answer(engine, self.peer, 0, self.origin)?;
        let label = Label { verb: Verb::Serve, id: 0, token: answer.index };
        let question = Owned(question);
        let goes = question
            .short()
            .is_some_and(|short| send::call_at_once(engine, self.peer, label, short));
        if !goes {
            let kept = keep(shared, question);
            send::post_request(engine, self.peer, label, answer, self.origin, kept)?;
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
        self.course.lock().out -= 1;
        let is_open = engine.core.ops.get(self.whole).is_some_and(|op| op.done.is_none());
        let end = match is_open.then(|| self.taken(engine, about, answer)) {
            Some(Ok(None)) => None,
            Some(Ok(Some(was))) => Some(Ok(Done::Was(was))),
            Some(Err(error)) => Some(Err(error)),
            // Its memory is the caller's.
            None => return self.leave(shared, engine),
        };
        match end {
            None => self.go_on(shared, engine),
            Some(end) => ends::finish(&mut engine.core, self.whole, end),
        }
        self.leave(shared, engine);
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
            Whole::Change(_, change) => change.word.size(),
            Whole::Write(..) | Whole::Read(..) => memory.len(),
        };
        match (&self.does, Answered::read(message)) {
            (Whole::Write(..), Some(Answered::Done)) if bytes.is_empty() => Ok(None),
            (Whole::Read(..), Some(Answered::Done)) if bytes.len() as u64 == len => {
                Scatter::from(memory).write(&mut engine.core.store, 0, bytes);
                Ok(None)
            }
            (Whole::Change(..), Some(Answered::Was(was))) => Ok(Some(was)),
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
        Refused::Outside | Refused::NotMapped | Refused::Senseless => {
            Error::NotMapped { address, len }
        }
        Refused::Full => Error::LimitReached {
            what: "operations by the agent of a peer",
            limit: OUT_MAX as u64,
            remedy: "let some of them end",
        },
    }
}
