//! The lines of `--json`, whose names are a promise to scripts.

use serde::Serialize;

use super::{
    findings::{Findings, Totals},
    judge::Row,
};
use crate::{
    fail::{Fail, Result},
    terms::What,
};

/// A line.
#[derive(Serialize)]
#[serde(tag = "what", rename_all = "lowercase")]
enum Record {
    Latency(Measure),
    Stream(Measure),
    Note { text: String },
    Totals { hosts: u8, latency_of_spinning: Option<f64>, stream_of_best: Option<f64> },
}

#[derive(Serialize)]
struct Measure {
    size: usize,
    subject: &'static str,
    provider: Option<String>,
    mean: Option<f64>,
    median: Option<f64>,
    p99: Option<f64>,
    n: Option<u64>,
    unit: &'static str,
    rounds: Option<usize>,
    near: Option<usize>,
    far: Option<usize>,
    mixed: Option<usize>,
    of_spinning: Option<f64>,
    of_best: Option<f64>,
    checked: bool,
    absent: Option<String>,
}

/// A time in nanoseconds in the unit of the measure: itself, or megabytes (10^6 bytes) a second.
pub(super) fn in_unit(what: What, bytes: usize, ns: f64) -> f64 {
    match what {
        What::Latency => ns,
        _ => bytes as f64 * 1e3 / ns.max(1e-3),
    }
}

impl Record {
    fn of(row: &Row, of: &Findings) -> Record {
        let (what, found) = (row.cell.what, row.found.as_ref().ok());
        let value = |ns: f64| in_unit(what, row.cell.bytes, ns);
        let class = |at: usize| found.map(|it| it.classes[at]);
        let measure = Measure {
            size: row.cell.bytes,
            subject: row.who.name(),
            provider: of.provider(row.who).map(str::to_owned),
            mean: found.map(|it| value(it.mean_ns)),
            median: found.map(|it| value(it.median_ns)),
            p99: found.map(|it| value(it.p99_ns)),
            n: found.map(|it| it.samples),
            unit: if what == What::Latency { "ns" } else { "MB/s" },
            rounds: found.map(|it| it.classes.iter().sum()),
            near: class(0),
            far: class(1),
            mixed: class(2),
            of_spinning: found.and_then(|it| it.of_spinning),
            of_best: found.and_then(|it| it.of_best),
            checked: found.is_some() && !row.who.is_tool(),
            absent: row.found.as_ref().err().cloned(),
        };
        if what == What::Latency { Record::Latency(measure) } else { Record::Stream(measure) }
    }
}

/// One object a line.
///
/// # Errors
/// Not expected.
pub(super) fn json(found: &Findings) -> Result<String> {
    let Totals { latency_of_spinning, stream_of_best } = found.totals();
    let totals = Record::Totals { hosts: found.hosts, latency_of_spinning, stream_of_best };
    let notes = found.notes.iter().map(|text| Record::Note { text: text.clone() });
    let mut text = String::new();
    for record in found.rows.iter().map(|row| Record::of(row, found)).chain(notes).chain([totals]) {
        text += &serde_json::to_string(&record).map_err(|why| Fail::Said(why.to_string()))?;
        text.push('\n');
    }
    Ok(text)
}
