//! The lines of `--json` and `--csv`, whose names are a promise to scripts.

use serde::Serialize;

use super::{
    findings::{Findings, Totals},
    lock::Lock,
    measure::Row,
    verify::Verified,
};
use crate::fail::{Fail, Result};

/// A line.
#[derive(Serialize)]
#[serde(tag = "what", rename_all = "lowercase")]
enum Record {
    Send(SendRecord),
    Lock(LockRecord),
    Verified(VerifiedRecord),
    Note { text: String },
    Totals(TotalsRecord),
}

#[derive(Serialize)]
struct SendRecord {
    bytes: usize,
    pieces: usize,
    source: &'static str,
    mode: &'static str,
    rounds: Option<usize>,
    cpu_ns: Option<f64>,
    elapsed_ns: Option<f64>,
    cpu_ns_gb: Option<f64>,
    of_two_copy: Option<f64>,
    of_best: Option<f64>,
    took: Option<&'static str>,
    notified: Option<u64>,
    copied: Option<u64>,
    absent: Option<String>,
}

#[derive(Serialize)]
struct LockRecord {
    bytes: usize,
    register_ns: Option<f64>,
    unregister_ns: Option<f64>,
    copy_cache_ns: f64,
    copy_memory_ns: Option<f64>,
    call_ns: f64,
    send_pin_ns: Option<f64>,
    send_copy_cache_ns: Option<f64>,
    send_copy_memory_ns: Option<f64>,
}

#[derive(Serialize)]
struct VerifiedRecord {
    mode: &'static str,
    messages: u64,
    bytes: u64,
    notified: u64,
    copied: u64,
    absent: Option<String>,
}

#[derive(Serialize)]
struct TotalsRecord {
    messages: u64,
    worst_of_best: Option<f64>,
    worst_bytes: Option<usize>,
    worst_pieces: Option<usize>,
    worst_source: Option<&'static str>,
    memory_of_two_copy: Option<f64>,
    cache_of_two_copy: Option<f64>,
}

impl From<&Row> for SendRecord {
    fn from(row: &Row) -> SendRecord {
        let found = row.found.as_ref().ok();
        SendRecord {
            bytes: row.cell.bytes,
            pieces: row.cell.pieces,
            source: row.cell.source(),
            mode: row.who.name(),
            rounds: found.map(|it| it.rounds),
            cpu_ns: found.map(|it| it.cpu_ns),
            elapsed_ns: found.map(|it| it.elapsed_ns),
            cpu_ns_gb: found.map(|it| it.cpu_ns * 1e9 / row.cell.bytes as f64),
            of_two_copy: found.and_then(|it| it.of_two_copy),
            of_best: found.and_then(|it| it.of_best),
            took: found.map(|it| it.took.name()),
            notified: found.map(|it| it.notified),
            copied: found.map(|it| it.copied),
            absent: row.found.as_ref().err().cloned(),
        }
    }
}

impl From<&Lock> for LockRecord {
    fn from(it: &Lock) -> LockRecord {
        LockRecord {
            bytes: it.bytes,
            register_ns: it.register_ns,
            unregister_ns: it.unregister_ns,
            copy_cache_ns: it.copy_cache_ns,
            copy_memory_ns: it.copy_memory_ns,
            call_ns: it.call_ns,
            send_pin_ns: it.send_pin_ns,
            send_copy_cache_ns: it.send_copy_cache_ns,
            send_copy_memory_ns: it.send_copy_memory_ns,
        }
    }
}

impl From<&Verified> for VerifiedRecord {
    fn from(it: &Verified) -> VerifiedRecord {
        VerifiedRecord {
            mode: it.mode.name(),
            messages: it.messages,
            bytes: it.bytes,
            notified: it.notified,
            copied: it.copied,
            absent: it.absent.clone(),
        }
    }
}

impl From<Totals> for TotalsRecord {
    fn from(it: Totals) -> TotalsRecord {
        TotalsRecord {
            messages: it.messages,
            worst_of_best: it.worst.map(|worst| worst.1),
            worst_bytes: it.worst.map(|worst| worst.0.bytes),
            worst_pieces: it.worst.map(|worst| worst.0.pieces),
            worst_source: it.worst.map(|worst| worst.0.source()),
            memory_of_two_copy: it.memory_of_two_copy,
            cache_of_two_copy: it.cache_of_two_copy,
        }
    }
}

/// One object a line.
///
/// # Errors
/// Not expected.
pub(super) fn json(found: &Findings) -> Result<String> {
    let sends = found.rows.iter().map(|row| Record::Send(row.into()));
    let locks = found.locks.iter().map(|lock| Record::Lock(lock.into()));
    let verified = found.verified.iter().map(|it| Record::Verified(it.into()));
    let notes = found.notes.iter().map(|text| Record::Note { text: text.clone() });
    let totals = [Record::Totals(found.totals().into())];
    let mut text = String::new();
    for record in sends.chain(locks).chain(verified).chain(notes).chain(totals) {
        text += &serde_json::to_string(&record).map_err(|why| Fail::Said(why.to_string()))?;
        text.push('\n');
    }
    Ok(text)
}

/// The columns of `--csv`.
const COLUMNS: [&str; 14] = [
    "bytes",
    "pieces",
    "source",
    "mode",
    "rounds",
    "cpu_ns",
    "elapsed_ns",
    "cpu_ns_gb",
    "of_two_copy",
    "of_best",
    "took",
    "notified",
    "copied",
    "absent",
];

/// The sends: a line of names, then one for each row. Unknown values are empty.
///
/// # Errors
/// Not expected.
pub(super) fn csv(found: &Findings) -> Result<String> {
    let mut text = COLUMNS.join(",") + "\n";
    for row in &found.rows {
        let record = serde_json::to_value(SendRecord::from(row));
        let record = record.map_err(|why| Fail::Said(why.to_string()))?;
        text += &COLUMNS.map(|column| field(&record[column])).join(",");
        text.push('\n');
    }
    Ok(text)
}

/// A field as RFC 4180 has it.
fn field(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) if text.contains([',', '"', '\n']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let of = |value| field(&value);
        assert_eq!(of(serde_json::json!("a")), "a");
        assert_eq!(of(serde_json::json!("a, \"b\"")), "\"a, \"\"b\"\"\"");
        assert_eq!(of(serde_json::json!(null)), "");
        assert_eq!(of(serde_json::json!(1.5)), "1.5");
    }
}
