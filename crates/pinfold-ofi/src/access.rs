//! Memory of peers as this side uses it: reads and writes, and the regions they go to.
//!
//! The first operation on a region asks its owner for the library's key and opens the memory;
//! operations wait for that here, in their order. Later ones go straight to the library, which
//! copies by the cheapest way. A region that is closed and registered anew under the same key is
//! asked for again, once an operation; a key is never taken for another region's.
#![allow(unsafe_code)]
// Invariant: the program leaves its parts alone, and in place, until their operation has ended.

use std::sync::{Arc, Mutex, PoisonError};

use pinfold::{ByAddress, Completed, Completion, Error, OpenRequest, OwnedBuf, OwnedBufMut};
use pinfold::{PeerId, RemoteSpace};
use rustc_hash::FxHashMap;

use crate::{
    attr,
    cq::Event,
    ffi::{ep::FiRmaIov, flags::*},
    guard::{Answer, Code},
    op::{Key, Kind},
    send,
    served::{self, News},
    served_wire::{Found, Note},
    state::{self, Inside},
};

/// The regions of peers that this endpoint uses, and its own part in theirs.
#[derive(Default)]
pub struct Memory {
    spaces: FxHashMap<(PeerId, u64), Space>,
    /// Those that are being opened.
    opening: Vec<(PeerId, u64)>,
    pub news: Arc<News>,
}

/// A region of a peer's.
enum Space {
    /// Its owner was asked; these wait.
    Asked(Vec<Job>),
    Opening(Box<OpenRequest<ByAddress>>, Found, Vec<Job>),
    Open(RemoteSpace, Found),
}

/// The direction of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    Read,
    Write,
}

/// An operation as the program asks for it.
pub struct Ask<'a> {
    pub does: Does,
    pub to: u64,
    pub parts: &'a [libc::iovec],
    pub ranges: &'a [FiRmaIov],
    pub data: Option<u64>,
    pub context: usize,
    /// The flags of the operation, those of the endpoint included.
    pub flags: u64,
}

/// An operation under way.
struct Job {
    key: Key,
    peer: PeerId,
    does: Does,
    local: Vec<Block>,
    ranges: Vec<FiRmaIov>,
    /// The bytes of an injected write, to which `local` points.
    _copy: Vec<u8>,
    data: Option<u64>,
    /// A region was gone, and has been asked for again.
    is_retried: bool,
    /// The owner has been told of it.
    is_noted: bool,
}

/// Bytes of the program's, or of a job's own.
#[derive(Clone, Copy)]
pub struct Block {
    pub at: *mut u8,
    pub len: usize,
}

// SAFETY: see the invariant: plain memory, not bound to a thread.
unsafe impl Send for Block {}

// SAFETY: the program keeps the bytes in place, and does not write what is being written from.
unsafe impl OwnedBuf for Block {
    fn bytes(&self) -> (*const u8, usize) {
        (self.at, self.len)
    }
}

// SAFETY: as above; a read's memory is the program's to be written.
unsafe impl OwnedBufMut for Block {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.at, self.len)
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: readable until the operation has ended.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl AsMut<[u8]> for Block {
    fn as_mut(&mut self) -> &mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: writable, and the operation's alone, until that has ended.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

/// Several requests that are one operation.
struct Course {
    job: Option<Job>,
    left: usize,
    failed: Option<Failed>,
}

/// How a part of an operation has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    /// The region is no more, or did not allow it when it was told of: another may have its key.
    Gone,
    Outside,
    For(Code),
}

fn failed(error: &Error) -> Failed {
    match error {
        Error::Revoked | Error::BadKey => Failed::Gone,
        Error::OutOfBounds { .. } | Error::ReadOnly => Failed::For(Code(libc::EACCES)),
        Error::NotMapped { .. } => Failed::For(Code(libc::EFAULT)),
        Error::Withdrawn => Failed::For(Code(libc::ECONNRESET)),
        other => Failed::For(state::code(other)),
    }
}

/// The bytes of several parts.
pub fn blocks(parts: &[libc::iovec]) -> Vec<Block> {
    let block = |part: &libc::iovec| Block { at: part.iov_base.cast(), len: part.iov_len };
    parts.iter().filter(|part| part.iov_len > 0).map(block).collect()
}

