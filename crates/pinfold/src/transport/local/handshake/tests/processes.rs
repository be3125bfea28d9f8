//! Tests that need another process: this test binary again, running one of the tests that are
//! otherwise ignored.

use std::process::{Child, Command, Stdio};

use super::{hostile::*, *};
use crate::transport::local::directory::Origin;

const BASE: &str = "PINFOLD_TEST_BASE";

fn helper(test: &str, base: &FilePath) -> Command {
    let (_, module) = module_path!().split_once("::").unwrap();
    let mut command = crate::again::again();
    command.args(["--exact", &format!("{module}::{test}"), "--ignored", "--nocapture"]);
    command.env(BASE, base).stdout(Stdio::null());
    command
}

fn base() -> Option<std::path::PathBuf> {
    std::env::var_os(BASE).map(Into::into)
}

fn run(mut greeting: Handshake) -> Result<Box<Established>> {
    finish(&mut greeting, 0)
}

#[test]
#[ignore = "run by other tests"]
fn helper_greets() {
    let Some(base) = base() else { return };
    let us = us("helper", PathSet::all());
    let client =
        Handshake::connect_in(&places(&base), &address("box"), &us, GRANT_C, 0, PATIENCE).unwrap();
    let established = run(client).unwrap();
    assert_eq!(established.we_read, established.peer_reads);
    assert_eq!(established.we_write, established.peer_writes);
    assert_ne!(established.we_read, Err(Refusal::WrongProcess));
    // This waits until the other side closes.
    await_close(&established.socket);
}

#[test]
#[ignore = "run by other tests"]
fn helper_is_silent() {
    let Some(base) = base() else { return };
    let dir = Directory::make(&base.join(format!("pinfold-{}", uid())), uid(), KIND, Origin::Ours)
        .unwrap();
    let _socket = seqpacket::connect(&dir.reach("box")).unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

fn await_connection(listener: &Listener, helper: &mut Child) -> (Socket, Credentials) {
    loop {
        if let Some(accepted) = listener.accept().unwrap() {
            return accepted;
        }
        if let Some(status) = helper.try_wait().unwrap() {
            panic!("the helper ended: {status}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn two_processes_greet() {
    let scene = Scene::new(&Access::same_user());
    let mut child = helper("helper_greets", &scene.places.tmp).spawn().unwrap();
    let (socket, who) = await_connection(&scene.listener, &mut child);
    let established = run(server(socket, who, PathSet::all())).unwrap();
    assert_eq!((established.pid, &*established.label), (child.id(), "helper"));
    assert_ne!(established.we_write, Err(Refusal::WrongProcess));
    assert_ne!(established.peer_writes, Err(Refusal::WrongProcess));
    assert!(process::pidfd_alive(&established.pidfd));
    let pidfd = established.pidfd.try_clone().unwrap();
    drop(established);
    assert!(child.wait().unwrap().success());
    assert!(!process::pidfd_alive(&pidfd));
}

#[test]
fn a_peer_killed_in_the_middle_is_gone() {
    let scene = Scene::new(&Access::same_user());
    let mut child = helper("helper_is_silent", &scene.places.tmp).spawn().unwrap();
    let (socket, who) = await_connection(&scene.listener, &mut child);
    let mut server = server(socket, who, PathSet::all());
    assert!(server.step(0).unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
    match finish(&mut server, 0) {
        Err(Error::PeerGone { how, .. }) => {
            // Before Linux 6.5 the kernel gives no pidfd, by which an exit is told from a close.
            assert!(matches!(how, Gone::Died) || server.pidfd.is_none(), "{how:?}");
        }
        other => panic!("{other:?}"),
    }
}

const NOBODY: u32 = 65534;

#[test]
#[ignore = "run by other tests"]
fn helper_is_another_user() {
    let Some(base) = base() else { return };
    let us = us("helper", PathSet::all());
    let connect = |address: &str| {
        Handshake::connect_in(&places(&base), &address.parse().unwrap(), &us, GRANT_C, 0, PATIENCE)
    };
    assert!(matches!(connect("local:box"), Err(Error::NameGone { .. })));
    match connect("local:0/box").and_then(run) {
        Ok(established) => {
            assert_eq!(std::fs::read(base.join("wanted")).unwrap(), b"in");
            assert!(established.we_read.is_err() && established.peer_reads.is_err());
        }
        Err(Error::NotAllowed { .. }) => {
            assert_eq!(std::fs::read(base.join("wanted")).unwrap(), b"out");
        }
        Err(other) => panic!("{other}"),
    }
}

/// Only root can play two users.
#[test]
fn other_users_are_admitted_by_the_rule_alone() {
    use std::os::unix::process::CommandExt;
    if uid() != 0 {
        return;
    }
    for (access, wanted) in
        [(Access::same_user().user(NOBODY), "in"), (Access::same_user().user(4_000_000_011), "out")]
    {
        let scene = Scene::new(&access);
        let base = &scene.places.tmp;
        std::fs::write(base.join("wanted"), wanted).unwrap();
        rustix::fs::chmod(base, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
        // The test binary may lie where other users cannot reach it.
        let mut command = helper("helper_is_another_user", base);
        let Ok(mut child) = command.uid(NOBODY).gid(NOBODY).spawn() else { return };
        let (socket, who) = await_connection(&scene.listener, &mut child);
        assert_eq!((who.uid, who.pid), (NOBODY, child.id()));
        let us = us("server", PathSet::all());
        let server = Handshake::accepted(socket, who, &access, &us, GRANT_S, true, 10, 0);
        match run(server) {
            Ok(established) => {
                assert_eq!((wanted, established.uid), ("in", NOBODY));
                assert_eq!(established.we_read, Err(Refusal::Denied(1)));
            }
            Err(error) => assert_eq!(wanted, "out", "{error}"),
        }
        assert!(child.wait().unwrap().success());
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The helper is alone in its process, so that no other test opens descriptors meanwhile.
#[test]
#[ignore = "run by other tests"]
fn helper_counts_descriptors() {
    if base().is_none() {
        return;
    }
    let round = || {
        drop(pair(PathSet::all(), PathSet::all()));
        silence_runs_into_the_deadline();
        other_versions_are_told_apart();
        whoever_is_not_admitted_is_told_so();
        a_refusal_survives_a_reset();
        wrong_segments_are_refused();
        messages_out_of_turn_end_it();
        a_full_queue_is_waited_for();
        absent_names_are_gone_at_once();
        // The greeting is dropped at each state.
        let scene = Scene::new(&Access::same_user());
        for steps in 0..4 {
            let mut client = scene.connect(PathSet::all()).unwrap();
            let (socket, who) = scene.accept();
            let mut server = server(socket, who, PathSet::all());
            for step in 0..steps {
                let side = if step % 2 == 0 { &mut server } else { &mut client };
                side.step(0).unwrap();
            }
        }
    };
    round();
    let before = (open_descriptors(), mappings());
    for _ in 0..20 {
        round();
    }
    // Another thread closes received descriptors that were not accepted.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while (open_descriptors(), mappings()) != before && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!((open_descriptors(), mappings()), before);
}

fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:pinfold ")).count()
}

#[test]
fn descriptors_and_mappings_return_to_the_baseline() {
    let base = tempfile::tempdir().unwrap();
    let mut command = helper("helper_counts_descriptors", base.path());
    let output = command.stdout(Stdio::piped()).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}
