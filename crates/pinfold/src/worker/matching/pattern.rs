//! The messages that a receive accepts: their source and their tags.

use std::ops::RangeFull;

use crate::PeerId;

/// The peers from which a receive accepts messages. Calls take a [`PeerId`], or `..` for every
/// peer, in its place.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// use pinfold::{Endpoint, Source};
///
/// let endpoint = Endpoint::new()?;
/// // Every peer, every tag: no message is there.
/// assert_eq!(Source::from(..), Source::Any);
/// assert!(endpoint.recv_timeout(.., .., std::time::Duration::from_millis(1)).is_err());
/// # Ok(())
/// # }
/// ```
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

/// As [`Source::Any`].
impl From<RangeFull> for Source {
    fn from(_: RangeFull) -> Source {
        Source::Any
    }
}

impl From<PeerId> for Source {
    fn from(peer: PeerId) -> Source {
        Source::Peer(peer)
    }
}

/// The tags that a receive accepts: those that equal its own in every bit that is not ignored.
///
/// Calls take what converts into one: a tag, which is accepted exactly; a pair of a tag and the
/// bits that are not compared; or `..`, for every tag.
///
/// ```
/// use pinfold::TagMatch;
///
/// assert!(TagMatch::from(5).matches(5) && !TagMatch::from(5).matches(4));
/// assert!(TagMatch::from((5, 1)).matches(4) && !TagMatch::from((5, 1)).matches(6));
/// assert!(TagMatch::from(..).matches(6));
/// ```
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

/// As [`TagMatch::any`].
impl From<RangeFull> for TagMatch {
    fn from(_: RangeFull) -> TagMatch {
        TagMatch::any()
    }
}

/// As [`TagMatch::masked`]: a tag, and the bits that are not compared.
impl From<(u64, u64)> for TagMatch {
    fn from((tag, ignore): (u64, u64)) -> TagMatch {
        TagMatch::masked(tag, ignore)
    }
}

impl From<u64> for TagMatch {
    fn from(tag: u64) -> TagMatch {
        TagMatch::exact(tag)
    }
}
