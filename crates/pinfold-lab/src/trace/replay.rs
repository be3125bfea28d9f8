//! Replays of recorded traces: references to pages, buffers, copied blocks.
//!
//! The recordings are in `traces/`, made by `record.sh` there from real programs; a replay is the
//! same each time.

use std::collections::HashMap;

use super::{Event, Kind, TraceError, Way, read::Reader};
use crate::workloads::references::{self, BUFFERS, PAGE_BYTES, Reference};

/// A recording.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// Its name.
    pub name: &'static str,
    bytes: &'static [u8],
}

macro_rules! recording {
    ($name:literal, $file:literal) => {
        Recording { name: $name, bytes: include_bytes!(concat!("../../traces/", $file, ".trace")) }
    };
}

/// Sixteen sessions of sockets at once, a process at each end: typing, drawing, FTP, HTTP.
pub const SESSIONS: Recording = recording!("sockets, recorded", "sessions");
/// A compiler and its passes.
pub const COMPILE: Recording = recording!("compile", "compile");
/// A mail spool in the manner of PostMark.
pub const SPOOL: Recording = recording!("mail spool", "spool");
/// A pipe.
pub const PIPE: Recording = recording!("pipe", "pipe");
/// A bulk sender and its receiver.
pub const BULK: Recording = recording!("bulk sender", "bulk");
/// A chat server and its clients.
pub const CHAT: Recording = recording!("chat", "chat");

/// An endpoint's own translations: messages over TCP from kept memory.
pub const SENDS: Recording = recording!("an endpoint's sends", "sends");

impl Recording {
    /// Its events, one by one.
    ///
    /// # Errors
    /// Those of [`Reader`]: the file is damaged.
    pub fn events(&self) -> Result<Reader<&'static [u8]>, TraceError> {
        Reader::new(self.bytes)
    }
}

/// Processes, numbered in their order.
#[derive(Default)]
pub(super) struct Processes(HashMap<u32, u32>);

impl Processes {
    pub(super) fn number(&mut self, event: &Event) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(event.thread.pid).or_insert(next)
    }
}

/// The references of an interface of U-Net's (section 6.2) that has all of a recording's sockets,
/// with their processes: bytes that come go to a process's next receive buffers, bytes that leave
/// are in the pages of the process's memory where they were. Of a page's number the lowest 31 bits
/// count.
///
/// # Errors
/// As [`Recording::events`].
pub fn references(of: &Recording) -> Result<Vec<(u32, Reference)>, TraceError> {
    let (mut processes, mut next) = (Processes::default(), HashMap::<u32, u32>::new());
    let mut all = Vec::new();
    for event in of.events()? {
        let event = event?;
        if event.object.kind != Kind::Socket || event.moved() == 0 {
            continue;
        }
        let process = processes.number(&event);
        match event.call.way() {
            Way::In => {
                let buffer = next.entry(process).or_default();
                for _ in 0..event.moved().div_ceil(PAGE_BYTES.into()) {
                    let way = references::Way::Receive;
                    all.push((process, Reference { way, page: *buffer }));
                    *buffer = (*buffer + 1) % BUFFERS;
                }
            }
            _ => {
                let way = references::Way::Transmit;
                let pages = pages(&event, PAGE_BYTES.into());
                let page = |number: u64| (number & 0x7FFF_FFFF) as u32;
                all.extend(pages.map(|number| (process, Reference { way, page: page(number) })));
            }
        }
    }
    Ok(all)
}

/// The numbers of the pieces of memory, of so many bytes each, that an event moved bytes to or
/// from.
fn pages(event: &Event, bytes: u64) -> impl Iterator<Item = u64> + '_ {
    let of = move |it: super::Segment| {
        let end = it.address.saturating_add(it.bytes - 1);
        it.address / bytes..=end / bytes
    };
    event.used().flat_map(of)
}

