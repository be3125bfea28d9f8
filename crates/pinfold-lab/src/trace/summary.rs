//! Totals of a trace: calls, bytes, buffers, by process, kind of object and call.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::Event;

/// Buffers that are told apart in each row; of more, the row says so.
pub const BUFFERS_MAX: usize = 1 << 20;

/// A process's calls of one sort on one kind of object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The process.
    pub pid: u32,
    /// The program's name.
    pub process: String,
    /// The kind of object.
    pub kind: &'static str,
    /// The call.
    pub call: &'static str,
    /// Calls, those that failed among them.
    pub calls: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Bytes that were moved.
    pub bytes: u64,
    /// Addresses of buffers, each counted once.
    pub buffers: u64,
    /// Segments whose buffer was used before in the row.
    pub reused: u64,
    /// There were more buffers than are told apart.
    pub is_at_least: bool,
}

#[derive(Default)]
struct Counts {
    calls: u64,
    failed: u64,
    bytes: u64,
    reused: u64,
    buffers: HashSet<u64>,
    is_full: bool,
}

/// Totals of a trace, event by event. Memory: the buffers, at most [`BUFFERS_MAX`] a row.
#[derive(Default)]
pub struct Summary {
    rows: BTreeMap<(u32, String, super::Kind, super::Call), Counts>,
    /// Events.
    pub events: u64,
    /// The moment of the last event, ns.
    pub last_ns: u64,
}

impl Summary {
    /// Adds an event.
    pub fn add(&mut self, event: &Event) {
        self.events += 1;
        self.last_ns = self.last_ns.max(event.at_ns);
        let thread = &event.thread;
        let key = (thread.pid, thread.name.clone(), event.object.kind, event.call);
        let counts = self.rows.entry(key).or_default();
        counts.calls += 1;
        counts.failed += u64::from(event.result < 0);
        counts.bytes = counts.bytes.saturating_add(event.moved());
        for segment in event.used() {
            if counts.buffers.contains(&segment.address) {
                counts.reused += 1;
            } else if counts.buffers.len() < BUFFERS_MAX {
                counts.buffers.insert(segment.address);
            } else {
                counts.is_full = true;
            }
        }
    }

    /// The rows, by process, kind and call.
    pub fn rows(&self) -> Vec<Row> {
        let row = |((pid, process, kind, call), counts): (&(u32, String, _, _), &Counts)| Row {
            pid: *pid,
            process: process.clone(),
            kind: super::Kind::word(*kind),
            call: super::Call::word(*call),
            calls: counts.calls,
            failed: counts.failed,
            bytes: counts.bytes,
            buffers: counts.buffers.len() as u64,
            reused: counts.reused,
            is_at_least: counts.is_full,
        };
        self.rows.iter().map(row).collect()
    }
}
