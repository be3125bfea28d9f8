//! `handoff`: the message is the sender's memory itself, given away and looked at where it is.
//!
//! Each process has a buffer in an arena that it gives to the other again and again, without
//! writing it in between: only the giving is timed, not the receiver's use of the bytes. After each
//! run both sides read all of the bytes that they are given, and check them.

use pinfold::{Arena, ArenaBuf, DonatedBuf, Endpoint, Path, PeerId};

use super::{Bench, Subject, pinfold::connect};
use crate::{
    bench,
    fail::{Fail, Result},
    pair::Pair,
    payload::Messages,
    stage::Stage,
    terms::{Id, Memory, Outcome, Side, Spec},
    verify,
};

/// The tag of every message.
const TAG: u64 = 1;
/// Bytes that are read together; a multiple of a word.
const PART: usize = 64 << 10;

/// One side of it.
pub(crate) struct Handoff {
    endpoint: Endpoint,
    peer: PeerId,
    arena: Arena,
    /// The buffer that this side gave in the last run.
    memory: Option<ArenaBuf>,
}

impl Handoff {
    pub(crate) fn set_up(pair: &mut Pair, id: Id) -> Result<Handoff> {
        let arena = Arena::new()?;
        let (endpoint, peer) = connect(pair, id)?;
        let paths = endpoint.peer(peer).ok_or(Fail::Gone)?.paths;
        if !paths.contains(Path::Handoff) {
            return Err(Fail::Said("the pair cannot share memory".into()));
        }
        Ok(Handoff { endpoint, peer, arena, memory: None })
    }

    /// The buffer that this side gives in this run.
    fn donation(&mut self, spec: &Spec, side: Side) -> Result<DonatedBuf> {
        let fits = |memory: &ArenaBuf| memory.len() == spec.size;
        let mut memory = match self.memory.take().filter(fits) {
            Some(memory) => memory,
            None => self.arena.alloc(spec.size)?,
        };
        verify::fill(&mut memory, verify::seed(spec.first_number(side)));
        Ok(memory.into())
    }

    /// Checks the buffer that the other side gives, and gets back the one that this side gave.
    fn check(&mut self, stage: &Stage, spec: &Spec, donation: DonatedBuf) -> Result<()> {
        let handoff = self.endpoint.handoff(self.peer, TAG, donation);
        let view = self.endpoint.recv_view(self.peer, TAG)?;
        let seed = verify::seed(spec.first_number(stage.sync.side.other()));
        let mut part = vec![0; PART];
        for at in (0..view.len()).step_by(PART) {
            let part = &mut part[..PART.min(view.len() - at)];
            view.read(at, part)?;
            // A part is the message that begins with its first word.
            let checked = verify::check(part, seed.wrapping_add(at as u64 / 8));
            checked.map_err(|wrong| {
                stage.wrong(spec, verify::Mismatch { offset: at + wrong.offset, ..wrong })
            })?;
        }
        drop(view);
        let (receipt, donation) = handoff.wait();
        receipt?;
        // The buffer is lost if the other side still looks at it: then there is new memory for the
        // next run.
        self.memory = donation.into_arena_buf();
        Ok(())
    }
}

impl Bench for Handoff {
    fn run(&mut self, stage: &mut Stage, spec: &Spec) -> Result<Outcome> {
        let donation = self.donation(spec, stage.sync.side)?;
        let mut giving =
            Giving { endpoint: &self.endpoint, peer: self.peer, donation: &donation, path: None };
        // The memory of the stage is not used.
        let small = Spec { size: 8, memory: Memory::Heap, ..spec.clone() };
        let outcome = bench::run(&mut giving, stage, &small)?;
        self.check(stage, spec, donation)?;
        Ok(outcome)
    }
}

/// The giving to and fro.
struct Giving<'a> {
    endpoint: &'a Endpoint,
    peer: PeerId,
    donation: &'a DonatedBuf,
    path: Option<Path>,
}

impl Subject for Giving<'_> {
    #[inline]
    fn send(&mut self, _message: &[u8]) -> Result<()> {
        Ok(self.endpoint.give(self.peer, TAG, self.donation.clone())?)
    }

    #[inline]
    fn recv(&mut self, _into: &mut [u8]) -> Result<()> {
        let view = self.endpoint.recv_view(self.peer, TAG)?;
        self.path = Some(view.receipt().path);
        if view.len() == self.donation.len() {
            return Ok(());
        }
        Err(Fail::Said(format!("{} bytes were given, not {}", view.len(), self.donation.len())))
    }

    fn exchange(&mut self, _: &Messages, _: &mut Messages, _: usize) -> Result<()> {
        Err(Fail::Said("memory is given one way at a time".into()))
    }

    fn carries_bytes(&self) -> bool {
        // The messages of the stage are not used.
        false
    }

    fn path_taken(&self) -> Option<&'static str> {
        self.path.map(Path::name)
    }
}
