#![allow(unsafe_code)]
//! A region of a peer on another host: its owner's endpoint performs the operations.
//!
//! **Invariant.** Memory that is written, or read into, is borrowed by the call, which returns or
//! unwinds only after the operations on it have ended.

use std::{collections::VecDeque, sync::Arc};

use super::RegionKey;
use crate::{
    Error, Path, PeerId, Receipt, Refusal, Result,
    endpoint::blocking::BlockingOp,
    error::inside,
    memory::scatter::Scatter,
    protocol::rma::{regions::Asking, served::ServedRequest},
    wire::{
        served_rma::{BRIEF_MAX, BYTES_MAX, Change, Use, What},
        space::Claim,
    },
    worker::{
        op::{Done, OpKey},
        shared::Shared,
    },
};

/// Parts of one call that are under way.
const AHEAD: usize = 8;

pub(crate) struct Served {
    asking: Asking,
    claim: Claim,
    pub peer: PeerId,
    shared: Arc<Shared>,
}

impl Served {
    pub(super) fn new(
        asking: Asking,
        key: &RegionKey,
        peer: PeerId,
        shared: Arc<Shared>,
    ) -> Served {
        let claim = Claim { id: key.id, secret: key.secret };
        Served { asking, claim, peer, shared }
    }

    pub(super) fn len(&self) -> u64 {
        self.asking.len
    }

    pub(super) fn is_writable(&self) -> bool {
        self.asking.writable
    }

    pub(super) fn why_not_mapped(&self) -> Refusal {
        self.asking.why_not_mapped
    }

    /// The error of an operation that needs mapped memory.
    #[cold]
    pub(super) fn not_mapped(&self) -> Error {
        Error::PathRefused { path: Path::Mapped, why: self.why_not_mapped() }
    }

