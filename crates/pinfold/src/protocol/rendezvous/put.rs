//! The sender's part in a message that is copied out of its memory: it writes chunks from the back,
//! as far as it can claim them.
//!
//! Where the receiver's memory lies in an arena that is mapped here writable, the sender copies the
//! chunks there; else the kernel does (`process_vm_writev`). Where neither is possible, or memory
//! that should be present is missing, the sender reports that, and the receiver gets the message in
//! another way.

use std::sync::Arc;

use pinfold_sys::mem::presence::Touch;
use rustix::io::Errno;

use crate::{
    Path,
    copy::Largest,
    failpoint::{self, Point},
    memory::imported_extents::ImportedExtents,
    protocol::{
        rendezvous::{
            copies,
            copy_job::Direction,
            put_part::{self, Stop, Went},
        },
        rma::cma::{Way, is_denial},
    },
    transport::shm::{
        claim::{self, End},
        ring::Violation,
    },
    wire::{
        descriptor::Kind,
        rendezvous::{By, Exported, Put, Wrote},
    },
    worker::{
        answers,
        core::Core,
        extent_exchange,
        op::{Copied, OpKey, Putting, SendStage, There, Wakes},
        peer::Peer,
    },
};

/// Begins to copy one of our messages, as its receiver asks, alone or beside it.
pub(crate) fn begin_put(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
    push: Put,
) -> Result<(), Violation> {
    let Put { want, place, exported, claim, generation, chunk_shift } = push;
    let Some(op) = core.ops.send_mut(key) else { return Ok(()) };
    let sid = op.sid(key);
    if claim >= crate::wire::layout::CLAIMS
        || !(12..=30).contains(&chunk_shift)
        || want > op.memory.len()
    {
        return Err(Violation("it asked for a copy that makes no sense"));
    }
    // A sender that requires the kernel's path gets it.
    let exported = exported.filter(|_| op.required.is_none_or(|path| path == Path::Mapped));
    let mapped = match exported {
        Some(exported) => find_room(&mut core.wakes, &mut core.imported, peer, exported, want)?,
        None => None,
    };
    let writes = peer.cma_access.reaches(place);
    let to = mapped.or_else(|| {
        let remote = writes.then(|| peer.cma_access.find(place, want, Touch::Write))?;
        // The list of its parts cannot be read here, or not all of its memory is present. A
        // receiver that can read goes on alone.
        remote
            .inspect_err(|error| tracing::debug!(%error, "a peer's memory"))
            .ok()
            .map(There::Remote)
    });
    let Some(op) = core.ops.send_mut(key) else { return Ok(()) };
    let Some(to) = to else {
        op.stage = SendStage::PutDone(Copied::default());
        let by = if exported.is_some() { By::NoMapping } else { By::Kernel };
        let wrote = Wrote { errno: 0, chunks: 0, by, short: true };
        answers::answer(core, peer, Kind::Wrote, sid, &wrote.body());
        return Ok(());
    };
    op.stage = SendStage::Putting(Box::new(Putting {
        want,
        place,
        to,
        offered: exported.is_some(),
        claim,
        generation,
        chunk_shift,
        done: 0,
        copied: Copied::default(),
    }));
    core.puts.push_back(key);
    Ok(())
}

/// The receiver's memory as it is mapped here, if all of it is present.
fn find_room(
    wakes: &mut Wakes,
    imported: &mut ImportedExtents,
    peer: &mut Peer,
    exported: Exported,
    want: u64,
) -> Result<Option<There>, Violation> {
    let Exported { extent, offset } = exported;
    extent_exchange::await_extent(wakes, imported, peer, extent)?;
    let Some(mapping) = imported.get(peer.id, extent) else { return Ok(None) };
    if mapping.get_mut(offset, want).is_none() {
        return Err(Violation("it wants a message where its arena cannot be written"));
    }
    if !mapping.has_memory(offset, want) {
        return Ok(None);
    }
    Ok(Some(There::Mapped { mapping: Arc::clone(mapping), offset }))
}

