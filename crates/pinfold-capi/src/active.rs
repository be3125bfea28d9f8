//! Handlers of active messages, for C.

use std::{ffi::c_void, time::Duration};

use pinfold::{Active, Replier};

use crate::{
    endpoint::{pinfold_endpoint, the},
    memory::{One, bytes},
    message::pinfold_message,
    peers::{named, number, pinfold_peer},
    queue::{pinfold_queue, the_queue},
    status::{
        Failure, give_out, given, patience, pinfold_status, place, run, store, take_back, value,
    },
};

/// An active message, as its handler sees it: good until the handler returns.
pub struct pinfold_active {
    _opaque: (),
}

/// The right, and the duty, to answer a request after its handler has returned; any thread may.
pub struct pinfold_answer(Replier);

/// A handler of active messages. It runs on a thread that makes progress, so it should be brief; it
/// may post operations and answer, and must not wait.
pub type pinfold_handler =
    Option<unsafe extern "C" fn(active: *const pinfold_active, user: *mut c_void)>;

/// Called when a handler will not be called any more, with its `user`.
pub type pinfold_release = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// The pointer that a handler brings, and the function that is told of its end.
struct User {
    release: pinfold_release,
    user: *mut c_void,
}

/// A function of the program's, and the pointer that it brings.
struct Handler {
    function: unsafe extern "C" fn(*const pinfold_active, *mut c_void),
    with: User,
}

// SAFETY: the header says that any thread may call the functions, several at a time.
unsafe impl Send for Handler {}
// SAFETY: as above.
unsafe impl Sync for Handler {}

impl Handler {
    fn call(&self, active: &Active<'_>) {
        // SAFETY: the program's function, with what it asked for.
        unsafe { (self.function)(std::ptr::from_ref(active).cast(), self.with.user) };
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: as above; no call is under way, since the last owner is gone.
            unsafe { release(self.user) };
        }
    }
}

/// Sets the handler of active messages with number `id`, in place of an earlier one. Any thread
/// that makes progress may call `handler` with `user`, several at a time. `release` may be NULL;
/// it is called also if this fails.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_handle(
    endpoint: *const pinfold_endpoint,
    id: u32,
    handler: pinfold_handler,
    user: *mut c_void,
    release: pinfold_release,
) -> pinfold_status {
    run(|| {
        let with = User { release, user };
        let function = handler.ok_or_else(|| Failure::invalid("handler is NULL"))?;
        let handler = Handler { function, with };
        // SAFETY: the caller's.
        unsafe { the(endpoint) }?.handle(id, move |active| handler.call(&active))?;
        Ok(())
    })
}

/// Removes the handler; a thread may still be in it. PINFOLD_INVALID if there is none.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_unhandle(
    endpoint: *const pinfold_endpoint,
    id: u32,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        if unsafe { the(endpoint) }?.unhandle(id) {
            return Ok(());
        }
        Err(Failure::invalid(format!("there is no handler with number {id}")))
    })
}

/// Calls handler `id` of a peer with `len` bytes, and returns when the memory is the program's
/// again. Nothing comes back.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_call(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
    id: u32,
    data: *const c_void,
    len: usize,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (endpoint, data) = unsafe { (the(endpoint)?, bytes(data.cast(), len, "data")?) };
        endpoint.call(named(peer), id, data)?;
        Ok(())
    })
}

/// Posts the same: PINFOLD_SENT. The memory is the operation's until its completion was taken.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_post_call(
    endpoint: *const pinfold_endpoint,
    queue: *const pinfold_queue,
    context: u64,
    peer: pinfold_peer,
    id: u32,
    data: *const c_void,
    len: usize,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (endpoint, queue) = unsafe { (the(endpoint)?, the_queue(queue)?) };
        // SAFETY: the caller's.
        let memory = unsafe { One::new(data.cast(), len, "data") }?;
        queue.add(context, endpoint.call_owned(named(peer), id, memory));
        Ok(())
    })
}

