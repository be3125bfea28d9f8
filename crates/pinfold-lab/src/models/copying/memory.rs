//! A memory controller between a processor and its memory, in the processor's cycles.

use super::processor::{Frames, Processor};
use crate::{models::dram::Controller, random::Random};

/// Bytes of a page.
const PAGE: u64 = 4 << 10;
/// Frames of the memory: 1 GB.
const FRAMES: u64 = (1 << 30) / PAGE;

/// A controller. Reads go before writes until it holds as many of these as it can; then all of them
/// go, so that the bus turns around once for many.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    controller: Controller,
    /// Cycles of a clock of the memory's.
    ratio: f64,
    path: f64,
    held: usize,
    frames: Frames,
    /// Lines to be written, and the time of each.
    waiting: Vec<(u64, f64)>,
    /// Lines that were read, and that were or are to be written.
    pub(super) reads: u64,
    pub(super) writes: u64,
}

impl Memory {
    pub(super) fn new(with: &Processor) -> Memory {
        Memory {
            controller: Controller::new(with.dram),
            ratio: with.mhz / with.dram.mhz,
            path: with.path,
            held: with.held,
            frames: with.frames,
            waiting: Vec::new(),
            reads: 0,
            writes: 0,
        }
    }

    /// Reads a line that is asked for at `now`. Returns when the processor has it.
    pub(super) fn read(&mut self, line: u64, now: f64) -> f64 {
        self.reads += 1;
        self.burst(line, false, now + self.path / 2.0) + self.path / 2.0
    }

    /// Takes a line to be written. Returns when the processor is rid of it: at once unless too many
    /// are held.
    pub(super) fn write(&mut self, line: u64, now: f64) -> f64 {
        let free = if self.waiting.len() >= self.held { self.write_all(now) } else { now };
        self.writes += 1;
        self.waiting.push((line, now));
        free
    }

    /// Writes a line at once. Returns when the processor knows of it.
    pub(super) fn write_now(&mut self, line: u64, now: f64) -> f64 {
        self.writes += 1;
        self.burst(line, true, now + self.path / 2.0) + self.path / 2.0
    }

    /// Writes all lines that are held. Returns when the first of them is out.
    fn write_all(&mut self, now: f64) -> f64 {
        let mut free = now;
        for (at, (line, since)) in std::mem::take(&mut self.waiting).into_iter().enumerate() {
            let end = self.burst(line, true, since);
            if at == 0 {
                free = free.max(end);
            }
        }
        free
    }

    fn burst(&mut self, line: u64, writes: bool, from: f64) -> f64 {
        let clock = (from / self.ratio).ceil() as u64;
        let page = line / PAGE;
        let frame = match self.frames {
            Frames::InOrder => page,
            Frames::Random(seed) => Random::new(seed, page).below(FRAMES),
        };
        self.controller.burst_at(frame * PAGE + line % PAGE, writes, clock) as f64 * self.ratio
    }
}
