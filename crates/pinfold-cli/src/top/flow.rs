//! How much goes back and forth: ever, or a second.

use std::{collections::HashMap, time::Instant};

use pinfold::{
    PathCount,
    status::{EndpointStatus, PeerStatus, View},
};
use serde::Serialize;

/// Messages and bytes both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Flow {
    pub(super) sent_messages: f64,
    pub(super) sent_bytes: f64,
    pub(super) received_messages: f64,
    pub(super) received_bytes: f64,
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
        }
    }

    fn since(self, before: Flow, seconds: f64) -> Flow {
        // Counters only grow, those of honest endpoints.
        let rate = |now: f64, before: f64| ((now - before) / seconds).max(0.0);
        Flow {
            sent_messages: rate(self.sent_messages, before.sent_messages),
            sent_bytes: rate(self.sent_bytes, before.sent_bytes),
            received_messages: rate(self.received_messages, before.received_messages),
            received_bytes: rate(self.received_bytes, before.received_bytes),
        }
    }

    /// What to sort by: bytes, and for each message a cache line.
    pub(super) fn traffic(&self) -> f64 {
        self.sent_bytes + self.received_bytes + 64.0 * (self.sent_messages + self.received_messages)
    }
}

/// Names an endpoint, or a peer of it.
type Key = ([u8; 16], Option<u64>);

/// What had gone back and forth at the last look.
#[derive(Default)]
pub(super) struct Flows {
    at: Option<Instant>,
    before: HashMap<Key, Flow>,
    /// What has, a second, since then.
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
                    // What was not there at the last look began at nothing.
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

/// What an endpoint has exchanged, ever.
pub(super) fn total(endpoint: &EndpointStatus) -> Flow {
    Flow::of(&endpoint.counters.sent, &endpoint.counters.received)
}

/// As [`total`], with one peer.
pub(super) fn total_of_peer(peer: &PeerStatus) -> Flow {
    Flow::of(&peer.counters.sent, &peer.counters.received)
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
        // What goes back is nonsense, and no traffic.
        assert_eq!((rate.received_messages, rate.received_bytes), (0.0, 0.0));
        assert_eq!(rate.traffic(), 16.0 + 128.0);
    }
}
