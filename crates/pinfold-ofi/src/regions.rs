//! The memory that a domain's program lets peers use, by libfabric's keys.
//!
//! A region is exposed by an endpoint of the library's when the first peer of that endpoint asks
//! for it, so a region costs nothing that is never used. The library watches, checks and revokes:
//! nothing is pinned, and addresses mean what is there at the time.
#![allow(unsafe_code)]
// Invariant: memory is exposed from its registration until the region is closed, which its program
// promises to keep for so long; bytes that peers may change are reached by no reference.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use pinfold::{Endpoint, Exposed, RegionKey, Rights};
use rustc_hash::FxHashMap;

use crate::{
    cntr::Cntr,
    ffi::flags::{FI_ENOKEY, FI_REMOTE_READ, FI_REMOTE_WRITE},
    guard::{Answer, Code},
};

/// The regions of a domain.
#[derive(Default)]
pub struct Regions(Mutex<Table>);

#[derive(Default)]
struct Table {
    by_key: FxHashMap<u64, Arc<Region>>,
    /// The next key that the provider chooses.
    next: u64,
}

/// A region.
pub struct Region {
    pub key: u64,
    /// Its place in this process.
    pub memory: Range<usize>,
    /// The number of its first byte, as peers name it.
    pub base: u64,
    /// `FI_REMOTE_READ`, `FI_REMOTE_WRITE`.
    pub access: u64,
    /// The exposures, by the numbers of endpoints; `None` once it is closed.
    exposed: Mutex<Option<Vec<(u64, Exposed)>>>,
    /// Counters of what peers do to it, each with the accesses that it counts.
    counters: Mutex<Vec<(Arc<Cntr>, u64)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Regions {
    /// Adds a region by this key, or by one that is chosen for it.
    ///
    /// # Errors
    /// `FI_ENOKEY`: the key is in use.
    pub fn add(
        &self,
        key: Option<u64>,
        memory: Range<usize>,
        base: u64,
        access: u64,
    ) -> Answer<Arc<Region>> {
        let mut table = lock(&self.0);
        let key = match key {
            Some(key) if table.by_key.contains_key(&key) => return Err(Code(FI_ENOKEY)),
            Some(key) => key,
            None => {
                while table.by_key.contains_key(&table.next) {
                    table.next += 1;
                }
                table.next += 1;
                table.next - 1
            }
        };
        let region = Arc::new(Region {
            key,
            memory,
            base,
            access,
            exposed: Mutex::new(Some(Vec::new())),
            counters: Mutex::default(),
        });
        table.by_key.insert(key, Arc::clone(&region));
        Ok(region)
    }

    /// The region with this key.
    pub fn get(&self, key: u64) -> Answer<Arc<Region>> {
        lock(&self.0).by_key.get(&key).cloned().ok_or(Code(FI_ENOKEY))
    }

    /// Closes a region: peers that keep to the rules use it no more when this returns.
    pub fn remove(&self, region: &Region) {
        lock(&self.0).by_key.remove(&region.key);
        // Revoked outside of the lock, which handlers take.
        let exposed = lock(&region.exposed).take();
        drop(exposed);
    }

    /// An endpoint closes: its exposures end.
    pub fn forget(&self, endpoint: u64) {
        let regions: Vec<_> = lock(&self.0).by_key.values().cloned().collect();
        for region in regions {
            let gone: Vec<_> = match &mut *lock(&region.exposed) {
                Some(exposed) => exposed.extract_if(.., |it| it.0 == endpoint).collect(),
                None => Vec::new(),
            };
            drop(gone);
        }
    }
}

impl Region {
    /// The library's key of the region, for peers of this endpoint.
    pub fn exposed_by(&self, endpoint: &Endpoint, number: u64) -> Answer<RegionKey> {
        let find = |exposed: &Option<Vec<(u64, Exposed)>>| {
            let exposed = exposed.as_ref().ok_or(Code(FI_ENOKEY))?;
            let found = exposed.iter().find(|it| it.0 == number);
            Ok::<_, Code>(found.map(|(_, it)| it.key()))
        };
        if let Some(key) = find(&lock(&self.exposed))? {
            return Ok(key);
        }
        let writes = self.access & FI_REMOTE_WRITE != 0;
        let rights = if writes { Rights::ReadWrite } else { Rights::Read };
        // SAFETY: the program has registered the memory for the use of peers, and keeps it, and no
        // references that they would break, until it closes the region.
        let exposed = unsafe { endpoint.expose(self.memory.clone(), rights) };
        let exposed = exposed.map_err(|_| Code(libc::ENOMEM))?;
        let key = exposed.key();
        match &mut *lock(&self.exposed) {
            Some(all) => all.push((number, exposed)),
            None => return Err(Code(FI_ENOKEY)),
        }
        Ok(key)
    }

    /// The place of `len` bytes that peers name `at`, if all of them may be used so.
    pub fn place(&self, at: u64, len: usize, access: u64) -> Answer<usize> {
        if self.access & access != access {
            return Err(Code(libc::EACCES));
        }
        let offset = at.checked_sub(self.base).and_then(|offset| usize::try_from(offset).ok());
        let end = offset.and_then(|offset| offset.checked_add(len));
        match (offset, end) {
            (Some(offset), Some(end)) if end <= self.memory.len() => Ok(self.memory.start + offset),
            _ => Err(Code(libc::EACCES)),
        }
    }

    /// Has a counter count what peers do by these accesses.
    pub fn bind(&self, counter: &Arc<Cntr>, access: u64) {
        lock(&self.counters).push((Arc::clone(counter), access));
    }

    /// Returns whether somebody wants to know what peers do.
    pub fn is_counted(&self) -> bool {
        !lock(&self.counters).is_empty()
    }

    /// A peer has used it.
    pub fn used(&self, access: u64) {
        for (counter, counts) in lock(&self.counters).iter() {
            if counts & access != 0 {
                counter.count();
            }
        }
    }
}

/// The accesses of peers.
pub const REMOTE: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_places_stay_inside() {
        let regions = Regions::default();
        let one = regions.add(Some(0), 1000..1100, 0, FI_REMOTE_READ).unwrap();
        assert!(regions.add(Some(0), 0..1, 0, REMOTE).is_err());
        let two = regions.add(None, 5000..5010, 5000, REMOTE).unwrap();
        assert_ne!(one.key, two.key);
        assert_eq!(one.place(0, 100, FI_REMOTE_READ), Ok(1000));
        assert_eq!(one.place(1, 100, FI_REMOTE_READ), Err(Code(libc::EACCES)));
        assert_eq!(one.place(u64::MAX, 2, FI_REMOTE_READ), Err(Code(libc::EACCES)));
        assert_eq!(one.place(0, 8, FI_REMOTE_WRITE), Err(Code(libc::EACCES)));
        assert_eq!(two.place(5002, 8, REMOTE), Ok(5002));
        assert_eq!(two.place(4999, 1, REMOTE), Err(Code(libc::EACCES)));
        regions.remove(&one);
        assert!(regions.get(0).is_err() && regions.get(two.key).is_ok());
        assert!(regions.add(Some(0), 0..1, 0, REMOTE).is_ok());
    }
}
