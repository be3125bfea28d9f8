//! Messages that wait in their sender's memory: how they come once a receive has matched.
//!
//! Where the pair may, the receiver reads them out (`process_vm_readv`). A long one is copied by
//! both sides at once: each claims chunks from its own end until they meet, so that two cores
//! copy, and a sender that does not run delays nothing. Where only the sender may reach the
//! receiver, the sender writes all of it. Where neither may, it comes through the ring.

use pinfold_sys::{clock, process};

use super::{
    core::Core,
    op::{Arrived, Bytes, OpKey, Pull, Pushing, RecvStage, SendStage, SharedPull, gone},
    peer::{Inbound, Peer, Sink},
};
use crate::{
    Error, Path,
    endpoint::scatter::{Landing, Remote},
    failpoint::{self, Point},
    link::shm::{
        claim::{self, End},
        ring::Violation,
    },
    wire::descriptor::{Cts, Fin, Kind, Place, Push, Wrote},
};

/// Messages at least this long are copied by both sides.
const SHARED_FROM: u64 = 64 << 10;
/// Bytes one side copies alone before it looks at anything else.
const ALONE_STEP: u64 = 1 << 20;

/// The chunk that both sides claim, as an exponent: large enough that a claim (a cache-line hop or
/// two) is small beside it, small enough that both ends finish together.
fn chunk_shift(len: u64) -> u8 {
    match len {
        0..0x4_0000 => 15,
        0x4_0000..0x10_0000 => 16,
        0x10_0000..0x100_0000 => 17,
        _ => 19,
    }
}

fn errno_of(error: &std::io::Error) -> u32 {
    error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()).unsigned_abs()
}

impl Core {
    /// Makes memory for a message of `len` bytes, if its receive brought none.
    pub(crate) fn make_room(&mut self, key: OpKey, len: u64) {
        let Some(op) = self.ops.recv_mut(key) else { return };
        if !op.as_message {
            return;
        }
        match Landing::new(len) {
            Some((own, memory)) => {
                op.own = Some(own);
                op.memory = memory;
            }
            None => self.finish(
                key,
                Err(Error::LimitReached {
                    what: "the memory for one message, in bytes,",
                    limit: len,
                    remedy: "receive it in parts, or into memory of your own",
                }),
            ),
        }
    }

    /// The first `written` bytes of the memory made for a receive, if some was.
    #[allow(unsafe_code)]
    pub(crate) fn own_bytes(&mut self, key: OpKey, written: u64) -> Option<Box<Bytes>> {
        let op = self.ops.recv_mut(key)?;
        let own = op.own.take()?;
        op.memory = crate::endpoint::scatter::Scatter::empty();
        // SAFETY: streams and pulls report only bytes that they have written, from the start on.
        Some(Box::new(Bytes::from_vec(unsafe { own.into_bytes(written) })))
    }

