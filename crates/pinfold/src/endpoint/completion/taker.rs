#![allow(unsafe_code)]
//! Operations whose results go to a queue.
//!
//! **Invariant.** The buffer of an operation lies in a [`Held`] from the moment its request is
//! queued until the operation has ended, and nothing here touches it meanwhile but to move the box
//! that it lies in.

use std::{any::Any, mem::MaybeUninit, sync::Arc};

use super::{
    entry::{Completed, Completion},
    queue::Ended,
};
use crate::{
    Error, Message, MessageRequest, MultiReceived, MultiRecv, OwnedBuf, OwnedBufMut, Received,
    RecvRequest, Reply, Result, SendRequest,
    endpoint::{
        connecting::{AcceptRequest, ConnectRequest},
        request::Request,
        rma::{AtomicRequest, AtomicWord, CopyRequest},
    },
    worker::{
        op::{Deliver, Done, Taker},
        post,
    },
};

/// A buffer whose bytes may be in use, of which moving it claims nothing.
pub(super) struct Held<B>(MaybeUninit<B>);

impl<B> Held<B> {
    pub(super) fn into_inner(self) -> B {
        let mut held = self;
        let inner = std::mem::replace(&mut held.0, MaybeUninit::uninit());
        std::mem::forget(held);
        // SAFETY: initialised when it was made, and taken out here, once: what is left is never
        // dropped.
        unsafe { inner.assume_init() }
    }
}

impl<B> Drop for Held<B> {
    fn drop(&mut self) {
        // SAFETY: initialised; `into_inner` forgets what it has taken it from.
        unsafe { self.0.assume_init_drop() };
    }
}

/// The meaning of an operation's result.
pub(crate) type Means = fn(Result<Done>) -> Result<Completed>;

/// An operation whose result goes to a queue.
struct Queued {
    queue: Arc<Ended>,
    context: u64,
    means: Means,
    buffer: Box<dyn Any + Send>,
    result: Option<Result<Done>>,
}

impl Deliver for Queued {
    fn deliver(self: Box<Self>) {
        let Queued { queue, context, means, buffer, result } = *self;
        let result = means(result.unwrap_or(Err(Error::Closed)));
        queue.push(Completion { context, result, buffer: Some(buffer) });
    }
}

impl Taker for Queued {
    fn take(&mut self, result: Result<Done>) {
        self.result = Some(result);
    }

    fn take_message(&mut self, message: MultiReceived) -> Option<Box<dyn Deliver>> {
        // At once, so that no thread has the last message, and with it the buffer, before this.
        let result = Ok(Completed::MultiReceived(message));
        self.queue.place_one_more(Completion { context: self.context, result, buffer: None });
        Some(Box::new(Nudge(Arc::clone(&self.queue))))
    }

    fn is_of(&self, queue: u64) -> bool {
        self.queue.number == queue
    }

    fn is_named(&self, queue: u64, context: u64) -> bool {
        self.is_of(queue) && self.context == context
    }

    fn into_buffer(self: Box<Self>) -> Box<dyn Any + Send> {
        self.queue.forget_one();
        self.buffer
    }
}

/// A queue that has got a completion while an endpoint was entered.
struct Nudge(Arc<Ended>);

impl Deliver for Nudge {
    fn deliver(self: Box<Self>) {
        self.0.nudge();
    }
}

/// A request whose result can go to a [`CompletionQueue`](crate::CompletionQueue): sends, receives
/// of one message or many, requests to handlers, operations on regions of peers, connecting and
/// accepting.
///
/// ```
/// use pinfold::{CompletionQueue, Endpoint, Queueable};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-queueable-{}", std::process::id());
/// /// Lets the result of a request go to a queue, and notes the name of the request.
/// fn add(queue: &CompletionQueue, names: &mut Vec<String>, name: &str, request: impl Queueable) {
///     queue.add(names.len() as u64, request);
///     names.push(name.to_owned());
/// }
///
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let (queue, mut names, mut ended) = (CompletionQueue::new()?, Vec::new(), Vec::new());
/// add(&queue, &mut names, "a receive", endpoint.recv_request(peer, 1));
/// add(&queue, &mut names, "a send", endpoint.send_owned(itself, 2, vec![0; 8]));
/// queue.wait(&mut ended, 1, None)?;
/// assert_eq!(names[ended[0].context as usize], "a send"); // The receive still waits.
/// # Ok(())
/// # }
/// ```
pub trait Queueable: sealed::Queueable {}

