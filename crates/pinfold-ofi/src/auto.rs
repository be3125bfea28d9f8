//! The thread of a domain whose program leaves progress to the provider.

use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use pinfold::CompletionQueue;
use pinfold_sys::io::poll::{Epoll, EventFd, Interest};

use crate::{
    domain::Domain,
    guard::{Answer, Code},
};

/// The longest sleep. The library takes back the request to be woken with every call of the
/// program's, so endpoints are looked at again after it in any case.
const LONGEST: Duration = Duration::from_millis(10);

/// The thread, and what it sleeps on.
pub struct Driver {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    is_over: AtomicBool,
    bell: EventFd,
    pollable: Epoll,
}

impl Driver {
    pub fn new() -> Answer<Driver> {
        let failed = |_| Code(libc::EMFILE);
        let (bell, pollable) = (EventFd::new().map_err(failed)?, Epoll::new().map_err(failed)?);
        pollable.add(&bell, 0, Interest::Read).map_err(failed)?;
        let shared = Arc::new(Shared { is_over: AtomicBool::new(false), bell, pollable });
        Ok(Driver { shared, thread: Mutex::default() })
    }

    /// Starts the thread.
    pub fn start(&self, domain: &Arc<Domain>) -> Answer {
        let (shared, domain) = (Arc::clone(&self.shared), Arc::downgrade(domain));
        let run = move || drive(&shared, &domain);
        let started = std::thread::Builder::new().name("pinfold-fi".into()).spawn(run);
        let thread = started.map_err(|error| Code(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// The thread serves this queue, too.
    pub fn watch(&self, queue: &CompletionQueue) -> Answer {
        let added = self.shared.pollable.add(queue, 1, Interest::Read);
        added.map_err(|_| Code(libc::EMFILE))?;
        self.wake();
        Ok(())
    }

    /// The thread serves this queue no more.
    pub fn forget(&self, queue: &CompletionQueue) {
        let _ = self.shared.pollable.remove(queue);
    }

    /// Has the thread look again.
    pub fn wake(&self) {
        let _ = self.shared.bell.signal();
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.wake();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn drive(shared: &Shared, domain: &Weak<Domain>) {
    while !shared.is_over.load(Ordering::SeqCst) {
        let Some(domain) = domain.upgrade() else { return };
        let _ = shared.bell.clear();
        let queues: Vec<CompletionQueue> = {
            let held = domain.hold();
            domain.progress(&held);
            let endpoints = domain.endpoints.open(&held);
            endpoints.iter().map(|ep| ep.queue.clone()).collect()
        };
        let is_quiet = queues.iter().all(|queue| queue.arm().unwrap_or(true));
        drop((queues, domain));
        if is_quiet {
            let _ = shared.pollable.sleep(Some(LONGEST));
        }
    }
}
