//! All peers of an endpoint: those connected, and a memory of those gone.

use std::collections::VecDeque;

use super::peer::Peer;
use crate::{Error, Gone, PeerId};

/// Gone peers that are remembered, so that errors can name them.
const GONE_PEERS_MAX: usize = 1024;

#[derive(Default)]
struct Place {
    generation: u32,
    peer: Option<Box<Peer>>,
}

/// Peers by index; an index is used again, with the next generation.
#[derive(Default)]
pub(crate) struct PeerTable {
    places: Vec<Place>,
    free: Vec<u32>,
    live: usize,
    gone_peers: VecDeque<(PeerId, String, Gone)>,
}

impl PeerTable {
    /// Adds the peer that `make` makes for its identifier.
    pub(crate) fn add(&mut self, make: impl FnOnce(PeerId) -> Peer) -> PeerId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            (self.places.len() - 1) as u32
        });
        let place = &mut self.places[index as usize];
        let id = PeerId::new(index, place.generation);
        place.peer = Some(Box::new(make(id)));
        self.live += 1;
        id
    }

    /// Takes a peer out and remembers how it went.
    pub(crate) fn remove(&mut self, id: PeerId, how: Gone) -> Option<Box<Peer>> {
        let place = self.places.get_mut(id.index() as usize)?;
        if place.generation != id.generation() {
            return None;
        }
        let peer = place.peer.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(id.index());
        self.live -= 1;
        if self.gone_peers.len() == GONE_PEERS_MAX {
            self.gone_peers.pop_front();
        }
        self.gone_peers.push_back((id, peer.info.name.clone(), how));
        Some(peer)
    }

    /// The peer now at `index`.
    #[inline(always)]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Peer> {
        self.places.get_mut(index as usize)?.peer.as_deref_mut()
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        let place = self.places.get_mut(id.index() as usize)?;
        if place.generation != id.generation() {
            return None;
        }
        place.peer.as_deref_mut()
    }

    pub(crate) fn get(&self, id: PeerId) -> Option<&Peer> {
        let place = self.places.get(id.index() as usize)?;
        if place.generation != id.generation() {
            return None;
        }
        place.peer.as_deref()
    }

    /// Connected peers.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.places.iter().filter_map(|place| place.peer.as_deref())
    }

    pub(crate) fn ids(&self) -> Vec<PeerId> {
        self.iter().map(|peer| peer.id).collect()
    }

    /// The name and the end of the peer that went last.
    pub(crate) fn last_gone(&self) -> Option<(&str, Gone)> {
        self.gone_peers.back().map(|(_, name, how)| (name.as_str(), *how))
    }

    /// The error for a peer that is not connected, with how it went.
    #[cold]
    pub(crate) fn why_gone(&self, id: PeerId) -> Error {
        match self.gone_peers.iter().rev().find(|grave| grave.0 == id) {
            Some((_, name, how)) => Error::PeerGone { peer: name.clone(), how: *how },
            None => Error::UnknownPeer { peer: id },
        }
    }
}
