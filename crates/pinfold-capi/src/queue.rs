//! Completion queues, for C.

use std::{
    cell::RefCell,
    ffi::{CString, c_int},
    os::fd::{AsFd, AsRawFd},
};

use pinfold::{Completion, CompletionQueue};

use crate::{
    completion::{of, pinfold_completion},
    sized::Plain,
    status::{
        Failure, Outcome, give_out, given, patience, pinfold_status, place, run, take_back, value,
    },
};

/// A queue of the ends of posted operations, of one endpoint or of several.
pub struct pinfold_queue(pub(crate) CompletionQueue);

/// The queue of a handle.
///
/// # Safety
/// NULL, or a handle that was not freed.
#[inline]
pub(crate) unsafe fn the_queue<'a>(queue: *const pinfold_queue) -> Outcome<&'a CompletionQueue> {
    // SAFETY: the caller's.
    unsafe { given(queue, "queue") }.map(|it| &it.0)
}

/// An empty queue. Takes two descriptors.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_queue_open(queue: *mut *mut pinfold_queue) -> pinfold_status {
    run(|| {
        let place = place(queue, "queue")?;
        // SAFETY: the caller's.
        unsafe { give_out(place, pinfold_queue(CompletionQueue::new()?)) };
        Ok(())
    })
}

/// Frees it. Operations that have not ended go on, and keep using their memory: close their
/// endpoints before, or take their completions.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_queue_free(queue: *mut pinfold_queue) {
    // SAFETY: the caller's.
    value((), || drop(unsafe { take_back(queue) }));
}

/// Takes up to `most` completions, the oldest first, and sets `count` to how many: those that are
/// there, or come by a turn of progress, or within `timeout`. With a `timeout` of 0 it never waits.
/// PINFOLD_OK with a count of 0 if there were none. `size` is sizeof(pinfold_completion).
///
/// # Safety
/// As the head of pinfold.h says; `completions` has room for `most`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_queue_take(
    queue: *const pinfold_queue,
    completions: *mut pinfold_completion,
    most: usize,
    size: usize,
    timeout: i64,
    count: *mut usize,
) -> pinfold_status {
    run(|| {
        let count = place(count, "count")?;
        // SAFETY: the caller's.
        unsafe { count.write(0) };
        if most == 0 {
            return Ok(());
        }
        // A size that is wrong is told before anything is taken.
        if completions.is_null() || !(8..=4096).contains(&size) || !size.is_multiple_of(8) {
            let why = "completions is NULL, or size is not sizeof(pinfold_completion)";
            return Err(Failure::invalid(why));
        }
        // SAFETY: the caller's.
        let queue = unsafe { the_queue(queue) }?;
        with_room(|taken| {
            match patience(timeout) {
                Some(limit) if limit.is_zero() => queue.poll(taken, most)?,
                limit => queue.wait(taken, most, limit)?,
            };
            // SAFETY: the caller's; as many as `most` at most.
            unsafe { count.write(taken.len()) };
            SENTENCES.with_borrow_mut(Vec::clear);
            for (at, completion) in taken.drain(..).enumerate() {
                let told = told(completion);
                // SAFETY: the caller's.
                unsafe { told.write(completions.byte_add(at * size), size, "completions") }?;
            }
            Ok(())
        })
    })
}

thread_local! {
    /// Room that is used again.
    static ROOM: RefCell<Vec<Completion>> = const { RefCell::new(Vec::new()) };

    /// The sentences of the failures that this thread took last.
    static SENTENCES: RefCell<Vec<CString>> = const { RefCell::new(Vec::new()) };
}

/// Runs `function` with an empty vector, whose room is kept where that can be.
fn with_room<T>(function: impl FnOnce(&mut Vec<Completion>) -> T) -> T {
    // A call from within another one of this thread, in a handler, has a room of its own.
    let mut room = ROOM.try_with(RefCell::take).unwrap_or_default();
    let result = function(&mut room);
    room.clear();
    let _ = ROOM.try_with(|kept| kept.replace(room));
    result
}

#[inline]
fn told(completion: Completion) -> pinfold_completion {
    let (mut told, failure) = of(completion);
    if let Some(failure) = failure {
        let sentence = failure.sentence();
        told.error = sentence.as_ptr();
        // A string's bytes stay where they are when it is moved.
        SENTENCES.with_borrow_mut(|kept| kept.push(sentence));
    }
    told
}

/// Asks for the end of an operation that was posted with this context. PINFOLD_OK: it will end,
/// with PINFOLD_CANCELLED in its completion, unless the peer is faster. PINFOLD_INVALID: there is
/// none, or it takes its course. Looks at all operations of the queue's endpoints.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_queue_cancel(
    queue: *const pinfold_queue,
    context: u64,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        if unsafe { the_queue(queue) }?.cancel(context) {
            return Ok(());
        }
        let why = format!("no operation with context {context} can still be cancelled");
        Err(Failure::invalid(why))
    })
}

/// Operations that have not ended, or whose completions were not taken; 0 for NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_queue_outstanding(queue: *const pinfold_queue) -> usize {
    // SAFETY: the caller's.
    value(0, || unsafe { the_queue(queue) }.map_or(0, CompletionQueue::outstanding))
}

/// A descriptor for poll(2) and event loops, readable when there is something to take after
/// pinfold_queue_arm(). It is the queue's: not to be read or closed. -1: the handle is NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_queue_fd(queue: *const pinfold_queue) -> c_int {
    // SAFETY: the caller's.
    value(-1, || unsafe { the_queue(queue) }.map_or(-1, |it| it.as_fd().as_raw_fd()))
}

/// Prepares for waiting on the descriptor. `armed` is set to false if something is there already:
/// take it, and ask again.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_queue_arm(
    queue: *const pinfold_queue,
    armed: *mut bool,
) -> pinfold_status {
    run(|| {
        let armed = place(armed, "armed")?;
        // SAFETY: the caller's.
        let is_armed = unsafe { the_queue(queue) }?.arm()?;
        // SAFETY: the caller's.
        unsafe { armed.write(is_armed) };
        Ok(())
    })
}