    // Out of the way of mapped regions.
    #[cold]
    #[inline(never)]
    pub(super) fn write(&self, parts: &[(u64, &[u8])]) -> Result<Receipt> {
        if !self.is_writable() {
            return Err(Error::ReadOnly);
        }
        for (offset, data) in parts {
            inside(*offset, data.len() as u64, self.len())?;
        }
        let mut under_way = VecDeque::with_capacity(parts.len().min(AHEAD));
        let mut all = None;
        for (offset, data) in parts {
            if under_way.len() == AHEAD {
                took(&mut all, &mut under_way)?;
            }
            let what = match data.len() {
                len @ 0..=BRIEF_MAX => What::Brief { len, words: words_of(data) },
                len => What::Write { len: len as u64 },
            };
            // SAFETY: borrowed until the operation has ended, and only read.
            let memory = unsafe { Scatter::one(data.as_ptr().cast_mut(), data.len()) };
            under_way.push_back(self.begin(*offset, what, memory)?);
        }
        self.all(all, under_way)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn read(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Receipt> {
        for (offset, into) in parts.iter() {
            inside(*offset, into.len() as u64, self.len())?;
        }
        let mut under_way = VecDeque::with_capacity(parts.len().min(AHEAD));
        let (mut all, mut is_short) = (None, true);
        for (offset, into) in parts {
            // The owner reads long ones when their bytes can go: a later read would come before.
            while !under_way.is_empty() && (under_way.len() == AHEAD || !is_short) {
                took(&mut all, &mut under_way)?;
            }
            is_short = into.len() <= BYTES_MAX;
            // SAFETY: borrowed mutably until the operation has ended.
            let memory = unsafe { Scatter::one(into.as_mut_ptr(), into.len()) };
            let what = What::Read { len: into.len() as u64 };
            under_way.push_back(self.begin(*offset, what, memory)?);
        }
        self.all(all, under_way)
    }

    /// Begins to write the `len` bytes of `memory`, `short` of which are `words`.
    pub(super) fn begin_write(
        &self,
        offset: u64,
        memory: Scatter,
        short: Option<[u64; BRIEF_MAX / 8]>,
    ) -> Result<OpKey> {
        let len = memory.len();
        if !self.is_writable() {
            return Err(Error::ReadOnly);
        }
        inside(offset, len, self.len())?;
        let what = match short {
            Some(words) => What::Brief { len: len as usize, words },
            None => What::Write { len },
        };
        self.post(offset, what, memory)
    }

    /// Begins to read into `memory`.
    pub(super) fn begin_read(&self, offset: u64, memory: Scatter) -> Result<OpKey> {
        let len = memory.len();
        inside(offset, len, self.len())?;
        self.post(offset, What::Read { len }, memory)
    }

    /// Begins to change a word.
    pub(super) fn begin_change(&self, offset: u64, change: Change) -> Result<OpKey> {
        self.check_word(offset, change)?;
        self.post(offset, What::Change(change), Scatter::empty())
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    #[cold]
    #[inline(never)]
    pub(super) fn change(&self, offset: u64, change: Change) -> Result<u64> {
        self.check_word(offset, change)?;
        let operation = self.begin(offset, What::Change(change), Scatter::empty())?;
        match operation.wait().map_err(withdrawn)? {
            Done::Was(word) => Ok(word),
            _ => Err(Error::Withdrawn),
        }
    }

    /// Checks that the region stands. Written bytes were there when the write returned.
    pub(super) fn flush(&self) -> Result<()> {
        let asked = self.begin(0, What::Read { len: 0 }, Scatter::empty())?;
        asked.wait().map_err(withdrawn)?;
        Ok(())
    }

    fn check_word(&self, offset: u64, change: Change) -> Result<()> {
        let size = change.word.size();
        if !offset.is_multiple_of(size) {
            return Err(Error::Misaligned { offset, size });
        }
        if !self.is_writable() {
            return Err(Error::ReadOnly);
        }
        inside(offset, size, self.len())
    }

    fn begin(&self, offset: u64, what: What, memory: Scatter) -> Result<BlockingOp<'_>> {
        Ok(BlockingOp::new(&self.shared, self.post(offset, what, memory)?))
    }

    fn post(&self, offset: u64, what: What, memory: Scatter) -> Result<OpKey> {
        let asked = Use { claim: self.claim, offset, what };
        let using = ServedRequest { peer: self.peer, asked, size: self.len() };
        self.shared.enter()?.post_served(using, memory).map_err(withdrawn)
    }

    /// The receipt of all parts.
    fn all(
        &self,
        mut all: Option<Receipt>,
        mut under_way: VecDeque<BlockingOp<'_>>,
    ) -> Result<Receipt> {
        while !under_way.is_empty() {
            took(&mut all, &mut under_way)?;
        }
        match all {
            Some(receipt) => Ok(receipt),
            // No parts: the region stands, or does not.
            None => self.flush().map(|()| Receipt::new(Path::Eager, 0)),
        }
    }
}

/// Waits for the first of some operations. If it fails, the others are waited for when they are
/// dropped.
fn took(all: &mut Option<Receipt>, under_way: &mut VecDeque<BlockingOp<'_>>) -> Result<()> {
    let Some(operation) = under_way.pop_front() else { return Ok(()) };
    let Done::Sent(receipt) = operation.wait().map_err(withdrawn)? else {
        return Err(Error::Withdrawn);
    };
    match all {
        None => *all = Some(receipt),
        Some(all) => all.add(&receipt),
    }
    Ok(())
}

/// The error that the end of a connection means to a user of a region, as on one host.
pub(super) fn withdrawn(error: Error) -> Error {
    match error {
        Error::PeerGone { .. } | Error::UnknownPeer { .. } | Error::Closed => Error::Withdrawn,
        other => other,
    }
}

pub(super) fn words_of(data: &[u8]) -> [u64; BRIEF_MAX / 8] {
    let mut words = [0; BRIEF_MAX / 8];
    for (word, bytes) in words.iter_mut().zip(data.chunks(8)) {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(eight);
    }
    words
}
