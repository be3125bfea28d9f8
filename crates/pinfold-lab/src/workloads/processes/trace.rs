//! The transfers of processes as a trace.

use std::{collections::HashMap, io::Write, sync::Arc};

use super::{Job, Made, Ran};
use crate::{
    trace::{Call, Event, Segment, Thread, TraceError, translations::endpoint, write::Writer},
    workloads::Kind,
};

/// Writes the transfers of all ranks, in the order in which they were begun. An event is a
/// transfer: its object the peer's rank, its segment the rank's own memory; a message has none.
/// Returns how many there are.
///
/// # Errors
/// [`TraceError::Write`].
pub fn write(job: &Job, ran: &Ran, out: impl Write) -> Result<u64, TraceError> {
    let mut all: Vec<(u32, &Made)> =
        ran.ranks.iter().flat_map(|rank| rank.made.iter().map(|it| (rank.pid, it))).collect();
    all.sort_by_key(|it| it.1.at_ns);
    let began = all.first().map_or(0, |it| it.1.at_ns);
    let thread = |pid: u32| Thread { pid, tid: pid, name: job.workload.name().into() };
    let threads: HashMap<u32, Arc<Thread>> =
        ran.ranks.iter().map(|rank| (rank.pid, Arc::new(thread(rank.pid)))).collect();
    let peers: Vec<_> = (0..ran.ranks.len() as u64).map(endpoint).collect();
    let mut writer = Writer::new(out)?;
    for (pid, made) in all {
        let transfer = made.transfer;
        let segment = Segment { address: made.address, bytes: transfer.bytes.into() };
        let (call, segments) = match transfer.kind {
            Kind::Store => (Call::Message, Vec::new()),
            Kind::Put => (Call::Put, vec![segment]),
            Kind::Get => (Call::Get, vec![segment]),
        };
        writer.event(&Event {
            at_ns: made.at_ns - began,
            thread: Arc::clone(&threads[&pid]),
            call,
            fd: -1,
            object: Arc::clone(&peers[transfer.peer as usize]),
            segments,
            result: transfer.bytes.into(),
        })?;
    }
    writer.finish().map(|(_, events)| events)
}
