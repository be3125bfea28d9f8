//! `pinfold lab workload`: programs run by processes are right, and leave nothing, however they
//! end. `pinfold trace record --translations`: as many as the endpoint counts.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use pinfold_tests::skip;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_pinfold");
/// A time far beyond any that a test takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Names the processes of a test, which have it in their environment.
const MARK: &str = "PINFOLD_PROCESSES_MARK";

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn mark(&self) -> String {
        format!("{MARK}={}", self.0.path().display())
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(words.split(' ')).current_dir(self.0.path()).env(MARK, self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    #[track_caller]
    fn ends(&self, words: &str, code: i32) -> (String, String) {
        let done = self.command(words).output().unwrap();
        let (out, why) = said(&done);
        assert_eq!(done.status.code(), Some(code), "{words}: {out}{why}");
        (out, why)
    }

    /// The processes of this test that run, by their numbers.
    fn running(&self) -> Vec<i32> {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
        let mark = self.mark();
        let has_mark = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|it| it == mark.as_bytes())
        };
        pids.filter(has_mark).collect()
    }
}

fn said(done: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&done.stdout), text(&done.stderr))
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
fn object(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

fn number(object: &Value, field: &str) -> u64 {
    object[field].as_u64().unwrap_or_else(|| panic!("{field}: {object}"))
}

/// The totals of a trace: calls and bytes, by the call's name.
fn totals(place: &Place, file: &str) -> Vec<(String, u64, u64)> {
    let (text, _) = place.ends(&format!("trace summary {file} --json"), 0);
    let row = |line| {
        let row = object(line);
        assert_eq!(row["kind"], "endpoint", "{row}");
        (row["call"].as_str().unwrap().to_owned(), number(&row, "calls"), number(&row, "bytes"))
    };
    text.lines().map(row).collect()
}

fn sum(totals: &[(String, u64, u64)], call: &str) -> u64 {
    totals.iter().filter(|it| it.0 == call).map(|it| it.1).sum()
}

const WORKLOADS: [&str; 7] = [
    "matrix",
    "radix-small",
    "radix-bulk",
    "sample-small",
    "sample-bulk",
    "integer-sort",
    "fourier",
];

#[test]
fn each_workload_is_right_by_two_processes_and_by_eight() {
    for workload in WORKLOADS {
        for processes in [2, 8] {
            let place = Place::new();
            let words =
                format!("lab workload {workload} --processes {processes} --trace trace --json");
            let (text, _) = place.ends(&words, 0);
            let ran = object(&text);
            let mut pids: Vec<u64> =
                ran["pids"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect();
            pids.sort_unstable();
            pids.dedup();
            assert_eq!(pids.len(), processes, "a process each: {text}");
            // The trace has every transfer.
            let all = totals(&place, "trace");
            for (call, field) in [("message", "messages"), ("put", "puts"), ("get", "gets")] {
                assert_eq!(sum(&all, call), number(&ran, field), "{workload}: {call}");
            }
            let bytes: u64 = all.iter().map(|it| it.2).sum();
            assert_eq!(bytes, number(&ran, "bytes"), "{workload}");
            assert!(bytes > 0 && number(&ran, "phases") > 1, "{text}");
            assert!(place.running().is_empty(), "{workload}");
        }
    }
}

/// A run that takes long enough to be disturbed.
const LONG: &str = "lab workload integer-sort --processes 5 --turns 300 --size 32768";

/// The children of a process that are ranks by now.
fn ranks(child: &Child) -> Vec<i32> {
    let own = child.id().cast_signed();
    let tasks = fs::read_dir(format!("/proc/{own}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids: Vec<i32> = lists
        .flat_map(|list| list.split_whitespace().map(|it| it.parse().unwrap()).collect::<Vec<_>>())
        .collect();
    let is_rank = |pid: &i32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|it| it.ends_with(b"\0lab\0rank\0"))
    };
    pids.into_iter().filter(is_rank).collect()
}

#[test]
fn a_process_that_dies_is_named_and_no_other_is_left() {
    let place = Place::new();
    let run = place.command(LONG).spawn().unwrap();
    let mut all = Vec::new();
    until("five ranks run", || {
        all = ranks(&run);
        all.len() == 5
    });
    kill_process(Pid::from_raw(all[2]).unwrap(), Signal::KILL).unwrap();
    let done = run.wait_with_output().unwrap();
    let (out, why) = said(&done);
    assert_eq!(done.status.code(), Some(1), "{out}{why}");
    assert!(out.is_empty(), "{out}");
    assert!(why.contains(&format!("process {}, was ended by signal 9", all[2])), "{why}");
    assert!(place.running().is_empty(), "a process is left");
}

#[test]
fn no_process_outlives_the_command() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let place = Place::new();
        let run = place.command(LONG).spawn().unwrap();
        until("five ranks run", || ranks(&run).len() == 5);
        kill_process(Pid::from_child(&run), signal).unwrap();
        let done = run.wait_with_output().unwrap();
        assert_eq!(done.status.signal(), Some(signal.as_raw()), "{:?}", said(&done));
        until("all are gone", || place.running().is_empty());
    }
}

