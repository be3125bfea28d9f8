//! `cargo bench -p pinfold --bench paths [-- DIRECTORY]`: the time of messages by each path of a
//! pair, the samples that the library's learner gets, and the time of a pair that may choose.
//!
//! Two processes, each bound to a processor of its own, with a pair of endpoints for each path. All
//! of a scenario's paths take turns, some messages each. The first and the last byte of each
//! message are checked; contents stay as they are. With a directory, the turns are written there, a
//! file for each scenario: those in `src/policy/route/learn/traces` were made so.

#[path = "paths/heard.rs"]
mod heard;
#[path = "paths/pair.rs"]
mod pair;
#[path = "paths/trace.rs"]
mod trace;

use std::{
    env,
    error::Error,
    path::PathBuf,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use pair::{Listening, Memory, Pair};
use pinfold::Path;
use pinfold_sys::cpu::affinity;
use trace::{Trace, Turn};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The argument that makes a process the child.
const SECOND: &str = "--second";
/// The pairs, by the long paths that they have; the last may choose.
const PAIRS: [(&str, &[Path]); 4] = [
    ("eager", &[Path::Eager]),
    ("cma", &[Path::Cma]),
    ("mapped", &[Path::Mapped, Path::Cma]),
    ("auto", &[Path::Eager, Path::Cma, Path::Mapped]),
];
/// The most time and turns for which a scenario is recorded.
const LONGEST: Duration = Duration::from_secs(4);
const TURNS: usize = 240;

/// The order in which messages follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One, and one back.
    Turns,
    /// Many one way.
    Stream,
    /// Many both ways.
    Both,
}

/// A scenario to record.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pattern: Pattern,
    memory: Memory,
    /// Lengths of the messages, which take turns, bytes.
    sizes: &'static [usize],
}

impl Scenario {
    fn name(&self) -> String {
        let sizes: Vec<_> = self.sizes.iter().map(|size| format!("{}K", size >> 10)).collect();
        format!("{:?}-{:?}-{}", self.pattern, self.memory, sizes.join("+")).to_lowercase()
    }

    /// The paths that its messages can take.
    fn paths(&self) -> &'static [&'static str] {
        match self.memory {
            Memory::Heap => &["eager", "cma"],
            Memory::Arena => &["eager", "cma", "mapped"],
        }
    }

    /// Messages of a turn: some hundred microseconds' worth.
    fn batch(&self) -> usize {
        let mean = self.sizes.iter().sum::<usize>() / self.sizes.len();
        ((1 << 20) / mean).clamp(4, 16)
    }
}

/// All scenarios.
fn scenarios() -> Vec<Scenario> {
    const SIZES: [&[usize]; 6] = [
        &[16 << 10],
        &[64 << 10],
        &[128 << 10],
        &[1 << 20],
        &[4 << 20],
        &[16 << 10, 64 << 10, 1 << 20],
    ];
    let mut all = Vec::new();
    for memory in [Memory::Heap, Memory::Arena] {
        for pattern in [Pattern::Turns, Pattern::Stream, Pattern::Both] {
            all.extend(SIZES.map(|sizes| Scenario { pattern, memory, sizes }));
        }
    }
    all
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.iter().any(|word| word == "--test" || word == "--list") {
        return ExitCode::SUCCESS;
    }
    let told = match words.as_slice() {
        [second, name, only @ ..] if second == SECOND => answer(name, only.first()),
        rest => measure(rest.first().map(PathBuf::from), rest.get(1)),
    };
    told.map_or_else(
        |error| {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// The scenarios that are wanted.
fn chosen(only: Option<&String>) -> Vec<Scenario> {
    let mut all = scenarios();
    all.retain(|scenario| only.is_none_or(|only| scenario.name().contains(only.as_str())));
    all
}

/// The second process: mirrors the first one.
fn answer(name: &str, only: Option<&String>) -> Result<()> {
    bind(usize::MAX);
    let mut pairs = Vec::new();
    for (path, paths) in PAIRS {
        pairs.push(Pair::connect(&format!("{name}-{path}"), paths)?);
    }
    for scenario in chosen(only) {
        for pair in &mut pairs {
            pair.prepare(&scenario)?;
        }
        while pairs[0].is_asked()? {
            for pair in &mut pairs {
                pair.answer(scenario.pattern)?;
            }
        }
    }
    Ok(())
}

/// The first process: gives the commands, and measures.
fn measure(into: Option<PathBuf>, only: Option<&String>) -> Result<()> {
    heard::begin();
    let name = format!("local:paths-{}", std::process::id());
    let mut listening = Vec::new();
    for (path, paths) in PAIRS {
        listening.push(Listening::at(&format!("{name}-{path}"), paths)?);
    }
    let mut second = Command::new(env::current_exe()?).args([SECOND, &name]).args(only).spawn()?;
    // Not before: the second process would have no other processor.
    bind(0);
    let mut pairs = Vec::new();
    for listening in listening {
        pairs.push(listening.accept()?);
    }
    println!("{:<32}{}", "", Trace::heading());
    for scenario in chosen(only) {
        let trace = record(&mut pairs, &scenario)?;
        println!("{:<32}{}", scenario.name(), trace.summary());
        if let Some(directory) = &into {
            std::fs::write(
                directory.join(scenario.name() + ".trace"),
                trace.text(scenario.paths()),
            )?;
        }
    }
    drop(pairs);
    second.wait()?;
    Ok(())
}

/// The turns of one scenario.
fn record(pairs: &mut [Pair], scenario: &Scenario) -> Result<Trace> {
    for pair in pairs.iter_mut() {
        pair.prepare(scenario)?;
    }
    let mut trace = Trace::default();
    let end = Instant::now() + LONGEST;
    while trace.len() < TURNS && Instant::now() < end {
        let mut turn = Turn::new(pairs[0].ask()?);
        for pair in pairs.iter_mut() {
            heard::take();
            let ns = pair.turn(scenario.pattern)?;
            turn.add(ns, heard::take());
        }
        trace.push(turn);
    }
    pairs[0].end()?;
    Ok(trace)
}

/// Binds this process to one of its processors, the last if there are fewer.
fn bind(number: usize) {
    let all = affinity::current_cpus();
    if let Some(cpu) = all.get(number).or(all.last()) {
        // Else the two take their chance.
        let _ = affinity::pin_to(*cpu);
    }
}
