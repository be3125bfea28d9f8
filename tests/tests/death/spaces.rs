#![allow(unsafe_code)]
// Invariant: raw pointers alone reach the memory that is exposed and may be written by the other
// side.
//! The uses of each other's memory by its addresses, in victim and survivor: mapped, by the kernel,
//! by the agent, with pages that are there and with others that come to be for it.

use std::ptr;

use pinfold::{Endpoint, Error, PeerId, RegionKey, RemoteSpace, Result, Rights, SharedArena};
use pinfold_tests::stamp;

/// The tag of messages about it.
const SPACE: u64 = 76;
/// A tag that no message has.
const NOTHING: u64 = 78;
/// Bytes of each area.
const LEN: usize = 16 << 10;
/// The times that each is used: the first time asks which memory is there, later ones know.
const TIMES: u64 = 3;

/// Memory without pages, until a first touch.
struct Fresh(*mut u8);

impl Fresh {
    fn new() -> Fresh {
        let (rights, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory.
        let at = unsafe { libc::mmap(ptr::null_mut(), LEN, rights, kind, -1, 0) };
        assert!(at != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        Fresh(at.cast())
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: its own, and exposed no more.
        unsafe { libc::munmap(self.0.cast(), LEN) };
    }
}

/// The bytes there.
fn bytes(at: *const u8) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    // SAFETY: memory of so many bytes that only raw pointers reach; no other side is at it any
    // more.
    unsafe { ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), LEN) };
    bytes
}

/// Lets the other side use memory of all kinds, and ends that.
pub fn lend(endpoint: &Endpoint, peer: PeerId, open: &SharedArena, stamp: u64) -> Result<()> {
    let (fresh, buf) = (Fresh::new(), open.alloc(LEN)?);
    let areas = [fresh.0, ptr::with_exposed_provenance_mut(buf.addresses().start)];
    // SAFETY: the other side writes the areas alone, which raw pointers alone reach.
    let exposed = unsafe { endpoint.expose(0..1 << 47, Rights::ReadWrite) }?;
    let mut said = exposed.key().to_bytes().to_vec();
    said.extend(areas.iter().flat_map(|at| (at.expose_provenance() as u64).to_ne_bytes()));
    endpoint.send(peer, SPACE, &said)?;
    endpoint.recv(peer, SPACE)?;
    exposed.revoke()?;
    for at in areas {
        stamp::check(&bytes(at), stamp + TIMES);
    }
    endpoint.send(peer, SPACE, b"over").map(drop)
}

/// Uses the memory that the other side exposes, up to its end.
pub fn borrow(endpoint: &Endpoint, peer: PeerId, stamp: u64) -> Result<()> {
    let said = endpoint.recv(peer, SPACE)?;
    let (key, words) = said.split_at(said.len() - 16);
    let space = endpoint.open_space(peer, &RegionKey::from_bytes(key)?)?;
    let areas = words.chunks_exact(8);
    let areas = areas.map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
    for at in areas.clone() {
        match work(&space, at, stamp) {
            Ok(()) => {}
            // Its message names the owner's memory by a number alone.
            Err(Error::Withdrawn) => return endpoint.recv(peer, NOTHING).map(drop),
            Err(error) if error.is_peer_gone() => return Err(error),
            Err(error) => panic!("memory that is exposed: {error}"),
        }
    }
    endpoint.send(peer, SPACE, b"used")?;
    endpoint.recv(peer, SPACE)?;
    for at in areas {
        match space.write(at, b"too late").expect_err("it is exposed no more") {
            Error::Revoked => {}
            Error::Withdrawn => return endpoint.recv(peer, NOTHING).map(drop),
            error if error.is_peer_gone() => return Err(error),
            error => panic!("memory that was exposed: {error}"),
        }
    }
    Ok(())
}

fn work(space: &RemoteSpace, at: u64, stamp: u64) -> Result<()> {
    let mut found = vec![1; LEN];
    // Memory that no thread has touched yet; the owner makes its pages, or the kernel does.
    space.read(at, &mut found)?;
    for time in 1..=TIMES {
        let request = space.write_owned(at, stamp::bytes(LEN, stamp + time));
        space.fetch_add(at, 0u64)?;
        request.wait().0?;
        space.read(at, &mut found)?;
        stamp::check(&found, stamp + time);
    }
    Ok(())
}
