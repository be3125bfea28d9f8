//! Answers that are given after their handlers have ended.

use std::{fmt, sync::Arc};

use super::{
    OwnedBuf,
    payload::{BlockingOp, Owned, Payload, say},
};
use crate::{
    PeerId, Result,
    protocol::active::send,
    wire::active::{Failure, Label, Verb},
    worker::shared::Shared,
};

/// The right, and the duty, to answer a request after its handler has ended; see
/// [`Active::reply_later`](crate::Active::reply_later). It can be moved to another thread. If it
/// is dropped unused, the request is answered with an error.
///
/// ```
/// use pinfold::{Endpoint, Progress};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-replier-{}", std::process::id());
/// let server = Endpoint::builder()
///     .listen(&name)
///     .progress(Progress::Dedicated)
///     .handle(1, |active| {
///         let replier = active.reply_later().expect("the client requests it");
///         // The handler ends at once; a thread answers when it has the answer.
///         std::thread::spawn(move || replier.reply(b"at last"));
///     })
///     .build()?;
/// let client = Endpoint::new()?;
/// let answer = client.request(client.connect(&name)?, 1, b"?").wait()?;
/// assert_eq!(&*answer, b"at last");
/// # drop(server);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropped without a word, it answers with an error"]
pub struct Replier {
    shared: Arc<Shared>,
    peer: PeerId,
    token: u32,
    given: bool,
}

impl Replier {
    pub(crate) fn new(shared: &Arc<Shared>, peer: PeerId, token: u32) -> Replier {
        if let Ok(mut engine) = shared.enter() {
            engine.core.active.open(peer);
        }
        Replier { shared: Arc::clone(shared), peer, token, given: false }
    }

    /// The peer that sent the request.
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// Answers. Never waits: an answer that cannot go at once is copied, and goes before everything
    /// else that this endpoint has to send to that peer.
    ///
    /// # Errors
    /// [`Error::PeerGone`](crate::Error::PeerGone), [`Error::Closed`](crate::Error::Closed),
    /// [`Error::Forked`](crate::Error::Forked).
    pub fn reply(self, payload: &[u8]) -> Result<()> {
        self.give(BlockingOp(payload))
    }

    /// As [`Replier::reply`], of a buffer that is not copied.
    ///
    /// # Errors
    /// As [`Replier::reply`].
    pub fn reply_owned<B: OwnedBuf>(self, payload: B) -> Result<()> {
        self.give(Owned(payload))
    }

    fn give(mut self, payload: impl Payload) -> Result<()> {
        self.given = true;
        let label = Label { verb: Verb::Reply, id: 0, token: self.token };
        say(&self.shared, self.peer, self.peer, label, payload)
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        // In a forked child the answer is the parent's to give.
        if let Ok(mut engine) = self.shared.enter() {
            if !self.given {
                send::fail(&mut engine, self.peer, self.token, Failure::NoAnswer);
            }
            engine.core.active.shut(self.peer);
        }
    }
}

impl fmt::Debug for Replier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replier").field("peer", &self.peer).finish_non_exhaustive()
    }
}
