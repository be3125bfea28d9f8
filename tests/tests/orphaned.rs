//! A process that has an endpoint dies, or becomes another program, while a child that it forked
//! lives on: its name and its port are free, and its peers know, as if there were no child.

use std::{os::unix::process::CommandExt, process::Command, time::Duration};

use pinfold::{Endpoint, Error, Progress, Result, Source, TagMatch};
use pinfold_tests::{
    Args, Stage,
    host::{Copying, leave_orphan},
    role::{PATIENCE, hear, say},
    stage::Player,
};
use rustix::process::{Pid, Signal, kill_process};

pinfold_tests::roles!(parent, peer, heir, heir_of_port);

/// The child of a role, killed when dropped.
struct Orphan(Pid);

impl Drop for Orphan {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// A parent whose child is there, the address where it listens for other hosts, and the child.
fn parent_of(stage: &Stage, by: &str, goes: &str) -> (Player, String, Orphan) {
    let mut parent = stage.role("parent").with("by", by).with("goes", goes).spawn();
    let at = parent.expect("listens at");
    let child = parent.expect("child").parse().expect("a number");
    (parent, at, Orphan(Pid::from_raw(child).expect("a process")))
}

/// Has the parent go, and waits until its end is seen.
fn go(parent: &mut Player, goes: &str) {
    match goes {
        "killed" => {
            parent.kill();
            assert!(parent.was_killed());
        }
        _ => {
            parent.say("go");
            // It is another program now, without an endpoint; the watching processes wait for that.
        }
    }
}

fn attentive(address: &str) -> Result<Endpoint> {
    Endpoint::builder().progress(Progress::Dedicated).local_shortcut(false).listen(address).build()
}

/// Listens on this host and for others, with a child that has been forked since, and goes.
fn parent(args: &Args) {
    let local = attentive("local:box").unwrap();
    let tcp = attentive("tcp:127.0.0.1:0").unwrap();
    say(format_args!("listens at {}", tcp.listens_at().unwrap()));
    if args.has("peers") {
        for endpoint in [&local, &tcp] {
            endpoint.accept_timeout(PATIENCE).unwrap();
        }
    }
    let by = if args.text("by") == "fork" { Copying::Fork } else { Copying::Clone };
    say(format_args!("child {}", leave_orphan(by)));
    hear();
    let error = Command::new("/bin/sleep").arg("60").exec();
    panic!("{error}");
}

// The name.

fn the_name_is_free(by: &str, goes: &str) {
    let stage = Stage::new(120);
    let (mut parent, _, orphan) = parent_of(&stage, by, goes);
    go(&mut parent, goes);
    stage.role("heir").with("goes", goes).spawn().end_well();
    drop(orphan);
}

/// Finds no endpoint under the name, takes it, and is found.
fn heir(args: &Args) {
    let endpoint = Endpoint::builder().connect_timeout(PATIENCE).build().unwrap();
    let until_gone = || loop {
        match attentive("local:box") {
            Err(Error::NameInUse { .. }) if args.text("goes") == "executes" => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other.unwrap(),
        }
    };
    if args.text("goes") == "killed" {
        let gone = endpoint.connect("local:box").unwrap_err();
        assert!(matches!(&gone, Error::NameGone { name } if name == "local:box"), "{gone}");
    }
    let heir = until_gone();
    endpoint.connect("local:box").unwrap();
    heir.accept_timeout(PATIENCE).unwrap();
    // The name is taken, as any other.
    assert!(matches!(attentive("local:box"), Err(Error::NameInUse { .. })));
}

#[test]
fn the_name_of_the_dead_is_free_though_a_child_lives() {
    the_name_is_free("fork", "killed");
}

/// The port is free even though the child has the socket that listens.
#[test]
fn the_name_of_the_dead_is_free_though_a_bare_clone_lives() {
    the_name_is_free("clone", "killed");
}

#[test]
fn the_name_is_free_once_its_owner_is_another_program() {
    the_name_is_free("fork", "executes");
}

// The port.

#[test]
fn the_port_of_the_dead_is_free_though_a_child_lives() {
    let stage = Stage::new(120);
    let (mut parent, at, orphan) = parent_of(&stage, "fork", "killed");
    go(&mut parent, "killed");
    stage.role("heir_of_port").with("at", at).spawn().end_well();
    drop(orphan);
}

fn heir_of_port(args: &Args) {
    let at = args.text("at");
    attentive(if at.starts_with("tcp:") { at } else { panic!("{at}") }).unwrap();
}

// Peers.

fn peers_hear_of_it(by: &str, goes: &str, tcp: bool) {
    let stage = Stage::new(120);
    let cast = stage.role("parent").with("by", by).with("goes", goes).with("peers", 2);
    let mut parent = cast.spawn();
    let at = parent.expect("listens at");
    let mut peers: Vec<Player> = ["local:box".to_owned(), at]
        .into_iter()
        .map(|at| stage.role("peer").with("of", at).with("told", tcp).spawn())
        .collect();
    for peer in &mut peers {
        peer.expect("connected");
    }
    let child = parent.expect("child").parse().expect("a number");
    let orphan = Orphan(Pid::from_raw(child).expect("a process"));
    go(&mut parent, goes);
    for (peer, told) in peers.iter_mut().zip([true, tcp]) {
        if told {
            peer.expect("knows");
            peer.end_well();
        }
    }
    drop(orphan);
}

fn peer(args: &Args) {
    let endpoint = Endpoint::builder().local_shortcut(false).reconnect_timeout(Duration::ZERO);
    let endpoint = endpoint.build().unwrap();
    endpoint.connect(args.text("of")).unwrap();
    say("connected");
    let error = endpoint.recv(Source::Any, TagMatch::any()).unwrap_err();
    assert!(error.is_peer_gone(), "{error}");
    say("knows");
}

#[test]
fn peers_learn_of_a_death_though_a_child_lives() {
    peers_hear_of_it("fork", "killed", true);
}

/// Peers on this host: the kernel tells of processes. To peers on other hosts the copy of the
/// connection is as good as the connection; they learn of the end when it does not answer.
#[test]
fn peers_on_this_host_learn_of_a_death_though_a_bare_clone_lives() {
    peers_hear_of_it("clone", "killed", false);
}

#[test]
fn peers_learn_that_the_process_is_another_program() {
    peers_hear_of_it("fork", "executes", true);
}
