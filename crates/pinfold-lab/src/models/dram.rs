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
    /// End of written data to a read command (tWTR).
    pub write_to_read: u64,
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
    row_bytes: 16 << 10,
    read: 3,
    write: 1,
    activate: 3,
    precharge: 3,
    open: 8,
    recover: 3,
    write_to_read: 2,
    read_to_write: 1,
};

/// Two channels of PC2700 (JESD79, DDR333: CL 2.5 taken for 3, tRCD and tRP 18 ns, tRAS 42 ns, tWR
/// 15 ns, tWTR 1 clock).
pub const DDR333: Dram =
    Dram { name: "DDR333, two channels", mhz: 166.7, open: 7, write_to_read: 1, ..DDR400 };

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

/// A controller that keeps rows open, and opens a row as soon as its bank allows: it knows the
/// requests before their turn.
#[derive(Clone, Debug)]
pub struct Controller {
    with: Dram,
    banks: Vec<Bank>,
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
        Controller { with, banks, end: 0, wrote: false, activations: 0 }
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
        let with = self.with;
        let row = address / with.row_bytes;
        let bank = &mut self.banks[(row % with.banks) as usize];
        if bank.row != Some(row) {
            let closed = if bank.row.is_some() { bank.closable + with.precharge } else { 0 };
            bank.row = Some(row);
            bank.ready = closed + with.activate;
            bank.closable = closed + with.open;
            self.activations += 1;
        }
        let latency = if writes { with.write } else { with.read };
        let from = match (self.wrote, writes) {
            (true, false) => self.end + with.write_to_read + latency,
            (false, true) if self.end > 0 => self.end + with.read_to_write,
            _ => self.end,
        };
        let data = from.max(bank.ready + latency);
        self.end = data + with.burst / 2;
        self.wrote = writes;
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
    fn a_copy_of_two_buffers_is_two_turns() {
        let mut dram = Controller::new(DDR400);
        dram.copy(0, DDR400.row_bytes, 2048, 1024);
        // 6 for the first row; 32 clocks of data four times; 1, 5, 1 to turn around.
        assert_eq!(dram.end(), 6 + 4 * 32 + 1 + 5 + 1);
        assert!((dram.used(4096) - 128.0 / 141.0).abs() < 1e-9);
    }
}
