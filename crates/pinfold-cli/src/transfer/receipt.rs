//! The receipt of a whole transfer: the receipts of its messages, summed.

use std::time::Duration;

use indicatif::{HumanBytes, HumanCount};
use pinfold::{Algorithm, Path, Receipt, Refusal};
use serde::Serialize;

use super::{failure::Failure, frame::Totals};

/// The side of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Side {
    /// `pinfold send`.
    Send,
    /// `pinfold recv`.
    Recv,
}

/// The receipts of the messages of a transfer, summed.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    taken: [Taken; Path::ALL.len()],
    copied_user: u64,
    copied_kernel: u64,
    /// The parts of `copied_user`, by the algorithm of the largest part of each message, in the
    /// order of the first.
    copied_by: Vec<(Algorithm, u64)>,
    /// The numbers of messages that a path was refused for, by reason, in the order of the first.
    refused: Vec<(Path, Refusal, u64)>,
}

/// The traffic over one path.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Taken {
    messages: u64,
    bytes: u64,
}

impl Tally {
    /// Adds the receipt of one message.
    pub(super) fn add(&mut self, receipt: &Receipt) {
        let taken = &mut self.taken[receipt.path as usize];
        taken.messages += 1;
        taken.bytes += receipt.bytes;
        self.copied_user += receipt.copied_user;
        self.copied_kernel += receipt.copied_kernel;
        if let Some(algorithm) = receipt.copied_by() {
            match self.copied_by.iter_mut().find(|known| known.0 == algorithm) {
                Some(known) => known.1 += receipt.copied_user,
                None => self.copied_by.push((algorithm, receipt.copied_user)),
            }
        }
        for (path, why) in receipt.refusals() {
            match self.refused.iter_mut().find(|known| (known.0, known.1) == (path, why)) {
                Some(known) => known.2 += 1,
                None => self.refused.push((path, why, 1)),
            }
        }
    }
}

/// The summary at the end of a transfer.
pub(super) struct Summary<'a> {
    /// The side that reports.
    pub(super) side: Side,
    /// The totals that were moved and verified.
    pub(super) totals: Totals,
    /// The number of directory entries that were not sent; for a receiver always 0.
    pub(super) skipped: u64,
    /// The number of modes and times that could not be kept; for a sender always 0.
    pub(super) unkept: u64,
    /// The time from the first record to the last.
    pub(super) elapsed: Duration,
    /// The receipts of the messages.
    pub(super) tally: &'a Tally,
}

#[derive(Serialize)]
struct SummaryJson<'a> {
    what: &'static str,
    side: Side,
    ok: bool,
    bytes: u64,
    files: u64,
    directories: u64,
    skipped: u64,
    unkept: u64,
    seconds: f64,
    bytes_per_second: f64,
    paths: serde_json::Map<String, serde_json::Value>,
    copied_user: u64,
    copied_by: serde_json::Map<String, serde_json::Value>,
    copied_kernel: u64,
    refused: Vec<RefusedJson<'a>>,
}

#[derive(Serialize)]
struct RefusedJson<'a> {
    path: &'a str,
    why: String,
    messages: u64,
}

