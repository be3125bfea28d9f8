//! `pinfold perf tcp` from outside: its rows, its JSON and page, and how it ends. No times.

use std::{
    env, fs,
    os::unix::process::CommandExt,
    process::{Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use pinfold_tests::{filter, skip::skip};
use serde_json::Value;

const ALL: [&str; 6] = ["sockets", "spinning", "ring", "pinfold", "libfabric", "ucx"];
const MEASURE: &str = "absent checked far mean median mixed n near of_best of_spinning p99 provider rounds \
                       size subject unit what";

/// The variable that names what is taken away before the program begins, for [`confined`].
const PLAN: &str = "PINFOLD_TCP_PLAN";
/// The variable that marks the processes of a run.
const MARK: &str = "PINFOLD_TCP_MARK";

/// One run at a time: each would like the cores for itself.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pinfold(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pinfold"));
    command.arg("perf").args(args);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(done: &Output) -> Vec<Value> {
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let out = text(&done.stdout);
    // Other lines that a run of this program prints are no objects.
    out.lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

fn names(value: &Value) -> String {
    let mut names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names.join(" ")
}

/// Each cell has a row of each subject, in order; measured figures add up, and the others have a
/// reason.
fn check(lines: &[Value], cells: &[(&str, u64)], rounds: u64, hidden: &[&str]) {
    let rows: Vec<&Value> = lines
        .iter()
        .filter(|line| ["latency", "stream"].contains(&line["what"].as_str().unwrap()))
        .collect();
    assert_eq!(rows.len(), cells.len() * ALL.len());
    for (rows, &(what, size)) in rows.chunks(ALL.len()).zip(cells) {
        for (row, subject) in rows.iter().zip(ALL) {
            assert_eq!(names(row), MEASURE);
            assert_eq!((row["what"].as_str(), row["size"].as_u64()), (Some(what), Some(size)));
            assert_eq!(row["subject"], subject);
            assert_eq!(row["unit"], if what == "latency" { "ns" } else { "MB/s" });
            if let Some(why) = row["absent"].as_str() {
                assert!(!why.is_empty() && row["median"].is_null(), "{row}");
                assert!(!["sockets", "spinning", "pinfold"].contains(&subject), "{row}");
                match subject {
                    "ring" => skip(&format!("no io_uring: {why}")),
                    _ if why.contains("--no-tools") || hidden.contains(&subject) => {}
                    _ => absent_with_reason(subject, why),
                }
                continue;
            }
            assert_eq!(row["provider"].is_string(), subject == "libfabric", "{row}");
            // Only UCX's program checks nothing.
            assert_eq!(row["checked"], subject != "ucx", "{row}");
            for field in ["mean", "median", "p99", "of_spinning", "of_best"] {
                assert!(row[field].as_f64().is_some_and(|value| value > 0.0), "{field}: {row}");
            }
            let turns: u64 =
                ["near", "far", "mixed"].iter().map(|it| row[it].as_u64().unwrap()).sum();
            let had = row["rounds"].as_u64().unwrap();
            assert!(had == turns && (1..=rounds).contains(&had), "{row}");
            assert!(row["n"].as_u64().unwrap() >= had);
            if subject == "spinning" {
                assert_eq!(row["of_spinning"], 1.0);
            }
        }
        assert!(rows.iter().any(|row| row["of_best"] == 1.0), "{rows:?}");
    }
}

/// Another library may be absent for want of itself, of what it needs, or of time: there is no
/// other reason.
fn absent_with_reason(subject: &str, why: &str) {
    let known = [
        "is not installed",
        "is too old",
        "has no provider",
        "looks for networks in /sys",
        "took more than",
        "does not listen",
    ];
    assert!(known.iter().any(|it| why.contains(it)), "{subject}: {why}");
    skip(why);
}

fn totals(lines: &[Value]) -> &Value {
    let totals = lines.last().unwrap();
    assert_eq!(totals["what"], "totals");
    assert_eq!(names(totals), "hosts latency_of_spinning stream_of_best what");
    totals
}

#[test]
fn all_take_turns_over_the_loopback() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let html = folder.path().join("x.html");
    let args = ["tcp", "--json", "--latency", "8,1K", "--stream", "1M,100000", "--rounds", "2"];
    let done = pinfold(&args).args(["--html", html.to_str().unwrap()]).output().unwrap();
    let lines = lines(&done);
    let cells = [("latency", 8), ("latency", 1024), ("stream", 100_000), ("stream", 1 << 20)];
    check(&lines, &cells, 2, &[]);
    let totals = totals(&lines);
    assert_eq!(totals["hosts"], 1);
    let of = |what: &str, size: u64, ratio: &str| {
        let row = |row: &&Value| {
            row["what"] == what && row["size"] == size && row["subject"] == "pinfold"
        };
        lines.iter().find(row).unwrap()[ratio].clone()
    };
    assert_eq!(totals["latency_of_spinning"], of("latency", 8, "of_spinning"));
    assert_eq!(totals["stream_of_best"], of("stream", 1 << 20, "of_best"));
    let page = fs::read_to_string(html).unwrap();
    assert_eq!(page.matches("<svg").count(), 2);
}

#[test]
fn two_hosts_are_made() {
    let _alone = alone();
    for args in [
        &["tcp", "--hosts", "2", "--latency", "8", "--stream", "64K"][..],
        &["--hosts", "2", "--quick"],
    ] {
        let done =
            pinfold(args).args(["--json", "--rounds", "1", "--seconds", "20"]).output().unwrap();
        let said = text(&done.stderr);
        if said.contains("--hosts 2 takes two network namespaces, which cannot be had") {
            assert_eq!(done.status.code(), Some(1));
            skip(&said);
            return;
        }
        let lines = lines(&done);
        let quick = [("latency", 8), ("stream", 65_536), ("stream", 1 << 20)];
        check(&lines, if args[0] == "tcp" { &quick[..2] } else { &quick }, 1, &[]);
        assert_eq!(totals(&lines)["hosts"], 2);
    }
}

#[test]
fn what_is_absent_is_said() {
    let _alone = alone();
    let args = ["tcp", "--json", "--latency", "8", "--stream", "64K", "--rounds", "1"];
    // An empty PATH has no program, and a file that is no library does not count.
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("libfabric.so.1"), "no library").unwrap();
    let mut command = pinfold(&args);
    command.env("PATH", "/nonexistent").env("LD_LIBRARY_PATH", folder.path());
    let done = command.output().unwrap();
    let lines = lines(&done);
    check(&lines, &[("latency", 8), ("stream", 65_536)], 1, &["libfabric", "ucx"]);
    for (subject, package) in [("libfabric", "libfabric1"), ("ucx", "ucx-utils")] {
        let row = lines.iter().find(|row| row["subject"] == subject).unwrap();
        let why = row["absent"].as_str().unwrap();
        assert!(why.contains("is not installed") && why.contains(package), "{why}");
        assert!(text(&done.stderr).contains(why), "it is said aloud, too");
    }
    let done = pinfold(&args).arg("--no-tools").output().unwrap();
    assert!(text(&done.stderr).contains("--no-tools leaves it out"));
    assert_eq!(totals(&self::lines(&done))["stream_of_best"], Value::Null);
}

/// The processes that were begun with `mark` in their environment.
fn marked(mark: &str) -> Vec<(String, String)> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let is_marked = |pid: &String| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|it| it == format!("{MARK}={mark}").as_bytes())
    };
    processes
        .map(|process| process.file_name().to_string_lossy().into_owned())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(is_marked)
        .map(|pid| (fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default(), pid))
        .collect()
}

