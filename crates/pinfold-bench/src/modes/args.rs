//! The options of `pinfold perf send-modes`.

use std::{path::PathBuf, time::Duration};

use crate::datagram::{BYTES_MAX, PIECES_MAX};
use clap::ValueEnum;
use pinfold::route::SentFrom;

use super::cell::{self, Cell};
use crate::{
    args::size,
    fail::{Fail, Result},
};

/// Seconds of the whole run at most, unless told otherwise.
const SECONDS: f64 = 150.0;
const QUICK_SECONDS: f64 = 24.0;

/// Measure what it costs the sender to send datagrams: copied, pinned each time, or pinned once
///
/// Over size, the number of pieces, and whether the message is in a cache. The datagrams go into a
/// network made for this, whose far end discards them; so what is measured is the sender alone. All
/// modes take turns, in another order each round.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct ModesArgs {
    /// Fewer sizes and rounds, in at most 30 seconds
    #[arg(long)]
    quick: bool,

    /// Bytes of messages, such as 136,3936,63000 [default: 136 to 63000]
    #[arg(long, value_parser = size, value_delimiter = ',', value_name = "LIST")]
    sizes: Vec<usize>,

    /// In how many pieces a message lies [default: 1,2,4,8; with --quick 1,4]
    #[arg(long, value_delimiter = ',', value_name = "LIST",
        value_parser = clap::value_parser!(u8).range(1..=PIECES_MAX as i64))]
    pieces: Vec<u8>,

    /// Where messages are before they are sent [default: both]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    sources: Vec<From>,

    /// How often each has its turn, if there is time [default: 301; with --quick 101]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,

    /// Seconds to take at most [default: 150; with --quick 24, and no more than that]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,

    /// The processor to use
    #[arg(long, value_name = "N")]
    core: Option<usize>,

    /// Print one JSON object a line instead of tables
    #[arg(long)]
    json: bool,

    /// Also write every row into one CSV file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Also write plots and tables into one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Where messages are before they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum From {
    /// Written a moment ago by the core that sends
    Cache,
    /// The same, then flushed from all caches
    Memory,
}

const AFTER: &str = "\
Examples:
  pinfold perf send-modes --quick
  pinfold perf send-modes --sizes 8000,63000 --pieces 1 --json
  pinfold perf send-modes --csv modes.csv --html modes.html

Modes:
  plain       copied by the kernel: sendmsg(2)
  two-copy    copied by the kernel: IORING_OP_SEND; in pieces IORING_OP_SENDMSG
  per-send    not copied: IORING_OP_SEND_ZC (in pieces SENDMSG_ZC), which takes hold of the pages each time
  cached      not copied, of memory that is registered with the ring, so held all the time
  aligned     the same from the start of a page; the others start 1000 bytes behind one
  automatic   whichever of these is expected to be cheapest, by costs measured at the start; placing the
              message, too
  automatic-unregistered
              the same for memory that is not registered: plain, two-copy or per-send

Each message is one system call; ring or not, nothing is put off to be sent together. Notices that the
kernel is done with the bytes are collected after every 16 messages, on the sender's time, and nothing is
written again before its notice. Every message is written anew before it is sent, which is not timed. One
core does all: also what the network does with a packet is done in the sender's call, so how far apart
cores are does not matter. The network is a veth pair with packets of up to 9000 bytes; longer messages
are one send of several datagrams (UDP_SEGMENT). Its far end, a namespace of its own, discards them: they
go to an Ethernet address that nobody has. A receiver there would have the kernel copy what was not to be
copied; with one, each mode's bytes are checked, and that is reported.

Lock, copy and unlock: what registering so much memory with a ring takes, a memcpy of it, and ending the
registration, each the whole call; and what that is worth within a send: per-send less cached, and
two-copy less cached.

This takes privileges over a network namespace: root has them, and others within a user namespace of
their own, which is tried. What cannot be measured has a row that says why.

