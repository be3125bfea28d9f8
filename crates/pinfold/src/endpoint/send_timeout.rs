#![allow(unsafe_code)]
//! Sends of borrowed memory that wait a limited time.
//!
//! **Invariant.** The memory is borrowed for the whole call, and the call returns or unwinds only
//! after the operation has ended or was [detached](crate::worker::send_timeout) from it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::blocking::{BlockingOp, send_now};
use crate::{
    Error, PeerId, Receipt, Result, Untaken,
    memory::scatter::Part,
    worker::{
        op::Done,
        post,
        send_timeout::{self, Detached},
        shared::Shared,
    },
};

/// The time that the receiver has to say whether a message could be taken back.
const GRACE: Duration = Duration::from_millis(100);

pub(crate) fn send(
    shared: &Arc<Shared>,
    peer: PeerId,
    tag: u64,
    data: &[u8],
    patience: Duration,
) -> Result<Receipt> {
    // SAFETY: borrowed until the operation has ended or was detached, below.
    let memory = unsafe { Part::new(data.as_ptr().cast_mut(), data.len()) };
    let mut chosen = None;
    if let Some(receipt) = send_now(shared, peer, tag, memory, &mut chosen) {
        return Ok(receipt);
    }
    let end = Instant::now().checked_add(patience);
    let key = send_timeout::post_timed(&mut *shared.enter()?, peer, tag, memory, chosen)?;
    let mut lent = BlockingOp::new(shared, key);
    if let Some(done) = lent.wait_until(end) {
        return post::sent(done);
    }
    let mut engine = shared.enter()?;
    let why = send_timeout::take_back_late(&mut engine, key);
    let peer = send_timeout::name_of(&mut engine.peers, peer);
    drop(engine);
    let ended = |done: Result<Done>| match (done, why) {
        (Err(Error::Cancelled), Some(why)) => {
            Err(Error::NotTaken { peer: peer.clone(), patience, why })
        }
        (done, _) => post::sent(done),
    };
    if let Some(done) = lent.wait_until(Instant::now().checked_add(GRACE)) {
        return ended(done);
    }
    let detached = send_timeout::detach(&mut *shared.enter()?, key);
    match detached {
        Some(detached) => {
            lent.forget();
            match detached {
                Detached::Goes(receipt) => Ok(receipt),
                Detached::Unsure => Err(Error::NotTaken { peer, patience, why: Untaken::Unsure }),
            }
        }
        None => ended(lent.wait()),
    }
}