#[test]
fn workloads_that_make_no_sense() {
    let place = Place::new();
    for (words, code, says) in [
        ("lab workload nonsense", 2, "is none of matrix, radix-small"),
        ("lab workload matrix --processes 1", 2, "take 2 to 64"),
        ("lab workload matrix --processes 65", 2, "take 2 to 64"),
        ("lab workload fourier --processes 6", 2, "powers of two"),
        ("lab workload radix-bulk --size 3", 2, "size 3 of radix-bulk"),
        ("lab workload matrix --trace nowhere/trace", 1, "cannot write nowhere/trace"),
        ("lab rank", 1, "`pinfold lab workload`"),
    ] {
        let (out, why) = place.ends(words, code);
        assert!(out.is_empty() && why.contains(says), "{words}: {why}");
    }
}

#[test]
fn as_many_translations_are_recorded_as_the_endpoint_counts() {
    let place = Place::new();
    let sends = "lab sends --messages 500 --buffers 90 --bytes 65536";
    let alone = place.command(sends).output().unwrap();
    if !alone.status.success() {
        return skip(&said(&alone).1);
    }
    let words = format!("trace record --translations --out trace -- {PROGRAM} {sends}");
    let (text, why) = place.ends(&words, 0);
    let counters = object(&text);
    let all = totals(&place, "trace");
    let mut count = 0;
    for call in ["tlb_hit", "pin_hit", "pin_miss"] {
        assert_eq!(sum(&all, call), number(&counters, call), "{call}: {text}");
        count += number(&counters, call);
    }
    assert!(count >= 500 && number(&counters, "tlb_hit") > 0, "{text}");
    assert!(why.contains(&format!("{count} translations are in trace")), "{why}");
    // The tools know them: there and back, cut, printed.
    place.ends("trace convert trace --to csv --out trace.csv", 0);
    place.ends("trace convert trace.csv --to binary --out again", 0);
    let read = |name: &str| fs::read(place.0.path().join(name)).unwrap();
    assert!(read("trace") == read("again"));
    place.ends("trace cut trace --call pin_miss --kind endpoint --out misses", 0);
    assert_eq!(totals(&place, "misses").len(), 1);
    let (line, _) = place.ends("trace print misses --limit 1", 0);
    assert!(line.contains("pin_miss -1 endpoint 0x") && line.ends_with("= 65536\n"), "{line}");
    let bytes = read("trace");
    fs::write(place.0.path().join("cut"), &bytes[..bytes.len() - 3]).unwrap();
    let (_, why) = place.ends("trace summary cut", 1);
    assert!(why.contains("cut: it is cut off in block"), "{why}");
}

#[test]
fn programs_without_translations_end_as_they_do() {
    let place = Place::new();
    let record = "trace record --translations --out trace --";
    let (_, why) = place.ends(&format!("{record} false"), 1);
    assert!(why.contains("0 translations are in trace") && why.contains("pinfold doctor"), "{why}");
    let (_, why) = place.ends(&format!("{record} /nowhere/program"), 125);
    assert!(why.contains("cannot run /nowhere/program"), "{why}");
    let (_, why) = place.ends("trace record --translations --kinds pipe -- true", 2);
    assert!(why.contains("cannot be used with"), "{why}");
}
