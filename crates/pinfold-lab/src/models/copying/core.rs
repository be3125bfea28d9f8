//! The loop: loads and stores in their order of time, a line at a time.

use std::collections::HashMap;

use pinfold::copy::{Prefetch, Stores};

use super::{Before, Grain, Way, memory::Memory, processor::Processor};
use crate::models::hierarchy::{Hierarchy, LINE, Place};

/// The block of Figure 4.1, bytes.
const BLOCK: u64 = 8 << 10;
/// Bytes of a page, beyond which the processor fetches nothing by itself.
const PAGE: u64 = 4 << 10;
/// Streams that the processor sees.
const STREAMS: usize = 8;
/// The addresses of source and destination: in different banks if frames are in order.
const FROM: u64 = 0;
const TO: u64 = (1 << 30) + 2 * (16 << 10);

/// A copy that was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Copied {
    /// Its time, cycles.
    pub cycles: f64,
    /// The time in which its destination is read afterwards, cycles.
    pub reading: f64,
    /// Lines that it read from memory, without the reading afterwards.
    pub reads: u64,
    /// Lines that it wrote, or has left to be written.
    pub writes: u64,
}

/// Copies so many bytes, a multiple of a line, from and to such places, and then reads the
/// destination.
pub fn copy(with: &Processor, way: Way, (from, to): (Before, Before), bytes: u64) -> Copied {
    let mut core = Core::new(with);
    let lines = bytes.div_ceil(LINE);
    core.bring(FROM, lines, from);
    core.bring(TO, lines, to);
    let is_string = way.grain == Grain::Word && way.stores == Stores::Temporal;
    let start = with.start + if is_string { with.string_start } else { 0.0 };
    let cycles = core.copy(way, lines, start);
    let (reads, writes) = (core.memory.reads, core.memory.writes);
    let reading = core.read(lines, cycles) - cycles;
    Copied { cycles, reading, reads, writes }
}

struct Core<'a> {
    with: &'a Processor,
    caches: Hierarchy,
    memory: Memory,
    /// The time from which on the way between the caches is free.
    between_free: f64,
    /// Lines that are on their way here, with the times of their arrival.
    arriving: HashMap<u64, f64>,
    /// The times at which lines that are asked for arrive.
    asked: Vec<f64>,
    /// The last lines that missed the first level.
    missed: Vec<u64>,
}

