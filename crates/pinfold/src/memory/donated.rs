#![allow(unsafe_code)]
//! Donated buffers: memory of an arena that is given away.
//!
//! **Invariant.** A donated buffer is kept, by its [`Handoff`](crate::Handoff) or by the engine,
//! until every receiver has said that it looks at it no more, or is gone: only then is its buffer
//! dropped or handed back.

use std::{fmt, sync::Arc};

use super::scatter::{Part, Scatter};
use crate::{ArenaBuf, FrozenBuf, SharedBuf, wire::rendezvous::Exported};

/// Memory that can be given away: a buffer of an [`Arena`](crate::Arena), which receivers then can
/// read, or of a [`SharedArena`](crate::SharedArena), which they can also write, or one that nobody
/// can write any more. Clones are the same memory, for several receivers.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// use pinfold::{Arena, DonatedBuf};
///
/// let mut buf = Arena::new()?.alloc(3)?;
/// buf.copy_from_slice(b"one");
/// let donation = DonatedBuf::from(buf);
/// // Given to nobody, it is a buffer again.
/// assert_eq!(donation.into_arena_buf().as_deref(), Some(&b"one"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DonatedBuf(Arc<Given>);

struct Given {
    memory: Memory,
    exported: Exported,
}

enum Memory {
    Arena(ArenaBuf),
    Shared(SharedBuf),
    Frozen(FrozenBuf),
}

impl DonatedBuf {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match &self.0.memory {
            Memory::Arena(buf) => buf.len(),
            Memory::Shared(buf) => buf.len(),
            Memory::Frozen(buf) => buf.len(),
        }
    }

    /// True if its length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The buffer again, to be written anew. `None`: clones of this exist, which receivers may be
    /// looking at, also after the endpoint has closed; or it is of a
    /// [`SharedArena`](crate::SharedArena), or frozen.
    pub fn into_arena_buf(self) -> Option<ArenaBuf> {
        match Arc::into_inner(self.0)?.memory {
            Memory::Arena(buf) => Some(buf),
            Memory::Shared(_) | Memory::Frozen(_) => None,
        }
    }

    /// As [`DonatedBuf::into_arena_buf`], of a [`SharedArena`](crate::SharedArena).
    pub fn into_shared_buf(self) -> Option<SharedBuf> {
        match Arc::into_inner(self.0)?.memory {
            Memory::Shared(buf) => Some(buf),
            Memory::Arena(_) | Memory::Frozen(_) => None,
        }
    }

    /// Its place in an arena that peers can map.
    pub(crate) fn exported(&self) -> Exported {
        self.0.exported
    }

    /// The memory of several donated buffers, as one message.
    pub(crate) fn gather(donations: &[DonatedBuf]) -> Scatter {
        let parts = donations.iter().map(|donation| donation.part().raw());
        // SAFETY: as for `part`; the operation keeps all of them.
        unsafe { Scatter::many(parts) }
    }

    pub(crate) fn part(&self) -> Part {
        let (ptr, len) = match &self.0.memory {
            Memory::Arena(buf) => (buf.as_ptr().cast_mut(), buf.len()),
            Memory::Shared(buf) => (buf.as_ptr(), buf.len()),
            Memory::Frozen(buf) => (buf.as_ptr().cast_mut(), buf.len()),
        };
        // SAFETY: no kind of buffer moves its bytes, and the operation keeps a clone of this.
        // It only reads them.
        unsafe { Part::new(ptr, len) }
    }
}

impl From<ArenaBuf> for DonatedBuf {
    fn from(buf: ArenaBuf) -> DonatedBuf {
        let (extent, offset) = buf.locate();
        let exported = Exported { extent: extent.id(), offset };
        DonatedBuf(Arc::new(Given { memory: Memory::Arena(buf), exported }))
    }
}

impl From<SharedBuf> for DonatedBuf {
    fn from(buf: SharedBuf) -> DonatedBuf {
        let (extent, offset) = buf.locate();
        let exported = Exported { extent: extent.id(), offset };
        DonatedBuf(Arc::new(Given { memory: Memory::Shared(buf), exported }))
    }
}

impl From<FrozenBuf> for DonatedBuf {
    fn from(buf: FrozenBuf) -> DonatedBuf {
        let (extent, offset) = buf.locate();
        let exported = Exported { extent: extent.id(), offset };
        DonatedBuf(Arc::new(Given { memory: Memory::Frozen(buf), exported }))
    }
}

impl fmt::Debug for DonatedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DonatedBuf").field("len", &self.len()).finish_non_exhaustive()
    }
}
