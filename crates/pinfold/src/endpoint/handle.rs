//! The handle that programs hold: made, driven and closed here.
//!
//! - `peers`: connecting, accepting and disconnecting.
//! - `messages`: messages that are copied.
//! - `memory`: memory that is given away, and memory that stays where it is for peers to use.
//!
//! The calls for active messages and memory by address lie in `active.rs` and `space/`.

mod memory;
mod messages;
mod peers;

use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Weak},
};

use pinfold_sys::cpu::clock;

use super::{Builder, Progress};
use crate::{
    Counters, Error, Result,
    copy::Counts,
    status,
    worker::{config::Config, gauges, prefaulter, progress, shared::Shared, sleep},
};

/// One party to the exchange of messages: it connects to others, others connect to it if it
/// listens, and messages go both ways between connected peers.
///
/// A handle; clones are handles of the same endpoint, which closes when the last is dropped. It
/// can be used from several threads at once. The thread that made it is served faster as long as
/// no other uses it.
///
/// A child made by `fork(2)` has no part in it: there its operations fail at once with
/// [`Error::Forked`], whatever other threads were doing at that moment, and dropping it takes
/// nothing from the parent. An endpoint made in the child works.
///
/// # Threads
/// The threads that call an endpoint drive it. It starts threads of its own for these, and no
/// others; they block all signals:
/// - `pinfold`: with [`Progress::Dedicated`](crate::Progress::Dedicated), or from the first future
///   that has to wait;
/// - `pinfold-answers`: a call ended with control messages for which a lane had no room;
/// - `pinfold-lookup`: [`Endpoint::connect`] and its like resolve the name of a host;
/// - `pinfold-agent`, up to four: peers use memory exposed by [`Endpoint::expose`] that has to be
///   paged in;
/// - `pinfold-watch`, two: memory stays pinned for messages to other hosts
///   ([`SendMode::Cached`](crate::SendMode::Cached));
/// - `pinfold-closer`, one a process: a peer passed a descriptor whose closing may wait.
///
/// A [`CopyEngine`](crate::CopyEngine) starts `pinfold-copies`.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-{}", std::process::id());
/// use pinfold::Endpoint;
///
/// let server = Endpoint::listen(&name)?;
/// std::thread::scope(|threads| -> pinfold::Result<()> {
///     let client = threads.spawn(|| -> pinfold::Result<()> {
///         let client = Endpoint::new()?;
///         let peer = client.connect(&name)?;
///         client.send(peer, 7, b"how now")?;
///         Ok(())
///     });
///     let client_id = server.accept()?;
///     let message = server.recv(client_id, 7)?;
///     assert_eq!(&*message, b"how now");
///     client.join().unwrap()
/// })
/// # }
/// ```
#[derive(Clone)]
pub struct Endpoint {
    owner: Arc<Owner>,
}

/// Closes the endpoint with the last handle. Requests and the driving thread hold [`Shared`].
pub(crate) struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // In a forked child the endpoint stays the parent's.
        let counters = self.shared.counters();
        let _ = self.shared.close();
        if let Ok(counters) = counters
            && let Err(error) = status::report(&counters)
        {
            tracing::warn!(%error, "counters of a closed endpoint are lost");
        }
    }
}

impl Shared {
    /// A handle of the endpoint, as long as the program has one.
    pub(crate) fn handle(&self) -> Option<Endpoint> {
        Some(Endpoint { owner: self.owner()?.downcast().ok()? })
    }

    fn counters(&self) -> Result<Counters> {
        let engine = self.enter()?;
        gauges::update_copy_gauges(&engine.core);
        Ok(engine.core.status.counters())
    }
}

