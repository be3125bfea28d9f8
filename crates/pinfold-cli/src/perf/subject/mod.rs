//! What is measured: Pinfold, what one would use instead, and the floors.
//!
//! Every subject moves messages of an agreed size between the same two processes, from and into
//! the same plain memory, and is set up once, before anything is timed.

mod bytes;
mod cma;
mod line;
mod memcpy;
mod pinfold;
mod pipe;
mod ring;
mod tcp;
mod unix;

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{
    bench::{self, Outcome, Spec, Stage},
    fail::Result,
    pair::Pair,
    payload::Messages,
    plan::What,
};

/// A way to get bytes from here to there.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// One cache line bounced between the cores: the floor of all latency
    Line,
    /// A bare ring in shared memory, one copy in and one out: the floor of two-copy messages
    Ring,
    /// A copy within one process: no message at all
    Memcpy,
    /// process_vm_readv: the receiver reads the sender's memory
    Cma,
    /// A pipe in each direction
    Pipe,
    /// A Unix stream socket
    Unix,
    /// A TCP connection over loopback
    Tcp,
    /// This library
    Pinfold,
}

impl Kind {
    /// Every kind, floors first, Pinfold last.
    pub(crate) const ALL: [Kind; 8] = [
        Kind::Line,
        Kind::Ring,
        Kind::Memcpy,
        Kind::Cma,
        Kind::Pipe,
        Kind::Unix,
        Kind::Tcp,
        Kind::Pinfold,
    ];

    /// The name that options, tables and records use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Line => "line",
            Kind::Ring => "ring",
            Kind::Memcpy => "memcpy",
            Kind::Cma => "cma",
            Kind::Pipe => "pipe",
            Kind::Unix => "unix",
            Kind::Tcp => "tcp",
            Kind::Pinfold => "pinfold",
        }
    }

    /// Whether a program could use it instead of Pinfold to get a message across.
    pub(crate) const fn is_alternative(self) -> bool {
        matches!(self, Kind::Cma | Kind::Pipe | Kind::Unix | Kind::Tcp)
    }
}

/// The paths Pinfold may take while it is measured.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Route {
    /// All: the library chooses by itself, as it does in use
    Auto,
    /// In the descriptor only, up to 56 bytes
    Inline,
    /// Two copies through the shared ring only
    Eager,
    /// One copy by the kernel only
    Cma,
}

impl Route {
    /// All of them.
    pub(crate) const ALL: [Route; 4] = [Route::Inline, Route::Eager, Route::Cma, Route::Auto];

    /// The name that options, tables and records use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Route::Auto => "auto",
            Route::Inline => "inline",
            Route::Eager => "eager",
            Route::Cma => "cma",
        }
    }
}

/// One subject: a kind, and for Pinfold the paths it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Id {
    pub(crate) kind: Kind,
    pub(crate) route: Option<Route>,
}

/// The longest message that fits into a descriptor, bytes.
const INLINE_BYTES_MAX: usize = 56;

impl Id {
    /// A subject other than Pinfold.
    pub(crate) const fn plain(kind: Kind) -> Id {
        Id { kind, route: None }
    }

    /// Pinfold over these paths.
    pub(crate) const fn pinfold(route: Route) -> Id {
        Id { kind: Kind::Pinfold, route: Some(route) }
    }

    /// Whether measuring `what` with messages of `size` bytes makes sense for it.
    pub(crate) fn can(self, what: What, size: usize) -> bool {
        match self.kind {
            // A line is a hop and nothing else.
            Kind::Line => what == What::Latency && size == 8,
            // It only ever spins: its processor time says nothing.
            Kind::Ring => what != What::Cpu,
            Kind::Memcpy => matches!(what, What::Latency | What::Bandwidth | What::Cpu),
            Kind::Pinfold if self.route == Some(Route::Inline) => size <= INLINE_BYTES_MAX,
            Kind::Cma | Kind::Pipe | Kind::Unix | Kind::Tcp | Kind::Pinfold => true,
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.route {
            None => f.pad(self.kind.name()),
            Some(route) => f.pad(&format!("{} {}", self.kind.name(), route.name())),
        }
    }
}

/// How a subject waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It looks again at once: the least latency, a whole core.
    Spin,
    /// It sleeps in the kernel, as programs that mind their processor time do.
    Sleep,
}

/// One side's end of a subject that moves messages between the two processes.
///
/// Both sides know the size of the next message. Messages arrive in order.
pub(crate) trait Subject {
    /// Sends `message`. It may still be read until the other side has received it.
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Receives the next message, which is as long as `into`.
    fn recv(&mut self, into: &mut [u8]) -> Result<()>;

    /// Sends `count` messages, as many at a time as suits the subject.
    fn stream_out(&mut self, messages: &Messages, count: usize) -> Result<()> {
        (0..count).try_for_each(|number| self.send(messages.get(number)))
    }

    /// Receives `count` messages.
    fn stream_in(&mut self, into: &mut Messages, count: usize) -> Result<()> {
        (0..count).try_for_each(|number| self.recv(into.get_mut(number)))
    }

    /// Sends and receives `count` messages at once, while the other side does the same.
    fn exchange(&mut self, out: &Messages, into: &mut Messages, count: usize) -> Result<()>;

    /// How to wait from now on.
    fn set_waiting(&mut self, _waiting: Waiting) -> Result<()> {
        Ok(())
    }

    /// Whether messages carry bytes that can be checked.
    fn carries_bytes(&self) -> bool {
        true
    }

    /// The path that the last message took, where there is a choice.
    fn path_taken(&self) -> Option<&'static str> {
        None
    }
}

/// A subject as the runner sees it: something that does its part of one run.
pub(crate) trait Bench {
    /// Does this side's part.
    fn run(&mut self, stage: &mut Stage, spec: &Spec) -> Result<Outcome>;
}

impl<S: Subject> Bench for S {
    fn run(&mut self, stage: &mut Stage, spec: &Spec) -> Result<Outcome> {
        bench::run(self, stage, spec)
    }
}

/// Sets this side of a subject up, talking to the other side, which does the same.
///
/// # Errors
/// Why the subject cannot be had here; the others still can.
pub(crate) fn set_up(id: Id, pair: &mut Pair) -> Result<Box<dyn Bench>> {
    Ok(match id.kind {
        Kind::Line => Box::new(line::Line::set_up(pair)?),
        Kind::Ring => Box::new(ring::Ring::set_up(pair)?),
        Kind::Memcpy => Box::new(memcpy::Memcpy),
        Kind::Cma => Box::new(cma::Cma::set_up(pair)?),
        Kind::Pipe => Box::new(pipe::set_up(pair)?),
        Kind::Unix => Box::new(unix::set_up(pair)?),
        Kind::Tcp => Box::new(tcp::set_up(pair)?),
        Kind::Pinfold => Box::new(pinfold::Pinfold::set_up(pair, id.route.unwrap_or(Route::Auto))?),
    })
}
