//! The sender's side of a transfer.
//!
//! One thread reads and digests ([`super::source`]); this one sends the blocks, a few at a time,
//! and meanwhile listens to the receiver. Blocks lie in an arena ([`super::block`]). Whole ones are
//! given to the receiver, which looks at them there, and come back when it has; shorter ones are
//! sent.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    thread,
};

use async_channel::{Receiver, Sender};
use futures_lite::Stream;
use pinfold::{Handoff, Receipt, SendRequest};

use super::{
    block::{Block, Blocks},
    failure::{Failure, THREAD, by},
    frame::{Content, Hello, RECORD_BYTES_MAX, Record, Totals, VERSION, tag},
    link::Link,
    meter::Meter,
    source::{Piece, Plan, Reader},
};

/// Messages in flight at most.
const WINDOW: usize = 4;

/// Blocks: those in flight, and as many being filled or waiting.
pub(super) const BLOCKS: usize = 2 * WINDOW;

/// The receive of a `Ready` or `Done`.
type Reply = pinfold::RecvRequest<Vec<u8>>;

/// Introduces this side and waits until the receiver is ready.
pub(super) async fn greet(
    link: &mut Link,
    content: Content,
    expected: Totals,
) -> Result<(), Failure> {
    let reply = link.expect(tag::REPLY, vec![0; RECORD_BYTES_MAX]);
    let hello = Hello { version_min: VERSION, version_max: VERSION, content, expected };
    link.say(tag::HELLO, &Record::Hello(hello)).await?;
    let (received, buffer) = link.unless_stopped(reply).await?;
    match link.decode(received, &buffer)? {
        Record::Ready { version: VERSION } => Ok(()),
        record => Err(Failure::misplaced(link.other(), &record)),
    }
}

/// Sends everything in `plan`, in `blocks`, after [`greet`]. Returns once the receiver has all of
/// it, verified.
pub(super) async fn run(
    link: &mut Link,
    plan: Plan,
    blocks: Blocks,
    meter: &mut Meter,
) -> Result<Totals, Failure> {
    let (pieces_in, pieces) = async_channel::bounded(WINDOW);
    let (put_back, returned) = async_channel::bounded(BLOCKS);
    thread::Builder::new()
        .name("reader".into())
        .spawn(move || Reader::new(pieces_in, blocks, returned).run(&plan))
        .map_err(|why| Failure::local("starting", "a thread", by(THREAD)(why)))?;
    let reply = link.expect(tag::REPLY, vec![0; RECORD_BYTES_MAX]);
    let mut pump = Pump {
        pieces: Box::pin(pieces),
        exhausted: false,
        put_back,
        in_flight: VecDeque::with_capacity(WINDOW),
        reply: Some(reply),
        finish: None,
        sent: 0,
    };
    loop {
        match poll_fn(|context| pump.poll(link, context)).await {
            Event::Stop(failure) => return Err(failure),
            Event::Piece(piece) => pump.post(link, meter, piece?),
            Event::Exhausted => {
                if pump.finish.is_none() {
                    return Err(Failure::Unfinished);
                }
            }
            Event::Sent(sent, block, InFlight { bytes, used }) => {
                let receipt = sent.map_err(|why| Failure::library(link.other(), why))?;
                link.tally.add(&receipt);
                pump.sent += bytes;
                meter.at(pump.sent);
                if used {
                    // If the reader has ended, the block is not needed.
                    let _ = pump.put_back.try_send(block.unwrap_or_else(Block::another));
                }
            }
            Event::Reply(received, buffer) => {
                let totals = pump.conclude(link.decode(received, &buffer)?, link.other())?;
                pump.settle(link).await?;
                return Ok(totals);
            }
        }
    }
}

/// An event in the course of sending.
enum Event {
    /// The transfer has to stop.
    Stop(Failure),
    /// The reader has something to send.
    Piece(Result<Piece, Failure>),
    /// The reader has ended.
    Exhausted,
    /// The oldest message in flight has ended.
    Sent(pinfold::Result<Receipt>, Option<Block>, InFlight),
    /// The receiver has said something.
    Reply(pinfold::Result<pinfold::Received>, Vec<u8>),
}

/// The part of the contents that a message in flight carries.
#[derive(Clone, Copy)]
struct InFlight {
    /// The number of bytes, which may be a hole's.
    bytes: u64,
    /// True if they are in a block, to be used again.
    used: bool,
}

