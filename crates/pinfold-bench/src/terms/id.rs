//! The names of the subjects that are measured.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{cell::Cell, group::Group, memory::Memory, setting::Setting, what::What};

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
    /// The receiver reads the sender's memory through a mapping: the floor of one-copy messages
    Mapping,
    /// A copy within one process: no message at all
    Memcpy,
    /// process_vm_readv: the receiver reads the sender's memory
    Cma,
    /// process_vm_writev: the sender writes into the receiver's memory, to a place that both know
    #[serde(rename = "cma-write")]
    CmaWrite,
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
    pub(crate) const ALL: [Kind; 10] = [
        Kind::Line,
        Kind::Ring,
        Kind::Mapping,
        Kind::Memcpy,
        Kind::Cma,
        Kind::CmaWrite,
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
            Kind::Mapping => "mapping",
            Kind::Memcpy => "memcpy",
            Kind::Cma => "cma",
            Kind::CmaWrite => "cma-write",
            Kind::Pipe => "pipe",
            Kind::Unix => "unix",
            Kind::Tcp => "tcp",
            Kind::Pinfold => "pinfold",
        }
    }

    /// Returns whether a program could use it instead of Pinfold to get a message across.
    pub(crate) const fn is_alternative(self) -> bool {
        matches!(self, Kind::Cma | Kind::Pipe | Kind::Unix | Kind::Tcp)
    }
}

/// The paths Pinfold may take while it is measured.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// All: the library chooses by itself, as it does in use
    Auto,
    /// In the descriptor only, up to 56 bytes
    Inline,
    /// Two copies through the shared ring only
    Eager,
    /// One copy by the kernel only
    Cma,
    /// One copy out of the receiver's mapping of the sender's arena only
    Mapped,
    /// No copy: the sender gives memory of an arena away, the receiver looks at it there
    Handoff,
    /// One-sided: written into a region of the other side, which sees it there
    Put,
    /// One-sided: read out of a region of the other side, once that has written it
    Get,
    /// One-sided: numbers added to a word of the other side
    #[serde(rename = "fetch-add")]
    FetchAdd,
    /// The same by both sides at once, to one word
    Contended,
    /// One-sided: written to an address of the other side's, which it has exposed
    Write,
    /// One-sided: read from such an address
    Read,
    /// Written so by the other side's agent, for want of another way
    #[serde(rename = "write-agent")]
    WriteAgent,
    /// Read so by the other side's agent
    #[serde(rename = "read-agent")]
    ReadAgent,
    /// Active messages: a request and its answer, or calls
    Active,
}

impl Route {
    /// All of them.
    pub(crate) const ALL: [Route; 15] = [
        Route::Inline,
        Route::Eager,
        Route::Cma,
        Route::Mapped,
        Route::Handoff,
        Route::Put,
        Route::Get,
        Route::FetchAdd,
        Route::Contended,
        Route::Write,
        Route::Read,
        Route::WriteAgent,
        Route::ReadAgent,
        Route::Active,
        Route::Auto,
    ];

    /// The name that options, tables and records use.
    pub const fn name(self) -> &'static str {
        match self {
            Route::Auto => "auto",
            Route::Inline => "inline",
            Route::Eager => "eager",
            Route::Cma => "cma",
            Route::Mapped => "mapped",
            Route::Handoff => "handoff",
            Route::Put => "put",
            Route::Get => "get",
            Route::FetchAdd => "fetch-add",
            Route::Contended => "contended",
            Route::Write => "write",
            Route::Read => "read",
            Route::WriteAgent => "write-agent",
            Route::ReadAgent => "read-agent",
            Route::Active => "active",
        }
    }

    /// Returns whether it is a one-sided operation on a region.
    pub(crate) const fn is_one_sided(self) -> bool {
        matches!(self, Route::Put | Route::Get | Route::FetchAdd | Route::Contended)
    }

    /// Returns whether it is a one-sided operation by address.
    pub(crate) const fn is_by_address(self) -> bool {
        matches!(self, Route::Write | Route::Read | Route::WriteAgent | Route::ReadAgent)
    }

    /// Returns whether the other side's agent does it.
    pub(crate) const fn is_by_agent(self) -> bool {
        matches!(self, Route::WriteAgent | Route::ReadAgent)
    }

    /// Its name in a row of a group that says the rest.
    pub(crate) const fn short(self) -> &'static str {
        match self {
            Route::WriteAgent => Route::Write.name(),
            Route::ReadAgent => Route::Read.name(),
            other => other.name(),
        }
    }
}

/// One subject: a kind, for Pinfold the paths it may take, and the memory of its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Id {
    pub(crate) kind: Kind,
    pub(crate) route: Option<Route>,
    pub(crate) memory: Memory,
}

/// The longest message that is written into a region or read out of it, bytes.
pub(crate) const REGION_BYTES_MAX: usize = 4 << 20;

/// The longest message that fits into a descriptor, bytes.
const INLINE_BYTES_MAX: usize = 56;

impl Id {
    /// A subject other than Pinfold.
    pub(crate) const fn plain(kind: Kind) -> Id {
        let memory = match kind {
            Kind::Mapping => Memory::Arena,
            _ => Memory::Heap,
        };
        Id { kind, route: None, memory }
    }

    /// Pinfold over these paths, with messages in memory that suits them; ordinary memory if any
    /// does.
    pub(crate) const fn pinfold(route: Route) -> Id {
        let memory = match route {
            Route::Mapped | Route::Handoff => Memory::Arena,
            _ if route.is_one_sided() => Memory::Arena,
            _ => Memory::Heap,
        };
        Id { kind: Kind::Pinfold, route: Some(route), memory }
    }

