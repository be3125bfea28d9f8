#![allow(unsafe_code)]
//! The back end that is always there: threads that copy.
//!
//! They are started when there is work for them, and sleep when there is none.
//!
//! **Invariant.** A part that was taken is either in `parts`, or in the hands of one thread, which
//! puts its completion into `done` after it has copied; the lock orders the copy before the poll.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    thread::{self, JoinHandle},
};

use parking_lot::{Condvar, Mutex};
use pinfold_sys::threads::Kind;

use super::{
    backend::{Backend, Capabilities, Completion, Notify, Outcome, Part},
    core,
};

/// They call back.
const COPIES: Kind = Kind::new("pinfold-copies", Kind::STACK_OF_PROGRAMS);

/// The longest part: a thread that waits to cancel, or for a turn, waits for one.
const PART_BYTES_MAX: usize = 4 << 20;

#[derive(Default)]
struct State {
    parts: VecDeque<Part>,
    done: Vec<Completion>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that sleep.
    idle: usize,
    is_stopped: bool,
}

#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    more: Condvar,
    notify: OnceLock<Notify>,
}

/// Copies by threads of its own.
pub struct Threads {
    pool: Arc<Pool>,
    threads_max: usize,
}

impl Threads {
    /// So many threads at most, and at least one.
    pub fn new(threads_max: usize) -> Threads {
        Threads { pool: Arc::default(), threads_max: threads_max.max(1) }
    }

    /// The threads that were started so far.
    pub fn started(&self) -> usize {
        self.pool.state.lock().threads.len()
    }
}

impl Pool {
    /// The loop of a thread.
    fn work(&self) {
        core::this_is_a_worker();
        let mut state = self.state.lock();
        loop {
            match state.parts.pop_front() {
                Some(part) => {
                    drop(state);
                    self.perform(&part);
                    if let Some(notify) = self.notify.get() {
                        notify();
                    }
                    state = self.state.lock();
                }
                None if state.is_stopped => return,
                None => {
                    state.idle += 1;
                    self.more.wait(&mut state);
                    state.idle -= 1;
                }
            }
        }
    }

    fn perform(&self, part: &Part) {
        // SAFETY: it was submitted, and not completed: its memory may be used, by nothing else.
        unsafe { part.work.perform() };
        let outcome = Outcome::Moved(part.work.len());
        self.state.lock().done.push(Completion { id: part.id, outcome });
    }
}

// SAFETY: a part that was taken is copied whole by one thread, since threads end only when there
// are no more, and is not touched after its completion was put down.
unsafe impl Backend for Threads {
    fn capabilities(&self) -> Capabilities {
        Capabilities { lanes: self.threads_max, part_bytes_max: PART_BYTES_MAX, notifies: true }
    }

    fn start(&self, notify: Notify) {
        // It is called once.
        let _ = self.pool.notify.set(notify);
    }

    unsafe fn submit(&self, part: Part) -> Result<(), Part> {
        let mut state = self.pool.state.lock();
        if state.is_stopped {
            return Err(part);
        }
        if state.parts.len() >= state.idle && state.threads.len() < self.threads_max {
            let pool = Arc::clone(&self.pool);
            match COPIES.start(move || pool.work()) {
                Ok(thread) => state.threads.push(thread),
                Err(error) if state.threads.is_empty() => {
                    tracing::warn!(%error, "no thread to copy could be started");
                    return Err(part);
                }
                Err(_) => {}
            }
        }
        state.parts.push_back(part);
        drop(state);
        self.pool.more.notify_one();
        Ok(())
    }

    fn poll(&self, done: &mut dyn FnMut(Completion)) {
        self.pool.state.lock().done.drain(..).for_each(done);
    }

    fn help(&self) -> bool {
        let Some(part) = self.pool.state.lock().parts.pop_front() else { return false };
        self.pool.perform(&part);
        true
    }

    fn stop(&self) {
        let threads = {
            let mut state = self.pool.state.lock();
            state.is_stopped = true;
            std::mem::take(&mut state.threads)
        };
        self.pool.more.notify_all();
        for thread in threads {
            // One of them may be the thread that stops the others.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
