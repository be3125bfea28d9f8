//! The view, for programs: one object a line. [`AFTER`](super::args) has the fields.

use std::collections::BTreeMap;

use pinfold::{
    Algorithm, CopyCount, CopyCounts, Counters, OneSidedCount, Path, PathCount,
    status::{EndpointStatus, PeerCounters, PeerStatus, Problem, Trouble, View},
};
use serde::Serialize;

use super::flow::{Flow, Flows};

type ByPath = BTreeMap<&'static str, PathCount>;

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line<'a> {
    Endpoint(Box<Endpoint<'a>>),
    Peer(Box<Peer<'a>>),
    Trouble { time_ms: u64, pid: u32, command: &'a str, problem: &'static str, text: String },
    Summary { time_ms: u64, endpoints: usize, peers: usize, hidden: usize },
}

#[derive(Serialize)]
struct Endpoint<'a> {
    time_ms: u64,
    id: String,
    pid: u32,
    command: &'a str,
    uid: u32,
    user: Option<String>,
    label: &'a str,
    address: Option<&'a str>,
    name_lost: bool,
    age_s: f64,
    state: &'static str,
    looked_ago_s: f64,
    peers: u64,
    peers_unlisted: u64,
    newcomers: u64,
    posted: u64,
    stored: u64,
    copying: u64,
    sent: ByPath,
    received: ByPath,
    copied_user: u64,
    copied_bulk: u64,
    copied_streamed: u64,
    copied_by: BTreeMap<String, Count>,
    copied_by_size: BTreeMap<u64, Count>,
    copied_kernel: u64,
    unexpected: u64,
    credit_stalls: u64,
    room_stalls: u64,
    doorbells_sent: u64,
    one_sided: OneSidedCount,
    called: u64,
    handled: u64,
    handlers_panicked: u64,
    unhandled: u64,
    undelivered: u64,
    given_stalls: u64,
    replaced: u64,
    sleeps: u64,
    barriers: u64,
    tlb_hits: u64,
    pin_hits: u64,
    pin_misses: u64,
    pin_evictions: u64,
    pinned_bytes: u64,
    peers_joined: u64,
    peers_gone: u64,
    lane_bytes: u64,
    lane_bytes_max: u64,
    granted_bytes: u64,
    unexpected_bytes_max: u64,
    mapped_bytes: u64,
    mapped_bytes_max: u64,
    arena_files: u64,
    arena_bytes: u64,
    rates: Option<Flow>,
}

#[derive(Serialize)]
struct Peer<'a> {
    time_ms: u64,
    of: String,
    of_pid: u32,
    peer: u64,
    id: String,
    pid: u32,
    uid: u32,
    label: &'a str,
    address: Option<&'a str>,
    paths: Vec<&'static str>,
    refused: BTreeMap<&'static str, String>,
    sent: ByPath,
    received: ByPath,
    unexpected: u64,
    credit_stalls: u64,
    room_stalls: u64,
    doorbells_sent: u64,
    one_sided: OneSidedCount,
    called: u64,
    handled: u64,
    given_stalls: u64,
    replaced: u64,
    given_bytes: u64,
    queued: u64,
    answers: u64,
    waiting: u64,
    waiting_max: u64,
    waits_s: Option<f64>,
    credit_used: u64,
    credit_max: u64,
    owed: u64,
    granted: u64,
    announced: u64,
    announced_max: u64,
    arriving: u64,
    lane_bytes: u64,
    blocked: bool,
    leaving: bool,
    encrypted: bool,
    rates: Option<Flow>,
}

