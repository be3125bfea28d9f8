#![allow(unsafe_code)]
//! The engine itself: the queue, its back end, and their driver.
//!
//! **Invariant.** A part is handed to the back end, or done here, while its request is open; its
//! request is ended only after. No thread waits, copies, or calls user code inside the queue's
//! lock; the back end's own locks are taken inside it only to poll.

use std::{cell::Cell, sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex};
use pinfold_sys::fork::ForkMark;

use super::{
    Work,
    backend::{Backend, Capabilities},
    queue::{Acts, EngineCounts, Here, Queue},
    slots::Key,
    watch::{Calls, Until, Watch},
};

/// The interval at which a waiting thread looks for itself, if the back end does not notify.
const LOOK: Duration = Duration::from_micros(200);

thread_local! {
    /// This thread is a back end's: parts may wait for it while it waits.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// This thread does parts, and calls user code in between.
pub(super) fn this_is_a_worker() {
    IS_WORKER.set(true);
}

pub(super) struct Core {
    queue: Mutex<Queue>,
    /// Nothing is open any more.
    idle: Condvar,
    backend: Box<dyn Backend>,
    can: Capabilities,
    bytes_min: usize,
    /// `None`: no page was to be had for it. Then children are not told apart.
    mark: Option<ForkMark>,
}

impl Core {
    pub(super) fn start(backend: Box<dyn Backend>, queue: Queue, bytes_min: usize) -> Arc<Core> {
        let can = backend.capabilities();
        let core = Arc::new(Core {
            queue: Mutex::new(queue),
            idle: Condvar::new(),
            backend,
            can,
            bytes_min,
            mark: ForkMark::new().ok(),
        });
        let weak = Arc::downgrade(&core);
        core.backend.start(Arc::new(move || {
            if let Some(core) = weak.upgrade() {
                core.turn();
            }
        }));
        core
    }

    /// Returns whether this is a process forked from the engine's, which has neither its threads
    /// nor a way to know which threads held its locks.
    pub(super) fn is_child(&self) -> bool {
        self.mark.as_ref().is_some_and(ForkMark::is_child)
    }

    /// Returns whether requests go on without a thread that polls.
    pub(super) fn notifies(&self) -> bool {
        self.can.notifies
    }

    pub(super) fn counts(&self) -> EngineCounts {
        if self.is_child() { EngineCounts::default() } else { self.queue.lock().counts }
    }

    /// Opens a request, or does it: then there is none.
    ///
    /// # Safety
    /// The work's memory may be used until the request has ended, by nothing else but requests to
    /// this engine.
    pub(super) unsafe fn submit(&self, work: Work) -> Option<(Key, Arc<Watch>)> {
        if work.is_empty() || self.is_child() {
            // SAFETY: as the caller promised.
            unsafe { work.perform() };
            return None;
        }
        let watch = Arc::new(Watch::default());
        let (key, here, is_blocked) = {
            let mut queue = self.queue.lock();
            let is_blocked = queue.is_blocked(&work);
            let here = if work.overlaps_itself() {
                Some(Here::Moved)
            } else if queue.is_full() {
                Some(Here::Full)
            } else {
                // To wait for others takes longer than the copy.
                (work.len() < self.bytes_min && !is_blocked).then_some(Here::Short)
            };
            (queue.open(work, Arc::clone(&watch), here), here, is_blocked)
        };
        if here.is_none() {
            self.turn();
            return Some((key, watch));
        }
        if is_blocked {
            self.wait(&watch, Until::Unblocked);
        }
        // SAFETY: as the caller promised; requests that it conflicts with have ended, and later
        // ones that conflict wait for it.
        unsafe { work.perform() };
        let mut acts = Acts::default();
        self.queue.lock().done_here(key, &mut acts);
        self.see_to(&mut acts);
        self.turn();
        None
    }

    /// Makes progress: takes in parts that have ended, and hands out those that can go.
    pub(super) fn turn(&self) {
        let mut acts = Acts::default();
        loop {
            {
                let mut queue = self.queue.lock();
                self.backend.poll(&mut |completion| queue.completed(completion, &mut acts));
                queue.issue(&self.can, &mut acts);
            }
            if acts.is_empty() {
                return;
            }
            self.see_to(&mut acts);
        }
    }

    /// Does the acts that the queue asked for. User code comes last: it may wait for any of the
    /// others.
    fn see_to(&self, acts: &mut Acts) {
        let mut calls = Vec::new();
        while !acts.is_empty() {
            let mut now = std::mem::take(acts);
            for part in now.submit.drain(..) {
                // SAFETY: the part's request is open, and is not blocked: no other part that is out
                // touches its destination or writes its source.
                if let Err(part) = unsafe { self.backend.submit(part) } {
                    self.queue.lock().refused(part.id, acts);
                }
            }
            for part in now.repair.drain(..) {
                // SAFETY: as above; the back end has it no more.
                unsafe { part.work.perform() };
                self.queue.lock().repaired(part.id, acts);
            }
            now.unblocked.drain(..).for_each(|watch| watch.unblock());
            calls.extend(now.ended.drain(..).map(|(watch, end)| watch.end(end)));
        }
        if !calls.is_empty() {
            self.idle.notify_all();
            calls.into_iter().for_each(Calls::run);
        }
    }

    /// Waits, and helps. It has happened on return.
    pub(super) fn wait(&self, watch: &Watch, until: Until) {
        while !watch.is(until) {
            let helped = self.backend.help();
            let looks = !self.can.notifies || IS_WORKER.get();
            if helped || looks {
                self.turn();
            }
            if !helped {
                watch.sleep(until, looks.then_some(LOOK));
            }
        }
    }

    pub(super) fn cancel(&self, key: Key) -> bool {
        let mut acts = Acts::default();
        let taken_back = self.queue.lock().cancel(key, &mut acts);
        self.see_to(&mut acts);
        self.turn();
        taken_back
    }

    /// Ends everything and the back end. Nothing is queued from now on.
    pub(super) fn shut_down(&self, cancel: bool) {
        if self.is_child() {
            return;
        }
        let mut acts = Acts::default();
        {
            let mut queue = self.queue.lock();
            queue.is_closed = true;
            if cancel {
                queue.cancel_all(&mut acts);
            }
        }
        self.see_to(&mut acts);
        loop {
            self.turn();
            if self.backend.help() {
                continue;
            }
            let mut queue = self.queue.lock();
            if queue.is_idle() {
                break;
            }
            self.idle.wait_for(&mut queue, LOOK);
        }
        self.backend.stop();
    }
}
