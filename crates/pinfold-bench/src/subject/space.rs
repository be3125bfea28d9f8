//! `write`, `read`, `write-agent` and `read-agent`: one-sided operations by the addresses of the
//! other process; and `cma-write`, the same by the kernel alone.
//!
//! - `memory`: the memory that this side exposes. `there`: the way to the other side's.
//! - `writing`, `reading`: a message goes to and fro. `rate`: one side's operations, one after the
//!   other.
//!
//! The place of a message decides its way: in an arena it is mapped; in ordinary memory the kernel
//! copies it, or the agent if the pair switched that off. It is an error if messages of a run took
//! another way.

mod memory;
mod rate;
mod reading;
mod there;
mod writing;

use pinfold::{Endpoint, Exposed, Path, PeerId, RegionKey};

use self::{memory::Owned, rate::Rate, reading::Reading, there::There, writing::Writing};
use super::{Bench, cma, pinfold::connect};
use crate::{
    bench,
    fail::{Fail, Result},
    pair::Pair,
    stage::Stage,
    sync::Watch,
    terms::{Id, Memory, Outcome, REGION_BYTES_MAX, Route, Side, Spec, What},
    verify,
};

/// The tag of all messages beside the operations.
const TAG: u64 = 1;
const WORD: usize = 8;

/// One side of it.
pub(crate) struct Space {
    /// True if messages are read, not written.
    reads: bool,
    there: There,
    own: Owned,
    /// While it lives, the other side may use `own`.
    _exposed: Option<Exposed>,
    talk: Talk,
    watch: Watch,
    /// Numbers of the last message out and in.
    sent: u64,
    received: u64,
    /// The last word that this side wrote in a stream.
    streamed: u64,
}

/// The connection by which both sides talk, and serve each other's operations.
struct Talk(Option<(Endpoint, PeerId)>);

impl Talk {
    /// Waits until `ready`. If the other side's operations need this side's agent, it looks for
    /// them meanwhile.
    #[inline]
    fn until(
        &self,
        watch: &Watch,
        needs_agent: bool,
        mut ready: impl FnMut() -> bool,
    ) -> Result<()> {
        let (true, Some((endpoint, _))) = (needs_agent, &self.0) else { return watch.until(ready) };
        let mut failed = None;
        watch.until(|| {
            if ready() {
                return true;
            }
            failed = endpoint.progress().err();
            failed.is_some()
        })?;
        failed.map_or(Ok(()), |why| Err(why.into()))
    }
}

impl Space {
    pub(crate) fn set_up(pair: &mut Pair, id: Id) -> Result<Space> {
        let route = id.route.unwrap_or(Route::Write);
        let own = Owned::new(id.memory, REGION_BYTES_MAX)?;
        let (endpoint, peer) = connect(pair, id)?;
        let exposed = own.expose(&endpoint)?;
        endpoint.send(peer, TAG, &exposed.key().to_bytes())?;
        let key = RegionKey::from_bytes(&endpoint.recv(peer, TAG)?)?;
        let space = endpoint.open_space(peer, &key)?;
        let expected = match (route.is_by_agent(), id.memory) {
            (true, _) => Path::Eager,
            (false, Memory::Heap) => Path::Cma,
            (false, Memory::Arena) => Path::Mapped,
        };
        let mut space = Space {
            reads: matches!(route, Route::Read | Route::ReadAgent),
            there: There::space(space, expected),
            own,
            _exposed: Some(exposed),
            talk: Talk(Some((endpoint, peer))),
            watch: pair.watch(),
            sent: 0,
            received: 0,
            streamed: 0,
        };
        space.get_to_know()?;
        Ok(space)
    }

    /// The same with the kernel alone: `process_vm_writev(2)` to a place that both know.
    pub(crate) fn bare(pair: &mut Pair) -> Result<Space> {
        cma::allow(pair);
        let own = Owned::new(Memory::Heap, REGION_BYTES_MAX)?;
        pair.tell(&own.address())?;
        let at = pair.hear()?;
        let mut there = There::bare(pair.peer_pid(), at)?;
        // The number shows that it is the right process, and may be written.
        let number = (u64::from(std::process::id()) << 32 | 1).to_ne_bytes();
        there.write(0, &number)?;
        pair.tell(&number)?;
        let expected: [u8; WORD] = pair.hear()?;
        let mut found = [0; WORD];
        own.read(&mut found);
        if found != expected {
            return Err(Fail::Said("the other process has another number here".into()));
        }
        let (talk, watch) = (Talk(None), pair.watch());
        Ok(Space {
            reads: false,
            there,
            own,
            _exposed: None,
            talk,
            watch,
            sent: 0,
            received: 0,
            streamed: 0,
        })
    }

