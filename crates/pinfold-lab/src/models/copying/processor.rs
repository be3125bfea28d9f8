//! The parameters of the paper's two processors.
//!
//! Sources: *paper* is the thesis, *AMD* the Software Optimization Guide for AMD64 Processors (AMD
//! 25112), *Intel* the IA-32 Architecture Optimization Reference Manual (Intel 248966). *Memory*
//! marks what is known of the part without a document at hand, *taken* what is assumed.

use crate::models::{
    dram::{DDR400, Dram},
    hierarchy::Sharing,
};

/// The page frames that a program's memory lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// One after the other.
    InOrder,
    /// Any ones, by a seed.
    Random(u64),
}

/// A processor with its caches and memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processor {
    /// Its name.
    pub name: &'static str,
    /// Clock rate, MHz.
    pub mhz: f64,
    /// Bytes and ways of the first level.
    pub first: (usize, usize),
    /// Bytes and ways of the second.
    pub second: (usize, usize),
    /// The lines that both have.
    pub sharing: Sharing,
    /// Load to use in the second level, cycles.
    pub second_latency: f64,
    /// A line between the levels, cycles.
    pub between: f64,
    /// Cycles of a line's loads and stores, one line in a turn of the loop.
    pub line_cycles: f64,
    /// The same by string instructions.
    pub string_cycles: f64,
    /// The cycles that a string instruction needs to begin.
    pub string_start: f64,
    /// The same by a loop over words.
    pub word_cycles: f64,
    /// Lines whose instructions, a line in a turn, are in the reorder window.
    pub window: usize,
    /// The same by a loop over words.
    pub word_window: usize,
    /// Lines whose stores wait for their line.
    pub stores: usize,
    /// Write-combining buffers, lines.
    pub combining: usize,
    /// Lines that are asked for at a time.
    pub misses: usize,
    /// A stream of two lines has the processor fetch the line so many ahead into the second level.
    pub ahead: u64,
    /// Lines that memory is asked for at a time.
    pub sector: u64,
    /// To the memory controller and back, beyond the memory's own time, cycles.
    pub path: f64,
    /// Lines that the memory controller holds to be written.
    pub held: usize,
    /// True if a store past the cache waits until a dirty line has been written back.
    pub waits_for_dirty: bool,
    /// Taking the time and calling, cycles.
    pub start: f64,
    /// The memory.
    pub dram: Dram,
    /// The frames of source and destination: random ones in the paper's systems, as pages come
    /// from a free list.
    pub frames: Frames,
}

impl Processor {
    /// The same with other frames.
    pub fn with_frames(self, frames: Frames) -> Processor {
        Processor { frames, ..self }
    }

    /// Cycles that the memory's bus needs for a byte.
    pub fn peak(&self) -> f64 {
        self.mhz / self.dram.peak()
    }
}

/// AMD Opteron 250, 2.4 GHz, with two channels of PC3200 (paper, section 4.3).
pub const OPTERON_250: Processor = Processor {
    name: "Opteron 250",
    mhz: 2400.0,
    // Paper: 64 KB and 1 MB. Memory: 2 and 16 ways, exclusive.
    first: (64 << 10, 2),
    second: (1 << 20, 16),
    sharing: Sharing::Exclusive,
    // Memory: 12 cycles beyond the first level's 3; eight bytes a cycle each way.
    second_latency: 15.0,
    between: 8.0,
    // Paper, Figure 5.2: IA-32 code, so words of four bytes. Memory: two accesses to the first
    // level a cycle.
    line_cycles: 16.0,
    // Memory: rep movs moves some word a cycle, and takes some 15 to begin.
    string_cycles: 16.0,
    string_start: 15.0,
    // Five instructions a word, three a cycle.
    word_cycles: 27.0,
    // Memory: 72 instructions in flight, of 35 a line, or 80 by words; 32 stores, 16 a line.
    window: 2,
    word_window: 1,
    stores: 2,
    // Memory: four write-combining buffers. AMD, section 5.6: eight lines asked for at a time.
    combining: 4,
    misses: 8,
    // AMD, section 5.6: an access to line l, then to l + 1, fetches l + 3.
    ahead: 2,
    sector: 1,
    // Memory: 50 ns to a word of an open row, of which the memory itself takes 25.
    path: 60.0,
    // Taken.
    held: 8,
    waits_for_dirty: false,
    // Paper, section 5.3: a timed load that hits takes 18 cycles, of which the load takes 3.
    start: 15.0,
    dram: DDR400,
    frames: Frames::Random(0),
};

/// Intel Pentium 4, 3.2 GHz, whose first level is 8 KB (paper, section 4.4), so a Northwood.
pub const PENTIUM_4: Processor = Processor {
    name: "Pentium 4",
    mhz: 3200.0,
    // Intel, table 1-1: 4 and 8 ways, stores go through; 7 cycles. Memory: 32 bytes a cycle between
    // them.
    first: (8 << 10, 4),
    second: (512 << 10, 8),
    sharing: Sharing::WriteThrough,
    second_latency: 7.0,
    between: 2.0,
    // Memory: three micro-operations a cycle, one for a load of four bytes, two for a store, three
    // for the loop.
    line_cycles: 17.0,
    // Memory: a word in little more than a cycle, and some 50 cycles to begin.
    string_cycles: 18.0,
    string_start: 50.0,
    word_cycles: 32.0,
    // Memory: 126 micro-operations in flight, of 51 a line, or 96 by words; 24 stores, 16 a line,
    // rounded up.
    window: 2,
    word_window: 1,
    stores: 2,
    // Memory: six write-combining buffers, and eight lines asked for at a time.
    combining: 6,
    misses: 8,
    // Memory: 256 bytes ahead, after two misses. Intel, table 1-1: two lines are fetched at a time.
    ahead: 4,
    sector: 2,
    // Intel, chapter 1: 12 cycles to the bus and back. Memory: and 6 to 12 cycles of the bus, of 16
    // of the processor's each; 12 are taken, of which the DRAM itself takes 8.
    path: 76.0,
    // Taken.
    held: 8,
    // Paper, section 4.4.
    waits_for_dirty: true,
    // Memory: reading the time stamp counter takes some 80 cycles.
    start: 80.0,
    // Paper, section 4.4: DDR memory of 400 MHz. Taken: two channels of it, as the Opteron has.
    dram: DDR400,
    frames: Frames::Random(0),
};
