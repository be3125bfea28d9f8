//! One turn of one contestant.

use std::{ops::Range, time::Duration};

use pinfold::route::{SendMemory, SendMode, SendPicker, SentFrom};
use pinfold_sys::cpu::{block, clock};
use rustix::time::{ClockId, clock_gettime};

use super::{
    cell::{self, AREA_BYTES, Cell, Contestant},
    ground::Ground,
};
use crate::{
    datagram::{Area, Sender},
    fail::{Fail, Result},
};

/// Messages of a turn. Their notices are collected together, after the last.
pub(super) const BATCH: usize = 16;

/// Time that the kernel may take to be done with them.
const LIMIT: Duration = Duration::from_secs(5);

/// The costs of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// Processor time of this thread for a message, nanoseconds.
    pub(super) cpu_ns: f64,
    /// Time for a message, nanoseconds.
    pub(super) elapsed_ns: f64,
    /// The way it went.
    pub(super) took: SendMode,
    pub(super) notified: u64,
    pub(super) copied: u64,
}

/// The result of a turn: a reason where it cannot be made.
pub(super) type Tried = std::result::Result<Turn, String>;

pub(super) struct Bench {
    sender: Sender,
    /// The reason why modes cannot be measured, for any message.
    absent: Vec<(SendMode, String)>,
    /// Processor time and time between two looks at the clocks, nanoseconds.
    idle: (f64, f64),
    seed: u8,
    pub(super) messages: u64,
}

impl Bench {
    /// A bench with as many of the resources that modes need as there are.
    ///
    /// # Errors
    /// An error if there is not even memory.
    pub(super) fn new(ground: &Ground) -> Result<Bench> {
        let mut absent = Vec::new();
        let mut lack = |modes: &[SendMode], why: String| {
            absent.extend(modes.iter().map(|&mode| (mode, why.clone())));
        };
        use SendMode::{Aligned, Cached, PerSend, TwoCopy};
        let sender = match Sender::new(ground.to_nobody()?, BATCH, AREA_BYTES, true) {
            Ok(sender) => sender,
            Err(why) => {
                lack(&[Cached, Aligned], why.to_string());
                match Sender::new(ground.to_nobody()?, BATCH, AREA_BYTES, false) {
                    Ok(sender) => sender,
                    Err(why) => {
                        lack(&[TwoCopy, PerSend], why.to_string());
                        Sender::without_ring(ground.to_nobody()?, BATCH, AREA_BYTES)
                            .map_err(|why| Fail::Said(why.to_string()))?
                    }
                }
            }
        };
        Ok(Bench { sender, absent, idle: idle(), seed: 0, messages: 0 })
    }

    /// The reason why this mode cannot have messages of so many pieces, if that is known
    /// beforehand.
    pub(super) fn lacks(&self, mode: SendMode, pieces: usize) -> Option<String> {
        if let Some((_, why)) = self.absent.iter().find(|absent| absent.0 == mode) {
            return Some(why.clone());
        }
        self.sender.check(cell::way(mode), pieces).err().map(|why| why.to_string())
    }

