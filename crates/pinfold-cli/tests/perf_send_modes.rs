//! `pinfold perf send-modes` from outside: its rows, its JSON, CSV and page, and how it ends. No
//! times.

use std::{
    env, fs,
    os::unix::process::CommandExt,
    process::{Command, Output},
    sync::{Mutex, MutexGuard, PoisonError},
};

use pinfold_tests::{filter, skip::skip};
use serde_json::Value;

const MODES: [&str; 7] =
    ["plain", "two-copy", "per-send", "cached", "aligned", "automatic", "automatic-unregistered"];
/// Messages of a turn.
const BATCH: u64 = 16;
/// The variable that names what is taken away before the program begins, for [`confined`].
const PLAN: &str = "PINFOLD_MODES_PLAN";

/// One run at a time: each would like a core for itself.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pinfold(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pinfold"));
    command.args(["perf", "send-modes"]).args(args);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a run that succeeds. `None`, loudly, where there can be no network to send into.
fn measured(done: Output) -> Option<String> {
    let said = text(&done.stderr);
    if said.contains("nothing can be measured without a network namespace") {
        skip(&said);
        return None;
    }
    assert_eq!(done.status.code(), Some(0), "{said}");
    Some(text(&done.stdout))
}

/// The lines of `--json`; other lines that a run of this program prints are no objects.
fn lines(out: &str) -> Vec<Value> {
    let objects = out.lines().filter(|line| line.starts_with('{'));
    objects.map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn of<'a>(lines: &'a [Value], what: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["what"] == what).collect()
}

fn names(value: &Value) -> String {
    let mut names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names.join(" ")
}

const SEND: &str = "absent bytes copied cpu_ns cpu_ns_gb elapsed_ns mode notified of_best of_two_copy \
                    pieces rounds source took what";
const LOCK: &str = "bytes call_ns copy_cache_ns copy_memory_ns register_ns send_copy_cache_ns \
                    send_copy_memory_ns send_pin_ns unregister_ns what";
const VERIFIED: &str = "absent bytes copied messages mode notified what";
const TOTALS: &str = "cache_of_two_copy memory_of_two_copy messages what worst_bytes worst_of_best \
                      worst_pieces worst_source";

/// Checks that each cell has a row of each mode, that measured figures add up, and that the others
/// have a reason.
fn check_sends(sends: &[&Value], cells: usize) {
    assert_eq!(sends.len(), cells * MODES.len());
    for cell in sends.chunks(MODES.len()) {
        for (row, mode) in cell.iter().zip(MODES) {
            assert_eq!((names(row), &row["mode"]), (SEND.into(), &mode.into()));
            for field in ["bytes", "pieces", "source"] {
                assert_eq!(row[field], cell[0][field]);
            }
            if let Some(why) = row["absent"].as_str() {
                assert!(
                    !why.is_empty() && row["cpu_ns"].is_null() && row["took"].is_null(),
                    "{row}"
                );
                continue;
            }
            let rounds = row["rounds"].as_u64().unwrap();
            assert!(rounds > 0 && row["elapsed_ns"].as_f64().unwrap() > 0.0, "{row}");
            let (ns, bytes) = (row["cpu_ns"].as_f64().unwrap(), row["bytes"].as_f64().unwrap());
            assert!(ns > 0.0);
            assert!((row["cpu_ns_gb"].as_f64().unwrap() / (ns * 1e9 / bytes) - 1.0).abs() < 1e-9);
            let took = row["took"].as_str().unwrap();
            let may = match mode {
                "automatic" => &MODES[..5],
                "automatic-unregistered" => &MODES[..3],
                own => &[own][..],
            };
            assert!(may.contains(&took), "{row}");
            // Each that was not to be copied has its notice.
            let told = if took == "plain" || took == "two-copy" { 0 } else { rounds * BATCH };
            assert_eq!(row["notified"], told, "{row}");
            assert!(row["copied"].as_u64().unwrap() <= told, "{row}");
            if mode == "two-copy" {
                assert_eq!(row["of_two_copy"], 1.0);
            }
        }
        // One mode is the best, and the modes that choose are compared with it.
        let best = cell[..5].iter().filter(|row| row["of_best"] == 1.0).count();
        assert!(best >= 1, "{cell:?}");
    }
}

