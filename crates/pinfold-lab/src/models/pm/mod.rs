//! PM on Myrinet (Tezuka, O'Carroll, Hori, Ishikawa), between two Pentium Pro of 200 MHz.
//!
//! The interface's DMA brings a page of the host's memory into the interface's own, the wire
//! carries it to the other one's, and that one's DMA brings it into the other host's. The three
//! work at once on different pages of a message; a message is over when its last page has arrived,
//! and the next one begins then.

pub mod pinning;

use crate::clock::Time;

/// A page, bytes (section 5).
pub const PAGE_BYTES: u64 = 4096;
/// A Myrinet link of 1.28 Gbit/s, bytes a second (Boden and others, *Myrinet*, IEEE Micro, 1995).
pub const WIRE_BYTES_PER_S: f64 = 160e6;
/// PCI of 32 bits at 33 1/3 MHz, bytes a second (PCI 2.1).
pub const PCI_BYTES_PER_S: f64 = 4.0 * 100e6 / 3.0;
/// One way of 4 bytes (section 6.1).
pub const LATENCY_US: f64 = 7.5;
/// Copying beyond the cache on the Pentium Pro: the mean of the two numbers of Table 1, bytes a
/// second.
pub const COPY_BYTES_PER_S: f64 = (52.3e6 + 48.7e6) / 2.0;
/// The unit in which PM 1.0 sends, bytes (sections 2 and 6.2: 8 KB).
pub const CHUNK_BYTES: u64 = 8192;
/// Bandwidth of 1 MB, all hits, bytes a second (section 6.1): [`Pm::fitted`] goes by it.
pub const BAND_1M: f64 = 108.8e6;

/// Parameters that no source states.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pm {
    /// The interface's processor's work for each DMA, µs: finding the page, starting it, seeing it
    /// end.
    pub dma_us: f64,
}

/// Time of so many bytes at a rate, µs.
fn us(bytes: u64, bytes_per_s: f64) -> f64 {
    bytes as f64 / bytes_per_s * 1e6
}

impl Pm {
    /// Fitted to one number: 108.8 MB/s of messages of 1 MB, all hits.
    pub fn fitted() -> Pm {
        let bytes = 1 << 20;
        let without = Pm { dma_us: 0.0 }.zero_copy_us(bytes);
        // Each page's DMA counts once, and the last one's at the receiver.
        let dmas = (bytes / PAGE_BYTES + 1) as f64;
        Pm { dma_us: (us(bytes, BAND_1M) - without) / dmas }
    }

    /// The stages of a page, or of part of one: DMA at the sender, wire, DMA at the receiver.
    fn stages(&self, bytes: u64) -> [Time; 3] {
        let dma = Time::from_us(us(bytes, PCI_BYTES_PER_S) + self.dma_us);
        [dma, Time::from_us(us(bytes, WIRE_BYTES_PER_S)), dma]
    }

    /// The time of a message that is sent from and into the programs' own memory, pinned, µs: a
    /// hit of the pin-down cache included.
    pub fn zero_copy_us(&self, bytes: u64) -> f64 {
        let full = bytes / PAGE_BYTES;
        let rest = bytes % PAGE_BYTES;
        let parts = (0..full).map(|_| PAGE_BYTES).chain((rest > 0).then_some(rest));
        let stages: Vec<[Time; 3]> = parts.map(|part| self.stages(part)).collect();
        pipelined(&stages).us() + LATENCY_US + pinning::HIT_US
    }

    /// The same in a stream of messages that are copied into and out of buffers which are always
    /// pinned. The two hosts copy at once; each message costs its latency.
    pub fn copied_us(&self, bytes: u64) -> f64 {
        let chunks = bytes.div_ceil(CHUNK_BYTES).max(1) as f64;
        let copy = us(bytes, COPY_BYTES_PER_S) + chunks * LATENCY_US;
        copy.max(self.buffered_us(bytes))
    }

    /// The same without the copies: the program makes its message in the buffer.
    pub fn buffered_us(&self, bytes: u64) -> f64 {
        let chunks = bytes.div_ceil(CHUNK_BYTES).max(1) as f64;
        us(bytes, PCI_BYTES_PER_S) + chunks * self.dma_us
    }

    /// The time of a message of the new MPI, µs: sender and receiver agree first, a round trip,
    /// and each pins its memory meanwhile, with `pinning_us`.
    pub fn mpi_us(&self, bytes: u64, pinning_us: f64) -> f64 {
        2.0 * LATENCY_US + pinning_us + self.zero_copy_us(bytes)
    }
}

/// The time of work that goes through three stages one after the other, each of which has one piece
/// at a time.
pub fn pipelined(pieces: &[[Time; 3]]) -> Time {
    let mut free = [Time(0); 3];
    for piece in pieces {
        let mut ready = Time(0);
        for (free, took) in free.iter_mut().zip(piece) {
            ready = ready.max(*free) + *took;
            *free = ready;
        }
    }
    free[2]
}

/// Bandwidth, 10^6 bytes a second, of messages that take so long.
pub fn band(bytes: u64, us: f64) -> f64 {
    bytes as f64 / us
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_crosses_the_wire_in_the_stated_time() {
        assert!((us(PAGE_BYTES, WIRE_BYTES_PER_S) - 25.6).abs() < 1e-9);
        assert!((us(PAGE_BYTES, PCI_BYTES_PER_S) - 30.72).abs() < 1e-9);
    }

    /// Two pages by hand: the second one's DMA begins when the first one's has ended.
    #[test]
    fn two_pages() {
        let pm = Pm { dma_us: 5.0 };
        let expected = 2.0 * 35.72 + 25.6 + 35.72 + LATENCY_US + pinning::HIT_US;
        assert!((pm.zero_copy_us(8192) - expected).abs() < 1e-3);
        // A byte more is a third DMA: 5 µs and little else at the sender, as much at the receiver.
        assert!(pm.zero_copy_us(8193) > pm.zero_copy_us(8192) + 5.0);
        assert!((pm.buffered_us(8192) - (61.44 + 5.0)).abs() < 1e-9);
    }

    #[test]
    fn the_fitted_number_comes_out() {
        let pm = Pm::fitted();
        let got = band(1 << 20, pm.zero_copy_us(1 << 20));
        assert!((got - 108.8).abs() < 1e-3, "{got}");
        assert!((5.0..8.0).contains(&pm.dma_us), "{pm:?}");
    }

    proptest! {
        /// The longest path through the pieces and stages (each step goes to the next piece or the
        /// next stage) takes as long.
        #[test]
        fn a_pipeline_is_its_longest_path(
            pieces in prop::collection::vec([0u64..50, 0u64..50, 0u64..50], 1..7)
        ) {
            fn longest(pieces: &[[u64; 3]], piece: usize, stage: usize) -> u64 {
                let before = piece.checked_sub(1).map_or(0, |piece| longest(pieces, piece, stage));
                let above = stage.checked_sub(1).map_or(0, |stage| longest(pieces, piece, stage));
                pieces[piece][stage] + before.max(above)
            }
            let all: Vec<[Time; 3]> = pieces.iter().map(|piece| piece.map(Time)).collect();
            prop_assert_eq!(pipelined(&all), Time(longest(&pieces, pieces.len() - 1, 2)));
        }
    }
}
