//! What lets two processes get at each other's memory through the kernel, and know of it.
//!
//! It outlives the [`Peer`](super::peer::Peer): operations on a region go on without the engine, and
//! what they may still be at has to stay.

use std::{io, os::fd::OwnedFd, sync::OnceLock, thread};

use parking_lot::Mutex;
use pinfold_sys::{
    clock,
    presence::{Presence, Touch},
    process,
};
use rustix::io::Errno;

use crate::{
    Error, Refusal, Result,
    endpoint::remote::Remote,
    link::shm::visits::{Visit, Visits},
    route::MISSING,
    wire::waiting::Place,
};

pub(crate) struct Reach {
    /// The peer's process, and what tells it from a later one with that number.
    pub pid: u32,
    pub pidfd: Option<OwnedFd>,
    /// Who is where, of this side and the peer.
    pub visits: Visits,
    /// What is asked whether memory of the peer is there; `None` where nothing can be.
    presence: Option<Presence>,
    /// Where it was just now.
    seen: Mutex<Seen>,
    we_read: Leave,
    we_write: Leave,
    peer_reads: Leave,
    peer_writes: Leave,
}

/// How long memory of a peer that was there is taken to be there still, ns. To ask takes a third as
/// long as to copy 64 KiB, and programs send from the same buffers again and again.
const SEEN_NS: u64 = 5_000_000;

/// Memory of a peer that was there when it was asked for.
#[derive(Debug, Default)]
struct Seen {
    all: [Option<Sight>; 4],
    next: usize,
}

#[derive(Debug)]
struct Sight {
    at: u64,
    len: u64,
    touch: Touch,
    when_ns: u64,
}

impl Seen {
    /// Whether so much memory was there a moment ago.
    fn has(&self, at: u64, len: u64, touch: Touch, now_ns: u64) -> bool {
        self.all.iter().flatten().any(|seen| {
            (seen.at, seen.touch) == (at, touch)
                && seen.len >= len
                && now_ns.saturating_sub(seen.when_ns) < SEEN_NS
        })
    }

    fn note(&mut self, at: u64, len: u64, touch: Touch, when_ns: u64) {
        let same = |seen: &Option<Sight>| {
            seen.as_ref().is_none_or(|seen| (seen.at, seen.touch) == (at, touch))
        };
        let place = self.all.iter().position(same).unwrap_or(self.next);
        self.all[place] = Some(Sight { at, len, touch, when_ns });
        self.next = (place + 1) % self.all.len();
    }
}

/// Leave to get at memory of another process. What is withdrawn once does not come back.
struct Leave(OnceLock<Refusal>);

impl Leave {
    fn new(tried: Result<(), Refusal>) -> Leave {
        Leave(tried.err().map_or_else(OnceLock::new, OnceLock::from))
    }

    fn get(&self) -> Result<(), Refusal> {
        self.0.get().map_or(Ok(()), |why| Err(*why))
    }
}

/// Who gets at whose memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    WeRead,
    WeWrite,
    PeerReads,
    PeerWrites,
}

/// Whether `errno` from the kernel says that the pair may not, or cannot, rather than something about the memory of one
/// message.
pub(crate) fn is_denial(errno: u32) -> bool {
    // Whatever a filter answers in place of these is met again with the next message, and costs that a call.
    let of_memory = [Errno::FAULT, Errno::NOMEM, Errno::INVAL, Errno::AGAIN, Errno::INTR];
    errno != 0 && !of_memory.iter().any(|other| other.raw_os_error().unsigned_abs() == errno)
}

impl Reach {
    /// `tried` is what came of trying, in the order of [`Way`].
    pub(crate) fn new(
        pid: u32,
        pidfd: Option<OwnedFd>,
        visits: Visits,
        presence: Option<Presence>,
        tried: [Result<(), Refusal>; 4],
    ) -> Reach {
        let [we_read, we_write, peer_reads, peer_writes] = tried.map(Leave::new);
        let seen = Mutex::default();
        Reach { pid, pidfd, visits, presence, seen, we_read, we_write, peer_reads, peer_writes }
    }

    fn leave(&self, way: Way) -> &Leave {
        match way {
            Way::WeRead => &self.we_read,
            Way::WeWrite => &self.we_write,
            Way::PeerReads => &self.peer_reads,
            Way::PeerWrites => &self.peer_writes,
        }
    }

    /// Why something is not possible; `Ok` if it is.
    pub(crate) fn may(&self, way: Way) -> Result<(), Refusal> {
        self.leave(way).get()
    }

