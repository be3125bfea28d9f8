//! `pinfold lab workload`: parallel programs run by processes.

use std::{
    env,
    fs::File,
    io::{self, BufWriter},
    path::PathBuf,
    process::Command,
};

use clap::Args;
use pinfold_lab::{
    experiment::SEED,
    here::sends::{Sends, run as run_sends},
    workloads::{
        Kind,
        processes::{self, Job, Ran, Workload, rank as ranks, trace},
    },
};
use serde_json::json;

use super::Fail;
use crate::output::put;

/// Run a parallel program of the papers by processes, and check its result
///
/// Each process has an endpoint, and reaches the others' memory by one-sided operations, or them by
/// active messages. The transfers have to be those of a run in one process, a rank after the other,
/// whose result is checked; and each process's part of the result has to be that one's.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(super) struct WorkloadArgs {
    /// matrix, radix-small, radix-bulk, sample-small, sample-bulk, integer-sort or fourier
    #[arg(value_name = "WORKLOAD")]
    workload: Workload,

    /// Processes, 2 to 64; of fourier a power of two
    #[arg(long, value_name = "N", default_value_t = 4)]
    processes: usize,

    /// Keys of each process; of matrix the numbers along a block's side, of fourier those along x
    /// and y [default: 4096 keys, 1024 for small messages, 16 numbers]
    #[arg(long, value_name = "NUMBER")]
    size: Option<usize>,

    /// Times that integer-sort sorts, or inverse transforms of fourier
    #[arg(long, value_name = "TURNS", default_value_t = 2)]
    turns: usize,

    /// The seed of the keys
    #[arg(long, value_name = "NUMBER", default_value_t = SEED)]
    seed: u64,

    /// Write the transfers as a trace, for `pinfold trace`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print a JSON object instead of text
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  pinfold lab workload radix-bulk --processes 8
  pinfold lab workload integer-sort --processes 64 --trace sort.trace

Fields of --json:
  workload, processes, size (null: the default), turns, seed, pids, took_s
  phases     phases of the program, the same in every process
  messages, puts, gets, bytes    transfers of all processes, and their bytes

Exit status:
  0  the result and the transfers are right
  1  they are not, a process died or failed, or the trace or the output could not be written
  2  the command line makes no sense";

/// Runs `pinfold lab workload`.
pub(super) fn workload(args: &WorkloadArgs) -> Result<(), Fail> {
    let WorkloadArgs { workload, processes, size, turns, seed, .. } = *args;
    let job = Job { workload, ranks: processes, size, turns, seed };
    job.check().map_err(Fail::Words)?;
    let own = env::current_exe().map_err(|why| Fail::Said(format!("/proc/self/exe: {why}")))?;
    let command = || {
        let mut command = Command::new(&own);
        command.args(["lab", "rank"]);
        command
    };
    let ran = processes::run(&job, &command, |_| {}).map_err(Fail::Said)?;
    if let Some(path) = &args.trace {
        let cannot =
            |why: &dyn std::fmt::Display| format!("cannot write {}: {why}", path.display());
        let file = File::create(path).map_err(|why| Fail::Said(cannot(&why)))?;
        trace::write(&job, &ran, BufWriter::new(file)).map_err(|why| Fail::Said(cannot(&why)))?;
    }
    Ok(put("the run", &text(&job, &ran, args.json))?)
}

fn text(job: &Job, ran: &Ran, is_json: bool) -> String {
    let made = || ran.ranks.iter().flat_map(|rank| &rank.made);
    let count = |kind| made().filter(|it| it.transfer.kind == kind).count();
    let [messages, puts, gets] = [Kind::Store, Kind::Put, Kind::Get].map(count);
    let bytes: u64 = made().map(|it| u64::from(it.transfer.bytes)).sum();
    let (name, processes, took_s) = (job.workload.name(), job.ranks, ran.took.as_secs_f64());
    if is_json {
        let pids: Vec<u32> = ran.ranks.iter().map(|rank| rank.pid).collect();
        let object = json!({
            "workload": name, "processes": processes, "size": job.size, "turns": job.turns,
            "seed": job.seed, "pids": pids, "took_s": took_s, "phases": ran.phases,
            "messages": messages, "puts": puts, "gets": gets, "bytes": bytes,
        });
        return format!("{object}\n");
    }
    format!(
        "{name} by {processes} processes: right, in {took_s:.2} s\n{} phases; {messages} messages, \
         {puts} puts, {gets} gets of {bytes} bytes, as in one process\n",
        ran.phases
    )
}

/// Runs `pinfold lab rank`: its lines are those of [`ranks::serve`].
pub(super) fn rank() -> Result<(), Fail> {
    ranks::serve(io::stdin().lock(), io::stdout()).map_err(Fail::Said)
}

/// Send messages over TCP out of memory that stays pinned, and print how it was translated
#[derive(Args)]
pub(super) struct SendsArgs {
    /// Messages
    #[arg(long, value_name = "NUMBER", default_value_t = 2000)]
    messages: u64,

    /// Buffers that they leave from, by Zipf's law
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    buffers: u64,

    /// Bytes of each
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10)]
    bytes: usize,

    /// The seed of the choice
    #[arg(long, value_name = "NUMBER", default_value_t = SEED)]
    seed: u64,
}

/// Runs `pinfold lab sends`.
pub(super) fn sends(args: &SendsArgs) -> Result<(), Fail> {
    let SendsArgs { messages, buffers, bytes, seed } = *args;
    let counters = run_sends(&Sends { messages, buffers, bytes, seed }).map_err(Fail::Said)?;
    let object = json!({
        "tlb_hit": counters.tlb_hits, "pin_hit": counters.pin_hits, "pin_miss": counters.pin_misses,
        "pin_evictions": counters.pin_evictions, "pinned_bytes": counters.pinned_bytes,
    });
    Ok(put("the counters", &format!("{object}\n"))?)
}
