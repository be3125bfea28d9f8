//! The parts of a donated message: where they lie, and their mappings.

use std::{os::fd::AsFd, sync::Arc};

use crate::{
    copy::CopyBytes,
    memory::{arena::Mapping, reassembly::fold::PeerMemory, scatter::Scatter},
    transport::shm::lane::Tie,
    wire::list::Listed,
};

/// Locations of the parts of a peer's message.
pub(crate) type List = Box<[Listed]>;

/// A part of a message, in a peer's memory that is mapped here.
pub(crate) struct LentPart {
    pub memory: Arc<PeerMemory>,
    pub offset: u64,
    pub len: u64,
}

/// The parts of a message that stay where they are until the peer is told that they are no longer
/// in use. A record only: they are given back by hand.
pub(crate) struct Parts {
    pub parts: Vec<LentPart>,
    /// The peer's number for the message.
    pub sid: u32,
    pub tie: Tie,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Parts { parts, sid, .. } = self;
        f.debug_struct("Parts").field("parts", &parts.len()).field("sid", sid).finish()
    }
}

/// The parts of a message, as they are mapped here.
pub(crate) struct ExportedParts(pub(super) Vec<Shelved>);

pub(super) struct Shelved {
    /// Bytes of the message before it.
    pub begin: u64,
    pub mapping: Arc<Mapping>,
    /// The file of exactly that mapping, if a descriptor of it is kept.
    pub file: Option<Arc<dyn AsFd + Send + Sync>>,
    pub part: Listed,
}

impl ExportedParts {
    /// Copies `len` bytes of the message, from `at` on, to byte `to` of `memory`.
    ///
    /// # Errors
    /// As for [`Scatter::copy_out_of`].
    pub(crate) fn copy(
        &self,
        (memory, to): (&Scatter, u64),
        copier: &mut impl CopyBytes,
        at: u64,
        len: u64,
    ) -> std::io::Result<u64> {
        let first = self.0.partition_point(|shelved| shelved.begin + shelved.part.len <= at);
        let (mut done, end) = (0, at + len);
        for Shelved { begin, mapping, part, .. } in &self.0[first..] {
            let from = at + done;
            if from >= end {
                break;
            }
            let bytes = (begin + part.len).min(end) - from;
            let offset = part.exported.offset + (from - begin);
            done += memory.copy_out_of(copier, mapping, offset, to + done, bytes)?;
        }
        Ok(done)
    }

    /// The parts, to be brought into a row.
    pub(crate) fn lent(self) -> Vec<LentPart> {
        let mut known: Vec<(Arc<Mapping>, Arc<PeerMemory>)> = Vec::new();
        let mut parts = Vec::with_capacity(self.0.len());
        for Shelved { mapping, file, part: Listed { exported, len }, .. } in self.0 {
            let is_it = |(other, _): &(Arc<Mapping>, _)| Arc::ptr_eq(other, &mapping);
            let memory = match known.iter().rev().find(|known| is_it(known)) {
                Some((_, memory)) => Arc::clone(memory),
                None => {
                    let memory = Arc::new(PeerMemory::of(Arc::clone(&mapping), file));
                    known.push((mapping, Arc::clone(&memory)));
                    memory
                }
            };
            parts.push(LentPart { memory, offset: exported.offset, len });
        }
        parts
    }

    /// Returns whether the owner of any of them can take memory away.
    pub(crate) fn are_fickle(&self) -> bool {
        self.0.iter().any(|shelved| shelved.mapping.is_fickle())
    }
}