    /// Pinfold choosing by itself, with messages in ordinary memory: as it is used.
    pub(crate) const AUTO: Id = Id::pinfold(Route::Auto);

    /// Pinfold choosing by itself, with messages in an arena.
    pub(crate) const ARENA: Id =
        Id { kind: Kind::Pinfold, route: Some(Route::Auto), memory: Memory::Arena };

    /// Pinfold writing and reading by address in an arena, which is mapped.
    const BY_ADDRESS: [Id; 2] = [
        Id { kind: Kind::Pinfold, route: Some(Route::Write), memory: Memory::Arena },
        Id { kind: Kind::Pinfold, route: Some(Route::Read), memory: Memory::Arena },
    ];

    /// Every subject there is, floors first, Pinfold last.
    pub(crate) fn all() -> impl Iterator<Item = Id> {
        let others = Kind::ALL.into_iter().filter(|&kind| kind != Kind::Pinfold);
        let pinfold = Route::ALL.into_iter().map(Id::pinfold);
        others.map(Id::plain).chain(pinfold).chain(Id::BY_ADDRESS).chain([Id::ARENA])
    }

    /// The group that it has its rows in; `None` for subjects that stand beside all rows.
    pub(crate) const fn group(self) -> Option<Group> {
        match (self.kind, self.route, self.memory) {
            (Kind::Pinfold, Some(Route::Handoff), _) => Some(Group::Given),
            (Kind::Pinfold, Some(Route::Put | Route::FetchAdd), _) => Some(Group::Region),
            (Kind::Pinfold, Some(Route::Get), _) => Some(Group::Read),
            (Kind::Pinfold, Some(Route::Contended), _) => Some(Group::Contended),
            (Kind::Pinfold, Some(Route::Write), Memory::Arena) => Some(Group::WriteMapped),
            (Kind::Pinfold, Some(Route::Read), Memory::Arena) => Some(Group::ReadMapped),
            (Kind::Pinfold, Some(Route::Write), Memory::Heap) => Some(Group::WriteKernel),
            (Kind::Pinfold, Some(Route::Read), Memory::Heap) => Some(Group::ReadKernel),
            (Kind::Pinfold, Some(Route::WriteAgent), _) => Some(Group::WriteAgent),
            (Kind::Pinfold, Some(Route::ReadAgent), _) => Some(Group::ReadAgent),
            (Kind::Pinfold, Some(Route::Active), _) => Some(Group::Active),
            (Kind::Pinfold, _, Memory::Heap) => Some(Group::Heap),
            (Kind::Pinfold, _, Memory::Arena) | (Kind::Mapping, _, _) => Some(Group::Arena),
            _ => None,
        }
    }

    /// Returns whether a run in `cell` makes sense for it.
    pub(crate) fn can(self, cell: Cell) -> bool {
        let Cell { what, size, touched, setting } = cell;
        if setting != Setting::Alone && !(setting.has(self) && setting.measures(what)) {
            return false;
        }
        match self.kind {
            // Giving a buffer costs the same however both sides treat it.
            Kind::Pinfold if self.route == Some(Route::Handoff) => {
                what == What::Latency && !touched
            }
            // It ends in a word that the other side waits for.
            Kind::Pinfold if matches!(self.route, Some(Route::Put | Route::Get)) => {
                let fits = size.is_multiple_of(8) && size <= REGION_BYTES_MAX;
                what == What::Latency && fits && !touched
            }
            Kind::Pinfold if matches!(self.route, Some(Route::FetchAdd | Route::Contended)) => {
                what == What::Rate && !touched
            }
            Kind::CmaWrite => is_operation(cell),
            Kind::Pinfold if self.route.is_some_and(Route::is_by_address) => is_operation(cell),
            // An answer is ready before it is asked for.
            Kind::Pinfold if self.route == Some(Route::Active) => {
                matches!(what, What::Latency | What::Rate) && size == 8 && !touched
            }
            // A line is a hop and nothing else.
            Kind::Line => what == What::Latency && size == 8,
            // It only ever spins: its processor time says nothing.
            Kind::Ring => what != What::Cpu,
            Kind::Memcpy => matches!(what, What::Latency | What::Bandwidth | What::Cpu),
            Kind::Pinfold if self.route == Some(Route::Inline) => size <= INLINE_BYTES_MAX,
            // The memory of short messages makes no difference.
            Kind::Pinfold | Kind::Mapping if self.memory == Memory::Arena => {
                size > INLINE_BYTES_MAX && !matches!(what, What::Rate | What::Cpu)
            }
            Kind::Cma | Kind::Pipe | Kind::Unix | Kind::Tcp | Kind::Pinfold | Kind::Mapping => true,
        }
    }
}

/// Returns whether `cell` makes sense for an operation by address: a message ends in a word that
/// the other side waits for; in a stream there is nothing but that word.
const fn is_operation(cell: Cell) -> bool {
    let Cell { what, size, touched, .. } = cell;
    let fits = match what {
        What::Latency => size.is_multiple_of(8) && size <= REGION_BYTES_MAX,
        What::Rate => size == 8,
        _ => false,
    };
    fits && !touched
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.route {
            None => f.pad(self.kind.name()),
            Some(route) if *self == Id::pinfold(route) => {
                f.pad(&format!("{} {}", self.kind.name(), route.name()))
            }
            Some(route) => {
                let (kind, memory) = (self.kind.name(), self.memory.name());
                f.pad(&format!("{kind} {} {memory}", route.name()))
            }
        }
    }
}