    /// A receive matched message `sid` of the peer, which is still in the peer's memory.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn fetch(
        &mut self,
        peer: &mut Peer,
        key: OpKey,
        sid: u32,
        tag: u64,
        len: u64,
        place: Place,
        stream: bool,
    ) -> Result<(), Violation> {
        self.make_room(key, len);
        let Some(op) = self.ops.recv_mut(key) else {
            // No memory for it: the sender is told, the receiver knows.
            self.fin(peer, sid, rustix::io::Errno::NOMEM.raw_os_error().unsigned_abs(), 0);
            return Ok(());
        };
        let want = len.min(op.memory.len());
        if !stream && (peer.we_read || peer.peer_writes) {
            let to = op.memory.place();
            if let Some(pull) = self.begin_pull(peer, sid, tag, len, want, place, to) {
                if let Some(op) = self.ops.recv_mut(key) {
                    op.stage = RecvStage::Pulling(Box::new(pull));
                }
                self.pulls.push_back(key);
                return self.pull_step(peer, key).map(|_| ());
            }
        }
        if peer.inbound_at(sid).is_some() {
            return Err(Violation("it began a stream twice"));
        }
        if want == 0 {
            self.fin(peer, sid, 0, 0);
            self.complete(key, peer, tag, len, 0);
            return Ok(());
        }
        op_stage(self, key, RecvStage::Streaming { peer: peer.id });
        peer.inbound.push(Inbound {
            sid,
            tag,
            len,
            end: want,
            got: 0,
            copied: 0,
            sink: Sink::Op(key),
            cost: 0,
            started: clock::ticks(),
        });
        failpoint::hit(Point::BeforeStreamAnswer);
        self.answer(peer, Kind::Cts, sid, &Cts::Stream { want }.body());
        failpoint::hit(Point::AfterStreamAnswer);
        Ok(())
    }

    /// Decides who copies what, and asks the sender for its part. `None`: the pair cannot.
    #[allow(clippy::too_many_arguments)]
    fn begin_pull(
        &mut self,
        peer: &mut Peer,
        sid: u32,
        tag: u64,
        len: u64,
        want: u64,
        place: Place,
        to: Place,
    ) -> Option<Pull> {
        let reads = peer.we_read;
        let started = clock::ticks();
        let mut errno = 0;
        let remote = match Remote::fetch(peer.info.pid, place, len) {
            Ok(remote) => remote,
            // A sender that cannot be read writes all of it, and needs no list of its parts here.
            Err(_) if !reads => Remote::none(),
            Err(error) => {
                errno = errno_of(&error);
                Remote::none()
            }
        };
        let mut shared = None;
        let helps = if reads {
            !peer.two_way.pull(started) && want >= SHARED_FROM
        } else {
            // A sender that writes all of it must not need to read the list of our parts.
            want > 0 && to.parts <= 1
        };
        if errno == 0 && peer.peer_writes && helps {
            let shift = chunk_shift(want);
            let chunks = want.div_ceil(1 << shift);
            if chunks <= claim::CHUNKS_MAX
                && let Some((line, generation)) = peer.take_claim()
            {
                claim::open(peer.rx.claim_word(line), generation);
                let push = Push { want, place: to, claim: line, generation, chunk_shift: shift };
                failpoint::hit(Point::BeforePushAnswer);
                self.answer(peer, Kind::Cts, sid, &Cts::Push(push).body());
                failpoint::hit(Point::AfterPushAnswer);
                shared = Some(SharedPull {
                    claim: line,
                    generation,
                    chunks,
                    chunk_shift: shift,
                    mine: 0,
                    theirs: None,
                    wrote: None,
                });
            }
        }
        if !reads && shared.is_none() && want > 0 {
            return None;
        }
        Some(Pull {
            peer: peer.id,
            sid,
            tag,
            len,
            want,
            remote,
            copied: 0,
            started,
            shared,
            reads,
            errno,
        })
    }

    /// Copies the next part of a pull. Whether it did anything.
    pub(crate) fn pull_step(&mut self, peer: &mut Peer, key: OpKey) -> Result<bool, Violation> {
        let Some(op) = self.ops.recv_mut(key) else { return Ok(false) };
        let RecvStage::Pulling(_) = &op.stage else { return Ok(false) };
        let RecvStage::Pulling(mut pull) = std::mem::replace(&mut op.stage, RecvStage::Moving)
        else {
            return Ok(false);
        };
        let mut moved = false;
        let pid = peer.info.pid;
        let range = match &mut pull.shared {
            None if pull.errno == 0 && pull.copied < pull.want => {
                Some((pull.copied, (pull.want - pull.copied).min(ALONE_STEP)))
            }
            None => None,
            Some(shared) if shared.theirs.is_none() => {
                let word = peer.rx.claim_word(shared.claim);
                let taken = if pull.reads && pull.errno == 0 {
                    claim::take(word, shared.generation, shared.chunks, End::Front)
                } else {
                    None
                };
                match taken {
                    Some(chunk) => {
                        failpoint::hit(Point::ChunkClaimed);
                        let at = chunk << shared.chunk_shift;
                        if at >= pull.want {
                            return Err(Violation("it tampered with a shared transfer"));
                        }
                        shared.mine += 1;
                        Some((at, (pull.want - at).min(1 << shared.chunk_shift)))
                    }
                    None if pull.reads || pull.errno != 0 => {
                        shared.theirs = Some(claim::close(word, shared.generation));
                        None
                    }
                    // The sender does it all, and says when.
                    None => {
                        if shared.wrote.is_some() {
                            shared.theirs = Some(claim::close(word, shared.generation));
                        }
                        None
                    }
                }
            }
            Some(_) => None,
        };
        if let Some((at, len)) = range {
            moved = true;
            let mut done = 0;
            while done < len {
                match op.memory.pull(at + done, pid, &pull.remote, len - done) {
                    Ok(bytes) => done += bytes,
                    Err(error) => {
                        pull.errno = errno_of(&error);
                        break;
                    }
                }
            }
            failpoint::hit(Point::ChunkRead);
            pull.copied += done;
        }
        let over = match &pull.shared {
            None => pull.errno != 0 || pull.copied == pull.want,
            Some(shared) => match (shared.theirs, shared.wrote) {
                (Some(0), None) => true,
                (Some(theirs), Some(wrote)) => {
                    if u64::from(wrote) != theirs
                        || pull.errno == 0 && shared.mine + theirs != shared.chunks
                    {
                        return Err(Violation("it tampered with a shared transfer"));
                    }
                    true
                }
                _ => false,
            },
        };
        if over {
            self.end_pull(peer, key, *pull);
            return Ok(true);
        }
        op.stage = RecvStage::Pulling(pull);
        Ok(moved)
    }

    /// Stops every pull from a peer that is being let go: nothing more can be claimed. Whether the
    /// peer may still be writing what it had claimed.
    pub(crate) fn stop_pulls(&mut self, peer: &mut Peer) -> bool {
        let mut writing = false;
        for key in &self.pulls {
            if let Some(op) = self.ops.recv_mut(*key)
                && let RecvStage::Pulling(pull) = &mut op.stage
                && pull.peer == peer.id
                && let Some(shared) = &mut pull.shared
            {
                if shared.theirs.is_none() {
                    let word = peer.rx.claim_word(shared.claim);
                    shared.theirs = Some(claim::close(word, shared.generation));
                }
                pull.errno = rustix::io::Errno::CONNRESET.raw_os_error().unsigned_abs();
                writing |= pull.awaits_sender();
            }
        }
        writing
    }

    /// Ends a pull: tells both sides.
    fn end_pull(&mut self, peer: &mut Peer, key: OpKey, pull: Pull) {
        if let Some(shared) = pull.shared {
            peer.give_claim(shared.claim);
        }
        self.pulls.retain(|other| *other != key);
        if let Some(how) = peer.leaving {
            self.finish(key, Err(gone(&peer.info.name, how)));
            return;
        }
        // The sender closed in mid-transfer: what was read may be no more what it sent.
        if peer.rx.is_closed() {
            op_stage(self, key, RecvStage::Streaming { peer: peer.id });
            return;
        }
        if pull.errno != 0 {
            // A peer that died in mid-transfer is reported as that, when its end is noticed.
            if pull.errno == rustix::io::Errno::SRCH.raw_os_error().unsigned_abs()
                && !process::pidfd_alive(&peer.pidfd)
            {
                op_stage(self, key, RecvStage::Streaming { peer: peer.id });
                return;
            }
            self.fin(peer, pull.sid, pull.errno, 0);
            let source = std::io::Error::from_raw_os_error(pull.errno as i32);
            let error = Error::Transfer { peer: peer.info.name.clone(), source };
            self.finish(key, Err(error));
            return;
        }
        let ns = peer.pull_lap_ns(pull.started);
        self.fin(peer, pull.sid, 0, ns.max(1));
        let mut receipt = peer.receipt(Path::Cma, pull.want, pull.len);
        receipt.copied_kernel = pull.copied;
        let bytes = self.own_bytes(key, pull.want);
        self.arrive(key, Arrived { peer: peer.id, tag: pull.tag, len: pull.len, receipt, bytes });
    }

    fn fin(&mut self, peer: &mut Peer, sid: u32, errno: u32, took_ns: u64) {
        failpoint::hit(Point::BeforeFin);
        let fin = Fin { errno, took_ns, cancelled: false };
        self.answer(peer, Kind::Fin, sid, &fin.body());
        failpoint::hit(Point::AfterFin);
    }

    /// The sender has written its chunks.
    pub(crate) fn wrote(
        &mut self,
        peer: &mut Peer,
        sid: u32,
        wrote: Wrote,
    ) -> Result<(), Violation> {
        let key = self.pulls.iter().copied().find(|key| {
            matches!(
                self.ops.get(*key).map(|op| &op.kind),
                Some(super::op::OpKind::Recv(super::op::RecvOp { stage: RecvStage::Pulling(pull), .. }))
                    if pull.peer == peer.id && pull.sid == sid
            )
        });
        // Its report may come after the receiver had claimed all there was.
        let Some(key) = key else { return Ok(()) };
        if let Some(op) = self.ops.recv_mut(key)
            && let RecvStage::Pulling(pull) = &mut op.stage
            && let Some(shared) = &mut pull.shared
        {
            if shared.wrote.replace(wrote.chunks).is_some() {
                return Err(Violation("it reported its part twice"));
            }
            if wrote.errno != 0 {
                pull.errno = wrote.errno;
            }
        }
        self.pull_step(peer, key).map(|_| ())
    }

    /// The receiver of one of our messages asks us to copy, alone or beside it.
    pub(crate) fn begin_push(
        &mut self,
        peer: &mut Peer,
        key: OpKey,
        push: Push,
    ) -> Result<(), Violation> {
        let sid = key.index;
        let Some(op) = self.ops.send_mut(key) else { return Ok(()) };
        if push.claim >= crate::wire::layout::CLAIMS
            || !(12..=30).contains(&push.chunk_shift)
            || push.want > op.memory.len()
        {
            return Err(Violation("it asked for a copy that makes no sense"));
        }
        match Remote::fetch(peer.info.pid, push.place, push.want) {
            Ok(remote) => {
                op.stage = SendStage::Pushing(Box::new(Pushing {
                    want: push.want,
                    remote,
                    claim: push.claim,
                    generation: push.generation,
                    chunk_shift: push.chunk_shift,
                    done: 0,
                    copied: 0,
                }));
                self.pushes.push_back(key);
            }
            // The list of its parts cannot be read here. A receiver that can read goes on alone.
            Err(error) => {
                tracing::debug!(%error, "a peer's list of parts cannot be read");
                op.stage = SendStage::Pushed { copied: 0 };
                self.answer(peer, Kind::Wrote, sid, &Wrote { errno: 0, chunks: 0 }.body());
            }
        }
        Ok(())
    }

    /// Writes the next chunk of a push. Whether it did anything.
    pub(crate) fn push_step(&mut self, peer: &mut Peer, key: OpKey) -> bool {
        let pid = peer.info.pid;
        let Some(op) = self.ops.send_mut(key) else { return false };
        let SendStage::Pushing(pushing) = &mut op.stage else { return false };
        let chunks = pushing.want.div_ceil(1 << pushing.chunk_shift);
        let word = peer.tx.claim_word(pushing.claim);
        let taken = claim::take(word, pushing.generation, chunks, End::Back);
        let mut errno = 0;
        if let Some(chunk) = taken
            && let Some(index) = chunks.checked_sub(chunk + 1)
        {
            let at = index << pushing.chunk_shift;
            let len = (pushing.want - at).min(1 << pushing.chunk_shift);
            let mut done = 0;
            // The kernel knows the receiver by a number that another process gets one day; and a
            // receiver that closed wants its memory back.
            if !process::pidfd_alive(&peer.pidfd) || peer.rx.is_closed() {
                errno = rustix::io::Errno::SRCH.raw_os_error().unsigned_abs();
            }
            while errno == 0 && done < len {
                match op.memory.push(at + done, pid, &pushing.remote, len - done) {
                    Ok(bytes) => done += bytes,
                    Err(error) => errno = errno_of(&error),
                }
            }
            failpoint::hit(Point::ChunkWritten);
            pushing.done += 1;
            pushing.copied += done;
            if errno == 0 {
                return true;
            }
        }
        let (done, copied) = (pushing.done, pushing.copied);
        op.stage = SendStage::Pushed { copied };
        failpoint::hit(Point::BeforeWrote);
        // A receiver that claimed everything itself may be done already and ignores this.
        self.answer(peer, Kind::Wrote, key.index, &Wrote { errno, chunks: done }.body());
        failpoint::hit(Point::AfterWrote);
        true
    }
}

fn op_stage(core: &mut Core, key: OpKey, stage: RecvStage) {
    if let Some(op) = core.ops.recv_mut(key) {
        op.stage = stage;
    }
}
