//! What lets two processes get at each other's memory through the kernel, and know of it.
//!
//! It outlives the [`Peer`](super::peer::Peer): operations on a region go on without the engine, and
//! what they may still be at has to stay.

use std::{os::fd::OwnedFd, thread};

use pinfold_sys::process;

use crate::{
    Error, Refusal, Result,
    link::shm::visits::{Visit, Visits},
};

pub(crate) struct Reach {
    /// The peer's process, and what tells it from a later one with that number.
    pub pid: u32,
    pub pidfd: Option<OwnedFd>,
    /// Who is where, of this side and the peer.
    pub visits: Visits,
    pub we_read: Result<(), Refusal>,
    pub we_write: Result<(), Refusal>,
    pub peer_reads: Result<(), Refusal>,
    pub peer_writes: Result<(), Refusal>,
}

impl Reach {
    /// Whether this side can use a region of the peer's.
    pub(crate) fn there(&self, writable: bool) -> Result<(), Refusal> {
        self.we_read.and(if writable { self.we_write } else { Ok(()) })
    }

    /// Whether the peer can use a region of ours.
    pub(crate) fn here(&self, writable: bool) -> Result<(), Refusal> {
        self.peer_reads.and(if writable { self.peer_writes } else { Ok(()) })
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