/// Looks until `done` says so, or half a minute long.
fn wait_until(mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > Duration::from_secs(30) {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    true
}

#[test]
fn nothing_stays_behind_when_a_run_is_killed() {
    let paths = env::var_os("PATH").unwrap_or_default();
    // A run without it would only be waited for, as long as it takes on a busy machine.
    if !env::split_paths(&paths).any(|dir| dir.join("ucx_perftest").is_file()) {
        return skip("ucx_perftest is not installed (it is in ucx-utils)");
    }
    let _alone = alone();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = mounts();
    for hosts in ["1", "2"] {
        let mark = format!("{}-{hosts}", std::process::id());
        let few = ["tcp", "--hosts", hosts, "--json", "--latency", "8", "--stream", "1M"];
        let mut command = pinfold(&few);
        command.env(MARK, &mark).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut run = command.spawn().unwrap();
        let under_way = || marked(&mark).iter().any(|(name, _)| name.trim() == "ucx_perftest");
        let mut ended = false;
        assert!(wait_until(|| {
            ended = run.try_wait().unwrap().is_some();
            ended || under_way()
        }));
        // The process dies by a signal that it cannot catch.
        run.kill().unwrap();
        let said = run.wait_with_output().unwrap().stderr;
        if ended {
            skip(&format!("UCX's program never ran: {}", text(&said)));
        }
        assert!(wait_until(|| marked(&mark).is_empty()), "still there: {:?}", marked(&mark));
        assert_eq!(mounts(), before);
    }
}

/// The program without a system call; begun by [`run_without`].
#[test]
fn confined() {
    let Ok(plan) = env::var(PLAN) else { return };
    let (call, hosts) = match &*plan {
        "setup" => (libc::SYS_io_uring_setup, "1"),
        "unshare" => (libc::SYS_unshare, "2"),
        other => panic!("{other}?"),
    };
    filter::deny(&[call], libc::EPERM);
    let few = ["tcp", "--json", "--latency", "8", "--stream", "64K", "--rounds", "1", "--no-tools"];
    panic!("{}", pinfold(&few).args(["--hosts", hosts]).exec());
}

fn run_without(call: &str) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "confined", "--nocapture"]).env(PLAN, call).output().unwrap()
}

#[test]
fn what_is_denied_is_said() {
    let _alone = alone();
    let done = run_without("unshare");
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("takes two network namespaces, which cannot be had"), "{said}");
    assert!(said.contains("unshare"), "the call is named: {said}");
    let lines = lines(&run_without("setup"));
    let ring = lines.iter().find(|line| line["subject"] == "ring").unwrap();
    let why = ring["absent"].as_str().unwrap();
    assert!(why.contains("io_uring_setup") && why.contains("not permitted"), "{why}");
}

#[test]
fn nonsense_is_refused() {
    for args in [
        &["tcp", "--hosts", "3"][..],
        &["tcp", "--latency", "0"],
        &["tcp", "--stream", "1G"],
        &["tcp", "--seconds", "0"],
        &["tcp", "--quick", "--seconds", "99"],
        &["--hosts", "1"],
        &["--hosts", "2", "--what", "latency"],
        &["--hosts", "2", "--connect", "local:x"],
    ] {
        let done = pinfold(args).output().unwrap();
        assert_eq!(done.status.code(), Some(2), "{args:?}: {}", text(&done.stderr));
    }
    let done = pinfold(&["tcp", "--html", "/nonexistent/x.html"]).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("/nonexistent/x.html"));
}