impl Summary<'_> {
    fn bytes_per_second(&self) -> f64 {
        self.totals.bytes as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The receipt as one line for a person.
    pub(super) fn line(&self) -> String {
        let done = match self.side {
            Side::Send => "sent",
            Side::Recv => "received",
        };
        let mut line = format!("{done} {}", HumanBytes(self.totals.bytes));
        let (files, directories) = (self.totals.files, self.totals.directories);
        let files = (files > 0).then(|| count(files, "file"));
        let directories = (directories > 0).then(|| match directories {
            1 => "1 directory".to_owned(),
            some => format!("{} directories", HumanCount(some)),
        });
        let both: Vec<String> = files.into_iter().chain(directories).collect();
        if !both.is_empty() {
            line.push_str(&format!(" in {}", both.join(" and ")));
        }
        if self.skipped > 0 {
            line.push_str(&format!(" ({} skipped)", HumanCount(self.skipped)));
        }
        if self.unkept > 0 {
            let what = if self.unkept == 1 { "mode or time" } else { "modes or times" };
            line.push_str(&format!(" ({} {what} not as sent)", HumanCount(self.unkept)));
        }
        let seconds = self.elapsed.as_secs_f64();
        let digits = if seconds < 1.0 { 3 } else { 1 };
        line.push_str(&format!(", verified, {seconds:.digits$} s"));
        line
    }

    /// The rest of the receipt, in lines: the rate, the paths, the copies, and the refusals.
    ///
    /// It has only the refusals that stood in the way: a cheaper path, or a message too long for a
    /// path, is part of the usual choice. Bytes that did not go by `eager` went by a path with
    /// fewer copies.
    pub(super) fn details(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.totals.bytes > 0 {
            lines.push(format!("{}/s", HumanBytes(self.bytes_per_second() as u64)));
        }
        for (path, taken) in Path::ALL.iter().zip(&self.tally.taken) {
            if taken.messages > 0 {
                let (bytes, messages) = (HumanBytes(taken.bytes), count(taken.messages, "message"));
                lines.push(format!("by {path}: {bytes} in {messages}"));
            }
        }
        lines.push(format!(
            "copied {} here{}, {} by the kernel",
            HumanBytes(self.tally.copied_user),
            self.mostly_by(),
            HumanBytes(self.tally.copied_kernel)
        ));
        for (path, why, messages) in &self.tally.refused {
            // A choice of this side is no news.
            let chosen = matches!(
                why,
                Refusal::TooLong
                    | Refusal::Slower
                    | Refusal::SwitchedOff
                    | Refusal::Kept
                    | Refusal::NotShareable
                    | Refusal::Declined
            );
            if !chosen && *path != Path::Eager {
                let messages = count(*messages, "message");
                lines.push(format!("not {path} for {messages}: {why}"));
            }
        }
        lines
    }

    /// The algorithm that copied the most bytes here, in words.
    fn mostly_by(&self) -> String {
        let most = self.tally.copied_by.iter().max_by_key(|(_, bytes)| *bytes);
        let mostly = if self.tally.copied_by.len() > 1 { "mostly " } else { "" };
        most.map(|(algorithm, _)| format!(" {mostly}by {algorithm}")).unwrap_or_default()
    }

    /// The receipt as one JSON object, with every refusal.
    pub(super) fn json(&self) -> String {
        let paths = Path::ALL.iter().zip(&self.tally.taken).filter(|(_, taken)| taken.messages > 0);
        let refused = self.tally.refused.iter().map(|(path, why, messages)| RefusedJson {
            path: path.name(),
            why: why.to_string(),
            messages: *messages,
        });
        let json = SummaryJson {
            what: "transfer",
            side: self.side,
            ok: true,
            bytes: self.totals.bytes,
            files: self.totals.files,
            directories: self.totals.directories,
            skipped: self.skipped,
            unkept: self.unkept,
            seconds: self.elapsed.as_secs_f64(),
            bytes_per_second: self.bytes_per_second(),
            paths: paths
                .map(|(path, taken)| (path.name().to_owned(), serde_json::json!(taken)))
                .collect(),
            copied_user: self.tally.copied_user,
            copied_by: self
                .tally
                .copied_by
                .iter()
                .map(|(algorithm, bytes)| (algorithm.to_string(), (*bytes).into()))
                .collect(),
            copied_kernel: self.tally.copied_kernel,
            refused: refused.collect(),
        };
        serde_json::json!(json).to_string()
    }
}

/// A count of entries, in words.
fn count(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", HumanCount(number))
}

