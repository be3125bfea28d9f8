//! The view, for people.

use std::{fmt::Write as _, time::Duration};

use pinfold::{
    Path,
    status::{EndpointStatus, PeerStatus, State, View},
};

use super::{
    flow::{self, Flow, Flows},
    layout::Layout,
};
use crate::fold::{Width, fold, hanging};

/// Time that an endpoint may be left alone before the table says so.
const LEFT_ALONE: Duration = Duration::from_secs(2);
/// Time that a send may wait before the table says so.
const WAITS_LONG: Duration = Duration::from_secs(1);

/// The whole table, in lines that fit into `width`. `live`: rates, else totals.
pub(super) fn render(view: &View, flows: &Flows, live: bool, width: Width) -> Vec<String> {
    let mut lines = fold(&summary(view), 0, width);
    let layout = Layout::of(width);
    let flow_of = |rate: Option<Flow>, total: Flow| match live {
        true => rate.unwrap_or_default(),
        false => total,
    };
    let mut all: Vec<(Flow, &EndpointStatus)> = view
        .endpoints
        .iter()
        .map(|endpoint| (flow_of(flows.rate(endpoint), flow::total(endpoint)), endpoint))
        .collect();
    all.sort_by(|one, other| other.0.traffic().total_cmp(&one.0.traffic()));
    if !all.is_empty() {
        lines.extend(titles(&layout, live));
    }
    for (flow, endpoint) in all {
        lines.extend(endpoint_row(&layout, endpoint, &flow));
        lines.extend(copies(&flow, live).iter().flat_map(|text| layout.below(text)));
        let mut peers: Vec<(Flow, &PeerStatus)> = endpoint
            .peers
            .iter()
            .map(|peer| {
                let rate = flows.rate_of_peer(endpoint, peer);
                (flow_of(rate, flow::total_of_peer(peer)), peer)
            })
            .collect();
        peers.sort_by(|one, other| other.0.traffic().total_cmp(&one.0.traffic()));
        for (flow, peer) in peers {
            lines.extend(peer_row(&layout, view, peer, &flow));
            let refused = |(path, why): &(Path, _)| layout.below(&format!("not {path}: {why}"));
            lines.extend(peer.refusals.iter().flat_map(refused));
            lines.extend(beside(&flow, live).iter().flat_map(|text| layout.below(text)));
        }
        if endpoint.peers_unlisted > 0 {
            lines.extend(layout.below(&format!("and {} peers more", endpoint.peers_unlisted)));
        }
    }
    let note = |trouble| hanging("Note: ", &format!("{trouble}."), width);
    lines.extend(view.troubles.iter().flat_map(note));
    lines
}

fn summary(view: &View) -> String {
    let peers: usize = view.endpoints.iter().map(|endpoint| endpoint.peers.len()).sum();
    let count = |count: usize, what: &str, s: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}{s}"),
    };
    let mut text = format!(
        "pinfold top: {}, {}",
        count(view.endpoints.len(), "endpoint", "s"),
        count(peers, "peer", "s")
    );
    if view.hidden > 0 {
        let hidden = count(view.hidden, "process", "es");
        let _ = write!(text, "; {hidden} may not be looked into");
    }
    text
}

fn titles(layout: &Layout, live: bool) -> Vec<String> {
    let s = if live { "/s" } else { "" };
    let [sent, out, got, into] = ["SENT", "BYTES", "RECV", "BYTES"].map(|what| what.to_owned() + s);
    let cells = [sent, out, got, into, "QUEUED".into(), "HELD".into(), "MEMORY".into()];
    layout.row(&layout.own("PID", "USER", "ENDPOINT, PEERS"), &cells, "STATE")
}

fn numbers(flow: &Flow, queued: u64, held: u64, memory: u64) -> [String; 7] {
    [
        count(flow.sent_messages),
        bytes(flow.sent_bytes),
        count(flow.received_messages),
        bytes(flow.received_bytes),
        count(queued as f64),
        bytes(held as f64),
        bytes(memory as f64),
    ]
}

