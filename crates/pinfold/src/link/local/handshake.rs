//! The greeting as a state machine: one side of it, moved on by whoever watches its socket.
//!
//! Nothing here waits. A step takes the messages that have come, at most one for each state,
//! answers them, and says how far it got; a peer that is silent runs into the deadline, and one
//! that says anything but the right thing is cut off. The messages are in
//! [`hello`](crate::wire::hello).

use std::{
    io, mem,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use pinfold_sys::{
    mapping::SharedMapping,
    memfd::{self, SealError},
    process,
    socket::{self, Credentials},
};
use rustix::io::Errno;

use super::{
    access::{Access, describe},
    address::Address,
    directory::{Directory, Places},
    proof::{self, Subject, Target},
};
use crate::{
    Error, Gone, Result,
    route::{Path, PathSet, Refusal},
    wire::{
        hello::{self, Answer, Introduction, Limits, Malformed, Proof, Refuse, Verdict},
        layout::SEGMENT_BYTES,
    },
};

#[cfg(test)]
mod tests;

/// How long whoever connected has for its part of the greeting.
pub(crate) const PATIENCE_NS: u64 = 10_000_000_000;

/// How often a full queue is tried again.
const RETRY_NS: u64 = 1_000_000;

/// What this endpoint tells its peers about itself.
#[derive(Clone, Debug)]
pub(crate) struct Us {
    pub endpoint_id: [u8; 16],
    pub label: String,
    pub paths: PathSet,
    pub barrier_global: bool,
}

/// Which side of a pair this is; it decides who uses which half of the segment.
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
    pub socket: OwnedFd,
    /// Readable once the peer's process has exited.
    pub pidfd: OwnedFd,
    /// The peer's process as this one sees it; 0 in another process-id namespace.
    pub pid: u32,
    pub uid: u32,
    pub label: String,
    pub endpoint_id: [u8; 16],
    /// Where this side connected to; `None` on the accepting side.
    pub address: Option<Address>,
    /// The paths that neither side has switched off. Whether `cma` works is said below.
    pub paths: PathSet,
    /// Whether the peer takes part in global memory barriers.
    pub barrier_global: bool,
    /// What the peer allows us.
    pub granted: Limits,
    pub we_read: Result<(), Refusal>,
    pub we_write: Result<(), Refusal>,
    pub peer_reads: Result<(), Refusal>,
    pub peer_writes: Result<(), Refusal>,
}

/// One side of a greeting under way.
#[derive(Debug)]
pub(crate) struct Handshake {
    us: Us,
    grant: Limits,
    /// Taken when the greeting succeeds.
    socket: Option<OwnedFd>,
    who: Credentials,
    /// From the kernel; `None` before Linux 6.5.
    pidfd: Option<OwnedFd>,
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
    /// Accepting: whoever connected may not, and is told so without being heard.
    Refusing(Box<(Refuse, Error)>),
    /// Accepting: nothing was said yet.
    AwaitHello,
    /// Connecting: Hello is sent.
    AwaitWelcome,
    /// Accepting: Welcome is sent.
    AwaitProof(Box<Half>),
    /// Connecting: Proof is sent.
    AwaitReady(Box<Half>),
    /// It succeeded or failed.
    Over,
}

/// What is known half-way.
#[derive(Debug)]
struct Half {
    peer: Introduction,
    mapping: SharedMapping,
    /// What we could do.
    ours: Proof,
    /// What the peer could do, if it has said so yet.
    theirs: Option<Verdict>,
    pidfd: Option<OwnedFd>,
}

/// What came in one packet.
struct Packet {
    bytes: [u8; hello::MESSAGE_MAX],
    len: usize,
    fds: Vec<OwnedFd>,
}

enum Moved {
    /// Nothing has come.
    Waiting,
    On,
    Done(Box<Established>),
}

