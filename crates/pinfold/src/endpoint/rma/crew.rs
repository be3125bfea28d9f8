//! Threads that may block: for pages that have to be read in.
//!
//! They start when there is a task, and end when there was none for a while.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use pinfold_sys::threads::Kind;

/// Their answers may wake tasks of the program's.
const AGENT: Kind = Kind::new("pinfold-agent", Kind::STACK_OF_PROGRAMS);

/// Threads of one crew.
const THREADS_MAX: usize = 4;

/// The time that an idle thread stays.
const IDLE: Duration = Duration::from_secs(2);

pub(super) type Task = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    threads: usize,
    idle: usize,
    /// No more tasks are handed out.
    over: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    news: Condvar,
}

/// Does tasks in threads of its own, up to four at a time. Tasks handed in before it is dropped are
/// done.
#[derive(Default)]
pub(super) struct Crew {
    shared: Arc<Shared>,
}

impl Crew {
    /// Hands a task to a thread. It is done here and now if the system has no thread left.
    pub(super) fn hand(&self, task: Task) {
        let mut state = self.shared.state.lock();
        state.tasks.push_back(task);
        if state.idle >= state.tasks.len() || state.threads == THREADS_MAX {
            drop(state);
            self.shared.news.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        if let Err(error) = AGENT.start(move || shared.work()) {
            tracing::debug!(%error, "the agent has no thread");
            let mut state = self.shared.state.lock();
            state.threads -= 1;
            let task = if state.threads == 0 { state.tasks.pop_front() } else { None };
            drop(state);
            if let Some(task) = task {
                task();
            }
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                drop(state);
                task();
                state = self.state.lock();
                continue;
            }
            let end = Instant::now() + IDLE;
            state.idle += 1;
            while state.tasks.is_empty() && !state.over {
                if self.news.wait_until(&mut state, end).timed_out() {
                    break;
                }
            }
            state.idle -= 1;
            if state.tasks.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.state.lock().over = true;
        self.shared.news.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Barrier,
            atomic::{AtomicUsize, Ordering},
            mpsc,
        },
        thread,
    };

    use super::*;

    #[test]
    fn tasks_are_done_and_one_that_waits_keeps_nobody() {
        let crew = Crew::default();
        let (ends, begin) = (Arc::new(Barrier::new(2)), Arc::clone(&crew.shared));
        let blocked = Arc::clone(&ends);
        crew.hand(Box::new(move || _ = blocked.wait()));
        let (said, heard) = mpsc::channel();
        for n in 0..100 {
            let said = said.clone();
            crew.hand(Box::new(move || said.send(n).unwrap()));
        }
        let mut done: Vec<i32> = heard.iter().take(100).collect();
        done.sort_unstable();
        assert_eq!(done, (0..100).collect::<Vec<_>>());
        assert!(begin.state.lock().threads <= THREADS_MAX);
        ends.wait();
    }

    #[test]
    fn threads_end_with_their_crew() {
        let crew = Crew::default();
        let count = Arc::new(AtomicUsize::new(0));
        for _ in 0..50 {
            let count = Arc::clone(&count);
            crew.hand(Box::new(move || _ = count.fetch_add(1, Ordering::Relaxed)));
        }
        let shared = Arc::clone(&crew.shared);
        drop(crew);
        while shared.state.lock().threads > 0 {
            thread::yield_now();
        }
        assert_eq!(count.load(Ordering::Relaxed), 50);
    }
}
