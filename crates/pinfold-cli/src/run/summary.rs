//! The sum of all ranks' counters of a run: for people and for programs.

use std::{collections::BTreeSet, time::Duration};

use pinfold::{
    Path,
    status::{self, PathCount, Report},
};
use pinfold_bench::units;
use serde_json::{Value, json};

use super::{
    args::{Over, RunArgs},
    find::Mpi,
    hosts::{Cable, Hosts},
    place::Place,
};

/// The end of a run.
pub(super) struct Summary {
    mpi: Value,
    over: Over,
    ranks: u32,
    hosts: u8,
    exit: u8,
    seconds: f64,
    reports: Vec<Report>,
    /// An error of reading the reports.
    unread: Option<String>,
    cable: Option<Cable>,
}

/// An MPI, for programs.
pub(super) fn mpi(mpi: &Mpi) -> Value {
    json!({
        "kind": mpi.kind.word(),
        "version": mpi.version,
        "mpiexec": mpi.mpiexec.to_string_lossy(),
        "why": mpi.why,
    })
}

impl Summary {
    /// Reads what the ranks left in `place`.
    pub(super) fn new(
        args: &RunArgs,
        used: &Mpi,
        place: &Place,
        hosts: Option<&Hosts>,
        exit: u8,
        seconds: f64,
    ) -> Summary {
        let (reports, unread) = match status::reports(&place.reports()) {
            Ok(reports) => (reports, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let cable = hosts.and_then(Hosts::cable);
        let (over, ranks, hosts) = (args.over, args.ranks, args.hosts);
        Summary { mpi: mpi(used), over, ranks, hosts, exit, seconds, reports, unread, cable }
    }

    fn processes(&self) -> usize {
        self.reports.iter().map(|report| report.pid).collect::<BTreeSet<_>>().len()
    }

    fn sum(&self, of: impl Fn(&status::Counters) -> u64) -> u64 {
        self.reports.iter().fold(0, |sum, report| sum.wrapping_add(of(&report.counters)))
    }

    /// Messages and bytes sent by a path.
    fn path(&self, path: Path) -> PathCount {
        let sent = |of: fn(&PathCount) -> u64| self.sum(|all| of(&all.sent[path as usize]));
        PathCount { messages: sent(|count| count.messages), bytes: sent(|count| count.bytes) }
    }

    /// One JSON object in one line.
    pub(super) fn json(&self) -> String {
        let paths: serde_json::Map<String, Value> = Path::ALL
            .into_iter()
            .map(|path| (path.name().to_owned(), json!(self.path(path))))
            .collect();
        let object = json!({
            "format": 1,
            "mpi": self.mpi,
            "over": self.over.word(),
            "ranks": self.ranks,
            "hosts": self.hosts,
            "exit": self.exit,
            "seconds": self.seconds,
            "reported": { "processes": self.processes(), "endpoints": self.reports.len() },
            "paths": paths,
            "one_sided": {
                "writes": self.sum(|all| all.one_sided.writes),
                "written_bytes": self.sum(|all| all.one_sided.written_bytes),
                "reads": self.sum(|all| all.one_sided.reads),
                "read_bytes": self.sum(|all| all.one_sided.read_bytes),
                "atomics": self.sum(|all| all.one_sided.atomics),
                "by_kernel": self.sum(|all| all.one_sided.by_kernel),
                "by_agent": self.sum(|all| all.one_sided.by_agent),
            },
            "pinned": {
                "tlb_hits": self.sum(|all| all.tlb_hits),
                "pin_hits": self.sum(|all| all.pin_hits),
                "pin_misses": self.sum(|all| all.pin_misses),
                "pin_evictions": self.sum(|all| all.pin_evictions),
            },
            "unexpected": self.sum(|all| all.unexpected),
            "sleeps": self.sum(|all| all.sleeps),
            "copied_user": self.sum(|all| all.copied_user),
            "copied_kernel": self.sum(|all| all.copied_kernel),
            "cable": self.cable,
        });
        format!("{object}\n")
    }

    /// Lines for a person.
    pub(super) fn lines(&self) -> Vec<String> {
        let took = units::seconds(Duration::from_secs_f64(self.seconds));
        let mut lines = vec![format!("ended with status {} after {took}", self.exit)];
        if self.over == Over::Pinfold {
            self.add_reported(&mut lines);
            self.add_paths(&mut lines);
            self.add_others(&mut lines);
        }
        if let Some(cable) = &self.cable {
            let amount =
                |bytes, packets| format!("{} in {packets} packets", units::gibibytes(bytes));
            lines.push(format!(
                "between the hosts: {} there, {} back",
                amount(cable.sent_bytes, cable.sent_packets),
                amount(cable.received_bytes, cable.received_packets)
            ));
        }
        lines
    }

    fn add_reported(&self, lines: &mut Vec<String>) {
        let (ranks, processes) = (self.ranks as usize, self.processes());
        if let Some(error) = &self.unread {
            lines.push(format!("what the ranks counted cannot be read: {error}"));
        } else if processes == 0 {
            lines.push(
                "no rank used Pinfold: is it a program of this MPI, and did it get as far as \
                 MPI_Finalize? FI_LOG_LEVEL=info shows what libfabric did"
                    .into(),
            );
        } else if processes < ranks {
            lines.push(format!(
                "{processes} of {ranks} ranks left their counters; the others were killed, or did \
                 not get as far as MPI_Finalize"
            ));
        }
    }

    fn add_paths(&self, lines: &mut Vec<String>) {
        let counts = Path::ALL.map(|path| self.path(path));
        let messages: u64 = counts.iter().map(|count| count.messages).sum();
        let bytes: u64 = counts.iter().map(|count| count.bytes).sum();
        if messages == 0 {
            return;
        }
        let share = |part: u64, whole: u64| match whole {
            0 => "-".to_owned(),
            _ => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
        };
        lines.push(format!("{:<8} {:>12} {:>21}", "path", "messages", "bytes"));
        for (path, count) in Path::ALL.into_iter().zip(counts) {
            if count.messages > 0 {
                lines.push(format!(
                    "{:<8} {:>12} {:>8} {:>12} {:>8}",
                    path.name(),
                    count.messages,
                    share(count.messages, messages),
                    units::gibibytes(count.bytes),
                    share(count.bytes, bytes)
                ));
            }
        }
        let all = units::gibibytes(bytes);
        lines.push(format!("{:<8} {messages:>12} {:>8} {all:>12}", "in all", ""));
    }

    /// One-sided operations and the pin-down cache, if there was any such work.
    fn add_others(&self, lines: &mut Vec<String>) {
        let writes = self.sum(|all| all.one_sided.writes);
        let reads = self.sum(|all| all.one_sided.reads);
        let atomics = self.sum(|all| all.one_sided.atomics);
        if writes + reads + atomics > 0 {
            let written = units::gibibytes(self.sum(|all| all.one_sided.written_bytes));
            let read = units::gibibytes(self.sum(|all| all.one_sided.read_bytes));
            lines.push(format!(
                "one-sided: {writes} writes ({written}), {reads} reads ({read}), {atomics} atomics"
            ));
        }
        let tlb = self.sum(|all| all.tlb_hits);
        let (hits, misses) = (self.sum(|all| all.pin_hits), self.sum(|all| all.pin_misses));
        if tlb + hits + misses > 0 {
            let ratio = (tlb + hits) as f64 * 100.0 / (tlb + hits + misses) as f64;
            lines.push(format!(
                "pin-down cache: {} hits ({tlb} in the TLB), {misses} misses, {ratio:.1} % hits, \
                 {} evictions",
                tlb + hits,
                self.sum(|all| all.pin_evictions)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(pid: u32, messages: u64, misses: u64) -> Report {
        let text = format!(
            r#"{{"pid":{pid},"counters":{{"pin_hits":{},"pin_misses":{misses}}}}}"#,
            3 * misses
        );
        let mut report: Report = serde_json::from_str(&text).unwrap();
        report.counters.sent[Path::Inline as usize] = PathCount { messages, bytes: messages * 8 };
        report.counters.sent[Path::Cma as usize] = PathCount { messages: 1, bytes: 1 << 20 };
        report
    }

    fn summary(reports: Vec<Report>) -> Summary {
        let (mpi, over) = (json!({ "kind": "mpich" }), Over::Pinfold);
        let cable = Some(Cable {
            sent_bytes: 1 << 20,
            sent_packets: 7,
            received_bytes: 5,
            received_packets: 1,
        });
        let (ranks, hosts, exit, seconds) = (2, 2, 3, 1.5);
        let unread = None;
        Summary { mpi, over, ranks, hosts, exit, seconds, reports, unread, cable }
    }

    #[test]
    fn ranks_are_summed() {
        let all = summary(vec![report(1, 10, 1), report(2, 5, 0), report(2, 0, 0)]);
        let object: Value = serde_json::from_str(&all.json()).unwrap();
        assert_eq!(object["reported"], json!({ "processes": 2, "endpoints": 3 }));
        assert_eq!(object["paths"]["inline"], json!({ "messages": 15, "bytes": 120 }));
        assert_eq!(object["paths"]["cma"]["bytes"], 3 << 20);
        assert_eq!(object["pinned"]["pin_hits"], 3);
        assert_eq!(object["cable"]["sent_packets"], 7);
        assert_eq!((&object["exit"], &object["hosts"]), (&json!(3), &json!(2)));
        let text = all.lines().join("\n");
        assert!(text.contains("ended with status 3"), "{text}");
        assert!(text.contains("inline             15   83.3 %        120 B    0.0 %"), "{text}");
        assert!(text.contains("3 hits (0 in the TLB), 1 misses, 75.0 % hits"), "{text}");
        assert!(text.contains("between the hosts: 1.00 MiB in 7 packets there"), "{text}");
        assert!(!text.contains("left their counters"), "{text}");
    }

    #[test]
    fn ranks_that_are_missing_are_told() {
        let one = summary(vec![report(1, 1, 0)]).lines().join("\n");
        assert!(one.contains("1 of 2 ranks left their counters"), "{one}");
        let none = summary(Vec::new()).lines().join("\n");
        assert!(none.contains("no rank used Pinfold"), "{none}");
    }
}
