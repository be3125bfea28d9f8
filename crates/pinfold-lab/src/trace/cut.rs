//! Parts of a trace: by time, process, call and kind of object.

use super::{Call, Event, Kind};

/// A choice among events; empty lists and `None` choose all.
#[derive(Clone, Debug, Default)]
pub struct Cut {
    /// The first moment, ns.
    pub from_ns: Option<u64>,
    /// The moment that is too late, ns.
    pub until_ns: Option<u64>,
    /// Processes by their numbers or programs' names.
    pub processes: Vec<String>,
    /// Calls.
    pub calls: Vec<Call>,
    /// Kinds of objects.
    pub kinds: Vec<Kind>,
}

impl Cut {
    /// Returns whether an event is chosen.
    pub fn takes(&self, event: &Event) -> bool {
        let is_process = |word: &String| {
            *word == event.thread.name || word.parse().is_ok_and(|pid: u32| pid == event.thread.pid)
        };
        self.from_ns.is_none_or(|from| event.at_ns >= from)
            && self.until_ns.is_none_or(|until| event.at_ns < until)
            && (self.processes.is_empty() || self.processes.iter().any(is_process))
            && (self.calls.is_empty() || self.calls.contains(&event.call))
            && (self.kinds.is_empty() || self.kinds.contains(&event.object.kind))
    }
}
