//! Programs run by processes, one a rank: started here, asked for their transfers and results, and
//! compared with a run in lock step whose result is checked.
//!
//! - [`job`]: programs by name. [`rank`]: the side of a rank. `lines`: what they say.
//! - [`trace`]: their transfers as a trace.
//!
//! A process that dies, fails, or says nothing for [`PATIENCE`] ends all others; so does the end
//! of the one that started them, however that comes.

pub mod job;
mod lines;
pub mod rank;
#[cfg(test)]
mod tests;
pub mod trace;

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::ExitStatusExt,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

pub use job::{Job, RANKS_MAX, Workload};

use self::lines::{Begin, Part, Said, Told, sum};
use super::Log;

/// No rank is waited for longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Names of endpoints that this process gave.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A transfer that a rank made, and when and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// The transfer.
    pub transfer: super::Transfer,
    /// The moment when it was begun, ns of the system's clock.
    pub at_ns: u64,
    /// The address of the rank's own bytes.
    pub address: u64,
}

/// A rank that ran.
#[derive(Clone, Debug)]
pub struct Rank {
    /// Its process.
    pub pid: u32,
    /// Its transfers, in their order.
    pub made: Vec<Made>,
}

/// A job that ran, whose result is right.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The ranks.
    pub ranks: Vec<Rank>,
    /// The time from the first process to the end of the last.
    pub took: Duration,
    /// Phases, the same of all ranks.
    pub phases: usize,
}

/// The processes. All are ended, and waited for, when it goes.
struct Crew(Vec<Member>);

struct Member {
    child: Child,
    input: ChildStdin,
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.0 {
            let _ = member.child.kill();
        }
        for member in &mut self.0 {
            let _ = member.child.wait();
        }
    }
}

impl Crew {
    fn tell(&mut self, rank: usize, what: &impl serde::Serialize) -> Result<(), String> {
        let text = serde_json::to_string(what).map_err(|why| why.to_string())? + "\n";
        let told = self.0[rank].input.write_all(text.as_bytes());
        told.map_err(|_| self.end_of(rank))
    }

    fn tell_all(&mut self, what: &Told) -> Result<(), String> {
        (0..self.0.len()).try_for_each(|rank| self.tell(rank, what))
    }

    /// The end of a process that is ending, in words.
    fn end_of(&mut self, rank: usize) -> String {
        let child = &mut self.0[rank].child;
        let pid = child.id();
        let _ = child.kill();
        match child.wait() {
            Ok(status) => match status.signal() {
                Some(signal) => format!("rank {rank}, process {pid}, was ended by signal {signal}"),
                None => format!("rank {rank}, process {pid}, ended too early: {status}"),
            },
            Err(why) => format!("rank {rank}, process {pid}, cannot be waited for: {why}"),
        }
    }
}

/// The lines of a rank, and `None` at its end, for the channel.
fn listen(rank: usize, output: ChildStdout, to: &mpsc::Sender<(usize, Option<Said>)>) {
    for line in BufReader::new(output).lines() {
        let said = line.ok().and_then(|line| serde_json::from_str(&line).ok());
        let is_over = said.is_none();
        if to.send((rank, said)).is_err() || is_over {
            return;
        }
    }
    let _ = to.send((rank, None));
}

fn start(job: &Job, command: &dyn Fn() -> Command) -> Result<(Crew, Vec<ChildStdout>), String> {
    let made = MADE.fetch_add(1, Relaxed);
    let name = |rank| format!("local:pinfold-lab-{}-p{made}-{rank}", std::process::id());
    let names: Vec<String> = (0..job.ranks).map(name).collect();
    let (mut crew, mut outputs) = (Crew(Vec::new()), Vec::new());
    for rank in 0..job.ranks {
        let mut command = command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        pinfold_sys::program::end_with_this_thread(&mut command);
        let cannot = |why: &dyn std::fmt::Display| format!("cannot start rank {rank}: {why}");
        let mut child = command.spawn().map_err(|why| cannot(&why))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let input = input.ok_or_else(|| cannot(&"no input"))?;
        outputs.push(output.ok_or_else(|| cannot(&"no output"))?);
        crew.0.push(Member { child, input });
        crew.tell(rank, &Begin { job: *job, rank, names: names.clone() })?;
    }
    Ok((crew, outputs))
}

