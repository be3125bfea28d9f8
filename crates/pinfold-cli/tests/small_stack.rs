//! The command with little stack: `ulimit -s 400`.

use std::{
    fs,
    process::{Child, Command, Output, Stdio},
};

const KIB: u32 = 400;

/// The command with that stack, and a place of its own.
fn pinfold(dir: &std::path::Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("/bin/sh");
    let limited = format!("ulimit -S -s {KIB} && exec \"$0\" \"$@\"");
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_pinfold")]).args(arguments);
    command
        .env("PINFOLD_DIR", dir.join("names"))
        .env("XDG_CACHE_HOME", dir)
        .env("XDG_CONFIG_HOME", dir);
    command
}

#[track_caller]
fn well(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_subcommand_says_what_it_does() {
    let dir = tempfile::tempdir().unwrap();
    let words: [&[&str]; 14] = [
        &[],
        &["doctor"],
        &["perf"],
        &["perf", "copy"],
        &["perf", "send-modes"],
        &["perf", "tcp"],
        &["send"],
        &["recv"],
        &["run"],
        &["top"],
        &["tune"],
        &["trace"],
        &["trace", "record"],
        &["help", "perf"],
    ];
    for words in words {
        let help: &[&str] = if words.first() == Some(&"help") { &[] } else { &["--help"] };
        let output = pinfold(dir.path(), &[words, help].concat()).output().unwrap();
        let said = well(&output);
        assert!(said.contains("Usage: pinfold"), "{words:?}: {said}");
    }
}

#[test]
fn what_subcommands_do_they_do() {
    let dir = tempfile::tempdir().unwrap();
    for words in [
        &["doctor", "--json", "--no-measure"][..],
        &["top", "--once"],
        &["perf", "--what", "latency", "--sizes", "8,64K,4M", "--quick"],
    ] {
        let output = pinfold(dir.path(), words).output().unwrap();
        // The doctor reports problems if there are any; it has to come to an end.
        let code = output.status.code();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(code.is_some_and(|code| code < 3), "{words:?}: {}: {said}", output.status);
        assert!(!output.stdout.is_empty(), "{words:?}: {said}");
    }
}

#[test]
fn files_are_sent_and_received() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&to).unwrap();
    let bytes: Vec<u8> = (0..9u32 << 20).map(|at| (at.wrapping_mul(7) >> 3) as u8).collect();
    fs::write(&from, &bytes).unwrap();
    let name = format!("local:small-{}", std::process::id());
    let into = to.display().to_string();
    let receiver: Child = pinfold(dir.path(), &["recv", &name, &into])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let path = from.display().to_string();
    let sent = pinfold(dir.path(), &["send", "--wait", "60", &path, &name]).output().unwrap();
    well(&sent);
    well(&receiver.wait_with_output().unwrap());
    assert!(fs::read(to.join("from")).unwrap() == bytes);
}
