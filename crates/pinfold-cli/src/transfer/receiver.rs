//! The receiver's side of a transfer.
//!
//! One thread checks and writes ([`super::intake`]); this one keeps receives posted, hands the
//! messages to that thread, and meanwhile listens for the sender's `Abort`, and turns other senders
//! away.
//!
//! Blocks that the sender gave away stay in its memory until they are written: parts that fit into
//! a core's own cache are copied out, then digested and written.

use std::{
    collections::VecDeque,
    future::poll_fn,
    os::fd::AsFd,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    thread,
    time::Duration,
};

use async_channel::{Receiver, Sender};
use futures_lite::Stream;
use pinfold::{
    Endpoint, PeerId, Received, RecvRequest, SendRequest, Source, TagMatch, View, ViewRequest,
};

use super::{
    failure::{Failure, THREAD, by},
    frame::{
        BLOCK_BYTES, BadRecord, Cause, Content, Hello, RECORD_BYTES_MAX, Record, Totals, VERSION,
        tag,
    },
    intake::{Intake, Target},
    link::Link,
    meter::Meter,
    name::RelativeName,
    wait::{Interrupts, within},
};

/// Receives posted at most.
const WINDOW: usize = 4;

/// Messages that have come and are not written yet, at most.
const WAITING: usize = WINDOW;

/// Bytes of a given block that are copied out together.
const PART_BYTES: usize = 128 << 10;

/// Time that the writing thread may take to end when the transfer has failed.
const WRITER_PATIENCE: Duration = Duration::from_secs(5);

/// Waits for a sender's `Hello`. Its contents are checked by [`accept`].
pub(super) async fn await_hello(
    endpoint: &Endpoint,
    interrupts: &mut Interrupts,
) -> Result<(PeerId, Vec<u8>), Failure> {
    let mut hello = expect_hello(endpoint);
    let (received, mut buffer) = poll_fn(|context| match interrupts.poll(context) {
        Poll::Ready(signal) => Poll::Ready(Err(Failure::Interrupted(signal))),
        Poll::Pending => Pin::new(&mut hello).poll(context).map(Ok),
    })
    .await?;
    let received: Received = received.map_err(|why| Failure::library("the sender", why))?;
    buffer.truncate(received.len as usize);
    Ok((received.peer, buffer))
}

fn expect_hello(endpoint: &Endpoint) -> RecvRequest<Vec<u8>> {
    endpoint.recv_owned(Source::Any, tag::HELLO, vec![0; RECORD_BYTES_MAX])
}

/// Checks a `Hello` against this side's options, and answers that it is ready.
pub(super) async fn accept(
    link: &mut Link,
    hello: &[u8],
    wanted: Content,
) -> Result<Totals, Failure> {
    let hello = match Record::decode(hello) {
        Ok(Record::Hello(hello)) => hello,
        Ok(record) => return Err(Failure::misplaced(link.other(), &record)),
        Err(why) => return Err(Failure::bad_record(link.other(), why)),
    };
    check_version(&hello)?;
    match (hello.content, wanted) {
        (Content::Files, Content::Stream) => Err(Failure::Usage(
            "files are sent, and the receiver was given no directory for them; \
             run it again as 'pinfold recv ADDRESS DIR'"
                .into(),
        )),
        (Content::Stream, Content::Files) => Err(Failure::Usage(
            "a stream is sent, which has no file name; \
             run the receiver again as 'pinfold recv ADDRESS > FILE'"
                .into(),
        )),
        _ => {
            link.say(tag::REPLY, &Record::Ready { version: VERSION }).await?;
            Ok(hello.expected)
        }
    }
}

fn check_version(hello: &Hello) -> Result<(), Failure> {
    if (hello.version_min..=hello.version_max).contains(&VERSION) {
        return Ok(());
    }
    Err(Failure::Version { theirs: (hello.version_min, hello.version_max) })
}