    /// Sends [`BATCH`] messages, each written anew and then put where the cell says.
    ///
    /// # Errors
    /// An error if the kernel does not get done with them. A refusal of the network is a reason
    /// instead.
    pub(super) fn turn(
        &mut self,
        cell: &Cell,
        who: Contestant,
        picker: &mut SendPicker,
    ) -> Result<Tried> {
        let pieces = [false, true].map(|placed| cell.pieces(placed));
        let outgoing = cell.outgoing(who.memory().unwrap_or(SendMemory::Registered));
        let mut areas = self.fill(cell)?.into_iter();
        let before = self.sender.counts();
        let mut took = SendMode::Plain;
        let start = (cpu_ns(), clock::now_ns());
        while let Some(area) = areas.next() {
            took = match who {
                Contestant::Mode(mode) => mode,
                Contestant::Automatic | Contestant::Unregistered => picker.pick(&outgoing),
            };
            let pieces: &[Range<usize>] = &pieces[usize::from(took == SendMode::Aligned)];
            if let Err(refused) = self.sender.send(area, pieces, cell::way(took)) {
                for area in areas.chain([refused.area]) {
                    // All of them are this sender's.
                    let _ = self.sender.put_back(area);
                }
                self.sender.settle(LIMIT).map_err(|why| Fail::Said(why.to_string()))?;
                return Ok(Err(refused.error.to_string()));
            }
            self.sender.submit().map_err(|why| Fail::Said(why.to_string()))?;
        }
        self.sender.settle(LIMIT).map_err(|why| Fail::Said(why.to_string()))?;
        let end = (cpu_ns(), clock::now_ns());
        let counts = self.sender.counts();
        if counts.failed > before.failed {
            let outgoing = cell.outgoing(if took == SendMode::Aligned {
                SendMemory::Placed
            } else {
                SendMemory::Registered
            });
            return Ok(Err(refusal(took, cell, outgoing.pages, counts.errno)));
        }
        self.messages += BATCH as u64;
        let each = |taken: f64, idle: f64| (taken - idle).max(0.0) / BATCH as f64;
        Ok(Ok(Turn {
            cpu_ns: each(end.0 - start.0, self.idle.0),
            elapsed_ns: each((end.1 - start.1) as f64, self.idle.1),
            took,
            notified: counts.notified - before.notified,
            copied: counts.copied - before.copied,
        }))
    }

    /// All areas, written anew, in the state that the cell wants.
    fn fill(&mut self, cell: &Cell) -> Result<Vec<Area>> {
        self.seed = self.seed.wrapping_add(1);
        let (seed, span) = (self.seed, cell.span());
        let mut areas = Vec::with_capacity(BATCH);
        while let Some(mut area) = self.sender.take() {
            self.sender.bytes_mut(&mut area)[..span].fill(seed);
            areas.push(area);
        }
        if areas.len() != BATCH {
            return Err(Fail::Said("memory is still in flight".into()));
        }
        if cell.from == SentFrom::Memory {
            for area in &areas {
                if !block::flush(&self.sender.bytes(area)[..span]) {
                    let why = "this processor has no instruction that empties its caches: \
                               --sources cache leaves that out";
                    return Err(Fail::Said(why.into()));
                }
            }
        }
        Ok(areas)
    }
}

/// The reason why the network took none of it.
fn refusal(took: SendMode, cell: &Cell, pages: usize, errno: Option<rustix::io::Errno>) -> String {
    let call = cell::way(took).call(cell.pieces);
    match errno {
        Some(rustix::io::Errno::MSGSIZE) => format!(
            "{call}: EMSGSIZE: the message lies in {pages} pages, more than a packet can name"
        ),
        Some(rustix::io::Errno::INVAL) => {
            format!("{call}: EINVAL: not in this kernel (Linux 6.2; registered pieces 6.15)")
        }
        // Each send's pages count against the limit until its notice.
        Some(rustix::io::Errno::NOMEM) => format!(
            "{call}: ENOMEM: what is sent from where it lies counts as locked memory: raise \
             RLIMIT_MEMLOCK (ulimit -l)"
        ),
        Some(errno) => format!("{call}: {}", std::io::Error::from(errno)),
        None => format!("{call}: only some of the bytes were sent"),
    }
}

/// Processor time of this thread, nanoseconds.
pub(super) fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The time that the clocks themselves take.
fn idle() -> (f64, f64) {
    let look = || {
        let start = (cpu_ns(), clock::now_ns());
        let end = (cpu_ns(), clock::now_ns());
        (end.0 - start.0, (end.1 - start.1) as f64)
    };
    let looks: Vec<(f64, f64)> = (0..101).map(|_| look()).collect();
    (median(looks.iter().map(|it| it.0)), median(looks.iter().map(|it| it.1)))
}

/// The middle one; 0 of none.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