/// All of it.
///
/// # Errors
/// An error of the serializer.
pub(super) fn render(view: &View, flows: &Flows, time_ms: u64) -> serde_json::Result<String> {
    let mut lines = Vec::new();
    for seen in &view.endpoints {
        lines.push(Line::Endpoint(Box::new(endpoint(seen, flows, time_ms))));
        let peers = seen.peers.iter();
        lines.extend(peers.map(|other| Line::Peer(Box::new(peer(seen, other, flows, time_ms)))));
    }
    lines.extend(view.troubles.iter().map(|trouble| Line::Trouble {
        time_ms,
        pid: trouble.pid,
        command: &trouble.command,
        problem: problem(trouble),
        text: trouble.to_string(),
    }));
    let peers = view.endpoints.iter().map(|endpoint| endpoint.peers.len()).sum();
    let (endpoints, hidden) = (view.endpoints.len(), view.hidden);
    lines.push(Line::Summary { time_ms, endpoints, peers, hidden });
    let mut text = String::new();
    for line in lines {
        text += &serde_json::to_string(&line)?;
        text.push('\n');
    }
    Ok(text)
}

/// The name of a trouble's kind, for programs.
pub(super) fn problem(trouble: &Trouble) -> &'static str {
    match trouble.what {
        Problem::OtherVersion(_) => "other_version",
        Problem::Nonsense(_) => "nonsense",
        Problem::Unsteady => "unsteady",
        _ => "unreadable",
    }
}

fn endpoint<'a>(seen: &'a EndpointStatus, flows: &Flows, time_ms: u64) -> Endpoint<'a> {
    let Counters {
        sent, received, copied_user, copied_bulk, copied_streamed, copied_kernel, ..
    } = seen.counters;
    Endpoint {
        time_ms,
        id: hex(&seen.id),
        pid: seen.pid,
        command: &seen.command,
        uid: seen.uid,
        user: pinfold_sys::user::name_of(seen.uid),
        label: &seen.label,
        address: seen.address.as_deref(),
        name_lost: seen.name_lost,
        age_s: seen.age.as_secs_f64(),
        state: seen.state.name(),
        looked_ago_s: seen.looked_ago.as_secs_f64(),
        peers: seen.peers_unlisted.saturating_add(seen.peers.len() as u64),
        peers_unlisted: seen.peers_unlisted,
        newcomers: seen.newcomers,
        posted: seen.posted,
        stored: seen.stored,
        copying: seen.copying,
        sent: by_path(&sent),
        received: by_path(&received),
        copied_user,
        copied_bulk,
        copied_streamed,
        copied_by: by_algorithm(&seen.copies),
        copied_by_size: by_size(&seen.copies),
        copied_kernel,
        unexpected: seen.counters.unexpected,
        credit_stalls: seen.counters.credit_stalls,
        room_stalls: seen.counters.room_stalls,
        doorbells_sent: seen.counters.doorbells_sent,
        one_sided: seen.counters.one_sided,
        called: seen.counters.called,
        handled: seen.counters.handled,
        handlers_panicked: seen.counters.handlers_panicked,
        unhandled: seen.counters.unhandled,
        undelivered: seen.counters.undelivered,
        given_stalls: seen.counters.given_stalls,
        replaced: seen.counters.replaced,
        sleeps: seen.counters.sleeps,
        barriers: seen.counters.barriers,
        tlb_hits: seen.counters.tlb_hits,
        pin_hits: seen.counters.pin_hits,
        pin_misses: seen.counters.pin_misses,
        pin_evictions: seen.counters.pin_evictions,
        pinned_bytes: seen.counters.pinned_bytes,
        peers_joined: seen.counters.peers_joined,
        peers_gone: seen.counters.peers_gone,
        lane_bytes: seen.lane_bytes,
        lane_bytes_max: seen.lane_bytes_max,
        granted_bytes: seen.granted_bytes,
        unexpected_bytes_max: seen.unexpected_bytes_max,
        mapped_bytes: seen.mapped_bytes,
        mapped_bytes_max: seen.mapped_bytes_max,
        arena_files: seen.arena_files,
        arena_bytes: seen.arena_bytes,
        rates: flows.rate(seen),
    }
}

