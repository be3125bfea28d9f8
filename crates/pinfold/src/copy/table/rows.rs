//! A table for people and programs to read: row by row, sizes with the same algorithm together.

use std::fmt::{self, Write as _};

use pinfold_sys::cpu::block::Algorithm;

use super::{Operation, Placement, Situation, Table, class_bytes};
use crate::copy::{CacheState, Reader};

/// The entries of a table for one situation, by size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The situation of the row.
    pub situation: Situation,
    /// The sizes, bytes, from which on each algorithm is best. The smallest size is first: below
    /// there is no choice. Neighbours differ. Sizes between two powers of two go with the nearer
    /// one.
    pub from: Vec<(usize, Algorithm)>,
}

impl Table {
    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        Situation::all().map(|situation| {
            let mut from: Vec<(usize, Algorithm)> = situation
                .classes()
                .map(|class| (class_bytes(class), self.choice(situation, class).best))
                .collect();
            from.dedup_by_key(|(_, algorithm)| *algorithm);
            Row { situation, from }
        })
    }
}

/// For people: the entries for both sides known, or neither, and blocks that lie plainly, dirty or
/// not. [`Table::rows`] has the rest.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for operation in Operation::ALL {
            let mut readers = Reader::ALL.to_vec();
            while let Some(&first) = readers.first() {
                // Readers with the same entries share their rows.
                let text = self.rows_for(operation, first);
                let (same, others) =
                    readers.into_iter().partition(|it| self.rows_for(operation, *it) == text);
                readers = others;
                let same: Vec<Reader> = same;
                let names: Vec<&str> = same.into_iter().map(reader).collect();
                let what = match operation {
                    Operation::Copy => "copied",
                    Operation::Zero => "zeroed",
                };
                writeln!(f, "{what}, then read by {}", names.join(" or "))?;
                f.write_str(&text)?;
            }
        }
        Ok(())
    }
}

impl Table {
    fn rows_for(&self, operation: Operation, reader: Reader) -> String {
        let is_unknown = |state| state == CacheState::Unknown;
        let is_shown = |it: Situation| match (it.operation, it.destination) {
            (_, CacheState::Dirty | CacheState::Clean) => false,
            (Operation::Copy, _) => is_unknown(it.source) == is_unknown(it.destination),
            (Operation::Zero, _) => true,
        };
        let mut text = String::new();
        for Row { situation, from } in self.rows() {
            let is_its = situation.operation == operation && situation.reader == reader;
            if !is_its || situation.placement != Placement::Plain || !is_shown(situation) {
                continue;
            }
            let to = state(situation.destination);
            let head = match operation {
                Operation::Copy => format!("{} to {to}", state(situation.source)),
                Operation::Zero => to.to_owned(),
            };
            // Writing to a string does not fail.
            let _ = write!(text, "  {head:22}");
            for (at, (from, algorithm)) in from.iter().enumerate() {
                let _ = match at {
                    0 => write!(text, "{algorithm}"),
                    _ => write!(text, ", from {} {algorithm}", Size(*from)),
                };
            }
            text.push('\n');
        }
        text
    }
}

/// As for people: 6,000 numbers are of no use to a reader.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn reader(reader: Reader) -> &'static str {
    match reader {
        Reader::Me => "this core",
        Reader::OtherCore => "another core",
        Reader::NearCore => "a near core",
        Reader::FarCore => "a far core",
        Reader::Device => "a device",
        Reader::Nobody => "nobody soon",
    }
}

fn state(state: CacheState) -> &'static str {
    match state {
        CacheState::Unknown => "unknown",
        CacheState::Cached => "cached",
        CacheState::Dirty => "dirty",
        CacheState::Clean => "clean",
        CacheState::Uncached => "uncached",
    }
}

/// A power of two, for people.
struct Size(usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 20 => write!(f, "{} MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 => write!(f, "{} KiB", bytes >> 10),
            bytes => write!(f, "{bytes} B"),
        }
    }
}