/// A message in flight.
enum Sending {
    /// It is copied.
    Copied(SendRequest<Block>),
    /// It is the memory itself.
    Given(Handoff),
}

impl Sending {
    /// Its end, and its memory to be used again.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<(pinfold::Result<Receipt>, Option<Block>)> {
        match self {
            Sending::Copied(request) => {
                Pin::new(request).poll(context).map(|(sent, block)| (sent, Some(block)))
            }
            Sending::Given(handoff) => Pin::new(handoff)
                .poll(context)
                .map(|(sent, donation)| (sent, donation.into_arena_buf().map(Block::from))),
        }
    }
}

/// Moves pieces from the reader to the receiver.
struct Pump {
    pieces: Pin<Box<Receiver<Result<Piece, Failure>>>>,
    /// True if the reader has ended.
    exhausted: bool,
    put_back: Sender<Block>,
    /// The messages in flight, oldest first.
    in_flight: VecDeque<(Sending, InFlight)>,
    reply: Option<Reply>,
    /// The totals that were announced in the `Finish`.
    finish: Option<Totals>,
    /// Bytes of contents that are out.
    sent: u64,
}

impl Pump {
    fn poll(&mut self, link: &mut Link, context: &mut Context<'_>) -> Poll<Event> {
        if let Some(reply) = &mut self.reply
            && let Poll::Ready((received, buffer)) = Pin::new(reply).poll(context)
        {
            self.reply = None;
            // The reason for a lost connection, if one was given, comes by another message.
            if received.is_ok() {
                return Poll::Ready(Event::Reply(received, buffer));
            }
            if let Poll::Ready(failure) = link.poll_stop(context) {
                return Poll::Ready(Event::Stop(failure));
            }
            return Poll::Ready(Event::Reply(received, buffer));
        }
        if let Poll::Ready(failure) = link.poll_stop(context) {
            return Poll::Ready(Event::Stop(failure));
        }
        if let Some((request, what)) = self.in_flight.front_mut()
            && let Poll::Ready((sent, block)) = request.poll(context)
        {
            let what = *what;
            self.in_flight.pop_front();
            return Poll::Ready(Event::Sent(sent, block, what));
        }
        if !self.exhausted
            && self.in_flight.len() < WINDOW
            && let Poll::Ready(piece) = self.pieces.as_mut().poll_next(context)
        {
            self.exhausted = piece.is_none();
            return Poll::Ready(piece.map_or(Event::Exhausted, Event::Piece));
        }
        Poll::Pending
    }

    fn post(&mut self, link: &Link, meter: &Meter, piece: Piece) {
        let (request, what) = match piece {
            Piece::Record(record) => {
                let mut bytes = 0;
                match &record {
                    Record::File(offer) => meter.file(&offer.name),
                    Record::Finish(totals) => self.finish = Some(*totals),
                    Record::Hole { bytes: hole } => bytes = *hole,
                    _ => {}
                }
                let sending = Sending::Copied(link.post(tag::RECORD, record.encode().into()));
                (sending, InFlight { bytes, used: false })
            }
            Piece::Block(block) => {
                let bytes = block.len() as u64;
                let sending = match block.into_donation() {
                    Ok(donation) => Sending::Given(link.give(tag::BLOCK, donation)),
                    Err(block) => Sending::Copied(link.post(tag::BLOCK, block)),
                };
                (sending, InFlight { bytes, used: true })
            }
        };
        self.in_flight.push_back((request, what));
    }

    /// Takes the receipts of the messages in flight, which have ended: the receiver has all of
    /// them.
    async fn settle(&mut self, link: &mut Link) -> Result<(), Failure> {
        while let Some((mut sending, _)) = self.in_flight.pop_front() {
            let ended = poll_fn(|context| sending.poll(context));
            if let (Ok(receipt), _) = link.unless_stopped(std::pin::pin!(ended)).await? {
                link.tally.add(&receipt);
            }
        }
        Ok(())
    }

    /// The receiver's last reply: it has everything, if the reply is right.
    fn conclude(&self, reply: Record, other: &'static str) -> Result<Totals, Failure> {
        match (reply, self.finish) {
            (Record::Done(has), Some(sent)) if has == sent => Ok(sent),
            (Record::Done(_), _) => {
                Err(Failure::protocol(other, "it says it has what was not sent"))
            }
            (record, _) => Err(Failure::misplaced(other, &record)),
        }
    }
}
