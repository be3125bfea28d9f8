//! Files of peers, by the peers' numbers for them: those mapped, and those that can be mapped
//! again.
//!
//! A file is known as long as it is mapped or its descriptor is kept. Where no more descriptors may
//! be kept, the peer with the most descriptors kept gives up the one that it sent first: so a peer
//! that sends many takes none from those that send few.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustc_hash::FxHashMap;

use super::kept::{Account, Kept};
use crate::{
    PeerId,
    memory::translate::SpaceId,
    transport::{descriptor_channel::Extent, shm::lane::Tie},
};

/// The descriptor by which a file is mapped.
enum Descriptor {
    Kept(Arc<Kept>),
    /// Just received; not decided yet whether it is kept.
    New(OwnedFd),
    Closed,
}

/// One file.
pub(super) struct File {
    pub peer: PeerId,
    /// The peer's number for it.
    pub id: u64,
    pub bytes: u64,
    pub writable: bool,
    pub tie: Tie,
    /// The slot at which it is mapped.
    pub slot: Option<u32>,
    descriptor: Descriptor,
}

impl File {
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.descriptor {
            Descriptor::Kept(kept) => Some(kept.as_fd()),
            Descriptor::New(fd) => Some(fd.as_fd()),
            Descriptor::Closed => None,
        }
    }

    /// Its descriptor, if it is kept.
    pub(super) fn kept(&self) -> Option<Arc<dyn AsFd + Send + Sync>> {
        match &self.descriptor {
            Descriptor::Kept(kept) => Some(Arc::clone(kept) as _),
            Descriptor::New(_) | Descriptor::Closed => None,
        }
    }

    fn is_kept(&self) -> bool {
        matches!(self.descriptor, Descriptor::Kept(_))
    }
}

/// All that are known.
pub(super) struct Files {
    files: FxHashMap<SpaceId, File>,
    spaces: FxHashMap<(PeerId, u64), SpaceId>,
    /// Of each peer, how many descriptors are kept; none is left out.
    kept: FxHashMap<PeerId, usize>,
    account: &'static Account,
    next: u64,
}

impl Files {
    pub(super) fn new(account: &'static Account) -> Files {
        Files {
            files: FxHashMap::default(),
            spaces: FxHashMap::default(),
            kept: FxHashMap::default(),
            account,
            next: 0,
        }
    }

    /// Takes note of a file, by a number that no other has had. One of the same number of the
    /// peer's was removed before.
    pub(super) fn add(&mut self, peer: PeerId, extent: Extent, tie: Tie) -> SpaceId {
        let Extent { id, bytes, writable, fd } = extent;
        let space = SpaceId(self.next);
        self.next += 1;
        let descriptor = Descriptor::New(fd);
        let file = File { peer, id, bytes, writable, tie, slot: None, descriptor };
        self.files.insert(space, file);
        self.spaces.insert((peer, id), space);
        space
    }

    /// The space of a peer's file.
    pub(super) fn space(&self, peer: PeerId, id: u64) -> Option<SpaceId> {
        self.spaces.get(&(peer, id)).copied()
    }

    pub(super) fn get(&self, space: SpaceId) -> Option<&File> {
        self.files.get(&space)
    }

    /// The file that is mapped at `slot`.
    pub(super) fn at(&self, slot: u32) -> Option<&File> {
        self.files.values().find(|file| file.slot == Some(slot))
    }

    /// A peer's.
    pub(super) fn of(&self, peer: PeerId) -> impl Iterator<Item = (SpaceId, &File)> {
        let theirs = self.files.iter().filter(move |(_, file)| file.peer == peer);
        theirs.map(|(space, file)| (*space, file))
    }

    /// Keeps the descriptor of a file that has only just come, if that may be, or closes it.
    pub(super) fn keep(&mut self, space: SpaceId) {
        let Some(file) = self.files.get_mut(&space) else { return };
        let Descriptor::New(fd) = std::mem::replace(&mut file.descriptor, Descriptor::Closed)
        else {
            return;
        };
        let peer = file.peer;
        if !self.account.may_keep(fd.as_fd()) {
            return;
        }
        let kept = self.account.keep(fd).or_else(|fd| {
            self.give_one_up(peer);
            self.account.keep(fd)
        });
        if let (Ok(kept), Some(file)) = (kept, self.files.get_mut(&space)) {
            file.descriptor = Descriptor::Kept(Arc::new(kept));
            *self.kept.entry(peer).or_default() += 1;
        }
    }

    /// Makes room for another descriptor of `peer`'s.
    fn give_one_up(&mut self, peer: PeerId) {
        // With the one that is to come; where several have as many, its own.
        let count = |(owner, kept): (&PeerId, &usize)| {
            let is_it = *owner == peer;
            (*kept + usize::from(is_it), is_it, *owner)
        };
        let most = self.kept.iter().map(count).max_by_key(|(kept, is_it, _)| (*kept, *is_it));
        let Some((.., owner)) = most else { return };
        let theirs = self.of(owner).filter(|(_, file)| file.is_kept());
        if let Some(oldest) = theirs.map(|(space, _)| space).min() {
            self.close(oldest);
        }
    }

    /// Closes the descriptor of a file, which then is known no longer than it is mapped.
    fn close(&mut self, space: SpaceId) {
        let Some(file) = self.files.get_mut(&space) else { return };
        let is_mapped = file.slot.is_some();
        if file.is_kept() {
            file.descriptor = Descriptor::Closed;
            let peer = file.peer;
            self.uncount(peer);
        }
        if !is_mapped {
            self.remove(space);
        }
    }

    /// Closes all descriptors that are kept.
    pub(super) fn close_all(&mut self) {
        let kept: Vec<_> =
            self.files.iter().filter(|(_, file)| file.is_kept()).map(|(space, _)| *space).collect();
        kept.into_iter().for_each(|space| self.close(space));
    }

    fn uncount(&mut self, peer: PeerId) {
        if let Some(kept) = self.kept.get_mut(&peer) {
            *kept -= 1;
            if *kept == 0 {
                self.kept.remove(&peer);
            }
        }
    }

    /// A file was mapped, at `slot`.
    pub(super) fn mapped(&mut self, space: SpaceId, slot: u32) {
        if let Some(file) = self.files.get_mut(&space) {
            file.slot = Some(slot);
        }
    }

    /// A file is mapped there no more.
    pub(super) fn unmapped(&mut self, space: SpaceId, slot: u32) {
        let Some(file) = self.files.get_mut(&space).filter(|file| file.slot == Some(slot)) else {
            return;
        };
        file.slot = None;
        if file.fd().is_none() {
            self.remove(space);
        }
    }

    /// Forgets a file.
    pub(super) fn remove(&mut self, space: SpaceId) {
        if let Some(file) = self.files.remove(&space) {
            self.spaces.remove(&(file.peer, file.id));
            if file.is_kept() {
                self.uncount(file.peer);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.files.len(), self.spaces.len());
        let kept = self.files.values().filter(|file| file.is_kept()).count();
        assert_eq!(self.kept.values().sum::<usize>(), kept);
        self.files.len()
    }
}
