//! The IBM APE25, an adapter for ATM over 25 Mbit/s that keeps no frames (Bhikshesvaran, sections
//! 2.2, 3.1, 4.1): it fetches a frame's cells from the host's memory just in time.
//!
//! Three parts work at once, on virtual time. The host posts descriptors into a [`Ring`]. The
//! engine takes one after the other: it reads the descriptor and its list of pieces, then fetches
//! the frame cell by cell into a few buffers. The line sends a cell as soon as there is one. So the
//! engine's work on one frame overlaps the line's on the last cells of the frame before, and no
//! more.

mod ring;

pub use self::ring::Ring;
use crate::clock::{Clock, Time};

/// An ATM cell, bytes (ITU-T I.361).
pub const CELL_BYTES: u64 = 53;
/// The payload of a cell, bytes (ITU-T I.361; section 2.1).
pub const PAYLOAD_BYTES: u64 = 48;
/// The trailer of an AAL5 frame, bytes (ITU-T I.363.5).
pub const TRAILER_BYTES: u64 = 8;
/// The line, bits a second (ATM Forum, af-phy-0040: 32 MBaud of 4B5B code; the thesis says 25).
pub const LINE_BITS_PER_S: f64 = 25.6e6;
/// Fetching a cell: 12 words of PCI at 33 MHz, and 8 clocks of arbitration and address.
pub const FETCH_US: f64 = 20.0 / 33.0;

/// Parameters of the adapter that no source states.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ape25 {
    /// The engine's time for a frame's descriptor, µs.
    pub frame_us: f64,
    /// The engine's time for each piece of a frame, µs.
    pub piece_us: f64,
    /// Cells that the adapter has room for.
    pub buffers: usize,
    /// Descriptors of the ring.
    pub descriptors: usize,
}

impl Ape25 {
    /// Fitted to three cells of Table 5.6: 136 bytes in 1 and in 8 pieces, where the engine is the
    /// bottleneck, give the first two; 336 bytes in one piece gives the buffers.
    pub fn fitted() -> Ape25 {
        let frames = frames_of(136);
        let [one, eight] = [24.79, 37.18].map(|elapsed_s| elapsed_s * 1e6 / frames);
        let piece_us = (eight - one) / 7.0;
        let frame_us = one - piece_us - cells(136) as f64 * FETCH_US;
        Ape25 { frame_us, piece_us, buffers: 3, descriptors: 16 }
    }
}

/// The bytes of all frames together: 50 MB, as throughput times elapsed time in Tables 5.2 and 5.3
/// has it.
pub const LOAD_BYTES: f64 = 50e6;

/// Frames of so many bytes that make up the load.
pub fn frames_of(bytes: u64) -> f64 {
    LOAD_BYTES / bytes as f64
}

/// Cells of a frame of so many bytes.
pub fn cells(bytes: u64) -> u64 {
    (bytes + TRAILER_BYTES).div_ceil(PAYLOAD_BYTES)
}

/// A cell's time on the line, µs.
pub fn cell_us() -> f64 {
    CELL_BYTES as f64 * 8.0 / LINE_BITS_PER_S * 1e6
}

/// A frame that a host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its bytes.
    pub bytes: u64,
    /// Pieces of memory that it lies in.
    pub pieces: u32,
    /// The host's time for it, before it is posted.
    pub host: Time,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The host has a frame ready.
    Ready,
    /// The engine has read a descriptor.
    Read,
    /// The engine has fetched a cell.
    Fetched,
    /// The line has sent a cell.
    Sent,
}

/// The engine's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Idle,
    /// It reads a descriptor.
    Reading,
    /// It fetches a cell.
    Fetching,
}

/// The state of the three parts.
struct Sending<'a> {
    adapter: &'a Ape25,
    frames: &'a [Frame],
    clock: Clock<Event>,
    ring: Ring<usize>,
    /// Frames that the host has posted.
    posted: usize,
    is_host_busy: bool,
    /// Cells that the engine has still to fetch of its frame.
    to_fetch: u64,
    engine: Engine,
    /// Buffers in use: of cells that are being fetched, wait, or are on the line.
    buffered: usize,
    is_line_busy: bool,
    /// Cells that are still to be sent of each posted frame, the oldest first.
    unsent: std::collections::VecDeque<u64>,
    ends: Vec<Time>,
}

