//! `Established`: the outcome of a greeting.

use std::os::fd::{AsFd, OwnedFd};

use pinfold_sys::{
    mem::{mapping::SharedMapping, presence::Presence},
    process,
    socket::seqpacket::Socket,
    stopping::{self, Stopping},
};
use rustix::io::Errno;

use super::{super::address::Address, Half, Handshake, Moved};
use crate::{
    Error, Gone, Result,
    policy::route::{Path, PathSet, Refusal},
    wire::hello::{Limits, Verdict},
};

/// This side's role in a pair; it decides which side uses which half of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Accepting,
    Connecting,
}

/// A pair that is ready to exchange messages.
#[derive(Debug)]
pub(crate) struct Established {
    pub side: Side,
    pub mapping: SharedMapping,
    /// From here on it carries doorbells only.
    pub socket: Socket,
    /// Readable once the peer's process has exited.
    pub pidfd: OwnedFd,
    /// Tells whether memory of the peer is present, where the kernel reaches it.
    pub presence: Option<Presence>,
    /// The peer's process as this one sees it; 0 in another process-id namespace.
    pub pid: u32,
    pub uid: u32,
    pub label: String,
    pub endpoint_id: [u8; 16],
    /// The address this side connected to; `None` on the accepting side.
    pub address: Option<Address>,
    /// The paths that neither side has switched off. Whether `cma` works is in the fields below.
    pub paths: PathSet,
    /// The paths that this side has not switched off.
    pub our_paths: PathSet,
    /// True if the peer takes part in global memory barriers.
    pub barrier_global: bool,
    /// Limits that the peer grants to this side.
    pub granted: Limits,
    pub we_read: Result<(), Refusal>,
    pub we_write: Result<(), Refusal>,
    pub peer_reads: Result<(), Refusal>,
    pub peer_writes: Result<(), Refusal>,
}

impl Handshake {
    pub(super) fn establish(&mut self, half: Half, on_ours: &Verdict, side: Side) -> Result<Moved> {
        let Half { peer, mapping, ours, theirs, pidfd } = half;
        let pidfd = self.settle_pidfd(pidfd).map_err(|error| self.told(error))?;
        let socket = self.socket.take().ok_or(Error::Closed)?;
        let off = if !self.us.paths.contains(Path::Cma) {
            Err(Refusal::SwitchedOff)
        } else if !peer.paths.contains(Path::Cma) {
            Err(Refusal::SwitchedOffByPeer)
        } else {
            Ok(())
        };
        // A path that the peer reports as switched off by us was switched off by the peer itself.
        let by_peer = |said: Result<(), Refusal>| match said {
            Err(Refusal::SwitchedOff) => Err(Refusal::SwitchedOffByPeer),
            said => said,
        };
        let not_said =
            Verdict { read: Err(Refusal::SwitchedOff), write: Err(Refusal::SwitchedOff) };
        let mut theirs = theirs.unwrap_or(not_said);
        // The accepting side has tried before it could know this side's result.
        if side == Side::Connecting
            && theirs.reaches()
            && !on_ours.reaches()
            && stopping::of_us(self.who.pid) == Stopping::ToShow
        {
            let why = Err(Refusal::Confined);
            theirs = Verdict { read: why, write: why };
        }
        let shown =
            if self.on_condition && !theirs.reaches() { Err(Refusal::Confined) } else { Ok(()) };
        let paths = peer.paths.iter().filter(|&path| self.us.paths.contains(path));
        let established = Box::new(Established {
            side,
            mapping,
            socket,
            pidfd,
            presence: self.presence.take(),
            pid: self.who.pid,
            uid: self.who.uid,
            label: peer.label,
            endpoint_id: peer.endpoint_id,
            address: self.address.take(),
            paths: paths.fold(PathSet::none(), PathSet::with),
            our_paths: self.us.paths,
            barrier_global: peer.barrier_global,
            granted: peer.limits,
            we_read: off.and(ours.read.and(by_peer(on_ours.read))).and(shown),
            we_write: off.and(ours.write.and(by_peer(on_ours.write))).and(shown),
            peer_reads: off.and(by_peer(theirs.read)),
            peer_writes: off.and(by_peer(theirs.write)),
        });
        tracing::debug!(
            peer = %established.label,
            pid = established.pid,
            endpoint = ?established.endpoint_id,
            we_read = ?established.we_read,
            we_write = ?established.we_write,
            peer_reads = ?established.peer_reads,
            peer_writes = ?established.peer_writes,
            "connected"
        );
        Ok(Moved::Done(established))
    }

    /// The kernel's pidfd if it gave one; else the one that was passed, if it names the same
    /// process as the kernel; else one for that process id.
    fn settle_pidfd(&mut self, passed: Option<OwnedFd>) -> Result<OwnedFd> {
        if let Some(pidfd) = self.pidfd.take() {
            return Ok(pidfd);
        }
        let is_peers = |pidfd: &OwnedFd| process::pidfd_pid(pidfd.as_fd()) == Some(self.who.pid);
        if let Some(pidfd) = passed.filter(is_peers) {
            return Ok(pidfd);
        }
        process::pidfd_open(self.who.pid).map_err(|error| match error.raw_os_error() {
            Some(errno) if errno == Errno::SRCH.raw_os_error() && self.who.pid != 0 => {
                Error::PeerGone { peer: self.peer(), how: Gone::Died }
            }
            _ => Error::os("pidfd_open", self.peer(), error),
        })
    }
}
