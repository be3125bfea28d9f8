//! What was seen, for people.

use std::{fmt::Write as _, time::Duration};

use pinfold::{
    Path,
    status::{EndpointStatus, PeerStatus, State, View},
};

use super::flow::{self, Flow, Flows};

/// How long an endpoint may be left alone before that is worth a word.
const LEFT_ALONE: Duration = Duration::from_secs(2);

/// All of it, a line each. `live`: rates, else totals.
pub(super) fn render(view: &View, flows: &Flows, live: bool) -> Vec<String> {
    let mut lines = vec![summary(view)];
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
        lines.push(titles(live));
    }
    for (flow, endpoint) in all {
        lines.push(endpoint_row(endpoint, &flow));
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
            lines.push(peer_row(view, peer, &flow));
            let refused = |(path, why): &(Path, _)| format!("{:16}not {path}: {why}", "");
            lines.extend(peer.refusals.iter().map(refused));
        }
        if endpoint.peers_unlisted > 0 {
            lines.push(format!("{:14}and {} peers more", "", endpoint.peers_unlisted));
        }
    }
    lines.extend(view.troubles.iter().map(|trouble| format!("Note: {trouble}.")));
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

fn titles(live: bool) -> String {
    let s = if live { "/s" } else { "" };
    let (sent, out, got, into) =
        (format!("SENT{s}"), format!("BYTES{s}"), format!("RECV{s}"), format!("BYTES{s}"));
    let (pid, user, name) = ("PID", "USER", "ENDPOINT, PEERS");
    let rest = row(&[&sent, &out, &got, &into, "QUEUED", "HELD", "MEMORY"]);
    format!("{pid:>8}  {user:8}  {name:26}{rest}  STATE")
}

/// The numbers of a line.
fn row(cells: &[&str; 7]) -> String {
    let widths = [7, 7, 7, 7, 6, 7, 7];
    cells.iter().zip(widths).fold(String::new(), |line, (cell, width)| {
        // At least a blank between, whatever the numbers are.
        line + &format!(" {cell:>width$}")
    })
}

fn numbers(flow: &Flow, queued: u64, held: u64, memory: u64) -> String {
    row(&[
        &count(flow.sent_messages),
        &bytes(flow.sent_bytes),
        &count(flow.received_messages),
        &bytes(flow.received_bytes),
        &count(queued as f64),
        &bytes(held as f64),
        &bytes(memory as f64),
    ])
}

/// Sends that are not done, of which the receiver may not know yet.
fn queued(peer: &PeerStatus) -> u64 {
    peer.queued.saturating_add(peer.waiting)
}

fn endpoint_row(endpoint: &EndpointStatus, flow: &Flow) -> String {
    let sum =
        |of: fn(&PeerStatus) -> u64| endpoint.peers.iter().map(of).fold(0, u64::saturating_add);
    let (queued, held) = (sum(queued), sum(|peer| peer.owed));
    let memory = sum(|peer| peer.lane_bytes).saturating_add(held);
    let user = pinfold_sys::user::name_of(endpoint.uid);
    let user = cut(&user.unwrap_or_else(|| endpoint.uid.to_string()), 8);
    let mut name = name(endpoint);
    if let Some(address) = endpoint.address.as_ref().filter(|address| **address != name) {
        name = format!("{name} {address}");
    }
    let line = format!("{:>8}  {user:8}  {:26}", endpoint.pid, cut(&name, 26));
    line + &numbers(flow, queued, held, memory) + "  " + &condition(endpoint)
}

fn peer_row(view: &View, peer: &PeerStatus, flow: &Flow) -> String {
    let memory = peer.lane_bytes.saturating_add(peer.owed);
    let name = cut(&peer_name(view, peer), 32);
    let line = format!("{:14}{name:32}", "");
    let paths: Vec<&str> = peer.paths.iter().map(Path::name).collect();
    let mut notes = vec![paths.join(" ")];
    let mut note = |is: bool, text: String| notes.extend(is.then_some(text));
    note(peer.leaving, "leaving".into());
    note(peer.blocked, "no room".into());
    note(peer.waiting > 0, format!("{} announced to it", peer.waiting));
    note(peer.announced > 0, format!("{} announced by it", peer.announced));
    let spent = peer.credit_used >= peer.credit_max / 10 * 9;
    note(spent && queued(peer) > 0, "credit spent".into());
    line + &numbers(flow, queued(peer), peer.owed, memory) + "  " + &notes.join(", ")
}

/// What an endpoint is called: its label, its address, or its program.
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
        (None, Some(address)) => address.clone(),
        (None, None) => String::new(),
    };
    format!("{name} pid {}", peer.pid).trim_start().to_owned()
}

fn condition(endpoint: &EndpointStatus) -> String {
    let mut notes = vec![match (endpoint.state, endpoint.looked_ago) {
        (State::Asleep, ago) => format!("asleep {}", time(ago)),
        (State::Armed, _) => "waits on its descriptor".to_owned(),
        (_, ago) if ago >= LEFT_ALONE => format!("awake, looked around {} ago", time(ago)),
        _ => "awake".to_owned(),
    }];
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

/// The first characters of a text.
pub(super) fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
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
    fn texts_are_cut_where_characters_end() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
        assert_eq!(cut("", 0), "");
    }

    #[test]
    fn times() {
        for (ms, text) in [(0, "0 ms"), (1500, "1 s"), (119_000, "119 s"), (7_200_000, "2 h")] {
            assert_eq!(time(Duration::from_millis(ms)), text);
        }
    }
}
