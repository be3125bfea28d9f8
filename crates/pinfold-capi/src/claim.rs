//! Messages that are claimed: looked at, and kept for one receive, for C.

use std::ffi::c_void;

use pinfold::{Claimed, TagMatch};

use crate::{
    endpoint::{pinfold_endpoint, the},
    memory::{One, bytes_mut},
    message::pinfold_message,
    messages::{pinfold_received, source, tell},
    peers::pinfold_peer,
    status::{
        Failure, Outcome, give_out, given, pinfold_status, place, run, store, take_back, value,
    },
};

/// A message that was claimed: no other receive or probe finds it. It uses its sender's credit
/// meanwhile. It is to be received, discarded, or freed.
pub struct pinfold_claimed(Claimed);

/// Claims the message that a receive would take now, MPI's matched probe; any number can be claimed
/// at a time. PINFOLD_TIMEOUT if there is none; never waits. `found` may be NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_claim(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
    tag: u64,
    ignore: u64,
    claimed: *mut *mut pinfold_claimed,
    found: *mut pinfold_received,
) -> pinfold_status {
    run(|| {
        let place = place(claimed, "claimed")?;
        // SAFETY: the caller's.
        let endpoint = unsafe { the(endpoint) }?;
        let claimed = endpoint.claim(source(peer), TagMatch::masked(tag, ignore))?;
        let claimed = claimed.ok_or(Failure::Timeout)?;
        // SAFETY: the caller's.
        unsafe { store(found, (&claimed.envelope()).into()) };
        // SAFETY: the caller's.
        unsafe { give_out(place, pinfold_claimed(claimed)) };
        Ok(())
    })
}

/// The facts of a message that was claimed, without a receipt, since it was not received yet.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_claimed_facts(
    claimed: *const pinfold_claimed,
    found: *mut pinfold_received,
) -> pinfold_status {
    run(|| {
        let place = place(found, "found")?;
        // SAFETY: the caller's.
        let envelope = unsafe { given(claimed, "claimed") }?.0.envelope();
        // SAFETY: the caller's.
        unsafe { place.write((&envelope).into()) };
        Ok(())
    })
}

/// The message of a handle, which is the library's from here on.
///
/// # Safety
/// NULL, or a handle that was not freed.
unsafe fn taken(claimed: *mut pinfold_claimed) -> Outcome<Claimed> {
    // SAFETY: the caller's.
    let taken = unsafe { take_back(claimed) };
    Ok(taken.ok_or_else(|| Failure::invalid("claimed is NULL"))?.0)
}

/// Receives it into `capacity` bytes at `data`, and frees the handle, also if it fails: with
/// PINFOLD_INVALID the message is found again, as after pinfold_claimed_free(). Waits until all of
/// it is there. `received` may be NULL; it is set with PINFOLD_TRUNCATED as well.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_claimed_recv(
    claimed: *mut pinfold_claimed,
    data: *mut c_void,
    capacity: usize,
    received: *mut pinfold_received,
) -> pinfold_status {
    run(|| {
        // First of all, so that the handle is freed whatever comes.
        // SAFETY: the caller's.
        let claimed = unsafe { taken(claimed) }?;
        // SAFETY: the caller's.
        let memory = unsafe { bytes_mut(data.cast(), capacity, "data") }?;
        // SAFETY: the memory is the caller's for the whole call, in which the request ends.
        let memory = unsafe { One::new(memory.as_ptr(), memory.len(), "data") }?;
        let came = claimed.recv_owned(memory).wait().0;
        // SAFETY: the caller's.
        unsafe { tell(came, received) }
    })
}

/// Receives it into memory of the library's, and frees the handle, also if it fails, as
/// pinfold_claimed_recv() does. The message is to be freed.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_claimed_message(
    claimed: *mut pinfold_claimed,
    message: *mut *mut pinfold_message,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let claimed = unsafe { taken(claimed) }?;
        let place = place(message, "message")?;
        let came = claimed.recv_request().wait()?;
        // SAFETY: the caller's.
        unsafe { give_out(place, pinfold_message(came)) };
        Ok(())
    })
}

/// Drops the message, and frees the handle: its sender is told that it was received. Takes NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_claimed_discard(claimed: *mut pinfold_claimed) {
    // SAFETY: the caller's.
    value((), || unsafe { take_back(claimed) }.map_or((), |it| it.0.discard()));
}

/// Frees the handle unused: the message is found again, before all that came later. Takes NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_claimed_free(claimed: *mut pinfold_claimed) {
    // SAFETY: the caller's.
    value((), || drop(unsafe { take_back(claimed) }));
}
