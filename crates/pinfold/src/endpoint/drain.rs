//! Waiting until all posted operations have been delivered, as before an orderly end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::Endpoint;
use crate::{
    Error, Outstanding, Result,
    worker::{followers::Awaited, outstanding, shared::Shared},
};

impl Endpoint {
    /// Waits until all posted operations have been delivered, at most `patience`: call it before
    /// closing an endpoint if nothing is to be lost.
    ///
    /// - A message that takes its sender's memory ([`Path::Cma`](crate::Path::Cma),
    ///   [`Path::Mapped`](crate::Path::Mapped), and all that wait for room or credit) is delivered
    ///   when its receiver has it.
    /// - A message in a ring (`inline`, `eager`) is delivered at once to a peer on this host, which
    ///   can receive it after this endpoint is gone; to a peer on another host, when that has
    ///   acknowledged it.
    /// - Memory that was given ([`Endpoint::give`], [`Endpoint::handoff`]) is waited for until it
    ///   is back: until the receiver has dropped its view of it. Closing without that wait loses
    ///   nothing either, on one host: see there.
    /// - Answers to requests, and receives, are not waited for.
    ///
    /// Operations that other threads post meanwhile are waited for, too.
    ///
    /// # Errors
    /// [`Error::Undelivered`] with the rest, by peer; a peer that went meanwhile and had not got
    /// all is listed there as well. [`Error::Closed`], [`Error::Forked`].
    pub fn drain(&self, patience: Duration) -> Result<()> {
        self.shared().drain(patience)
    }
}

impl Shared {
    fn drain(self: &Arc<Shared>, patience: Duration) -> Result<()> {
        let end = Instant::now().checked_add(patience);
        let (mut last, mut lost) = (Vec::<Outstanding>::new(), Vec::new());
        let mut engine = self.enter()?;
        engine.core.awaits_returns += 1;
        // The thread that sleeps for all asks for that as well.
        engine.kick = true;
        engine.core.wakes.any = true;
        drop(engine);
        let drained = self.wait_for(end, Awaited::Anything, |engine| {
            if let Err(error) = engine.check() {
                return Some(Err(error));
            }
            let now = outstanding::outstanding(&mut engine.peers, &mut engine.core);
            for before in last.drain(..) {
                if let Some(gone) = outstanding::how_gone(engine, before.peer) {
                    lost.push(Outstanding { gone: Some(gone), ..before });
                }
            }
            last = now;
            last.is_empty().then_some(Ok(()))
        });
        self.enter()?.core.awaits_returns -= 1;
        if let Some(Err(closed)) = drained? {
            return Err(closed);
        }
        lost.append(&mut last);
        match lost.is_empty() {
            true => Ok(()),
            false => Err(Error::Undelivered { patience, left: lost }),
        }
    }
}
