//! The results, for people.

use std::fmt::Write as _;

use super::{
    cell::{Cell, Contestant},
    findings::Findings,
    lock::Lock,
    verify::Verified,
};
use crate::units;

/// All of it.
pub(super) fn text(found: &Findings) -> String {
    let mut text = format!("pinfold {} on {}\n", env!("CARGO_PKG_VERSION"), found.machine.alone());
    for line in facts(found) {
        let _ = writeln!(text, "{line}");
    }
    for note in &found.notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    let cells = found.cells();
    let mut groups: Vec<Cell> = cells.clone();
    groups.dedup_by(|a, b| same(a, b));
    for group in groups {
        let here: Vec<Cell> = cells.iter().copied().filter(|cell| same(cell, &group)).collect();
        sends(&mut text, found, &group, &here);
    }
    locks(&mut text, &found.locks);
    verified(&mut text, &found.verified);
    text.push_str("\nTOTALS\n");
    for line in totals(found) {
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(text, "\nThis took {}.", units::seconds(found.took));
    text
}

/// Returns whether two cells are of one table.
pub(super) fn same(a: &Cell, b: &Cell) -> bool {
    (a.pieces, a.from) == (b.pieces, b.from)
}

/// Facts that one must know to read it.
pub(super) fn facts(found: &Findings) -> Vec<String> {
    let core = found.core.map_or("one core".to_owned(), |core| format!("core {core}"));
    vec![format!(
        "All on {core}, what the network does included; into a veth pair whose far end discards."
    )]
}

/// The title of the table that a cell is in.
pub(super) fn title(cell: &Cell) -> String {
    let source = match cell.source() {
        "cache" => "written a moment ago",
        _ => "written, then flushed from the caches",
    };
    match cell.pieces {
        1 => format!("One piece, {source}"),
        more => format!("{more} pieces, {source}"),
    }
}

fn sends(text: &mut String, found: &Findings, group: &Cell, here: &[Cell]) {
    let _ = write!(
        text,
        "\n{}: PROCESSOR TIME OF THE SENDER for a message\n{:>8}",
        title(group).to_uppercase(),
        "bytes"
    );
    for who in Contestant::ALL.iter().take(6) {
        let _ = write!(text, "  {:>9}", who.name());
    }
    let _ = writeln!(
        text,
        "  {:9}  {:>11}  {:>8}  {:>12}  {:9}  {:>8}  {:>6}",
        "took", "of two-copy", "of best", "unregistered", "took", "of best", "rounds"
    );
    for cell in here {
        let _ = write!(text, "{:>8}", cell.bytes);
        for &who in Contestant::ALL.iter().take(6) {
            let time = found.found(cell, who).map_or("-".into(), |it| units::time(it.cpu_ns));
            let _ = write!(text, "  {time:>9}");
        }
        let one = found.found(cell, Contestant::Automatic);
        let other = found.found(cell, Contestant::Unregistered);
        let ratio = |of: Option<f64>| of.map_or("-".into(), |of| format!("{of:.3}"));
        let _ = writeln!(
            text,
            "  {:9}  {:>11}  {:>8}  {:>12}  {:9}  {:>8}  {:>6}",
            one.map_or("-", |it| it.took.name()),
            ratio(one.and_then(|it| it.of_two_copy)),
            ratio(one.and_then(|it| it.of_best)),
            other.map_or("-".into(), |it| units::time(it.cpu_ns)),
            other.map_or("-", |it| it.took.name()),
            ratio(other.and_then(|it| it.of_best)),
            one.map_or(0, |it| it.rounds),
        );
    }
    for reason in reasons(found, here) {
        let _ = writeln!(text, "  - {reason}");
    }
}

/// The reasons why there are gaps in a table.
pub(super) fn reasons(found: &Findings, here: &[Cell]) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    for row in found.rows.iter().filter(|row| here.contains(&row.cell)) {
        if let Err(why) = &row.found {
            let reason = format!("{}, {} bytes: {why}", row.who.name(), row.cell.bytes);
            reasons.push(reason);
        }
    }
    reasons
}

fn time(ns: Option<f64>) -> String {
    ns.map_or(
        "-".into(),
        |ns| if ns < 0.0 { format!("-{}", units::time(-ns)) } else { units::time(ns) },
    )
}

/// The names of a lock's columns, and its fields.
pub(super) const LOCK: [&str; 9] = [
    "bytes",
    "register",
    "unregister",
    "copy, cache",
    "copy, memory",
    "bare call",
    "send: pin",
    "send: copy, cache",
    "send: copy, memory",
];

pub(super) fn lock(it: &Lock) -> [String; 9] {
    [
        it.bytes.to_string(),
        time(it.register_ns),
        time(it.unregister_ns),
        time(Some(it.copy_cache_ns)),
        time(it.copy_memory_ns),
        time(Some(it.call_ns)),
        time(it.send_pin_ns),
        time(it.send_copy_cache_ns),
        time(it.send_copy_memory_ns),
    ]
}

/// The meaning of the columns.
pub(super) const LOCK_HINT: &str = "register, unregister: the whole call of a ring; copy: memcpy; send: \
    what pinning and copying are worth within a send, which is per-send less cached, and two-copy less \
    cached";

fn locks(text: &mut String, locks: &[Lock]) {
    let _ = writeln!(text, "\nLOCK, COPY, UNLOCK ({LOCK_HINT})");
    let mut line = |fields: [String; 9]| {
        for (field, name) in fields.iter().zip(LOCK) {
            let _ = write!(text, "{field:>width$}  ", width = name.len().max(8));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    };
    line(LOCK.map(str::to_owned));
    locks.iter().map(lock).for_each(&mut line);
}

/// The checks of a mode, in words.
pub(super) fn checked(it: &Verified) -> String {
    let mut text = match (it.messages, it.notified) {
        (0, _) => format!("{}: nothing was checked", it.mode.name()),
        (messages, 0) => {
            format!("{}: {messages} messages arrived as they were sent", it.mode.name())
        }
        (messages, notified) => format!(
            "{}: {messages} messages arrived as they were sent; {} of {notified} that were not to be copied \
             were copied for the receiver",
            it.mode.name(),
            it.copied,
        ),
    };
    if let Some(why) = &it.absent {
        let _ = write!(text, "; {why}");
    }
    text
}

fn verified(text: &mut String, all: &[Verified]) {
    text.push_str("\nCONTENTS, with a receiver at the far end\n");
    for it in all {
        let _ = writeln!(text, "  {}", checked(it));
    }
}

/// The totals, a sentence each.
pub(super) fn totals(found: &Findings) -> Vec<String> {
    let totals = found.totals();
    let mut lines = vec![format!("{} messages were sent", totals.messages)];
    if let Some((cell, of_best)) = totals.worst {
        lines.push(format!(
            "automatic takes at most {of_best:.3} times what the best mode does: {cell} (aim: 1.05)"
        ));
    }
    for (of, name, aim) in
        [(totals.memory_of_two_copy, "memory", 0.55), (totals.cache_of_two_copy, "a cache", 0.85)]
    {
        if let Some(of) = of {
            lines.push(format!(
                "63000 bytes from {name}: automatic takes {of:.3} of two-copy (aim: {aim})"
            ));
        }
    }
    let (mut notified, mut copied) = (0, 0);
    for it in found.rows.iter().filter_map(|row| row.found.as_ref().ok()) {
        (notified, copied) = (notified + it.notified, copied + it.copied);
    }
    if notified > 0 {
        lines.push(format!(
            "{copied} of {notified} sends that were not to be copied were copied all the same"
        ));
    }
    lines
}
