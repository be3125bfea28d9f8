//! Active messages: a handler's number and bytes for it, as Split-C used them (von Eicken, Culler,
//! Goldstein, Schauser, *Active Messages*, 1992).

use std::{cell::Cell, fmt, sync::Arc};

use super::{
    Answer, Endpoint, OwnedBuf, Reply, SendRequest, blocking,
    payload::{BlockingOp, Owned, Payload, say},
};
use crate::{
    Error, PeerId, Receipt, Result,
    wire::active::{Label, Verb},
    worker::shared::Shared,
};

impl Endpoint {
    /// Has `handler` see to the active messages of number `id`, in place of what did so before.
    /// Messages without a handler are dropped, so most programs say this before anybody can send
    /// any: [`Builder::handle`](crate::Builder::handle).
    ///
    /// Handlers run on the threads that call the endpoint, as those leave it, or on the endpoint's
    /// own thread alone with [`Progress::Dedicated`](crate::Progress::Dedicated).
    ///
    /// - Messages of one peer go to their handlers one after the other, in the order they were
    ///   sent. Those of different peers may be seen to at the same time, by different threads. They
    ///   have no order with tagged messages.
    /// - A handler may use the endpoint like anybody. While it does, its thread runs no other
    ///   handler of the endpoint: what comes meanwhile waits, also that of other peers if no other
    ///   thread calls. So a handler should be short, and must not wait for locks that are held
    ///   while the endpoint is called.
    /// - A handler may wait for answers, which need no handler on this side. Two handlers that
    ///   wait for each other's thread wait for ever; where that can be, take an [`Answer`] and end.
    ///   To send without waiting there is [`Active::call`].
    /// - A panic in a handler is caught and logged; a request is answered by an error.
    ///
    /// A handler that holds a handle of its endpoint keeps that open; [`Active::endpoint`] does not.
    ///
    /// ```
    /// # fn main() -> pinfold::Result<()> {
    /// # let name = format!("local:doc-active-{}", std::process::id());
    /// use pinfold::{Endpoint, Progress};
    ///
    /// const SQUARE: u32 = 1;
    /// let server = Endpoint::builder()
    ///     .listen(&name)
    ///     .progress(Progress::Dedicated)
    ///     .handle(SQUARE, |active| {
    ///         let squares: Vec<u8> = active.payload().iter().map(|n| n * n).collect();
    ///         active.reply(&squares).unwrap();
    ///     })
    ///     .build()?;
    ///
    /// let client = Endpoint::new()?;
    /// let peer = client.connect(&name)?;
    /// let answer = client.request(peer, SQUARE, &[2, 3, 4]).wait()?;
    /// assert_eq!(&*answer, [4, 9, 16]);
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn handle(
        &self,
        id: u32,
        handler: impl Fn(Active<'_>) + Send + Sync + 'static,
    ) -> Result<()> {
        let mut engine = self.shared().enter()?;
        engine.check()?;
        let before = engine.core.active.set_handler(id, Some(Arc::new(handler)));
        // Its drop is the user's code.
        drop(engine);
        drop(before);
        Ok(())
    }

    /// Ends what [`Endpoint::handle`] began; a thread may still be in the handler. Whether there
    /// was one.
    pub fn unhandle(&self, id: u32) -> bool {
        let Ok(mut engine) = self.shared().enter() else { return false };
        let before = engine.core.active.set_handler(id, None);
        drop(engine);
        before.is_some()
    }

    /// Sends `payload` to handler `id` of a peer and returns when the memory is the caller's again:
    /// at once if it went into the ring, else when the receiver has it, the messages before it
    /// having been seen to. Up to 48 bytes go in a descriptor. Nothing comes back: if the peer has
    /// no such handler, it drops and counts the message, and the caller hears of that only where it
    /// had to wait for the receiver.
    ///
    /// # Errors
    /// As [`Endpoint::send`], and [`Error::NotHandled`].
    #[inline]
    pub fn call(&self, peer: PeerId, id: u32, payload: &[u8]) -> Result<Receipt> {
        blocking::call(self.shared(), peer, id, payload)
    }

    /// As [`Endpoint::call`], of a buffer that the operation owns. Never waits.
    pub fn call_owned<B: OwnedBuf>(&self, peer: PeerId, id: u32, payload: B) -> SendRequest<B> {
        SendRequest::call(self.shared(), peer, id, payload)
    }

    /// Sends `payload` to handler `id` of a peer, whose answer the [`Reply`] brings. Never waits:
    /// what does not go at once is copied.
    ///
    /// In a handler it counts against the peer whose message that sees to, until there is an answer,
    /// as [`Active::call`] and [`Active::answer_later`] do: while 1,024 are out, or 4 MiB have not
    /// gone, that peer's next messages wait.
    pub fn request(&self, peer: PeerId, id: u32, payload: &[u8]) -> Reply {
        Reply::ask(self.shared(), peer, id, BlockingOp(payload))
    }

    /// As [`Endpoint::request`], of a buffer that the operation owns.
    pub fn request_owned<B: OwnedBuf>(&self, peer: PeerId, id: u32, payload: B) -> Reply {
        Reply::ask(self.shared(), peer, id, Owned(payload))
    }
}

/// What is owed for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Debt {
    /// Nothing: it is a call, or has been answered.
    None,
    /// An answer.
    Open,
    /// An answer that was given, or that an [`Answer`] is to give.
    Settled,
}

