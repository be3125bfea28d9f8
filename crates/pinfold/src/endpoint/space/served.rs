//! Reads and writes by the owner's agent, through the ring.

use std::{collections::VecDeque, sync::Arc};

use super::agent::PART_MAX;
use crate::{
    Error, Path, PeerId, Receipt, Refusal, Result,
    endpoint::{payload::Owned, reply::Reply},
    error::NotHandled,
    wire::space::{ANSWER_HEAD, Answered, Ask, Claim, Refused, bytes_of},
    worker::shared::Shared,
};

/// Questions that are out at a time for one read or write.
const AHEAD: usize = 4;

/// Asks the agent.
pub(super) fn ask(shared: &Arc<Shared>, peer: PeerId, claim: Claim, ask: Ask) -> Reply {
    Reply::ask_agent(shared, peer, Owned(bytes_of(&ask.words(claim))))
}

/// The error of the operation, for the error of a question.
pub(super) fn failed(error: Error) -> Error {
    match error {
        // Nothing was ever exposed there.
        Error::NotHandled { why: NotHandled::NoHandler, .. } => Error::BadKey,
        other => other,
    }
}

/// The agent's copies for this side.
pub(super) struct Served {
    pub shared: Arc<Shared>,
    pub peer: PeerId,
    pub claim: Claim,
    /// The reason why the kernel does not copy.
    pub why_not_cma: Refusal,
}

impl Served {
    /// Writes bytes at an address inside the exposed range.
    pub(super) fn write(&self, address: u64, data: &[u8]) -> Result<Receipt> {
        let mut out = VecDeque::new();
        for (part, bytes) in data.chunks(PART_MAX).enumerate() {
            let at = address + (part * PART_MAX) as u64;
            let mut question = Vec::with_capacity(64 + bytes.len());
            question.extend(bytes_of(&Ask::Write { address: at }.words(self.claim)));
            question.extend_from_slice(bytes);
            if out.len() == AHEAD {
                self.end_of(out.pop_front(), |_| true)?;
            }
            let reply = Reply::ask_agent(&self.shared, self.peer, Owned(question));
            out.push_back((reply, at, bytes.len()));
        }
        while !out.is_empty() {
            self.end_of(out.pop_front(), |_| true)?;
        }
        Ok(self.receipt(data.len()))
    }

    /// Reads bytes at an address inside the exposed range.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> Result<Receipt> {
        let len = into.len();
        let mut out = VecDeque::new();
        for (part, bytes) in into.chunks_mut(PART_MAX).enumerate() {
            let at = address + (part * PART_MAX) as u64;
            if out.len() == AHEAD
                && let Some((asked, to)) = out.pop_front()
            {
                self.take(asked, to)?;
            }
            let question = Ask::Read { address: at, len: bytes.len() as u64 };
            let reply = ask(&self.shared, self.peer, self.claim, question);
            out.push_back(((reply, at, bytes.len()), bytes));
        }
        for (asked, to) in out {
            self.take(asked, to)?;
        }
        Ok(self.receipt(len))
    }

    fn take(&self, asked: (Reply, u64, usize), to: &mut [u8]) -> Result<()> {
        self.end_of(Some(asked), |bytes| {
            let fits = bytes.len() == to.len();
            if fits {
                to.copy_from_slice(bytes);
            }
            fits
        })
    }

    /// Waits for an answer, whose bytes `take` takes if they are as they should be.
    fn end_of(
        &self,
        asked: Option<(Reply, u64, usize)>,
        take: impl FnOnce(&[u8]) -> bool,
    ) -> Result<()> {
        let Some((reply, address, len)) = asked else { return Ok(()) };
        let message = reply.wait().map_err(failed)?;
        match Answered::read(&message) {
            Some(Answered::Done) if take(message.get(ANSWER_HEAD..).unwrap_or(&[])) => Ok(()),
            Some(Answered::Refused(why)) => Err(refused(why, address, len as u64)),
            _ => Err(Error::NotMapped { address, len: len as u64 }),
        }
    }

    /// The receipt: copied into the ring here, or out of it, and once more by the agent.
    fn receipt(&self, len: usize) -> Receipt {
        let mut receipt = Receipt::new(Path::Eager, len as u64);
        receipt.copied_user = len as u64;
        receipt.refuse(Path::Cma, self.why_not_cma);
        receipt
    }
}

/// The error that a refusal is.
pub(super) fn refused(why: Refused, address: u64, len: u64) -> Error {
    match why {
        Refused::Unknown => Error::Revoked,
        Refused::ReadOnly => Error::ReadOnly,
        // This side knows the exposed range: an owner that says so of an address inside has no
        // memory there.
        Refused::Outside | Refused::NotMapped | Refused::Full | Refused::Senseless => {
            Error::NotMapped { address, len }
        }
    }
}
