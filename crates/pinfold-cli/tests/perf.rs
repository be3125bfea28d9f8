//! `pinfold perf` from outside: its options, its JSON, its page, and how it ends.

#[path = "perf/harness.rs"]
mod harness;
#[path = "perf/settings.rs"]
mod settings;

use std::{
    fs,
    io::Read,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use self::harness::{alone, has, pinfold, records, run, text, unhurried};

#[test]
fn a_quick_run_measures_everything() {
    let _alone = alone();
    let page = std::env::temp_dir().join(format!("pinfold-perf-{}.html", std::process::id()));
    let args = ["--json", "--quick", "--rounds", "1", "--sizes", "8,5000", "--seconds"];
    let done = unhurried(|seconds| {
        // No more than --quick allows.
        let seconds = if seconds == "30" { "24" } else { seconds };
        pinfold().args(args).args([seconds, "--html"]).arg(&page).output().unwrap()
    });
    assert!(done.status.success(), "{}", text(&done.stderr));
    let records = records(&done.stdout);
    for what in ["latency", "bandwidth", "bidirectional", "rate", "cpu"] {
        assert!(has(&records, "what", what), "{what}: {}", text(&done.stderr));
    }
    // A subject that a filter forbids is named, not passed over; the rest is always there.
    for subject in ["pinfold", "memcpy", "pipe", "unix", "line", "ring", "mapping"] {
        assert!(has(&records, "subject", subject), "{subject}: {}", text(&done.stderr));
    }
    for subject in ["cma", "cma-write", "tcp"] {
        let named = text(&done.stderr).contains(subject);
        assert!(has(&records, "subject", subject) || named, "{subject}");
    }
    let paths = ["inline", "eager", "mapped", "handoff", "put", "get", "fetch-add", "contended"];
    for path in paths.into_iter().chain(["active", "auto"]) {
        assert!(has(&records, "path", path), "{path}: {}", text(&done.stderr));
    }
    let rows = |path, what| {
        let is_it = |record: &&Value| record["path"] == path && record["what"] == what;
        let mut sizes: Vec<_> =
            records.iter().filter(is_it).filter_map(|record| record["size"].as_u64()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    };
    assert_eq!(rows("get", "latency"), rows("put", "latency"));
    assert_eq!(rows("get", "latency"), [8, 5000]);
    assert_eq!((rows("active", "latency"), rows("active", "rate")), (vec![8], vec![8]));
    assert_eq!(rows("contended", "rate"), [8]);
    // By address: if the kernel denies it, the agent does it.
    for path in ["write", "read", "write-agent", "read-agent"] {
        let at = |memory: &str| {
            let is_it = |r: &&Value| r["path"] == path && r["memory"] == memory;
            let mut cells: Vec<_> = records
                .iter()
                .filter(is_it)
                .map(|record| (record["what"].to_string(), record["size"].as_u64().unwrap()))
                .collect();
            cells.sort();
            cells.dedup();
            cells
        };
        let named = text(&done.stderr).contains(&format!("pinfold {path} cannot"));
        let all = [("\"latency\"", 8), ("\"latency\"", 5000), ("\"rate\"", 8)];
        let all: Vec<_> = all.iter().map(|(what, size)| (what.to_string(), *size)).collect();
        assert!(named || at("heap") == all, "{path}: {:?} {}", at("heap"), text(&done.stderr));
        assert_eq!(!at("arena").is_empty(), !path.contains("agent"), "{path}");
    }
    assert!(records.iter().all(|record| record["touched"] == false));
    let html = fs::read_to_string(&page).unwrap();
    let _ = fs::remove_file(&page);
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<svg"));
    assert!(!html.contains("http"), "the page needs nothing from elsewhere");
}

#[test]
fn touched_messages_are_said_to_be() {
    let _alone = alone();
    let done =
        run(&["--json", "--touch", "--rounds", "1", "--seconds", "2", "--sizes", "64,70000"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let records = records(&done.stdout);
    assert!(!records.is_empty());
    assert!(records.iter().all(|record| record["touched"] == true));
}

#[test]
fn messages_lie_where_they_are_asked_to() {
    let _alone = alone();
    let args = ["--json", "--rounds", "1", "--sizes", "70000", "--what", "latency,bandwidth"];
    for memory in ["heap", "arena"] {
        let done = unhurried(|seconds| {
            run(&[&args[..], &["--memory", memory, "--seconds", seconds]].concat())
        });
        assert!(done.status.success(), "{}", text(&done.stderr));
        let records = records(&done.stdout);
        let pinfold = || records.iter().filter(|record| record["subject"] == "pinfold");
        assert!(pinfold().count() > 0 && has(&records, "subject", "pipe"));
        assert!(pinfold().all(|record| record["memory"] == memory), "{records:?}");
        assert_eq!(has(&records, "path", "mapped"), memory == "arena");
        assert_eq!(has(&records, "subject", "mapping"), memory == "arena");
    }
}

#[test]
fn some_usual_messages_are_touched_too() {
    let _alone = alone();
    let done = run(&[
        "--json",
        "--quick",
        "--what",
        "latency",
        "--rounds",
        "1",
        "--subjects",
        "pinfold,pipe",
        "--settings",
        "alone",
    ]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    for record in records(&done.stdout) {
        // If messages are touched although not all are, they are those in an arena.
        let in_heap = record["subject"] == "pinfold" && record["memory"] == "heap";
        assert!(!(in_heap && record["touched"] == true), "{record}");
    }
    assert!(has(&records(&done.stdout), "memory", "arena"));
    assert!(records(&done.stdout).iter().any(|record| record["touched"] == true));
}

#[test]
fn without_arenas_the_rest_is_measured() {
    let _alone = alone();
    // A limit on file sizes denies arenas: files in memory count.
    let program = env!("CARGO_BIN_EXE_pinfold");
    let done = unhurried(|seconds| {
        let script = format!(
            "ulimit -f 2048 && exec {program} perf --json --rounds 1 --sizes 5000 --what latency \
             --seconds {seconds}"
        );
        Command::new("sh").args(["-c", &script]).output().unwrap()
    });
    assert!(done.status.success(), "{}", text(&done.stderr));
    let records = records(&done.stdout);
    assert!(has(&records, "path", "auto") && has(&records, "path", "eager"));
    assert!(!has(&records, "memory", "arena"), "{records:?}");
    let said = text(&done.stderr);
    for subject in ["pinfold mapped", "pinfold handoff", "pinfold auto arena", "mapping"] {
        assert!(said.contains(&format!("{subject} cannot be measured here")), "{said}");
    }
}

#[test]
fn a_table_is_for_people() {
    let _alone = alone();
    let args = ["--what", "latency,cpu", "--sizes", "8", "--rounds", "1", "--full", "--seconds"];
    let done = unhurried(|seconds| run(&[&args[..], &[seconds]].concat()));
    assert!(done.status.success(), "{}", text(&done.stderr));
    let out = text(&done.stdout);
    let parts = [
        "LATENCY",
        "PROCESSOR TIME",
        "vs best",
        "8 B",
        "pinfold inline",
        "samples",
        "took",
        "IS BEHIND",
    ];
    for part in parts {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!out.contains('\x1b'), "no colours unless on a terminal");
    assert!(!out.contains("BANDWIDTH"));
}

#[test]
fn nonsense_is_refused_with_2() {
    let _alone = alone();
    for args in [
        &["--sizes", "0"][..],
        &["--sizes", "many"],
        &["--what", "luck"],
        &["--memory", "stone"],
        &["--memory", "heap", "--paths", "mapped", "--subjects", "pinfold"],
        &["--seconds", "0"],
        &["--seconds", "-1"],
        &["--quick", "--seconds", "60"],
        &["--cores", "1"],
        &["--cores", "99999,99998"],
        &["--subjects", "line", "--what", "rate"],
        &["--listen", "local:x", "--connect", "local:x"],
        &["--listen", "local:x", "--sizes", "8"],
        &["--rounds", "0"],
        &["--settings", "elsewhere"],
        &["--settings", "tags", "--subjects", "ring"],
    ] {
        let done = run(args);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {}", text(&done.stderr));
        assert!(!done.stderr.is_empty() && done.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn failures_end_with_1_and_a_reason() {
    let _alone = alone();
    for (args, reason) in [
        (&["--connect", "nowhere"][..], "not an address"),
        (&["--html", "/nowhere/x.html", "--what", "rate", "--seconds", "0.2"], "/nowhere/x.html"),
    ] {
        let done = run(args);
        assert_eq!(done.status.code(), Some(1), "{args:?}");
        assert!(text(&done.stderr).contains(reason), "{}", text(&done.stderr));
    }
}

#[test]
fn what_was_measured_is_shown_although_the_page_cannot_be_written() {
    let _alone = alone();
    let full = ["--html", "/dev/full", "--what", "rate", "--seconds", "1", "--rounds", "1"];
    let done = run(&[&full[..], &["--json"]].concat());
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("cannot write /dev/full: No space"), "{done:?}");
    assert!(has(&records(&done.stdout), "what", "rate"));
}

#[test]
fn an_output_that_is_closed_or_full_is_an_error() {
    let _alone = alone();
    let start = |out: Stdio| {
        let args = ["--what", "rate", "--seconds", "4", "--rounds", "1"];
        pinfold().args(args).stdout(out).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let closed = start(write.into()).wait_with_output().unwrap();
    assert_eq!((closed.status.code(), &*text(&closed.stderr)), (Some(128 + 13), ""));
    let done = start(full.into()).wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(text(&done.stderr).contains("cannot write the results: No space left"), "{done:?}");
}

#[test]
fn a_size_that_is_given_twice_is_measured_once() {
    let _alone = alone();
    let args = ["--json", "--seconds", "30", "--rounds", "1", "--subjects", "ring,pipe"];
    let done = run(&[&args[..], &["--what", "latency", "--sizes", "64,8,64"]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    let mut seen: Vec<_> = records(&done.stdout)
        .iter()
        .map(|record| (record["subject"].to_string(), record["size"].as_u64().unwrap()))
        .collect();
    seen.sort();
    seen.dedup();
    let pipe_and_ring = ["pipe", "ring"].map(|name| format!("\"{name}\""));
    let expected: Vec<_> =
        pipe_and_ring.iter().flat_map(|name| [(name.clone(), 8), (name.clone(), 64)]).collect();
    assert_eq!(seen, expected);
    // One turn each, which is in one class.
    assert_eq!(records(&done.stdout).len(), 4);
}

/// The child that `parent` started.
fn child_of(parent: u32) -> Option<i32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}

/// Processor time that a process has used, in clock ticks.
fn ticks_of(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name, which may have anything in it: the 12th and 13th field, proc_pid_stat(5).
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// Starts a run that would take ten seconds, and waits until its second process measures: it has
/// worked for longer than any set-up takes. `None` if children cannot be found.
fn started(args: &[&str]) -> (Child, Option<i32>) {
    let mut child = pinfold()
        .args(["--json", "--seconds", "10"])
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let second = measuring(&mut child);
    (child, second)
}

/// Waits until the second process of a run measures.
fn measuring(child: &mut Child) -> Option<i32> {
    // Without CONFIG_PROC_CHILDREN it cannot be found.
    fs::metadata("/proc/thread-self/children").ok()?;
    loop {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it measured");
        if let Some(second) = child_of(child.id())
            && ticks_of(second) > 50
        {
            return Some(second);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn ends_within(child: &mut Child, patience: Duration) -> Option<std::process::ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < patience {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

#[test]
fn a_killed_second_process_ends_the_run_with_an_error() {
    let _alone = alone();
    for subject in ["ring", "pipe", "unix", "tcp", "cma", "pinfold"] {
        let (mut child, second) = started(&[
            "--subjects",
            &format!("memcpy,{subject}"),
            "--what",
            "latency,bandwidth,cpu",
            "--sizes",
            "1,64K",
            "--rounds",
            "40",
        ]);
        let Some(second) = second else {
            eprintln!("SKIPPED: the second process cannot be found here");
            let _ = child.kill();
            let _ = child.wait();
            return;
        };
        let second = rustix::process::Pid::from_raw(second).unwrap();
        rustix::process::kill_process(second, rustix::process::Signal::KILL).unwrap();
        let status = ends_within(&mut child, Duration::from_secs(10));
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = status.unwrap_or_else(|| panic!("{subject}: hangs: {said}"));
        assert_eq!(status.code(), Some(1), "{subject}: {said}");
        assert!(said.contains("killed by signal 9"), "{subject}: {said}");
        assert!(said.contains("while measuring"), "{subject}: {said}");
    }
}

#[test]
fn a_quick_run_with_a_stopped_process_is_given_up_and_shows_what_it_has() {
    let _alone = alone();
    let mut child = pinfold()
        .args(["--json", "--quick", "--seconds", "8", "--subjects", "memcpy,ring,pinfold"])
        .args(["--sizes", "8,64K", "--rounds", "40"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let Some(second) = measuring(&mut child) else {
        let _ = child.kill();
        let _ = child.wait();
        return eprintln!("SKIPPED: the second process cannot be found here");
    };
    let second = rustix::process::Pid::from_raw(second).unwrap();
    rustix::process::kill_process(second, rustix::process::Signal::STOP).unwrap();
    let done = child.wait_with_output().unwrap();
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("is given up"), "{said}");
    assert!(!records(&done.stdout).is_empty(), "{said}");
}

#[test]
fn a_killed_first_process_takes_the_second_along() {
    let _alone = alone();
    let (mut child, second) = started(&[
        "--subjects",
        "memcpy,pinfold,ring",
        "--sizes",
        "1,64K",
        "--what",
        "latency",
        "--rounds",
        "40",
    ]);
    child.kill().unwrap();
    child.wait().unwrap();
    let Some(second) = second else {
        return eprintln!("SKIPPED: the second process cannot be found here");
    };
    let start = Instant::now();
    let alive = || {
        let stat = fs::read_to_string(format!("/proc/{second}/stat")).unwrap_or_default();
        // A zombie waits for the process that adopted it, and holds nothing.
        !stat.is_empty() && !stat.contains(") Z ")
    };
    while alive() {
        assert!(start.elapsed() < Duration::from_secs(10), "the second process goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn two_terminals_meet() {
    let _alone = alone();
    let address = format!("local:perf-test-{}", std::process::id());
    let mut listener =
        pinfold().args(["--listen", &address]).stderr(Stdio::piped()).spawn().unwrap();
    let done = run(&[
        "--connect",
        &address,
        "--json",
        "--rounds",
        "1",
        "--seconds",
        "6",
        "--sizes",
        "8,4K",
        "--what",
        "latency,bandwidth",
    ]);
    let status = ends_within(&mut listener, Duration::from_secs(10));
    let mut said = String::new();
    listener.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(done.status.success(), "{} {said}", text(&done.stderr));
    assert!(status.is_some_and(|status| status.success()), "{said}");
    let records = records(&done.stdout);
    for subject in ["pinfold", "pipe", "unix", "line", "ring"] {
        assert!(has(&records, "subject", subject), "{subject}: {}", text(&done.stderr));
    }
    assert!(said.contains(&address), "{said}");
}

#[test]
fn nobody_at_the_address_is_an_error() {
    let _alone = alone();
    let done = run(&["--connect", &format!("local:perf-nobody-{}", std::process::id())]);
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("no endpoint listens"), "{}", text(&done.stderr));
}