#[test]
fn every_mode_has_its_rows() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let [csv, html] = ["x.csv", "x.html"].map(|name| folder.path().join(name));
    let args = ["--json", "--sizes", "63000,136,5000", "--pieces", "3,1", "--rounds", "4"];
    let files = ["--csv", csv.to_str().unwrap(), "--html", html.to_str().unwrap()];
    let done = pinfold(&[&args[..], &files[..]].concat()).output().unwrap();
    let Some(out) = measured(done) else { return };
    let all = lines(&out);
    let sends = of(&all, "send");
    check_sends(&sends, 3 * 2 * 2);
    // The longest message in pieces lies in more pages than a packet can name, and is copied.
    for row in sends.iter().filter(|row| row["bytes"] == 63_000 && row["pieces"] == 3) {
        match row["mode"].as_str().unwrap() {
            "plain" | "two-copy" => {}
            "automatic" | "automatic-unregistered" if row["absent"].is_null() => {
                assert!(["plain", "two-copy"].contains(&row["took"].as_str().unwrap()), "{row}");
            }
            _ => assert!(row["absent"].is_string(), "{row}"),
        }
    }
    // Without a receiver no copy is made.
    for row in sends.iter().filter(|row| row["mode"] == "cached" && row["absent"].is_null()) {
        assert_eq!(row["copied"], 0, "{row}");
    }
    let locks = of(&all, "lock");
    assert_eq!(
        locks.iter().map(|lock| lock["bytes"].as_u64().unwrap()).collect::<Vec<_>>(),
        [136, 5000, 63_000]
    );
    for lock in locks {
        assert_eq!(names(lock), LOCK);
        assert!(
            lock["copy_cache_ns"].as_f64().unwrap() > 0.0
                && lock["call_ns"].as_f64().unwrap() > 0.0
        );
        // By difference, from the rows above.
        let ns = |mode: &str| {
            let row = sends.iter().find(|row| {
                let own = (&row["mode"], &row["bytes"], &row["pieces"], &row["source"]);
                own == (&mode.into(), &lock["bytes"], &1.into(), &"memory".into())
            });
            row.unwrap()["cpu_ns"].as_f64()
        };
        let expected = ns("two-copy").zip(ns("cached")).map(|(more, less)| more - less);
        assert_eq!(lock["send_copy_memory_ns"].as_f64(), expected);
    }
    let verified = of(&all, "verified");
    assert_eq!(verified.len(), 5);
    for (one, mode) in verified.iter().zip(MODES) {
        assert_eq!((names(one), &one["mode"]), (VERIFIED.into(), &mode.into()));
        let count = |field: &str| one[field].as_u64().unwrap();
        if one["absent"].is_null() {
            assert_eq!((count("messages"), count("bytes")), (5, 136 + 2 * 3936 + 16_000 + 63_000));
            let told = if mode == "plain" || mode == "two-copy" { 0 } else { 5 };
            // With a receiver on the same host all are copied, and the kernel says so.
            assert_eq!((count("notified"), count("copied")), (told, told), "{one}");
        }
    }
    let totals = all.last().unwrap();
    assert_eq!((names(totals), &totals["what"]), (TOTALS.into(), &"totals".into()));
    let worst = |row: &&&Value| row["mode"] == "automatic";
    let worst =
        sends.iter().filter(worst).filter_map(|row| row["of_best"].as_f64()).fold(0.0, f64::max);
    assert_eq!(totals["worst_of_best"], worst);
    // The calibration's messages come on top.
    let rows = sends.iter().filter_map(|row| row["rounds"].as_u64()).sum::<u64>() * BATCH;
    assert!(totals["messages"].as_u64().unwrap() > rows, "{totals}");

    let csv = fs::read_to_string(csv).unwrap();
    let table: Vec<&str> = csv.lines().collect();
    assert_eq!(table.len(), sends.len() + 1);
    let columns: Vec<&str> = table[0].split(',').collect();
    let mut sorted = columns.clone();
    sorted.push("what");
    sorted.sort_unstable();
    assert_eq!(sorted.join(" "), SEND);
    assert!(table[1].starts_with("136,1,cache,plain,4,"), "{}", table[1]);

    let html = fs::read_to_string(html).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"));
    assert_eq!(html.matches("<svg").count(), 4);
    assert!(!html.contains("http"), "the page needs nothing from elsewhere");
}