impl Ape25 {
    /// The time that the whole load takes, s: `frame` says how each frame of `bytes` is sent, and
    /// after the first ones the rate is measured over `count`.
    pub fn elapsed_s(&self, bytes: u64, count: usize, frame: impl Fn(u64) -> Frame) -> f64 {
        let first = 2 * self.descriptors;
        let frames: Vec<Frame> = (0..(first + count) as u64).map(frame).collect();
        let ends = self.send(&frames);
        let took = ends[first + count - 1] - ends[first - 1];
        took.seconds() / count as f64 * frames_of(bytes)
    }

    /// Sends all frames, one after the other, and returns when each had left.
    pub fn send(&self, frames: &[Frame]) -> Vec<Time> {
        let mut sending = Sending {
            adapter: self,
            frames,
            clock: Clock::new(),
            ring: Ring::new(self.descriptors),
            posted: 0,
            is_host_busy: false,
            to_fetch: 0,
            engine: Engine::Idle,
            buffered: 0,
            is_line_busy: false,
            unsent: Default::default(),
            ends: Vec::with_capacity(frames.len()),
        };
        sending.run_host();
        while let Some(event) = sending.clock.next_event() {
            sending.happened(event);
        }
        sending.ends
    }
}

impl Sending<'_> {
    fn happened(&mut self, event: Event) {
        match event {
            Event::Ready => {
                self.is_host_busy = false;
                self.ring.post(self.posted);
                self.unsent.push_back(cells(self.frames[self.posted].bytes));
                self.posted += 1;
                self.run_host();
                self.run_engine();
            }
            Event::Read => {
                self.engine = Engine::Idle;
                self.run_engine();
            }
            Event::Fetched => {
                self.engine = Engine::Idle;
                self.to_fetch -= 1;
                self.run_line();
                self.run_engine();
            }
            Event::Sent => {
                self.is_line_busy = false;
                self.buffered -= 1;
                self.sent();
                self.run_line();
                self.run_engine();
            }
        }
    }

    /// Begins the next frame, if a descriptor is free for it.
    fn run_host(&mut self) {
        let Some(frame) = self.frames.get(self.posted) else { return };
        if !self.is_host_busy && self.ring.has_room() {
            self.is_host_busy = true;
            self.clock.after(frame.host, Event::Ready);
        }
    }

    /// Fetches the next cell, if there is room for it, or reads the next descriptor.
    fn run_engine(&mut self) {
        if self.engine != Engine::Idle {
            return;
        }
        if self.to_fetch > 0 {
            if self.buffered < self.adapter.buffers {
                self.buffered += 1;
                self.engine = Engine::Fetching;
                self.clock.after(Time::from_us(FETCH_US), Event::Fetched);
            }
        } else if let Some(at) = self.ring.take() {
            let frame = self.frames[at];
            self.to_fetch = cells(frame.bytes);
            self.engine = Engine::Reading;
            let us = self.adapter.frame_us + self.adapter.piece_us * f64::from(frame.pieces);
            self.clock.after(Time::from_us(us), Event::Read);
        }
    }

    /// Sends the next cell, if one has been fetched.
    fn run_line(&mut self) {
        let being_fetched = usize::from(self.engine == Engine::Fetching);
        if !self.is_line_busy && self.buffered > being_fetched {
            self.is_line_busy = true;
            self.clock.after(Time::from_us(cell_us()), Event::Sent);
        }
    }

    /// A cell has left, and perhaps its frame with it.
    fn sent(&mut self) {
        let Some(left) = self.unsent.front_mut() else { return };
        *left -= 1;
        if *left == 0 {
            self.unsent.pop_front();
            self.ends.push(self.clock.now());
            self.ring.complete();
            self.run_host();
        }
    }
}

#[cfg(test)]
mod tests;