    /// Asks where the other's memory is mapped, if it can be, and answers the same question.
    fn get_to_know(&mut self) -> Result<()> {
        let Talk(Some((endpoint, peer))) = &self.talk else { return Ok(()) };
        let start = std::time::Instant::now();
        let mut word = [0; WORD];
        loop {
            let path = self.there.read(0, &mut word)?;
            if path == self.there.expected() {
                break;
            }
            endpoint.progress()?;
            if self.watch.check(start).is_err() || start.elapsed().as_secs() >= 5 {
                let wanted = self.there.expected();
                return Err(Fail::Said(format!("it goes by {path} here, not by {wanted}")));
            }
        }
        // The side that is done first answers the other's questions.
        endpoint.send(*peer, TAG, b"known")?;
        endpoint.recv(*peer, TAG)?;
        Ok(())
    }

    /// Lets this side's agent do the operations asked of it, until the other side needs it no more.
    fn serve_until_told(&self) -> Result<()> {
        if let (true, Some((endpoint, peer))) = (self.there.needs_agent(), &self.talk.0) {
            endpoint.recv(*peer, TAG)?;
        }
        Ok(())
    }

    /// Tells the other side that its agent is needed no more.
    fn tell_served(&self) -> Result<()> {
        if let (true, Some((endpoint, peer))) = (self.there.needs_agent(), &self.talk.0) {
            endpoint.send(*peer, TAG, b"")?;
        }
        Ok(())
    }

    /// After a run: checks the results of both sides.
    fn settle(&mut self, stage: &mut Stage, spec: &Spec) -> Result<()> {
        self.there.check()?;
        if spec.what != What::Rate || self.reads {
            return stage.sync.barrier();
        }
        // The first has written; the second checks that its word is the last one.
        match &self.talk.0 {
            Some((endpoint, peer)) if stage.is_first() => {
                endpoint.send(*peer, TAG, &self.streamed.to_ne_bytes())?;
            }
            Some((endpoint, peer)) => {
                let sent = endpoint.recv(*peer, TAG)?;
                self.check_word(&sent)?;
            }
            None => {}
        }
        stage.sync.barrier()
    }

    fn check_word(&self, sent: &[u8]) -> Result<()> {
        let mut found = [0; WORD];
        self.own.read(&mut found);
        if found == *sent {
            return Ok(());
        }
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let (found, sent) = (word(&found), word(sent));
        Err(Fail::Said(format!("{sent} messages were written, the last one here is {found}")))
    }
}

/// The word in which a message of `size` bytes ends.
fn last_word(size: usize) -> usize {
    size.saturating_sub(WORD) / WORD * WORD
}

impl Bench for Space {
    fn run(&mut self, stage: &mut Stage, spec: &Spec) -> Result<Outcome> {
        let mut message = vec![0; spec.size];
        verify::fill(&mut message, verify::seed(spec.first_number(stage.sync.side)));
        // The memory of the stage is not used.
        let small = Spec { size: WORD, memory: Memory::Heap, ..spec.clone() };
        let theirs = verify::seed(spec.first_number(stage.sync.side.other()));
        self.there.begin();
        // All but the number is as the other side wrote it.
        let end = last_word(spec.size);
        let (outcome, found) = match (spec.what, self.reads) {
            (What::Rate, reads) => {
                // All of it is written before the other side comes.
                self.own.write(&message);
                let mut rate = Rate { space: self, word: [0; WORD] };
                let outcome = bench::run(&mut rate, stage, &small)?;
                let found = rate.word;
                self.settle(stage, spec)?;
                if reads && stage.sync.side == Side::First {
                    verify::check(&found, theirs).map_err(|wrong| stage.wrong(spec, wrong))?;
                }
                return Ok(outcome);
            }
            (_, true) => {
                self.own.write(&message[..end]);
                let mut reading = Reading { space: self, into: message };
                let outcome = bench::run(&mut reading, stage, &small)?;
                (outcome, reading.into)
            }
            (_, false) => {
                let mut writing = Writing { space: self, message: &mut message };
                let outcome = bench::run(&mut writing, stage, &small)?;
                self.own.read(&mut message);
                (outcome, message)
            }
        };
        verify::check(&found[..end], theirs).map_err(|wrong| stage.wrong(spec, wrong))?;
        self.settle(stage, spec)?;
        Ok(outcome)
    }
}
