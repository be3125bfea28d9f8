#![allow(unsafe_code)]
//! Receives of many messages into one buffer.
//!
//! **Invariant.** A reference is formed only to bytes of the buffer that a message was placed in
//! whose end has been handed out: the engine gives no part of a buffer out twice, so nothing writes
//! to them any more. Of buffers that peers may write there are none.

use std::{
    fmt,
    ops::Range,
    slice,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use super::{buffers::OwnedBufMut, received::MultiReceived, request::Request};
use crate::{
    ArenaBuf, Result,
    memory::scatter::Scatter,
    worker::{
        matching::{Source, TagMatch},
        multi_recv::{self, News},
        op::{Done, Op, OpKind},
        posted::ALIGN,
        progress,
        shared::Shared,
    },
};

/// A receive of many messages into one buffer, which it owns: see [`Endpoint::multi_recv`]. An
/// iterator of the messages, in the order in which they are complete; it waits for each, and ends
/// when the buffer is free.
///
/// Every message is an item of its own, with its [place](MultiReceived::range); one that failed has
/// the error in its [result](MultiReceived::result), and the receive goes on. The receive ends with
/// the message that [is the last](MultiReceived::is_last), since the buffer is used up, or with one
/// error: [`Error::Cancelled`](crate::Error::Cancelled) after [`MultiRecv::cancel`], otherwise
/// those of [`Endpoint::recv_into`] but for `Truncated`. Then the buffer [can be
/// taken](MultiRecv::take_buffer).
///
/// In a [`CompletionQueue`](crate::CompletionQueue) each message is a completion with the context
/// of the receive, and the last one, or the error, has the buffer; if the last was taken before,
/// `Cancelled` has. The bytes are to be seen in the buffer, then, not before.
///
/// Dropped early it takes no more messages. Those that were not handed out are left to the next
/// receives that match; the buffer is kept until nothing writes to it.
///
/// ```
/// use pinfold::{Endpoint, Error};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-multi-recv-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let mut receive = endpoint.multi_recv(peer, .., vec![0; 4096], 1024);
/// for text in [b"one", b"two"] {
///     endpoint.send(itself, 1, text)?;
///     let message = receive.next().expect("there is room for more")?;
///     assert_eq!(receive.bytes(&message), Some(&text[..]));
/// }
/// assert!(receive.cancel());
/// assert!(matches!(receive.next(), Some(Err(Error::Cancelled))));
/// let buffer = receive.take_buffer().expect("it is over");
/// assert_eq!((&buffer[..3], &buffer[8..11]), (&b"one"[..], &b"two"[..]));
/// # Ok(())
/// # }
/// ```
///
/// [`Endpoint::multi_recv`]: crate::Endpoint::multi_recv
/// [`Endpoint::recv_into`]: crate::Endpoint::recv_into
#[must_use = "dropping it withdraws it"]
pub struct MultiRecv<B: OwnedBufMut> {
    inner: Request<B>,
    /// The buffer's bytes.
    memory: Scatter,
    /// The places of messages that were handed out, in order, apart from each other.
    places: Vec<Range<usize>>,
}

impl<B: OwnedBufMut> MultiRecv<B> {
    pub(crate) fn post(
        shared: &Arc<Shared>,
        from: Source,
        tag: TagMatch,
        buffer: B,
        min_free: usize,
    ) -> MultiRecv<B> {
        let mut memory = Scatter::empty();
        let inner = Request::post_with(shared, buffer, |buffer| {
            let (ptr, len) = buffer.bytes_mut();
            // SAFETY: `OwnedBufMut` keeps the bytes in place; the request keeps the buffer until
            // the operation has ended.
            memory = unsafe { Scatter::one(ptr, len) };
            let all = memory.slice(0, len as u64);
            multi_recv::post_multi(&mut *shared.enter()?, from, tag, all, min_free as u64)
        });
        MultiRecv { inner, memory, places: Vec::new() }
    }

    pub(crate) fn into_request(self) -> Request<B> {
        self.inner
    }

    /// The next message, if one is complete, or comes by a turn of progress. Never waits. `None`:
    /// none yet, or the receive [is over](MultiRecv::is_over).
    pub fn try_next(&mut self) -> Option<Result<MultiReceived>> {
        if self.is_over() {
            return self.end();
        }
        let news = try_news(&mut self.inner)?;
        self.accept(news)
    }

    /// The next message, waiting at most `patience` for it. `None`: none came, or the receive [is
    /// over](MultiRecv::is_over).
    pub fn next_timeout(&mut self, patience: Duration) -> Option<Result<MultiReceived>> {
        self.next_until(Instant::now().checked_add(patience))
    }

    fn next_until(&mut self, deadline: Option<Instant>) -> Option<Result<MultiReceived>> {
        let Some(key) = self.inner.key() else { return self.end() };
        let waited = self
            .inner
            .shared()
            .wait_taken(deadline, key, |engine| multi_recv::take_news(&mut engine.core.ops, key));
        let news = waited.unwrap_or_else(|forked| Some(News::End(Err(forked))))?;
        self.accept(news)
    }

    /// The next message for a task, which is woken for it; `Ready(None)` once the receive is over.
    /// For `std::future::poll_fn`, or a stream.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<MultiReceived>>> {
        if self.is_over() {
            return Poll::Ready(self.end());
        }
        let is_ready = |op: &Op| match &op.kind {
            OpKind::Multi(multi) => op.done.is_some() || !multi.ended.is_empty(),
            _ => true,
        };
        let news = self.inner.poll_for(context, try_news, is_ready);
        news.map(|news| self.accept(news))
    }

    /// Ends the receive, if it still takes messages: those that have begun to come are complete
    /// first, then it is over with [`Error::Cancelled`](crate::Error::Cancelled). Returns whether
    /// it did.
    pub fn cancel(&mut self) -> bool {
        self.inner.cancel()
    }

    /// Returns whether the receive has ended and all of its messages were handed out. One error may
    /// be left to be handed out.
    pub fn is_over(&self) -> bool {
        self.inner.key().is_none()
    }

    /// The buffer, once the receive [is over](MultiRecv::is_over) and if it was not taken before.
    pub fn take_buffer(&mut self) -> Option<B> {
        if !self.is_over() {
            return None;
        }
        self.places = Vec::new();
        self.inner.try_wait().map(|(_, buffer)| buffer)
    }

    /// The error that a receive which is over ended with, once.
    fn end(&mut self) -> Option<Result<MultiReceived>> {
        self.inner.end_with(Ok(Done::UsedUp(None)))?.err().map(Err)
    }

    fn accept(&mut self, news: News) -> Option<Result<MultiReceived>> {
        match news {
            News::End(done) => {
                self.inner.end_with(Ok(Done::UsedUp(None)));
                done.err().map(Err)
            }
            News::Message(message) => {
                if message.is_last {
                    self.inner.end_with(Ok(Done::UsedUp(None)));
                }
                let Range { start, end } = message.range;
                self.note(start..end.max(start + 1).next_multiple_of(ALIGN as usize));
                Some(Ok(message))
            }
        }
    }

    /// Nothing writes to this place any more.
    fn note(&mut self, mut place: Range<usize>) {
        let from = self.places.partition_point(|other| other.end < place.start);
        let beside = self.places[from..].iter().take_while(|other| other.start <= place.end);
        let to = from + beside.count();
        for other in self.places.drain(from..to) {
            place = place.start.min(other.start)..place.end.max(other.end);
        }
        self.places.insert(from, place);
    }

    /// The bytes of a message that was handed out; `None` if there are no such.
    ///
    /// # Safety
    /// The buffer is not one that peers may write.
    unsafe fn view(&self, message: &MultiReceived) -> Option<&[u8]> {
        let Range { start, end } = message.range;
        let at = self.places.partition_point(|place| place.end < end);
        let place = self.places.get(at)?;
        if place.start > start || start > end {
            return None;
        }
        let Some(part) = self.memory.part_at(start as u64) else { return Some(&[]) };
        let len = (end - start).min(part.len);
        // SAFETY: within the buffer, which is still here: its places are forgotten when it is
        // taken. Nothing writes to them any more, by the invariant.
        Some(unsafe { slice::from_raw_parts(part.ptr, len) })
    }
}

