//! A program that uses the library under Valgrind: it starts, and nothing is read or written that
//! is not there or was never written.

use std::{
    env,
    fs::{self, File},
    io,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use pinfold::Endpoint;
use pinfold_tests::{Args, Stage, pair, role::PATIENCE, skip, stamp};

pinfold_tests::roles!(small);

/// Bytes of a descriptor, of the ring, and of a long message.
const LENGTHS: [usize; 3] = [8, 5000, 300_000];

/// Two endpoints of one process, and some messages each way.
fn small(_: &Args) {
    let alone = Endpoint::new().unwrap();
    let (a, to_b, b, to_a) = pair("valgrind", Endpoint::builder(), Endpoint::builder());
    for (from, to, into, sender) in [(&a, to_b, &b, to_a), (&b, to_a, &a, to_b)] {
        for (tag, len) in (0..).zip(LENGTHS) {
            thread::scope(|scope| {
                scope.spawn(move || from.send(to, tag, &stamp::bytes(len, tag)).unwrap());
                stamp::check(&into.recv_timeout(sender, tag, PATIENCE).unwrap(), tag);
            });
        }
    }
    drop(alone);
}

#[test]
fn a_program_runs_under_valgrind() {
    let known = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/valgrind.supp");
    let program = env::current_exe().expect("a path");
    if File::open(known).and_then(|_| File::open(&program)).is_err() {
        return skip("this user cannot read the sources and the program");
    }
    let stage = Stage::new(300);
    let sockets = stage.sockets(rustix::process::geteuid().as_raw());
    let said = stage.path().join("said");
    let out = File::create(&said).expect("a file");
    let mut command = Command::new("valgrind");
    // Of its threads one runs at a time; who spins for another is to let it.
    command.args(["--quiet", "--error-exitcode=9", "--fair-sched=yes"]);
    command.arg(format!("--suppressions={known}")).arg(program);
    command.args(["role", "--exact", "--nocapture", "--test-threads=1"]);
    command.env("PINFOLD_ROLE", "small").env("PINFOLD_CALIBRATE", "0");
    command.env("PINFOLD_DIR", &sockets).env("XDG_CACHE_HOME", &sockets);
    command.env_remove("PINFOLD_FAILPOINT").env_remove("RUST_TEST_THREADS");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(out);
    let mut process = match command.spawn() {
        Ok(process) => process,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return skip("there is no valgrind");
        }
        Err(error) => panic!("{error}"),
    };
    let end = Instant::now() + Duration::from_secs(280);
    let status = loop {
        if let Some(status) = process.try_wait().expect("waitpid") {
            break status;
        }
        if Instant::now() >= end {
            process.kill().expect("kill");
            break process.wait().expect("waitpid");
        }
        thread::sleep(Duration::from_millis(20));
    };
    let said = fs::read_to_string(&said).unwrap_or_default();
    assert_eq!(status.code(), Some(0), "{status}: {said}");
}