/// The copies of an endpoint by algorithms that are chosen.
fn copies(flow: &Flow, live: bool) -> Option<String> {
    let s = if live { "/s" } else { "" };
    let bytes = |value: f64| format!("{}{s}", bytes(value));
    let streamed = (flow.copied_streamed >= 0.5)
        .then(|| format!(", {} of it streamed", bytes(flow.copied_streamed)));
    let bulk =
        || format!("copies: {} bulk{}", bytes(flow.copied_bulk), streamed.unwrap_or_default());
    (flow.copied_bulk >= 0.5).then(bulk)
}

/// The traffic between an endpoint and a peer beside messages, or by messages for handlers.
fn beside(flow: &Flow, live: bool) -> Vec<String> {
    let s = if live { "/s" } else { "" };
    let some = |value: f64, text: String| (value >= 0.5).then_some(text);
    let bytes = |value: f64| format!("{}{s}", bytes(value));
    let count = |value: f64| format!("{}{s}", count(value));
    let one_sided = [
        some(flow.writes, format!("{} writes, {}", count(flow.writes), bytes(flow.written_bytes))),
        some(flow.reads, format!("{} reads, {}", count(flow.reads), bytes(flow.read_bytes))),
        some(flow.atomics, format!("{} atomics", count(flow.atomics))),
        some(flow.by_kernel, format!("{} by the kernel", count(flow.by_kernel))),
        some(flow.by_agent, format!("{} by its agent", count(flow.by_agent))),
    ];
    let active = [
        some(flow.called, format!("{} sent", count(flow.called))),
        some(flow.handled, format!("{} handled", count(flow.handled))),
    ];
    let said = |what: &str, parts: &[Option<String>]| {
        let parts: Vec<&str> = parts.iter().flatten().map(String::as_str).collect();
        (!parts.is_empty()).then(|| format!("{what}: {}", parts.join("; ")))
    };
    let said = [said("one-sided", &one_sided), said("active messages", &active)];
    said.into_iter().flatten().collect()
}

/// Sends that are not done, of which the receiver may not know yet.
fn queued(peer: &PeerStatus) -> u64 {
    peer.queued.saturating_add(peer.waiting)
}

fn endpoint_row(layout: &Layout, endpoint: &EndpointStatus, flow: &Flow) -> Vec<String> {
    let sum =
        |of: fn(&PeerStatus) -> u64| endpoint.peers.iter().map(of).fold(0, u64::saturating_add);
    let (queued, held) = (sum(queued), sum(|peer| peer.owed));
    let memory = sum(|peer| peer.lane_bytes).saturating_add(held);
    let user = pinfold_sys::user::name_of(endpoint.uid);
    let user = user.unwrap_or_else(|| endpoint.uid.to_string());
    let mut name = name(endpoint);
    if let Some(address) = endpoint.address.as_ref().filter(|address| **address != name) {
        name = format!("{name} {address}");
    }
    let begin = layout.own(&endpoint.pid.to_string(), &user, &name);
    layout.row(&begin, &numbers(flow, queued, held, memory), &condition(endpoint))
}

fn peer_row(layout: &Layout, view: &View, peer: &PeerStatus, flow: &Flow) -> Vec<String> {
    let memory = peer.lane_bytes.saturating_add(peer.owed);
    let paths: Vec<&str> = peer.paths.iter().map(Path::name).collect();
    let mut notes = vec![paths.join(" ")];
    let mut note = |is: bool, text: String| notes.extend(is.then_some(text));
    note(peer.encrypted, "encrypted".into());
    note(peer.leaving, "leaving".into());
    note(peer.blocked, "no room".into());
    note(peer.waiting > 0, format!("{} announced to it", peer.waiting));
    note(peer.announced > 0, format!("{} announced by it", peer.announced));
    let spent = peer.credit_used >= peer.credit_max / 10 * 9;
    note(spent && queued(peer) > 0, "credit spent".into());
    let waits = peer.waits.filter(|waits| *waits >= WAITS_LONG);
    notes.extend(waits.map(|waits| format!("sends wait for {}", time(waits))));
    let begin = layout.others(&peer_name(view, peer));
    layout.row(&begin, &numbers(flow, queued(peer), peer.owed, memory), &notes.join(", "))
}

