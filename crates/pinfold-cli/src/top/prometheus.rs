//! The view as metrics, for Prometheus: a sample for each endpoint, peer and path.
//!
//! All names begin with `pinfold_`, and those of one peer's with `pinfold_peer_`. Names of counters
//! end in `_total`; bytes and seconds are units of names.

use std::collections::BTreeMap;

use pinfold::{
    Path, PathCount,
    status::{EndpointStatus, PeerStatus, View},
};

use super::{
    exposition::{
        Exposition,
        Kind::{self, Counter, Gauge},
        Labels,
    },
    json::{hex, problem},
};

/// A number of an endpoint's or a peer's: type, name, help, value.
type Number<T> = (Kind, &'static str, &'static str, fn(&T) -> u64);

#[rustfmt::skip]
const OF_ENDPOINT: &[Number<EndpointStatus>] = &[
    (Gauge, "pinfold_peers", "Connected peers.",
     |e| e.peers_unlisted.saturating_add(e.peers.len() as u64)),
    (Gauge, "pinfold_newcomers", "Peers that were not accepted yet.", |e| e.newcomers),
    (Counter, "pinfold_peers_joined_total", "Peers that have connected.",
     |e| e.counters.peers_joined),
    (Counter, "pinfold_peers_gone_total", "Peers that have gone.", |e| e.counters.peers_gone),
    (Gauge, "pinfold_name_lost", "1 if another endpoint has taken its name.",
     |e| e.name_lost.into()),
    (Gauge, "pinfold_posted_receives", "Receives that wait for a message.", |e| e.posted),
    (Gauge, "pinfold_stored_messages", "Messages that wait for a receive.", |e| e.stored),
    (Gauge, "pinfold_copying_messages", "Long messages being copied.", |e| e.copying),
    (Counter, "pinfold_copied_user_bytes_total", "Bytes copied by the process.",
     |e| e.counters.copied_user),
    (Counter, "pinfold_copied_kernel_bytes_total", "Bytes copied by the kernel.",
     |e| e.counters.copied_kernel),
    (Counter, "pinfold_unexpected_total", "Messages that came before they were asked for.",
     |e| e.counters.unexpected),
    (Counter, "pinfold_credit_stalls_total", "Waits for credit of a peer.",
     |e| e.counters.credit_stalls),
    (Counter, "pinfold_room_stalls_total", "Waits for room in a lane.", |e| e.counters.room_stalls),
    (Counter, "pinfold_given_stalls_total", "Waits until something given was back.",
     |e| e.counters.given_stalls),
    (Counter, "pinfold_replaced_total", "Given messages replaced by newer ones.",
     |e| e.counters.replaced),
    (Counter, "pinfold_undelivered_total", "Messages lost that nobody had waited for.",
     |e| e.counters.undelivered),
    (Counter, "pinfold_doorbells_sent_total", "Peers woken.", |e| e.counters.doorbells_sent),
    (Counter, "pinfold_sleeps_total", "Times that it fell asleep.", |e| e.counters.sleeps),
    (Counter, "pinfold_one_sided_writes_total", "Writes to memory of peers.",
     |e| e.counters.one_sided.writes),
    (Counter, "pinfold_one_sided_written_bytes_total", "Bytes of those writes.",
     |e| e.counters.one_sided.written_bytes),
    (Counter, "pinfold_one_sided_reads_total", "Reads of memory of peers.",
     |e| e.counters.one_sided.reads),
    (Counter, "pinfold_one_sided_read_bytes_total", "Bytes of those reads.",
     |e| e.counters.one_sided.read_bytes),
    (Counter, "pinfold_one_sided_atomics_total", "Atomic operations on memory of peers.",
     |e| e.counters.one_sided.atomics),
    (Counter, "pinfold_called_total", "Active messages sent.", |e| e.counters.called),
    (Counter, "pinfold_handled_total", "Active messages handled.", |e| e.counters.handled),
    (Counter, "pinfold_unhandled_total", "Active messages dropped.", |e| e.counters.unhandled),
    (Counter, "pinfold_handlers_panicked_total", "Handlers that panicked.",
     |e| e.counters.handlers_panicked),
    (Counter, "pinfold_pin_hits_total", "Parts sent from memory that was registered.",
     |e| e.counters.pin_hits),
    (Counter, "pinfold_pin_misses_total", "Parts sent from memory that was not.",
     |e| e.counters.pin_misses),
    (Gauge, "pinfold_pinned_bytes", "Memory that is registered.", |e| e.counters.pinned_bytes),
    (Gauge, "pinfold_lane_bytes", "Memory that lanes have grown by.", |e| e.lane_bytes),
    (Gauge, "pinfold_lane_bytes_max", "Memory that lanes may grow by.", |e| e.lane_bytes_max),
    (Gauge, "pinfold_granted_bytes", "Memory promised for unexpected messages.",
     |e| e.granted_bytes),
    (Gauge, "pinfold_unexpected_bytes_max", "Memory that may be promised for them.",
     |e| e.unexpected_bytes_max),
    (Gauge, "pinfold_mapped_bytes", "Address space with arenas of peers.", |e| e.mapped_bytes),
    (Gauge, "pinfold_mapped_bytes_max", "Address space that there may be with them.",
     |e| e.mapped_bytes_max),
    (Gauge, "pinfold_arena_bytes", "Memory of all arenas of the process.", |e| e.arena_bytes),
];

