//! A view of the endpoints of other processes.

use std::{fmt, time::Duration};

use super::{Counters, PeerCounters};
use crate::{Path, PathSet, Refusal, copy::Counts};

/// The result of one look. Made by [`endpoints`](super::endpoints).
///
/// ```
/// use pinfold::status::{View, endpoints_of};
///
/// # fn main() -> pinfold::Result<()> {
/// let endpoint = pinfold::Endpoint::builder().label("seen").build()?;
/// let view: View = endpoints_of(std::process::id())?; // `endpoints()` looks at all processes.
/// assert!(view.endpoints.iter().any(|one| one.label == "seen"));
/// assert!(view.troubles.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct View {
    /// The endpoints, in the order of their processes.
    pub endpoints: Vec<EndpointStatus>,
    /// Pages that cannot be read.
    pub troubles: Vec<Trouble>,
    /// Processes of this user that it may not look into; for root, of any user.
    pub hidden: usize,
}

/// The state of an endpoint at the moment.
///
/// ```
/// use pinfold::{Endpoint, status::{State, endpoints_of}};
///
/// # fn main() -> pinfold::Result<()> {
/// let endpoint = Endpoint::builder().label("in use").build()?;
/// let view = endpoints_of(std::process::id())?;
/// let state = view.endpoints.iter().find(|one| one.label == "in use").unwrap().state;
/// assert_eq!(state, State::Awake); // It neither sleeps nor waits for its descriptor.
/// assert_eq!(state.to_string(), "awake");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Its program calls it, or has left it alone since [`EndpointStatus::looked_ago`].
    Awake,
    /// A thread sleeps until something happens.
    Asleep,
    /// The program waits on the endpoint's descriptor, or was told that it may.
    Armed,
}

impl State {
    /// The lower-case name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            State::Awake => "awake",
            State::Asleep => "asleep",
            State::Armed => "armed",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One endpoint of a process.
///
/// The counters are those of this moment, each by itself. Waiting and queued messages are as they
/// were when the endpoint last changed them. Texts come from others; they have no control
/// characters.
///
/// ```
/// use pinfold::{Endpoint, status};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-status-endpoint-status-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let view = status::endpoints_of(std::process::id())?;
/// let seen = view.endpoints.iter().find(|one| one.address.as_ref() == Some(&name)).unwrap();
/// assert_eq!((seen.pid, seen.peers.len()), (std::process::id(), 2));
/// assert_eq!((seen.posted, seen.counters.peers_joined), (0, 2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndpointStatus {
    /// The number that it was given when it was made; no other has the same.
    pub id: [u8; 16],
    /// Its process.
    pub pid: u32,
    /// The name of its process.
    pub command: String,
    /// The user of its process.
    pub uid: u32,
    /// Its label; often none.
    pub label: String,
    /// The address at which it listens, if it does.
    pub address: Option<String>,
    /// True if another endpoint has taken that name, so that no peer finds this one by it:
    /// [`Error::NameLost`](crate::Error::NameLost).
    pub name_lost: bool,
    /// The time since it was made.
    pub age: Duration,
    /// Its state.
    pub state: State,
    /// The time for which it has neither looked at its sockets nor gone to sleep: below a
    /// millisecond for one that waits or receives without sleep. One that is asleep went to sleep
    /// then.
    pub looked_ago: Duration,
    /// Counts of its work so far, with all peers, also those that are gone.
    pub counters: Counters,
    /// Its peers.
    pub peers: Vec<PeerStatus>,
    /// Connected peers beyond the 1,600 that have a place in `peers`.
    pub peers_unlisted: u64,
    /// Peers that have connected and were not accepted yet.
    pub newcomers: u64,
    /// Receives that wait for a message.
    pub posted: u64,
    /// Messages that wait for a receive.
    pub stored: u64,
    /// Long messages being copied, in and out.
    pub copying: u64,
    /// Memory that its lanes have grown by, bytes.
    pub lane_bytes: u64,
    /// ...and may grow by: `Builder::lane_bytes_max`.
    pub lane_bytes_max: u64,
    /// Memory promised to peers for unexpected messages, bytes.
    pub granted_bytes: u64,
    /// ...of this much: `Builder::unexpected_bytes_max`.
    pub unexpected_bytes_max: u64,
    /// Address space in which it has arenas of its peers mapped, bytes. Not memory of its own.
    pub mapped_bytes: u64,
    /// ...and may have: `Builder::mapped_bytes_max`.
    pub mapped_bytes_max: u64,
    /// Files of arenas that its process has: of all its arenas, for any endpoint.
    pub arena_files: u64,
    /// Memory of those files, bytes.
    pub arena_bytes: u64,
    /// The counts of [`Endpoint::copies`](crate::Endpoint::copies), as they were at most some
    /// milliseconds before the endpoint last looked around.
    pub copies: Counts,
}

