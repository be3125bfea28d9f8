//! Peers of an endpoint, for C.

use std::{ffi::c_char, time::Duration};

use pinfold::{Path, PeerId, PeerInfo};

use crate::{
    config::needed,
    endpoint::{pinfold_endpoint, the},
    receipt::write_text,
    sized::Plain,
    status::{Failure, patience, pinfold_status, place, run},
};

/// Names a peer of one endpoint. Never used again within the endpoint's life; never
/// PINFOLD_ANY_PEER.
pub type pinfold_peer = u64;

/// Any peer, for receives.
pub const PINFOLD_ANY_PEER: u64 = u64::MAX;

pub(crate) fn number(peer: PeerId) -> pinfold_peer {
    peer.to_bits()
}

pub(crate) fn named(peer: pinfold_peer) -> PeerId {
    PeerId::from_bits(peer)
}

/// Connects to the endpoint that listens at `address`: "local:NAME", "local:USER/NAME" or
/// "tcp:HOST:PORT". Waits at most `timeout` for one to listen there; 0: it has to listen now. The
/// other side has to call its library meanwhile.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_connect(
    endpoint: *const pinfold_endpoint,
    address: *const c_char,
    timeout: i64,
    peer: *mut pinfold_peer,
) -> pinfold_status {
    run(|| {
        let peer = place(peer, "peer")?;
        // SAFETY: the caller's.
        let (endpoint, address) = unsafe { (the(endpoint)?, needed(address, "address")?) };
        let connected = match patience(timeout) {
            Some(Duration::ZERO) => endpoint.connect(address),
            limit => endpoint.connect_wait(address, limit.unwrap_or(Duration::MAX)),
        }?;
        // SAFETY: the caller's.
        unsafe { peer.write(number(connected)) };
        Ok(())
    })
}

/// Waits for a peer to connect to this endpoint, at most `timeout`.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_accept(
    endpoint: *const pinfold_endpoint,
    timeout: i64,
    peer: *mut pinfold_peer,
) -> pinfold_status {
    run(|| {
        let peer = place(peer, "peer")?;
        // SAFETY: the caller's.
        let endpoint = unsafe { the(endpoint) }?;
        let accepted = match patience(timeout) {
            None => endpoint.accept(),
            Some(limit) => endpoint.accept_timeout(limit),
        }?;
        // SAFETY: the caller's.
        unsafe { peer.write(number(accepted)) };
        Ok(())
    })
}

/// Ends the connection with a peer; PINFOLD_UNKNOWN_PEER if it is none.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_disconnect(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let endpoint = unsafe { the(endpoint) }?;
        let peer = named(peer);
        endpoint.peer(peer).ok_or(pinfold::Error::UnknownPeer { peer })?;
        endpoint.disconnect(peer);
        Ok(())
    })
}

/// Facts about a peer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinfold_peer_info {
    /// Its number.
    pub peer: pinfold_peer,
    /// Its process; 0 if that lies in another namespace, or on another host.
    pub pid: u32,
    /// Its user; the largest number for a peer on another host.
    pub uid: u32,
    /// The paths by which messages to it can go: bit N for the pinfold_path N.
    pub paths: u32,
    /// Nonzero: the connection with it is encrypted.
    pub encrypted: u32,
    /// How often a connection with another host broke and another took its place.
    pub reconnections: u64,
    /// Its label and process, as errors name it; cut if it is longer.
    pub name: [c_char; 64],
}

// SAFETY: integers.
unsafe impl Plain for pinfold_peer_info {}

impl From<&PeerInfo> for pinfold_peer_info {
    fn from(info: &PeerInfo) -> pinfold_peer_info {
        let mut name = [0; 64];
        // SAFETY: an array of our own.
        unsafe { write_text(&info.name, name.as_mut_ptr(), name.len()) };
        let paths = Path::ALL.into_iter().filter(|path| info.paths.contains(*path));
        pinfold_peer_info {
            peer: number(info.id),
            pid: info.pid,
            uid: info.uid,
            paths: paths.fold(0, |bits, path| bits | 1 << path as u32),
            encrypted: info.encryption.is_some().into(),
            reconnections: info.reconnections,
            name,
        }
    }
}

/// Facts about a peer; `size` is sizeof(pinfold_peer_info).
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_peer_facts(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
    info: *mut pinfold_peer_info,
    size: usize,
) -> pinfold_status {
    run(|| {
        let id = named(peer);
        // SAFETY: the caller's.
        let found = unsafe { the(endpoint) }?.peer(id);
        let found = found.ok_or(pinfold::Error::UnknownPeer { peer: id })?;
        // SAFETY: the caller's.
        unsafe { pinfold_peer_info::from(&found).write(info, size, "info") }
    })
}

/// The peers that are connected: stores up to `capacity` numbers, and sets `count` to how many
/// peers there are, which may be more.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_peers(
    endpoint: *const pinfold_endpoint,
    peers: *mut pinfold_peer,
    capacity: usize,
    count: *mut usize,
) -> pinfold_status {
    run(|| {
        let count = place(count, "count")?;
        if capacity > 0 && peers.is_null() {
            return Err(Failure::invalid(format!("peers is NULL, but has room for {capacity}")));
        }
        // SAFETY: the caller's.
        let all = unsafe { the(endpoint) }?.peers();
        for (at, info) in all.iter().take(capacity).enumerate() {
            // SAFETY: the caller's; `at` is less than `capacity`.
            unsafe { peers.add(at).write(number(info.id)) };
        }
        // SAFETY: the caller's.
        unsafe { count.write(all.len()) };
        Ok(())
    })
}
