//! The options of `pinfold perf tcp`.

use std::{path::PathBuf, time::Duration};

use super::cell::Cell;
use crate::{
    args::size,
    bounds::Bounds,
    fail::{Fail, Result},
    terms::What,
};

/// Seconds of the whole run at most, unless told otherwise.
const SECONDS: f64 = 120.0;
/// The longest message.
const BYTES_MAX: usize = 256 << 20;

/// Measure Pinfold between hosts beside plain sockets, and other libraries where they are installed
///
/// Two processes, over the loopback or over a cable between two networks of this machine's own. All
/// take turns in the same run; every message is written anew before it goes, and checked after it
/// came.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct TcpArgs {
    /// Over the loopback (1), or between two network namespaces with a veth pair (2)
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) hosts: u8,

    /// Fewer sizes and rounds, in at most 30 seconds
    #[arg(long)]
    pub(crate) quick: bool,

    /// Sizes of messages that go to and fro [default: 8,4K,64K; with --quick 8]
    #[arg(long, value_parser = size, value_delimiter = ',', value_name = "LIST")]
    latency: Vec<usize>,

    /// Sizes of messages in a stream [default: 16K,64K,256K,1M; with --quick 64K,1M]
    #[arg(long, value_parser = size, value_delimiter = ',', value_name = "LIST")]
    stream: Vec<usize>,

    #[command(flatten)]
    pub(crate) bounds: Bounds,

    /// Have Pinfold take turns over an encrypted connection, too
    #[arg(long)]
    tls: bool,

    /// Leave other libraries out
    #[arg(long)]
    no_tools: bool,

    /// Print one JSON object a line instead of tables
    #[arg(long)]
    pub(crate) json: bool,

    /// Also write plots and tables into one HTML file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// For the second process that this command starts itself
    #[arg(long, hide = true)]
    second: bool,
}

const AFTER: &str = "\
Examples:
  pinfold perf tcp --quick
  pinfold perf tcp --hosts 2 --html tcp.html
  pinfold perf tcp --tls --no-tools
  pinfold perf tcp --latency 8,64,1K --stream 1M,16M --json

Who takes turns:
  sockets    a connection, calls that wait in the kernel
  spinning   a connection, calls that do not wait, made again at once
  ring       a connection by an io_uring: one call submits and waits
  pinfold    tagged messages over tcp:, send and recv_into; peers on one host stay with the connection
  encrypted  the same over TLS 1.3, with --tls
  libfabric  tagged messages over its provider for TCP, looked for again and again (libfabric1)
  ucx        ucx_perftest over its transport for TCP (ucx-utils)

All with TCP_NODELAY. What latency is: half of a round trip. What a stream is: a burst of messages, each in
memory of its own, until the other process has them all; written before it and checked behind it, which is
not timed. UCX's program sends the same bytes again and again, from where they are. Other libraries are not
installed by this command, and what is absent is said. libfabric is the library itself (1.9 or newer), with 64
messages of a stream under way, by the better of its providers: net, and tcp where there is none.

Near and far: a virtual machine's cores move. Each turn is bracketed by a probe of that distance, and ratios
are made of turns of one round and one class, if there are such.

With --hosts 2 the two processes are in network namespaces of their own, with a veth pair of 1500-byte
packets between them, and share a key. That takes privileges over a network namespace: root has them, and
others within a user namespace of their own, which is tried. UCX looks for networks in /sys, and gets one of
each namespace; in containers that hide parts of /sys only root can mount it, and UCX is left out.

Fields of a line of --json:
  what           latency or stream, note, or totals (the last line)
  of a measure   size, bytes; subject; provider, what carries its messages, where there is a choice (libfabric);
                 mean, all the time over all messages, median and p99 over n samples in unit: ns or
                 MB/s (10^6 bytes); ratios are made of means; rounds, near,
                 far, mixed, turns of each class; of_spinning, how many times the spinning sockets'
                 latency or bandwidth it has; of_best, the same of the best that is not Pinfold; checked,
                 whether contents were; absent, why there is nothing to report (all else is null)
  of the totals  hosts; latency_of_spinning, of Pinfold with 8 bytes (aim: at most 1.15); stream_of_best, of
                 Pinfold with 1 MiB (aim: at least 1.05); null where not measured

Exit status:
  0  something was measured, whatever came out, and all contents were right
  1  the measurement failed: wrong contents, no network namespaces, output that cannot be written
  2  the command line makes no sense";

/// The measurements to make.
pub(super) struct Wish {
    pub(super) hosts: u8,
    pub(super) cells: Vec<Cell>,
    pub(super) rounds: u32,
    pub(super) time: Duration,
    pub(super) cores: Option<[usize; 2]>,
    pub(super) tools: bool,
    pub(super) encrypted: bool,
}

/// The outputs that the results go to.
pub(super) struct Output {
    pub(super) json: bool,
    pub(super) html: Option<PathBuf>,
}

impl TcpArgs {
    /// The usual sizes, with these bounds.
    pub(crate) fn usual(
        hosts: u8,
        quick: bool,
        bounds: Bounds,
        json: bool,
        html: Option<PathBuf>,
    ) -> TcpArgs {
        let (latency, stream) = (Vec::new(), Vec::new());
        TcpArgs {
            hosts,
            quick,
            latency,
            stream,
            bounds,
            tls: false,
            no_tools: false,
            json,
            html,
            second: false,
        }
    }

    pub(super) fn is_second(&self) -> bool {
        self.second
    }

    /// The measurements to make.
    ///
    /// # Errors
    /// [`Fail::Usage`] for an impossible request.
    pub(super) fn wish(&self) -> Result<Wish> {
        const KI: usize = 1 << 10;
        let or = |some: &[usize], quick: &[usize], full: &[usize]| {
            let mut sizes = match (some, self.quick) {
                ([], true) => quick.to_vec(),
                ([], false) => full.to_vec(),
                (some, _) => some.to_vec(),
            };
            sizes.sort_unstable();
            sizes.dedup();
            sizes
        };
        let latency = or(&self.latency, &[8], &[8, 4 * KI, 64 * KI]);
        let stream =
            or(&self.stream, &[64 * KI, 1024 * KI], &[16 * KI, 64 * KI, 256 * KI, 1024 * KI]);
        if let Some(size) = latency.iter().chain(&stream).find(|&&size| size > BYTES_MAX) {
            return Err(Fail::Usage(format!("{size} bytes is too long; 256M is the most")));
        }
        let cell = |what| move |bytes| Cell { what, bytes };
        let streams = stream.into_iter().map(cell(What::Bandwidth));
        Ok(Wish {
            hosts: self.hosts,
            cells: latency.into_iter().map(cell(What::Latency)).chain(streams).collect(),
            rounds: self.bounds.rounds(if self.quick { 9 } else { 15 }),
            time: self.bounds.time(self.quick, SECONDS)?,
            cores: self.bounds.cores()?,
            tools: !self.no_tools,
            encrypted: self.tls,
        })
    }

    /// The outputs that the results go to.
    pub(super) fn output(&self) -> Output {
        Output { json: self.json, html: self.html.clone() }
    }
}
