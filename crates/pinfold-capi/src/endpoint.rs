//! Endpoints, for C.

use std::{
    ffi::{c_char, c_int},
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use pinfold::Endpoint;

use crate::{
    config::{builder, pinfold_config},
    receipt::write_text,
    status::{
        Failure, Outcome, give_out, given, patience, pinfold_status, place, run, store, take_back,
        value,
    },
};

/// An endpoint: exchanges messages with the peers that it is connected to.
pub struct pinfold_endpoint(pub(crate) Endpoint);

/// The endpoint of a handle.
///
/// # Safety
/// NULL, or a handle that was not freed.
#[inline]
pub(crate) unsafe fn the<'a>(endpoint: *const pinfold_endpoint) -> Outcome<&'a Endpoint> {
    // SAFETY: the caller's.
    unsafe { given(endpoint, "endpoint") }.map(|it| &it.0)
}

/// Makes an endpoint. `config` may be NULL. With dedicated_progress it starts a thread.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_endpoint_open(
    config: *const pinfold_config,
    endpoint: *mut *mut pinfold_endpoint,
) -> pinfold_status {
    run(|| {
        let place = place(endpoint, "endpoint")?;
        // SAFETY: the caller's.
        let made = unsafe { builder(config) }?.build()?;
        // SAFETY: the caller's.
        unsafe { give_out(place, pinfold_endpoint(made)) };
        Ok(())
    })
}

/// Closes the endpoint: calls that wait, operations that were posted, and peers are told. The
/// memory of operations is the program's again when this has returned. Peers on this host can still
/// receive what lies in their rings, and memory that was given to them; other messages get a second
/// or two, and what is left then is lost: pinfold_drain() before this tells of it. The handle
/// stays, to be freed.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_endpoint_close(
    endpoint: *const pinfold_endpoint,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        unsafe { the(endpoint) }?.close();
        Ok(())
    })
}

/// Closes the endpoint and frees its handle. No other thread may be in a call of it. Handles of
/// messages, views, regions and queues that it made stay, to be freed.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_endpoint_free(endpoint: *mut pinfold_endpoint) {
    value((), || {
        // SAFETY: the caller's.
        if let Some(endpoint) = unsafe { take_back(endpoint) } {
            endpoint.0.close();
        }
    });
}

/// Waits until everything sent has been delivered, at most `timeout`: PINFOLD_UNDELIVERED, with
/// what is left, after that.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_drain(
    endpoint: *const pinfold_endpoint,
    timeout: i64,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let endpoint = unsafe { the(endpoint) }?;
        Ok(endpoint.drain(patience(timeout).unwrap_or(Duration::MAX))?)
    })
}

/// Makes progress and never waits. `moved` (may be NULL) is set to whether anything happened.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_progress(
    endpoint: *const pinfold_endpoint,
    moved: *mut bool,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let did = unsafe { the(endpoint) }?.progress()?;
        // SAFETY: the caller's.
        unsafe { store(moved, did) };
        Ok(())
    })
}

/// A descriptor for poll(2) and event loops, readable when there is something to do after
/// pinfold_endpoint_arm(). It is the endpoint's: not to be read or closed. -1: the handle is NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_endpoint_fd(endpoint: *const pinfold_endpoint) -> c_int {
    // SAFETY: the caller's.
    value(-1, || unsafe { the(endpoint) }.map_or(-1, |it| it.as_fd().as_raw_fd()))
}

/// Prepares for waiting on the descriptor. `armed` is set to false if something is there already:
/// make progress, and ask again.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_endpoint_arm(
    endpoint: *const pinfold_endpoint,
    armed: *mut bool,
) -> pinfold_status {
    run(|| {
        let armed = place(armed, "armed")?;
        // SAFETY: the caller's.
        let is_armed = unsafe { the(endpoint) }?.arm()?;
        // SAFETY: the caller's.
        unsafe { armed.write(is_armed) };
        Ok(())
    })
}

/// Writes the address "tcp:HOST:PORT" that the endpoint listens at, with the port that it got where
/// 0 was asked for; PINFOLD_NOT_LISTENING if it listens at none. PINFOLD_INVALID if `capacity`
/// bytes, the 0 at its end included, are too few.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_endpoint_address(
    endpoint: *const pinfold_endpoint,
    address: *mut c_char,
    capacity: usize,
) -> pinfold_status {
    run(|| {
        let to = place(address, "address")?;
        // SAFETY: the caller's.
        let at = unsafe { the(endpoint) }?.listens_at().ok_or(pinfold::Error::NotListening)?;
        if at.len() >= capacity {
            let why = format!("the address takes {} bytes, capacity is {capacity}", at.len() + 1);
            return Err(Failure::invalid(why));
        }
        // SAFETY: the caller's.
        unsafe { write_text(&at, to.as_ptr(), capacity) };
        Ok(())
    })
}
