//! Memory of peers, for C.

use std::ffi::c_void;

use pinfold::{RegionKey, RemoteRegion, RemoteSpace};

use crate::{
    endpoint::{pinfold_endpoint, the},
    key::pinfold_key,
    memory::{One, bytes, bytes_mut},
    peers::{named, pinfold_peer},
    queue::{pinfold_queue, the_queue},
    receipt::pinfold_receipt,
    status::{Outcome, give_out, given, pinfold_status, place, run, store, take_back, value},
};

/// Memory of a peer, used without that peer's program.
pub struct pinfold_remote(pub(crate) Remote);

/// The memory, by how places in it are named.
pub(crate) enum Remote {
    Offsets(RemoteRegion),
    Addresses(RemoteSpace),
}

/// Runs an expression with the memory, whichever it is.
macro_rules! with {
    ($remote:expr, $it:ident => $do:expr) => {
        match $remote {
            $crate::remote::Remote::Offsets($it) => $do,
            $crate::remote::Remote::Addresses($it) => $do,
        }
    };
}
pub(crate) use with;

/// The memory of a handle.
///
/// # Safety
/// NULL, or a handle that was not freed.
#[inline]
pub(crate) unsafe fn the_remote<'a>(remote: *const pinfold_remote) -> Outcome<&'a Remote> {
    // SAFETY: the caller's.
    unsafe { given(remote, "remote") }.map(|it| &it.0)
}

/// Opens memory of a peer by its key. Places in it are offsets from its beginning, or, with
/// `by_address`, addresses in the peer's process. Asks the owner, which answers while it makes
/// progress.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_remote_open(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
    key: *const pinfold_key,
    by_address: bool,
    remote: *mut *mut pinfold_remote,
) -> pinfold_status {
    run(|| {
        let place = place(remote, "remote")?;
        // SAFETY: the caller's.
        let (endpoint, key) = unsafe { (the(endpoint)?, given(key, "key")?) };
        let key = RegionKey::from_bytes(&key.bytes)?;
        let opened = match by_address {
            false => Remote::Offsets(endpoint.open_region(named(peer), &key)?),
            true => Remote::Addresses(endpoint.open_space(named(peer), &key)?),
        };
        // SAFETY: the caller's.
        unsafe { give_out(place, pinfold_remote(opened)) };
        Ok(())
    })
}

/// Its length, bytes; 0 for NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_remote_len(remote: *const pinfold_remote) -> u64 {
    // SAFETY: the caller's.
    value(0, || unsafe { the_remote(remote) }.map_or(0, |remote| with!(remote, it => it.len())))
}

/// The address of its first byte in the peer's process; 0 for NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_remote_address(remote: *const pinfold_remote) -> u64 {
    value(0, || {
        // SAFETY: the caller's.
        unsafe { the_remote(remote) }.map_or(0, |remote| with!(remote, it => it.addresses().start))
    })
}

/// Writes `len` bytes at a place: they are there when this returns. `receipt` may be NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_write(
    remote: *const pinfold_remote,
    at: u64,
    data: *const c_void,
    len: usize,
    receipt: *mut pinfold_receipt,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (remote, data) = unsafe { (the_remote(remote)?, bytes(data.cast(), len, "data")?) };
        let done = with!(remote, it => it.write(at, data))?;
        if !receipt.is_null() {
            // SAFETY: the caller's.
            unsafe { receipt.write((&done).into()) };
        }
        Ok(())
    })
}

/// Reads `len` bytes at a place. `receipt` may be NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_read(
    remote: *const pinfold_remote,
    at: u64,
    data: *mut c_void,
    len: usize,
    receipt: *mut pinfold_receipt,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (remote, data) = unsafe { (the_remote(remote)?, bytes_mut(data.cast(), len, "data")?) };
        let done = with!(remote, it => it.read(at, data))?;
        // SAFETY: the caller's.
        unsafe { store(receipt, (&done).into()) };
        Ok(())
    })
}

/// Waits until everything written so far is in the memory, which it is at once on one host.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_flush(remote: *const pinfold_remote) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let remote = unsafe { the_remote(remote) }?;
        Ok(with!(remote, it => it.flush())?)
    })
}

/// Posts a write: PINFOLD_COPIED. The memory is the operation's until its completion was taken.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_post_write(
    remote: *const pinfold_remote,
    queue: *const pinfold_queue,
    context: u64,
    at: u64,
    data: *const c_void,
    len: usize,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (remote, queue) = unsafe { (the_remote(remote)?, the_queue(queue)?) };
        // SAFETY: the caller's.
        let memory = unsafe { One::new(data.cast(), len, "data") }?;
        with!(remote, it => queue.add(context, it.write_owned(at, memory)));
        Ok(())
    })
}

/// Posts a read: PINFOLD_COPIED. The memory is the operation's until its completion was taken.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_post_read(
    remote: *const pinfold_remote,
    queue: *const pinfold_queue,
    context: u64,
    at: u64,
    data: *mut c_void,
    len: usize,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (remote, queue) = unsafe { (the_remote(remote)?, the_queue(queue)?) };
        // SAFETY: the caller's.
        let memory = unsafe { One::new(data.cast(), len, "data") }?;
        with!(remote, it => queue.add(context, it.read_owned(at, memory)));
        Ok(())
    })
}

/// Frees the handle. Operations that were posted go on.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_remote_free(remote: *mut pinfold_remote) {
    // SAFETY: the caller's.
    value((), || drop(unsafe { take_back(remote) }));
}
