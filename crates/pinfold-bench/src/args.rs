//! The options of `pinfold perf`.

use std::{path::PathBuf, time::Duration};

use pinfold::copy::Algorithm;

use super::{
    bounds::Bounds,
    copy::CopyArgs,
    fail::{Fail, Result},
    modes::ModesArgs,
    plan::Wish,
    tcp::TcpArgs,
    terms::{Kind, Memory, Route, Setting, What},
};

/// Seconds of the whole run, unless told otherwise.
const SECONDS: f64 = 150.0;
/// Time that a run with `--quick` may take beyond its promise before it is given up.
const QUICK_GRACE: Duration = Duration::from_secs(4);
/// The longest message there is memory for, twice.
const SIZE_MAX: usize = 4 << 30;

/// Measure latency, bandwidth and rate beside what one would use instead
///
/// Starts a second process, binds each to a core of its own, and has them exchange messages: over
/// Pinfold, over a pipe, a Unix socket, loopback TCP, process_vm_readv, and over the bare
/// hardware. All take turns in the same run, and every run's contents are checked.
///
/// To run the two processes by hand, start `pinfold perf --listen local:NAME` in one terminal and
/// `pinfold perf --connect local:NAME` in another one. The connecting side measures and prints.
#[derive(clap::Args)]
#[command(after_help = AFTER, args_conflicts_with_subcommands = true)]
pub struct PerfArgs {
    #[command(subcommand)]
    pub(super) other: Option<Other>,

    /// Fewer sizes and rounds, in at most 30 seconds
    #[arg(long)]
    quick: bool,

    /// Measure over TCP between two networks of this machine's own, as `pinfold perf tcp --hosts
    /// 2`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=2),
        conflicts_with_all = ["what", "sizes", "subjects", "paths", "memory", "settings", "touch", "copy", "full", "connect"])]
    hosts: Option<u8>,

    /// What to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    what: Vec<What>,

    /// Message sizes, such as 8,4K,1M [default: a few, by measure]
    #[arg(long, value_parser = size, value_delimiter = ',', value_name = "LIST")]
    sizes: Vec<usize>,

    /// Which ways to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    subjects: Vec<Kind>,

    /// Which of Pinfold's paths to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    paths: Vec<Route>,

    /// Where Pinfold's messages lie [default: both]
    ///
    /// What is not Pinfold always has its messages in ordinary memory, but for mapping, which is
    /// what messages in an arena are measured against.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    memory: Vec<Memory>,

    /// Under which circumstances [default: all, but alone with --sizes, --paths, --memory or
    /// --touch]
    ///
    /// Those other than alone are measured with messages of ordinary memory, over the paths that
    /// Pinfold chooses, beside pipes and sockets.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    settings: Vec<Setting>,

    /// Write every message anew before it is sent, and read it after it has arrived
    ///
    /// What the writing and reading takes is not counted; what it does to the caches is.
    /// Otherwise the memory stays as it is between messages, as in most benchmarks; of the usual
    /// sizes some are then measured both ways.
    #[arg(long)]
    touch: bool,

    #[command(flatten)]
    bounds: Bounds,

    /// Have Pinfold copy everything by this algorithm, such as libc or avx2+streaming, instead of
    /// choosing one for each copy
    #[arg(long, value_name = "ALGORITHM")]
    copy: Option<Algorithm>,

    /// Print one JSON object a line instead of tables
    #[arg(long)]
    json: bool,

    /// Also write plots and tables into one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Also print what every subject did, with the 99th percentiles
    #[arg(long)]
    full: bool,

    /// Print without colours
    #[arg(long)]
    no_color: bool,

    /// Be the second process: wait at this address for the one that measures
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["connect", "hosts", "quick", "what", "sizes",
        "subjects", "paths", "memory", "settings", "touch", "rounds", "seconds", "cores", "json", "html", "full"])]
    listen: Option<String>,

    /// Be the process that measures, with the one that listens at this address
    #[arg(long, value_name = "ADDRESS")]
    connect: Option<String>,

    /// For the second process that this command starts itself
    #[arg(long, hide = true, exclusive = true)]
    second: bool,

    /// For the third process that this command starts itself
    #[arg(long, hide = true, exclusive = true)]
    burn: bool,

    /// For the other pair that this command starts itself
    #[arg(long, hide = true, exclusive = true)]
    twin: bool,
}

