//! The next message of a lane, for a receive that does not wait.

use super::{
    engine::Engine,
    fast_path::{Took, may_recv_fast, take_head},
    matching::{Source, TagMatch},
    peer::Peer,
    progress,
    table::PeerTable,
};
use crate::{memory::scatter::Part, wire::descriptor::Header};

/// Receives the next message of a lane into one part, if it is here already, matches, is whole and
/// short, no receive that was posted before takes it, and nothing is stored.
///
/// From any source the first lane that has a message is looked at, and no other.
#[inline]
pub(crate) fn take_next(
    engine: &mut Engine,
    from: Source,
    tag: TagMatch,
    memory: Part,
) -> Option<Took> {
    if !may_recv_fast(engine) {
        return None;
    }
    progress::turn(engine);
    let (peer, header) = match from {
        Source::Peer(id) => {
            let peer = engine.peers.get_mut(id).filter(|peer| !peer.is_leaving())?;
            let header = peer.rx.head()?;
            (peer, header)
        }
        Source::Any => head_of_any(&engine.hot, &mut engine.peers)?,
    };
    take_head(&mut engine.core, peer, header, tag, memory)
}

/// [`take_next`] from one peer, for a receive that is posted otherwise.
///
/// From any source it does not even look: to look at a line that its sender is about to write
/// makes both wait for it.
#[inline]
pub(crate) fn recv_at_once(
    engine: &mut Engine,
    from: Source,
    tag: TagMatch,
    memory: Part,
) -> Option<Took> {
    matches!(from, Source::Peer(_)).then(|| take_next(engine, from, tag, memory))?
}

/// The first of these lanes at whose head a message is.
#[inline(always)]
pub(super) fn head_of_any<'a>(
    hot: &[u32],
    peers: &'a mut PeerTable,
) -> Option<(&'a mut Peer, Header)> {
    let has_head = |index: &&u32| {
        peers.at_mut(**index).is_some_and(|it| it.leaving().is_none() && it.rx.head().is_some())
    };
    let index = *hot.iter().find(has_head)?;
    let peer = peers.at_mut(index)?;
    let header = peer.rx.head()?;
    Some((peer, header))
}