pub(super) mod sealed {
    use super::{Arc, Ended};

    pub trait Queueable {
        /// Lets the result go to this queue.
        #[doc(hidden)]
        fn go_to(self, queue: &Arc<Ended>, context: u64);
    }
}

/// Lets the result of a request go to a queue.
fn queue<B: Send + 'static>(request: Request<B>, queue: &Arc<Ended>, context: u64, means: Means) {
    if request.is_spent() {
        return;
    }
    queue.begin(request.shared());
    let make = |buffer| {
        let buffer: Box<dyn Any + Send> = Box::new(Held(MaybeUninit::new(buffer)));
        let queue = Arc::clone(queue);
        Box::new(Queued { queue, context, means, buffer, result: None }) as Box<dyn Taker>
    };
    if let Some((result, mut taker)) = request.leave_to(make) {
        taker.take(result);
        (taker as Box<dyn Deliver>).deliver();
    }
}

fn sent(done: Result<Done>) -> Result<Completed> {
    post::sent(done).map(Completed::Sent)
}

fn received(done: Result<Done>) -> Result<Completed> {
    post::arrived(done).map(|arrived| Completed::Received(Received::from(&arrived)))
}

fn used_up(done: Result<Done>) -> Result<Completed> {
    match done? {
        Done::UsedUp(Some(message)) => Ok(Completed::MultiReceived(*message)),
        // Its last message was taken before it was queued.
        _ => Err(Error::Cancelled),
    }
}

fn message(done: Result<Done>) -> Result<Completed> {
    post::arrived(done).map(|arrived| Completed::Message(Message::new(arrived)))
}

impl<B: OwnedBuf> sealed::Queueable for SendRequest<B> {
    fn go_to(self, to: &Arc<Ended>, context: u64) {
        queue(self.into_request(), to, context, sent);
    }
}

impl<B: OwnedBufMut> sealed::Queueable for RecvRequest<B> {
    fn go_to(self, to: &Arc<Ended>, context: u64) {
        queue(self.into_request(), to, context, received);
    }
}

impl<B: OwnedBufMut> sealed::Queueable for MultiRecv<B> {
    fn go_to(self, to: &Arc<Ended>, context: u64) {
        queue(self.into_request(), to, context, used_up);
    }
}

impl sealed::Queueable for MessageRequest {
    fn go_to(self, to: &Arc<Ended>, context: u64) {
        queue(self.into_request(), to, context, message);
    }
}

impl sealed::Queueable for Reply {
    fn go_to(self, to: &Arc<Ended>, context: u64) {
        queue(self.into_request(), to, context, message);
    }
}

impl<B: Send + 'static> sealed::Queueable for CopyRequest<B> {
    fn go_to(self, to: &Arc<Ended>, context: u64) {
        queue(self.into_request(), to, context, |done| {
            CopyRequest::<B>::receipt(done).map(Completed::Copied)
        });
    }
}

impl<W: AtomicWord> sealed::Queueable for AtomicRequest<W> {
    fn go_to(self, to: &Arc<Ended>, context: u64) {
        queue(self.into_request(), to, context, |done| {
            AtomicRequest::<W>::bits(done).map(Completed::Was)
        });
    }
}

impl sealed::Queueable for ConnectRequest {
    fn go_to(self, to: &Arc<Ended>, context: u64) {
        queue(self.into_request(), to, context, |done| {
            post::joined(done).map(Completed::Connected)
        });
    }
}

impl sealed::Queueable for AcceptRequest {
    fn go_to(self, to: &Arc<Ended>, context: u64) {
        queue(self.into_request(), to, context, |done| post::joined(done).map(Completed::Accepted));
    }
}

impl<B: OwnedBuf> Queueable for SendRequest<B> {}
impl<B: OwnedBufMut> Queueable for RecvRequest<B> {}
impl<B: OwnedBufMut> Queueable for MultiRecv<B> {}
impl Queueable for MessageRequest {}
impl Queueable for Reply {}
impl Queueable for ConnectRequest {}
impl Queueable for AcceptRequest {}
impl<B: Send + 'static> Queueable for CopyRequest<B> {}
impl<W: AtomicWord> Queueable for AtomicRequest<W> {}
