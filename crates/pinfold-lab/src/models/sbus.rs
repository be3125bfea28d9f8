//! A device on SBus behind an IOMMU: the UltraSPARC's SBus interface, STP2220.

/// The parts of the bus and of its IOMMU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Entries (Womack, Mraz, Mendelson, section 1).
    pub entries: usize,
    /// Bytes of a large page: 1 MB (the same) by 16 entries.
    pub large_bytes: u64,
    /// Bytes of a small page, which is the UltraSPARC's.
    pub small_bytes: u64,
    /// Clock rate, MHz (IEEE 1496).
    pub mhz: f64,
    /// Bytes of a clock with the extended transfers of 64 bits (IEEE 1496).
    pub clock_bytes: u64,
    /// Bytes of the longest burst of 8 clocks.
    pub burst_bytes: u64,
    /// Clocks between bursts: arbitration, translation, acknowledgement. Fitted to 0.98 Gbit/s.
    pub between: u64,
}

/// The paper's.
pub const SBUS: Parameters = Parameters {
    entries: 16,
    large_bytes: 64 << 10,
    small_bytes: 8 << 10,
    mhz: 25.0,
    clock_bytes: 8,
    burst_bytes: 64,
    between: 5,
};

impl Parameters {
    /// The bus without a clock between bursts, Gbit/s.
    pub fn peak_gbits(&self) -> f64 {
        self.gbits(0)
    }

    /// Bursts with so many clocks between them, Gbit/s.
    pub fn gbits(&self, between: u64) -> f64 {
        let clocks = self.burst_bytes / self.clock_bytes + between;
        (self.burst_bytes * 8) as f64 / (clocks as f64 / self.mhz) / 1e3
    }
}

/// The IOMMU's entries.
#[derive(Clone, Debug, Default)]
pub struct Iommu {
    /// The page that each entry in use maps.
    taken: Vec<u64>,
}

impl Iommu {
    /// Maps a message of so many bytes, in pages of `page_bytes`. Returns its address on the bus,
    /// or nothing if there are too few entries.
    pub fn map(&mut self, bytes: u64, page_bytes: u64) -> Option<u64> {
        let pages = bytes.div_ceil(page_bytes);
        let first = self.taken.len() as u64;
        if first + pages > SBUS.entries as u64 {
            return None;
        }
        self.taken.extend(first..first + pages);
        Some(first * page_bytes)
    }

    /// Bytes that its free entries can map, in pages of `page_bytes`.
    pub fn reach(&self, page_bytes: u64) -> u64 {
        (SBUS.entries - self.taken.len()) as u64 * page_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_entries_are_a_megabyte_of_large_pages() {
        let mut iommu = Iommu::default();
        assert_eq!(iommu.map((1 << 20) + 1, 64 << 10), None);
        assert_eq!(iommu.map(3 << 16, 64 << 10), Some(0));
        assert_eq!(iommu.map(1, 64 << 10), Some(3 << 16));
        assert_eq!(iommu.reach(64 << 10), 12 << 16);
        assert_eq!(Iommu::default().reach(8 << 10), 128 << 10);
    }

    #[test]
    fn eight_clocks_of_thirteen_carry_data() {
        assert!((SBUS.peak_gbits() - 1.6).abs() < 1e-12);
        assert!((SBUS.gbits(5) - 1.6 * 8.0 / 13.0).abs() < 1e-12);
    }
}
