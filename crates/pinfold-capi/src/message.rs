//! Messages in memory of the library's, for C.

use std::ffi::c_void;

use pinfold::{Message, TagMatch};

use crate::{
    endpoint::{pinfold_endpoint, the},
    messages::{pinfold_received, source},
    peers::{number, pinfold_peer},
    status::{give_out, given, patience, pinfold_status, place, run, store, take_back, value},
};

/// A message of any length, in memory of the library's. It stays good when its endpoint is closed
/// or freed.
pub struct pinfold_message(pub(crate) Message);

/// Waits for a message of any length, at most `timeout`; see pinfold_recv(). The message is to be
/// freed.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_recv_message(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
    tag: u64,
    ignore: u64,
    timeout: i64,
    message: *mut *mut pinfold_message,
) -> pinfold_status {
    run(|| {
        let place = place(message, "message")?;
        // SAFETY: the caller's.
        let endpoint = unsafe { the(endpoint) }?;
        let (from, tag) = (source(peer), TagMatch::masked(tag, ignore));
        let came = match patience(timeout) {
            None => endpoint.recv(from, tag),
            Some(limit) => endpoint.recv_timeout(from, tag, limit),
        }?;
        // SAFETY: the caller's.
        unsafe { give_out(place, pinfold_message(came)) };
        Ok(())
    })
}

/// Its bytes, contiguous, good until it is freed; NULL for NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_message_data(message: *const pinfold_message) -> *const c_void {
    value(std::ptr::null(), || {
        // SAFETY: the caller's.
        unsafe { message.as_ref() }.map_or(std::ptr::null(), |it| it.0.as_ptr().cast())
    })
}

/// Its length, bytes; 0 for NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_message_len(message: *const pinfold_message) -> usize {
    // SAFETY: the caller's.
    value(0, || unsafe { message.as_ref() }.map_or(0, |it| it.0.len()))
}

/// Its facts.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_message_facts(
    message: *const pinfold_message,
    facts: *mut pinfold_received,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let message = &unsafe { given(message, "message") }?.0;
        let (peer, tag, len) = (number(message.peer()), message.tag(), message.len() as u64);
        let receipt = (&message.receipt()).into();
        // SAFETY: the caller's.
        unsafe { store(facts, pinfold_received { peer, tag, len, receipt }) };
        Ok(())
    })
}

/// Frees it.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_message_free(message: *mut pinfold_message) {
    // SAFETY: the caller's.
    value((), || drop(unsafe { take_back(message) }));
}
