//! What every handle of one endpoint shares: the engine behind its lock, and its descriptor.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use pinfold_sys::{affinity, poll::Epoll};

use super::{config::Config, engine::Engine};
use crate::{
    Error, Result,
    sync::biased::{BiasedLock, Guard},
};

pub(crate) struct Shared {
    engine: BiasedLock<Engine>,
    pub epoll: Arc<Epoll>,
    /// Whether the thread that drives the endpoint has been started.
    driver: OnceLock<()>,
    /// Tells it to end.
    stop: AtomicBool,
    crowded: bool,
}

impl Shared {
    pub(crate) fn new(config: Config) -> Result<Arc<Shared>> {
        let epoll =
            Epoll::new().map_err(|error| Error::os("epoll_create", "the endpoint", error))?;
        let epoll = Arc::new(epoll);
        let engine = Engine::new(config, Arc::clone(&epoll))?;
        Ok(Arc::new(Shared {
            engine: BiasedLock::new(engine),
            epoll,
            driver: OnceLock::new(),
            stop: AtomicBool::new(false),
            crowded: affinity::current_cpus().len() < 2,
        }))
    }

    /// The engine, for as long as the guard lives. What it wants woken is woken when it is left.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Inside<'_> {
        Inside { guard: Some(self.engine.lock()) }
    }

    /// Whether this process has one processor to itself and its peers, where spinning only
    /// keeps the peer from running.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Starts the thread that drives the endpoint, if it does not run yet.
    pub(crate) fn start_driver(self: &Arc<Shared>) -> Result<()> {
        if self.driver.get().is_some() {
            return Ok(());
        }
        let mut result = Ok(());
        self.driver.get_or_init(|| {
            let weak = Arc::downgrade(self);
            let builder = thread::Builder::new().name("pinfold".to_owned());
            let spawned = builder.spawn(move || {
                // Holds the endpoint only while it waits, and is woken to end.
                if let Some(shared) = weak.upgrade() {
                    drop(weak);
                    shared.drive();
                }
            });
            if let Err(error) = spawned {
                result = Err(Error::os("clone", "the endpoint's thread", error));
            }
        });
        result
    }

    /// Drives the endpoint until it is closed.
    fn drive(self: Arc<Shared>) {
        self.wait_for(None, |engine| {
            (engine.closed || self.stop.load(Ordering::Acquire)).then_some(())
        });
        self.enter().core.wakes.any = true;
    }

    /// Closes the endpoint; all that waits on it ends with an error.
    pub(crate) fn close(&self) {
        self.stop.store(true, Ordering::Release);
        let mut engine = self.enter();
        engine.close();
        engine.kick = true;
        engine.core.wakes.any = true;
    }
}

/// The engine, entered.
pub(crate) struct Inside<'a> {
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

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let Some(engine) = self.guard.take() else { return };
        if engine.core.wakes.is_empty() && !(engine.kick && engine.asleep) {
            return;
        }
        leave(engine);
    }
}

/// Leaves the engine and then runs what it wanted run.
#[cold]
#[inline(never)]
fn leave(mut engine: Guard<'_, Engine>) {
    if engine.kick && engine.asleep {
        engine.kick = false;
        if let Err(error) = engine.links.kick.signal() {
            tracing::warn!(%error, "a sleeping thread could not be woken");
        }
    }
    let wakes = std::mem::take(&mut engine.core.wakes);
    let followers = if wakes.any { std::mem::take(&mut engine.followers) } else { Vec::new() };
    drop(engine);
    for waker in wakes.wakers {
        waker.wake();
    }
    for follower in followers {
        follower.unpark();
    }
    drop(wakes.drops);
}
