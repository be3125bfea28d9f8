//! What lets two processes get at each other's memory through the kernel, and know of it.
//!
//! It outlives the [`Peer`](crate::worker::peer::Peer): operations on a region go on without the
//! engine, and what they may still be at has to stay.

use std::{io, os::fd::OwnedFd, sync::OnceLock, thread};

use parking_lot::Mutex;
use pinfold_sys::{
    cpu::clock,
    mem::presence::{Presence, Touch},
    process,
};
use rustix::io::Errno;

use crate::{
    Error, Refusal, Result,
    memory::cma_memory::Remote,
    policy::route::MISSING,
    transport::{
        local::fickle,
        shm::hazards::{Hazard, Hazards},
    },
    wire::rendezvous::Place,
};

mod timed;
mod trust;

use timed::timed;
use trust::Trust;

pub(crate) struct CmaAccess {
    /// The peer's process, and what tells it from a later one with that number.
    pub pid: u32,
    pub pidfd: Option<OwnedFd>,
    /// Who is where, of this side and the peer.
    pub hazards: Hazards,
    /// What is asked whether memory of the peer is there; `None` where nothing can be.
    presence: Option<Presence>,
    trust: Mutex<Trust>,
    we_read: Leave,
    we_write: Leave,
    peer_reads: Leave,
    peer_writes: Leave,
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

fn missing() -> io::Error {
    io::Error::from(MISSING)
}

impl CmaAccess {
    /// `tried` is what came of trying, in the order of [`Way`].
    pub(crate) fn new(
        pid: u32,
        pidfd: Option<OwnedFd>,
        hazards: Hazards,
        presence: Option<Presence>,
        tried: [Result<(), Refusal>; 4],
    ) -> CmaAccess {
        let [we_read, we_write, peer_reads, peer_writes] = tried.map(Leave::new);
        let trust = Mutex::default();
        CmaAccess {
            pid,
            pidfd,
            hazards,
            presence,
            trust,
            we_read,
            we_write,
            peer_reads,
            peer_writes,
        }
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
        let presence = self.presence.as_ref().ok_or_else(missing)?;
        let now_ns = clock::now_ns();
        if place.parts == 1 && self.trust.lock().relies_on(place.at, len, touch, now_ns) {
            return Remote::fetch(self.pid, place, len);
        }
        let list = place.list_len();
        if list > 0 && !presence.vouches(place.at, list, Touch::Read)? {
            return Err(missing());
        }
        let remote = match place.parts {
            0 | 1 => Remote::fetch(self.pid, place, len)?,
            _ => self.copy(Way::WeRead, || Remote::fetch(self.pid, place, len))?,
        };
        let is_there = remote.is_there(presence, touch)?;
        if place.parts == 1 {
            let mut trust = self.trust.lock();
            if is_there {
                trust.found(place.at, len, touch, now_ns);
            } else if trust.missed(place.at, len, touch, now_ns) {
                self.distrust("its memory came and went");
            }
        }
        if is_there { Ok(remote) } else { Err(missing()) }
    }

    /// Has the kernel copy memory of the peer that was [found](CmaAccess::find). 30 ns more than
    /// the copy.
    ///
    /// # Errors
    /// Those of `copy`; `EAGAIN` if that has waited for too long, or one before: nothing is copied in this
    /// way any more.
    pub(crate) fn copy<T>(&self, way: Way, copy: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.may(way).map_err(|_| missing())?;
        let (copied, waited_ns) = timed(copy);
        if waited_ns > 0 && self.trust.lock().waited(waited_ns) {
            self.distrust("a copy waited for its memory");
            return Err(missing());
        }
        copied
    }

    /// This side does not copy any more; the peer's process is remembered.
    #[cold]
    fn distrust(&self, why: &str) {
        tracing::warn!(pid = self.pid, why, "the kernel does not copy memory of a peer any more");
        self.withdraw(Way::WeRead, Refusal::Fickle);
        self.withdraw(Way::WeWrite, Refusal::Fickle);
        if self.pid != std::process::id() {
            fickle::note(self.pid);
        }
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
    pub(crate) fn hazard(&self, number: u64) -> Result<Hazard<'_>> {
        loop {
            if self.hazards.is_over() {
                return Err(Error::Withdrawn);
            }
            match self.hazards.begin(number) {
                Some(hazard) => return Ok(hazard),
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
    pub(crate) fn is_protected(&self, region: u64) -> bool {
        self.hazards.is_protected(region) && self.is_alive()
    }
}
