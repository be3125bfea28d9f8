//! The inputs of a size: peers, messages, memory.

use std::str::FromStr;

use pinfold::translate::tlb::Geometry;
use serde::Serialize;

/// The longest message, bytes: a trace of longer ones would have more pages than uses of a page.
pub const BYTES_MAX: u64 = 64 << 20;
/// Peers at most: as many as an endpoint has by default.
pub const PEERS_MAX: u32 = 1 << 20;
/// Parts of a mix at most.
pub const PARTS_MAX: usize = 16;

/// Messages of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Bytes of each, 1 to [`BYTES_MAX`].
    pub bytes: u64,
    /// Their share of all messages, over the sum of all shares; not 0.
    pub share: u32,
}

/// The program that is to be sized.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inputs {
    /// Peers, 1 to [`PEERS_MAX`].
    pub peers: u32,
    /// The lengths of its messages.
    pub mix: Vec<Part>,
    /// Entries of a network interface's TLB: a power of two, or 0 for none.
    pub nic_tlb: u32,
    /// Bytes that it may lock (`RLIMIT_MEMLOCK`).
    pub memlock: u64,
    /// Messages whose buffer was used before, %: 0 to 100.
    pub reuse_percent: u32,
    /// The misses of the TLB that are acceptable, % of its look-ups.
    pub tlb_misses_percent: f64,
    /// The seed of the trace.
    pub seed: u64,
}

/// A wrong input, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Wrong(String);

impl Wrong {
    pub(super) fn new(why: String) -> Wrong {
        Wrong(why)
    }
}

impl Inputs {
    /// Checks all of them.
    ///
    /// # Errors
    /// One is out of its range.
    pub fn check(&self) -> Result<(), Wrong> {
        let wrong = |why: String| Err(Wrong(why));
        if !(1..=PEERS_MAX).contains(&self.peers) {
            return wrong(format!("{} peers: 1 to {PEERS_MAX} can be", self.peers));
        }
        if self.mix.is_empty() || self.mix.len() > PARTS_MAX {
            return wrong(format!("a mix has 1 to {PARTS_MAX} lengths, not {}", self.mix.len()));
        }
        if let Some(part) = self.mix.iter().find(|part| !(1..=BYTES_MAX).contains(&part.bytes)) {
            return wrong(format!("messages of {} bytes: 1 to {BYTES_MAX} can be", part.bytes));
        }
        if let Some(part) = self.mix.iter().find(|part| part.share == 0) {
            return wrong(format!("messages of {} bytes have a share of 0", part.bytes));
        }
        let geometry = Geometry { sets: self.nic_tlb as usize, ..Geometry::default() };
        if self.nic_tlb != 0 && geometry.check().is_err() {
            return wrong(format!(
                "a TLB of {} entries: it must be a power of two up to {}, or 0 for none",
                self.nic_tlb,
                Geometry::SETS_MAX
            ));
        }
        if self.reuse_percent > 100 {
            return wrong(format!("{} % of all buffers cannot be used again", self.reuse_percent));
        }
        if !(0.0..=100.0).contains(&self.tlb_misses_percent) {
            return wrong(format!("{} % are no share of misses", self.tlb_misses_percent));
        }
        Ok(())
    }
}

impl FromStr for Part {
    type Err = Wrong;

    /// Reads `LEN:SHARE`; a length may end in `K` or `M`, powers of 1024.
    fn from_str(text: &str) -> Result<Part, Wrong> {
        let wrong = || Wrong(format!("{text}: write LEN:SHARE, such as 64K:10"));
        let (bytes, share) = text.split_once(':').ok_or_else(wrong)?;
        let share = share.parse().map_err(|_| wrong())?;
        Ok(Part { bytes: bytes_of(bytes).ok_or_else(wrong)?, share })
    }
}

/// Reads bytes, with `K`, `M` or `G` for powers of 1024. `None` if they are none.
pub fn bytes_of(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().last()? {
        (at, 'K' | 'k') => (&text[..at], 10),
        (at, 'M' | 'm') => (&text[..at], 20),
        (at, 'G' | 'g') => (&text[..at], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// An input that is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// [`Inputs::peers`].
    Peers,
    /// The lengths of [`Inputs::mix`], all together.
    Lengths,
    /// [`Inputs::nic_tlb`].
    NicTlb,
    /// [`Inputs::memlock`].
    Memlock,
    /// [`Inputs::reuse_percent`].
    Reuse,
}

impl Input {
    /// All of them.
    pub const ALL: [Input; 5] =
        [Input::Peers, Input::Lengths, Input::NicTlb, Input::Memlock, Input::Reuse];

    /// Its name in words.
    pub fn words(self) -> &'static str {
        match self {
            Input::Peers => "peers",
            Input::Lengths => "lengths",
            Input::NicTlb => "NIC TLB",
            Input::Memlock => "memlock",
            Input::Reuse => "reuse",
        }
    }

    /// The inputs with this one halved, or doubled; within its range.
    pub fn varied(self, inputs: &Inputs, is_doubled: bool) -> Inputs {
        let vary = |value: u64, least: u64, most: u64| {
            let value = if is_doubled { value.saturating_mul(2) } else { value / 2 };
            value.clamp(least, most)
        };
        let small = |value: u32, least: u64, most: u64| vary(value.into(), least, most) as u32;
        let mut inputs = inputs.clone();
        match self {
            Input::Peers => inputs.peers = small(inputs.peers, 1, PEERS_MAX.into()),
            Input::Lengths => {
                for part in &mut inputs.mix {
                    part.bytes = vary(part.bytes, 1, BYTES_MAX);
                }
            }
            Input::NicTlb if inputs.nic_tlb == 0 => {}
            Input::NicTlb => inputs.nic_tlb = small(inputs.nic_tlb, 1, Geometry::SETS_MAX as u64),
            Input::Memlock => inputs.memlock = vary(inputs.memlock, 0, u64::MAX),
            Input::Reuse => inputs.reuse_percent = small(inputs.reuse_percent, 0, 100),
        }
        inputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read() {
        assert_eq!("64K:10".parse(), Ok(Part { bytes: 65_536, share: 10 }));
        assert_eq!("1M:1".parse(), Ok(Part { bytes: 1 << 20, share: 1 }));
        for text in
            ["", "64K", ":", "64K:", "K:1", "1T:1", "-1:1", "64K:x", "18446744073709551615G:1"]
        {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
    }

    #[test]
    fn varied_inputs_stay_in_range() {
        let inputs = Inputs {
            peers: 1,
            mix: vec![Part { bytes: 1, share: 1 }, Part { bytes: BYTES_MAX, share: 1 }],
            nic_tlb: 1,
            memlock: u64::MAX,
            reuse_percent: 60,
            tlb_misses_percent: 1.0,
            seed: 1,
        };
        for input in Input::ALL {
            for is_doubled in [false, true] {
                assert_eq!(input.varied(&inputs, is_doubled).check(), Ok(()), "{input:?}");
            }
        }
        assert_eq!(Input::Reuse.varied(&inputs, true).reuse_percent, 100);
        assert_eq!(Input::Peers.varied(&inputs, true).peers, 2);
        assert_eq!(Input::Lengths.varied(&inputs, false).mix[1].bytes, BYTES_MAX / 2);
    }
}