/// Asks handler `id` of a peer and waits for its answer, at most `timeout`. The answer is to be
/// freed.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_ask(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
    id: u32,
    data: *const c_void,
    len: usize,
    timeout: i64,
    answer: *mut *mut pinfold_message,
) -> pinfold_status {
    run(|| {
        let place = place(answer, "answer")?;
        // SAFETY: the caller's.
        let (endpoint, data) = unsafe { (the(endpoint)?, bytes(data.cast(), len, "data")?) };
        let mut reply = endpoint.request(named(peer), id, data);
        let came = match patience(timeout) {
            None => reply.wait(),
            Some(limit) => {
                reply.wait_timeout(limit.max(Duration::from_nanos(1))).ok_or(Failure::Timeout)?
            }
        }?;
        // SAFETY: the caller's.
        unsafe { give_out(place, pinfold_message(came)) };
        Ok(())
    })
}

/// Posts the same: PINFOLD_MESSAGE. The memory is the program's again when this returns.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_post_ask(
    endpoint: *const pinfold_endpoint,
    queue: *const pinfold_queue,
    context: u64,
    peer: pinfold_peer,
    id: u32,
    data: *const c_void,
    len: usize,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (endpoint, queue) = unsafe { (the(endpoint)?, the_queue(queue)?) };
        // SAFETY: the caller's.
        let data = unsafe { bytes(data.cast(), len, "data") }?;
        queue.add(context, endpoint.request(named(peer), id, data));
        Ok(())
    })
}

/// The message of a handle.
///
/// # Safety
/// NULL, or the pointer that a handler was called with, which has not returned.
unsafe fn the_active<'a>(active: *const pinfold_active) -> Result<&'a Active<'a>, Failure> {
    // SAFETY: the caller's.
    unsafe { given(active.cast(), "active") }
}

/// The peer that sent it.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_active_peer(active: *const pinfold_active) -> pinfold_peer {
    // SAFETY: the caller's.
    value(u64::MAX, || unsafe { the_active(active) }.map_or(u64::MAX, |it| number(it.peer())))
}

/// Its bytes, good until the handler returns; `len` (may be NULL) is set to how many.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_active_data(
    active: *const pinfold_active,
    len: *mut usize,
) -> *const c_void {
    value(std::ptr::null(), || {
        // SAFETY: the caller's.
        let payload = unsafe { the_active(active) }.map_or(&[][..], |it| it.payload());
        // SAFETY: the caller's.
        unsafe { store(len, payload.len()) };
        payload.as_ptr().cast()
    })
}

/// True if its sender waits for an answer.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_active_is_request(active: *const pinfold_active) -> bool {
    // SAFETY: the caller's.
    value(false, || unsafe { the_active(active) }.is_ok_and(|it| it.is_request()))
}

/// Answers a request, and does nothing for a call. Never waits; the bytes are copied if need be.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_active_reply(
    active: *const pinfold_active,
    data: *const c_void,
    len: usize,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (active, data) = unsafe { (the_active(active)?, bytes(data.cast(), len, "data")?) };
        Ok(active.reply(data)?)
    })
}

/// Takes the right to answer a request later, from any thread. PINFOLD_ALREADY_ANSWERED if it is a
/// call, or was answered.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_active_defer(
    active: *const pinfold_active,
    answer: *mut *mut pinfold_answer,
) -> pinfold_status {
    run(|| {
        let place = place(answer, "answer")?;
        // SAFETY: the caller's.
        let right = unsafe { the_active(active) }?.reply_later();
        let right = right.ok_or(pinfold::Error::AlreadyAnswered)?;
        // SAFETY: the caller's.
        unsafe { give_out(place, pinfold_answer(right)) };
        Ok(())
    })
}

/// Answers, and frees the handle, also if it fails. Never waits.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_answer_send(
    answer: *mut pinfold_answer,
    data: *const c_void,
    len: usize,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let answer =
            unsafe { take_back(answer) }.ok_or_else(|| Failure::invalid("answer is NULL"))?;
        // SAFETY: the caller's.
        let data = unsafe { bytes(data.cast(), len, "data") }?;
        Ok(answer.0.reply(data)?)
    })
}

/// Frees the handle unused: the request is answered with an error.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_answer_free(answer: *mut pinfold_answer) {
    // SAFETY: the caller's.
    value((), || drop(unsafe { take_back(answer) }));
}
