//! `CmaAccess`: how this process and a peer's reach each other's memory through the kernel (CMA).
//!
//! It outlives the [`Peer`](crate::worker::peer::Peer): operations on a region go on without the
//! engine, and the memory that they may still use has to stay.

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
    /// The peer's process id, and the pidfd that tells the process from a later one with that id.
    pub pid: u32,
    pub pidfd: Option<OwnedFd>,
    /// Regions that threads of this side and of the peer are using.
    pub hazards: Hazards,
    /// Tells whether memory of the peer is present; `None` where that cannot be asked.
    presence: Option<Presence>,
    trust: Mutex<Trust>,
    we_read: Leave,
    we_write: Leave,
    peer_reads: Leave,
    peer_writes: Leave,
}

/// Permission to use memory of another process. Once withdrawn, it does not come back.
struct Leave(OnceLock<Refusal>);

impl Leave {
    fn new(tried: Result<(), Refusal>) -> Leave {
        Leave(tried.err().map_or_else(OnceLock::new, OnceLock::from))
    }

    fn get(&self) -> Result<(), Refusal> {
        self.0.get().map_or(Ok(()), |why| Err(*why))
    }
}

/// Direction of an access: the side that copies, and whether it reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    WeRead,
    WeWrite,
    PeerReads,
    PeerWrites,
}

/// Returns whether `errno` from the kernel says that the pair may not, or cannot, copy at all,
/// rather than something about the memory of one message.
pub(crate) fn is_denial(errno: u32) -> bool {
    // A seccomp filter that answers with one of these is met again with the next message, at the
    // cost of one system call.
    let of_memory = [Errno::FAULT, Errno::NOMEM, Errno::INVAL, Errno::AGAIN, Errno::INTR];
    errno != 0 && !of_memory.iter().any(|other| other.raw_os_error().unsigned_abs() == errno)
}

fn missing() -> io::Error {
    io::Error::from(MISSING)
}

impl CmaAccess {
    /// `tried` holds the results of the trials, in the order of [`Way`].
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

    /// Returns why `way` is not possible; `Ok` if it is.
    pub(crate) fn may(&self, way: Way) -> Result<(), Refusal> {
        self.leave(way).get()
    }

    /// Withdraws the permission for `way`, for good.
    pub(crate) fn withdraw(&self, way: Way, why: Refusal) {
        let _ = self.leave(way).0.set(why);
    }

    /// Returns whether this side can write to the peer's memory at `place`: a list of several parts
    /// has to be read first.
    pub(crate) fn reaches(&self, place: Place) -> bool {
        let reads = place.parts <= 1 || self.may(Way::WeRead).is_ok();
        reads && self.may(Way::WeWrite).is_ok()
    }

    /// Finds the memory of the peer that `place` describes, which must be `len` bytes, if a `touch`
    /// of it waits for nobody.
    ///
    /// # Errors
    /// Those of [`Remote::fetch`]; `EAGAIN` if some of the memory is not present: the process that
    /// has to provide it may never do so. The caller copies it itself, or has it come in another
    /// way.
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

    /// Has the kernel copy memory of the peer that was [found](CmaAccess::find). Costs 30 ns more
    /// than the copy.
    ///
    /// # Errors
    /// Those of `copy`; `EAGAIN` if this copy, or one before, has waited for too long: nothing is
    /// copied in this way any more.
    pub(crate) fn copy<T>(&self, way: Way, copy: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.may(way).map_err(|_| missing())?;
        let (copied, waited_ns) = timed(copy);
        if waited_ns > 0 && self.trust.lock().waited(waited_ns) {
            self.distrust("a copy waited for its memory");
            return Err(missing());
        }
        copied
    }

    /// Stops all copies of this side; the peer's process is remembered.
    #[cold]
    fn distrust(&self, why: &str) {
        tracing::warn!(pid = self.pid, why, "the kernel does not copy memory of a peer any more");
        self.withdraw(Way::WeRead, Refusal::Fickle);
        self.withdraw(Way::WeWrite, Refusal::Fickle);
        if self.pid != std::process::id() {
            fickle::note(self.pid);
        }
    }

    /// Returns why messages of this side cannot go by the kernel; `Ok` if they can.
    pub(crate) fn sends(&self) -> Result<(), Refusal> {
        self.may(Way::PeerReads).or(self.may(Way::WeWrite))
    }

    /// Returns why this side cannot use a region of the peer's; `Ok` if it can.
    pub(crate) fn there(&self, writable: bool) -> Result<(), Refusal> {
        self.may(Way::WeRead).and(if writable { self.may(Way::WeWrite) } else { Ok(()) })
    }

    /// Returns why the peer cannot use a region of ours; `Ok` if it can.
    pub(crate) fn here(&self, writable: bool) -> Result<(), Refusal> {
        self.may(Way::PeerReads).and(if writable { self.may(Way::PeerWrites) } else { Ok(()) })
    }

    /// Lets the peer know that this thread is about to use the region with this `number`, which the
    /// peer has lent.
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

    /// Returns whether the peer's process has not ended yet, and can be using memory of this one.
    pub(crate) fn is_alive(&self) -> bool {
        self.pidfd.as_ref().is_some_and(process::pidfd_alive)
    }

    /// Returns whether the peer's process is known to have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.pidfd.as_ref().is_some_and(|pidfd| !process::pidfd_alive(pidfd))
    }

    /// Returns whether the peer is using our `region`, which was withdrawn.
    pub(crate) fn is_protected(&self, region: u64) -> bool {
        self.hazards.is_protected(region) && self.is_alive()
    }
}