impl Handshake {
    /// Connects to `address` and says hello. The whole greeting has `patience_ns`.
    ///
    /// # Errors
    /// [`Error::NameGone`] if nobody listens there; [`Error::NotAllowed`] if a directory is not
    /// safe, the socket is not for this user, or another user serves it;
    /// [`Error::BadAddress`] if there is no such user; [`Error::Os`].
    pub(crate) fn connect(
        address: &Address,
        us: &Us,
        grant: Limits,
        now_ns: u64,
        patience_ns: u64,
    ) -> Result<Handshake> {
        Handshake::connect_in(&Places::from_env(), address, us, grant, now_ns, patience_ns)
    }

    /// As [`Handshake::connect`], in these places.
    pub(crate) fn connect_in(
        places: &Places,
        address: &Address,
        us: &Us,
        grant: Limits,
        now_ns: u64,
        patience_ns: u64,
    ) -> Result<Handshake> {
        let name = address.to_string();
        let socket =
            socket::unconnected().map_err(|error| Error::os("socket", name.as_str(), error))?;
        let mut trouble = None;
        for candidate in places.candidates(address)? {
            let directory = match Directory::open(&candidate.path, candidate.owner, candidate.kind)
            {
                Ok(Some(directory)) => directory,
                Ok(None) => continue,
                Err(error) => {
                    trouble.get_or_insert(error);
                    continue;
                }
            };
            match dial(&socket, &directory, address) {
                Err(Error::NameGone { .. }) => {}
                Err(error) => {
                    trouble.get_or_insert(error);
                }
                Ok(connected) => {
                    let owner = candidate.owner;
                    let retry_ns = now_ns.saturating_add(RETRY_NS);
                    let mut greeting = Handshake {
                        us: us.clone(),
                        grant,
                        socket: Some(socket),
                        // Until the kernel says more.
                        who: Credentials { pid: 0, uid: owner, gid: u32::MAX },
                        pidfd: None,
                        address: Some(address.clone()),
                        target: Target::new()
                            .map_err(|errno| Error::os("getrandom", "a nonce", errno))?,
                        patience_ns,
                        deadline_ns: now_ns.saturating_add(patience_ns),
                        state: State::Dialling { directory, owner, retry_ns },
                    };
                    if connected {
                        greeting.say_hello(owner)?;
                    }
                    return Ok(greeting);
                }
            }
        }
        Err(trouble.unwrap_or(Error::NameGone { name }))
    }