/// Writes the next chunk of a push, or lends it. Returns whether it did anything.
pub(crate) fn put_step(core: &mut Core, peer: &mut Peer, key: OpKey) -> bool {
    if core.ops.is_lent(key) {
        return false;
    }
    let Some(op) = core.ops.send_mut(key) else { return false };
    let SendStage::Putting(putting) = &mut op.stage else { return false };
    let chunks = putting.chunks();
    let word = peer.tx.claim_word(putting.claim);
    let taken = claim::take(word, putting.generation, chunks, End::Back);
    let Some(index) = taken.and_then(|chunk| chunks.checked_sub(chunk + 1)) else {
        end_put(core, peer, key, None);
        return true;
    };
    let at = index << putting.chunk_shift;
    let len = (putting.want - at).min(1 << putting.chunk_shift);
    // A receiver that closed wants its memory back.
    let went = if peer.rx.is_closed() {
        Went::stopped(Stop::Errno(Errno::SRCH.raw_os_error().unsigned_abs()))
    } else {
        let (place, want) = (putting.place, putting.want);
        if core.is_shared && copies::is_lent(&op.memory, len) {
            let there = std::mem::replace(&mut putting.to, There::Lent);
            let direction = Direction::Put { place, want };
            copies::lend(core, peer, (key, there), (at, len), direction);
            return true;
        }
        let (from, copier) = ((&op.memory, at), &mut peer.copies_out);
        let (to, cma_access) = (&mut putting.to, &peer.cma_access);
        put_part::put_part(to, (place, want), cma_access, from, (at, len), copier)
    };
    let by = core.copies.take_largest();
    note_part(core, peer, key, went, by);
    true
}

/// A chunk of a push that was lent is back.
pub(crate) fn part_is_back(
    core: &mut Core,
    peer: &mut Peer,
    (key, there): (OpKey, There),
    went: Went,
    by: Largest,
) {
    if let Some(op) = core.ops.send_mut(key)
        && let SendStage::Putting(putting) = &mut op.stage
    {
        putting.to = there;
        note_part(core, peer, key, went, by);
    }
}

/// Notes what came of a chunk that was claimed, and tells the receiver.
fn note_part(core: &mut Core, peer: &mut Peer, key: OpKey, went: Went, by: Largest) {
    let Some(op) = core.ops.send_mut(key) else { return };
    let SendStage::Putting(putting) = &mut op.stage else { return };
    failpoint::hit(Point::ChunkWritten);
    let Went { user, kernel, stop } = went;
    putting.copied.user += user;
    putting.copied.kernel += kernel;
    putting.copied.by = putting.copied.by.and(by);
    // The chunk was claimed, whatever became of it; but one that could not be written
    // counts for nothing.
    putting.done += u32::from(stop != Some(Stop::Short));
    if let Some(stop) = stop {
        if let Stop::Errno(_) = stop {
            peer.note_withdrawn();
        }
        return end_put(core, peer, key, Some(stop));
    }
    let (word, by) = (peer.tx.report_word(putting.claim), putting.by());
    claim::report(word, putting.generation, putting.done, by);
    // Its receiver may be asleep by now, if nothing is left for it.
    let word = peer.tx.claim_word(putting.claim);
    if claim::is_exhausted(word, putting.generation, putting.chunks()) {
        end_put(core, peer, key, None);
    }
}

/// Ends a push: tells the receiver.
fn end_put(core: &mut Core, peer: &mut Peer, key: OpKey, stopped: Option<Stop>) {
    let Some(op) = core.ops.send_mut(key) else { return };
    let SendStage::Putting(putting) = &op.stage else { return };
    let (errno, short) = match stopped {
        None => (0, false),
        Some(Stop::Errno(errno)) => (errno, false),
        Some(Stop::Short) => (0, true),
    };
    let by = putting.by();
    let wrote = Wrote { errno, chunks: putting.done, by, short };
    let (copied, sid) = (putting.copied, op.sid(key));
    op.errno = errno;
    if is_denial(errno) && peer.cma_access.is_alive() {
        peer.withdraw(Way::WeWrite, errno);
    }
    op.stage = SendStage::PutDone(copied);
    failpoint::hit(Point::BeforeWrote);
    // A receiver that claimed everything itself may have finished already and ignores this.
    answers::answer(core, peer, Kind::Wrote, sid, &wrote.body());
    failpoint::hit(Point::AfterWrote);
}

impl Putting {
    /// The chunks of the message.
    fn chunks(&self) -> u64 {
        self.want.div_ceil(1 << self.chunk_shift)
    }

    /// The way in which the chunks are written.
    fn by(&self) -> By {
        match &self.to {
            There::Mapped { .. } | There::ExportedParts(_) => By::Mapping,
            There::Remote(_) | There::Lent if self.copied.user > 0 => By::Mapping,
            There::Remote(_) | There::Lent if self.offered => By::NoMapping,
            There::Remote(_) | There::Lent => By::Kernel,
        }
    }
}
