//! A copy engine of today: it is asked for each copy, translates page by page, and asks the
//! processors' caches for each line before memory may have it.

use super::{
    dram::{DDR5_4800, Dram},
    engine::Engine,
};

/// Sub-channels of a module of DDR5.
pub const CHANNELS: u64 = 2;
/// The engine's buffer, bytes: what `bmo-engine` finds to be enough on this memory.
pub const BUFFER: u64 = 16 << 10;

/// The parameters of the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct With {
    /// From a copy that is wanted to its first access, ns.
    pub submission_ns: f64,
    /// True if the next copy is queued before the last has ended: then its submission is hidden.
    pub is_queued: bool,
    /// Bytes of a page; behind its end memory goes on in any other frame. A power of two.
    pub page_bytes: u64,
    /// Finding the frames of a page of source and of destination, ns.
    pub translation_ns: f64,
    /// True if the next pages are translated while the last ones are copied.
    pub is_ahead: bool,
    /// The caches' answer for a line, ns; 0: they are not asked.
    pub snoop_ns: f64,
    /// Lines that may be asked for at a time.
    pub snoops: usize,
    /// Lines of the source, of 100, that a cache has written: it hands them out itself.
    pub dirty: u64,
}

/// An engine that nothing slows down but memory.
pub const FREE: With = With {
    submission_ns: 0.0,
    is_queued: true,
    page_bytes: 2 << 20,
    translation_ns: 0.0,
    is_ahead: false,
    snoop_ns: 0.0,
    snoops: 1,
    dirty: 0,
};

/// The engine, over a module of DDR5.
#[derive(Clone, Debug)]
pub struct Present {
    engine: Engine,
    with: With,
    /// The clocks at which the questions to the caches that are under way are answered.
    asked: Vec<u64>,
    /// The question's place among them.
    next: usize,
    /// Lines of sources so far.
    lines: u64,
    /// The clock at which the last copy ended.
    end: u64,
}

impl Present {
    /// One that has done nothing yet.
    pub fn new(with: With) -> Present {
        let engine = Engine::new(DDR5_4800, CHANNELS, 0.0);
        let asked = vec![0; with.snoops.max(1)];
        Present { engine, with, asked, next: 0, lines: 0, end: 0 }
    }

    /// The memory.
    pub fn memory() -> Dram {
        DDR5_4800
    }

    /// The clock of the memory at which the last copy ended, as a time, ns.
    pub fn end_ns(&self) -> f64 {
        self.engine.ns(self.end)
    }

    /// The clock at which the caches have answered for a line that is asked for at `from` or later.
    fn answered(&mut self, from: u64) -> u64 {
        if self.with.snoop_ns == 0.0 {
            return from;
        }
        let place = self.next;
        self.next = (place + 1) % self.asked.len();
        let answer = from.max(self.asked[place]) + self.engine.clocks(self.with.snoop_ns);
        self.asked[place] = answer;
        answer
    }

    /// Copies a block, a multiple of a line, page by page: `frame` says where the page of source
    /// (0) and of destination (1) with this number lies. Both begin with a page.
    pub fn copy(&mut self, block: u64, mut frame: impl FnMut(usize, u64) -> u64) {
        let with = self.with;
        let mut start = match with.is_queued {
            true => self.end,
            false => self.end + self.engine.clocks(with.submission_ns),
        };
        for page in 0..block.div_ceil(with.page_bytes) {
            let bytes = with.page_bytes.min(block - page * with.page_bytes);
            if page == 0 || !with.is_ahead {
                start += self.engine.clocks(with.translation_ns);
            }
            self.page([frame(0, page), frame(1, page)], bytes, start);
            // Without a translation in between, the next page's first lines need not wait.
            if !with.is_ahead && with.translation_ns > 0.0 {
                start = start.max(self.end);
            }
        }
    }