/// An active message, as its handler sees it.
pub struct Active<'a> {
    endpoint: &'a Endpoint,
    peer: PeerId,
    label: Label,
    payload: &'a [u8],
    receipt: Receipt,
    debt: &'a Cell<Debt>,
}

impl<'a> Active<'a> {
    pub(crate) fn new(
        endpoint: &'a Endpoint,
        peer: PeerId,
        label: Label,
        payload: &'a [u8],
        receipt: Receipt,
        debt: &'a Cell<Debt>,
    ) -> Active<'a> {
        Active { endpoint, peer, label, payload, receipt, debt }
    }

    /// Who sent it.
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// The number of the handler it is for.
    pub fn id(&self) -> u32 {
        self.label.id
    }

    /// Its bytes.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// How it came.
    pub fn receipt(&self) -> Receipt {
        self.receipt
    }

    /// The endpoint it came to.
    pub fn endpoint(&self) -> &'a Endpoint {
        self.endpoint
    }

    /// Whether its sender waits for an answer.
    pub fn is_request(&self) -> bool {
        self.label.verb.is_asking()
    }

    /// Answers a request; to a call it does nothing. Never waits: what does not go at once is
    /// copied, and goes before whatever else this endpoint has to send there.
    ///
    /// # Errors
    /// [`Error::AlreadyAnswered`], [`Error::PeerGone`], [`Error::Closed`], [`Error::Forked`].
    pub fn reply(&self, payload: &[u8]) -> Result<()> {
        self.answer(BlockingOp(payload))
    }

    /// As [`Active::reply`], of a buffer that is not copied.
    ///
    /// # Errors
    /// As [`Active::reply`].
    pub fn reply_owned<B: OwnedBuf>(&self, payload: B) -> Result<()> {
        self.answer(Owned(payload))
    }

    /// What answers the request, later and by any thread. `None`: this is a call, or has been
    /// answered. If 1,024 are out for one peer, its next messages wait.
    pub fn answer_later(&self) -> Option<Answer> {
        if self.debt.get() != Debt::Open {
            return None;
        }
        self.debt.set(Debt::Settled);
        Some(Answer::new(self.shared(), self.peer, self.label.token))
    }

    fn answer(&self, payload: impl Payload) -> Result<()> {
        match self.debt.get() {
            Debt::None => Ok(()),
            Debt::Settled => Err(Error::AlreadyAnswered),
            Debt::Open => {
                self.debt.set(Debt::Settled);
                let label = Label { verb: Verb::Reply, id: 0, token: self.label.token };
                say(self.shared(), self.peer, self.peer, label, payload)
            }
        }
    }

    /// As [`Endpoint::call`], but never waits: what does not go at once is copied and goes when it
    /// can. While 4 MiB that this peer's messages led to have not gone, its next ones wait.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::UnknownPeer`], [`Error::Closed`], [`Error::Forked`]. What
    /// fails later is not heard of.
    pub fn call(&self, peer: PeerId, id: u32, payload: &[u8]) -> Result<()> {
        let label = Label { verb: Verb::Call, id, token: 0 };
        say(self.shared(), self.peer, peer, label, BlockingOp(payload))
    }

    fn shared(&self) -> &'a Arc<Shared> {
        self.endpoint.shared()
    }
}

impl fmt::Debug for Active<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Active")
            .field("peer", &self.peer)
            .field("id", &self.label.id)
            .field("len", &self.payload.len())
            .field("is_request", &self.is_request())
            .finish_non_exhaustive()
    }
}
