//! The state that all handles of one endpoint share: the engine behind its lock, and its
//! descriptor.

use std::{
    any::Any,
    io,
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use pinfold_sys::{
    cpu::{affinity, scheduled},
    fork::ForkMark,
    io::poll::{Epoll, Interest},
    threads::Kind,
};

use super::{
    config::{Config, Progress},
    copying,
    engine::Engine,
    followers::Awaited,
    outstanding,
    prefaulter::Prefaulter,
    probes, teardown,
    unlocked_counts::UnlockedCopies,
};
use crate::{
    Error, Result,
    protocol::rendezvous::copy_job::CopyJob,
    sync::biased::{BiasedLock, Guard},
};

/// The driving thread runs handlers and wakers.
const DRIVER: Kind = Kind::new("pinfold", Kind::STACK_OF_PROGRAMS);

/// Time without further attempts after one to start it has failed.
const REST: Duration = Duration::from_millis(1);

/// Between looks whether the driving thread has ended.
const LOOK_AGAIN: Duration = Duration::from_micros(50);

/// How long closing waits for peers that do not take their answers.
const FLUSH: Duration = Duration::from_secs(1);

pub(crate) struct Shared {
    engine: BiasedLock<Engine>,
    /// Checked before the engine is entered: in a child of the process that made it, another
    /// thread's entry may never end.
    fork: ForkMark,
    pub epoll: Arc<Epoll>,
    /// The descriptor that a caller waits on: `epoll`, and the engine's bell.
    pub pollable: Epoll,
    /// The thread that drives the endpoint, once it has been started.
    driver: OnceLock<JoinHandle<()>>,
    /// Held by the thread that starts it; the time of the last attempt that failed.
    unstarted: Mutex<Option<Instant>>,
    /// The thread that was last left with answers; see [`control_flush`](super::control_flush).
    pub control_flush: Mutex<Option<JoinHandle<()>>>,
    /// Tells the driving thread to end.
    stop: AtomicBool,
    crowded: bool,
    /// How many processors this machine has, if this process may run on all of them.
    processors: Option<usize>,
    /// The owner that handles hold.
    owner: OnceLock<Weak<dyn Any + Send + Sync>>,
    /// True if handlers run on the thread that drives, and on no other.
    pub dedicated: bool,
    /// Bulk copies outside the engine.
    pub unlocked: Arc<UnlockedCopies>,
    /// The prefaulter, which puts pages where messages will be copied to.
    pub preparer: Prefaulter,
}

impl Shared {
    pub(crate) fn new(config: Config) -> Result<Arc<Shared>> {
        let epoll =
            Epoll::new().map_err(|error| Error::os("epoll_create1", "the endpoint", error))?;
        let epoll = Arc::new(epoll);
        let fork = ForkMark::new().map_err(|error| Error::os("mmap", "the fork mark", error))?;
        let dedicated = config.progress == Progress::Dedicated;
        let preparer = Prefaulter::new(config.prepares);
        let engine = Engine::new(config, Arc::clone(&epoll))?;
        let failed = |error| Error::os("epoll_ctl", "the endpoint", error);
        let pollable =
            Epoll::new().map_err(|error| Error::os("epoll_create1", "the endpoint", error))?;
        pollable.add(&*epoll, 0, Interest::Read).map_err(failed)?;
        pollable.add(&engine.connections.bell, 1, Interest::Read).map_err(failed)?;
        Ok(Shared::around(engine, (epoll, pollable), fork, preparer, dedicated))
    }

    #[inline(never)]
    fn around(
        engine: Box<Engine>,
        (epoll, pollable): (Arc<Epoll>, Epoll),
        fork: ForkMark,
        preparer: Prefaulter,
        dedicated: bool,
    ) -> Arc<Shared> {
        let cpus = affinity::current_cpus().len();
        Arc::new(Shared {
            unlocked: Arc::clone(&engine.core.unlocked),
            preparer,
            engine: BiasedLock::new(*engine),
            fork,
            epoll,
            pollable,
            driver: OnceLock::new(),
            unstarted: Mutex::new(None),
            control_flush: Mutex::new(None),
            stop: AtomicBool::new(false),
            crowded: cpus < 2,
            processors: affinity::online_cpus().filter(|&online| online == cpus),
            owner: OnceLock::new(),
            dedicated,
        })
    }

    /// The engine, if this is the thread that made it and no other uses it. Its work here wakes no
    /// threads.
    #[inline(always)]
    pub(crate) fn fast_path(&self) -> Option<Guard<'_, Engine>> {
        if self.fork.is_child() {
            return None;
        }
        self.engine.fast_path()
    }

    /// The engine, for as long as the guard lives. Threads that it wants woken are woken when it is
    /// left.
    ///
    /// # Errors
    /// [`Error::Forked`].
    #[inline(always)]
    pub(crate) fn enter(&self) -> Result<Inside<'_>> {
        if self.fork.is_child() {
            return Err(Error::Forked);
        }
        let mut engine = self.engine.lock();
        engine.core.is_shared = engine.is_shared();
        Ok(Inside { guard: Some(engine), shared: self })
    }

    /// The engine again, for a thread that has left it to copy. `None` in a child of the process.
    pub(super) fn reenter(&self) -> Option<Guard<'_, Engine>> {
        (!self.fork.is_child()).then(|| self.engine.lock())
    }

    /// Returns whether other threads have come to the engine lately.
    #[inline(always)]
    pub(crate) fn has_others(&self) -> bool {
        self.engine.has_others()
    }

    /// Notes the owner of its handles.
    pub(crate) fn owned_by(&self, owner: Weak<dyn Any + Send + Sync>) {
        let _ = self.owner.set(owner);
    }

    /// The owner of its handles, as long as the program has one. Its type is that of
    /// [`Endpoint`](crate::Endpoint) to know.
    pub(crate) fn owner(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.owner.get()?.upgrade()
    }

    /// Returns whether this is a child of the process that made the endpoint.
    pub(crate) fn is_forked(&self) -> bool {
        self.fork.is_child()
    }

    /// Returns whether this process has one processor to itself and its peers, where spinning only
    /// keeps the peer from running.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Returns whether more threads of this machine want a processor now than it has. Some 5 µs.
    /// `None` where this process has only some of them: who wants those is not known.
    #[cold]
    pub(crate) fn is_overcommitted(&self) -> Option<bool> {
        let processors = self.processors?;
        Some(scheduled::runnable()? > processors)
    }

    /// Waits, for a while, until no peer waits to hear from this side.
    fn flush(self: &Arc<Shared>) -> Result<()> {
        if !teardown::is_flushed(&*self.enter()?) {
            let end = Instant::now() + FLUSH;
            let flushed = |engine: &mut Engine| teardown::is_flushed(engine).then_some(());
            self.wait_for(Some(end), Awaited::Anything, flushed)?;
        }
        Ok(())
    }

    /// Waits as long until no message would be lost whose end is not awaited.
    fn linger(self: &Arc<Shared>) -> Result<()> {
        if outstanding::has_unsent(&*self.enter()?, None) {
            let end = Instant::now() + FLUSH;
            let sent = |engine: &mut Engine| (!outstanding::has_unsent(engine, None)).then_some(());
            self.wait_for(Some(end), Awaited::Anything, sent)?;
        }
        Ok(())
    }

    /// Starts the thread that drives the endpoint, if it does not run yet.
    ///
    /// # Errors
    /// [`Error::Os`] where no thread can be had now. It may be asked for again, as often as wanted.
    pub(crate) fn start_driver(self: &Arc<Shared>) -> Result<()> {
        if self.driver.get().is_some() {
            return Ok(());
        }
        let failed = |error| Error::os("clone3", "the endpoint's thread", error);
        let busy = || failed(io::ErrorKind::WouldBlock.into());
        // Handlers and wakers run meanwhile may come here again.
        let mut unstarted = self.unstarted.try_lock().map_err(|_| busy())?;
        if self.driver.get().is_some() {
            return Ok(());
        }
        if unstarted.is_some_and(|last| last.elapsed() < REST) {
            return Err(busy());
        }
        let weak = Arc::downgrade(self);
        self.set_driven(true);
        let spawned = DRIVER.start(move || {
            // The thread holds the endpoint only while it waits, and is woken to end.
            if let Some(shared) = weak.upgrade() {
                drop(weak);
                // A child of this process does not have this thread.
                let _ = shared.drive();
            }
        });
        match spawned {
            Ok(thread) => drop(self.driver.set(thread)),
            Err(error) => {
                self.set_driven(false);
                if unstarted.replace(Instant::now()).is_none() {
                    tracing::warn!(%error, "no thread drives the endpoint: its futures are polled in turn");
                }
                return Err(failed(error));
            }
        }
        Ok(())
    }

    fn set_driven(&self, driven: bool) {
        if let Ok(mut engine) = self.enter() {
            engine.driven = driven;
        }
    }

    /// Drives the endpoint until it is closed.
    fn drive(self: Arc<Shared>) -> Result<()> {
        self.is_driven_here();
        self.wait_for(None, Awaited::Close, |engine| {
            (engine.core.closed || self.stop.load(Ordering::Acquire)).then_some(())
        })?;
        self.enter()?.core.wakes.any = true;
        Ok(())
    }

    /// Closes the endpoint; all that waits on it ends with an error. Answers that found no room
    /// yet, and messages whose end is not awaited, go out first, as long as their receivers take
    /// them.
    ///
    /// # Errors
    /// [`Error::Forked`]: it is the parent's to close.
    pub(crate) fn close(self: &Arc<Shared>) -> Result<()> {
        self.linger()?;
        self.flush()?;
        self.stop.store(true, Ordering::Release);
        let mut engine = self.enter()?;
        teardown::close(&mut engine);
        drop(engine);
        // A peer in the middle of a copy into our memory finishes it.
        self.flush()?;
        let mut engine = self.enter()?;
        engine.kick = true;
        (engine.core.wakes.any, engine.core.wakes.all) = (true, true);
        drop(engine);
        if let Some(driver) = self.driver.get() {
            see_off(driver);
        }
        let control_flush =
            self.control_flush.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(control_flush) = control_flush {
            see_off(&control_flush);
        }
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.fork.is_child() {
            return;
        }
        // The threads are the parent's; the ids in their handles may be others' by now.
        std::mem::forget(self.driver.take());
        let control_flush = self.control_flush.get_mut().unwrap_or_else(PoisonError::into_inner);
        std::mem::forget(control_flush.take());
        if let Some(engine) = self.engine.get_mut() {
            teardown::forsake(engine);
        }
    }
}

