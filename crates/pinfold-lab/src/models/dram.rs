//! DRAM by its cycles: banks, rows, activation, and the bus that has to turn around; and the copy
//! engine of a memory controller over it.

/// The timing of a memory, in clocks of its bus unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dram {
    /// Its name.
    pub name: &'static str,
    /// Clock rate, MHz; data go twice a clock.
    pub mhz: f64,
    /// Bytes that go at once.
    pub width: u64,
    /// Transfers of a burst.
    pub burst: u64,
    /// Banks.
    pub banks: u64,
    /// Groups of banks: one burst after the other goes to the next group.
    pub groups: u64,
    /// Bytes of a row, over the whole width.
    pub row_bytes: u64,
    /// Read command to data (CL).
    pub read: u64,
    /// Write command to data.
    pub write: u64,
    /// Activation to command (tRCD).
    pub activate: u64,
    /// Precharge to activation (tRP).
    pub precharge: u64,
    /// Activation to precharge (tRAS).
    pub open: u64,
    /// End of written data to precharge (tWR).
    pub recover: u64,
    /// End of written data to a read command (tWTR, to another group tWTR_S).
    pub write_to_read: u64,
    /// The same within a group (tWTR_L).
    pub write_to_read_same: u64,
    /// Data to data within a group, read and written (tCCD_L, tCCD_L_WR2).
    pub same_group: [u64; 2],
    /// Clocks that the bus rests between data read and data written.
    pub read_to_write: u64,
}

/// Two channels of PC3200 at 3-3-3-8, as the Opteron 250 has (JESD79, DDR400B: CL 3, tRCD and tRP
/// 15 ns, tRAS 40 ns, tWR 15 ns, tWTR 2 clocks; write latency 1).
pub const DDR400: Dram = Dram {
    name: "DDR400, two channels",
    mhz: 200.0,
    width: 16,
    burst: 4,
    banks: 4,
    groups: 1,
    row_bytes: 16 << 10,
    read: 3,
    write: 1,
    activate: 3,
    precharge: 3,
    open: 8,
    recover: 3,
    write_to_read: 2,
    write_to_read_same: 2,
    same_group: [2, 2],
    read_to_write: 1,
};

/// Two channels of PC2700 (JESD79, DDR333: CL 2.5 taken for 3, tRCD and tRP 18 ns, tRAS 42 ns, tWR
/// 15 ns, tWTR 1 clock).
pub const DDR333: Dram = Dram {
    name: "DDR333, two channels",
    mhz: 166.7,
    open: 7,
    write_to_read: 1,
    write_to_read_same: 1,
    ..DDR400
};

/// One of the two sub-channels of a module of DDR5-4800 (JESD79-5, 4800B, chips of 8 bits: CL 40,
/// tRCD and tRP 39, tRAS 32 ns, tWR 30 ns, tWTR 2.5 and 10 ns, tCCD_L 5 ns, tCCD_L_WR2 10 ns; write
/// latency CL - 2; rows of 1 KB a chip; the rest of two clocks is that of a preamble).
pub const DDR5_4800: Dram = Dram {
    name: "DDR5-4800, a sub-channel",
    mhz: 2400.0,
    width: 4,
    burst: 16,
    banks: 32,
    groups: 8,
    row_bytes: 4 << 10,
    read: 40,
    write: 38,
    activate: 39,
    precharge: 39,
    open: 77,
    recover: 72,
    write_to_read: 6,
    write_to_read_same: 24,
    same_group: [12, 24],
    read_to_write: 2,
};

impl Dram {
    /// Bytes of a burst.
    pub fn burst_bytes(&self) -> u64 {
        self.burst * self.width
    }

    /// The most that the bus can carry, 10^6 bytes a second.
    pub fn peak(&self) -> f64 {
        2.0 * self.mhz * self.width as f64
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Bank {
    row: Option<u64>,
    /// Commands for the open row may come from here on.
    ready: u64,
    /// The row may be closed from here on.
    closable: u64,
}

/// The last data of a group of banks.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// The clock at which those read began, and those written.
    began: [Option<u64>; 2],
    /// The clock at which those written ended.
    wrote: Option<u64>,
}

/// A controller that keeps rows open, and opens a row as soon as its bank allows: it knows the
/// requests before their turn.
#[derive(Clone, Debug)]
pub struct Controller {
    with: Dram,
    banks: Vec<Bank>,
    groups: Vec<Group>,
    /// The end of the data that came last.
    end: u64,
    /// True if they were written.
    wrote: bool,
    activations: u64,
}

impl Controller {
    /// One that has not done anything yet.
    pub fn new(with: Dram) -> Controller {
        let banks = vec![Bank::default(); with.banks as usize];
        let groups = vec![Group::default(); with.groups as usize];
        Controller { with, banks, groups, end: 0, wrote: false, activations: 0 }
    }

    /// Rows that were opened.
    pub fn activations(&self) -> u64 {
        self.activations
    }

    /// The clock at which the last data end.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Transfers a burst at an address. Returns the clock at which its data end.
    pub fn burst(&mut self, address: u64, writes: bool) -> u64 {
        self.burst_at(address, writes, 0)
    }

