//! The examples, run as their readers run them: each ends well, soon, and says what it did.
//!
//! `cargo test -p pinfold` builds them beside this test; with `--test examples` it does not, so run
//! `cargo build -p pinfold --examples` first.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The longest that an example may run.
const PATIENCE: Duration = Duration::from_secs(60);

/// The folder of the built examples.
fn built() -> PathBuf {
    let here = std::env::current_exe().expect("this program");
    here.ancestors().nth(2).expect("deps and the profile's folder").join("examples")
}

/// The output of an example that ended well.
fn output(name: &str) -> String {
    let program = built().join(name);
    assert!(program.exists(), "no {}: run cargo build --examples", program.display());
    let place = tempfile::tempdir().expect("a folder");
    let mut running = Command::new(&program)
        .env("PINFOLD_DIR", place.path().join("names"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example");
    let began = Instant::now();
    let status = loop {
        match running.try_wait().expect("a child of this process") {
            Some(status) => break status,
            None if began.elapsed() > PATIENCE => {
                running.kill().expect("a child of this process");
                running.wait().expect("a child of this process");
                panic!("{name} still ran after {PATIENCE:?}");
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    assert!(status.success(), "{name}: {status}");
    // A line or two: the pipe held all of it.
    io::read_to_string(running.stdout.take().expect("a pipe")).expect("text")
}

macro_rules! says {
    ($($name:ident: $said:literal;)*) => {
        $(#[test]
        fn $name() {
            let output = output(stringify!($name));
            assert!(output.contains($said), "{output}");
            assert!(output.lines().count() <= 2, "{output}");
        })*

        /// The examples that a test runs.
        const RUN: &[&str] = &[$(stringify!($name)),*];
    };
}

says! {
    ping_pong: "1000 short messages went there and back; the long one: ";
    many_to_one: "500 messages from each of 4 processes came, each one's in order";
    frames_by_handoff: "200 frames of 4194304 bytes came, 200 without any copy";
    rpc: "two requests were answered, and two refused by errors";
    key_value: "2 processes counted 100 keys 50 times each, and none was lost";
    two_hosts: "1048576 bytes were summed at the other side of TCP";
    async_recv: "a question and its answer went by futures";
    temperatures_by_topic: "samples, the last one for 3 readers";
    tokio_ping_pong: "1000 short balls and a long one went there and back in one thread of tokio";
}

#[test]
fn every_example_is_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = fs::read_dir(folder).expect("the examples");
    let mut names: Vec<String> = files
        .map(|file| file.expect("a file").path())
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    let mut run: Vec<String> = RUN.iter().map(|&name| name.to_owned()).collect();
    names.sort();
    run.sort();
    assert_eq!(names, run);
}
