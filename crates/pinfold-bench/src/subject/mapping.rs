//! `mapping`: the receiver reads the sender's memory through a mapping, bare: the floor of every
//! message that is copied once at user level.
//!
//! The sender writes into memory of its own that the receiver has mapped, as in an arena; the
//! receiver copies it out with `memcpy`.

use std::os::fd::AsFd;

use super::{
    Bench,
    offers::{Fetch, Offers},
};
use crate::{
    bench,
    exposed::{Exposed, Window},
    fail::Result,
    pair::Pair,
    payload::Messages,
    stage::Stage,
    terms::{Outcome, Side, Spec},
};

/// Address space for the longest message there may be, and for many short ones; bytes.
const BYTES: usize = (4 << 30) + (32 << 20);

/// One side of it.
pub(crate) struct Mapping {
    offers: Offers<Peek>,
    /// This side's messages, in memory that the other side sees.
    messages: Messages,
}

/// The other process's memory, as seen from here.
struct Peek {
    /// The address at which this side's memory begins.
    base: usize,
    window: Window,
}

impl Mapping {
    pub(crate) fn set_up(pair: &mut Pair) -> Result<Mapping> {
        let (exposed, file) = Exposed::create("pinfold-perf-mapping", BYTES)?;
        let theirs = match pair.side() {
            Side::First => {
                pair.tell_with(&(), &[file.as_fd()])?;
                pair.hear_with::<(), 1>()?
            }
            Side::Second => {
                let theirs = pair.hear_with::<(), 1>()?;
                pair.tell_with(&(), &[file.as_fd()])?;
                theirs
            }
        };
        let ((), [theirs]) = theirs;
        let peek = Peek { base: exposed.as_ptr() as usize, window: Window::open(&theirs, BYTES)? };
        Ok(Mapping { offers: Offers::set_up(pair, peek)?, messages: Messages::over(exposed) })
    }
}

impl Bench for Mapping {
    fn run(&mut self, stage: &mut Stage, spec: &Spec) -> Result<Outcome> {
        std::mem::swap(&mut stage.out, &mut self.messages);
        let done = bench::run(&mut self.offers, stage, spec);
        std::mem::swap(&mut stage.out, &mut self.messages);
        done
    }
}

impl Fetch for Peek {
    #[inline]
    fn locate(&self, message: &[u8]) -> u64 {
        (message.as_ptr() as usize - self.base) as u64
    }

    #[inline]
    fn fetch(&mut self, at: u64, into: &mut [u8]) -> Result<()> {
        self.window.copy_out(at as usize, into)
    }
}
