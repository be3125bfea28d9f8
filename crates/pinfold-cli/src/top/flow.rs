//! The traffic of endpoints, and their operations: in total, or a second.

use std::{collections::HashMap, time::Instant};

use pinfold::{
    OneSidedCount, PathCount,
    status::{EndpointStatus, PeerStatus, View},
};
use serde::Serialize;

/// Messages and bytes both ways, one-sided operations done, and active messages both ways, which
/// are among the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Flow {
    pub(super) sent_messages: f64,
    pub(super) sent_bytes: f64,
    pub(super) received_messages: f64,
    pub(super) received_bytes: f64,
    pub(super) writes: f64,
    pub(super) written_bytes: f64,
    pub(super) reads: f64,
    pub(super) read_bytes: f64,
    pub(super) atomics: f64,
    pub(super) by_kernel: f64,
    pub(super) by_agent: f64,
    pub(super) called: f64,
    pub(super) handled: f64,
    /// The traffic of an endpoint as a whole.
    #[serde(skip)]
    pub(super) copied_bulk: f64,
    #[serde(skip)]
    pub(super) copied_streamed: f64,
}

impl Flow {
    fn of(sent: &[PathCount], received: &[PathCount]) -> Flow {
        let sum = |counts: &[PathCount], of: fn(&PathCount) -> u64| {
            counts.iter().map(|count| of(count) as f64).sum()
        };
        Flow {
            sent_messages: sum(sent, |count| count.messages),
            sent_bytes: sum(sent, |count| count.bytes),
            received_messages: sum(received, |count| count.messages),
            received_bytes: sum(received, |count| count.bytes),
            ..Flow::default()
        }
    }

    /// The traffic beside messages.
    fn and(self, done: OneSidedCount, called: u64, handled: u64) -> Flow {
        Flow {
            writes: done.writes as f64,
            written_bytes: done.written_bytes as f64,
            reads: done.reads as f64,
            read_bytes: done.read_bytes as f64,
            atomics: done.atomics as f64,
            by_kernel: done.by_kernel as f64,
            by_agent: done.by_agent as f64,
            called: called as f64,
            handled: handled as f64,
            ..self
        }
    }

    fn since(self, before: Flow, seconds: f64) -> Flow {
        // Counters of honest endpoints only grow.
        let rate = |now: f64, before: f64| ((now - before) / seconds).max(0.0);
        Flow {
            sent_messages: rate(self.sent_messages, before.sent_messages),
            sent_bytes: rate(self.sent_bytes, before.sent_bytes),
            received_messages: rate(self.received_messages, before.received_messages),
            received_bytes: rate(self.received_bytes, before.received_bytes),
            writes: rate(self.writes, before.writes),
            written_bytes: rate(self.written_bytes, before.written_bytes),
            reads: rate(self.reads, before.reads),
            read_bytes: rate(self.read_bytes, before.read_bytes),
            atomics: rate(self.atomics, before.atomics),
            by_kernel: rate(self.by_kernel, before.by_kernel),
            by_agent: rate(self.by_agent, before.by_agent),
            called: rate(self.called, before.called),
            handled: rate(self.handled, before.handled),
            copied_bulk: rate(self.copied_bulk, before.copied_bulk),
            copied_streamed: rate(self.copied_streamed, before.copied_streamed),
        }
    }

    /// The key to sort by: bytes, and for each message or operation a cache line.
    pub(super) fn traffic(&self) -> f64 {
        let messages = self.sent_messages + self.received_messages;
        let bytes = self.sent_bytes + self.received_bytes + self.written_bytes + self.read_bytes;
        bytes + 64.0 * (messages + self.writes + self.reads + self.atomics)
    }
}

/// Names an endpoint, or a peer of it.
type Key = ([u8; 16], Option<u64>);

/// The traffic of all endpoints up to the last look.
#[derive(Default)]
pub(super) struct Flows {
    at: Option<Instant>,
    before: HashMap<Key, Flow>,
    /// The traffic since then, a second.
    rates: HashMap<Key, Flow>,
}

impl Flows {
    /// Takes note of a look at `now`.
    pub(super) fn look(&mut self, view: &View, now: Instant) {
        let mut totals = HashMap::new();
        for endpoint in &view.endpoints {
            totals.insert((endpoint.id, None), total(endpoint));
            for peer in &endpoint.peers {
                totals.insert((endpoint.id, Some(peer.id)), total_of_peer(peer));
            }
        }
        self.rates.clear();
        if let Some(at) = self.at {
            let seconds = now.duration_since(at).as_secs_f64().max(1e-3);
            self.rates = totals
                .iter()
                .map(|(key, flow)| {
                    // An endpoint or a peer that was not there at the last look began at nothing.
                    let before = self.before.get(key).copied().unwrap_or_default();
                    (*key, flow.since(before, seconds))
                })
                .collect();
        }
        (self.at, self.before) = (Some(now), totals);
    }

    /// Per second since the look before; `None` after the first.
    pub(super) fn rate(&self, endpoint: &EndpointStatus) -> Option<Flow> {
        self.rates.get(&(endpoint.id, None)).copied()
    }

    /// As [`Flows::rate`], with one peer.
    pub(super) fn rate_of_peer(
        &self,
        endpoint: &EndpointStatus,
        peer: &PeerStatus,
    ) -> Option<Flow> {
        self.rates.get(&(endpoint.id, Some(peer.id))).copied()
    }
}

/// The traffic of an endpoint since it began.
pub(super) fn total(endpoint: &EndpointStatus) -> Flow {
    let counters = &endpoint.counters;
    let messages = Flow::of(&counters.sent, &counters.received);
    Flow {
        copied_bulk: counters.copied_bulk as f64,
        copied_streamed: counters.copied_streamed as f64,
        ..messages.and(counters.one_sided, counters.called, counters.handled)
    }
}

/// As [`total`], with one peer.
pub(super) fn total_of_peer(peer: &PeerStatus) -> Flow {
    let counters = &peer.counters;
    let messages = Flow::of(&counters.sent, &counters.received);
    messages.and(counters.one_sided, counters.called, counters.handled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences() {
        let count = |messages, bytes| PathCount { messages, bytes };
        let before = Flow::of(&[count(1, 8), count(2, 100)], &[count(10, 0)]);
        let now = Flow::of(&[count(5, 40), count(2, 100)], &[count(0, 0)]);
        let rate = now.since(before, 2.0);
        assert_eq!((rate.sent_messages, rate.sent_bytes), (2.0, 16.0));
        // A counter that goes back is nonsense, and no traffic.
        assert_eq!((rate.received_messages, rate.received_bytes), (0.0, 0.0));
        assert_eq!(rate.traffic(), 16.0 + 128.0);
        // Operations count as much as messages.
        let done = OneSidedCount::default();
        let [before, now] = [before.and(done, 1, 7), Flow { writes: 4.0, ..now.and(done, 5, 7) }];
        let rate = now.since(before, 2.0);
        assert_eq!((rate.writes, rate.called, rate.handled), (2.0, 2.0, 0.0));
        assert_eq!(rate.traffic(), 16.0 + 256.0);
    }
}