/// Waits until a thread of the endpoint, which holds its descriptors, has ended. Not for ever: it
/// may be running a waker that waits for the caller.
fn see_off(thread: &JoinHandle<()>) {
    let end = Instant::now() + FLUSH;
    while !thread.is_finished()
        && thread.thread().id() != thread::current().id()
        && Instant::now() < end
    {
        pinfold_sys::cpu::clock::pause(LOOK_AGAIN);
    }
}

/// The engine, entered.
pub(crate) struct Inside<'a> {
    shared: &'a Shared,
    guard: Option<Guard<'a, Engine>>,
}

impl Deref for Inside<'_> {
    type Target = Engine;

    #[inline(always)]
    fn deref(&self) -> &Engine {
        // Only `drop` takes it.
        self.guard.as_ref().unwrap_or_else(|| unreachable!())
    }
}

impl DerefMut for Inside<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Engine {
        self.guard.as_mut().unwrap_or_else(|| unreachable!())
    }
}

impl Inside<'_> {
    /// Lets other threads in, and runs the work that this entry left.
    pub(crate) fn leave_and_enter(&mut self) -> Result<()> {
        self.leave();
        *self = self.shared.enter()?;
        Ok(())
    }

    #[inline(always)]
    fn leave(&mut self) {
        let Some(engine) = self.guard.take() else { return };
        if has_left_work(&engine) {
            leave(engine, self.shared);
        }
    }
}

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns whether there is work to do once the engine is left.
#[inline(always)]
fn has_left_work(engine: &Engine) -> bool {
    !engine.core.wakes.is_empty()
        || engine.kick && engine.asleep
        || engine.core.active.is_due()
        || !engine.core.lent.is_empty()
}