/// A failure as one JSON object.
pub(super) fn failure_json(side: Side, failure: &Failure) -> String {
    serde_json::json!({
        "what": "transfer",
        "side": side,
        "ok": false,
        "status": failure.status(),
        "error": failure.to_string(),
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(path: Path, bytes: u64, user: u64, kernel: u64) -> Receipt {
        let mut receipt = Receipt::new(path, bytes);
        receipt.copied_user = user;
        receipt.copied_kernel = kernel;
        receipt
    }

    fn summary(tally: &Tally) -> Summary<'_> {
        Summary {
            side: Side::Send,
            totals: Totals { files: 2, directories: 0, bytes: 3 << 20 },
            skipped: 1,
            unkept: 0,
            elapsed: Duration::from_millis(500),
            tally,
        }
    }

    #[test]
    fn receipts_add_up() {
        let mut tally = Tally::default();
        tally.add(&receipt(Path::Cma, 1 << 20, 0, 1 << 20));
        tally.add(&receipt(Path::Cma, 1 << 20, 0, 0));
        tally.add(&receipt(Path::Inline, 40, 40, 0));
        let line = summary(&tally).line();
        assert_eq!(line, "sent 3.00 MiB in 2 files (1 skipped), verified, 0.500 s");
        let long = Summary { elapsed: Duration::from_millis(8540), ..summary(&tally) };
        assert!(long.line().ends_with(", verified, 8.5 s"), "{}", long.line());
        let details = [
            "6.00 MiB/s",
            "by inline: 40 B in 1 message",
            "by cma: 2.00 MiB in 2 messages",
            "copied 40 B here by libc, 1.00 MiB by the kernel",
        ];
        assert_eq!(summary(&tally).details(), details);
    }

    #[test]
    fn a_person_hears_only_of_what_stood_in_the_way() {
        let mut tally = Tally::default();
        tally.add(&receipt(Path::Cma, 1 << 20, 0, 1 << 20));
        tally.refused =
            vec![(Path::Eager, Refusal::NoCredit, 1), (Path::Inline, Refusal::TooLong, 1)];
        let lines = summary(&tally).details();
        assert!(lines.iter().all(|line| !line.contains("not ")), "{lines:?}");
        let nothing =
            Summary { totals: Totals { files: 1, ..Totals::default() }, ..summary(&tally) };
        assert!(nothing.details().iter().all(|line| !line.contains("/s")));
        let hollow = Totals { directories: 2, ..Totals::default() };
        let hollow = Summary { totals: hollow, unkept: 3, ..summary(&tally) };
        let wanted =
            "sent 0 B in 2 directories (1 skipped) (3 modes or times not as sent), verified";
        assert!(hollow.line().starts_with(wanted), "{}", hollow.line());
        let json: serde_json::Value = serde_json::from_str(&summary(&tally).json()).unwrap();
        assert_eq!(json["refused"].as_array().unwrap().len(), 2, "{json}");
        tally.refused.push((Path::Cma, Refusal::Denied(1), 3));
        let lines = summary(&tally).details();
        assert!(lines.iter().any(|line| line.starts_with("not cma for 3 messages: denied")));
    }

    #[test]
    fn what_was_copied_most_is_named() {
        let mut tally = Tally::default();
        tally.add(&receipt(Path::Eager, 1000, 1000, 0));
        tally.copied_by.push(("avx2+streaming".parse().unwrap(), 1 << 20));
        tally.add(&receipt(Path::Eager, 1000, 2000, 0));
        let lines = summary(&tally).details();
        assert!(lines[2].contains("2.93 KiB here mostly by avx2+streaming,"), "{lines:?}");
        let json: serde_json::Value = serde_json::from_str(&summary(&tally).json()).unwrap();
        let wanted = serde_json::json!({"libc": 3000, "avx2+streaming": 1 << 20});
        assert_eq!(json["copied_by"], wanted);
    }

    #[test]
    fn json_has_every_number() {
        let mut tally = Tally::default();
        tally.add(&receipt(Path::Eager, 1000, 1000, 0));
        let json: serde_json::Value = serde_json::from_str(&summary(&tally).json()).unwrap();
        assert_eq!(json["ok"], true);
        assert_eq!(json["side"], "send");
        assert_eq!(json["bytes"], 3 << 20);
        assert_eq!(json["files"], 2);
        assert_eq!((&json["directories"], &json["unkept"]), (&0.into(), &0.into()));
        assert_eq!(json["skipped"], 1);
        assert_eq!(json["paths"]["eager"]["messages"], 1);
        assert_eq!(json["paths"]["eager"]["bytes"], 1000);
        assert!(json["paths"].get("cma").is_none());
        assert_eq!(json["copied_user"], 1000);
        assert_eq!(json["copied_by"], serde_json::json!({"libc": 1000}));
        assert_eq!(json["bytes_per_second"], (6 << 20) as f64);
    }

    #[test]
    fn a_failure_has_its_status() {
        let json = failure_json(Side::Recv, &Failure::OutputClosed { bytes: 3 });
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["ok"], &json["status"]), (&false.into(), &5.into()));
    }
}
