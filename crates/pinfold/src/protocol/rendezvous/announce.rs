//! The sender announces a message: it stays in its memory until its receiver says how it should
//! come.

use pinfold_sys::cpu::clock;

use crate::{
    Path,
    failpoint::{self, Point},
    memory::scatter::Part,
    status::Tally,
    transport::shm::ring::Violation,
    wire::{
        active::Verb,
        descriptor::{Header, Kind},
        rendezvous::Rts,
    },
    worker::{
        core::Core,
        op::{OpKey, SendOp, SendStage},
        outbound::Step,
        peer::Peer,
    },
};

impl Core {
    /// Announces a message; it stays in its memory until the receiver asks for it.
    pub(crate) fn announce(
        &mut self,
        peer: &mut Peer,
        key: OpKey,
        op: &mut SendOp,
    ) -> Result<Step, Violation> {
        // An answer always has a place.
        if peer.waiting >= peer.waiting_max && !op.verb.is_answer() {
            return Ok(Step::Stuck);
        }
        // A message that lacks only credit may come by any path that the pair has.
        let may_copy = [Path::Cma, Path::Mapped].iter().any(|path| peer.permissions.may(*path));
        let short = matches!(op.receipt.path, Path::Inline | Path::Eager);
        if short {
            peer.record.credit_stalls.add(1);
        }
        // No other credit would be enough for a longer message.
        let unasked = short && op.verb == Verb::Tagged && op.memory.len() <= peer.window / 2;
        let insists = op.receipt.path == Path::Eager && (op.required.is_some() || !may_copy);
        let stream = insists || short && op.timed;
        let prefers_ring = !stream
            && op.receipt.path == Path::Eager
            && peer.times.prefers_ring(op.memory.len(), peer.window);
        let exported = match (op.receipt.path, op.memory.part()) {
            (Path::Mapped | Path::Handoff, Some(memory)) => self.export_part(peer, memory),
            _ => None,
        };
        let given = op.receipt.path == Path::Handoff;
        let list = match given && op.memory.parts() > 1 {
            true => match self.write_list(peer, &op.memory) {
                Ok(list) => list,
                Err(None) => return Ok(Step::Stuck),
                Err(Some(violation)) => return Err(violation),
            },
            false => None,
        };
        // Any of several extents will do to tell that there are some.
        let first = || op.memory.each_part().next().and_then(Part::locate);
        let listed = list.and_then(|_| first()).map(|(extent, _)| extent.id());
        op.offered = exported.map(|exported| exported.extent).or(listed);
        let (tag, len, place) = (op.tag, op.memory.len(), op.memory.place());
        // A part of its own in front is a head; of one long part the memory is left alone.
        let is_told = op.memory.parts() > 1 || len <= 8;
        let has_head = !given && op.verb == Verb::Tagged && is_told;
        let head = has_head.then(|| op.memory.read_words::<1>()[0]);
        let rts = Rts {
            tag,
            len,
            place,
            stream,
            prefers_ring,
            unasked,
            given,
            exported,
            list,
            number: 0,
            head,
        };
        failpoint::hit(Point::BeforeAnnounce);
        peer.tx.push(Header::new(Kind::Rts, op.verb as u8, op.sid(key)), &rts.body());
        failpoint::hit(Point::AfterAnnounce);
        op.started = clock::ticks();
        if !given {
            self.note_wait(peer, key, op.started);
        }
        peer.waiting += 1;
        peer.two_way.announce(op.started);
        op.stage = SendStage::Waiting { cancelled: false };
        Ok(Step::Announced)
    }
}
