//! A table as people and programs read it: row by row, sizes with the same algorithm together.

use std::fmt;

use pinfold_sys::block::Algorithm;

use super::{CLASSES, Operation, Placement, Situation, Table, class_bytes};
use crate::blockmem::{CacheState, Reader};

/// What a table says of one situation, by size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Of which.
    pub situation: Situation,
    /// From which size on, bytes, which algorithm is best. The smallest size is first, and neighbours
    /// differ. Sizes between two powers of two go with the nearer one.
    pub from: Vec<(usize, Algorithm)>,
}

impl Table {
    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        Situation::all().map(|situation| {
            let mut from: Vec<(usize, Algorithm)> = (0..CLASSES)
                .map(|class| (class_bytes(class), self.choice(situation, class).best))
                .collect();
            from.dedup_by_key(|(_, algorithm)| *algorithm);
            Row { situation, from }
        })
    }
}

/// Of each operation and reader the rows, but only those that differ from the row for plain placement.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut title = None;
        for row in self.rows() {
            let situation = row.situation;
            if title.replace((situation.operation, situation.reader))
                != Some((situation.operation, situation.reader))
            {
                let what = match situation.operation {
                    Operation::Copy => "copied",
                    Operation::Zero => "zeroed",
                };
                writeln!(f, "{what}, then read by {}", reader(situation.reader))?;
            }
            let plain = Situation { placement: Placement::Plain, ..situation };
            if situation != plain
                && (0..CLASSES).all(|class| {
                    self.choice(situation, class).best == self.choice(plain, class).best
                })
            {
                continue;
            }
            let to = state(situation.destination);
            let head = match (situation.placement, situation.operation) {
                (Placement::Plain, Operation::Copy) => {
                    format!("{} to {to}", state(situation.source))
                }
                (Placement::Plain, Operation::Zero) => to.to_owned(),
                (Placement::Misaligned, _) => "  misaligned".to_owned(),
                (Placement::Aliased, _) => "  aliased".to_owned(),
            };
            write!(f, "  {head:22}")?;
            for (at, (from, algorithm)) in row.from.iter().enumerate() {
                match at {
                    0 => write!(f, "{algorithm}")?,
                    _ => write!(f, ", from {} {algorithm}", Size(*from))?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// As for people: 7,500 numbers are of no use to anybody.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn reader(reader: Reader) -> &'static str {
    match reader {
        Reader::Me => "this core",
        Reader::OtherCore => "another core",
        Reader::Device => "a device",
        Reader::Nobody => "nobody soon",
    }
}

fn state(state: CacheState) -> &'static str {
    match state {
        CacheState::Unknown => "unknown",
        CacheState::Cached => "cached",
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
