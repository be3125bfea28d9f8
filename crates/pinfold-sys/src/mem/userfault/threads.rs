//! The threads that read a watch.
// Invariant: these threads take no lock and no memory after their start, and run no signal handler,
// so they never wait for a thread that unmaps. Only the holder of the duty reads, and changes
// `seq`, which is odd from before it reads until the events it read are in the ring.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::{
    abi::Message,
    duty::{Duty, Rule, Turns, Who},
    late::Waits,
    nearby::Nearby,
    ring::Ring,
    scheduling,
    watch::{BATCH, Watch},
};
use crate::{cpu::clock, threads::Kind};

/// They take nothing from the heap, so all that they need lies on their stack.
const WATCHER: Kind = Kind::new("pinfold-watch", 128 << 10);

/// The state that the threads share with the takers of their events.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) watch: Watch,
    pub(super) ring: Ring,
    /// Counts reads, by twos.
    pub(super) seq: AtomicU64,
    pub(super) nearby: Nearby,
    duty: Duty,
    turns: Turns,
    stop: OwnedFd,
}

/// Two threads, of which one has the duty ([`Duty`]). Dropped, they end, and are waited for.
#[derive(Debug)]
pub(super) struct Threads {
    shared: Arc<Shared>,
    running: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts them.
    ///
    /// # Errors
    /// `EAGAIN` at a limit on threads, `EMFILE` on descriptors.
    pub(super) fn start(watch: Watch, rule: Rule) -> io::Result<Threads> {
        let shared = Arc::new(Shared {
            watch,
            ring: Ring::new(),
            seq: AtomicU64::new(2),
            nearby: Nearby::new(),
            duty: Duty::new(),
            turns: Turns::new(rule),
            stop: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let start = |who| {
            let shared = Arc::clone(&shared);
            WATCHER.start(move || shared.run(who))
        };
        let mut running = vec![start(Who::Ordinary)?];
        match start(Who::Modest) {
            Ok(modest) => running.push(modest),
            // The other thread can do all of it.
            Err(_) => shared.duty.leave(),
        }
        Ok(Threads { shared, running })
    }

    #[inline]
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The threads are not there: this is the child of a fork.
    pub(super) fn forget(&mut self) {
        self.running.drain(..).for_each(std::mem::forget);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if self.running.is_empty() {
            return;
        }
        self.shared.duty.end();
        if rustix::io::write(self.shared.stop.as_fd(), &1u64.to_ne_bytes()).is_ok() {
            self.running.drain(..).for_each(|thread| drop(thread.join()));
            // For threads that still wait, since a child may have a copy of the descriptor.
            let mut room = [Message::default(); BATCH];
            while self.shared.watch.read(&mut room).is_ok_and(|count| count > 0) {}
        }
    }
}

impl Shared {
    fn run(&self, who: Who) {
        self.nearby.begin(who);
        match who {
            Who::Modest => match Waits::of_this_thread().filter(|_| scheduling::step_back()) {
                Some(waits) => self.take_turns(who, Some(&waits)),
                None => self.duty.leave(),
            },
            Who::Ordinary => {
                scheduling::ask_for_short_slices();
                self.take_turns(who, None);
            }
        }
        self.nearby.end(who);
    }

    /// Reads whenever it has the duty, until that is over or nothing can be read any more. The
    /// modest one hands over when it is late by its `waits`.
    fn take_turns(&self, who: Who, waits: Option<&Waits>) {
        let mut room = [Message::default(); BATCH];
        let mut count = 0u32;
        while self.duty.wait(who) {
            let waits = waits.filter(|_| self.turns.looks(count));
            count = count.wrapping_add(1);
            let before_ns = waits.and_then(Waits::ns);
            let mut fds =
                [PollFd::new(&self.watch, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
            let _ = poll(&mut fds, None);
            if fds[0].revents().is_empty() {
                continue;
            }
            // A thread that unmaps waited as long as this one then waited to run.
            let waited = waits.and_then(Waits::ns).zip(before_ns);
            if !self.read(&mut room) {
                // Nothing can be read any more.
                return self.duty.end();
            }
            let changes = match waited {
                Some((after, before)) => {
                    self.turns.is_late(after.saturating_sub(before), clock::now_ns())
                }
                None => who == Who::Ordinary && self.turns.is_up(clock::now_ns()),
            };
            if changes {
                self.duty.hand_over(who);
            }
        }
    }

    /// Reads the events that there are. `false`: they cannot be read.
    fn read(&self, room: &mut [Message; BATCH]) -> bool {
        let seq = self.seq.load(Ordering::Relaxed);
        self.seq.store(seq + 1, Ordering::SeqCst);
        let read = self.watch.read(room);
        let count = read.as_ref().map_or(0, |&count| count);
        room[..count].iter().for_each(|message| self.ring.put(message));
        let next = if count == 0 { seq } else { seq + 2 };
        self.seq.store(next, Ordering::SeqCst);
        read.is_ok()
    }
}
