//! Every command, with an output that takes nothing: it ends with a status that is not 0. Commands
//! that send and receive are in `transfer/console.rs`; `perf` has its own tests, too.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use pinfold_tests::skip;

const PROGRAM: &str = env!("CARGO_BIN_EXE_pinfold");
const CLOSED: i32 = 128 + 13;

/// The folder of the lab's results here.
const LAB: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/lab-output");

/// A trace that is there.
const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../pinfold-lab/traces/chat.trace");

/// Commands that print, and end by themselves.
const COMMANDS: [&[&str]; 56] = [
    &["--help"],
    &["-h"],
    &["help"],
    &["help", "send"],
    &["--version"],
    &["send", "--version"],
    &["doctor", "--help"],
    &["perf", "--help"],
    &["perf", "copy", "--help"],
    &["perf", "tcp", "--help"],
    &["perf", "send-modes", "--help"],
    &["send", "--help"],
    &["recv", "-h"],
    &["keygen", "--help"],
    &["run", "--help"],
    &["top", "--help"],
    &["tune", "--help"],
    &["lab", "--help"],
    &["lab", "list", "--help"],
    &["lab", "run", "--help"],
    &["lab", "report", "--help"],
    &["lab", "compare", "--help"],
    &["lab", "workload", "--help"],
    &["lab", "workload", "matrix", "--processes", "2"],
    &["lab", "size", "--help"],
    &["lab", "size", "--peers", "2", "--mix", "64K:1", "--memlock", "1M", "--reuse", "50"],
    &["trace", "--help"],
    &["trace", "record", "--help"],
    &["trace", "print", "--help"],
    &["trace", "summary", "--help"],
    &["trace", "cut", "--help"],
    &["trace", "convert", "--help"],
    &["trace", "print", TRACE],
    &["trace", "summary", TRACE],
    &["trace", "cut", TRACE, "--kind", "socket"],
    &["trace", "convert", TRACE, "--to", "csv"],
    &["trace", "convert", TRACE, "--to", "json"],
    &["lab", "list"],
    &["lab", "list", "--json"],
    &["lab", "run", "ape-system", "--no-here", "--json", "--out", LAB],
    &["top"],
    &["top", "--once"],
    &["top", "--json"],
    &["top", "--json", "--interval", "0.1"],
    &["tune", "--show"],
    &["tune", "--show", "--json"],
    &["doctor", "--no-measure"],
    &["doctor", "--no-measure", "--json"],
    &["doctor", "tcp:127.0.0.1:1"],
    &["completions", "--help"],
    &["completions", "bash"],
    &["completions", "zsh"],
    &["completions", "fish"],
    &["man", "--help"],
    &["man"],
    &["-V"],
];

/// Commands that measure first, as little as they can.
const MEASURING: [&[&str]; 5] = [
    &["tune", "--dry-run", "--seconds", "0.3"],
    &["tune", "--dry-run", "--seconds", "0.3", "--json"],
    &["perf", "copy", "--sizes", "64", "--rounds", "1", "--readers", "me"],
    &["perf", "send-modes", "--sizes", "136", "--pieces", "1", "--rounds", "1"],
    &["perf", "tcp", "--latency", "8", "--stream", "64K", "--rounds", "1", "--no-tools"],
];

/// Commands whose receipts are lost in `transfer/console.rs`, those whose plan is in `run.rs`, and
/// those that write files, in `lab.rs`, `trace.rs` and `keygen.rs`.
const ELSEWHERE: [&[&str]; 7] = [
    &["send"],
    &["recv"],
    &["keygen"],
    &["run"],
    &["lab", "report"],
    &["lab", "compare"],
    &["trace", "record"],
];

fn run(words: &[&str], stdout: Stdio, stderr: Stdio) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(words).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    command.spawn().unwrap().wait_with_output().unwrap()
}