/// Takes everything in, after [`accept`]. Returns once it is written, verified and acknowledged.
pub(super) async fn run<F>(
    link: &mut Link,
    endpoint: &Endpoint,
    target: Target<F>,
    meter: &mut Meter,
) -> Result<Totals, Failure>
where
    F: AsFd + Send + 'static,
{
    // A stream may be stuck in a pipe without a reader; it leaves nothing to clean up.
    let patience = match target {
        Target::Directory(_) => WRITER_PATIENCE,
        Target::Output(_) => Duration::from_millis(100),
    };
    let (mut pump, outcome) = Pump::start(link, endpoint, target)?;
    let stopped = loop {
        match poll_fn(|context| pump.poll(link, context)).await {
            Event::Outcome(outcome) => break outcome,
            Event::Stop(failure) => break Err(failure),
            Event::Came(Ok(message)) if message.len() > BLOCK_BYTES => {
                let len = message.len();
                let what = format!("it sent a message of {len} bytes");
                break Err(Failure::protocol(link.other(), what));
            }
            Event::Came(Ok(message)) => {
                link.tally.add(&message.receipt());
                if let Some(name) = offered_name(&message) {
                    meter.file(&name);
                }
                // A writer that has ended reports why in its outcome.
                let _ = pump.work.try_send(message);
            }
            Event::Came(Err(why)) => break Err(Failure::library(link.other(), why)),
            Event::Room => pump.posted.push_back(expect_flow(link)),
            Event::Another(peer) => pump.turn_away(endpoint, peer),
        }
        meter.at(pump.written.load(Ordering::Relaxed));
    };
    match stopped {
        Ok(totals) => {
            // From here on the contents are complete, even if the sender dies.
            let _ = link.say(tag::REPLY, &Record::Done(totals)).await;
            Ok(totals)
        }
        Err(failure) => {
            // No more messages go to the writer; it ends, and removes incomplete files.
            drop(pump);
            let written = within(patience, outcome.recv()).await;
            match (failure, written) {
                // The sender went after its last record: nothing is missing.
                (Failure::PeerGone { .. }, Some(Ok(Ok(totals)))) => Ok(totals),
                (failure, _) => Err(failure),
            }
        }
    }
}

/// Posts a receive of the next record or block.
fn expect_flow(link: &Link) -> ViewRequest {
    link.expect_view(TagMatch::masked(tag::RECORD, tag::RECORD ^ tag::BLOCK))
}

/// The name of the file that a message of the flow offers, if it does.
fn offered_name(message: &View<'_>) -> Option<RelativeName> {
    match record(message).ok()? {
        Record::File(offer) => Some(offer.name),
        _ => None,
    }
}

/// The record in a message of the flow.
fn record(message: &View<'_>) -> Result<Record, Failure> {
    let who = "the sender";
    if message.tag() != tag::RECORD || message.len() > RECORD_BYTES_MAX {
        return Err(Failure::bad_record(who, BadRecord::Length));
    }
    let record = match message.bytes() {
        Some(bytes) => Record::decode(bytes),
        None => Record::decode(&message.to_vec().map_err(|why| Failure::library(who, why))?),
    };
    record.map_err(|why| Failure::bad_record(who, why))
}

/// An event in the course of receiving.
enum Event {
    /// The transfer has to stop.
    Stop(Failure),
    /// The oldest receive has ended.
    Came(pinfold::Result<View<'static>>),
    /// A message has been written, and there is room for another.
    Room,
    /// The writer has ended.
    Outcome(Result<Totals, Failure>),
    /// Another sender wants to begin.
    Another(PeerId),
}

type Outcome = Receiver<Result<Totals, Failure>>;

/// Moves messages from the sender to the writing thread.
struct Pump {
    /// The receives that are posted, oldest first.
    posted: VecDeque<ViewRequest>,
    work: Sender<View<'static>>,
    room: Pin<Box<Receiver<()>>>,
    outcome: Pin<Box<Outcome>>,
    /// Bytes written so far.
    written: Arc<AtomicU64>,
    /// The failure that the sender is gone, while some of its earlier messages may be left.
    gone: Option<Failure>,
    another: Option<RecvRequest<Vec<u8>>>,
    /// Refusals on their way to other senders.
    refusals: Vec<SendRequest<Vec<u8>>>,
}

impl Pump {
    /// Starts the writing thread and posts the first receives.
    fn start<F>(
        link: &Link,
        endpoint: &Endpoint,
        target: Target<F>,
    ) -> Result<(Pump, Outcome), Failure>
    where
        F: AsFd + Send + 'static,
    {
        // The writer has as many messages as there was room for.
        let (work, work_out) = async_channel::unbounded();
        let (make_room, room) = async_channel::unbounded();
        for _ in 0..WAITING {
            let _ = make_room.try_send(());
        }
        let (outcome_in, outcome) = async_channel::bounded(1);
        let written = Arc::new(AtomicU64::new(0));
        let progress = Arc::clone(&written);
        thread::Builder::new()
            .name("writer".into())
            .spawn(move || {
                let result = write(Intake::new(target), &work_out, &make_room, &progress);
                let _ = outcome_in.send_blocking(result);
            })
            .map_err(|why| Failure::local("starting", "a thread", by(THREAD)(why)))?;
        let posted = (0..WINDOW).map(|_| expect_flow(link)).collect();
        let pump = Pump {
            posted,
            work,
            room: Box::pin(room),
            outcome: Box::pin(outcome.clone()),
            written,
            gone: None,
            another: Some(expect_hello(endpoint)),
            refusals: Vec::new(),
        };
        Ok((pump, outcome))
    }

