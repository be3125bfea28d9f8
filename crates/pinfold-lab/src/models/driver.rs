//! The four drivers of the thesis on a Pentium Pro of 180 MHz: the host's time for a frame.
//!
//! A frame costs a call, the writing of a descriptor and an interrupt, whatever the driver. The
//! two-copy driver copies its bytes. SCDA locks and unlocks its pages. SCDB looks its address up in
//! a map of what was locked before; SCDC always sends from the same place.

use super::ape25::frames_of;

/// The processor's clock, MHz (section 3).
pub const CLOCK_MHZ: f64 = 180.0;
/// A page, bytes (section 4.1.1).
pub const PAGE_BYTES: u64 = 4096;
/// Looking an address up in a map of one entry: an estimate from the text of section 4.1.2, some 50
/// instructions, one a clock. Neither stated nor fitted.
pub const LOOK_UP_US: f64 = 50.0 / CLOCK_MHZ;

/// A driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Copies each frame into a buffer of the kernel's.
    TwoCopy,
    /// Locks and unlocks each frame.
    Scda,
    /// Frames lie in a buffer that was locked before.
    Scdb,
    /// The same, always at the beginning of a page.
    Scdc,
}

impl Driver {
    /// All drivers.
    pub const ALL: [Driver; 4] = [Driver::TwoCopy, Driver::Scda, Driver::Scdb, Driver::Scdc];

    /// The thesis's name.
    pub fn name(self) -> &'static str {
        match self {
            Driver::TwoCopy => "two-copy",
            Driver::Scda => "SCDA",
            Driver::Scdb => "SCDB",
            Driver::Scdc => "SCDC",
        }
    }

    /// Returns whether frames lie where the application has them, one behind the other, so that
    /// some are in two pages.
    pub fn is_scattered(self) -> bool {
        matches!(self, Driver::Scda | Driver::Scdb)
    }
}

/// The frame sizes of the cells of Table 5.1 that costs are fitted to. The first and the last size
/// are left out: at 136 bytes SCDA alone is twice as far from the next size as any other driver, at
/// 3,936 the two-copy driver and SCDB jump.
pub const FITTED: [u64; 2] = [336, 3736];
/// The cells of the two-copy driver at these sizes, s.
const TWO_COPY_S: [f64; 2] = [3.40, 0.53];
/// The cells of SCDA, s.
const SCDA_S: [f64; 2] = [6.88, 0.76];

/// The host's costs, µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// A frame's call, descriptor and interrupt.
    pub frame_us: f64,
    /// Copying a byte.
    pub byte_us: f64,
    /// Locking and unlocking, whatever the length.
    pub lock_us: f64,
    /// Locking and unlocking each page.
    pub page_us: f64,
}

impl Costs {
    /// Fitted to four cells of Table 5.1: the two-copy driver and SCDA at [`FITTED`].
    pub fn fitted() -> Costs {
        let each = |all: [f64; 2]| [0, 1].map(|at: usize| all[at] * 1e6 / frames_of(FITTED[at]));
        let [short, long] = each(TWO_COPY_S);
        let byte_us = (long - short) / (FITTED[1] - FITTED[0]) as f64;
        let frame_us = short - byte_us * FITTED[0] as f64;
        let [short, long] = each(SCDA_S).map(|us| us - frame_us);
        let [few, many] = FITTED.map(pages);
        let page_us = (long - short) / (many - few);
        Costs { frame_us, byte_us, lock_us: short - page_us * few, page_us }
    }

    /// Copying so many bytes, µs.
    pub fn copy_us(&self, bytes: u64) -> f64 {
        self.byte_us * bytes as f64
    }

    /// Locking and unlocking so many bytes, µs.
    pub fn lock_and_unlock_us(&self, bytes: u64) -> f64 {
        self.lock_us + self.page_us * pages(bytes)
    }

    /// The host's time for a frame, µs.
    pub fn host_us(&self, driver: Driver, bytes: u64) -> f64 {
        self.frame_us
            + match driver {
                Driver::TwoCopy => self.copy_us(bytes),
                Driver::Scda => self.lock_and_unlock_us(bytes),
                Driver::Scdb => LOOK_UP_US,
                Driver::Scdc => 0.0,
            }
    }
}

/// The pages that a frame lies in, on average over all places that it can begin at.
pub fn pages(bytes: u64) -> f64 {
    1.0 + (bytes.max(1) - 1) as f64 / PAGE_BYTES as f64
}

/// The pages of the frame of a row, the first of which begins with a page.
pub fn pages_of(frame: u64, bytes: u64) -> u64 {
    let start = frame * bytes;
    (start + bytes.max(1) - 1) / PAGE_BYTES - start / PAGE_BYTES + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitted_cells_come_out() {
        let costs = Costs::fitted();
        for at in 0..2 {
            let seconds = |driver| costs.host_us(driver, FITTED[at]) * frames_of(FITTED[at]) / 1e6;
            assert!((seconds(Driver::TwoCopy) - TWO_COPY_S[at]).abs() < 1e-9);
            assert!((seconds(Driver::Scda) - SCDA_S[at]).abs() < 1e-9);
        }
        // By hand: 3.40 s / 148,809.5 frames = 22.848 µs, 0.53 s / 13,383.3 = 39.602 µs.
        assert!((costs.byte_us - (39.6016 - 22.848) / 3400.0).abs() < 1e-6, "{costs:?}");
    }

    #[test]
    fn pages_of_frames() {
        assert_eq!([1, 4096, 4097].map(|bytes| pages_of(0, bytes)), [1, 1, 2]);
        // The second frame of 3,936 bytes begins 160 bytes before a page's end.
        assert_eq!([0, 1, 2].map(|frame| pages_of(frame, 3936)), [1, 2, 2]);
        assert_eq!(pages(1), 1.0);
        let mean = (0..4096).map(|frame| pages_of(frame, 3936) as f64).sum::<f64>() / 4096.0;
        assert!((mean - pages(3936)).abs() < 0.01, "{mean}");
    }
}
