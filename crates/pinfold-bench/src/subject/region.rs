//! `put`, `get`, `fetch-add` and `contended`: one-sided operations on a region of the other
//! process, which does nothing for them.
//!
//! - `writing`: a message is written into the other side's region.
//! - `reading`: the other side writes a message into its own region, and it is read from there.
//! - `adding`: numbers are added to a word of the second process's region, by one side or by both.

mod adding;
mod reading;
mod writing;

use pinfold::{Endpoint, PeerId, Region as Own, RegionKey, RemoteRegion, Rights};

use self::{adding::Adding, reading::Reading, writing::Writing};
use super::{Bench, pinfold::connect};
use crate::{
    bench,
    fail::{Fail, Result},
    pair::Pair,
    stage::Stage,
    sync::Watch,
    terms::{Id, Memory, Outcome, REGION_BYTES_MAX, Route, Spec},
    verify,
};

/// The tag of all messages while the regions are opened.
const TAG: u64 = 1;
const WORD: usize = 8;
/// Two offsets behind all messages, on lines of their own: the word that numbers are added to, and
/// the count of those that the second process added.
const COUNTER: usize = REGION_BYTES_MAX;
const ADDED: usize = COUNTER + 64;
const BYTES: usize = ADDED + 64;

/// One side of it.
pub(crate) struct Region {
    route: Route,
    /// Keeps the pair connected.
    _endpoint: Endpoint,
    own: Own,
    theirs: RemoteRegion,
    watch: Watch,
    /// Numbers of the last message out and in.
    sent: u64,
    received: u64,
    /// The sum that this side added to the word, and the sum that both shall have added.
    added: u64,
    goal: u64,
}

impl Region {
    pub(crate) fn set_up(pair: &mut Pair, id: Id) -> Result<Region> {
        let route = id.route.unwrap_or(Route::Put);
        let (endpoint, peer) = connect(pair, id)?;
        let own = endpoint.region(BYTES, Rights::ReadWrite)?;
        let theirs = open(&endpoint, peer, &own)?;
        let watch = pair.watch();
        let (sent, received, added, goal) = (0, 0, 0, 0);
        let _endpoint = endpoint;
        Ok(Region { route, _endpoint, own, theirs, watch, sent, received, added, goal })
    }
}

/// The word in which a message of `size` bytes ends.
fn last_word(size: usize) -> usize {
    size.saturating_sub(WORD) / WORD * WORD
}

/// Opens the other side's region, while the other side does the same.
fn open(endpoint: &Endpoint, peer: PeerId, own: &Own) -> Result<RemoteRegion> {
    let key = own.key().ok_or(Fail::Gone)?;
    endpoint.send(peer, TAG, &key.to_bytes())?;
    let key = RegionKey::from_bytes(&endpoint.recv(peer, TAG)?)?;
    let theirs = endpoint.open_region(peer, &key)?;
    // The side that is done first answers the other's questions.
    endpoint.send(peer, TAG, b"open")?;
    endpoint.recv(peer, TAG)?;
    Ok(theirs)
}

impl Bench for Region {
    fn run(&mut self, stage: &mut Stage, spec: &Spec) -> Result<Outcome> {
        let mut message = vec![0; spec.size];
        verify::fill(&mut message, verify::seed(spec.first_number(stage.sync.side)));
        // The memory of the stage is not used.
        let small = Spec { size: WORD, memory: Memory::Heap, ..spec.clone() };
        let theirs = spec.first_number(stage.sync.side.other());
        let found;
        let outcome = match self.route {
            Route::FetchAdd | Route::Contended => {
                let outcome = bench::run(&mut Adding(self), stage, &small)?;
                adding::check(self, stage)?;
                return Ok(outcome);
            }
            Route::Get => {
                self.own.write(0, &message[..last_word(spec.size)])?;
                let mut reading = Reading { region: self, into: message };
                let outcome = bench::run(&mut reading, stage, &small)?;
                found = reading.into;
                outcome
            }
            _ => {
                let mut writing = Writing { region: self, message: &mut message };
                let outcome = bench::run(&mut writing, stage, &small)?;
                self.own.read(0, &mut message)?;
                found = message;
                outcome
            }
        };
        // All but the number is as the other side wrote it.
        let checked = verify::check(&found[..last_word(spec.size)], verify::seed(theirs));
        checked.map_err(|wrong| stage.wrong(spec, wrong))?;
        Ok(outcome)
    }
}