/// What else can be measured.
#[derive(clap::Subcommand)]
pub(super) enum Other {
    Copy(Box<CopyArgs>),
    SendModes(Box<ModesArgs>),
    Tcp(Box<TcpArgs>),
}

const AFTER: &str = "\
Examples:
  pinfold perf --quick
  pinfold perf --what latency --sizes 8,1K,64K --full
  pinfold perf --touch --html perf.html
  pinfold perf --memory arena --sizes 1M,4M
  pinfold perf --json | jq 'select(.subject == \"pinfold\")'

Near and far: a virtual machine's cores move, and what passes between them takes 3 to 5 times
longer when they are far apart. Every run is bracketed by a probe of that distance, and compared
only with others of its class: near, far, or mixed where it changed meanwhile.

Fields of a line of --json, which come when all is measured:
  what           latency, rate, bandwidth, bidirectional (both directions, their sum) or cpu
  subject, path  who: pinfold by the path inline, eager, cma, mapped, handoff or auto (it chooses);
                 put, get or fetch-add, one-sided: written into a region of the other side, read
                 out of it, numbers added to a word of it; contended, both sides adding to one
                 word, their sum; write, read, one-sided: to and from an address of the other side,
                 which maps or has the kernel copy it, by where it lies; write-agent, read-agent,
                 the same by the other side's agent; active, active messages: half of a request and
                 its answer, the rate of calls; or memcpy, cma, cma-write (process_vm_writev), pipe,
                 unix, tcp, line, ring or mapping by the path null
  memory         where the messages lie: heap, ordinary memory; or arena, which the other side maps
  size, touched  bytes in a message; whether each was written before and read after it went
  setting        the circumstances: alone; neighbour, beside a third process that computes all the
                 time; paced, a message every millisecond (cpu has the sender's sleeps in it);
                 dedicated, with a progress thread in each of Pinfold's processes; tags, of two kinds
                 by turns; posted, with 64 receives of other messages; peers, 16 of them by turns;
                 pairs, another pair does the same meanwhile, on the same two cores; with neighbour
                 and dedicated no process is bound to a core; with neighbour, paced and pairs all wait
                 asleep
  class          near, far or mixed, which it always is with neighbour, dedicated and pairs
  mean           all the time over all messages, in unit: ns, MB/s (10^6 bytes) or M/s (10^6
                 messages); tables and plots show it, and what is set against each other is means
  median, p99    over n samples, in the same unit; p99 is what 99 % of the samples reached or
                 bettered; a sample is one round trip or one burst, and where a message takes below a
                 microsecond the mean of 64 round trips

Exit status:
  0  everything was measured, and every run's contents were right
  1  the measurement failed: wrong contents, the other process gone, output that cannot be written
  2  the command line makes no sense";

/// The task of this process.
pub(crate) enum Role {
    /// Start the second process and measure.
    Start,
    /// Wait at an address.
    Listen(String),
    /// Measure with the process that waits at an address.
    Connect(String),
    /// Be the second process; the first one is at standard input.
    Second,
    /// Be the third process, which computes; the first one is at standard input.
    Third,
    /// Be the first process of another pair; its orders come through standard input.
    Twin,
}

/// The outputs that the results go to.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) html: Option<PathBuf>,
    pub(crate) full: bool,
    pub(crate) color: bool,
}

impl PerfArgs {
    /// The task of this process.
    pub(crate) fn role(&self) -> Role {
        if self.burn {
            return Role::Third;
        }
        if self.twin {
            return Role::Twin;
        }
        match (self.second, &self.listen, &self.connect) {
            (true, _, _) => Role::Second,
            (_, Some(address), _) => Role::Listen(address.clone()),
            (_, _, Some(address)) => Role::Connect(address.clone()),
            _ => Role::Start,
        }
    }

    /// The options of `pinfold perf tcp`, if that is what `--hosts` asks for.
    pub(super) fn between_hosts(&self) -> Option<TcpArgs> {
        let hosts = self.hosts?;
        let (bounds, html) = (self.bounds.clone(), self.html.clone());
        Some(TcpArgs::usual(hosts, self.quick, bounds, self.json, html))
    }

