//! Answers that found no room when the caller left.
//!
//! A caller whose receive has ended may not call again for long; but the sender waits for the
//! answer, and if the ring was full then, the answer is still here. A thread is left with it: it
//! waits for room, delivers, and ends.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use pinfold_sys::{cpu::clock, threads::Kind};

use super::{
    engine::Engine,
    followers::Awaited,
    op::{Done, OpKey},
    progress,
    shared::Shared,
};
use crate::Result;

/// Its thread may run handlers.
const CONTROL_FLUSH: Kind = Kind::new("pinfold-answers", Kind::STACK_OF_PROGRAMS);

/// How long the caller itself waits for room: most peers are about to make some.
const GRACE: Duration = Duration::from_micros(50);

impl Shared {
    /// Waits until an operation has ended, and the answers to its peer are under way. `None`: the
    /// deadline passed first. In a forked child it has ended: nothing reaches its memory there.
    #[inline]
    pub(crate) fn wait_done(
        self: &Arc<Shared>,
        key: OpKey,
        deadline: Option<Instant>,
    ) -> Option<Result<Done>> {
        let done = self.wait_taken(deadline, key, |engine| engine.take_done(key));
        done.unwrap_or_else(|forked| Some(Err(forked)))
    }

    /// Waits until `take` has something of an operation, and the answers to its peer are under way.
    /// `None`: the deadline passed first.
    ///
    /// # Errors
    /// [`Error::Forked`](crate::Error::Forked).
    #[inline]
    pub(crate) fn wait_taken<T>(
        self: &Arc<Shared>,
        deadline: Option<Instant>,
        key: OpKey,
        mut take: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Result<Option<T>> {
        let mut blocked = false;
        let taken = self.wait_for(deadline, Awaited::Op(key), |engine| {
            let taken = take(engine);
            blocked = !engine.core.blocked.is_empty();
            taken
        });
        if blocked {
            self.deliver();
        }
        taken
    }

    /// The result of an operation if it has ended, after a turn of progress.
    pub(crate) fn try_done(self: &Arc<Shared>, key: OpKey) -> Option<Result<Done>> {
        let done = self.try_taken(|engine| {
            progress::progress(engine);
            engine.take_done(key)
        });
        done.unwrap_or_else(|forked| Some(Err(forked)))
    }

    /// Takes something, without waiting; then answers to peers are under way.
    ///
    /// # Errors
    /// [`Error::Forked`](crate::Error::Forked).
    pub(crate) fn try_taken<T>(
        self: &Arc<Shared>,
        take: impl FnOnce(&mut Engine) -> Option<T>,
    ) -> Result<Option<T>> {
        let mut engine = self.enter()?;
        let taken = take(&mut engine);
        let blocked = !engine.core.blocked.is_empty();
        drop(engine);
        if blocked && taken.is_some() {
            self.deliver();
        }
        Ok(taken)
    }

    /// Delivers answers that have found no room, if there are some, for a caller that may not call
    /// again for long.
    pub(crate) fn deliver_answers(self: &Arc<Shared>) {
        if self.enter().is_ok_and(|engine| !engine.core.blocked.is_empty()) {
            self.deliver();
        }
    }

    /// Delivers answers that have found no room.
    #[cold]
    fn deliver(self: &Arc<Shared>) {
        let end = Instant::now() + GRACE;
        loop {
            let Ok(mut engine) = self.enter() else { return };
            if !owes_answers(&mut engine) {
                return;
            }
            if engine.driven || engine.control_flush {
                engine.kick_if_needed();
                return;
            }
            if Instant::now() >= end {
                engine.control_flush = true;
                break;
            }
            progress::progress(&mut engine);
            drop(engine);
            clock::relax();
        }
        let shared = Arc::clone(self);
        match CONTROL_FLUSH.start(move || drop(shared.carry())) {
            Ok(control_flush) => {
                let mut place = self.control_flush.lock().unwrap_or_else(PoisonError::into_inner);
                *place = Some(control_flush);
            }
            Err(error) => {
                if let Ok(mut engine) = self.enter() {
                    engine.control_flush = false;
                }
                tracing::warn!(%error, "answers wait for the next call");
            }
        }
    }

    /// Waits until all answers are delivered, or no longer needed.
    fn carry(self: Arc<Shared>) -> Result<()> {
        self.wait_for(None, Awaited::Anything, |engine| {
            if owes_answers(engine) && !engine.core.closed {
                return None;
            }
            // Within the same entry: a thread that finds more answers after this starts another.
            engine.control_flush = false;
            Some(())
        })?;
        // Another thread may have been waiting behind this one.
        self.enter()?.core.wakes.any = true;
        Ok(())
    }
}

/// Returns whether answers wait for room.
pub(crate) fn owes_answers(engine: &mut Engine) -> bool {
    let peers = &mut engine.peers;
    engine.core.blocked.iter().any(|index| {
        peers.at_mut(*index).is_some_and(|peer| !peer.is_leaving() && peer.controls() > 0)
    })
}