Fields of a line of --json, and columns of --csv (which has the sends only):
  what           send, lock, verified, note, or totals (the last line)
  of a send      bytes, pieces, source (cache or memory), mode; rounds; cpu_ns, processor time of the thread
                 for a message; elapsed_ns; cpu_ns_gb, for 10^9 bytes; of_two_copy, over that of two-copy; of_best,
                 over the best of the modes that it may choose from (medians of what came out round by round);
                 took, the mode that was taken; notified, copied: messages that were not to be copied,
                 and that were nonetheless; absent, why there is nothing to report (all else is null)
  of a lock      bytes; register_ns, unregister_ns; copy_cache_ns, copy_memory_ns; call_ns, an empty system
                 call; send_pin_ns, send_copy_cache_ns, send_copy_memory_ns, within a send; null where unknown
  of verified    mode, messages, bytes, notified, copied; absent
  of the totals  messages; worst_of_best, of automatic in any cell, and worst_bytes, worst_pieces, worst_source;
                 memory_of_two_copy, cache_of_two_copy: automatic over two-copy, one piece of 63000 bytes

Exit status:
  0  something was measured, whatever came out, and every message that was checked was right
  1  nothing could be measured, contents were wrong, or output cannot be written
  2  the command line makes no sense";

/// The measurements to make.
pub(super) struct Wish {
    pub(super) cells: Vec<Cell>,
    pub(super) rounds: usize,
    pub(super) time: Duration,
    pub(super) core: Option<usize>,
}

/// The outputs that the results go to.
pub(super) struct Output {
    pub(super) json: bool,
    pub(super) csv: Option<PathBuf>,
    pub(super) html: Option<PathBuf>,
}

impl ModesArgs {
    /// The measurements to make.
    ///
    /// # Errors
    /// [`Fail::Usage`] for an impossible request.
    pub(super) fn wish(&self) -> Result<Wish> {
        let mut sizes = match (&*self.sizes, self.quick) {
            ([], true) => cell::QUICK_SIZES.to_vec(),
            ([], false) => cell::SIZES.to_vec(),
            (some, _) => some.to_vec(),
        };
        let mut pieces: Vec<usize> = match (&*self.pieces, self.quick) {
            ([], true) => vec![1, 4],
            ([], false) => vec![1, 2, 4, 8],
            (some, _) => some.iter().copied().map(usize::from).collect(),
        };
        for list in [&mut sizes, &mut pieces] {
            list.sort_unstable();
            list.dedup();
        }
        if let Some(size) = sizes.iter().find(|&&size| size > BYTES_MAX) {
            let why = format!("--sizes: {size} bytes is too long; {BYTES_MAX} is the most");
            return Err(Fail::Usage(why));
        }
        if sizes[0] < pieces[pieces.len() - 1] {
            let why = format!("--sizes: {} bytes cannot be cut into so many pieces", sizes[0]);
            return Err(Fail::Usage(why));
        }
        let has = |from| self.sources.is_empty() || self.sources.contains(&from);
        let sources = [(From::Cache, SentFrom::Cache), (From::Memory, SentFrom::Memory)];
        let mut cells = Vec::new();
        for &pieces in &pieces {
            for (_, from) in sources.into_iter().filter(|source| has(source.0)) {
                cells.extend(sizes.iter().map(|&bytes| Cell { bytes, pieces, from }));
            }
        }
        if let Some(core) = self.core
            && !pinfold_sys::cpu::affinity::current_cpus().contains(&core)
        {
            return Err(Fail::Usage(format!("--core: processor {core} is not to be had here")));
        }
        let rounds = self.rounds.unwrap_or(if self.quick { 101 } else { 301 }) as usize;
        Ok(Wish { cells, rounds, time: self.time()?, core: self.core })
    }

    fn time(&self) -> Result<Duration> {
        let seconds = match self.seconds {
            Some(seconds) if self.quick && seconds > QUICK_SECONDS => {
                return Err(Fail::Usage(format!(
                    "--quick takes {QUICK_SECONDS} seconds at most; leave it out to take more"
                )));
            }
            Some(seconds) => seconds,
            None if self.quick => QUICK_SECONDS,
            None => SECONDS,
        };
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if !time.is_zero() => Ok(time),
            _ => Err(Fail::Usage(format!("--seconds {seconds}: give a positive number"))),
        }
    }

    /// The outputs that the results go to.
    pub(super) fn output(&self) -> Output {
        Output { json: self.json, csv: self.csv.clone(), html: self.html.clone() }
    }
}
