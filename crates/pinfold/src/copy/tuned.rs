//! The table that was measured on this machine, kept from run to run.
//!
//! It lies in a JSON file below `$XDG_CONFIG_HOME/pinfold`, or `~/.config/pinfold`, named after the
//! processor, the kernel and the library. The other conditions are in the file, and compared.

#[cfg(test)]
mod tests;

use std::{
    io,
    path::{Path, PathBuf},
};

use pinfold_sys::cpu::block::Algorithm;
use serde::{Deserialize, Serialize};

use super::{
    Machine,
    class::Class,
    table::{Choice, Situation, Table},
};
use crate::persisted;

/// Goes up when [`Stored`], the meaning of a cell, or the time of an algorithm changes.
const FORMAT: u32 = 5;

/// No file of ours is longer, bytes.
const FILE_BYTES_MAX: u64 = 32 << 10;

/// A table and the time of its measuring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// The table.
    pub table: Table,
    /// The time of measuring, seconds since 1970.
    pub measured_s: u64,
    /// The distances of the other core.
    pub seen: Seen,
}

/// The numbers of cases in which another core read, by its distance. A virtual machine's cores
/// move; at a distance that was not seen, another choice may be the better one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// It was near.
    pub near: usize,
    /// It was far.
    pub far: usize,
    /// It was neither.
    pub mixed: usize,
}

impl Seen {
    /// The number of cases in which it was so far away.
    pub fn at(&self, apart: Class) -> usize {
        match apart {
            Class::Near => self.near,
            Class::Far => self.far,
            Class::Mixed => self.mixed,
        }
    }

    /// The same, with the distances seen before that it lacks.
    pub(super) fn or(self, before: Seen) -> Seen {
        let or = |now: usize, before: usize| if now > 0 { now } else { before };
        Seen {
            near: or(self.near, before.near),
            far: or(self.far, before.far),
            mixed: or(self.mixed, before.mixed),
        }
    }
}

/// The contents of the file. Each cell of the table is a digit to the base of 36: an index into
/// `algorithms`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    format: u32,
    measured_s: u64,
    seen: Seen,
    machine: Machine,
    algorithms: Vec<String>,
    best: String,
    temporal: String,
    streaming: String,
}

/// The file of this machine's table. `None` if neither `XDG_CONFIG_HOME` nor `HOME` is an absolute
/// path.
pub fn file(machine: &Machine) -> Option<PathBuf> {
    let (version, format) = (env!("CARGO_PKG_VERSION"), FORMAT.to_string());
    let name = persisted::name(["copy", &machine.processor, &machine.kernel, version, &format]);
    Some(persisted::directory("XDG_CONFIG_HOME", ".config")?.join(name))
}

/// Keeps it in `file`, which is replaced at once and whole.
///
/// # Errors
/// The errors of making directories and files.
pub fn store(file: &Path, machine: &Machine, tuned: &Tuned) -> io::Result<()> {
    let digits = |part: fn(Choice) -> Algorithm| {
        let cells = Situation::all().flat_map(|situation| {
            situation.classes().map(move |class| part(tuned.table.choice(situation, class)))
        });
        cells
            .map(|algorithm| DIGITS.get(usize::from(algorithm.id())).map_or('-', |&it| it.into()))
            .collect()
    };
    let stored = Stored {
        format: FORMAT,
        measured_s: tuned.measured_s,
        seen: tuned.seen,
        machine: machine.clone(),
        algorithms: names().collect(),
        best: digits(|choice| choice.best),
        temporal: digits(|choice| choice.temporal),
        streaming: digits(|choice| choice.streaming),
    };
    persisted::store(file, &serde_json::to_vec_pretty(&stored)?)
}

/// Checks that a table can be kept in `file`, as far as can be told beforehand. Makes its
/// directory.
///
/// # Errors
/// The errors of [`store`].
pub fn can_store(file: &Path) -> io::Result<()> {
    persisted::can_store(file)
}

/// The table in `file`, if it is for this `machine` and makes sense.
///
/// # Errors
/// [`NotFound`](io::ErrorKind::NotFound) if nothing is kept, others if it cannot be read or used.
pub fn load(file: &Path, machine: &Machine) -> io::Result<Tuned> {
    let stored: Stored = serde_json::from_str(&persisted::read(file, FILE_BYTES_MAX)?)?;
    if stored.format != FORMAT {
        return Err(io::Error::other(format!("its format is {}, not {FORMAT}", stored.format)));
    }
    if stored.machine != *machine {
        return Err(io::Error::other("it is for another machine"));
    }
    let table = table_of(&stored).ok_or_else(|| io::Error::other("it makes no sense"))?;
    Ok(Tuned { table, measured_s: stored.measured_s, seen: stored.seen })
}

/// A digit for each algorithm, at the place of its number.
const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const _: () = assert!(Algorithm::COUNT <= DIGITS.len());

/// The name of each algorithm at the place of its number.
fn names() -> impl Iterator<Item = String> {
    let ids = 0..Algorithm::COUNT as u8;
    ids.map(|id| Algorithm::from_id(id).map_or(String::new(), |it| it.to_string()))
}

fn table_of(stored: &Stored) -> Option<Table> {
    let algorithms: Vec<Option<Algorithm>> =
        stored.algorithms.iter().map(|name| name.parse().ok()).collect();
    let parts = [&stored.best, &stored.temporal, &stored.streaming];
    let mut parts = parts.map(|digits| {
        digits.bytes().map(|digit| *algorithms.get(DIGITS.iter().position(|it| *it == digit)?)?)
    });
    let mut is_whole = true;
    let mut next = |part: usize| {
        parts[part].next().flatten().unwrap_or_else(|| {
            is_whole = false;
            Algorithm::LIBC
        })
    };
    let table =
        Table::from_fn(|_, _| Choice { best: next(0), temporal: next(1), streaming: next(2) });
    let is_over = parts.iter_mut().all(|part| part.next().is_none());
    table.filter(|_| is_whole && is_over)
}
