//! `put` and `fetch-add`: one-sided operations on a region of the other process, which does nothing
//! for them.
//!
//! A message is written into the other side's region, its last word a number that the other side
//! polls there, as it would a flag. It is not copied out. Short of that word every message of a
//! run is the same; what lies there in the end is checked. Numbers are added to a word that nobody
//! else uses meanwhile, and must all be there.

use std::sync::atomic::Ordering;

use pinfold::{Endpoint, PeerId, Region as Own, RegionKey, RemoteRegion, Rights};

use super::{Bench, Subject, pinfold::connect};
use crate::perf::{
    bench,
    fail::{Fail, Result},
    pair::Pair,
    payload::Messages,
    stage::Stage,
    sync::Watch,
    terms::{Id, Memory, Outcome, REGION_BYTES_MAX, Side, Spec, What},
    verify,
};

/// The tag of everything that is said while the regions are opened.
const TAG: u64 = 1;
const WORD: usize = 8;
/// Where numbers are added: on a line of its own, after all messages.
const COUNTER: usize = REGION_BYTES_MAX;

/// One side of it.
pub(in crate::perf) struct Region {
    /// Keeps the pair connected.
    _endpoint: Endpoint,
    own: Own,
    theirs: RemoteRegion,
    watch: Watch,
    /// Numbers of the last message out and in.
    sent: u64,
    received: u64,
    /// What was added to the other side's word.
    added: u64,
}

impl Region {
    pub(in crate::perf) fn set_up(pair: &mut Pair, id: Id) -> Result<Region> {
        let (endpoint, peer) = connect(pair, id)?;
        let own = endpoint.region(REGION_BYTES_MAX + 64, Rights::ReadWrite)?;
        let theirs = open(&endpoint, peer, &own)?;
        let watch = pair.watch();
        Ok(Region { _endpoint: endpoint, own, theirs, watch, sent: 0, received: 0, added: 0 })
    }

    /// The word in which a message of `size` bytes ends.
    fn last_word(size: usize) -> usize {
        size.saturating_sub(WORD) / WORD * WORD
    }
}

/// Opens the other side's region, while that does the same.
fn open(endpoint: &Endpoint, peer: PeerId, own: &Own) -> Result<RemoteRegion> {
    let key = own.key().ok_or(Fail::Gone)?;
    endpoint.send(peer, TAG, &key.to_bytes())?;
    let key = RegionKey::from_bytes(&endpoint.recv(peer, TAG)?)?;
    let theirs = endpoint.open_region(peer, &key)?;
    // Whoever is done first answers the other's questions.
    endpoint.send(peer, TAG, b"open")?;
    endpoint.recv(peer, TAG)?;
    Ok(theirs)
}

impl Bench for Region {
    fn run(&mut self, stage: &mut Stage, spec: &Spec) -> Result<Outcome> {
        let mut message = vec![0; spec.size];
        verify::fill(&mut message, verify::seed(spec.first_number(stage.sync.side)));
        let mut writing = Writing { region: self, message: &mut message };
        // The memory of the stage is not used.
        let small = Spec { size: 8, memory: Memory::Heap, ..spec.clone() };
        let outcome = bench::run(&mut writing, stage, &small)?;
        if spec.what == What::Latency {
            // All but the number is what the other side wrote.
            let mut found = vec![0; Region::last_word(spec.size)];
            self.own.read(0, &mut found)?;
            let seed = verify::seed(spec.first_number(stage.sync.side.other()));
            verify::check(&found, seed).map_err(|wrong| stage.wrong(spec, wrong))?;
        } else if stage.sync.side == Side::First {
            let found = self.theirs.fetch_add(COUNTER as u64, 0u64)?;
            if found != self.added {
                return Err(Fail::Said(format!("{} was added, {found} is there", self.added)));
            }
        }
        Ok(outcome)
    }
}

/// The writing to and fro of one message.
struct Writing<'a> {
    region: &'a mut Region,
    message: &'a mut [u8],
}

impl Subject for Writing<'_> {
    #[inline]
    fn send(&mut self, _message: &[u8]) -> Result<()> {
        let region = &mut *self.region;
        region.sent += 1;
        let at = Region::last_word(self.message.len());
        self.message[at..at + WORD].copy_from_slice(&region.sent.to_ne_bytes());
        region.theirs.write(0, self.message)?;
        Ok(())
    }

    #[inline]
    fn recv(&mut self, _into: &mut [u8]) -> Result<()> {
        let region = &mut *self.region;
        region.received += 1;
        let word = region.own.word64(Region::last_word(self.message.len())).ok_or(Fail::Gone)?;
        region.watch.until(|| word.load(Ordering::Acquire) == region.received)
    }

    /// Adds as often.
    fn stream_out(&mut self, _messages: &Messages, count: usize) -> Result<()> {
        let region = &mut *self.region;
        for _ in 0..count {
            region.theirs.fetch_add(COUNTER as u64, 1u64)?;
        }
        region.added += count as u64;
        Ok(())
    }

    fn stream_in(&mut self, _into: &mut Messages, _count: usize) -> Result<()> {
        // The owner does nothing for it.
        Ok(())
    }

    fn exchange(&mut self, _: &Messages, _: &mut Messages, _: usize) -> Result<()> {
        Err(Fail::Said("one side writes at a time".into()))
    }

    fn carries_bytes(&self) -> bool {
        // Not those of the stage.
        false
    }
}
