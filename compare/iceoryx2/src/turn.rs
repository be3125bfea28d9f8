//! One turn: a process asks, another answers.

use std::{
    env,
    process::{Child, Command},
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;

use crate::{Subject, hop, iceoryx::Iceoryx, topics::Topics};

pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// The first word of the sample that ends a turn.
const END: u64 = u64::MAX;
/// Samples before the clock starts.
const WARM_UP: u64 = 2_000;

/// Samples one way and back the other.
pub trait Pair: Sized {
    /// The side that asks, or the one that answers.
    fn open(name: &str, size: usize, asks: bool) -> Result<Self>;

    /// Sends a sample whose first word this is.
    fn send(&self, word: u64) -> Result<()>;

    /// Waits for a sample; returns its first word.
    fn recv(&self) -> Result<u64>;
}

/// The outcome of a turn.
pub struct Turn {
    pub class: &'static str,
    pub took: Duration,
    pub times: Histogram<u64>,
}

/// All the time and all the samples of several turns.
#[derive(Default)]
pub struct Turns {
    took: Duration,
    samples: u64,
    count: u32,
}

impl Turns {
    pub fn add(&mut self, took: Duration, samples: u64) {
        self.took += took;
        self.samples += samples;
        self.count += 1;
    }

    pub fn mean_ns(&self) -> f64 {
        self.took.as_nanos() as f64 / 2.0 / self.samples as f64
    }

    pub fn count(&self) -> u32 {
        self.count
    }
}

/// One-way times up to 10 s, ns.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("good bounds")
}

/// Has another process answer for a while.
pub fn ask(subject: Subject, size: usize, length: Duration) -> Result<Turn> {
    static TURNS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = TURNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("beside-{}-{number}", std::process::id());
    hop::bind(0)?;
    let before = hop::is_near()?;
    let mut answerer = Answerer(
        Command::new(env::current_exe()?)
            .args(["--answer", &format!("{subject:?}"), &size.to_string(), &name])
            .spawn()?,
    );
    let (took, times) = match subject {
        Subject::Pinfold => ask_by::<Topics>(&name, size, length),
        Subject::Iceoryx2 => ask_by::<Iceoryx>(&name, size, length),
    }?;
    if !answerer.0.wait()?.success() {
        return Err("the process that answers failed".into());
    }
    let class = match (before, hop::is_near()?) {
        (true, true) => "near",
        (false, false) => "far",
        _ => "mixed",
    };
    Ok(Turn { class, took, times })
}

/// The process that answers; it ends with the turn.
struct Answerer(Child);

impl Drop for Answerer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask_by<P: Pair>(
    name: &str,
    size: usize,
    length: Duration,
) -> Result<(Duration, Histogram<u64>)> {
    let pair = P::open(name, size, true)?;
    let there_and_back = |word| -> Result<()> {
        pair.send(word)?;
        match pair.recv()? {
            back if back == word => Ok(()),
            back => Err(format!("{word} went, and {back} came").into()),
        }
    };
    (0..WARM_UP).try_for_each(there_and_back)?;
    let mut times = histogram();
    let begun = Instant::now();
    let mut before = begun;
    for word in WARM_UP.. {
        there_and_back(word)?;
        let now = Instant::now();
        times.record(((now - before).as_nanos() as u64 / 2).max(1))?;
        before = now;
        if now - begun >= length {
            break;
        }
    }
    let took = before - begun;
    pair.send(END)?;
    // The answerer has it before this side goes.
    pair.recv()?;
    Ok((took, times))
}

/// Answers until the end.
pub fn answer(subject: Subject, size: usize, name: &str) -> Result<()> {
    hop::bind(1)?;
    match subject {
        Subject::Pinfold => answer_by::<Topics>(name, size),
        Subject::Iceoryx2 => answer_by::<Iceoryx>(name, size),
    }
}

fn answer_by<P: Pair>(name: &str, size: usize) -> Result<()> {
    let pair = P::open(name, size, false)?;
    loop {
        let word = pair.recv()?;
        pair.send(word)?;
        if word == END {
            return Ok(());
        }
    }
}
