//! Ones are added to a word of the second process: by the first alone, or by both at once until
//! together they have added enough. In the end the word must have all of them.

use std::sync::atomic::Ordering;

use super::{ADDED, COUNTER, Region, WORD};
use crate::{
    fail::{Fail, Result},
    payload::Messages,
    stage::Stage,
    subject::Subject,
    terms::Route,
};

/// The adding of many.
pub(super) struct Adding<'a>(pub &'a mut Region);

/// After a run: checks that the word is the sum of both sides' additions.
pub(super) fn check(region: &Region, stage: &mut Stage) -> Result<()> {
    if !stage.is_first() {
        region.own.write(ADDED, &region.added.to_ne_bytes())?;
        return stage.sync.barrier();
    }
    // The other side has written it by now.
    stage.sync.barrier()?;
    let mut theirs = [0; WORD];
    region.theirs.read(ADDED as u64, &mut theirs)?;
    let added = region.added + u64::from_ne_bytes(theirs);
    match region.theirs.fetch_add(COUNTER as u64, 0u64)? {
        found if found == added => Ok(()),
        found => Err(Fail::Said(format!("{added} was added, {found} is there"))),
    }
}

impl Region {
    /// Adds, while the other side does, until the word has the sum that both are to have added by
    /// now.
    fn race(&mut self, count: usize, add: impl Fn(&Region) -> Result<u64>) -> Result<()> {
        self.goal += count as u64;
        loop {
            let was = add(self)?;
            self.added += 1;
            if was + 1 >= self.goal {
                return Ok(());
            }
        }
    }
}

impl Subject for Adding<'_> {
    fn stream_out(&mut self, _messages: &Messages, count: usize) -> Result<()> {
        let region = &mut *self.0;
        if region.route == Route::Contended {
            return region
                .race(count, |region| Ok(region.theirs.fetch_add(COUNTER as u64, 1u64)?));
        }
        for _ in 0..count {
            region.theirs.fetch_add(COUNTER as u64, 1u64)?;
        }
        region.added += count as u64;
        Ok(())
    }

    fn stream_in(&mut self, _into: &mut Messages, count: usize) -> Result<()> {
        if self.0.route != Route::Contended {
            // The owner does nothing for the operation.
            return Ok(());
        }
        self.0.race(count, |region| {
            let word = region.own.word64(COUNTER).ok_or(Fail::Gone)?;
            Ok(word.fetch_add(1, Ordering::SeqCst))
        })
    }

    fn send(&mut self, _message: &[u8]) -> Result<()> {
        Err(Fail::Said("a number that is added is no message".into()))
    }

    fn recv(&mut self, _into: &mut [u8]) -> Result<()> {
        Err(Fail::Said("a number that is added is no message".into()))
    }

    fn exchange(&mut self, _: &Messages, _: &mut Messages, _: usize) -> Result<()> {
        Err(Fail::Said("a number that is added is no message".into()))
    }

    fn carries_bytes(&self) -> bool {
        false
    }
}
