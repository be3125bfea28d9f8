//! The cells that are measured, and the contestants that take turns. No I/O.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    terms::{Memory, Setting, Spec, What},
    units,
};

/// One measure with one size: [`What::Latency`] or [`What::Bandwidth`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) what: What,
    pub(super) bytes: usize,
}

/// A contestant that takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Contestant {
    /// Sockets with calls that wait in the kernel.
    Sockets,
    /// Sockets with calls that do not wait, again and again.
    Spinning,
    /// Sockets by an io_uring: one call submits and waits.
    Ring,
    /// This library.
    Pinfold,
    /// This library, over a connection that is encrypted.
    Encrypted,
    /// libfabric, over its provider for TCP.
    Libfabric,
    /// A program of UCX, over its transport for TCP.
    Ucx,
}

impl Contestant {
    pub(super) const ALL: [Contestant; 7] = [
        Contestant::Sockets,
        Contestant::Spinning,
        Contestant::Ring,
        Contestant::Pinfold,
        Contestant::Encrypted,
        Contestant::Libfabric,
        Contestant::Ucx,
    ];

    /// The name that tables and records use.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Contestant::Sockets => "sockets",
            Contestant::Spinning => "spinning",
            Contestant::Ring => "ring",
            Contestant::Pinfold => "pinfold",
            Contestant::Encrypted => "encrypted",
            Contestant::Libfabric => "libfabric",
            Contestant::Ucx => "ucx",
        }
    }

    /// Returns whether it is this library, encrypted or not.
    pub(super) const fn is_pinfold(self) -> bool {
        matches!(self, Contestant::Pinfold | Contestant::Encrypted)
    }

    /// Returns whether it is another library, which is there only where it is installed.
    pub(super) const fn is_foreign(self) -> bool {
        matches!(self, Contestant::Libfabric | Contestant::Ucx)
    }

    /// Returns whether it is another program, which writes and checks no message.
    pub(super) const fn is_tool(self) -> bool {
        matches!(self, Contestant::Ucx)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.what == What::Latency { "latency" } else { "stream" };
        write!(f, "{what}, {}", units::bytes(self.bytes))
    }
}

/// Bytes of a burst, which are written before it and checked behind it.
const BURST_BYTES: usize = 8 << 20;
/// Messages of a burst.
const BURST_MAX: usize = 512;
const BURST_MIN: usize = 4;
/// Time to write and check a byte, picoseconds: a guess, for planning alone.
const TOUCH_PS: f64 = 250.0;

impl Cell {
    /// Messages in a sample.
    pub(super) fn per_sample(&self) -> usize {
        match self.what {
            What::Latency => 1,
            _ => {
                let most = (BURST_BYTES / self.bytes.max(1)).clamp(BURST_MIN, BURST_MAX);
                1 << most.ilog2()
            }
        }
    }

    /// A run of about `allowance`, if a message is expected to take `ps` picoseconds; a short run
    /// if that is not known.
    pub(super) fn spec(
        &self,
        subject: usize,
        run: u64,
        ps: Option<u64>,
        allowance: Duration,
    ) -> Spec {
        let per_sample = self.per_sample() as u64;
        let ways = if self.what == What::Latency { 2.0 } else { 1.0 };
        let samples = ps.map_or(3, |ps| {
            let message = ways * (ps.max(1) as f64 + self.bytes as f64 * TOUCH_PS);
            let sample = per_sample as f64 * message + 200e3;
            (allowance.as_secs_f64() * 1e12 / sample).clamp(3.0, 20_000.0) as u64
        });
        Spec {
            subject,
            what: self.what,
            size: self.bytes,
            touched: true,
            setting: Setting::Alone,
            memory: Memory::Heap,
            run,
            warm_up: samples / 20 + 1,
            samples,
            per_sample,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_powers_of_two_of_bounded_size() {
        for (bytes, count) in [(1, 512), (65_536, 128), (100_000, 64), (1 << 20, 8), (64 << 20, 4)]
        {
            assert_eq!(Cell { what: What::Bandwidth, bytes }.per_sample(), count);
        }
        assert_eq!(Cell { what: What::Latency, bytes: 8 }.per_sample(), 1);
    }

    #[test]
    fn runs_take_their_time_and_no_more() {
        let allowance = Duration::from_millis(100);
        let latency = Cell { what: What::Latency, bytes: 8 };
        // 10 µs one way.
        let spec = latency.spec(0, 1, Some(10_000_000), allowance);
        assert!((4_000..=5_000).contains(&spec.samples), "{}", spec.samples);
        assert!(spec.touched);
        let slow = latency.spec(0, 1, Some(u64::MAX), allowance);
        assert_eq!(slow.samples, 3);
        assert_eq!(latency.spec(0, 1, None, allowance).samples, 3);
    }
}
