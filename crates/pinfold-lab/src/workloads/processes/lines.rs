//! The lines by which a rank's process and the one that started it talk: JSON over the rank's
//! input and output.

use serde::{Deserialize, Serialize};

use super::{
    super::{Kind, Log, Transfer},
    job::Job,
};

/// The first line to a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Begin {
    pub(super) job: Job,
    pub(super) rank: usize,
    /// The names of all ranks' endpoints.
    pub(super) names: Vec<String>,
}

/// A later line to a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Told {
    /// The keys of all ranks' memory, as bytes.
    Keys(Vec<Vec<u8>>),
    /// All ranks are here.
    Go,
}

/// A line of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Said {
    /// The key of its memory; it waits for the others'.
    Key(Vec<u8>),
    /// It waits for the others.
    Here,
    /// It has ended.
    Ended(Box<Part>),
    /// It has failed.
    Failed(String),
}

/// A transfer: its kind, the peer, its own offset and the peer's, bytes, and the moment.
type Row = (u8, u32, u32, u32, u32, u64);

/// The part of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    /// The sum of its result's bytes ([`sum`]), as two halves, the lower one first.
    pub(super) sum: [u64; 2],
    /// The address of its memory.
    pub(super) address: u64,
    /// Its transfers by phases.
    pub(super) phases: Vec<Vec<Row>>,
}

const KINDS: [Kind; 3] = [Kind::Store, Kind::Put, Kind::Get];

impl Part {
    pub(super) fn new(sum: [u64; 2], address: u64, log: &Log, at_ns: &[u64]) -> Part {
        let mut moments = at_ns.iter().copied();
        let mut transfer = |it: &Transfer| {
            let at_ns = moments.next().unwrap_or(0);
            (it.kind as u8, it.peer, it.own, it.theirs, it.bytes, at_ns)
        };
        let phases = log.iter().map(|all| all.iter().map(&mut transfer).collect()).collect();
        Part { sum, address, phases }
    }

    /// The transfers; `None` if one has a kind that there is not.
    pub(super) fn log(&self) -> Option<Log> {
        let transfer = |it: &Row| {
            let (kind, peer, own, theirs, bytes, _) = *it;
            let kind = *KINDS.get(usize::from(kind))?;
            Some(Transfer { kind, peer, own, theirs, bytes })
        };
        self.phases.iter().map(|all| all.iter().map(transfer).collect()).collect()
    }
}

/// The sum of bytes: XXH3-128.
pub(super) fn sum(bytes: &[u8]) -> [u64; 2] {
    let sum = twox_hash::XxHash3_128::oneshot(bytes);
    [sum as u64, (sum >> 64) as u64]
}
