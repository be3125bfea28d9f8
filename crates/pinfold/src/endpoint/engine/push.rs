//! The sender's part in a message that is copied out of its memory: it writes chunks from the back,
//! as far as it can claim them (`process_vm_writev`).

use super::{
    core::Core,
    fetch::errno_of,
    op::{OpKey, Pushing, SendStage},
    peer::Peer,
};
use crate::{
    endpoint::scatter::Remote,
    failpoint::{self, Point},
    link::shm::{
        claim::{self, End},
        ring::Violation,
    },
    wire::descriptor::{Kind, Push, Wrote},
};

impl Core {
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
            if !peer.reach.is_alive() || peer.rx.is_closed() {
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