impl<'a> Core<'a> {
    fn new(with: &'a Processor) -> Core<'a> {
        Core {
            with,
            caches: Hierarchy::new(with.first, with.second, with.sharing),
            memory: Memory::new(with),
            between_free: 0.0,
            arriving: HashMap::new(),
            asked: Vec::new(),
            missed: Vec::new(),
        }
    }

    /// Brings a block to its place, without any time.
    fn bring(&mut self, at: u64, lines: u64, before: Before) {
        if before == Before::Uncached {
            return;
        }
        let all = || (0..lines).map(|line| at + line * LINE);
        for line in all() {
            // Lines that go back to memory are of the time before.
            let _ = self.caches.access(line, before == Before::SecondDirty);
        }
        if before != Before::Cached {
            all().for_each(|line| self.caches.demote(line));
        }
    }

    /// Copies from `start` on. Returns the end.
    fn copy(&mut self, way: Way, lines: u64, start: f64) -> f64 {
        let with = self.with;
        let streams = way.stores == Stores::Streaming;
        let (cycles, window) = match (way.grain, streams) {
            (Grain::Line, _) => (with.line_cycles, with.window),
            (Grain::Word, false) => (with.string_cycles, with.window),
            (Grain::Word, true) => (with.word_cycles, with.word_window),
        };
        let lines = lines as usize;
        let per_block = (BLOCK / LINE) as usize;
        let prefetches = way.prefetch == Prefetch::Source;
        // The end of each line's loads, all before it included, and of its stores.
        let (mut loaded, mut stored): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
        // The time at which each line's write-combining buffer is free again.
        let mut combined: Vec<f64> = Vec::new();
        let (mut now, mut fetched) = (start, 0);
        while stored.len() < lines {
            let (load, store) = (loaded.len(), stored.len());
            if prefetches && load < lines && fetched <= load && load.is_multiple_of(per_block) {
                fetched = lines.min(load + per_block);
                for line in load..fetched {
                    now = self.prefetch(FROM + line as u64 * LINE, now);
                }
            }
            // A line's loads wait until there is room for them, and for its stores.
            let room = |ends: &[f64], room: usize| match load.checked_sub(room) {
                None => Some(start),
                Some(at) => ends.get(at).copied(),
            };
            let windows = room(&loaded, window).zip(room(&stored, with.stores));
            let may_load = windows.filter(|_| load < lines).map(|both| both.0.max(both.1).max(now));
            let may_store = loaded.get(store).map(|&ready| {
                // Nothing is combined if the stores go into the cache.
                let buffer = store.checked_sub(with.combining).and_then(|at| combined.get(at));
                ready.max(buffer.copied().unwrap_or(start))
            });
            match (may_load, may_store) {
                (Some(at), next) if next.is_none_or(|next| at < next) => {
                    let ready = self.load(FROM + load as u64 * LINE, at);
                    now = at + cycles;
                    loaded.push(ready.max(now).max(loaded.last().copied().unwrap_or(0.0)));
                }
                (_, Some(at)) => {
                    let line = TO + store as u64 * LINE;
                    let last = stored.last().copied().unwrap_or(0.0);
                    if streams {
                        stored.push(at.max(last));
                        combined.push(self.stream(line, at));
                    } else {
                        stored.push(self.store(line, at).max(last));
                    }
                }
                // One of the two can always go on: the oldest line has been loaded, or may be.
                (_, None) => break,
            }
        }
        let ends = stored.last().into_iter().chain(combined.last());
        let end = ends.copied().fold(now, f64::max);
        // Stores past the cache end with a fence, which waits for word from the controller.
        end + if streams { with.path } else { 0.0 }
    }

    /// Reads the destination from `start` on. Returns the end.
    fn read(&mut self, lines: u64, start: f64) -> f64 {
        let cycles = self.with.line_cycles / 2.0;
        let window = 2 * self.with.window;
        let mut loaded: Vec<f64> = Vec::new();
        let mut now = start;
        for line in 0..lines {
            let room = loaded.len().checked_sub(window).map_or(start, |at| loaded[at]);
            let at = now.max(room);
            let ready = self.load(TO + line * LINE, at);
            now = at + cycles;
            loaded.push(ready.max(now).max(loaded.last().copied().unwrap_or(start)));
        }
        loaded.last().copied().unwrap_or(start)
    }

    /// Asks for a line with a hint, and goes on. Returns when.
    fn prefetch(&mut self, line: u64, now: f64) -> f64 {
        let moves = self.caches.read_passing(line);
        let at = if moves.from == Place::Memory { self.fetch(line, now).0 } else { now };
        self.between(moves.between, at);
        self.write_back(moves.written_back, at);
        at + 1.0
    }

    /// Loads a line. Returns when it is there.
    fn load(&mut self, line: u64, now: f64) -> f64 {
        self.access(line, now, false)
    }

    /// Stores a line into the cache. Returns when it is there.
    fn store(&mut self, line: u64, now: f64) -> f64 {
        self.access(line, now, true)
    }

    fn access(&mut self, line: u64, now: f64, writes: bool) -> f64 {
        let moves = self.caches.access(line, writes);
        let ready = match moves.from {
            Place::First => now,
            Place::Second => self.between(moves.between, now) + self.with.second_latency,
            Place::Memory => self.fetch(line, now).1,
        };
        if moves.from != Place::Second {
            self.between(moves.between, now);
        }
        let ready = ready.max(self.arriving.remove(&line).unwrap_or(0.0));
        self.write_back(moves.written_back, now);
        if moves.from != Place::First {
            self.look_ahead(line, now);
        }
        ready
    }

    /// Stores a line past the cache. Returns when its write-combining buffer is free again.
    fn stream(&mut self, line: u64, now: f64) -> f64 {
        let (place, _) = self.caches.find(line);
        let at = match self.caches.drop_line(line) {
            None => now,
            Some(true) if self.with.waits_for_dirty => self.memory.write_now(line, now),
            Some(true) => {
                let gone = self.between(1, now);
                self.memory.write(line, gone).max(gone)
            }
            Some(false) if place == Place::First => now,
            Some(false) => self.between(1, now) + self.with.second_latency,
        };
        self.memory.write(line, at).max(at)
    }

    /// Moves lines between the levels. Returns the end of the first move.
    fn between(&mut self, lines: u32, now: f64) -> f64 {
        if lines == 0 {
            return now;
        }
        let from = self.between_free.max(now);
        self.between_free = from + f64::from(lines) * self.with.between;
        from
    }

    /// Asks memory for a line as soon as it may. Returns when it was asked, and when it arrives.
    fn fetch(&mut self, line: u64, now: f64) -> (f64, f64) {
        let at = self.room_to_ask(now);
        let ready = self.memory.read(line, at);
        self.asked.push(ready);
        self.arriving.insert(line, ready);
        let other = line ^ LINE;
        if self.with.sector == 2 && self.caches.find(other).0 == Place::Memory {
            self.bring_second(other, at);
        }
        (at, ready)
    }

    fn room_to_ask(&mut self, now: f64) -> f64 {
        self.asked.retain(|&ready| ready > now);
        if self.asked.len() < self.with.misses {
            return now;
        }
        let first = self.asked.iter().copied().fold(f64::MAX, f64::min);
        self.asked.retain(|&ready| ready > first);
        first
    }

    /// Fetches a line ahead of a stream, if there is room to ask for it.
    fn look_ahead(&mut self, line: u64, now: f64) {
        let follows = self.missed.contains(&line.wrapping_sub(LINE));
        self.missed.retain(|&last| last != line.wrapping_sub(LINE));
        if self.missed.len() == STREAMS {
            self.missed.remove(0);
        }
        self.missed.push(line);
        let ahead = line + self.with.ahead * LINE;
        let is_asked = ahead / PAGE != line / PAGE || self.caches.find(ahead).0 != Place::Memory;
        if !follows || is_asked {
            return;
        }
        self.asked.retain(|&ready| ready > now);
        if self.asked.len() < self.with.misses {
            self.bring_second(ahead, now);
        }
    }

    fn bring_second(&mut self, line: u64, now: f64) {
        let ready = self.memory.read(line, now);
        self.asked.push(ready);
        self.arriving.insert(line, ready);
        let gone = self.caches.bring_second(line);
        self.write_back(gone, now);
    }

    fn write_back(&mut self, line: Option<u64>, now: f64) {
        if let Some(line) = line {
            self.memory.write(line, now);
        }
    }
}