/// Leaves the engine and then runs the work that it left: wakers, then handlers, then copies of
/// parts that are lent, after each of which it leaves the engine again.
#[cold]
#[inline(never)]
fn leave(engine: Guard<'_, Engine>, shared: &Shared) {
    let mut entered = Some(engine);
    while let Some(engine) = entered.take().filter(|engine| has_left_work(engine)) {
        entered = match leave_once(engine, shared) {
            Left::Nothing => None,
            Left::Jobs => shared.reenter(),
            Left::Job(job) => {
                let (done, by) = copying::copy_part(*job, &shared.unlocked);
                // A child of the process, which a signal's handler may have made, has no engine.
                shared.reenter().map(|mut engine| {
                    copying::part_is_back(&mut engine, done, by);
                    engine
                })
            }
        };
    }
}

/// The copies that are left to the thread that has left the engine.
enum Left {
    Nothing,
    /// Those that no other thread has taken meanwhile.
    Jobs,
    Job(Box<CopyJob>),
}

/// Leaves the engine and then runs the work that it left, but for copies.
#[inline(never)]
fn leave_once(mut engine: Guard<'_, Engine>, shared: &Shared) -> Left {
    let handles = shared.has_handling(&engine);
    if !handles && engine.core.active.take_news() {
        // For another thread that may run it.
        engine.kick = true;
        let wakes = &mut engine.core.wakes;
        (wakes.any, wakes.driver, wakes.all) = (true, true, !shared.dedicated);
    }
    if engine.core.wakes.any && !engine.core.probes.is_empty() {
        probes::settle(&mut engine);
    }
    let mut wakes = std::mem::take(&mut engine.core.wakes);
    wakes.wake(&mut engine.followers);
    if !wakes.unpark.is_empty() {
        // A call goes on.
        engine.waits.note();
    }
    // Code of the program's may wait for what is copied: then another thread that comes copies it,
    // or this one does afterwards.
    let has_users = handles || wakes.has_users();
    let left = match has_users {
        false => copying::take_job(&mut engine, &mut wakes).map_or(Left::Nothing, Left::Job),
        true if engine.core.lent.is_empty() => Left::Nothing,
        true => Left::Jobs,
    };
    if has_users {
        engine.followers.step_down(&mut wakes.unpark);
    }
    let is_wanted = engine.kick
        || !engine.core.lent.is_empty()
        || wakes.leader
        || wakes.has_ended_leader(&engine.followers);
    if is_wanted && engine.asleep {
        engine.kick = false;
        if let Err(error) = engine.connections.kick.signal() {
            tracing::warn!(%error, "a sleeping thread could not be woken");
        }
    }
    if wakes.any {
        engine.news = true;
        if engine.armed && engine.driven {
            engine.armed = false;
            if let Err(error) = engine.connections.bell.signal() {
                tracing::warn!(%error, "a caller that waits could not be told");
            }
        }
    }
    drop(engine);
    for result in wakes.results {
        result.deliver();
    }
    // Before code of the program's, which may wait for one of them.
    drop(wakes.unpark);
    for waker in wakes.wakers {
        waker.wake();
    }
    drop(wakes.drops);
    if handles {
        shared.run_handlers();
    }
    left
}
