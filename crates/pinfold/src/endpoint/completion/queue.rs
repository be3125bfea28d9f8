//! The queue that programs hold.

use std::{
    collections::VecDeque,
    fmt,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use pinfold_sys::{
    cpu::clock,
    io::poll::{Epoll, EventFd, Interest},
};

use super::{entry::Completion, taker::Queueable};
use crate::{
    Endpoint, Error, Result,
    worker::{abandoned, engine::Engine, followers::Awaited, shared::Shared},
};

/// How long a thread that waits for several endpoints polls them before it sleeps.
const SPIN: Duration = Duration::from_micros(20);

/// A queue of the ends of operations, of one endpoint or several: an operation is posted as a
/// request, [added](CompletionQueue::add) with a number of the program's own, and comes back with
/// its result and its buffer when it has ended. One call takes many of them, and one descriptor
/// tells of all.
///
/// Completions come in the order in which operations ended, which is not always that in which they
/// were posted. Nothing bounds their number but the program, which posts them
/// ([`CompletionQueue::outstanding`] counts them).
///
/// A handle; clones are handles of the same queue. When the last is dropped, the operations whose
/// ends have not been taken are given up, as their requests would be if they were dropped; so are
/// completions, with the messages in them and the peers that they tell of.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// use pinfold::{Completed, CompletionQueue, Endpoint};
///
/// let name = format!("local:doc-queue-{}", std::process::id());
/// let (one, two) = (Endpoint::listen(&name)?, Endpoint::new()?);
/// let (to_two, to_one) = std::thread::scope(|threads| {
///     let to_two = threads.spawn(|| one.accept());
///     let to_one = two.connect(&name)?;
///     Ok::<_, pinfold::Error>((to_two.join().unwrap()?, to_one))
/// })?;
///
/// let queue = CompletionQueue::new()?;
/// for number in 0..4 {
///     queue.add(100 + number, one.recv_owned(to_two, number, vec![0; 5]));
///     queue.add(200 + number, two.send_owned(to_one, number, b"hello".to_vec()));
/// }
/// let mut ended = Vec::new();
/// while queue.outstanding() > 0 {
///     queue.wait(&mut ended, 64, None)?;
/// }
/// for mut completion in ended {
///     let buffer: Vec<u8> = completion.take_buffer().unwrap();
///     assert_eq!(buffer, b"hello");
///     match completion.result? {
///         Completed::Received(_) => assert!(completion.context < 200),
///         Completed::Sent(receipt) => assert_eq!(receipt.bytes, 5),
///         other => panic!("{other:?}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CompletionQueue {
    owner: Arc<Owner>,
}

/// Gives all up with the last handle. Operations hold [`Ended`].
struct Owner {
    ended: Arc<Ended>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        for endpoint in self.ended.endpoints() {
            // In a forked child they are the parent's.
            if let Ok(mut engine) = endpoint.enter() {
                abandoned::abandon_all(&mut engine, self.ended.number);
            }
        }
        self.ended.give_up();
    }
}

/// The state that a queue and its operations share.
pub struct Ended {
    /// Its number in this process.
    pub(super) number: u64,
    entries: Mutex<VecDeque<Completion>>,
    /// Their number, to be looked at without the lock.
    count: AtomicUsize,
    /// Operations that have not ended, or whose ends have not been taken.
    outstanding: AtomicUsize,
    /// The endpoints whose operations were added.
    endpoints: Mutex<Vec<Weak<Shared>>>,
    /// Changes when an endpoint is added.
    epoch: AtomicU64,
    /// Threads that wait for the endpoints.
    waiting: AtomicUsize,
    /// True if the bell is to be rung for the next completion.
    is_armed: AtomicBool,
    bell: EventFd,
    /// The bell, and the descriptors of the endpoints.
    pollable: Epoll,
    /// The endpoints that are in there.
    watched: Mutex<Vec<Weak<Shared>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_same(weak: &Weak<Shared>, shared: &Arc<Shared>) -> bool {
    std::ptr::eq(weak.as_ptr(), Arc::as_ptr(shared))
}

impl Ended {
    fn entries(&self) -> MutexGuard<'_, VecDeque<Completion>> {
        lock(&self.entries)
    }

    /// Gives up the completions that nobody takes.
    fn give_up(&self) {
        let entries = std::mem::take(&mut *self.entries());
        entries.into_iter().for_each(Completion::give_up);
    }

    /// The endpoints that are still there.
    fn endpoints(&self) -> Vec<Arc<Shared>> {
        let mut endpoints = lock(&self.endpoints);
        endpoints.retain(|endpoint| endpoint.strong_count() > 0);
        endpoints.iter().filter_map(Weak::upgrade).collect()
    }