/// The pieces in which both sides lie in one block each: the place on this side, the range and the
/// offset into it on the other.
fn pieces(local: &[Block], ranges: &[FiRmaIov]) -> Vec<(Block, usize, u64)> {
    let mut pieces = Vec::new();
    let mut blocks = local.iter().copied();
    let mut block = blocks.next();
    for (at, range) in ranges.iter().enumerate() {
        let mut done = 0;
        while done < range.len
            && let Some(Block { at: from, len }) = block
        {
            let now = len.min(range.len - done);
            pieces.push((Block { at: from, len: now }, at, done as u64));
            done += now;
            block = match len - now {
                0 => blocks.next(),
                left => Some(Block { at: from.wrapping_add(now), len: left }),
            };
        }
    }
    pieces
}

impl Inside<'_> {
    /// Begins to serve the memory of this program to peers.
    pub fn serve_memory(&mut self) -> Answer {
        let (regions, news) = (&self.ep.domain.regions, &self.state.memory.news);
        served::serve(&self.state.endpoint, self.ep.number, regions, news)
    }

    /// A turn of what this file sees to.
    pub fn turn_memory(&mut self) {
        if !self.state.memory.opening.is_empty() {
            self.look_at_openings();
        }
        while let Some((peer, note)) = self.state.memory.news.take() {
            self.tell_of(peer, note);
        }
    }

    /// Returns the peer for an operation that may begin now.
    pub fn peer_for(&mut self, to: u64, reports: bool) -> Answer<PeerId> {
        self.check()?;
        let is_busy = self.state.ops.sends >= self.state.tx.size
            || reports && self.state.tx.cq.as_ref().is_some_and(|cq| cq.is_full(self.held))
            || self.state.fence.is_up();
        let contact = self.contact(to)?;
        match if is_busy { Err(Code::AGAIN) } else { self.connection(contact) } {
            Err(Code::AGAIN) => {
                self.turn();
                Err(Code::AGAIN)
            }
            other => other,
        }
    }

    /// Reads or writes memory of a peer.
    pub fn access(&mut self, ask: &Ask<'_>) -> Answer {
        let reports = self.state.tx.reports(ask.flags);
        self.access_as(ask, reports)
    }

    /// As [`Inside::access`], of which the program hears only if it fails.
    pub fn access_silently(&mut self, ask: &Ask<'_>) -> Answer {
        self.access_as(ask, false)
    }

    fn access_as(&mut self, ask: &Ask<'_>, reports: bool) -> Answer {
        let len = send::length(ask.parts)?;
        let sum = |sum: usize, range: &FiRmaIov| sum.checked_add(range.len);
        let there = ask.ranges.iter().try_fold(0, sum).ok_or(Code::INVALID)?;
        if there != len || ask.ranges.is_empty() || ask.ranges.len() > crate::rma::PARTS_MAX {
            return Err(Code::INVALID);
        }
        let injects = ask.flags & FI_INJECT != 0;
        if len > attr::MESSAGE_BYTES_MAX || injects && len > attr::INJECT_BYTES_MAX {
            return Err(Code(libc::EMSGSIZE));
        }
        let peer = self.peer_for(ask.to, reports)?;
        let kind = match ask.does {
            Does::Read => FI_READ,
            Does::Write => FI_WRITE,
        };
        let event = Event { context: ask.context, flags: FI_RMA | kind, ..Event::default() };
        let key = self.state.ops.insert(Kind::Other(Box::new(|_, _, _| ())), event, reports);
        let mut local = blocks(ask.parts);
        let mut copy = Vec::new();
        if injects {
            local.iter().for_each(|block| copy.extend_from_slice(block.as_ref()));
            local = vec![Block { at: copy.as_mut_ptr(), len: copy.len() }];
            local.retain(|block| block.len > 0);
        }
        let job = Job {
            key,
            peer,
            does: ask.does,
            local,
            ranges: ask.ranges.to_vec(),
            _copy: copy,
            data: ask.data,
            is_retried: false,
            is_noted: false,
        };
        self.begin(ask.flags, move |inside| inside.start(job));
        Ok(())
    }

    /// Starts an operation, or has it wait for the first of its regions that is not open.
    fn start(&mut self, job: Job) {
        for range in &job.ranges {
            let name = (job.peer, range.key);
            match self.state.memory.spaces.get_mut(&name) {
                Some(Space::Open(..)) => {}
                Some(Space::Asked(waiting) | Space::Opening(_, _, waiting)) => {
                    waiting.push(job);
                    return;
                }
                None => {
                    self.state.memory.spaces.insert(name, Space::Asked(vec![job]));
                    self.ask_for(name);
                    return;
                }
            }
        }
        self.run(job);
    }

    /// Asks the owner for a region.
    fn ask_for(&mut self, name: (PeerId, u64)) {
        let finish = move |inside: &mut Inside<'_>, _, completion: Completion| {
            let found = match completion.result {
                Ok(Completed::Message(message)) => Found::read(&message).map_err(Failed::For),
                Ok(_) => Err(Failed::For(Code::OTHER)),
                Err(error) => Err(failed(&error)),
            };
            inside.found(name, found);
        };
        let kind = Kind::Other(Box::new(finish));
        let key = self.state.ops.insert(kind, Event::default(), false);
        let asked = self.state.endpoint.request(name.0, served::FIND, &name.1.to_le_bytes());
        self.queue().add(key.number(), asked);
    }

    /// The owner has said where a region is.
    fn found(&mut self, name: (PeerId, u64), found: Result<Found, Failed>) {
        let Some(Space::Asked(waiting)) = self.state.memory.spaces.remove(&name) else { return };
        match found {
            Ok(found) => {
                let opening = self.state.endpoint.open_space_request(name.0, &found.key);
                let space = Space::Opening(Box::new(opening), found, waiting);
                self.state.memory.spaces.insert(name, space);
                self.state.memory.opening.push(name);
                self.look_at_openings();
            }
            Err(why) => waiting.into_iter().for_each(|job| self.end(job, Some(why))),
        }
    }

    fn look_at_openings(&mut self) {
        let names = std::mem::take(&mut self.state.memory.opening);
        for name in names {
            let space = self.state.memory.spaces.get_mut(&name);
            let Some(Space::Opening(opening, found, waiting)) = space else { continue };
            let Some(opened) = opening.try_wait() else {
                self.state.memory.opening.push(name);
                continue;
            };
            let (found, waiting) = (*found, std::mem::take(waiting));
            match opened {
                Ok(space) => {
                    self.state.memory.spaces.insert(name, Space::Open(space, found));
                    waiting.into_iter().for_each(|job| self.start(job));
                }
                Err(error) => {
                    self.state.memory.spaces.remove(&name);
                    let why = failed(&error);
                    waiting.into_iter().for_each(|job| self.end(job, Some(why)));
                }
            }
        }
    }

    /// Does an operation, all of whose regions are open.
    fn run(&mut self, job: Job) {
        let access = match job.does {
            Does::Read => FI_REMOTE_READ,
            Does::Write => FI_REMOTE_WRITE,
        };
        let mut places = Vec::new();
        for range in &job.ranges {
            let name = (job.peer, range.key);
            let Some(Space::Open(space, found)) = self.state.memory.spaces.get(&name) else {
                return self.end(job, Some(Failed::Gone));
            };
            let offset = range.addr.checked_sub(found.base);
            let end = offset.and_then(|offset| offset.checked_add(range.len as u64));
            match (offset, end) {
                (Some(offset), Some(end)) if end <= found.len && found.access & access != 0 => {
                    places.push((space.clone(), found.start + offset));
                }
                _ => return self.end(job, Some(Failed::Outside)),
            }
        }
        let pieces = pieces(&job.local, &job.ranges);
        if pieces.is_empty() {
            return self.end(job, None);
        }
        let does = job.does;
        let course = Course { job: Some(job), left: pieces.len(), failed: None };
        let course = Arc::new(Mutex::new(course));
        for (block, range, offset) in pieces {
            let key = self.part_of(&course);
            let (space, start) = &places[range];
            let request = match does {
                Does::Write => space.write_owned(start + offset, block),
                Does::Read => space.read_owned(start + offset, block),
            };
            self.queue().add(key.number(), request);
        }
    }

    /// A request that is part of an operation.
    fn part_of(&mut self, course: &Arc<Mutex<Course>>) -> Key {
        let course = Arc::clone(course);
        let finish = move |inside: &mut Inside<'_>, _, completion: Completion| {
            let mut course = course.lock().unwrap_or_else(PoisonError::into_inner);
            course.left -= 1;
            if let Err(error) = completion.result {
                course.failed = course.failed.or(Some(failed(&error)));
            }
            if course.left > 0 {
                return;
            }
            let (job, why) = (course.job.take(), course.failed);
            drop(course);
            if let Some(job) = job {
                inside.end(job, why);
            }
        };
        self.state.ops.insert(Kind::Other(Box::new(finish)), Event::default(), false)
    }

    /// All parts of an operation have ended, or it could not begin.
    fn end(&mut self, mut job: Job, why: Option<Failed>) {
        match why {
            Some(Failed::Gone | Failed::Outside) if !job.is_retried => {
                job.is_retried = true;
                for range in &job.ranges {
                    let name = (job.peer, range.key);
                    if let Some(Space::Open(..)) = self.state.memory.spaces.get(&name) {
                        self.state.memory.spaces.remove(&name);
                    }
                }
                self.start(job);
            }
            Some(why) => {
                let code = match why {
                    Failed::Gone => Code(FI_ENOKEY),
                    Failed::Outside => Code(libc::EACCES),
                    Failed::For(code) => code,
                };
                self.forget_if_lost(job.peer);
                self.fail_key(job.key, code);
            }
            None => self.note(job),
        }
    }

    /// Tells the owner of an operation that went well, if it wants to know, and then the program.
    fn note(&mut self, mut job: Job) {
        let access = match job.does {
            Does::Read => FI_REMOTE_READ,
            Does::Write => FI_REMOTE_WRITE,
        };
        let mut data = job.data.take();
        let mut notes = Vec::new();
        for range in &job.ranges {
            let space = self.state.memory.spaces.get(&(job.peer, range.key));
            let is_counted = matches!(space, Some(Space::Open(_, found)) if found.is_counted);
            if !job.is_noted && (is_counted || data.is_some()) {
                let (key, len) = (range.key, range.len as u64);
                notes.push(Note { key, access, len, data: data.take() });
            }
        }
        if notes.is_empty() {
            if let Some(op) = self.state.ops.remove(job.key) {
                self.report(&op, Ok(op.event));
            }
            return;
        }
        let peer = job.peer;
        // It does not begin again.
        (job.is_retried, job.is_noted) = (true, true);
        let course = Course { job: Some(job), left: notes.len(), failed: None };
        let course = Arc::new(Mutex::new(course));
        for note in notes {
            let key = self.part_of(&course);
            let asked = self.state.endpoint.request(peer, served::NOTE, &note.bytes());
            self.queue().add(key.number(), asked);
        }
    }

    /// Forgets the regions of a peer that is gone.
    pub fn forget_if_lost(&mut self, peer: PeerId) {
        if self.state.endpoint.peer(peer).is_some() {
            return;
        }
        self.state.contacts.lost(peer);
        let is_open = |space: &Space| matches!(space, Space::Open(..));
        self.state.memory.spaces.retain(|name, space| name.0 != peer || !is_open(space));
    }

    /// Tells the program of a use of its memory by a peer.
    fn tell_of(&mut self, peer: PeerId, note: Note) {
        let contact = self.state.contacts.of_peer(peer);
        let source = contact.map_or(FI_ADDR_UNSPEC, |contact| self.number_of(contact));
        for (counted, counter) in &self.state.counters {
            if counted & note.access & (FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 {
                counter.count();
            }
        }
        if let (Some(data), Some(cq)) = (note.data, &self.state.rx.cq) {
            let flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
            let len = note.len as usize;
            cq.push(self.held, Ok(Event { flags, len, data, source, ..Event::default() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_both_sides_in_order() {
        let block = |at: usize, len| Block { at: std::ptr::without_provenance_mut(at), len };
        let range = |addr, len| FiRmaIov { addr, len, key: 0 };
        let local = [block(100, 3), block(200, 4)];
        let found = pieces(&local, &[range(0, 2), range(10, 0), range(20, 5)]);
        let found: Vec<_> =
            found.iter().map(|(it, at, done)| (it.at.addr(), it.len, *at, *done)).collect();
        assert_eq!(found, [(100, 2, 0, 0), (102, 1, 2, 0), (200, 4, 2, 1)]);
        assert!(pieces(&[], &[range(0, 0)]).is_empty());
    }
}
