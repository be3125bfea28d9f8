//! `Handshake`: the greeting as a state machine, one side of it, which is stepped by the code that
//! watches its socket.
//!
//! Nothing here waits. A step takes the messages that have come, at most one for each state,
//! answers them, and returns how far it got; a silent peer runs into the deadline, and a peer that
//! sends anything unexpected is cut off. The messages are in [`hello`](crate::wire::hello).

use std::{
    mem,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use pinfold_sys::{
    mem::{
        mapping::SharedMapping,
        memfd::{self, SealError},
        presence::Presence,
    },
    process,
    socket::seqpacket::{Credentials, Socket},
    trial,
};
use rustix::io::Errno;

use super::{
    address::Address,
    directory::Directory,
    proof::{self, Subject, Target},
};
use crate::{
    Error, Result,
    failpoint::{self, Point},
    policy::route::{Path, PathSet},
    wire::{
        hello::{self, Answer, Introduction, Limits, Proof, Refuse, Verdict},
        layout::SEGMENT_BYTES,
    },
};

mod failure;
mod opening;
mod outcome;
mod packet;
#[cfg(test)]
mod tests;

pub(super) use failure::exhausted;
pub(crate) use outcome::{Established, Side};
use packet::Packet;

/// Time that a connecting peer has for its part of the greeting.
pub(crate) const PATIENCE_NS: u64 = 10_000_000_000;

/// Interval at which a full queue is tried again.
const RETRY_NS: u64 = 1_000_000;

/// This endpoint's description of itself for its peers.
#[derive(Clone, Debug)]
pub(crate) struct Us {
    pub endpoint_id: [u8; 16],
    pub label: String,
    pub paths: PathSet,
    pub barrier_global: bool,
}

/// One side of a greeting in progress.
#[derive(Debug)]
pub(crate) struct Handshake {
    us: Us,
    grant: Limits,
    /// Taken when the greeting succeeds.
    socket: Option<Socket>,
    who: Credentials,
    /// The pidfd from the kernel; `None` before Linux 6.5.
    pidfd: Option<OwnedFd>,
    /// The result of the trial of paths.
    presence: Option<Presence>,
    /// True if the path may be used only if the peer shows that it reaches this process.
    on_condition: bool,
    address: Option<Address>,
    target: Target,
    patience_ns: u64,
    deadline_ns: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Connecting: the listener's queue is full.
    Dialling { directory: Directory, owner: u32, retry_ns: u64 },
    /// Accepting: the peer may not connect, and is told so before it is heard.
    Refusing(Box<(Refuse, Error)>),
    /// Accepting: the peer has sent nothing yet.
    AwaitHello,
    /// Connecting: Hello is sent.
    AwaitWelcome,
    /// Accepting: Welcome is sent.
    AwaitProof(Box<Half>),
    /// Connecting: Proof is sent.
    AwaitReady(Box<Half>),
    /// The greeting has succeeded or failed.
    Over,
}

/// State of a greeting half-way.
#[derive(Debug)]
struct Half {
    peer: Introduction,
    mapping: SharedMapping,
    /// The results of our trial.
    ours: Proof,
    /// The results of the peer's trial, if it has sent them yet.
    theirs: Option<Verdict>,
    pidfd: Option<OwnedFd>,
}

enum Moved {
    /// No message has come.
    Waiting,
    On,
    Done(Box<Established>),
}

impl Handshake {
    /// The socket, to be watched for reading. It stays the same from the beginning, and is
    /// [`Established::socket`] in the end.
    ///
    /// # Panics
    /// After a step that returned [`Established`].
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("the greeting is over and its socket handed out").as_fd()
    }

    /// Time of the next step even if nothing comes.
    pub(crate) fn deadline_ns(&self) -> u64 {
        match self.state {
            State::Dialling { retry_ns, .. } => self.deadline_ns.min(retry_ns),
            State::Refusing(_) => 0,
            _ => self.deadline_ns,
        }
    }

    /// Takes the messages that have come. Returns `None` while the greeting is not over.
    ///
    /// # Errors
    /// The greeting failed, and so will every later step: refused ([`Error::NotAllowed`],
    /// [`Error::VersionMismatch`], [`Error::LimitReached`]), the peer gone or misbehaving
    /// ([`Error::PeerGone`]), out of time ([`Error::NoAnswer`] if we connected), [`Error::Os`].
    pub(crate) fn step(&mut self, now_ns: u64) -> Result<Option<Box<Established>>> {
        loop {
            match self.advance(now_ns)? {
                Moved::On => {}
                Moved::Done(established) => return Ok(Some(established)),
                Moved::Waiting if now_ns < self.deadline_ns => return Ok(None),
                Moved::Waiting => {
                    self.state = State::Over;
                    return Err(match self.address {
                        Some(_) => Error::NoAnswer {
                            name: self.peer(),
                            patience: Duration::from_nanos(self.patience_ns),
                        },
                        None => self.misbehaved("it did not greet in time"),
                    });
                }
            }
        }
    }

    /// Goes one state further, if the message it waits for has come. An error ends the greeting.
    fn advance(&mut self, now_ns: u64) -> Result<Moved> {
        if let State::Dialling { retry_ns, .. } = self.state {
            if now_ns < retry_ns && now_ns < self.deadline_ns {
                // A socket that is not connected always has events; other threads go first.
                std::thread::yield_now();
                return Ok(Moved::Waiting);
            }
            return self.dial_again(now_ns);
        }
        if let State::Refusing(_) = self.state {
            // A greeting that is left unread would reset the connection.
            let _ = self.receive(0);
            return match mem::replace(&mut self.state, State::Over) {
                State::Refusing(refused) => Err(self.refuse(refused.0, refused.1)),
                _ => Err(Error::Closed),
            };
        }
        let fds_max = match self.state {
            State::Over => return Err(Error::Closed),
            State::AwaitWelcome => 2,
            State::AwaitProof(_) => 1,
            _ => 0,
        };
        let packet = match self.receive(fds_max) {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(Moved::Waiting),
            Err(error) => {
                self.state = State::Over;
                return Err(self.told(error));
            }
        };
        match mem::replace(&mut self.state, State::Over) {
            State::AwaitHello => self.on_hello(&packet),
            State::AwaitWelcome => self.on_answer(packet),
            State::AwaitProof(half) => self.on_proof(packet, *half),
            State::AwaitReady(half) => self.on_ready(&packet, *half),
            State::Dialling { .. } | State::Refusing(_) | State::Over => Err(Error::Closed),
        }
    }

    /// Accepting: answers Hello.
    fn on_hello(&mut self, packet: &Packet) -> Result<Moved> {
        let (min, max) = hello::decode_versions(packet.bytes()).map_err(|why| self.bad(why))?;
        if !hello::speaks_ours(min, max) {
            let refuse = Refuse::Version { min: hello::VERSION, max: hello::VERSION };
            let error = self.version_mismatch(min, max);
            return Err(self.refuse(refuse, error));
        }
        let peer = hello::decode_hello(packet.bytes()).map_err(|why| self.bad(why))?;
        let (segment, mapping) = match make_segment() {
            Ok(made) => made,
            Err(error) => return Err(self.told(error)),
        };
        let ours = self.attempt(&peer, None);
        let own = process::self_pidfd().ok();
        let mut fds = vec![segment.as_fd()];
        fds.extend(own.as_ref().map(AsFd::as_fd));
        let sent = self.send(&hello::encode_welcome(&self.introduction(), &ours), &fds);
        sent.map_err(|error| self.told(error))?;
        failpoint::hit(Point::WelcomeSent);
        let half = Half { peer, mapping, ours, theirs: None, pidfd: None };
        self.state = State::AwaitProof(Box::new(half));
        Ok(Moved::On)
    }

    /// Connecting: takes Welcome and sends Proof.
    fn on_answer(&mut self, packet: Packet) -> Result<Moved> {
        let answer = hello::decode_answer(packet.bytes()).map_err(|why| self.bad(why))?;
        let (peer, proof) = match answer {
            Answer::Welcome(peer, proof) => (peer, proof),
            Answer::Refused(why) => return Err(self.refused(why)),
        };
        let mut fds = packet.fds.into_iter();
        let Some(segment) = fds.next() else {
            return Err(self.misbehaved("its welcome came without a segment"));
        };
        let mapping = self.map_segment(segment.as_fd())?;
        let theirs = self.target.judge(&proof);
        let ours = self.attempt(&peer, Some(theirs.reaches()));
        let own = process::self_pidfd().ok();
        let own: Vec<_> = own.iter().map(AsFd::as_fd).collect();
        let sent = self.send(&hello::encode_proof(&ours, &theirs), &own);
        sent.map_err(|error| match error {
            gone @ Error::PeerGone { .. } => self.last_word().unwrap_or(gone),
            error => error,
        })?;
        failpoint::hit(Point::ProofSent);
        let half = Half { peer, mapping, ours, theirs: Some(theirs), pidfd: fds.next() };
        self.state = State::AwaitReady(Box::new(half));
        Ok(Moved::On)
    }

    /// Accepting: takes Proof, sends Ready, and ends.
    fn on_proof(&mut self, packet: Packet, mut half: Half) -> Result<Moved> {
        let (proof, on_ours) = hello::decode_proof(packet.bytes()).map_err(|why| self.bad(why))?;
        let theirs = self.target.judge(&proof);
        half.theirs = Some(theirs);
        half.pidfd = packet.fds.into_iter().next();
        self.send(&hello::encode_ready(&theirs), &[])?;
        failpoint::hit(Point::ReadySent);
        self.establish(half, &on_ours, Side::Accepting)
    }

    /// Connecting: takes Ready, and ends.
    fn on_ready(&mut self, packet: &Packet, half: Half) -> Result<Moved> {
        if let Some(why) = hello::decode_refusal(packet.bytes()) {
            return Err(self.refused(why));
        }
        let on_ours = hello::decode_ready(packet.bytes()).map_err(|why| self.bad(why))?;
        self.establish(half, &on_ours, Side::Connecting)
    }

    fn introduction(&self) -> Introduction {
        Introduction {
            endpoint_id: self.us.endpoint_id,
            label: self.us.label.clone(),
            pid: std::process::id(),
            paths: self.us.paths,
            barrier_global: self.us.barrier_global,
            limits: self.grant,
            nonce_addr: self.target.nonce_addr(),
            scratch_addr: self.target.scratch_addr(),
            mark: self.target.mark(),
        }
    }

    fn attempt(&mut self, peer: &Introduction, reaches_us: Option<bool>) -> Proof {
        if !self.us.paths.contains(Path::Cma) || !peer.paths.contains(Path::Cma) {
            return proof::NOT_TRIED;
        }
        let tried = proof::attempt(&Subject {
            pid: self.who.pid,
            uid: self.who.uid,
            pidfd: self.pidfd.as_ref().map(AsFd::as_fd),
            nonce_addr: peer.nonce_addr,
            scratch_addr: peer.scratch_addr,
            mark: peer.mark,
            reaches_us,
        });
        (self.presence, self.on_condition) = (tried.presence, tried.on_condition);
        tried.proof
    }

    fn map_segment(&self, segment: BorrowedFd<'_>) -> Result<SharedMapping> {
        memfd::check_sealed(segment, SEGMENT_BYTES).map_err(|why| match why {
            SealError::Os(failed) => Error::failed("the segment")(failed),
            SealError::Unsealed => self.misbehaved("its segment is not sealed"),
            SealError::Size { .. } => self.misbehaved("its segment has the wrong size"),
            _ => self.misbehaved("its segment is not a memfd"),
        })?;
        SharedMapping::map(segment, SEGMENT_BYTES).map_err(|error| {
            match Errno::from_io_error(&error) {
                Some(Errno::ACCESS) => self.misbehaved("its segment cannot be written"),
                // The error that seals cause, where no filter causes it.
                Some(Errno::PERM) if trial::is_unfiltered() => {
                    self.misbehaved("its segment cannot be written")
                }
                _ => Error::os("mmap", "the segment", error),
            }
        })
    }
}

fn make_segment() -> Result<(OwnedFd, SharedMapping)> {
    let on = || format!("a segment of {SEGMENT_BYTES} bytes");
    let segment = memfd::create_sealed("pinfold", SEGMENT_BYTES).map_err(Error::failed(on()))?;
    let mapping = SharedMapping::map(segment.as_fd(), SEGMENT_BYTES)
        .map_err(|error| Error::os("mmap", on(), error))?;
    Ok((segment, mapping))
}