    fn has_some(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// An operation of this endpoint is added.
    pub(super) fn begin(&self, shared: &Arc<Shared>) {
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        let mut endpoints = lock(&self.endpoints);
        if endpoints.iter().any(|endpoint| is_same(endpoint, shared)) {
            return;
        }
        endpoints.push(Arc::downgrade(shared));
        drop(endpoints);
        // Those that wait do so for the others alone.
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.nudge();
    }

    /// An operation was given up.
    pub(super) fn forget_one(&self) {
        self.outstanding.fetch_sub(1, Ordering::Relaxed);
    }

    /// An operation has ended.
    pub(super) fn push(&self, completion: Completion) {
        self.place(completion);
        self.nudge();
    }

    /// A completion of an operation that goes on. For callers that have entered an endpoint, after
    /// which the queue is to be [nudged](Ended::nudge).
    pub(super) fn place_one_more(&self, completion: Completion) {
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        self.place(completion);
    }

    fn place(&self, completion: Completion) {
        let mut entries = self.entries();
        entries.push_back(completion);
        self.count.store(entries.len(), Ordering::SeqCst);
    }

    /// Has those that wait look again.
    pub(super) fn nudge(&self) {
        if self.is_armed.load(Ordering::SeqCst)
            && self.is_armed.swap(false, Ordering::SeqCst)
            && let Err(error) = self.bell.signal()
        {
            tracing::warn!(%error, "a caller that waits for completions could not be told");
        }
        if self.waiting.load(Ordering::SeqCst) > 0 {
            for endpoint in self.endpoints() {
                if let Ok(mut engine) = endpoint.enter() {
                    (engine.kick, engine.core.wakes.any) = (true, true);
                }
            }
        }
    }

    /// Moves up to `max` completions. Returns how many.
    fn take(&self, into: &mut Vec<Completion>, max: usize) -> usize {
        if !self.has_some() {
            return 0;
        }
        let mut entries = self.entries();
        let count = max.min(entries.len());
        into.extend(entries.drain(..count));
        self.count.store(entries.len(), Ordering::SeqCst);
        self.outstanding.fetch_sub(count, Ordering::Relaxed);
        count
    }

    /// A turn of progress of every endpoint.
    fn progress(&self) -> Result<()> {
        for endpoint in self.endpoints() {
            let Some(handle) = endpoint.handle() else { continue };
            match handle.progress() {
                Ok(_) | Err(Error::Closed) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Watches the endpoints that are not watched yet.
    fn watch(&self) -> Result<()> {
        let failed = |error| Error::os("epoll_ctl", "the completion queue", error);
        let mut watched = lock(&self.watched);
        watched.retain(|endpoint| endpoint.strong_count() > 0);
        for endpoint in self.endpoints() {
            if !watched.iter().any(|other| is_same(other, &endpoint)) {
                self.pollable.add(&endpoint.pollable, 1, Interest::Read).map_err(failed)?;
                watched.push(Arc::downgrade(&endpoint));
            }
        }
        Ok(())
    }

    /// See [`CompletionQueue::arm`].
    fn arm(&self) -> Result<bool> {
        self.watch()?;
        let failed = |error| Error::os("read", "the completion queue's bell", error);
        self.bell.clear().map_err(failed)?;
        self.is_armed.store(true, Ordering::SeqCst);
        let mut is_quiet = !self.has_some();
        for endpoint in self.endpoints() {
            let Some(handle) = endpoint.handle() else { continue };
            is_quiet &= match handle.arm() {
                Ok(armed) => armed,
                Err(Error::Closed) => true,
                Err(error) => return Err(error),
            };
        }
        let is_quiet = is_quiet && !self.has_some();
        if !is_quiet {
            self.is_armed.store(false, Ordering::SeqCst);
        }
        Ok(is_quiet)
    }

    /// Waits until a completion may have come, or until the deadline.
    fn wait(&self, deadline: Option<Instant>) -> Result<()> {
        let epoch = self.epoch.load(Ordering::SeqCst);
        let endpoints = self.endpoints();
        if let [endpoint] = endpoints.as_slice()
            && endpoint.enter().is_ok_and(|engine| engine.check().is_ok())
        {
            let is_new = || self.has_some() || self.epoch.load(Ordering::SeqCst) != epoch;
            let ready = |engine: &mut Engine| {
                let is_over = engine.check().is_err();
                (is_new() || is_over || !engine.core.wakes.results.is_empty()).then_some(())
            };
            return endpoint.wait_for(deadline, Awaited::Anything, ready).map(drop);
        }
        let begun = Instant::now();
        while begun.elapsed() < SPIN {
            self.progress()?;
            if self.has_some() {
                return Ok(());
            }
            clock::relax();
        }
        if self.arm()? {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            let failed = |error| Error::os("epoll_wait", "the completion queue", error);
            self.pollable.sleep(left).map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // An operation may have ended while the last handle went.
        self.give_up();
    }
}

impl CompletionQueue {
    /// An empty queue. Takes two descriptors.
    ///
    /// # Errors
    /// [`Error::Os`]: no descriptors are left.
    pub fn new() -> Result<CompletionQueue> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let failed = |call| move |error| Error::os(call, "a completion queue", error);
        let pollable = Epoll::new().map_err(failed("epoll_create1"))?;
        let bell = EventFd::new().map_err(failed("eventfd2"))?;
        pollable.add(&bell, 0, Interest::Read).map_err(failed("epoll_ctl"))?;
        let ended = Arc::new(Ended {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            entries: Mutex::default(),
            count: AtomicUsize::new(0),
            outstanding: AtomicUsize::new(0),
            endpoints: Mutex::default(),
            epoch: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            is_armed: AtomicBool::new(false),
            bell,
            pollable,
            watched: Mutex::default(),
        });
        Ok(CompletionQueue { owner: Arc::new(Owner { ended }) })
    }

    fn ended(&self) -> &Arc<Ended> {
        &self.owner.ended
    }

    /// Lets the result of a request go to the queue, with `context`. A request that has ended, or
    /// could not be posted, is there at once; one whose result was taken adds nothing. Costs an
    /// allocation for the buffer, and one more for an operation that has not ended.
    pub fn add(&self, context: u64, request: impl Queueable) {
        request.go_to(self.ended(), context);
    }

    /// Moves up to `max` completions to the end of `into`, the oldest first, and returns how many:
    /// those that are there, or else come by a turn of progress of the endpoints. Never waits.
    ///
    /// # Errors
    /// [`Error::Forked`]. The ends of endpoints are results of operations.
    pub fn poll(&self, into: &mut Vec<Completion>, max: usize) -> Result<usize> {
        let ended = self.ended();
        let taken = ended.take(into, max);
        if taken > 0 {
            return Ok(taken);
        }
        ended.progress()?;
        let taken = ended.take(into, max);
        if taken > 0 {
            // The caller may not call again for long, and peers wait for the answers.
            ended.endpoints().iter().for_each(Shared::deliver_answers);
        }
        Ok(taken)
    }

    /// As [`CompletionQueue::poll`] of a queue that has operations of `endpoint` alone, which it
    /// does not have to look for. Returns as well whether the turn of progress did anything.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    pub fn poll_of(
        &self,
        endpoint: &Endpoint,
        into: &mut Vec<Completion>,
        max: usize,
    ) -> Result<(usize, bool)> {
        let ended = self.ended();
        let taken = ended.take(into, max);
        if taken > 0 {
            return Ok((taken, true));
        }
        let moved = match endpoint.progress() {
            Err(Error::Closed) => false,
            moved => moved?,
        };
        let taken = ended.take(into, max);
        if taken > 0 {
            endpoint.shared().deliver_answers();
        }
        Ok((taken, moved || taken > 0))
    }

    /// As [`CompletionQueue::poll`], of completions that are there already: the endpoints make no
    /// progress. Some nanoseconds if there are none.
    pub fn take(&self, into: &mut Vec<Completion>, max: usize) -> usize {
        self.ended().take(into, max)
    }

    /// Asks for the end of one operation that was added with this context, as the request's own
    /// `cancel` does. Returns whether it will end: then with
    /// [`Error::Cancelled`](crate::Error::Cancelled) in its completion, unless the peer is faster.
    /// `false`: there is none, or it has been matched, and takes its course. Looks at all
    /// operations of the endpoints.
    pub fn cancel(&self, context: u64) -> bool {
        let ended = self.ended();
        let cancel = |endpoint: &Arc<Shared>| {
            // In a forked child they are the parent's.
            endpoint
                .enter()
                .is_ok_and(|mut engine| abandoned::cancel_named(&mut engine, ended.number, context))
        };
        ended.endpoints().iter().any(cancel)
    }

    /// As [`CompletionQueue::poll`], but waits until there is a completion, or for `timeout`: with
    /// one endpoint as its blocking calls do, with several by their descriptors. With nothing
    /// outstanding it waits for another thread to add something.
    ///
    /// # Errors
    /// [`Error::Forked`]; [`Error::Os`] where several endpoints cannot be waited for.
    pub fn wait(
        &self,
        into: &mut Vec<Completion>,
        max: usize,
        timeout: Option<Duration>,
    ) -> Result<usize> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if max == 0 {
            return Ok(0);
        }
        loop {
            let taken = self.poll(into, max)?;
            if taken > 0 || deadline.is_some_and(|end| Instant::now() >= end) {
                return Ok(taken);
            }
            self.ended().waiting.fetch_add(1, Ordering::SeqCst);
            let waited = self.ended().wait(deadline);
            self.ended().waiting.fetch_sub(1, Ordering::SeqCst);
            waited?;
        }
    }

    /// Prepares for waiting on the queue's descriptor ([`AsFd`]) with `poll(2)` or an event loop,
    /// as [`Endpoint::arm`](crate::Endpoint::arm) does for one endpoint. `false`: something is
    /// there, or may be; poll, and ask again.
    ///
    /// # Errors
    /// [`Error::Os`]: an endpoint cannot be watched. [`Error::Forked`].
    pub fn arm(&self) -> Result<bool> {
        self.ended().arm()
    }

    /// Operations that have not ended, or whose completions have not been taken. Of a receive of
    /// many messages, each that was not taken is one more.
    pub fn outstanding(&self) -> usize {
        self.ended().outstanding.load(Ordering::Relaxed)
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ended().pollable.as_fd()
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("outstanding", &self.outstanding())
            .finish_non_exhaustive()
    }
}