    /// Takes up a connection that came in. The peer has 10 s for its part; one that is not
    /// admitted is turned away by the first step, which is due at once.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn accepted(
        socket: OwnedFd,
        who: Credentials,
        access: &Access,
        us: &Us,
        grant: Limits,
        room: bool,
        peers_max: u64,
        now_ns: u64,
    ) -> Handshake {
        let admitted = admit(&socket, &who, access, room, peers_max);
        let (target, admitted) = match Target::new() {
            Ok(target) => (target, admitted),
            Err(errno) => {
                let refuse = Refuse::Exhausted { errno: errno.raw_os_error() };
                let error = Error::os("getrandom", "a nonce", errno);
                (Target::blank(), admitted.and(Err((refuse, error))))
            }
        };
        Handshake {
            us: us.clone(),
            grant,
            who,
            pidfd: socket::peer_pidfd(&socket).ok(),
            socket: Some(socket),
            address: None,
            target,
            patience_ns: PATIENCE_NS,
            deadline_ns: now_ns.saturating_add(PATIENCE_NS),
            state: match admitted {
                Ok(()) => State::AwaitHello,
                Err(refused) => State::Refusing(Box::new(refused)),
            },
        }
    }

    /// The socket, to be watched for reading. It stays the same from the beginning, and is
    /// [`Established::socket`] in the end.
    ///
    /// # Panics
    /// After a step that returned [`Established`].
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("the greeting is over and its socket handed out").as_fd()
    }

    /// When to take a step even if nothing came.
    pub(crate) fn deadline_ns(&self) -> u64 {
        match self.state {
            State::Dialling { retry_ns, .. } => self.deadline_ns.min(retry_ns),
            State::Refusing(_) => 0,
            _ => self.deadline_ns,
        }
    }

    /// Goes on as far as what has come allows. `None` means that it is not over.
    ///
    /// # Errors
    /// The greeting failed, and so will every later step: refused ([`Error::NotAllowed`],
    /// [`Error::VersionMismatch`], [`Error::LimitReached`]), the peer gone or misbehaving
    /// ([`Error::PeerGone`]), out of time ([`Error::Timeout`] if we connected), [`Error::Os`].
    pub(crate) fn step(&mut self, now_ns: u64) -> Result<Option<Box<Established>>> {
        loop {
            match self.advance(now_ns)? {
                Moved::On => {}
                Moved::Done(established) => return Ok(Some(established)),
                Moved::Waiting if now_ns < self.deadline_ns => return Ok(None),
                Moved::Waiting => {
                    self.state = State::Over;
                    return Err(match self.address {
                        Some(_) => {
                            Error::Timeout(std::time::Duration::from_nanos(self.patience_ns))
                        }
                        None => self.misbehaved("it did not greet in time"),
                    });
                }
            }
        }
    }

    /// One state further, if what it waits for has come. An error leaves it over.
    fn advance(&mut self, now_ns: u64) -> Result<Moved> {
        if let State::Dialling { retry_ns, .. } = self.state {
            if now_ns < retry_ns && now_ns < self.deadline_ns {
                // A socket that is not connected always has news; let others go first.
                std::thread::yield_now();
                return Ok(Moved::Waiting);
            }
            return self.dial_again(now_ns);
        }
        if let State::Refusing(_) = self.state {
            // A greeting left unread would reset the connection.
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
                return Err(error);
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

    fn dial_again(&mut self, now_ns: u64) -> Result<Moved> {
        let (State::Dialling { directory, owner, .. }, Some(address)) =
            (mem::replace(&mut self.state, State::Over), &self.address)
        else {
            return Err(Error::Closed);
        };
        if dial(self.fd(), &directory, address)? {
            self.say_hello(owner)?;
            return Ok(Moved::On);
        }
        let retry_ns = now_ns.saturating_add(RETRY_NS);
        self.state = State::Dialling { directory, owner, retry_ns };
        Ok(Moved::Waiting)
    }

    /// Connecting: finds out who listens, and introduces us.
    fn say_hello(&mut self, owner: u32) -> Result<()> {
        self.who = socket::peer_credentials(self.fd())
            .map_err(|error| Error::os("getsockopt", self.peer(), error))?;
        if self.who.uid != owner {
            return Err(Error::NotAllowed {
                name: self.peer(),
                why: format!(
                    "{} listens there, not {}; have that process stopped",
                    describe(self.who.uid),
                    describe(owner)
                ),
            });
        }
        self.pidfd = socket::peer_pidfd(self.fd()).ok();
        match self.send(&hello::encode_hello(&self.introduction()), &[]) {
            // It closed between our connecting and now, perhaps with a word of why.
            Err(Error::PeerGone { peer, .. }) => {
                let last = self.receive(0).ok().flatten();
                return Err(match last.map(|packet| hello::decode_answer(packet.bytes())) {
                    Some(Ok(Answer::Refused(why))) => self.refused(why),
                    _ => Error::NameGone { name: peer },
                });
            }
            sent => sent?,
        }
        self.state = State::AwaitWelcome;
        Ok(())
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
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(Errno::NOMEM.raw_os_error());
                let error = Error::os("memfd_create", "a segment", error);
                return Err(self.refuse(Refuse::Exhausted { errno }, error));
            }
        };
        let ours = self.attempt(&peer);
        let own = process::self_pidfd().ok();
        let mut fds = vec![segment.as_fd()];
        fds.extend(own.as_ref().map(AsFd::as_fd));
        self.send(&hello::encode_welcome(&self.introduction(), &ours), &fds)?;
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
        let ours = self.attempt(&peer);
        let own = process::self_pidfd().ok();
        let own: Vec<_> = own.iter().map(AsFd::as_fd).collect();
        self.send(&hello::encode_proof(&ours, &theirs), &own)?;
        let half = Half { peer, mapping, ours, theirs: Some(theirs), pidfd: fds.next() };
        self.state = State::AwaitReady(Box::new(half));
        Ok(Moved::On)
    }

    /// Accepting: takes Proof, sends Ready, and is done.
    fn on_proof(&mut self, packet: Packet, mut half: Half) -> Result<Moved> {
        let (proof, on_ours) = hello::decode_proof(packet.bytes()).map_err(|why| self.bad(why))?;
        let theirs = self.target.judge(&proof);
        half.theirs = Some(theirs);
        half.pidfd = packet.fds.into_iter().next();
        self.send(&hello::encode_ready(&theirs), &[])?;
        self.establish(half, &on_ours, Side::Accepting)
    }

    /// Connecting: takes Ready, and is done.
    fn on_ready(&mut self, packet: &Packet, half: Half) -> Result<Moved> {
        let on_ours = hello::decode_ready(packet.bytes()).map_err(|why| self.bad(why))?;
        self.establish(half, &on_ours, Side::Connecting)
    }

    fn establish(&mut self, half: Half, on_ours: &Verdict, side: Side) -> Result<Moved> {
        let Half { peer, mapping, ours, theirs, pidfd } = half;
        let pidfd = self.settle_pidfd(pidfd)?;
        let socket = self.socket.take().ok_or(Error::Closed)?;
        let off = if !self.us.paths.contains(Path::Cma) {
            Err(Refusal::SwitchedOff)
        } else if !peer.paths.contains(Path::Cma) {
            Err(Refusal::SwitchedOffByPeer)
        } else {
            Ok(())
        };
        // What the peer calls switched off here, it has switched off itself.
        let by_peer = |said: Result<(), Refusal>| match said {
            Err(Refusal::SwitchedOff) => Err(Refusal::SwitchedOffByPeer),
            said => said,
        };
        let not_said =
            Verdict { read: Err(Refusal::SwitchedOff), write: Err(Refusal::SwitchedOff) };
        let theirs = theirs.unwrap_or(not_said);
        let paths = peer.paths.iter().filter(|&path| self.us.paths.contains(path));
        let established = Box::new(Established {
            side,
            mapping,
            socket,
            pidfd,
            pid: self.who.pid,
            uid: self.who.uid,
            label: peer.label,
            endpoint_id: peer.endpoint_id,
            address: self.address.take(),
            paths: paths.fold(PathSet::none(), PathSet::with),
            barrier_global: peer.barrier_global,
            granted: peer.limits,
            we_read: off.and(ours.read.and(by_peer(on_ours.read))),
            we_write: off.and(ours.write.and(by_peer(on_ours.write))),
            peer_reads: off.and(by_peer(theirs.read)),
            peer_writes: off.and(by_peer(theirs.write)),
        });
        tracing::debug!(
            peer = %established.label,
            pid = established.pid,
            we_read = ?established.we_read,
            we_write = ?established.we_write,
            peer_reads = ?established.peer_reads,
            peer_writes = ?established.peer_writes,
            "connected"
        );
        Ok(Moved::Done(established))
    }

    /// The kernel's pidfd if it gave one; else the one that was passed, if it names the process
    /// the kernel named; else one for that process id.
    fn settle_pidfd(&mut self, passed: Option<OwnedFd>) -> Result<OwnedFd> {
        if let Some(pidfd) = self.pidfd.take() {
            return Ok(pidfd);
        }
        if let Some(pidfd) = passed {
            if process::pidfd_pid(pidfd.as_fd()) == Some(self.who.pid) {
                return Ok(pidfd);
            }
        }
        process::pidfd_open(self.who.pid).map_err(|error| match error.raw_os_error() {
            Some(errno) if errno == Errno::SRCH.raw_os_error() && self.who.pid != 0 => {
                Error::PeerGone { peer: self.peer(), how: Gone::Died }
            }
            _ => Error::os("pidfd_open", self.peer(), error),
        })
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

    fn attempt(&self, peer: &Introduction) -> Proof {
        if !self.us.paths.contains(Path::Cma) || !peer.paths.contains(Path::Cma) {
            return proof::NOT_TRIED;
        }
        proof::attempt(&Subject {
            pid: self.who.pid,
            uid: self.who.uid,
            pidfd: self.pidfd.as_ref().map(AsFd::as_fd),
            nonce_addr: peer.nonce_addr,
            scratch_addr: peer.scratch_addr,
            mark: peer.mark,
        })
    }

    fn map_segment(&self, segment: BorrowedFd<'_>) -> Result<SharedMapping> {
        memfd::check_sealed(segment, SEGMENT_BYTES).map_err(|why| match why {
            SealError::Os(source) => Error::os("fstat", "the segment", source),
            SealError::Unsealed => self.misbehaved("its segment is not sealed"),
            SealError::Size { .. } => self.misbehaved("its segment has the wrong size"),
            _ => self.misbehaved("its segment is not a memfd"),
        })?;
        SharedMapping::map(segment, SEGMENT_BYTES).map_err(|error| {
            match Errno::from_io_error(&error) {
                Some(Errno::ACCESS | Errno::PERM) => {
                    self.misbehaved("its segment cannot be written")
                }
                _ => Error::os("mmap", "the segment", error),
            }
        })
    }

    /// The next packet, if one has come.
    fn receive(&self, fds_max: usize) -> Result<Option<Packet>> {
        let mut bytes = [0; hello::MESSAGE_MAX];
        let mut take = || socket::recv(self.fd(), &mut bytes, fds_max);
        // A peer that closed before it read all we sent resets; what it said before still comes.
        let got = match take() {
            Err(error) if is(&error, Errno::CONNRESET) => take(),
            got => got,
        };
        let got = match got {
            Ok(got) => got,
            Err(error) if is(&error, Errno::AGAIN) => return Ok(None),
            Err(error) if is(&error, Errno::CONNRESET) => return Err(self.gone()),
            Err(error) => return Err(Error::os("recvmsg", self.peer(), error)),
        };
        if got.truncated && got.len < bytes.len() && got.fds.len() < fds_max {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
            return Err(Error::LimitReached {
                what: "the number of descriptors this process may have open",
                limit: limit.unwrap_or(u64::MAX),
                remedy: "raise it (ulimit -n), or close some",
            });
        }
        if got.truncated {
            return Err(self.misbehaved("a greeting is too long or has too many descriptors"));
        }
        if got.len == 0 {
            return Err(self.gone());
        }
        Ok(Some(Packet { bytes, len: got.len, fds: got.fds }))
    }

    fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        socket::send(self.fd(), message, fds).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::PIPE | Errno::CONNRESET) => self.gone(),
            _ => Error::os("sendmsg", self.peer(), error),
        })
    }

    /// Tells the peer why it is refused, and passes `error` on. The socket closes with `self`.
    fn refuse(&self, why: Refuse, error: Error) -> Error {
        tracing::debug!(peer = %self.peer(), %error, "refused");
        // If it does not get there, the peer sees the socket close.
        let _ = self.send(&hello::encode_refuse(&why), &[]);
        error
    }

    /// The listening side refused us.
    fn refused(&self, why: Refuse) -> Error {
        match why {
            Refuse::NotAdmitted { owner, user, users, groups } => Error::NotAllowed {
                name: self.peer(),
                why: format!(
                    "the access rule there admits {}, {users} other users and {groups} groups, \
                     not {}; have its owner add .user({user}) to the rule",
                    describe(owner),
                    describe(user)
                ),
            },
            Refuse::Version { min, max } => self.version_mismatch(min, max),
            Refuse::Full { peers_max } => Error::LimitReached {
                what: "the number of peers of the listening endpoint",
                limit: peers_max,
                remedy: "raise peers_max there, or disconnect a peer",
            },
            Refuse::Exhausted { errno } => Error::Os {
                call: "memfd_create",
                on: format!("a segment, by the process listening at {}", self.peer()),
                source: io::Error::from_raw_os_error(errno),
            },
        }
    }

    fn version_mismatch(&self, theirs_min: u32, theirs_max: u32) -> Error {
        Error::VersionMismatch {
            peer: self.peer(),
            ours_min: hello::VERSION,
            ours_max: hello::VERSION,
            theirs_min,
            theirs_max,
        }
    }

    fn gone(&self) -> Error {
        let dead = self.pidfd.as_ref().is_some_and(|pidfd| !process::pidfd_alive(pidfd));
        let how = if dead { Gone::Died } else { Gone::Closed };
        Error::PeerGone { peer: self.peer(), how }
    }

    fn bad(&self, why: Malformed) -> Error {
        self.misbehaved(why.0)
    }

    fn misbehaved(&self, how: &'static str) -> Error {
        Error::PeerGone { peer: self.peer(), how: Gone::Misbehaved(how) }
    }

    /// The peer, for messages.
    fn peer(&self) -> String {
        match &self.address {
            Some(address) => address.to_string(),
            None => peer_name(&self.who),
        }
    }
}