impl Endpoint {
    /// The settings of an endpoint to be made.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// An endpoint that connects to others.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new() -> Result<Endpoint> {
        Endpoint::builder().build()
    }

    /// An endpoint that listens at `address`, `local:NAME`.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn listen(address: &str) -> Result<Endpoint> {
        Endpoint::builder().listen(address).build()
    }

    pub(crate) fn from_config(config: Config) -> Result<Endpoint> {
        config.check()?;
        status::translations::begin();
        let dedicated = config.progress == Progress::Dedicated;
        let shared = Shared::new(config)?;
        let endpoint = Endpoint { owner: Arc::new(Owner { shared }) };
        let owner: Weak<Owner> = Arc::downgrade(&endpoint.owner);
        endpoint.shared().owned_by(owner);
        if dedicated {
            endpoint.shared().start_driver()?;
        }
        Ok(endpoint)
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// Does all that can be done now without waiting, and returns whether anything was done. If
    /// nothing was, some memory of a receive may be [made ready](crate::Builder::prepare_receives),
    /// for some microseconds.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn progress(&self) -> Result<bool> {
        let mut engine = self.shared().enter()?;
        engine.check()?;
        progress::turn(&mut engine);
        if progress::progress(&mut engine) {
            return Ok(true);
        }
        if let Some(step) = prefaulter::next_to_prefault(&mut engine) {
            drop(engine);
            self.shared().prefault_next(&step)?;
        }
        Ok(false)
    }

    /// Prepares for waiting on the endpoint's descriptor ([`AsFd`]) with `poll(2)` or an event
    /// loop: asks all peers to ring. `false`: something is there already, or has happened since the
    /// last call; make progress, look at your requests, and ask again. The descriptor becomes
    /// readable when there is something to do, and a few times in the first seconds when there is
    /// not; the next call of the endpoint takes the request back.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn arm(&self) -> Result<bool> {
        let mut engine = self.shared().enter()?;
        engine.check()?;
        if std::mem::take(&mut engine.news) {
            return Ok(false);
        }
        if self.shared().has_handling(&engine) {
            return Ok(false);
        }
        engine.armed = true;
        if engine.driven {
            // The endpoint's own thread takes the messages, and rings.
            return engine
                .connections
                .bell
                .clear()
                .map(|_| true)
                .map_err(|error| Error::os("read", "the endpoint's bell", error));
        }
        let sleeps_for = if engine.asleep {
            // The sleeping thread looks again.
            Some(None)
        } else if sleep::ask_all(&mut engine) {
            sleep::sleeps_for(&mut engine)
        } else {
            None
        };
        if let Some(longest) = sleeps_for {
            let again = longest.map(|longest| clock::now_ns() + longest.as_nanos() as u64);
            let due = sleep::due_ns(&mut engine).into_iter().chain(again).min();
            let set = engine.connections.set_alarm(due);
            if let Err(failed) = set {
                engine.armed = false;
                return Err(Error::failed("the endpoint")(failed));
            }
            gauges::update_armed_gauge(&mut engine);
            return Ok(true);
        }
        engine.armed = false;
        sleep::unask_all(&mut engine);
        Ok(false)
    }

    /// The counts of the endpoint's work so far. In a forked child: all zero.
    pub fn counters(&self) -> Counters {
        self.shared().counters().unwrap_or_default()
    }

    /// The endpoint's copies at user level of 2 KiB and more, by algorithm and by size: of
    /// messages, by one-sided operations on regions of peers, and out of views. In a forked child:
    /// none.
    ///
    /// Memory that other threads of this process may reach at the same time (its own regions,
    /// buffers of shared arenas) is copied word by word, and not counted.
    pub fn copies(&self) -> Counts {
        self.shared()
            .enter()
            .map(|engine| gauges::copies(&engine.core.copies, &engine.core.unlocked))
            .unwrap_or_default()
    }

    /// Closes the endpoint; all operations that wait on it end with [`Error::Closed`]. In a forked
    /// child it does nothing: the endpoint is the parent's.
    ///
    /// Peers on this host can still receive the messages in their rings and memory that was given
    /// to them. Other messages that were sent without a wait, and all messages to other hosts, get
    /// a second or two to be delivered. The rest is lost, logged and counted
    /// ([`Counters::undelivered`](crate::Counters::undelivered)): call [`Endpoint::drain`] first to
    /// learn of it.
    pub fn close(&self) {
        let _ = self.shared().close();
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared().pollable.as_fd()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}
