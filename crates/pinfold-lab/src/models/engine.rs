//! A copy engine over several channels of memory, line by line in turns, that has to be asked for
//! each copy.

use super::dram::{Controller, Dram};

/// The engine.
#[derive(Clone, Debug)]
pub struct Engine {
    channels: Vec<Controller>,
    with: Dram,
    /// Clocks from the end of a copy to the beginning of the next.
    submission: u64,
}

impl Engine {
    /// One over so many channels of a memory, which rests for `submission_ns` between two copies,
    /// rounded up to clocks: 0 if the next one is always queued.
    pub fn new(with: Dram, channels: u64, submission_ns: f64) -> Engine {
        let channels = vec![Controller::new(with); channels.max(1) as usize];
        let mut engine = Engine { channels, with, submission: 0 };
        engine.submission = engine.clocks(submission_ns);
        engine
    }

    /// The most that all channels can carry, 10^6 bytes a second.
    pub fn peak(&self) -> f64 {
        self.with.peak() * self.channels.len() as f64
    }

    /// The clock at which the last data end.
    pub fn end(&self) -> u64 {
        self.channels.iter().map(Controller::end).max().unwrap_or(0)
    }

    /// Copies a block through a buffer. All three are multiples of a burst, and the two addresses
    /// of one in each channel, so that a line stays in its channel.
    pub fn copy(&mut self, from: u64, to: u64, block: u64, buffer: u64) {
        let start = if self.submission == 0 { 0 } else { self.end() + self.submission };
        let step = self.with.burst_bytes();
        let mut at = 0;
        while at < block {
            let end = block.min(at + buffer.max(step));
            for (first, writes) in [(from, false), (to, true)] {
                for offset in (at..end).step_by(step as usize) {
                    self.line(first + offset, writes, start);
                }
            }
            at = end;
        }
    }

    /// Transfers the line at an address, which is not asked for before the clock `from`. Returns
    /// the clock at which its data end.
    pub fn line(&mut self, address: u64, writes: bool, from: u64) -> u64 {
        let step = self.with.burst_bytes();
        let (line, count) = (address / step, self.channels.len() as u64);
        let channel = &mut self.channels[(line % count) as usize];
        channel.burst_at(line / count * step, writes, from)
    }

    /// The clocks of so many nanoseconds, rounded up.
    pub fn clocks(&self, ns: f64) -> u64 {
        (ns * self.with.mhz / 1000.0).ceil() as u64
    }

    /// The time of so many clocks, ns.
    pub fn ns(&self, clocks: u64) -> f64 {
        clocks as f64 * 1000.0 / self.with.mhz
    }

    /// The part of the buses' time that carried so many bytes.
    pub fn used(&self, bytes: u64) -> f64 {
        let each = 2.0 * self.with.width as f64 * self.channels.len() as f64;
        if self.end() == 0 { 0.0 } else { bytes as f64 / each / self.end() as f64 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::models::dram::{DDR5_4800, DDR400};

    #[test]
    fn two_channels_share_the_lines() {
        let mut engine = Engine::new(DDR5_4800, 2, 0.0);
        assert_eq!(engine.peak(), 2.0 * 4800.0 * 4.0);
        // A line in each channel: 87 clocks to the end of its read, 2 of rest, 8 of its write into
        // a row of another bank, which is open by then.
        engine.copy(0, 1 << 16, 128, 128);
        assert_eq!(engine.end(), 87 + 2 + 8);
        // 256 bytes in 97 clocks that could carry 16 each.
        assert!((engine.used(256) - 256.0 / 16.0 / 97.0).abs() < 1e-12);
    }

    #[test]
    fn a_copy_that_has_to_be_asked_for_waits() {
        let mut engine = Engine::new(DDR5_4800, 2, 100.0);
        engine.copy(0, 1 << 16, 128, 128);
        // 240 clocks, and as before.
        assert_eq!(engine.end(), 240 + 97);
        engine.copy(1 << 17, 3 << 16, 128, 128);
        // Other banks' rows are opened.
        assert_eq!(engine.end(), 337 + 240 + 97);
    }

    proptest! {
        /// One channel that is never waited for is a controller.
        #[test]
        fn one_channel_is_a_controller(
            copies in prop::collection::vec((0u64..1000, 0u64..1000, 1u64..100, 1u64..32), 1..8),
        ) {
            let (mut engine, mut plain) = (Engine::new(DDR400, 1, 0.0), Controller::new(DDR400));
            let mut bytes = 0;
            for (from, to, block, buffer) in copies {
                engine.copy(from * 64, to * 64, block * 64, buffer * 64);
                plain.copy(from * 64, to * 64, block * 64, buffer * 64);
                bytes += 2 * block * 64;
                prop_assert_eq!(engine.end(), plain.end());
            }
            prop_assert!((engine.used(bytes) - plain.used(bytes)).abs() < 1e-12);
        }
    }
}
