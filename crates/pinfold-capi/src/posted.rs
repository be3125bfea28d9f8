//! Operations that go on by themselves and end in a queue, for C.
//!
//! Memory is the operation's from the call until its completion was taken, or until its endpoint
//! was closed. A failure to post is a completion, too, unless an argument makes no sense.

use std::{
    ffi::{c_char, c_void},
    time::Duration,
};

use libc::iovec;
use pinfold::TagMatch;

use crate::{
    config::needed,
    endpoint::{pinfold_endpoint, the},
    memory::{Many, One},
    messages::source,
    peers::{named, pinfold_peer},
    queue::{pinfold_queue, the_queue},
    status::{patience, pinfold_status, run},
};

/// Posts a send of `len` bytes at `data`: PINFOLD_SENT. Never waits. The memory is the operation's
/// until its completion was taken.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_post_send(
    endpoint: *const pinfold_endpoint,
    queue: *const pinfold_queue,
    context: u64,
    peer: pinfold_peer,
    tag: u64,
    data: *const c_void,
    len: usize,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (endpoint, queue) = unsafe { (the(endpoint)?, the_queue(queue)?) };
        // SAFETY: the caller's.
        let memory = unsafe { One::new(data.cast(), len, "data") }?;
        queue.add(context, endpoint.send_owned(named(peer), tag, memory));
        Ok(())
    })
}

/// As pinfold_post_send(), of memory in up to 1,024 parts. The vector itself is the program's again
/// when this returns.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_post_sendv(
    endpoint: *const pinfold_endpoint,
    queue: *const pinfold_queue,
    context: u64,
    peer: pinfold_peer,
    tag: u64,
    parts: *const iovec,
    count: usize,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (endpoint, queue) = unsafe { (the(endpoint)?, the_queue(queue)?) };
        // SAFETY: the caller's.
        let memory = unsafe { Many::new(parts, count) }?;
        queue.add(context, endpoint.send_owned(named(peer), tag, memory));
        Ok(())
    })
}

/// Posts a receive into `capacity` bytes at `data`: PINFOLD_RECEIVED. Never waits. See
/// pinfold_recv() for what it takes. The memory is the operation's until its completion was taken.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_post_recv(
    endpoint: *const pinfold_endpoint,
    queue: *const pinfold_queue,
    context: u64,
    peer: pinfold_peer,
    tag: u64,
    ignore: u64,
    data: *mut c_void,
    capacity: usize,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (endpoint, queue) = unsafe { (the(endpoint)?, the_queue(queue)?) };
        // SAFETY: the caller's.
        let memory = unsafe { One::new(data.cast(), capacity, "data") }?;
        let request = endpoint.recv_owned(source(peer), TagMatch::masked(tag, ignore), memory);
        queue.add(context, request);
        Ok(())
    })
}

/// As pinfold_post_recv(), into memory in up to 1,024 parts, which a message fills in order.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_post_recvv(
    endpoint: *const pinfold_endpoint,
    queue: *const pinfold_queue,
    context: u64,
    peer: pinfold_peer,
    tag: u64,
    ignore: u64,
    parts: *const iovec,
    count: usize,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (endpoint, queue) = unsafe { (the(endpoint)?, the_queue(queue)?) };
        // SAFETY: the caller's.
        let memory = unsafe { Many::new(parts, count) }?;
        let request = endpoint.recv_owned(source(peer), TagMatch::masked(tag, ignore), memory);
        queue.add(context, request);
        Ok(())
    })
}

/// Posts a receive of a message of any length, into memory of the library's: PINFOLD_MESSAGE.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_post_recv_message(
    endpoint: *const pinfold_endpoint,
    queue: *const pinfold_queue,
    context: u64,
    peer: pinfold_peer,
    tag: u64,
    ignore: u64,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (endpoint, queue) = unsafe { (the(endpoint)?, the_queue(queue)?) };
        queue.add(context, endpoint.recv_request(source(peer), TagMatch::masked(tag, ignore)));
        Ok(())
    })
}

/// Posts a receive of many messages, placed one behind the other in `capacity` bytes at `data`,
/// each at a multiple of 8 bytes: a PINFOLD_RECEIVED_ONE for each, all with this context. It ends,
/// and says `last`, when less than `min_free` bytes are left (at least 1, at most all of them); a
/// longer message than the rest is truncated.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_post_recv_many(
    endpoint: *const pinfold_endpoint,
    queue: *const pinfold_queue,
    context: u64,
    peer: pinfold_peer,
    tag: u64,
    ignore: u64,
    data: *mut c_void,
    capacity: usize,
    min_free: usize,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (endpoint, queue) = unsafe { (the(endpoint)?, the_queue(queue)?) };
        // SAFETY: the caller's.
        let memory = unsafe { One::new(data.cast(), capacity, "data") }?;
        let tag = TagMatch::masked(tag, ignore);
        queue.add(context, endpoint.multi_recv(source(peer), tag, memory, min_free));
        Ok(())
    })
}

/// Posts a call of the endpoint that listens at `address`: PINFOLD_CONNECTED. As pinfold_connect(),
/// with the same `timeout`.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_post_connect(
    endpoint: *const pinfold_endpoint,
    queue: *const pinfold_queue,
    context: u64,
    address: *const c_char,
    timeout: i64,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (endpoint, queue) = unsafe { (the(endpoint)?, the_queue(queue)?) };
        // SAFETY: the caller's.
        let address = unsafe { needed(address, "address") }?;
        let request = match patience(timeout) {
            Some(Duration::ZERO) => endpoint.connect_request(address),
            limit => endpoint.connect_wait_request(address, limit.unwrap_or(Duration::MAX)),
        };
        queue.add(context, request);
        Ok(())
    })
}

/// Posts a wait for a peer to connect: PINFOLD_ACCEPTED.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_post_accept(
    endpoint: *const pinfold_endpoint,
    queue: *const pinfold_queue,
    context: u64,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (endpoint, queue) = unsafe { (the(endpoint)?, the_queue(queue)?) };
        queue.add(context, endpoint.accept_request());
        Ok(())
    })
}
