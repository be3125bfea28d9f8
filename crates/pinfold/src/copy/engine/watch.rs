//! The state of one request, for the threads that wait for it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

use parking_lot::{Condvar, Mutex};

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Cancelled,
}

/// The function that is called at the end of a request.
pub(super) type Then = Box<dyn FnOnce(End) + Send>;

#[derive(Default)]
struct State {
    /// Its submitter does it, and need not wait for others any more.
    is_unblocked: bool,
    end: Option<End>,
    waker: Option<Waker>,
    then: Option<Then>,
}

/// The state of one request.
#[derive(Default)]
pub(super) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

/// The user code to be run after the end of a request.
pub(super) struct Calls {
    end: End,
    waker: Option<Waker>,
    then: Option<Then>,
}

impl Calls {
    /// Runs it. Its panics end here.
    pub(super) fn run(self) {
        let Calls { end, waker, then } = self;
        quietly(|| waker.map(Waker::wake));
        quietly(|| then.map(|then| then(end)));
    }
}

/// The event that is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    Unblocked,
    Ended,
}

impl State {
    fn is(&self, until: Until) -> bool {
        self.end.is_some() || (until == Until::Unblocked && self.is_unblocked)
    }
}

impl Watch {
    /// The end of the request, if it has ended.
    pub(super) fn ended(&self) -> Option<End> {
        self.state.lock().end
    }

    pub(super) fn is(&self, until: Until) -> bool {
        self.state.lock().is(until)
    }

    /// Sleeps until something happens, but at most so long.
    pub(super) fn sleep(&self, until: Until, patience: Option<std::time::Duration>) {
        let mut state = self.state.lock();
        if state.is(until) {
            return;
        }
        match patience {
            None => self.changed.wait(&mut state),
            Some(patience) => {
                self.changed.wait_for(&mut state, patience);
            }
        }
    }

    pub(super) fn unblock(&self) {
        self.state.lock().is_unblocked = true;
        self.changed.notify_all();
    }

    /// The request has ended: sleeping threads are woken. The calls that are due are handed out,
    /// for they are user code, which may wait for other requests that ended at the same time.
    pub(super) fn end(&self, end: End) -> Calls {
        let mut state = self.state.lock();
        state.end = Some(end);
        self.changed.notify_all();
        Calls { end, waker: state.waker.take(), then: state.then.take() }
    }

    /// Has `waker` woken at the end. `Some`: it has ended already.
    pub(super) fn wake(&self, waker: &Waker) -> Option<End> {
        // Wakers are user code: cloned and dropped outside of the lock.
        let mut waker = Some(waker.clone());
        let mut state = self.state.lock();
        if state.end.is_none() {
            std::mem::swap(&mut state.waker, &mut waker);
        }
        let end = state.end;
        drop(state);
        drop(waker);
        end
    }

    /// Has `then` called at the end: at once, in this thread, if it has ended already.
    pub(super) fn then(&self, then: Then) {
        // It may take the place of another, which is user code: dropped outside of the lock.
        let mut then = Some(then);
        let mut state = self.state.lock();
        let end = state.end;
        if end.is_none() {
            std::mem::swap(&mut state.then, &mut then);
        }
        drop(state);
        if let (Some(end), Some(then)) = (end, then) {
            quietly(|| then(end));
        }
    }
}

/// Runs user code: a panic is told of, and goes no further.
fn quietly<R>(code: impl FnOnce() -> R) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(code()))) {
        tracing::error!("what was to be called at the end of a copy panicked");
        // Its drop might panic again.
        std::mem::forget(panic);
    }
}