/// Leads the ranks to their ends. Returns their parts.
fn lead(
    crew: &mut Crew,
    heard: &mpsc::Receiver<(usize, Option<Said>)>,
    step: &mut dyn FnMut(usize),
) -> Result<Vec<Part>, String> {
    let ranks = crew.0.len();
    let mut keys = vec![Vec::new(); ranks];
    let mut parts: Vec<Option<Part>> = vec![None; ranks];
    let (mut waiting, mut with_key, mut steps) = (0, 0, 0);
    while parts.iter().any(Option::is_none) {
        let (rank, said) = heard.recv_timeout(PATIENCE).map_err(|_| {
            format!("no rank has said anything for {PATIENCE:?}, {waiting} of {ranks} wait")
        })?;
        match said {
            Some(Said::Key(key)) => {
                keys[rank] = key;
                with_key += 1;
                if with_key == ranks {
                    crew.tell_all(&Told::Keys(keys.clone()))?;
                }
            }
            Some(Said::Here) => {
                waiting += 1;
                if waiting == ranks {
                    (waiting, steps) = (0, steps + 1);
                    step(steps);
                    crew.tell_all(&Told::Go)?;
                }
            }
            Some(Said::Ended(part)) => parts[rank] = Some(*part),
            Some(Said::Failed(why)) => return Err(format!("rank {rank}: {why}")),
            // Its end is no fault behind its last line.
            None if parts[rank].is_some() => {}
            None => return Err(crew.end_of(rank)),
        }
    }
    Ok(parts.into_iter().flatten().collect())
}

/// Runs a job by processes, which `command` makes: each has to call [`rank::serve`] with its input
/// and output. `step` is told how often all ranks have met. Afterwards no process is left.
///
/// # Errors
/// A rank could not be started, died or failed; its transfers or its result are not those of a
/// checked run in lock step; in words.
pub fn run(
    job: &Job,
    command: &dyn Fn() -> Command,
    mut step: impl FnMut(usize),
) -> Result<Ran, String> {
    job.check()?;
    let expected = job.expected()?;
    let begun = Instant::now();
    let (parts, pids) = thread::scope(|scope| {
        let (to, heard) = mpsc::channel();
        let (mut crew, outputs) = start(job, command)?;
        for (rank, output) in outputs.into_iter().enumerate() {
            let to = to.clone();
            scope.spawn(move || listen(rank, output, &to));
        }
        let parts = lead(&mut crew, &heard, &mut step)?;
        let pids: Vec<u32> = crew.0.iter().map(|it| it.child.id()).collect();
        for member in &mut crew.0 {
            member.child.wait().map_err(|why| format!("a rank cannot be waited for: {why}"))?;
        }
        Ok::<_, String>((parts, pids))
    })?;
    let took = begun.elapsed();
    let mut ranks = Vec::new();
    for (rank, (part, pid)) in parts.iter().zip(pids).enumerate() {
        let log = part.log().ok_or_else(|| format!("rank {rank} made a transfer of no kind"))?;
        compare(rank, &log, &expected.logs[rank])?;
        if part.sum != sum(&expected.results[rank]) {
            return Err(format!("the result of rank {rank} is not the one that was checked"));
        }
        ranks.push(Rank { pid, made: made(part, &log) });
    }
    let phases = expected.logs.first().map_or(0, Vec::len);
    Ok(Ran { ranks, took, phases })
}

fn compare(rank: usize, found: &Log, expected: &Log) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let differs = found.iter().zip(expected).position(|(one, other)| one != other);
    let phase = differs.unwrap_or(found.len().min(expected.len()));
    Err(format!("rank {rank} has other transfers than in lock step, from phase {phase} on"))
}

fn made(part: &Part, log: &Log) -> Vec<Made> {
    let moments = part.phases.iter().flatten().map(|it| it.5);
    let address = |own: u32| part.address + u64::from(own);
    let all = log.iter().flatten().zip(moments);
    all.map(|(transfer, at_ns)| Made { transfer: *transfer, at_ns, address: address(transfer.own) })
        .collect()
}
