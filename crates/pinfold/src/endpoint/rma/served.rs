#![allow(unsafe_code)]
//! A region of a peer on another host: its owner's endpoint performs the operations.
//!
//! **Invariant.** Memory that is written, or read into, is borrowed by the call, which returns or
//! unwinds only after the operations on it have ended; or their maker keeps it until then.

use std::{collections::VecDeque, sync::Arc};

use super::transfer::Does;
use crate::{
    Error, Path, PeerId, Receipt, Refusal, Result,
    endpoint::blocking::BlockingOp,
    memory::scatter::{Part, Scatter},
    protocol::rma::{
        served,
        way::{ServedRequest, check, withdrawn},
    },
    wire::{
        region::Extent,
        served_rma::{BRIEF_MAX, BYTES_MAX, Use, What},
        space::Claim,
    },
    worker::{
        op::{Done, OpKey},
        shared::Shared,
    },
};

/// Parts of one call that are under way.
const AHEAD: usize = 8;

pub(super) struct Served {
    pub extent: Extent,
    pub why_not_mapped: Refusal,
    pub claim: Claim,
    pub peer: PeerId,
    pub shared: Arc<Shared>,
}

impl Served {
    #[cold]
    pub(super) fn write(&self, parts: &[(u64, &[u8])]) -> Result<Receipt> {
        for (offset, data) in parts {
            check(&self.extent, *offset, data.len() as u64, true)?;
        }
        let (mut all, mut under_way) = (None, VecDeque::with_capacity(parts.len().min(AHEAD)));
        for (offset, data) in parts {
            if under_way.len() == AHEAD {
                took(&mut all, &mut under_way)?;
            }
            // SAFETY: borrowed until the operation has ended, and only read.
            let memory = unsafe { Part::new(data.as_ptr().cast_mut(), data.len()) };
            let posted = self.begin(*offset, Does::Write(memory))?;
            under_way.push_back(BlockingOp::new(&self.shared, posted));
        }
        self.all(all, under_way)
    }

    #[cold]
    pub(super) fn read(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Receipt> {
        for (offset, into) in parts.iter() {
            check(&self.extent, *offset, into.len() as u64, false)?;
        }
        let (mut all, mut under_way) = (None, VecDeque::with_capacity(parts.len().min(AHEAD)));
        let mut is_short = true;
        for (offset, into) in parts {
            // The owner reads long ones when their bytes can go: a later read would come before.
            while !under_way.is_empty() && (under_way.len() == AHEAD || !is_short) {
                took(&mut all, &mut under_way)?;
            }
            is_short = into.len() <= BYTES_MAX;
            // SAFETY: borrowed mutably until the operation has ended.
            let memory = unsafe { Part::new(into.as_mut_ptr(), into.len()) };
            let posted = self.begin(*offset, Does::Read(memory))?;
            under_way.push_back(BlockingOp::new(&self.shared, posted));
        }
        self.all(all, under_way)
    }

    /// Begins an operation, whose memory on this side its maker keeps until it has ended.
    pub(super) fn begin(&self, offset: u64, does: Does) -> Result<OpKey> {
        let (what, len) = match does {
            Does::Write(part) => match part.len() {
                len @ ..=BRIEF_LEN => {
                    let (len, words) = (len as usize, words_of(part));
                    (What::Brief { len, words }, len as u64)
                }
                len => (What::Write { len }, len),
            },
            Does::Read(part) => (What::Read { len: part.len() }, part.len()),
            Does::Change(change) => {
                let size = change.word.size();
                if !offset.is_multiple_of(size) {
                    return Err(Error::Misaligned { offset, size });
                }
                (What::Change(change), size)
            }
        };
        check(&self.extent, offset, len, !matches!(does, Does::Read(_)))?;
        let memory = match does {
            Does::Write(part) | Does::Read(part) => part.into(),
            Does::Change(_) => Scatter::empty(),
        };
        let asked = Use { claim: self.claim, offset, what };
        let using = ServedRequest { peer: self.peer, asked, size: self.extent.len };
        served::post_served(&mut *self.shared.enter()?, using, memory).map_err(withdrawn)
    }

    /// Checks that the region stands. Written bytes were there when the write returned.
    pub(super) fn flush(&self) -> Result<()> {
        // SAFETY: no memory.
        let nothing = unsafe { Part::new(std::ptr::null_mut(), 0) };
        let asked = self.begin(0, Does::Read(nothing))?;
        BlockingOp::new(&self.shared, asked).wait().map_err(withdrawn).map(drop)
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

const BRIEF_LEN: u64 = BRIEF_MAX as u64;

/// The bytes of a short write, which its maker keeps.
fn words_of(part: Part) -> [u64; BRIEF_MAX / 8] {
    let ((ptr, len), mut bytes) = (part.raw(), [0; BRIEF_MAX]);
    if len > 0 {
        // SAFETY: readable, by the module's invariant, and no longer than `bytes`: its callers say
        // so.
        unsafe { std::ptr::copy_nonoverlapping(ptr, bytes.as_mut_ptr(), len.min(BRIEF_MAX)) };
    }
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|b| bytes[8 * at + b]));
    std::array::from_fn(word)
}
