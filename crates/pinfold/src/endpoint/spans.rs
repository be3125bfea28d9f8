//! Spans of tracing around calls that may take long. Where nobody listens, one costs a load.

use std::fmt::Write as _;

use tracing::{Span, debug_span, field::Empty};

use crate::{PeerId, Receipt, Received, Result};

/// Messages from this length on have spans, bytes: shorter ones take less time than a span.
pub(crate) const LONG: usize = 16 << 10;

/// Carries out `call`, which connects to `address`.
pub(crate) fn connect(address: &str, call: impl FnOnce() -> Result<PeerId>) -> Result<PeerId> {
    let span = debug_span!(target: "pinfold::connections", "connect", address,
        peer = Empty, error = Empty);
    joined(&span, span.in_scope(call))
}

/// Carries out `call`, which waits for the next peer to connect.
pub(crate) fn accept(call: impl FnOnce() -> Result<PeerId>) -> Result<PeerId> {
    let span = debug_span!(target: "pinfold::connections", "accept", peer = Empty, error = Empty);
    joined(&span, span.in_scope(call))
}

/// Carries out `call`, which sends a long message.
pub(crate) fn send(
    peer: PeerId,
    tag: u64,
    bytes: usize,
    call: impl FnOnce() -> Result<Receipt>,
) -> Result<Receipt> {
    let span = debug_span!(target: "pinfold::messages", "send", peer = peer.to_bits(), tag, bytes,
        path = Empty, copied = Empty, refused = Empty, error = Empty);
    let sent = span.in_scope(call);
    match &sent {
        Ok(receipt) => took(&span, receipt),
        Err(error) => drop(span.record("error", tracing::field::display(error))),
    }
    sent
}

/// Carries out `call`, which receives into `room` bytes.
pub(crate) fn recv(room: usize, call: impl FnOnce() -> Result<Received>) -> Result<Received> {
    let span = debug_span!(target: "pinfold::messages", "recv", room, peer = Empty, tag = Empty,
        bytes = Empty, path = Empty, copied = Empty, refused = Empty, error = Empty);
    let received = span.in_scope(call);
    match &received {
        Ok(it) => {
            span.record("peer", it.peer.to_bits()).record("tag", it.tag).record("bytes", it.len);
            took(&span, &it.receipt);
        }
        Err(error) => drop(span.record("error", tracing::field::display(error))),
    }
    received
}

fn joined(span: &Span, joined: Result<PeerId>) -> Result<PeerId> {
    match &joined {
        Ok(peer) => span.record("peer", peer.to_bits()),
        Err(error) => span.record("error", tracing::field::display(error)),
    };
    joined
}

/// Notes how a message went, and why not otherwise.
fn took(span: &Span, receipt: &Receipt) {
    if span.is_disabled() {
        return;
    }
    span.record("path", tracing::field::display(receipt.path));
    span.record("copied", receipt.copied_user + receipt.copied_kernel);
    let mut refused = String::new();
    for (path, why) in receipt.refusals() {
        let comma = if refused.is_empty() { "" } else { "; " };
        let _ = write!(refused, "{comma}{path}: {why}");
    }
    if !refused.is_empty() {
        span.record("refused", refused);
    }
}