    /// Copies within a page, through the buffer.
    fn page(&mut self, places: [u64; 2], bytes: u64, start: u64) {
        let step = DDR5_4800.burst_bytes();
        for at in (0..bytes).step_by(BUFFER as usize) {
            let end = bytes.min(at + BUFFER);
            for (place, writes) in places.into_iter().zip([false, true]) {
                for offset in (at..end).step_by(step as usize) {
                    let ready = self.answered(start);
                    let is_handed_out = !writes && self.is_dirty();
                    self.end = self.end.max(match is_handed_out {
                        true => ready,
                        false => self.engine.line(place + offset, writes, ready),
                    });
                }
            }
        }
    }

    /// Returns whether the source's next line is dirty: spread over all channels.
    fn is_dirty(&mut self) -> bool {
        self.lines += 1;
        let spread = self.lines.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        spread % 100 < self.with.dirty
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Source and destination in rows of their own.
    fn frame(side: usize, page: u64) -> u64 {
        (2 * page + side as u64) << 22 | (side as u64) << 17
    }

    fn clocks(with: With, block: u64) -> u64 {
        let mut engine = Present::new(with);
        engine.copy(block, frame);
        engine.end
    }

    #[test]
    fn submission_translation_and_snoop_add_up_for_a_line() {
        // 87 clocks for the read, 2 of rest, 8 of data: the row of the destination is open by then.
        assert_eq!(clocks(FREE, 64), 97);
        let with = With { submission_ns: 100.0, is_queued: false, ..FREE };
        assert_eq!(clocks(with, 64), 240 + 97);
        assert_eq!(clocks(With { translation_ns: 100.0, ..with }, 64), 480 + 97);
        // Source and destination ask at once if they may: else one waits for the other.
        assert_eq!(clocks(With { snoop_ns: 100.0, snoops: 2, ..FREE }, 64), 240 + 97);
        let one = clocks(With { snoop_ns: 100.0, snoops: 1, ..FREE }, 64);
        // The write is ready at 480, opens its row and has its data: 39 + 38 + 8.
        assert_eq!(one, 480 + 39 + 38 + 8);
    }

    #[test]
    fn a_page_that_is_translated_ahead_waits_for_nothing() {
        let pages = |with: With| clocks(With { page_bytes: 4096, ..with }, 4 * 4096);
        let with = With { translation_ns: 1000.0, ..FREE };
        let waits = pages(with) - pages(FREE);
        assert!(waits >= 4 * 2400, "{waits}");
        assert_eq!(pages(With { is_ahead: true, ..with }), 2400 + pages(FREE));
    }

    #[test]
    fn dirty_lines_are_not_read_from_memory() {
        let half = clocks(With { dirty: 50, ..FREE }, 64 << 10);
        let all = clocks(With { dirty: 100, ..FREE }, 64 << 10);
        let none = clocks(FREE, 64 << 10);
        assert!(all < half && half < none, "{all} {half} {none}");
    }

    proptest! {
        /// An engine that nothing slows down is the engine of `bmo-engine`, with its copies queued.
        #[test]
        fn a_free_engine_is_the_plain_one(blocks in prop::collection::vec(1u64..600, 1..6)) {
            let mut plain = Engine::new(DDR5_4800, CHANNELS, 0.0);
            let mut present = Present::new(FREE);
            for (at, lines) in blocks.into_iter().enumerate() {
                let place = |side: usize| frame(side, at as u64);
                // A queued copy may begin when the last has ended, here as there.
                let from = present.end;
                present.copy(lines * 64, |side, _| place(side));
                for start in (0..lines * 64).step_by(BUFFER as usize) {
                    let end = (lines * 64).min(start + BUFFER);
                    for side in [0, 1] {
                        for offset in (start..end).step_by(64) {
                            plain.line(place(side) + offset, side == 1, from);
                        }
                    }
                }
                prop_assert_eq!(present.end, plain.end());
            }
        }

        /// No limit ever makes a copy faster.
        #[test]
        fn limits_never_help(
            lines in 1u64..600, translation in 0u32..500, snoop in 1u32..200, snoops in 1usize..64,
        ) {
            let free = With { page_bytes: 4096, ..FREE };
            let (translation_ns, snoop_ns) = (translation.into(), snoop.into());
            let slow = With { translation_ns, snoop_ns, snoops, ..free };
            prop_assert!(clocks(slow, lines * 64) >= clocks(free, lines * 64));
        }
    }
}
