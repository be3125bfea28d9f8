//! What can be seen of the endpoints of other processes.

use std::{fmt, time::Duration};

use super::{Counters, PeerCounters};
use crate::{Path, PathSet, Refusal, copy::Counts};

/// What was found in one look. Made by [`endpoints`](super::endpoints).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct View {
    /// The endpoints, in the order of their processes.
    pub endpoints: Vec<EndpointStatus>,
    /// Pages that say nothing.
    pub troubles: Vec<Trouble>,
    /// Processes of this user that it may not look into; for root, of anybody.
    pub hidden: usize,
}

/// How an endpoint is at the moment.
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
/// The counters are those of this moment, each by itself. What waits and what is queued is as it
/// was when the endpoint last changed it. Texts come from others; they have no control characters.
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
    /// Where it listens, if it does.
    pub address: Option<String>,
    /// Whether another endpoint has taken that name, so that nobody finds this one by it:
    /// [`Error::NameLost`](crate::Error::NameLost).
    pub name_lost: bool,
    /// Since when it is there.
    pub age: Duration,
    /// Whether it is in use.
    pub state: State,
    /// Since when it has neither looked at its sockets nor gone to sleep: below a millisecond for
    /// one that waits or receives without sleep. One that is asleep went to sleep then.
    pub looked_ago: Duration,
    /// What it has done so far, with all peers, those that are gone as well.
    pub counters: Counters,
    /// Its peers.
    pub peers: Vec<PeerStatus>,
    /// Connected peers that have no place in `peers`, of which there are 1,600.
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
    /// Memory promised to peers for messages nobody has asked for, bytes.
    pub granted_bytes: u64,
    /// ...of this much: `Builder::unexpected_bytes_max`.
    pub unexpected_bytes_max: u64,
    /// Address space in which it has arenas of its peers mapped, bytes. Not memory of its own.
    pub mapped_bytes: u64,
    /// ...and may have: `Builder::mapped_bytes_max`.
    pub mapped_bytes_max: u64,
    /// Files of arenas that its process has: of all its arenas, for whichever endpoint.
    pub arena_files: u64,
    /// Memory that those have, bytes.
    pub arena_bytes: u64,
    /// What [`Endpoint::copies`](crate::Endpoint::copies) says, as it was at most some milliseconds
    /// before the endpoint last looked around.
    pub copies: Counts,
}

/// One peer of an endpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PeerStatus {
    /// Which it is among the peers of the endpoint; none has the same later.
    pub id: u64,
    /// Its [`EndpointStatus::id`].
    pub endpoint: [u8; 16],
    /// Its process, as the endpoint's process knows it; 0 if it does not.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its label; often none.
    pub label: String,
    /// The address that was connected to; `None` if it was the peer that connected.
    pub address: Option<String>,
    /// The paths on which messages to it can go.
    pub paths: PathSet,
    /// Why they cannot go on the others.
    pub refusals: Vec<(Path, Refusal)>,
    /// What was exchanged with it.
    pub counters: PeerCounters,
    /// Sends with something left to write.
    pub queued: u64,
    /// Answers that found no room yet.
    pub answers: u64,
    /// Announced messages that it has not asked for, and how many it takes.
    pub waiting: u64,
    /// See `waiting`.
    pub waiting_max: u64,
    /// How long the send has waited that has waited longest, of those that are queued or announced; `None` if none
    /// does. The endpoint looks when it goes to sleep, and now and then: a send that has only just begun to wait is
    /// among those that are counted before it is seen here.
    pub waits: Option<Duration>,
    /// Credit in use, bytes: for messages of which the endpoint has not seen yet that they were
    /// taken. It looks when it goes to sleep, when credit runs out, and now and then.
    pub credit_used: u64,
    /// Credit it gave, bytes.
    pub credit_max: u64,
    /// Its messages that wait for a receive here, as bytes of its credit.
    pub owed: u64,
    /// Credit that it was given, bytes.
    pub granted: u64,
    /// Its announced messages that wait for a receive here, and how many are taken.
    pub announced: u64,
    /// See `announced`.
    pub announced_max: u64,
    /// Its messages that are coming in in pieces.
    pub arriving: u64,
    /// Memory of the lane to it, bytes.
    pub lane_bytes: u64,
    /// Memory that is given to it and is not back, bytes, with 1 KiB for each message.
    pub given_bytes: u64,
    /// Whether something for it finds no room.
    pub blocked: bool,
    /// Whether it is being let go.
    pub leaving: bool,
    /// Whether it is reached over a connection that is encrypted.
    pub encrypted: bool,
}

impl PeerStatus {
    /// Why messages to it cannot go by `path`.
    pub fn refused(&self, path: Path) -> Option<Refusal> {
        self.refusals.iter().find(|(other, _)| *other == path).map(|(_, why)| *why)
    }
}

/// A page that calls itself a status page, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trouble {
    /// The process that has it.
    pub pid: u32,
    /// The name of that process.
    pub command: String,
    /// What is wrong.
    pub what: Problem,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {}) {}", self.command, self.pid, self.what)
    }
}

/// What is wrong with a page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// It is of another version of Pinfold, with this number.
    OtherVersion(u64),
    /// It is no page of Pinfold's, or not one that its endpoint wrote.
    Nonsense(&'static str),
    /// It changed whenever it was read; or its process was stopped when it was being changed.
    Unsteady,
    /// It could not be read: what the system said.
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