/// One peer of an endpoint.
///
/// ```
/// use pinfold::{Endpoint, Path, status};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-status-peer-status-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let view = status::endpoints_of(std::process::id())?;
/// let seen = view.endpoints.iter().find(|one| one.address.as_ref() == Some(&name)).unwrap();
/// let called = seen.peers.iter().find(|peer| peer.address.is_some()).unwrap();
/// assert_eq!((called.pid, called.queued, called.waits), (std::process::id(), 0, None));
/// assert!(called.paths.contains(Path::Eager));
/// assert_eq!(called.refused(Path::Eager), None); // Other paths may have a reason.
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PeerStatus {
    /// Its number among the peers of the endpoint; no later peer has the same.
    pub id: u64,
    /// Its [`EndpointStatus::id`].
    pub endpoint: [u8; 16],
    /// Its process, as the endpoint's process knows it; 0 if it does not.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its label; often none.
    pub label: String,
    /// The address that was connected to; `None` if the peer connected.
    pub address: Option<String>,
    /// The paths on which messages to it can go.
    pub paths: PathSet,
    /// The reasons why they cannot go on the others.
    pub refusals: Vec<(Path, Refusal)>,
    /// Counts of messages exchanged with it.
    pub counters: PeerCounters,
    /// Sends with something left to write.
    pub queued: u64,
    /// Answers that found no room yet.
    pub answers: u64,
    /// Announced messages that it has not asked for; it takes `waiting_max`.
    pub waiting: u64,
    /// See `waiting`.
    pub waiting_max: u64,
    /// The time for which the longest-waiting send has waited, of those that are queued or
    /// announced; `None` if none does. The endpoint looks when it goes to sleep, and now and then:
    /// a send that has only just begun to wait is counted before it is seen here.
    pub waits: Option<Duration>,
    /// Credit in use, bytes: for messages that the endpoint has not yet seen taken. It looks when
    /// it goes to sleep, when credit runs out, and now and then.
    pub credit_used: u64,
    /// Credit it gave, bytes.
    pub credit_max: u64,
    /// Its messages that wait for a receive here, as bytes of its credit.
    pub owed: u64,
    /// Credit that it was given, bytes.
    pub granted: u64,
    /// Its announced messages that wait for a receive here; `announced_max` are taken.
    pub announced: u64,
    /// See `announced`.
    pub announced_max: u64,
    /// Its messages that are coming in in pieces.
    pub arriving: u64,
    /// Memory of the lane to it, bytes.
    pub lane_bytes: u64,
    /// Memory that is given to it and is not back, bytes, with 1 KiB for each message.
    pub given_bytes: u64,
    /// True if a message or answer for it finds no room.
    pub blocked: bool,
    /// True if it is being let go.
    pub leaving: bool,
    /// True if it is reached over a connection that is encrypted.
    pub encrypted: bool,
}

impl PeerStatus {
    /// The reason why messages to it cannot go by `path`.
    pub fn refused(&self, path: Path) -> Option<Refusal> {
        self.refusals.iter().find(|(other, _)| *other == path).map(|(_, why)| *why)
    }
}

/// A page that calls itself a status page, and its fault.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// let endpoint = pinfold::Endpoint::new()?;
/// let view = pinfold::status::endpoints()?; // All processes that may be looked into.
/// for trouble in &view.troubles {
///     eprintln!("{trouble}"); // A line such as: worker (pid 17) has an endpoint of ...
/// }
/// assert!(view.troubles.iter().all(|trouble| trouble.pid != std::process::id()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trouble {
    /// The process that has it.
    pub pid: u32,
    /// The name of that process.
    pub command: String,
    /// The fault.
    pub what: Problem,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {}) {}", self.command, self.pid, self.what)
    }
}

/// The fault of a page.
///
/// ```
/// use pinfold::status::{Problem, endpoints};
///
/// # fn main() -> pinfold::Result<()> {
/// let endpoint = pinfold::Endpoint::new()?;
/// let mut older_or_newer = Vec::new();
/// for trouble in endpoints()?.troubles {
///     match trouble.what {
///         Problem::OtherVersion(_) => older_or_newer.push(trouble.pid), // To be updated.
///         other => eprintln!("{}: {other}", trouble.pid),
///     }
/// }
/// assert!(!older_or_newer.contains(&std::process::id()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// It is of another version of Pinfold, with this number.
    OtherVersion(u64),
    /// It is no page of Pinfold's, or not one that its endpoint wrote.
    Nonsense(&'static str),
    /// It changed whenever it was read; or its process was stopped when it was being changed.
    Unsteady,
    /// It could not be read: the system's error.
    Unreadable(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::OtherVersion(version) => {
                let (layout, paths) = (version >> 8, version & 0xff);
                write!(f, "has an endpoint of another version (layout {layout}, {paths} paths)")
            }
            Problem::Nonsense(why) => write!(f, "has something that is no status page: {why}"),
            Problem::Unsteady => f.write_str("has an endpoint whose status never kept still"),
            Problem::Unreadable(why) => {
                write!(f, "has an endpoint whose status cannot be read: {why}")
            }
        }
    }
}
