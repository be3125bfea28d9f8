#![allow(unsafe_code)]
//! Exposed memory as its owner has it.
//!
//! **Invariant.** The caller of [`Endpoint::expose`] has answered for the exposed memory; this
//! module touches none of it, and has only [`agent`] do so until the exposure ends.

use std::{
    fmt,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{RegionKey, Rights, agent};
use crate::{
    Endpoint, Error, Result,
    failpoint::{self, Point},
    protocol::rma::registry::{Shown, Withdrawn},
    worker::shared::Shared,
};

/// The time that the end of an exposure waits for threads that use the memory. A peer that keeps to
/// the rules uses it as long as it takes to copy 1 MiB; one that was killed leaves at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time between looks whether they have left.
const LOOK: Duration = Duration::from_micros(50);

/// Memory of this process that peers may use by its addresses
/// ([`RemoteSpace`](crate::RemoteSpace)), until this is revoked or dropped.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
/// use pinfold::{Endpoint, Progress, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-exposed-{}", std::process::id());
/// static COUNT: AtomicU64 = AtomicU64::new(40);
/// let owner = Endpoint::builder().listen(&name).progress(Progress::Dedicated).build()?;
/// let user = Endpoint::new()?;
/// let peer = user.connect(&name)?;
/// let at = COUNT.as_ptr() as usize;
/// // SAFETY: a static stays, and this program reaches the word by atomic operations alone.
/// let exposed = unsafe { owner.expose(at..at + 8, Rights::ReadWrite)? };
/// let space = user.open_space(peer, &exposed.key())?;
/// assert_eq!(space.fetch_add(at as u64, 2u64)?, 40);
/// exposed.revoke()?; // No peer changes the word from here on.
/// assert_eq!(COUNT.load(SeqCst), 42);
/// assert!(space.fetch_add(at as u64, 2u64).is_err());
/// # Ok(())
/// # }
/// ```
#[must_use = "dropped, it is exposed no more"]
pub struct Exposed {
    addresses: Range<usize>,
    rights: Rights,
    shown: Shown,
    shared: Arc<Shared>,
    end: End,
}

/// The end of an exposure.
enum End {
    NotYet,
    /// Peers cannot come any more; some may not have left.
    Begun(Withdrawn),
    Over,
}

/// Ends the use by peers that keep to the rules, but for those that are in the midst of it.
///
/// # Errors
/// [`Error::Forked`]: it is the parent's.
pub(super) fn withdraw(shared: &Shared, shown: &Shown) -> Result<Option<Withdrawn>> {
    let entry = shared.enter()?.core.registry.remove(shown.key.id);
    Ok(shown.withdraw(entry))
}

impl Endpoint {
    /// Lets peers that show the key read, or read and write, this process's memory at `addresses`,
    /// whatever is there: a buffer, the heap, a stack, globals, a mapped file, or all there is
    /// (`0..1 << 47`). There need not be memory at all of them, and it may come and go: an
    /// operation uses the memory that is there at the time, or fails with [`Error::NotMapped`].
    /// Nothing is pinned, and nothing is copied.
    ///
    /// Peers that may read and write this process's memory by the kernel do so, without this
    /// process's help; they map memory that lies in an arena; for others the endpoint's agent
    /// copies, while the endpoint makes progress, by up to four threads that it starts where memory
    /// has to be paged in.
    ///
    /// Costs some µs. Memory of an arena that peers have mapped stays until the exposure ends.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] for a range that ends before it begins, or beyond the addresses that
    /// programs can have; [`Error::Closed`], [`Error::Forked`]; as for [`Endpoint::region`] if
    /// there is no memory for a word of its own.
    ///
    /// # Safety
    /// Until [`Exposed::revoke`] has returned `Ok`, or its drop has returned, peers may at any
    /// moment read any bytes of it, and with [`Rights::ReadWrite`] write any to it. So there must
    /// be no reference to memory that they may write but to cells that tolerate it (atomics,
    /// `UnsafeCell` behind raw pointers), and memory that they may read must be theirs to know.
    /// With the stack or the heap as a whole exposed for writing, a holder of the key can do with
    /// this process what it likes.
    pub unsafe fn expose(&self, addresses: Range<usize>, rights: Rights) -> Result<Exposed> {
        let Range { start, end } = addresses.clone();
        if start > end || end > ADDRESSES {
            let (offset, len) = (start as u64, end.saturating_sub(start) as u64);
            return Err(Error::OutOfBounds { offset, len, size: ADDRESSES as u64 });
        }
        let shared = self.shared();
        let mut engine = shared.enter()?;
        engine.check()?;
        let shown = engine.core.registry.add_addresses(start as u64..end as u64, rights)?;
        engine.core.active.set_agent(agent::handler);
        drop(engine);
        let shared = Arc::clone(shared);
        Ok(Exposed { addresses, rights, shown, shared, end: End::NotYet })
    }
}

/// Programs have addresses below this.
const ADDRESSES: usize = 1 << 47;

impl Exposed {
    /// The key that peers need to use it: to be sent to them in a message, say.
    pub fn key(&self) -> RegionKey {
        self.shown.key
    }

    /// The exposed addresses.
    pub fn addresses(&self) -> Range<usize> {
        self.addresses.clone()
    }

    /// The rights of peers.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Ends all use by peers, and waits for those that are using it, 10 s at most: mostly some µs.
    /// When this has returned `Ok`, no peer that keeps to the rules reads or writes the memory any
    /// more. (Peers that may do so by the kernel may do so without a key, too.) Operations that had
    /// succeeded before have had their effect.
    ///
    /// # Errors
    /// [`Error::StillVisited`]: a peer has not left. [`Error::Forked`]: it is the parent's.
    pub fn revoke(mut self) -> Result<()> {
        let ended = self.end();
        self.give_up();
        ended
    }

    /// As [`Exposed::revoke`], which may be called again if peers have not left.
    pub(super) fn end(&mut self) -> Result<()> {
        if let End::NotYet = self.end {
            self.end = End::Over;
            if let Some(withdrawn) = withdraw(&self.shared, &self.shown)? {
                self.end = End::Begun(withdrawn);
            }
        }
        let End::Begun(withdrawn) = &mut self.end else { return Ok(()) };
        let begun = Instant::now();
        loop {
            match withdrawn.visitors() {
                0 => {
                    failpoint::hit(Point::AfterEnd);
                    self.end = End::Over;
                    return Ok(());
                }
                visitors if begun.elapsed() > PATIENCE => {
                    return Err(Error::StillVisited { visitors, patience: PATIENCE });
                }
                _ => pinfold_sys::cpu::clock::pause(LOOK),
            }
        }
    }

    /// Arenas that peers may be using are never given back.
    pub(super) fn give_up(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.end, End::Over));
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "memory is exposed no more, and may still be in use");
            self.give_up();
        }
    }
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposed")
            .field("addresses", &self.addresses)
            .field("rights", &self.rights)
            .finish_non_exhaustive()
    }
}
