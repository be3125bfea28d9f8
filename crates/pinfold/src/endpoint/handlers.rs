//! Handlers of active messages, and the threads that run them.
//!
//! They run after the engine has been left, on any thread that leaves it while messages wait for
//! them; at an endpoint with a thread of its own, on that one alone. A thread that is in a handler
//! of an endpoint runs no other of the same endpoint before that has ended, whatever it calls.

use std::{
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use super::{
    Endpoint,
    active::{Active, Debt, Function},
};
use crate::{
    PeerId,
    failpoint::{self, Point},
    protocol::active::dispatch::{self, Job, Spent},
    wire::active::Failure,
    worker::{engine::Engine, shared::Shared},
};

/// Messages that are handled before the thread returns to its own affairs.
const HANDLERS_A_TURN: u32 = 64;

thread_local! {
    /// The endpoints in whose handlers this thread is, the latest last, and the peer whose message
    /// each handles.
    static WITHIN: RefCell<Vec<(*const Shared, Option<PeerId>)>> = const { RefCell::new(Vec::new()) };
    /// The endpoint that this thread drives.
    static DRIVES: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
}

/// A guard: while it lives, this thread runs no further handlers of the endpoint.
struct Within;

impl Within {
    fn of(shared: &Shared) -> Within {
        WITHIN.with_borrow_mut(|within| within.push((shared, None)));
        Within
    }

    /// `None`: between handlers there is no peer.
    fn sees_to(&self, peer: Option<PeerId>) {
        WITHIN.with_borrow_mut(|within| {
            if let Some(latest) = within.last_mut() {
                latest.1 = peer;
            }
        });
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        WITHIN.with_borrow_mut(|within| within.pop());
    }
}

impl Shared {
    /// Marks this thread as the endpoint's own.
    pub(crate) fn is_driven_here(&self) {
        DRIVES.set(self);
    }

    /// True if this thread may run handlers of the endpoint now.
    pub(crate) fn runs_handlers_here(&self) -> bool {
        let is_place = !self.dedicated || DRIVES.get() == std::ptr::from_ref(self);
        let is_it = |(of, _): &(*const Shared, _)| *of == std::ptr::from_ref(self);
        let is_within = || WITHIN.with_borrow(|within| within.iter().any(is_it));
        is_place && !thread::panicking() && !is_within()
    }

    /// The peer whose message this thread handles, if it is in a handler of the endpoint.
    pub(crate) fn origin_here(&self) -> Option<PeerId> {
        let is_it = |(of, _): &&(*const Shared, _)| *of == std::ptr::from_ref(self);
        WITHIN.with_borrow(|within| within.iter().find(is_it).and_then(|(_, peer)| *peer))
    }

    /// True if this thread will run handlers as soon as it leaves the engine.
    #[inline(always)]
    pub(crate) fn has_handling(&self, engine: &Engine) -> bool {
        engine.core.active.is_due() && self.runs_handlers_here()
    }

    /// Runs handlers while there are messages for them, but only a limited number.
    #[cold]
    #[inline(never)]
    pub(crate) fn run_handlers(&self) {
        // An endpoint without a handle is about to close.
        let Some(endpoint) = self.handle() else { return };
        let within = Within::of(self);
        let mut spent = None;
        for _ in 0..HANDLERS_A_TURN {
            let job = match self.enter() {
                Ok(mut engine) => dispatch::next_job(&mut engine, spent.take()),
                // In a child of this process it goes no further.
                Err(_) => break,
            };
            match job {
                Some(job) => {
                    within.sees_to(Some(job.peer));
                    spent = Some(run(&endpoint, job));
                    within.sees_to(None);
                }
                None => break,
            }
        }
        if let (Some(spent), Ok(mut engine)) = (spent, self.enter()) {
            dispatch::end_job(&mut engine, spent);
        }
        drop(within);
    }
}

/// Runs a handler on its message.
fn run(endpoint: &Endpoint, job: Job) -> Spent {
    let Job { peer, label, bytes, mut receipt, handler, cost, room } = job;
    let is_request = label.verb.is_asking();
    let bytes = bytes.whole();
    receipt.copied_user += bytes.copied();
    let debt = Cell::new(if is_request { Debt::Open } else { Debt::None });
    let active = Active::new(endpoint, peer, label, &bytes, receipt, &debt);
    // State that a panic left half done is the handler's own: it holds nothing of the endpoint's.
    let ended = catch_unwind(AssertUnwindSafe(move || {
        failpoint::hit(Point::InHandler);
        if let Some(Function(handle)) = handler.downcast_ref::<Function>() {
            handle(active);
        }
        // This may be the last reference; its drop is the user's code, too.
        drop(handler);
    }));
    let panicked = ended.is_err();
    if let Err(panic) = ended {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or(panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!(handler = label.id, panic = text.unwrap_or("?"), "a handler panicked");
        // Its drop might panic again.
        std::mem::forget(panic);
    }
    let failure = if panicked { Failure::Panicked } else { Failure::NoAnswer };
    let failed = (debt.get() == Debt::Open).then_some(failure);
    Spent { peer, token: label.token, failed, panicked, cost, room }
}