#[test]
fn a_quick_run_has_all_rows_for_people() {
    let _alone = alone();
    let Some(out) = measured(pinfold(&["--quick", "--json"]).output().unwrap()) else { return };
    check_sends(&of(&lines(&out), "send"), 5 * 2 * 2);
    let few = ["--sizes", "136", "--pieces", "1", "--sources", "cache", "--rounds", "3"];
    let out = measured(pinfold(&few).output().unwrap()).unwrap();
    for part in ["ONE PIECE, WRITTEN A MOMENT AGO", "LOCK, COPY, UNLOCK", "CONTENTS", "TOTALS"] {
        assert_eq!(out.matches(part).count(), 1, "{part}: {out}");
    }
    assert!(!out.contains("FLUSHED"), "{out}");
    // No time is time for one cell, and the output names those left out.
    let few = ["--sizes", "136,137", "--sources", "cache", "--pieces", "1", "--seconds", "1e-6"];
    let out = measured(pinfold(&few).output().unwrap()).unwrap();
    assert!(out.contains("there was no time for 1 of 2 cells"), "{out}");
}

/// Not a test of its own: takes away what [`PLAN`] says and becomes the program.
#[test]
fn confined() {
    let Ok(plan) = env::var(PLAN) else { return };
    let call = match &*plan {
        "setup" => libc::SYS_io_uring_setup,
        "register" => libc::SYS_io_uring_register,
        "unshare" => libc::SYS_unshare,
        other => panic!("{other}?"),
    };
    filter::deny(&[call], libc::EPERM);
    let few =
        ["--json", "--sizes", "136", "--pieces", "1,2", "--sources", "cache", "--rounds", "3"];
    panic!("{}", pinfold(&few).exec());
}

fn run_without(call: &str) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "confined", "--nocapture"]).env(PLAN, call).output().unwrap()
}

#[test]
fn what_is_denied_has_rows_that_say_so() {
    let _alone = alone();
    for call in ["setup", "register"] {
        let Some(out) = measured(run_without(call)) else { return };
        let all = lines(&out);
        let sends = of(&all, "send");
        check_sends(&sends, 2);
        for row in &sends {
            match row["mode"].as_str().unwrap() {
                "plain" => assert!(row["cpu_ns"].is_number(), "{row}"),
                "automatic" | "automatic-unregistered" => assert_eq!(row["took"], "plain", "{row}"),
                _ => {
                    let why = row["absent"].as_str().expect("a reason");
                    assert!(why.contains("io_uring") && why.contains("seccomp"), "{why}");
                }
            }
        }
        let lock = of(&all, "lock")[0];
        assert!(lock["register_ns"].is_null() && lock["copy_cache_ns"].is_number(), "{lock}");
        assert_eq!(of(&all, "verified")[0]["messages"], 5);
        assert!(!of(&all, "note").is_empty(), "what registering costs is not known: {out}");
    }
    let done = run_without("unshare");
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("nothing can be measured without a network namespace"), "{said}");
}

#[test]
fn what_makes_no_sense_is_said() {
    for (args, why) in [
        (&["--sizes", "0"][..], "nothing to measure"),
        (&["--sizes", "65508"], "65507 is the most"),
        (&["--sizes", "3", "--pieces", "1,4"], "cannot be cut"),
        (&["--pieces", "9"], "1..=8"),
        (&["--pieces", "0"], "1..=8"),
        (&["--sources", "warm"], "possible values: cache, memory"),
        (&["--rounds", "0"], "0"),
        (&["--seconds", "0"], "give a positive number"),
        (&["--quick", "--seconds", "60"], "leave it out"),
        (&["--core", "99999"], "99999"),
        (&["4096"], "unexpected argument"),
    ] {
        let done = pinfold(args).output().unwrap();
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(why) && done.stdout.is_empty(), "{args:?}: {said}");
    }
    for option in ["--html", "--csv"] {
        let done = pinfold(&[option, "/nowhere/x"]).output().unwrap();
        assert_eq!(done.status.code(), Some(1));
        assert!(text(&done.stderr).contains("/nowhere/x"), "{}", text(&done.stderr));
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let _alone = alone();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let few = ["--sizes", "136", "--pieces", "1", "--rounds", "1"];
    let done = pinfold(&few).stdout(full).output().unwrap();
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write") || said.contains("network namespace"), "{said}");
}
