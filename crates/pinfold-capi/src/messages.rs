//! Messages by calls that wait, for C.

use std::{ffi::c_void, time::Duration};

use libc::iovec;
use pinfold::{Endpoint, Envelope, Error, Received, Source, TagMatch};

use crate::{
    endpoint::{pinfold_endpoint, the},
    memory::{One, bytes, bytes_mut, slices, slices_mut},
    peers::{PINFOLD_ANY_PEER, named, number, pinfold_peer},
    receipt::pinfold_receipt,
    status::{Failure, Outcome, patience, pinfold_status, run, store},
};

/// Ignores all bits of a tag, for receives.
pub const PINFOLD_ANY_TAG: u64 = u64::MAX;

/// The facts of a message.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinfold_received {
    /// The peer that sent it.
    pub peer: pinfold_peer,
    /// Its tag.
    pub tag: u64,
    /// Its length, bytes; with PINFOLD_TRUNCATED more than the memory that it came to.
    pub len: u64,
    /// How it came.
    pub receipt: pinfold_receipt,
}

impl From<&Received> for pinfold_received {
    fn from(it: &Received) -> pinfold_received {
        let receipt = pinfold_receipt::from(&it.receipt);
        pinfold_received { peer: number(it.peer), tag: it.tag, len: it.len, receipt }
    }
}

impl From<&Envelope> for pinfold_received {
    fn from(it: &Envelope) -> pinfold_received {
        let receipt = pinfold_receipt::NONE;
        pinfold_received { peer: number(it.peer), tag: it.tag, len: it.len, receipt }
    }
}

/// The facts of a message that was longer than its memory. `None`: another error.
pub(crate) fn truncated(error: &Error) -> Option<pinfold_received> {
    let Error::Truncated { len, peer, tag, receipt, .. } = error else { return None };
    let receipt = pinfold_receipt::from(receipt);
    Some(pinfold_received { peer: number(*peer), tag: *tag, len: *len, receipt })
}

/// The sources that a receive takes.
#[inline]
pub(crate) fn source(from: pinfold_peer) -> Source {
    match from {
        PINFOLD_ANY_PEER => Source::Any,
        peer => named(peer).into(),
    }
}

/// Sends `len` bytes at `data` and returns when the memory is the program's again: at once if they
/// went into the ring, else when the receiver has them. `receipt` may be NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_send(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
    tag: u64,
    data: *const c_void,
    len: usize,
    receipt: *mut pinfold_receipt,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (endpoint, data) = unsafe { (the(endpoint)?, bytes(data.cast(), len, "data")?) };
        let sent = endpoint.send(named(peer), tag, data)?;
        if !receipt.is_null() {
            // SAFETY: the caller's.
            unsafe { receipt.write((&sent).into()) };
        }
        Ok(())
    })
}

/// As pinfold_send(), but waits at most `timeout` for the receiver to take the message:
/// PINFOLD_NOT_TAKEN after that, and nothing was sent unless pinfold_error() says that this is
/// unsure. A long message stays in this memory until it has moved: a receiver that makes no
/// progress when the time is up is waited for, since it may be told where the memory is.
///
/// With 0 it never waits: PINFOLD_TIMEOUT if the message cannot go at once, and
/// PINFOLD_LIMIT_REACHED if it is longer than messages that never wait may be, some 16 KiB.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_send_within(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
    tag: u64,
    data: *const c_void,
    len: usize,
    timeout: i64,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (endpoint, data) = unsafe { (the(endpoint)?, bytes(data.cast(), len, "data")?) };
        match patience(timeout) {
            None => endpoint.send(named(peer), tag, data).map(drop)?,
            Some(Duration::ZERO) => {
                if !endpoint.try_send(named(peer), tag, data)? {
                    return Err(Failure::Timeout);
                }
            }
            Some(limit) => endpoint.send_timeout(named(peer), tag, data, limit).map(drop)?,
        }
        Ok(())
    })
}

/// As pinfold_send(), of memory in up to 1,024 parts, as one message.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_sendv(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
    tag: u64,
    parts: *const iovec,
    count: usize,
    receipt: *mut pinfold_receipt,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (endpoint, parts) = unsafe { (the(endpoint)?, slices(parts, count)?) };
        let sent = endpoint.send_vectored(named(peer), tag, &parts)?;
        // SAFETY: the caller's.
        unsafe { store(receipt, (&sent).into()) };
        Ok(())
    })
}