#[rustfmt::skip]
const OF_PEER: &[Number<PeerStatus>] = &[
    (Counter, "pinfold_peer_unexpected_total", "Its messages that came before they were asked for.",
     |p| p.counters.unexpected),
    (Counter, "pinfold_peer_credit_stalls_total", "Waits for credit of this peer.",
     |p| p.counters.credit_stalls),
    (Counter, "pinfold_peer_room_stalls_total", "Waits for room in the lane to it.",
     |p| p.counters.room_stalls),
    (Gauge, "pinfold_peer_queued_sends", "Sends to it with something left to write.", |p| p.queued),
    (Gauge, "pinfold_peer_waiting_messages", "Announced messages that it has not asked for.",
     |p| p.waiting),
    (Gauge, "pinfold_peer_credit_used_bytes", "Credit of the peer in use.", |p| p.credit_used),
    (Gauge, "pinfold_peer_credit_max_bytes", "Credit that the peer gave.", |p| p.credit_max),
    (Gauge, "pinfold_peer_owed_bytes", "Its messages that wait for a receive here.", |p| p.owed),
    (Gauge, "pinfold_peer_lane_bytes", "Memory of the lane to it.", |p| p.lane_bytes),
    (Gauge, "pinfold_peer_given_bytes", "Memory given to it and not back.", |p| p.given_bytes),
    (Gauge, "pinfold_peer_blocked", "1 if something for it finds no room.", |p| p.blocked.into()),
    (Gauge, "pinfold_peer_encrypted", "1 if the connection with it is encrypted.",
     |p| p.encrypted.into()),
];

/// Names and helps of the counts by path.
type Names = [(Kind, &'static str, &'static str); 4];

const BY_PATH: Names = [
    (Counter, "pinfold_sent_messages_total", "Messages sent, by path."),
    (Counter, "pinfold_sent_bytes_total", "Bytes of messages sent, by path."),
    (Counter, "pinfold_received_messages_total", "Messages received, by path."),
    (Counter, "pinfold_received_bytes_total", "Bytes of messages received, by path."),
];

const BY_PATH_OF_PEER: Names = [
    (Counter, "pinfold_peer_sent_messages_total", "Messages sent to the peer, by path."),
    (Counter, "pinfold_peer_sent_bytes_total", "Bytes of messages sent to the peer, by path."),
    (Counter, "pinfold_peer_received_messages_total", "Messages received of the peer, by path."),
    (Counter, "pinfold_peer_received_bytes_total", "Bytes received of the peer, by path."),
];

/// All of it.
pub(super) fn render(view: &View) -> String {
    let mut all = Exposition::default();
    let none = Labels::new();
    all.add((Gauge, "pinfold_endpoints", "Endpoints seen."), &none, view.endpoints.len());
    let hidden = "Processes that may not be looked into.";
    all.add((Gauge, "pinfold_hidden_processes", hidden), &none, view.hidden);
    let mut troubles = BTreeMap::new();
    for trouble in &view.troubles {
        *troubles.entry(problem(trouble)).or_insert(0) += 1;
    }
    for (problem, count) in troubles {
        let labels = vec![("problem", problem.to_owned())];
        all.add((Gauge, "pinfold_troubles", "Status pages that cannot be read."), &labels, count);
    }
    for seen in &view.endpoints {
        endpoint(&mut all, seen);
    }
    all.text()
}

fn endpoint(all: &mut Exposition, seen: &EndpointStatus) {
    let labels = vec![("endpoint", hex(&seen.id)), ("pid", seen.pid.to_string())];
    let mut facts = labels.clone();
    facts.push(("command", seen.command.clone()));
    facts.push(("uid", seen.uid.to_string()));
    facts.push(("label", seen.label.clone()));
    facts.push(("address", seen.address.clone().unwrap_or_default()));
    all.add((Gauge, "pinfold_endpoint_info", "Facts about an endpoint; 1."), &facts, 1);
    let age = (Gauge, "pinfold_age_seconds", "Time since the endpoint was made.");
    all.add(age, &labels, seen.age.as_secs_f64());
    for (kind, name, help, value) in OF_ENDPOINT {
        all.add((*kind, name, help), &labels, value(seen));
    }
    by_path(all, BY_PATH, &labels, &seen.counters.sent, &seen.counters.received);
    for other in &seen.peers {
        peer(all, &labels, other);
    }
}

fn peer(all: &mut Exposition, of: &Labels, seen: &PeerStatus) {
    let mut labels = of.clone();
    labels.push(("peer", seen.id.to_string()));
    let mut facts = labels.clone();
    facts.push(("peer_endpoint", hex(&seen.endpoint)));
    facts.push(("peer_pid", seen.pid.to_string()));
    facts.push(("peer_label", seen.label.clone()));
    facts.push(("peer_address", seen.address.clone().unwrap_or_default()));
    all.add((Gauge, "pinfold_peer_info", "Facts about a peer; 1."), &facts, 1);
    let waits = (Gauge, "pinfold_peer_waits_seconds", "Wait of the send that has waited longest.");
    all.add(waits, &labels, seen.waits.unwrap_or_default().as_secs_f64());
    for (kind, name, help, value) in OF_PEER {
        all.add((*kind, name, help), &labels, value(seen));
    }
    by_path(all, BY_PATH_OF_PEER, &labels, &seen.counters.sent, &seen.counters.received);
}

fn by_path(
    all: &mut Exposition,
    names: Names,
    labels: &Labels,
    sent: &[PathCount],
    received: &[PathCount],
) {
    let [sent_messages, sent_bytes, received_messages, received_bytes] = names;
    for (path, (sent, received)) in Path::ALL.into_iter().zip(sent.iter().zip(received)) {
        let mut labels = labels.clone();
        labels.push(("path", path.name().to_owned()));
        all.add(sent_messages, &labels, sent.messages);
        all.add(sent_bytes, &labels, sent.bytes);
        all.add(received_messages, &labels, received.messages);
        all.add(received_bytes, &labels, received.bytes);
    }
}