/// The buffers of a recording, one for each transfer and each piece of so many bytes of a process's
/// memory that it touches; numbered in their order.
///
/// # Errors
/// As [`Recording::events`].
pub fn buffers(of: &Recording, bytes: u64) -> Result<Vec<u64>, TraceError> {
    let mut known = HashMap::new();
    let mut all = Vec::new();
    for event in of.events()? {
        let event = event?;
        for piece in pages(&event, bytes) {
            let next = known.len() as u64;
            all.push(*known.entry((event.thread.pid, piece)).or_insert(next));
        }
    }
    Ok(all)
}

/// A block that a kernel copied: the places of source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Source and destination.
    pub places: [u64; 2],
    /// Bytes.
    pub bytes: u64,
}

/// Bytes of address space that a process or an object has in [`copies`].
const SPACE: u64 = 1 << 48;
/// Bytes of a pipe's pages in turn (`pipe(7)`), and of those of a socket that are taken to be so.
const RING: u64 = 64 << 10;

/// The blocks that the kernel copied for a recording. The program's side is as recorded. The
/// kernel's is not seen: a file has its pages in a row, each thread's call behind the one before; a
/// pipe and a socket have 64 KiB in turn.
///
/// # Errors
/// As [`Recording::events`].
pub fn copies(of: &Recording) -> Result<Vec<Copied>, TraceError> {
    let mut processes = Processes::default();
    let mut objects: HashMap<(u64, u64), u64> = HashMap::new();
    let mut cursors: HashMap<(u64, u32, i32, Way), u64> = HashMap::new();
    let mut all = Vec::new();
    for event in of.events()? {
        let event = event?;
        let process = u64::from(processes.number(&event));
        let next = objects.len() as u64;
        let object = *objects.entry((event.object.device, event.object.inode)).or_insert(next);
        let way = event.call.way();
        let own = match event.object.kind {
            Kind::File => (object, event.thread.tid, event.fd, Way::In),
            _ => (object, 0, 0, way),
        };
        let cursor = cursors.entry(own).or_default();
        for it in event.used() {
            let at = if event.object.kind == Kind::File { *cursor } else { *cursor % RING };
            let kernel = (2 * object + 1) * SPACE + at;
            let program = 2 * process * SPACE + it.address % SPACE;
            *cursor += it.bytes;
            let places = if way == Way::In { [kernel, program] } else { [program, kernel] };
            all.push(Copied { places, bytes: it.bytes });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Recording; 7] = [SESSIONS, COMPILE, SPOOL, PIPE, BULK, CHAT, SENDS];

    #[test]
    fn recordings_are_whole_and_short() {
        for one in ALL {
            let events: Result<Vec<Event>, TraceError> = one.events().unwrap().collect();
            let events = events.unwrap();
            assert!(events.len() > 300, "{}: {}", one.name, events.len());
            assert!(one.bytes.len() < 80 << 10, "{}: {}", one.name, one.bytes.len());
            assert!(events.iter().all(|event| event.object.name.is_empty()), "{}", one.name);
        }
    }

    #[test]
    fn sessions_have_thirty_two_processes_and_their_bytes() {
        let all = references(&SESSIONS).unwrap();
        let processes: std::collections::HashSet<u32> = all.iter().map(|it| it.0).collect();
        assert_eq!(processes.len(), 32);
        let received = all.iter().filter(|it| it.1.way == references::Way::Receive).count();
        assert!(received > 1000 && received < all.len(), "{received} of {}", all.len());
        let bytes = |recording: &Recording| -> u64 {
            let events = recording.events().unwrap().map(Result::unwrap);
            events.filter(|it| !it.segments.is_empty()).map(|it| it.moved()).sum()
        };
        for one in ALL {
            let copied: u64 = copies(&one).unwrap().iter().map(|it| it.bytes).sum();
            assert_eq!(copied, bytes(&one), "{}", one.name);
        }
        assert_eq!(bytes(&BULK), 2 * 400 * 16_384);
    }

    #[test]
    fn buffers_are_numbered_in_their_order() {
        let all = buffers(&BULK, 16 << 10).unwrap();
        assert_eq!(all[0], 0);
        let most = all.iter().max().unwrap();
        // Eight buffers that are sent from and one that is filled, each in two pieces at most.
        assert!((9..=18).contains(&(most + 1)), "{most}");
    }
}