    /// The same for a request that is not known before the clock `from`.
    pub fn burst_at(&mut self, address: u64, writes: bool, from: u64) -> u64 {
        let with = self.with;
        let row = address / (with.row_bytes * with.groups);
        let group = address / with.burst_bytes() % with.groups;
        let bank = row % (with.banks / with.groups) * with.groups + group;
        let bank = &mut self.banks[bank as usize];
        let group = &mut self.groups[group as usize];
        if bank.row != Some(row) {
            let closed = match bank.row {
                Some(_) => bank.closable.max(from) + with.precharge,
                None => from,
            };
            bank.row = Some(row);
            bank.ready = closed + with.activate;
            bank.closable = closed + with.open;
            self.activations += 1;
        }
        let latency = if writes { with.write } else { with.read };
        let free = match (self.wrote, writes) {
            (true, false) => self.end + with.write_to_read + latency,
            (false, true) if self.end > 0 => self.end + with.read_to_write,
            _ => self.end,
        };
        let after = match (group.wrote, writes) {
            (Some(end), false) => end + with.write_to_read_same + latency,
            _ => 0,
        };
        let apart = group.began[usize::from(writes)];
        let apart = apart.map_or(0, |began| began + with.same_group[usize::from(writes)]);
        let data = free.max(bank.ready.max(from) + latency).max(after).max(apart);
        group.began[usize::from(writes)] = Some(data);
        self.end = data + with.burst / 2;
        self.wrote = writes;
        if writes {
            group.wrote = Some(self.end);
        }
        let last = if writes { self.end + with.recover } else { self.end - with.burst / 2 };
        bank.closable = bank.closable.max(last);
        self.end
    }

    /// Copies a block through a buffer. All three are multiples of a burst.
    pub fn copy(&mut self, from: u64, to: u64, block: u64, buffer: u64) {
        let step = self.with.burst_bytes();
        let mut at = 0;
        while at < block {
            let end = block.min(at + buffer.max(step));
            for (start, writes) in [(from, false), (to, true)] {
                for offset in (at..end).step_by(step as usize) {
                    self.burst(start + offset, writes);
                }
            }
            at = end;
        }
    }

    /// The part of the bus's time that carried so many bytes.
    pub fn used(&self, bytes: u64) -> f64 {
        let clocks = bytes as f64 / (2.0 * self.with.width as f64);
        if self.end == 0 { 0.0 } else { clocks / self.end as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_conflict_waits_for_precharge_and_activation() {
        let mut dram = Controller::new(DDR400);
        // Activation 3, latency 3, two clocks of data.
        assert_eq!(dram.burst(0, false), 8);
        assert_eq!(dram.burst(64, false), 10);
        // Another row of the same bank: open until 8 (tRAS), precharge 3, activation 3, latency 3.
        assert_eq!(dram.burst(4 * DDR400.row_bytes, false), 8 + 3 + 3 + 3 + 2);
        // Another bank could be opened long before.
        assert_eq!(dram.burst(DDR400.row_bytes, false), 21);
        assert_eq!(dram.activations(), 3);
    }

    #[test]
    fn a_request_of_later_waits_for_nothing_before() {
        let mut dram = Controller::new(DDR400);
        dram.burst(0, false);
        // The row is open: latency and data.
        assert_eq!(dram.burst_at(64, false, 100), 105);
        // Precharge, activation, latency, data.
        assert_eq!(dram.burst_at(4 * DDR400.row_bytes, false, 200), 200 + 3 + 3 + 3 + 2);
    }

    #[test]
    fn the_bus_turns_around() {
        let mut dram = Controller::new(DDR400);
        dram.burst(0, false);
        // A clock of rest, then two of data.
        assert_eq!(dram.burst(64, true), 8 + 1 + 2);
        // Two clocks until the read command, three until its data.
        assert_eq!(dram.burst(128, false), 11 + 2 + 3 + 2);
    }

    #[test]
    fn a_written_row_is_closed_after_its_recovery() {
        let mut dram = Controller::new(DDR400);
        // Activation 3, latency 1, two of data.
        assert_eq!(dram.burst(0, true), 6);
        // Recovery until 9, precharge, activation, latency.
        assert_eq!(dram.burst(4 * DDR400.row_bytes, true), 9 + 3 + 3 + 1 + 2);
    }

    #[test]
    fn groups_of_banks_take_turns() {
        let mut dram = Controller::new(DDR5_4800);
        // Activation 39, latency 40, eight clocks of data; the next group's follow at once.
        assert_eq!(dram.burst(0, false), 87);
        assert_eq!(dram.burst(64, false), 95);
        assert_eq!(dram.activations(), 2, "a bank of each group");
        // The first group again, 12 clocks after its last data began, at 79; the bus is free at 95.
        assert_eq!(dram.burst(8 * 64, false), 103);
        // Once more: 12 clocks after 95.
        assert_eq!(dram.burst(16 * 64, false), 95 + 12 + 8);
        // Two clocks of rest, and the write; then reads of another group, and of the same one.
        assert_eq!(dram.burst(24 * 64, true), 115 + 2 + 8);
        let mut other = dram.clone();
        assert_eq!(other.burst(64, false), 125 + 6 + 40 + 8);
        assert_eq!(dram.burst(0, false), 125 + 24 + 40 + 8);
    }

    #[test]
    fn a_copy_of_two_buffers_is_two_turns() {
        let mut dram = Controller::new(DDR400);
        dram.copy(0, DDR400.row_bytes, 2048, 1024);
        // 6 for the first row; 32 clocks of data four times; 1, 5, 1 to turn around.
        assert_eq!(dram.end(), 6 + 4 * 32 + 1 + 5 + 1);
        assert!((dram.used(4096) - 128.0 / 141.0).abs() < 1e-9);
    }
}
