//! Runs of `pinfold perf`, and their output.

use std::{
    process::{Command, Output},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;

pub fn pinfold() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pinfold"));
    command.arg("perf").env_remove("NO_COLOR");
    command
}

/// One run at a time: each would like two cores for itself.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn run(args: &[&str]) -> Output {
    pinfold().args(args).output().unwrap()
}

/// Makes a run take longer until there was time for all of it: other programs may be busy beside
/// it.
pub fn unhurried(run: impl Fn(&str) -> Output) -> Output {
    for seconds in ["2", "8"] {
        let done = run(seconds);
        let said = [&done.stdout, &done.stderr].map(|bytes| text(bytes)).concat();
        if !said.contains("there was no time") && !said.contains("there is no time") {
            return done;
        }
    }
    run("30")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Parses and checks every line of `--json`.
pub fn records(out: &[u8]) -> Vec<Value> {
    let records: Vec<Value> =
        text(out).lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for record in &records {
        let mut names: Vec<&str> = record.as_object().unwrap().keys().map(|k| &**k).collect();
        names.sort_unstable();
        let promised = [
            "class", "mean", "median", "memory", "n", "p99", "path", "setting", "size", "subject",
            "touched", "unit", "what",
        ];
        assert_eq!(names, promised);
        let one_of = |name: &str, allowed: &[&str]| {
            assert!(allowed.contains(&record[name].as_str().unwrap()), "{record}");
        };
        one_of("what", &["latency", "bandwidth", "bidirectional", "rate", "cpu"]);
        let others =
            ["memcpy", "cma", "cma-write", "pipe", "unix", "tcp", "line", "ring", "mapping"];
        one_of("subject", &[&others[..], &["pinfold"]].concat());
        one_of("memory", &["heap", "arena"]);
        let shared = record["subject"] == "mapping"
            || ["mapped", "handoff", "put", "get", "fetch-add", "contended"]
                .map(Value::from)
                .contains(&record["path"]);
        // Either way, where the other side's memory is what makes the difference.
        let chosen = ["auto", "write", "read"].map(Value::from).contains(&record["path"]);
        assert!(chosen || shared == (record["memory"] == "arena"), "{record}");
        one_of(
            "setting",
            &["alone", "neighbour", "paced", "dedicated", "tags", "posted", "peers", "pairs"],
        );
        one_of("class", &["near", "far", "mixed"]);
        let unit = match record["what"].as_str().unwrap() {
            "latency" | "cpu" => "ns",
            "rate" => "M/s",
            _ => "MB/s",
        };
        assert_eq!(record["unit"], unit);
        assert_eq!(record["path"].is_string(), record["subject"] == "pinfold", "{record}");
        assert!(record["n"].as_u64().unwrap() > 0);
        assert!(record["mean"].as_f64().unwrap() >= 0.0);
        assert!(record["median"].as_f64().unwrap() >= 0.0);
        assert!(record["p99"].as_f64().unwrap() >= 0.0);
    }
    records
}

pub fn has(records: &[Value], name: &str, value: &str) -> bool {
    records.iter().any(|record| record[name] == value)
}