impl Packet {
    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

fn peer_name(who: &Credentials) -> String {
    format!("process {} of user {}", who.pid, who.uid)
}

/// Whether whoever connected may, and what it will be told if not.
fn admit(
    socket: &OwnedFd,
    who: &Credentials,
    access: &Access,
    room: bool,
    peers_max: u64,
) -> Result<(), (Refuse, Error)> {
    let owner = pinfold_sys::user::uid();
    if let Err(why) = access.admits(owner, who, &socket::peer_groups(socket)) {
        let (users, groups) = access.counts();
        let refuse = Refuse::NotAdmitted { owner, user: who.uid, users, groups };
        return Err((refuse, Error::NotAllowed { name: peer_name(who), why }));
    }
    if !room {
        let error = Error::LimitReached {
            what: "the number of peers of this endpoint",
            limit: peers_max,
            remedy: "raise peers_max, or disconnect a peer",
        };
        return Err((Refuse::Full { peers_max }, error));
    }
    Ok(())
}

/// Connects; `false` if the listener's queue is full.
fn dial(socket: impl AsFd, directory: &Directory, address: &Address) -> Result<bool> {
    let Err(error) = socket::dial(socket, &directory.reach(address.name())) else {
        return Ok(true);
    };
    let refused = |why| Err(Error::NotAllowed { name: address.to_string(), why });
    let file = || format!("{}/{}", directory.name(), address.name());
    match Errno::from_io_error(&error) {
        Some(Errno::AGAIN) => Ok(false),
        Some(Errno::NOENT | Errno::CONNREFUSED) => {
            Err(Error::NameGone { name: address.to_string() })
        }
        Some(Errno::ACCESS | Errno::PERM) => refused(format!(
            "{} is not for this user; have its owner listen with an access rule that admits {}",
            file(),
            describe(pinfold_sys::user::uid())
        )),
        Some(Errno::PROTOTYPE) => {
            refused(format!("{} is not Pinfold's; have its owner stopped", file()))
        }
        _ => Err(Error::os("connect", file(), error)),
    }
}

fn make_segment() -> io::Result<(OwnedFd, SharedMapping)> {
    let segment = memfd::create_sealed("pinfold", SEGMENT_BYTES)?;
    let mapping = SharedMapping::map(segment.as_fd(), SEGMENT_BYTES)?;
    Ok((segment, mapping))
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
