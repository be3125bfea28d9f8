//! The messages that a receive accepts: their source and their tags.

use crate::PeerId;

/// The peers from which a receive accepts messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Every peer.
    Any,
    /// This peer only.
    Peer(PeerId),
}

impl Source {
    /// Returns whether a message from `peer` is accepted.
    #[inline]
    pub fn matches(self, peer: PeerId) -> bool {
        match self {
            Source::Any => true,
            Source::Peer(this) => this == peer,
        }
    }
}

impl From<PeerId> for Source {
    fn from(peer: PeerId) -> Source {
        Source::Peer(peer)
    }
}

/// The tags that a receive accepts: those that equal its own in every bit that is not ignored.
///
/// A `u64` converts into the match that accepts exactly that tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagMatch {
    /// Zero in the ignored bits, so that equal matches are equal values.
    tag: u64,
    ignore: u64,
}

impl TagMatch {
    /// Accepts `tag` alone.
    pub const fn exact(tag: u64) -> TagMatch {
        TagMatch::masked(tag, 0)
    }

    /// Accepts every tag.
    pub const fn any() -> TagMatch {
        TagMatch::masked(0, u64::MAX)
    }

    /// Accepts the tags that equal `tag` in all bits but those set in `ignore`.
    pub const fn masked(tag: u64, ignore: u64) -> TagMatch {
        TagMatch { tag: tag & !ignore, ignore }
    }

    /// The tag asked for, zero in the ignored bits.
    pub const fn tag(self) -> u64 {
        self.tag
    }

    /// The bits that are not compared.
    pub const fn ignore(self) -> u64 {
        self.ignore
    }

    /// Returns whether a message with `tag` is accepted.
    #[inline]
    pub const fn matches(self, tag: u64) -> bool {
        (self.tag ^ tag) & !self.ignore == 0
    }
}

impl From<u64> for TagMatch {
    fn from(tag: u64) -> TagMatch {
        TagMatch::exact(tag)
    }
}
