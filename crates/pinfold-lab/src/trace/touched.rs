//! The memory that the transfers of a recording used, once or over and over, and their sites.

use std::collections::HashMap;

use super::{
    Segment, TraceError,
    read::Reader,
    replay::{Processes, Recording},
};

/// The memory of a process that a transfer used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The process, numbered in order.
    pub process: u32,
    /// The address of the first byte.
    pub address: u64,
    /// Bytes, at least one.
    pub bytes: u64,
}

/// The memory that a recording's transfers used, one piece after the other.
///
/// # Errors
/// As [`Recording::events`].
pub fn touched(of: &Recording) -> Result<Vec<Touched>, TraceError> {
    let mut processes = Processes::default();
    let mut all = Vec::new();
    for event in of.events()? {
        let event = event?;
        let process = processes.number(&event);
        let one = |it: Segment| Touched { process, address: it.address, bytes: it.bytes };
        all.extend(event.used().map(one));
    }
    Ok(all)
}

/// The memory that a recording's transfers used, over and over, one piece at a time: it is decoded
/// anew in each round, and takes the memory of a block of it.
pub struct Stream {
    of: Recording,
    events: Reader<&'static [u8]>,
    processes: Processes,
    round: u64,
    /// Pieces of the event that have not been handed out, the next one last.
    left: Vec<Touched>,
}

impl Stream {
    /// One that begins.
    ///
    /// # Errors
    /// As [`Recording::events`].
    pub fn of(of: Recording) -> Result<Stream, TraceError> {
        let events = of.events()?;
        Ok(Stream { of, events, processes: Processes::default(), round: 0, left: Vec::new() })
    }

    /// The next piece, and the round that it is of, from 0 on. A recording that moves no byte has
    /// none, ever, and is not to be asked.
    ///
    /// # Errors
    /// The recording is damaged.
    pub fn next_touched(&mut self) -> Result<(u64, Touched), TraceError> {
        loop {
            if let Some(next) = self.left.pop() {
                return Ok((self.round, next));
            }
            match self.events.next() {
                Some(event) => {
                    let event = event?;
                    let process = self.processes.number(&event);
                    let all = event.used();
                    self.left.extend(all.map(|it| Touched {
                        process,
                        address: it.address,
                        bytes: it.bytes,
                    }));
                    self.left.reverse();
                }
                None => {
                    self.events = self.of.events()?;
                    self.round += 1;
                }
            }
        }
    }
}

/// The sites of [`copies`](super::replay::copies), numbered in order: a program's calls of one kind
/// on one descriptor, as far as a recording tells the lines of a program apart.
///
/// # Errors
/// As [`Recording::events`].
pub fn sites(of: &Recording) -> Result<Vec<u32>, TraceError> {
    let mut known = HashMap::new();
    let mut all = Vec::new();
    for event in of.events()? {
        let event = event?;
        let next = known.len() as u32;
        let key = (event.thread.name.clone(), event.call, event.fd);
        let site = *known.entry(key).or_insert(next);
        all.extend(event.used().map(|_| site));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::{
        super::replay::{BULK, CHAT, COMPILE, PIPE, SESSIONS, SPOOL, copies},
        *,
    };

    #[test]
    fn every_copied_block_is_memory_that_was_touched_at_a_site() {
        for one in [SESSIONS, COMPILE, SPOOL, PIPE, BULK, CHAT] {
            let (all, sites) = (touched(&one).unwrap(), sites(&one).unwrap());
            let blocks = copies(&one).unwrap();
            let bytes: Vec<u64> = all.iter().map(|it| it.bytes).collect();
            let copied: Vec<u64> = blocks.iter().map(|it| it.bytes).collect();
            assert_eq!(bytes, copied, "{}", one.name);
            assert_eq!(sites.len(), blocks.len(), "{}", one.name);
            let most = sites.iter().max().map_or(0, |most| *most as usize);
            assert!((1..blocks.len() / 2).contains(&most), "{}: {most}", one.name);
        }
    }

    #[test]
    fn a_stream_begins_again_where_it_ends() {
        let all = touched(&PIPE).unwrap();
        let mut stream = Stream::of(PIPE).unwrap();
        for round in 0..3 {
            for it in &all {
                assert_eq!(stream.next_touched().unwrap(), (round, *it));
            }
        }
    }
}