/// Waits for a message from `peer` (or PINFOLD_ANY_PEER) whose tag equals `tag` in the bits that
/// `ignore` does not have, and receives it into `capacity` bytes at `data`. Waits at most
/// `timeout`, with 0 not at all. `received` may be NULL; it is set with PINFOLD_TRUNCATED as well.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_recv(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
    tag: u64,
    ignore: u64,
    data: *mut c_void,
    capacity: usize,
    timeout: i64,
    received: *mut pinfold_received,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let endpoint = unsafe { the(endpoint) }?;
        // SAFETY: the caller's.
        let memory = unsafe { bytes_mut(data.cast(), capacity, "data") }?;
        let (from, tag) = (source(peer), TagMatch::masked(tag, ignore));
        let came = match patience(timeout) {
            None => endpoint.recv_into(from, tag, memory),
            Some(limit) => recv_within(endpoint, from, tag, memory, limit)?,
        };
        // SAFETY: the caller's.
        unsafe { tell(came, received) }
    })
}

/// # Safety
/// `place` is NULL or valid for a write.
#[inline]
pub(crate) unsafe fn tell(came: Result<Received, Error>, place: *mut pinfold_received) -> Outcome {
    let error = match came {
        Ok(came) => {
            if !place.is_null() {
                // SAFETY: the caller's.
                unsafe { place.write((&came).into()) };
            }
            return Ok(());
        }
        Err(error) => error,
    };
    if let Some(facts) = truncated(&error) {
        // SAFETY: the caller's.
        unsafe { store(place, facts) };
    }
    Err(error.into())
}

/// As `Endpoint::recv_into`, which has no limit.
fn recv_within(
    endpoint: &Endpoint,
    from: Source,
    tag: TagMatch,
    memory: &mut [u8],
    limit: Duration,
) -> Outcome<Result<Received, Error>> {
    let tried = match endpoint.try_recv_into(from, tag, memory) {
        Ok(None) if limit.is_zero() => {
            endpoint.progress()?;
            endpoint.try_recv_into(from, tag, memory)
        }
        tried => tried,
    };
    match tried.transpose() {
        Some(came) => return Ok(came),
        None if limit.is_zero() => return Err(Failure::Timeout),
        None => (),
    }
    // SAFETY: the memory is the caller's for the whole call, in which the request ends.
    let memory = unsafe { One::new(memory.as_ptr(), memory.len(), "data") }?;
    let mut request = endpoint.recv_owned(from, tag, memory);
    if let Some((came, _)) = request.wait_timeout(limit) {
        return Ok(came);
    }
    request.cancel();
    match request.wait().0 {
        Err(Error::Cancelled) => Err(Failure::Timeout),
        // The message was faster, or has begun to come.
        came => Ok(came),
    }
}

/// As pinfold_recv() without a limit, into memory in up to 1,024 parts.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_recvv(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
    tag: u64,
    ignore: u64,
    parts: *const iovec,
    count: usize,
    received: *mut pinfold_received,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (endpoint, mut parts) = unsafe { (the(endpoint)?, slices_mut(parts, count)?) };
        let tag = TagMatch::masked(tag, ignore);
        let came = endpoint.recv_vectored(source(peer), tag, &mut parts);
        // SAFETY: the caller's.
        unsafe { tell(came, received) }
    })
}

/// The facts of the message that a receive would take now, left where it is; PINFOLD_TIMEOUT if
/// there is none, at once with a `timeout` of 0. Any other limit than 0 and PINFOLD_FOREVER is
/// PINFOLD_INVALID: wait on the endpoint's descriptor.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_probe(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
    tag: u64,
    ignore: u64,
    timeout: i64,
    found: *mut pinfold_received,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let endpoint = unsafe { the(endpoint) }?;
        let (from, tag) = (source(peer), TagMatch::masked(tag, ignore));
        let envelope = match timeout {
            0 => endpoint.try_probe(from, tag)?.ok_or(Failure::Timeout)?,
            ..0 => endpoint.probe(from, tag)?,
            _ => {
                let why = "a probe waits for ever or not at all; timeout is neither";
                return Err(Failure::invalid(why));
            }
        };
        // SAFETY: the caller's.
        unsafe { store(found, (&envelope).into()) };
        Ok(())
    })
}
