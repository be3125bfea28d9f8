//! What is measured, by name.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::what::What;

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
