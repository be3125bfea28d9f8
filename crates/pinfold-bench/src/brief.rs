//! A short measurement for other commands: every path of Pinfold and nothing else, between two
//! processes that the caller has started.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

pub use super::terms::{Route, What};
use super::{
    answer,
    class::Class,
    control::Control,
    fail::{Fail, Result},
    findings::Ledger,
    load::Conditions,
    pair::Pair,
    plan::Wish,
    run,
    terms::{Id, Kind, Memory, Setting},
};

/// One size of message, one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BriefRow {
    /// The measure.
    pub what: What,
    /// Bytes of a message.
    pub size: usize,
    /// The path.
    pub route: Route,
    /// The distance between the cores.
    pub class: Class,
    /// Nanoseconds, or megabytes a second.
    pub median: f64,
    /// The number of samples.
    pub samples: u64,
    /// The median of each round.
    pub rounds: Vec<f64>,
    /// The path that the library chose, where it had the choice.
    pub taken: Option<String>,
}

/// The results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Brief {
    /// A row for each measure, size, path and class.
    pub rows: Vec<BriefRow>,
    /// A cache line from core to core, nanoseconds: the median.
    pub hop_ns: f64,
    /// The load of other programs meanwhile.
    pub conditions: Conditions,
    /// The processors of the two processes, if they were bound to one.
    pub cores: [Option<usize>; 2],
    /// Sentences the reader must see.
    pub notes: Vec<String>,
}

/// Rounds of each measurement, in turns with all others: a single one may be anything.
const ROUNDS: u32 = 3;

/// Two ends of a socket for the two processes.
///
/// # Errors
/// The reason why there is none.
pub fn ends() -> Result<(OwnedFd, OwnedFd), String> {
    Control::pair().map_err(|why| why.to_string())
}

/// The first process: measures latency and bandwidth of all paths with messages of these sizes, in
/// about `time`.
///
/// # Errors
/// The error that ended it, in words.
pub fn first(end: OwnedFd, sizes: &[usize], time: Duration) -> Result<Brief, String> {
    let wish = Wish {
        whats: vec![What::Latency, What::Bandwidth],
        sizes: sizes.to_vec(),
        kinds: vec![Kind::Pinfold],
        size_max: usize::MAX,
        routes: Route::ALL.to_vec(),
        settings: vec![Setting::Alone],
        // One row for each path: the choice of the library is shown for ordinary memory.
        but: Id::all().filter(is_no_path).collect(),
        memories: Memory::ALL.to_vec(),
        rounds: ROUNDS,
        touched: false,
        quick: true,
    };
    let go = || -> Result<_> {
        let ledger = Ledger::new(Instant::now(), false);
        let (mut pair, mut stage) = Pair::greet(Control::new(end), None)?;
        let cores = pair.cores();
        run::measure(&mut pair, &mut stage, &wish, time, &ledger)?;
        Ok((cores, ledger.take().ok_or(Fail::Gone)?))
    };
    let (cores, found) = go().map_err(|why| why.to_string())?;
    let rows = found.collected.records().into_iter().filter_map(|record| {
        let taken = found.collected.path_taken(record.cell(), record.id());
        let route = record.path?;
        Some(BriefRow {
            what: record.what,
            size: record.size,
            route,
            class: record.class,
            median: record.median,
            samples: record.n,
            rounds: found.collected.rounds(&record),
            taken: taken.filter(|_| record.id() == Id::AUTO).map(str::to_owned),
        })
    });
    let rows = rows.collect();
    let hop_ns = found.usual_hop_ns().ok_or("nothing was measured")?;
    // No `--seconds` was given.
    let notes = found.notes.iter().map(|note| note.replace(", or --seconds allows too few", ""));
    let (conditions, notes) = (found.conditions, notes.collect());
    Ok(Brief { rows, hop_ns, conditions, cores, notes })
}

/// Subjects that are measured beside the paths of messages.
fn is_no_path(id: &Id) -> bool {
    let other =
        |route: Route| route.is_one_sided() || route.is_by_address() || route == Route::Active;
    *id == Id::ARENA || id.route.is_some_and(other)
}

/// The second process: does its part.
///
/// # Errors
/// The error that ended it, in words.
pub fn second(end: OwnedFd) -> Result<(), String> {
    let serve = |(mut pair, mut stage)| answer::serve(&mut pair, &mut stage);
    Pair::answer(Control::new(end)).and_then(serve).map_err(|why| why.to_string())
}