/// The next news of a request that is posted, after a turn of progress if there are none.
fn try_news<B: OwnedBufMut>(request: &mut Request<B>) -> Option<News> {
    let key = request.key()?;
    let news = request.shared().try_taken(|engine| {
        multi_recv::take_news(&mut engine.core.ops, key).or_else(|| {
            progress::progress(engine);
            multi_recv::take_news(&mut engine.core.ops, key)
        })
    });
    news.unwrap_or_else(|forked| Some(News::End(Err(forked))))
}

macro_rules! bytes_of {
    ($($buffer:ty),*) => {$(
        impl MultiRecv<$buffer> {
            /// The bytes of a message that this receive has handed out, as long as it has the
            /// buffer; `None` for any other.
            pub fn bytes(&self, message: &MultiReceived) -> Option<&[u8]> {
                // SAFETY: memory of this process's own.
                unsafe { self.view(message) }
            }
        }
    )*};
}

bytes_of!(Vec<u8>, Box<[u8]>, ArenaBuf);

impl<B: OwnedBufMut> Iterator for MultiRecv<B> {
    type Item = Result<MultiReceived>;

    fn next(&mut self) -> Option<Result<MultiReceived>> {
        loop {
            let next = self.next_until(None);
            if next.is_some() || self.is_over() {
                return next;
            }
        }
    }
}

impl<B: OwnedBufMut> fmt::Debug for MultiRecv<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiRecv").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}
