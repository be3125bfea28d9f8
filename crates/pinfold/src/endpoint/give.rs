//! Memory that is given away for good, as soon as its receiver's limit allows.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    DonatedBuf, Error, PeerId, Result,
    protocol::handoff::{
        admission::{self, Admission},
        donate, latest, vectored,
    },
    worker::{
        abandoned, cancel,
        followers::Awaited,
        op::{Keeps, OpKey},
        post, progress,
        shared::Shared,
    },
};

/// Memory that could not be given, and the reason.
///
/// ```
/// use pinfold::{Arena, Endpoint};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-not-given-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let mut buf = Arena::new()?.alloc(4)?;
/// buf.copy_from_slice(b"mine");
/// endpoint.disconnect(itself);
/// let not_given = endpoint.try_give(itself, 1, buf).unwrap_err();
/// assert!(not_given.error.is_peer_gone());
/// let buf = not_given.donation.into_arena_buf(); // Nothing is lost.
/// assert_eq!(buf.as_deref(), Some(&b"mine"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct NotGiven {
    /// The reason.
    pub error: Error,
    /// The memory. [`DonatedBuf::into_arena_buf`] makes a buffer of it again.
    pub donation: DonatedBuf,
}

impl fmt::Display for NotGiven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for NotGiven {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}

impl From<NotGiven> for Error {
    fn from(not_given: NotGiven) -> Error {
        not_given.error
    }
}

/// Gives memory away; waits until that may be.
///
/// # Errors
/// As for any send, as far as that is known at once.
#[inline]
pub(crate) fn give(
    shared: &Arc<Shared>,
    peer: PeerId,
    tag: u64,
    donation: DonatedBuf,
) -> Result<()> {
    // One try, by the fast path if it is open.
    let rest = match shared.fast_path() {
        Some(mut engine) => donate::give_at_once(&mut engine, peer, tag, donation, false),
        None => donate::give_at_once(&mut *shared.enter()?, peer, tag, donation, false),
    };
    match rest {
        None => Ok(()),
        Some(donation) => Ok(give_until(shared, peer, tag, donation, None)?),
    }
}

/// As [`give`], waiting at most `patience`.
///
/// # Errors
/// As for [`give`], and if it may not be given by then; with the memory.
pub(crate) fn give_until(
    shared: &Arc<Shared>,
    peer: PeerId,
    tag: u64,
    donation: DonatedBuf,
    patience: Option<Duration>,
) -> Result<(), NotGiven> {
    let posted =
        shared.enter().and_then(|mut engine| donate::hand_off(&mut engine, peer, tag, &donation));
    let given = posted.and_then(|key| {
        let admitted = await_admission(shared, key, patience);
        if admitted.is_ok() {
            abandoned::let_go(
                &mut *shared.enter()?,
                key,
                Keeps::DonatedBuf { donation: donation.clone() },
            );
        }
        admitted
    });
    given.map_err(|error| NotGiven { error, donation })
}

/// As [`give`], of memory in several parts, as one message.
///
/// # Errors
/// As for [`give`].
pub(crate) fn give_vectored(
    shared: &Arc<Shared>,
    peer: PeerId,
    tag: u64,
    donations: Vec<DonatedBuf>,
) -> Result<()> {
    let key = vectored::hand_off_parts(&mut *shared.enter()?, peer, tag, &donations)?;
    await_admission(shared, key, None)?;
    abandoned::let_go(&mut *shared.enter()?, key, Keeps::DonatedBufs { donations });
    Ok(())
}

/// Waits until a donated buffer is on its way.
///
/// # Errors
/// The error of its operation, if that has ended instead.
fn await_admission(shared: &Arc<Shared>, key: OpKey, patience: Option<Duration>) -> Result<()> {
    // Nothing looks at an operation that is left behind.
    let taken = Taken { shared, key: Some(key) };
    let end = patience.map(|patience| Instant::now() + patience.min(Duration::from_secs(1 << 31)));
    let held = |admission: &Admission| matches!(admission, Admission::Held);
    let mut engine = shared.enter()?;
    let mut admission = admission::admission(&engine.core.ops, key);
    if held(&admission) {
        // Notice of returned memory may have arrived.
        progress::progress(&mut engine);
        admission = admission::admission(&engine.core.ops, key);
    }
    drop(engine);
    if held(&admission) && patience != Some(Duration::ZERO) {
        let waited = shared.wait_for(end, Awaited::Anything, |engine| {
            let admission = admission::admission(&engine.core.ops, key);
            (!held(&admission)).then_some(admission)
        })?;
        admission = waited.unwrap_or(Admission::Held);
    }
    match admission {
        Admission::Goes => {
            taken.keep();
            Ok(())
        }
        Admission::Held => {
            let mut engine = shared.enter()?;
            // Between the look and this it may have been admitted.
            if cancel::cancel(&mut engine, key)
                || matches!(admission::admission(&engine.core.ops, key), Admission::Ended)
            {
                let error = admission::held(&engine.core.ops);
                return match engine.take_done(key) {
                    Some(Err(Error::Cancelled)) | None => Err(error),
                    Some(done) => post::sent(done).map(drop),
                };
            }
            drop(engine);
            taken.keep();
            Ok(())
        }
        Admission::Ended => {
            let done = shared.enter()?.take_done(key);
            done.map_or(Ok(()), |done| post::sent(done).map(drop))
        }
    }
}

/// An operation that is taken back if the wait for it unwinds.
struct Taken<'a> {
    shared: &'a Arc<Shared>,
    key: Option<OpKey>,
}

impl Taken<'_> {
    fn keep(mut self) {
        self.key = None;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key
            && let Ok(mut engine) = self.shared.enter()
        {
            latest::give_up(&mut engine, key);
        }
    }
}
