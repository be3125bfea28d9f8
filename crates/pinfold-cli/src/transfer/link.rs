//! A connection in the course of a transfer: it sends records, and notices that it has to stop.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use pinfold::{
    DonatedBuf, Endpoint, Handoff, OwnedBuf, PeerId, RecvRequest, SendRequest, TagMatch,
    ViewRequest,
};

use super::{
    failure::Failure,
    frame::{RECORD_BYTES_MAX, Record, tag},
    receipt::Tally,
    wait::{Interrupts, within},
};

/// Time that a side that gives up waits for the other to hear the reason.
const LINGER: Duration = Duration::from_secs(5);

/// One side of a transfer.
pub(super) struct Link {
    endpoint: Endpoint,
    peer: PeerId,
    /// The other side's name: "the sender" or "the receiver".
    other: &'static str,
    interrupts: Interrupts,
    /// The receive of the other side's last word; `None` after it came.
    last: Option<RecvRequest<Vec<u8>>>,
    /// The receipts of all messages that have ended.
    pub(super) tally: Tally,
}

impl Link {
    /// The transfer with `peer`.
    pub(super) fn new(
        endpoint: &Endpoint,
        peer: PeerId,
        other: &'static str,
        interrupts: Interrupts,
    ) -> Link {
        let last = Some(endpoint.recv_owned(peer, tag::LAST, vec![0; RECORD_BYTES_MAX]));
        let endpoint = endpoint.clone();
        Link { endpoint, peer, other, interrupts, last, tally: Tally::default() }
    }

    /// The other side's name.
    pub(super) fn other(&self) -> &'static str {
        self.other
    }

    /// Posts a message to the other side.
    pub(super) fn post<B: OwnedBuf>(&self, tag: u64, bytes: B) -> SendRequest<B> {
        self.endpoint.send_owned(self.peer, tag, bytes)
    }

    /// Gives memory to the other side.
    pub(super) fn give(&self, tag: u64, donation: DonatedBuf) -> Handoff {
        self.endpoint.handoff(self.peer, tag, donation)
    }

    /// Posts a receive from the other side; the message may stay where it is.
    pub(super) fn expect_view(&self, tag: impl Into<TagMatch>) -> ViewRequest {
        self.endpoint.recv_view_request(self.peer, tag)
    }

    /// Posts a receive from the other side into all of `buffer`.
    pub(super) fn expect(&self, tag: impl Into<TagMatch>, buffer: Vec<u8>) -> RecvRequest<Vec<u8>> {
        self.endpoint.recv_owned(self.peer, tag, buffer)
    }

    /// Sends `record` and waits until it is out.
    pub(super) async fn say(&mut self, tag: u64, record: &Record) -> Result<(), Failure> {
        let request = self.post(tag, record.encode());
        let (sent, _) = self.unless_stopped(request).await?;
        let receipt = sent.map_err(|why| Failure::library(self.other, why))?;
        self.tally.add(&receipt);
        Ok(())
    }

    /// The output of `future`, unless the transfer has to stop before.
    pub(super) async fn unless_stopped<F>(&mut self, mut future: F) -> Result<F::Output, Failure>
    where
        F: Future + Unpin,
    {
        poll_fn(|context| match Pin::new(&mut future).poll(context) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll_stop(context).map(Err),
        })
        .await
    }

    /// The reason why the transfer has to stop now: a signal, the other side's last word, or its
    /// death.
    pub(super) fn poll_stop(&mut self, context: &mut Context<'_>) -> Poll<Failure> {
        if let Poll::Ready(signal) = self.interrupts.poll(context) {
            return Poll::Ready(Failure::Interrupted(signal));
        }
        self.poll_last(context).map(|word| match word {
            Ok(Record::Abort { cause, text }) => Failure::told(self.other, cause, &text),
            Ok(record) => Failure::misplaced(self.other, &record),
            Err(failure) => failure,
        })
    }

    /// The other side's last word. Comes once.
    fn poll_last(&mut self, context: &mut Context<'_>) -> Poll<Result<Record, Failure>> {
        let Some(request) = &mut self.last else { return Poll::Pending };
        let Poll::Ready((received, buffer)) = Pin::new(request).poll(context) else {
            return Poll::Pending;
        };
        self.last = None;
        Poll::Ready(self.decode(received, &buffer))
    }

    /// The record that was received.
    pub(super) fn decode(
        &mut self,
        received: pinfold::Result<pinfold::Received>,
        buffer: &[u8],
    ) -> Result<Record, Failure> {
        let received = received.map_err(|why| Failure::library(self.other, why))?;
        self.tally.add(&received.receipt);
        let record = buffer.get(..received.len as usize).unwrap_or(buffer);
        Record::decode(record).map_err(|why| Failure::bad_record(self.other, why))
    }

    /// Tells the other side why this one gives up, and waits a little until it has heard.
    pub(super) async fn give_up(&mut self, failure: &Failure) {
        match failure {
            Failure::PeerGone { .. } => {}
            Failure::Told { .. } => self.bye().await,
            _ => {
                let record = failure.record();
                let told = async {
                    let (sent, _) = self.post(tag::LAST, record.encode()).await;
                    if sent.is_ok() {
                        self.last_word().await;
                    }
                };
                // An answer that is too late does not count: the other side learns of the closed
                // connection.
                let _ = within(LINGER, told).await;
            }
        }
    }

    /// Leaves after the transfer is done, or the other side has given up.
    pub(super) async fn bye(&mut self) {
        let request = self.post(tag::LAST, Record::Bye.encode());
        // The other side does not depend on it.
        let _ = within(LINGER, request).await;
    }

    /// Ends it; the signals can be waited for by another.
    pub(super) fn into_interrupts(self) -> Interrupts {
        self.interrupts
    }

    /// Waits a little until the other side has heard that the transfer is done.
    pub(super) async fn wait_for_bye(&mut self) {
        let _ = within(LINGER, self.last_word()).await;
    }

    /// Waits for the other side's last word of any kind, or its end.
    async fn last_word(&mut self) {
        if self.last.is_some() {
            let _ = poll_fn(|context| self.poll_last(context)).await;
        }
    }
}
