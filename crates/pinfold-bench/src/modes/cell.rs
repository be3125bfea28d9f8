//! The cells that are measured, and the contestants that take turns in each. No I/O.

use std::{fmt, ops::Range};

use crate::datagram::{BYTES_MAX, PIECES_MAX, Way};
use pinfold::route::{Outgoing, SendMemory, SendMode, SentFrom};

use crate::units;

/// Bytes of messages: frames of Bhikshesvaran's tables 5.1 to 5.6, then longer ones.
pub(super) const SIZES: [usize; 13] =
    [136, 336, 536, 936, 1536, 2136, 3136, 3936, 8000, 16_000, 32_000, 48_000, 63_000];
pub(super) const QUICK_SIZES: [usize; 5] = [136, 1536, 3936, 16_000, 63_000];

/// The start of a message that is not aligned: so far behind the start of a page.
const START: usize = 1000;
/// Bytes between two pieces.
const GAP: usize = 64;
const PAGE: usize = 4096;

/// Bytes that any message takes with what is before it and between its pieces.
pub(super) const AREA_BYTES: usize = START + BYTES_MAX + GAP * PIECES_MAX;

/// A message, and its place before it is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) bytes: usize,
    pub(super) pieces: usize,
    pub(super) from: SentFrom,
}

impl Cell {
    /// The places of the pieces: in a row, with gaps between them. `placed` from the start of a
    /// page on.
    pub(super) fn pieces(&self, placed: bool) -> Vec<Range<usize>> {
        let start = if placed { 0 } else { START };
        let end = |n: usize| self.bytes * n / self.pieces;
        let piece = |n: usize| start + end(n) + GAP * n..start + end(n + 1) + GAP * n;
        (0..self.pieces).map(piece).collect()
    }

    /// The same for the picker.
    pub(super) fn outgoing(&self, memory: SendMemory) -> Outgoing {
        let pages = |piece: Range<usize>| (piece.end - 1) / PAGE - piece.start / PAGE + 1;
        let pieces = self.pieces(memory == SendMemory::Placed);
        let pages = pieces.into_iter().map(pages).sum();
        let Cell { bytes, pieces, from } = *self;
        Outgoing { bytes, pieces, pages, from, memory }
    }

    /// Bytes from the first one on to the last, wherever it is placed.
    pub(super) fn span(&self) -> usize {
        self.pieces(false).last().map_or(0, |last| last.end)
    }

    pub(super) fn source(&self) -> &'static str {
        match self.from {
            SentFrom::Cache => "cache",
            SentFrom::Memory => "memory",
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} piece(s), from {}", units::bytes(self.bytes), self.pieces, self.source())
    }
}

/// A contestant that takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contestant {
    Mode(SendMode),
    /// The mode that is expected to be the cheapest, of memory that is placed where it suits.
    Automatic,
    /// The same of memory that is not registered.
    Unregistered,
}

impl Contestant {
    pub(super) const ALL: [Contestant; 7] = [
        Contestant::Mode(SendMode::Plain),
        Contestant::Mode(SendMode::TwoCopy),
        Contestant::Mode(SendMode::PerSend),
        Contestant::Mode(SendMode::Cached),
        Contestant::Mode(SendMode::Aligned),
        Contestant::Automatic,
        Contestant::Unregistered,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Contestant::Mode(mode) => mode.name(),
            Contestant::Automatic => "automatic",
            Contestant::Unregistered => "automatic-unregistered",
        }
    }

    /// The kind of memory that a choosing contestant may choose from.
    pub(super) fn memory(self) -> Option<SendMemory> {
        match self {
            Contestant::Mode(_) => None,
            Contestant::Automatic => Some(SendMemory::Placed),
            Contestant::Unregistered => Some(SendMemory::Unregistered),
        }
    }

    /// Returns whether `mode` is one that it is compared with when the best is looked for.
    pub(super) fn is_measured_against(self, mode: SendMode) -> bool {
        match self {
            Contestant::Unregistered => mode.copies() || mode == SendMode::PerSend,
            Contestant::Mode(_) | Contestant::Automatic => true,
        }
    }
}

/// The request to the kernel.
pub(super) fn way(mode: SendMode) -> Way {
    match mode {
        SendMode::Plain => Way::Call,
        SendMode::TwoCopy => Way::Copied,
        SendMode::PerSend => Way::Pinned,
        SendMode::Cached | SendMode::Aligned => Way::Registered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_all_bytes_and_gaps() {
        for bytes in [8, 136, 63_000, BYTES_MAX] {
            for count in 1..=PIECES_MAX {
                let cell = Cell { bytes, pieces: count, from: SentFrom::Cache };
                for (placed, start) in [(false, START), (true, 0)] {
                    let pieces = cell.pieces(placed);
                    assert_eq!((pieces.len(), pieces[0].start), (count, start));
                    assert_eq!(pieces.iter().map(Range::len).sum::<usize>(), bytes);
                    assert!(pieces.iter().all(|piece| !piece.is_empty()));
                    assert!(pieces.windows(2).all(|two| two[0].end + GAP == two[1].start));
                    assert!(pieces[count - 1].end <= cell.span());
                }
                assert!(cell.span() <= AREA_BYTES);
            }
        }
    }

    #[test]
    fn pages_are_those_that_have_a_byte() {
        let pages = |bytes, pieces, memory| {
            Cell { bytes, pieces, from: SentFrom::Cache }.outgoing(memory).pages
        };
        assert_eq!(pages(4096, 1, SendMemory::Placed), 1);
        assert_eq!(pages(4097, 1, SendMemory::Placed), 2);
        assert_eq!(pages(4096, 1, SendMemory::Registered), 2);
        assert_eq!(pages(4096 - START, 1, SendMemory::Registered), 1);
        assert_eq!(pages(63_000, 1, SendMemory::Registered), 16);
        // Two pieces that share a page count it twice.
        assert_eq!(pages(100, 2, SendMemory::Placed), 2);
        assert!(pages(63_000, 4, SendMemory::Placed) > 17);
    }
}