    /// The measurements to make.
    ///
    /// # Errors
    /// [`Fail::Usage`] if nothing is left to measure.
    pub(crate) fn wish(&self) -> Result<Wish> {
        fn or_all<T: Clone>(some: &[T], all: &[T]) -> Vec<T> {
            if some.is_empty() { all.to_vec() } else { some.to_vec() }
        }
        // Other sizes that are asked for are measured instead.
        let usual = self.sizes.is_empty() && self.paths.is_empty() && self.memory.is_empty();
        let usual = usual && !self.touch;
        let settings = if usual { &Setting::ALL[..] } else { &[Setting::Alone] };
        let wish = Wish {
            settings: or_all(&self.settings, settings),
            whats: or_all(&self.what, &What::ALL),
            sizes: self.sizes.clone(),
            kinds: or_all(&self.subjects, &Kind::ALL),
            size_max: usize::MAX,
            routes: or_all(&self.paths, &Route::ALL),
            but: Vec::new(),
            memories: or_all(&self.memory, &Memory::ALL),
            rounds: self.bounds.rounds(if self.quick { 5 } else { 7 }),
            touched: self.touch,
            quick: self.quick,
        };
        if wish.subjects().is_empty() {
            return Err(Fail::Usage(
                "none of the subjects and paths asked for can be measured in this way: line does \
                 latency of 8 bytes, inline up to 56 bytes, ring everything but cpu, memcpy \
                 neither rate nor bidirectional; mapped and mapping need --memory arena, more \
                 than 56 bytes, and do neither rate nor cpu; handoff, put and get do latency, \
                 fetch-add and contended rate, active both with 8 bytes, write, read and cma-write \
                 both with whole words, without --touch; and --settings other than alone do \
                 latency, paced cpu, and dedicated, tags, posted, peers and pairs rate, of pipe, unix, tcp \
                 and pinfold auto in --memory heap"
                    .into(),
            ));
        }
        Ok(wish)
    }

    /// Time of the whole run.
    ///
    /// # Errors
    /// [`Fail::Usage`] if the time is zero, or more than `--quick` promises.
    pub(crate) fn time(&self) -> Result<Duration> {
        self.bounds.time(self.quick, SECONDS)
    }

    /// The latest time at which a halted measurement is given up.
    pub(crate) fn limit(&self) -> Option<Duration> {
        let time = self.time().ok().filter(|_| self.quick)?;
        Some(time + QUICK_GRACE)
    }

    /// Sets the copy algorithm that was asked for, in this process, and in the second one if it is
    /// started.
    ///
    /// # Errors
    /// [`Fail::Usage`] if the processor lacks the algorithm.
    pub(crate) fn insist_on_copy(&self) -> Result<Option<Algorithm>> {
        if let Some(algorithm) = self.copy {
            let why = |why| Fail::Usage(format!("--copy: {why}"));
            pinfold::copy::insist(algorithm).map_err(why)?;
        }
        Ok(self.copy)
    }

    /// The processors asked for.
    ///
    /// # Errors
    /// [`Fail::Usage`] if they are not two that this process may use.
    pub(crate) fn cores(&self) -> Result<Option<[usize; 2]>> {
        self.bounds.cores()
    }

    /// The outputs that the results go to.
    pub(crate) fn output(&self) -> Output {
        use std::io::IsTerminal;
        let wanted = !self.no_color && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
        Output {
            json: self.json,
            html: self.html.clone(),
            full: self.full,
            color: wanted && std::io::stdout().is_terminal(),
        }
    }
}

/// Reads a size: a number of bytes, with `K`, `M` or `G` for powers of 1024.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.trim_end_matches("ib").trim_end_matches('b');
    let (digits, shift) = match lower.char_indices().last() {
        Some((at, 'k')) => (&lower[..at], 10),
        Some((at, 'm')) => (&lower[..at], 20),
        Some((at, 'g')) => (&lower[..at], 30),
        _ => (lower, 0),
    };
    let number: usize = digits.parse().map_err(|_| "write a size as 8, 4K or 1M")?;
    match number.checked_mul(1 << shift) {
        Some(0) => Err("an empty message has nothing to measure; 1 byte is the least".into()),
        Some(size) if size <= SIZE_MAX => Ok(size),
        _ => Err("4G is the most".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("8"), Ok(8));
        assert_eq!(size("4K"), Ok(4096));
        assert_eq!(size("4k"), Ok(4096));
        assert_eq!(size("1MiB"), Ok(1 << 20));
        assert_eq!(size("2mb"), Ok(2 << 20));
        assert_eq!(size("4G"), Ok(4 << 30));
        for wrong in ["", "K", "0", "-1", "5G", "x", "1.5M", "99999999999G", "é", "4é"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