    /// It is not possible any more.
    pub(crate) fn withdraw(&self, way: Way, why: Refusal) {
        let _ = self.leave(way).0.set(why);
    }

    /// Whether this side can write to memory that the peer describes so: the list of several parts is to be read.
    pub(crate) fn reaches(&self, place: Place) -> bool {
        let reads = place.parts <= 1 || self.may(Way::WeRead).is_ok();
        reads && self.may(Way::WeWrite).is_ok()
    }

    /// What `place` of the peer describes, which must be `len` bytes, if to `touch` it waits for
    /// nobody.
    ///
    /// # Errors
    /// Those of [`Remote::fetch`]; `EAGAIN` if some of it is not there: whoever is to provide that
    /// may never do so, and copies it itself, or has it come in another way.
    pub(crate) fn find(&self, place: Place, len: u64, touch: Touch) -> io::Result<Remote> {
        let missing = || io::Error::from(MISSING);
        let presence = self.presence.as_ref().ok_or_else(missing)?;
        let now_ns = clock::now_ns();
        if place.parts == 1 && self.seen.lock().has(place.at, len, touch, now_ns) {
            return Remote::fetch(self.pid, place, len);
        }
        let list = place.list_len();
        if list > 0 && !presence.vouches(place.at, list, Touch::Read)? {
            return Err(missing());
        }
        let remote = Remote::fetch(self.pid, place, len)?;
        if !remote.is_there(presence, touch)? {
            return Err(missing());
        }
        if place.parts == 1 {
            self.seen.lock().note(place.at, len, touch, now_ns);
        }
        Ok(remote)
    }

    /// Why messages of this side cannot go by the kernel; `Ok` if they can.
    pub(crate) fn sends(&self) -> Result<(), Refusal> {
        self.may(Way::PeerReads).or(self.may(Way::WeWrite))
    }

    /// Whether this side can use a region of the peer's.
    pub(crate) fn there(&self, writable: bool) -> Result<(), Refusal> {
        self.may(Way::WeRead).and(if writable { self.may(Way::WeWrite) } else { Ok(()) })
    }

    /// Whether the peer can use a region of ours.
    pub(crate) fn here(&self, writable: bool) -> Result<(), Refusal> {
        self.may(Way::PeerReads).and(if writable { self.may(Way::PeerWrites) } else { Ok(()) })
    }

    /// Lets the peer know that this thread comes to what it has lent by that number.
    ///
    /// # Errors
    /// [`Error::Withdrawn`] once either side has ended the connection.
    pub(crate) fn visit(&self, number: u64) -> Result<Visit<'_>> {
        loop {
            if self.visits.is_over() {
                return Err(Error::Withdrawn);
            }
            match self.visits.begin(number) {
                Some(visit) => return Ok(visit),
                None => thread::yield_now(),
            }
        }
    }

    /// Whether the peer's process has yet to end, and can be at memory of this one.
    pub(crate) fn is_alive(&self) -> bool {
        self.pidfd.as_ref().is_some_and(process::pidfd_alive)
    }

    /// Whether the peer's process is known to have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.pidfd.as_ref().is_some_and(|pidfd| !process::pidfd_alive(pidfd))
    }

    /// Whether the peer is at `region` of ours, which was withdrawn.
    pub(crate) fn is_visited(&self, region: u64) -> bool {
        self.visits.is_visited(region) && self.is_alive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_is_there_for_a_moment() {
        let mut seen = Seen::default();
        assert!(!seen.has(8, 100, Touch::Read, 0));
        seen.note(8, 100, Touch::Read, 1000);
        assert!(seen.has(8, 100, Touch::Read, 1000 + SEEN_NS - 1));
        assert!(seen.has(8, 1, Touch::Read, 1000));
        for (at, len, touch, now_ns) in [
            (8, 101, Touch::Read, 1000),
            (9, 1, Touch::Read, 1000),
            (8, 100, Touch::Write, 1000),
            (8, 100, Touch::Read, 1000 + SEEN_NS),
        ] {
            assert!(!seen.has(at, len, touch, now_ns), "{at} {len} {touch:?} {now_ns}");
        }
        // More than are kept: the oldest go.
        (1..=4).for_each(|n| seen.note(100 * n, 100, Touch::Write, 2000));
        assert!(!seen.has(8, 100, Touch::Read, 2000) && seen.has(400, 100, Touch::Write, 2000));
        seen.note(400, 50, Touch::Write, 3000);
        assert!(!seen.has(400, 100, Touch::Write, 3000) && seen.has(300, 100, Touch::Write, 3000));
    }
}
