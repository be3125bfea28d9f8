//! Active messages: a handler's number and bytes for it, as Split-C used them (von Eicken, Culler,
//! Goldstein, Schauser, *Active Messages*, 1992).

use std::{cell::Cell, fmt, sync::Arc};

use super::{
    Endpoint, OwnedBuf, Replier, Reply, SendRequest, blocking,
    payload::{BlockingOp, Owned, Payload, say},
};
use crate::{
    Error, PeerId, Receipt, Result,
    protocol::active::handlers::Handler,
    wire::active::{Label, Verb},
    worker::shared::Shared,
};

impl Endpoint {
    /// Makes `handler` the handler of active messages with number `id`, in place of an earlier one.
    /// Messages without a handler are dropped, so most programs set handlers before a peer can send
    /// any: [`Builder::handle`](crate::Builder::handle).
    ///
    /// Handlers run on the threads that call the endpoint, at the end of a call, or with
    /// [`Progress::Dedicated`](crate::Progress::Dedicated) on the endpoint's own thread alone.
    ///
    /// - Messages of one peer go to their handlers one after the other, in the order they were
    ///   sent. Those of different peers may be handled at the same time, by different threads. They
    ///   have no order with tagged messages.
    /// - A handler may call the endpoint. Its thread runs no other handler of the endpoint
    ///   meanwhile: messages that arrive wait, also those of other peers if no other thread calls.
    ///   So a handler should be short, and must not wait for locks that are held while the endpoint
    ///   is called.
    /// - A handler may wait for answers, which need no handler on this side. Two handlers that wait
    ///   for each other's thread wait for ever; where that can happen, take a [`Replier`] and
    ///   return. [`Active::call`] sends without waiting.
    /// - A panic in a handler is caught and logged; a request is answered by an error.
    ///
    /// A handler that holds a handle of its endpoint keeps that open; [`Active::endpoint`] does
    /// not.
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
        let before = engine.core.active.set_handler(id, Some(Function::handler(handler)));
        // Its drop is the user's code.
        drop(engine);
        drop(before);
        Ok(())
    }

    /// Removes the handler that [`Endpoint::handle`] set for number `id`; a thread may still be in
    /// it. Returns whether there was one.
    pub fn unhandle(&self, id: u32) -> bool {
        let Ok(mut engine) = self.shared().enter() else { return false };
        let before = engine.core.active.set_handler(id, None);
        drop(engine);
        before.is_some()
    }

    /// Sends `payload` to handler `id` of a peer and returns when the memory is the caller's again:
    /// at once if it went into the ring, else when the receiver has it, after the messages before
    /// it were handled. Up to 48 bytes go in a descriptor. Nothing comes back: if the peer has no
    /// such handler, it drops and counts the message, and the caller learns of that only if it had
    /// to wait for the receiver.
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

    /// Sends `payload` to handler `id` of a peer; the [`Reply`] brings the answer. Never waits: a
    /// payload that cannot go at once is copied.
    ///
    /// A request made in a handler counts against the peer whose message that handles, until there
    /// is an answer, as [`Active::call`] and [`Active::reply_later`] do: while 1,024 are out, or 4
    /// MiB have not gone, that peer's next messages wait.
    pub fn request(&self, peer: PeerId, id: u32, payload: &[u8]) -> Reply {
        Reply::ask(self.shared(), peer, id, BlockingOp(payload))
    }

    /// As [`Endpoint::request`], of a buffer that the operation owns.
    pub fn request_owned<B: OwnedBuf>(&self, peer: PeerId, id: u32, payload: B) -> Reply {
        Reply::ask(self.shared(), peer, id, Owned(payload))
    }
}

/// A function that handles messages.
pub(crate) struct Function(pub Box<dyn Fn(Active<'_>) + Send + Sync>);

impl Function {
    /// The function as the protocol keeps it.
    pub(crate) fn handler(function: impl Fn(Active<'_>) + Send + Sync + 'static) -> Handler {
        Arc::new(Function(Box::new(function)))
    }
}

/// The answer that is owed for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Debt {
    /// Nothing: it is a call, or has been answered.
    None,
    /// An answer.
    Open,
    /// An answer that was given, or that a [`Replier`] is to give.
    Settled,
}

/// An active message, as its handler sees it.
///
/// ```
/// use pinfold::{Endpoint, Progress};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-active-{}", std::process::id());
/// const GREET: u32 = 3;
/// let server = Endpoint::builder()
///     .listen(&name)
///     .progress(Progress::Dedicated)
///     .handle(GREET, |active| {
///         assert!(active.is_request());
///         let answer = [b"hello, ", active.payload()].concat();
///         active.reply(&answer).unwrap();
///     })
///     .build()?;
/// let client = Endpoint::new()?;
/// let answer = client.request(client.connect(&name)?, GREET, b"world").wait()?;
/// assert_eq!(&*answer, b"hello, world");
/// # drop(server);
/// # Ok(())
/// # }
/// ```
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

    /// The peer that sent it.
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// The number of its handler.
    pub fn id(&self) -> u32 {
        self.label.id
    }

    /// Its bytes.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The receipt: how it came.
    pub fn receipt(&self) -> Receipt {
        self.receipt
    }

    /// The endpoint that received it.
    pub fn endpoint(&self) -> &'a Endpoint {
        self.endpoint
    }

    /// True if its sender waits for an answer.
    pub fn is_request(&self) -> bool {
        self.label.verb.is_asking()
    }

    /// Answers a request; does nothing for a call. Never waits: an answer that cannot go at once is
    /// copied, and goes before everything else that this endpoint has to send to that peer.
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

    /// The right to answer the request later, from any thread. `None`: this is a call, or has been
    /// answered. While 1,024 are out for one peer, its next messages wait.
    pub fn reply_later(&self) -> Option<Replier> {
        if self.debt.get() != Debt::Open {
            return None;
        }
        self.debt.set(Debt::Settled);
        Some(Replier::new(self.shared(), self.peer, self.label.token))
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

    /// As [`Endpoint::call`], but never waits: a payload that cannot go at once is copied and goes
    /// when it can. While 4 MiB that this peer's messages caused have not gone, its next ones wait.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::UnknownPeer`], [`Error::Closed`], [`Error::Forked`]. A later
    /// failure is not reported.
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
