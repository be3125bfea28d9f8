//! `line`: one cache line bounced between the two cores: the floor under every latency.
//!
//! The line carries a counter, so a lost or repeated message would stop the run.

use std::{
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering},
};

use super::Subject;
use crate::{
    fail::{Fail, Result},
    pair::Pair,
    payload::Messages,
    shared::Shared,
    sync::Watch,
    terms::Side,
};

const BYTES: usize = 4096;

/// One side of the line.
pub(crate) struct Line {
    shared: Shared,
    watch: Watch,
    value: u64,
}

impl Line {
    pub(crate) fn set_up(pair: &mut Pair) -> Result<Line> {
        let shared = match pair.side() {
            Side::First => {
                let (shared, file) = Shared::create("pinfold-perf-line", BYTES)?;
                pair.tell_with(&(), &[file.as_fd()])?;
                shared
            }
            Side::Second => {
                let ((), [file]) = pair.hear_with()?;
                Shared::open(&file, BYTES)?
            }
        };
        Ok(Line { shared, watch: pair.watch(), value: 0 })
    }

    #[inline]
    fn word(&self) -> &AtomicU64 {
        &self.shared.lines()[0].0[0]
    }
}

impl Subject for Line {
    #[inline]
    fn send(&mut self, _message: &[u8]) -> Result<()> {
        self.value += 1;
        self.word().store(self.value, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn recv(&mut self, _into: &mut [u8]) -> Result<()> {
        self.value += 1;
        self.watch.until(|| self.word().load(Ordering::Acquire) == self.value)
    }

    fn exchange(&mut self, _: &Messages, _: &mut Messages, _: usize) -> Result<()> {
        Err(Fail::Said("a single line cannot go both ways at once".into()))
    }

    fn carries_bytes(&self) -> bool {
        false
    }
}
