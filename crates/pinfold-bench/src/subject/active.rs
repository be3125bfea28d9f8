//! `active`: active messages, eight bytes each: requests to a handler of the second process, which
//! answers within it, and a stream of calls to another one.
//!
//! The second process looks for messages without a pause, like a program that has nothing else to
//! do. Its answer is the same all through a run.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use pinfold::{Endpoint, PeerId, Reply};

use super::{Bench, Subject, pinfold::connect};
use crate::{
    bench,
    fail::{Fail, Result},
    pair::Pair,
    payload::Messages,
    stage::Stage,
    sync::Watch,
    terms::{Id, Outcome, Side, Spec},
    verify,
};

/// The handler that answers.
const ASK: u32 = 1;
/// The handler that does not answer.
const TELL: u32 = 2;

/// One side of it.
pub(crate) struct Active {
    side: Side,
    endpoint: Endpoint,
    peer: PeerId,
    watch: Watch,
    served: Arc<Served>,
    /// Second: the number of messages to wait for.
    awaited: u64,
    /// First: the number of the request being answered.
    reply: Option<Reply>,
}

/// State that handlers and their process share. One thread does all of it.
#[derive(Default)]
struct Served {
    /// The number of messages that came, and the last of them.
    messages: AtomicU64,
    last: AtomicU64,
    /// The answer to requests.
    answer: AtomicU64,
}

impl Served {
    fn take(&self, payload: &[u8]) {
        // A message of another length is not counted, and so missed.
        if let Ok(word) = payload.try_into() {
            self.last.store(u64::from_ne_bytes(word), Ordering::Relaxed);
            self.messages.store(self.messages.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
}

impl Active {
    pub(crate) fn set_up(pair: &mut Pair, id: Id) -> Result<Active> {
        let (endpoint, peer) = connect(pair, id)?;
        let (watch, served) = (pair.watch(), Arc::new(Served::default()));
        let here = Arc::clone(&served);
        endpoint.handle(ASK, move |active| {
            here.take(active.payload());
            // The requester hears if it fails.
            let _ = active.reply(&here.answer.load(Ordering::Relaxed).to_ne_bytes());
        })?;
        let here = Arc::clone(&served);
        endpoint.handle(TELL, move |active| here.take(active.payload()))?;
        Ok(Active { side: pair.side(), endpoint, peer, watch, served, awaited: 0, reply: None })
    }
}

impl Bench for Active {
    fn run(&mut self, stage: &mut Stage, spec: &Spec) -> Result<Outcome> {
        let mut answer = [0; 8];
        verify::fill(&mut answer, verify::seed(spec.first_number(Side::Second)));
        self.served.answer.store(u64::from_ne_bytes(answer), Ordering::Relaxed);
        bench::run(&mut Asking(self), stage, spec)
    }
}

/// A request at a time, or many calls.
struct Asking<'a>(&'a mut Active);

impl Asking<'_> {
    /// Second: handles so many more messages, and copies the last of them.
    #[inline]
    fn serve(&mut self, count: usize, into: &mut [u8]) -> Result<()> {
        let active = &mut *self.0;
        active.awaited += count as u64;
        let mut failed = None;
        active.watch.until(|| {
            // Handlers run as this returns.
            failed = active.endpoint.progress().err();
            failed.is_some() || active.served.messages.load(Ordering::Relaxed) >= active.awaited
        })?;
        if let Some(why) = failed {
            return Err(why.into());
        }
        let came = active.served.messages.load(Ordering::Relaxed);
        if came != active.awaited {
            return Err(Fail::Said(format!("{came} messages came, not {}", active.awaited)));
        }
        copy(&active.served.last.load(Ordering::Relaxed).to_ne_bytes(), into)
    }
}

fn copy(message: &[u8], into: &mut [u8]) -> Result<()> {
    if message.len() != into.len() {
        let (came, wanted) = (message.len(), into.len());
        return Err(Fail::Said(format!("a message of {came} bytes came, not of {wanted}")));
    }
    into.copy_from_slice(message);
    Ok(())
}

impl Subject for Asking<'_> {
    /// First: asks. Second: its answer has gone already.
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let active = &mut *self.0;
        if active.side == Side::First {
            active.reply = Some(active.endpoint.request(active.peer, ASK, message));
        }
        Ok(())
    }

    #[inline]
    fn recv(&mut self, into: &mut [u8]) -> Result<()> {
        match self.0.reply.take() {
            Some(reply) => copy(&reply.wait()?, into),
            None => self.serve(1, into),
        }
    }

    fn stream_out(&mut self, messages: &Messages, count: usize) -> Result<()> {
        let Active { endpoint, peer, .. } = &*self.0;
        (0..count).try_for_each(|number| {
            endpoint.call(*peer, TELL, messages.get(number))?;
            Ok(())
        })
    }

    fn stream_in(&mut self, into: &mut Messages, count: usize) -> Result<()> {
        self.serve(count, into.get_mut(0))
    }

    fn exchange(&mut self, _: &Messages, _: &mut Messages, _: usize) -> Result<()> {
        Err(Fail::Said("one side asks, the other answers".into()))
    }
}