    fn poll(&mut self, link: &mut Link, context: &mut Context<'_>) -> Poll<Event> {
        if let Poll::Ready(Some(outcome)) = self.outcome.as_mut().poll_next(context) {
            return Poll::Ready(Event::Outcome(outcome));
        }
        if let Poll::Ready(failure) = link.poll_stop(context) {
            match failure {
                // The records that it sent before may still be complete.
                Failure::PeerGone { .. } => self.gone = Some(failure),
                failure => return Poll::Ready(Event::Stop(failure)),
            }
        }
        if let Some(request) = self.posted.front_mut()
            && let Poll::Ready(came) = Pin::new(request).poll(context)
        {
            self.posted.pop_front();
            return Poll::Ready(Event::Came(came));
        }
        if self.posted.len() < WINDOW
            && let Poll::Ready(Some(())) = self.room.as_mut().poll_next(context)
        {
            return Poll::Ready(Event::Room);
        }
        if self.posted.is_empty()
            && let Some(failure) = self.gone.take()
        {
            return Poll::Ready(Event::Stop(failure));
        }
        if let Some(hello) = &mut self.another
            && let Poll::Ready((received, _)) = Pin::new(hello).poll(context)
        {
            self.another = None;
            if let Ok(received) = received {
                return Poll::Ready(Event::Another(received.peer));
            }
        }
        Poll::Pending
    }

    /// Tells another sender that it is not its turn, and waits for the next.
    fn turn_away(&mut self, endpoint: &Endpoint, peer: PeerId) {
        let text = "it is busy with another sender; try again later".into();
        let refusal = Record::Abort { cause: Cause::Refused, text };
        self.refusals.push(endpoint.send_owned(peer, tag::LAST, refusal.encode()));
        self.another = Some(expect_hello(endpoint));
    }
}

/// Checks and writes the messages of `work`. Blocks; belongs in a thread of its own.
fn write<F: AsFd>(
    mut intake: Intake<F>,
    work: &Receiver<View<'static>>,
    make_room: &Sender<()>,
    written: &AtomicU64,
) -> Result<Totals, Failure> {
    let mut part = Vec::new();
    while let Ok(message) = work.recv_blocking() {
        if message.tag() == tag::BLOCK {
            block(&mut intake, &message, &mut part)?;
        } else if let Some(totals) = intake.record(record(&message)?)? {
            return Ok(totals);
        }
        written.store(intake.written(), Ordering::Relaxed);
        // The sender gets its memory back before it is asked for more.
        drop(message);
        let _ = make_room.try_send(());
    }
    Err(Failure::Unfinished)
}

/// Writes a block, in place or by way of `part`.
fn block<F: AsFd>(
    intake: &mut Intake<F>,
    message: &View<'_>,
    part: &mut Vec<u8>,
) -> Result<(), Failure> {
    let who = "the sender";
    let len = message.len();
    if let Some(bytes) = message.bytes() {
        return intake.block(bytes);
    }
    part.resize(PART_BYTES, 0);
    for at in (0..len).step_by(PART_BYTES) {
        let part = &mut part[..PART_BYTES.min(len - at)];
        message.read(at, part).map_err(|why| Failure::library(who, why))?;
        intake.block(part)?;
    }
    Ok(())
}
