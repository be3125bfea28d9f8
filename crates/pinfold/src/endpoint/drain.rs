//! Waiting until all posted operations have been delivered, as before an orderly end.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use super::Endpoint;
use crate::{Error, Gone, PeerId, Result, worker::shared::Shared};

/// Messages and memory that one peer has not been delivered, or has not given back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outstanding {
    /// The peer.
    pub peer: PeerId,
    /// Its label and process id.
    pub name: String,
    /// Messages that are not in its memory yet: queued here, announced and not received, or on
    /// their way to another host. Operations on its regions that it performs itself and answers
    /// count as well.
    pub sends: u64,
    /// Messages whose memory was given to it and is not back.
    pub given: u64,
    /// Bytes of that memory.
    pub given_bytes: u64,
    /// The way it went, if it did so meanwhile.
    pub gone: Option<Gone>,
}

impl Outstanding {
    /// True if nothing is outstanding.
    pub(crate) fn is_none(&self) -> bool {
        self.sends == 0 && self.given == 0
    }
}

impl fmt::Display for Outstanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outstanding { name, sends, given, given_bytes, .. } = self;
        write!(f, "{name}: {sends} sends, {given} given ({given_bytes} bytes)")?;
        self.gone.map_or(Ok(()), |how| write!(f, ", and {how}"))
    }
}

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
        let drained = self.wait_for(end, |engine| {
            if let Err(error) = engine.check() {
                return Some(Err(error));
            }
            let now = engine.outstanding();
            for before in last.drain(..) {
                if let Some(gone) = engine.how_gone(before.peer) {
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