/// The name of an endpoint: its label, its address, or its program.
fn name(endpoint: &EndpointStatus) -> String {
    match (&endpoint.label, &endpoint.address) {
        (label, _) if !label.is_empty() => label.clone(),
        (_, Some(address)) => address.clone(),
        _ => endpoint.command.clone(),
    }
}

fn peer_name(view: &View, peer: &PeerStatus) -> String {
    let known = view.endpoints.iter().find(|endpoint| endpoint.id == peer.endpoint);
    let name = match (known, &peer.address) {
        _ if !peer.label.is_empty() => peer.label.clone(),
        (Some(endpoint), _) => name(endpoint),
        (None, Some(address)) if !is_tcp(peer) => address.clone(),
        _ => String::new(),
    };
    let place = match &peer.address {
        Some(address) if is_tcp(peer) => format!("at {address}"),
        _ => format!("pid {}", peer.pid),
    };
    format!("{name} {place}").trim_start().to_owned()
}

/// Returns whether it is reached over a connection.
fn is_tcp(peer: &PeerStatus) -> bool {
    peer.pid == 0 && peer.address.as_ref().is_some_and(|address| address.starts_with("tcp:"))
}

fn condition(endpoint: &EndpointStatus) -> String {
    let mut notes = vec![match (endpoint.state, endpoint.looked_ago) {
        (State::Asleep, ago) => format!("asleep {}", time(ago)),
        (State::Armed, _) => "waits on its descriptor".to_owned(),
        (_, ago) if ago >= LEFT_ALONE => format!("awake, looked around {} ago", time(ago)),
        _ => "awake".to_owned(),
    }];
    if endpoint.name_lost {
        notes.push("another has its name".to_owned());
    }
    let mut note = |count: u64, what: &str| {
        notes.extend((count > 0).then(|| format!("{} {what}", self::count(count as f64))));
    };
    note(endpoint.posted, "posted");
    note(endpoint.stored, "stored");
    note(endpoint.copying, "copying");
    note(endpoint.newcomers, "not accepted");
    if endpoint.arena_files > 0 {
        notes.push(format!("arenas {}", bytes(endpoint.arena_bytes as f64)));
    }
    notes.join(", ")
}

/// A number in at most seven characters: `0`, `999`, `1.23 k`, `12.3 M`.
fn count(value: f64) -> String {
    scaled(value, 1000.0, &["", " k", " M", " G", " T", " P", " E"])
}

/// Bytes in at most seven characters: `0`, `999 B`, `1.23 KB`, `12.3 GB`.
fn bytes(value: f64) -> String {
    if value < 0.5 {
        return "0".into();
    }
    scaled(value, 1000.0, &[" B", " KB", " MB", " GB", " TB", " PB", " EB"])
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{}", units[unit])
}

/// A time in one unit.
fn time(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        s @ 1..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s => format!("{} h", s / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.4, "0"),
            (999.4, "999"),
            (999.6, "1.00 k"),
            (12_345.0, "12.3 k"),
            (999_600.0, "1.00 M"),
            (21.1e6, "21.1 M"),
            (1.8e19, "18.4 E"),
        ] {
            if value < 1e19 {
                assert_eq!(count(value), text);
            }
            assert!(count(value).len() <= 6 && bytes(value).len() <= 7, "{value}");
        }
        assert_eq!(
            (bytes(0.0), bytes(8.0), bytes(4096.0)),
            ("0".into(), "8 B".into(), "4.10 KB".into())
        );
        assert!(count(u64::MAX as f64 * 1600.0).len() < 12);
    }

    #[test]
    fn copies_are_told_by_kind() {
        let flow =
            |copied_bulk, copied_streamed| Flow { copied_bulk, copied_streamed, ..Flow::default() };
        assert_eq!(copies(&flow(0.0, 0.0), false), None);
        assert_eq!(copies(&flow(4096.0, 0.0), false).unwrap(), "copies: 4.10 KB bulk");
        let text = copies(&flow(2e9, 3e8), true).unwrap();
        assert_eq!(text, "copies: 2.00 GB/s bulk, 300 MB/s of it streamed");
    }

    #[test]
    fn times() {
        for (ms, text) in [(0, "0 ms"), (1500, "1 s"), (119_000, "119 s"), (7_200_000, "2 h")] {
            assert_eq!(time(Duration::from_millis(ms)), text);
        }
    }
}