fn peer<'a>(of: &EndpointStatus, seen: &'a PeerStatus, flows: &Flows, time_ms: u64) -> Peer<'a> {
    let PeerCounters { sent, received, unexpected, .. } = seen.counters;
    let refused = seen.refusals.iter();
    Peer {
        time_ms,
        of: hex(&of.id),
        of_pid: of.pid,
        peer: seen.id,
        id: hex(&seen.endpoint),
        pid: seen.pid,
        uid: seen.uid,
        label: &seen.label,
        address: seen.address.as_deref(),
        paths: seen.paths.iter().map(Path::name).collect(),
        refused: refused.map(|(path, why)| (path.name(), why.to_string())).collect(),
        sent: by_path(&sent),
        received: by_path(&received),
        unexpected,
        credit_stalls: seen.counters.credit_stalls,
        room_stalls: seen.counters.room_stalls,
        doorbells_sent: seen.counters.doorbells_sent,
        one_sided: seen.counters.one_sided,
        called: seen.counters.called,
        handled: seen.counters.handled,
        given_stalls: seen.counters.given_stalls,
        replaced: seen.counters.replaced,
        given_bytes: seen.given_bytes,
        queued: seen.queued,
        answers: seen.answers,
        waiting: seen.waiting,
        waiting_max: seen.waiting_max,
        waits_s: seen.waits.map(|waits| waits.as_secs_f64()),
        credit_used: seen.credit_used,
        credit_max: seen.credit_max,
        owed: seen.owed,
        granted: seen.granted,
        announced: seen.announced,
        announced_max: seen.announced_max,
        arriving: seen.arriving,
        lane_bytes: seen.lane_bytes,
        blocked: seen.blocked,
        leaving: seen.leaving,
        encrypted: seen.encrypted,
        rates: flows.rate_of_peer(of, seen),
    }
}

/// Copies and their bytes.
#[derive(Serialize)]
struct Count {
    copies: u64,
    bytes: u64,
}

impl Count {
    /// `None`: there were none.
    fn of(count: &CopyCount) -> Option<Count> {
        let CopyCount { copies, bytes } = *count;
        (copies > 0).then_some(Count { copies, bytes })
    }
}

fn by_algorithm(copies: &CopyCounts) -> BTreeMap<String, Count> {
    let all = Algorithm::all();
    let count = |algorithm: Algorithm| Count::of(&copies.copied[usize::from(algorithm.id())]);
    all.filter_map(|algorithm| Some((algorithm.to_string(), count(algorithm)?))).collect()
}

/// By the least size of each class, bytes.
fn by_size(copies: &CopyCounts) -> BTreeMap<u64, Count> {
    let classes = copies.by_size.iter().enumerate();
    let least = |class: usize| CopyCounts::LEAST_BYTES << class;
    classes.filter_map(|(class, count)| Some((least(class), Count::of(count)?))).collect()
}

fn by_path(counts: &[PathCount]) -> ByPath {
    Path::ALL.into_iter().map(Path::name).zip(counts.iter().copied()).collect()
}

/// An identifier as digits.
pub(super) fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_told_by_algorithm_and_size() {
        let mut counts = CopyCounts::default();
        let streaming: Algorithm = "avx2+streaming".parse().unwrap();
        counts.copied[usize::from(streaming.id())] = CopyCount { copies: 3, bytes: 9000 };
        counts.by_size[3] = CopyCount { copies: 2, bytes: 4100 };
        counts.by_size[4] = CopyCount { copies: 1, bytes: 4900 };
        let told = serde_json::json!([by_algorithm(&counts), by_size(&counts)]);
        let wanted = serde_json::json!([
            {"avx2+streaming": {"copies": 3, "bytes": 9000}},
            {"2048": {"copies": 2, "bytes": 4100}, "4096": {"copies": 1, "bytes": 4900}},
        ]);
        assert_eq!(told, wanted);
    }
}