fn full() -> Stdio {
    fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

fn closed() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

fn said(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

#[track_caller]
fn fails(words: &[&str]) {
    let done = run(words, full(), Stdio::piped());
    let text = said(&done);
    assert_eq!(done.status.code(), Some(1), "{words:?}: {text}");
    assert!(text.contains("cannot write") && text.contains("No space left"), "{words:?}: {text}");
    let done = run(words, closed(), Stdio::piped());
    assert_eq!(done.status.code(), Some(CLOSED), "{words:?}: {}", said(&done));
    assert_eq!(said(&done), "", "{words:?}");
}

/// The subcommands of `above`, as its help lists them, and theirs.
fn subcommands(above: &[String], found: &mut Vec<Vec<String>>) {
    let words: Vec<&str> = above.iter().map(String::as_str).chain(["--help"]).collect();
    let done = run(&words, Stdio::piped(), Stdio::piped());
    assert!(done.status.success(), "{words:?}: {}", said(&done));
    let help = String::from_utf8(done.stdout).unwrap();
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in list.take_while(|line| !line.is_empty()) {
        // The lines that go on with a text begin further to the right.
        let line = line.strip_prefix("  ").unwrap_or_else(|| panic!("{line:?}: {help}"));
        if line.starts_with(' ') || line.starts_with("help ") {
            continue;
        }
        let name = line.split(' ').next().unwrap().to_owned();
        let all = [above, &[name]].concat();
        found.push(all.clone());
        subcommands(&all, found);
    }
}

#[test]
fn no_subcommand_is_left_out_here() {
    let mut found = Vec::new();
    subcommands(&[], &mut found);
    assert!(found.len() >= 14, "{found:?}");
    for name in &found {
        let name: Vec<&str> = name.iter().map(String::as_str).collect();
        let all = COMMANDS.into_iter().chain(MEASURING);
        let words: Vec<_> = all.filter_map(|words| words.strip_prefix(&name[..])).collect();
        let is_help = |words: &&[&str]| matches!(words, ["-h" | "--help"]);
        assert!(words.iter().any(is_help), "the help of {name:?}");
        let is_work = |words: &&[&str]| !matches!(words, ["-h" | "--help" | "--version"]);
        let is_here = words.iter().any(is_work);
        assert!(
            is_here || ELSEWHERE.iter().any(|elsewhere| name.starts_with(elsewhere)),
            "what {name:?} finds"
        );
    }
}

#[test]
fn output_that_is_lost_is_a_failure() {
    for words in COMMANDS {
        fails(words);
    }
}

#[test]
fn output_that_is_lost_after_measuring_is_a_failure() {
    for words in MEASURING {
        let able = run(words, Stdio::null(), Stdio::piped());
        if !able.status.success() {
            skip(&format!("{words:?} does not work here: {}", said(&able)));
            continue;
        }
        fails(words);
    }
}

/// The error is not heard then, but the status stays the same.
#[test]
fn errors_that_are_lost_change_nothing() {
    for (words, status) in [
        (&["--version"][..], 0),
        (&["top", "--once"], 0),
        (&["tune", "--show"], 0),
        (&["nonsense"], 2),
        (&["send"], 2),
        (&["send", "/nowhere/file", "local:nobody-listens", "--wait", "0"], 5),
        (&["top", "--pid", "4294967295"], 1),
        (&["doctor", "local:x"], 2),
    ] {
        for lost in [full(), closed()] {
            let done = run(words, Stdio::null(), lost);
            assert_eq!(done.status.code(), Some(status), "{words:?}");
        }
    }
}

/// Runs a command with `disk`, a file system that is full.
fn on_a_full_disk(place: &Path, words: &str) -> Option<Output> {
    if !pinfold_tests::skip::is_root_or_skip("mounting a small file system to fill") {
        return None;
    }
    fs::create_dir_all(place.join("disk")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=4k tmpfs disk || exit 99; export XDG_CONFIG_HOME=$PWD/disk
         {PROGRAM} {words}; code=$?; find disk -type f > left; exit $code"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).current_dir(place).env_remove("PINFOLD_COPY");
    let done = command.stdin(Stdio::null()).output().unwrap();
    if done.status.code() == Some(99) || said(&done).contains("unshare failed") {
        skip("a small file system cannot be mounted in a name space of its own here");
        return None;
    }
    Some(done)
}

#[test]
fn files_on_a_full_disk_are_failures() {
    for (words, what) in [
        ("tune --seconds 0.3", "cannot keep the table in "),
        (
            "perf copy --sizes 64 --rounds 1 --readers me --html disk/page.html",
            "cannot write disk/page.html",
        ),
    ] {
        let place = tempfile::tempdir().unwrap();
        let Some(done) = on_a_full_disk(place.path(), words) else { return };
        let text = said(&done);
        if text.contains("no instruction that empties") {
            skip(&text);
            continue;
        }
        assert_eq!(done.status.code(), Some(1), "{words}: {text}");
        assert!(text.contains(what) && text.contains("No space left"), "{words}: {text}");
        // The findings are shown all the same, and nothing is left.
        assert!(!done.stdout.is_empty(), "{words}");
        assert_eq!(fs::read_to_string(place.path().join("left")).unwrap(), "", "{words}");
    }
}
