//! The greeting within a host: agreement, refusals, deadlines, versions.

use std::path::Path as FilePath;

use pinfold_sys::{
    socket::seqpacket::{self, Socket},
    user::uid,
};

use super::{
    super::{
        access::Access,
        directory::{Kind, Places},
        listener::Listener,
    },
    *,
};
use crate::{Gone, policy::route::Refusal};

mod hostile;
mod processes;

const KIND: Kind = Kind::Private;
const PATIENCE: u64 = 5_000_000_000;
const GRANT_C: Limits = Limits { unexpected_bytes: 1 << 20, rendezvous_max: 7 };
const GRANT_S: Limits = Limits { unexpected_bytes: 1 << 21, rendezvous_max: 9 };

fn places(base: &FilePath) -> Places {
    Places {
        explicit: None,
        runtime: None,
        sessions: base.join("run"),
        tmp: base.into(),
        uid: uid(),
    }
}

fn address(name: &str) -> Address {
    format!("local:{name}").parse().unwrap()
}

fn us(label: &str, paths: PathSet) -> Us {
    Us { endpoint_id: [label.len() as u8; 16], label: label.into(), paths, barrier_global: true }
}

fn server(socket: Socket, who: Credentials, paths: PathSet) -> Handshake {
    let (us, access) = (us("server", paths), Access::same_user());
    Handshake::accepted(socket, who, &access, &us, GRANT_S, true, 10, 0)
}

/// A listener, and a client that has said hello to it.
struct Scene {
    _base: tempfile::TempDir,
    places: Places,
    listener: Listener,
}

impl Scene {
    fn new(access: &Access) -> Scene {
        let base = tempfile::tempdir().unwrap();
        let places = places(base.path());
        let listener = Listener::bind_in(&places, &address("box"), access).unwrap();
        Scene { _base: base, places, listener }
    }

    fn connect(&self, paths: PathSet) -> Result<Handshake> {
        let us = us("client", paths);
        Handshake::connect_in(&self.places, &address("box"), &us, GRANT_C, 0, PATIENCE)
    }

    fn accept(&self) -> (Socket, Credentials) {
        self.listener.accept().unwrap().unwrap()
    }

    /// A client, and the raw other end, on which a test plays a bad server.
    fn bad_server(&self) -> (Handshake, Socket) {
        let client = self.connect(PathSet::all()).unwrap();
        (client, self.accept().0)
    }
}

/// A greeted pair, whose sides were stepped in turns.
fn pair(client_paths: PathSet, server_paths: PathSet) -> (Box<Established>, Box<Established>) {
    let scene = Scene::new(&Access::same_user());
    let mut client = scene.connect(client_paths).unwrap();
    assert!(client.step(0).unwrap().is_none());
    let (socket, who) = scene.accept();
    let mut server = server(socket, who, server_paths);
    assert!(server.step(0).unwrap().is_none());
    assert!(client.step(0).unwrap().is_none());
    let server = server.step(0).unwrap().unwrap();
    // A bell right behind Ready is left for the engine.
    seqpacket::ring(&server.socket).unwrap();
    let client = client.step(0).unwrap().unwrap();
    assert_eq!(seqpacket::drain(&client.socket).unwrap(), seqpacket::Drained::Rang);
    (client, server)
}

/// A raw client socket and the accepting side of it.
fn raw() -> (Socket, Handshake) {
    let (ours, theirs) = seqpacket::pair().unwrap();
    let who = seqpacket::peer_credentials(&theirs).unwrap();
    (ours, server(theirs, who, PathSet::all()))
}

fn sample() -> (Target, Introduction) {
    let target = Target::new().unwrap();
    let introduction = Introduction {
        endpoint_id: [3; 16],
        label: "sample".into(),
        pid: std::process::id(),
        paths: PathSet::all(),
        barrier_global: false,
        limits: GRANT_C,
        nonce_addr: target.nonce_addr(),
        scratch_addr: target.scratch_addr(),
        mark: target.mark(),
    };
    (target, introduction)
}

/// Steps until the greeting is over. Another test that starts a process holds copies of all
/// descriptors for a moment, so a descriptor that was closed here is not always closed at once.
fn finish(greeting: &mut Handshake, now_ns: u64) -> Result<Box<Established>> {
    loop {
        if let Some(established) = greeting.step(now_ns)? {
            return Ok(established);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn await_close(socket: &Socket) {
    while seqpacket::drain(socket).unwrap() != seqpacket::Drained::Closed {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[track_caller]
fn misbehaved(result: Result<Option<Box<Established>>>, words: &str) {
    match result {
        Err(Error::PeerGone { how: Gone::Misbehaved(how), .. }) => {
            assert!(how.contains(words), "{how}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pair_is_established() {
    let (client, server) = pair(PathSet::all(), PathSet::all());
    assert_eq!((client.side, server.side), (Side::Connecting, Side::Accepting));
    assert_eq!((&*client.label, &*server.label), ("server", "client"));
    assert_eq!((client.granted, server.granted), (GRANT_S, GRANT_C));
    assert_eq!((client.address.as_ref(), server.address.as_ref()), (Some(&address("box")), None));
    for side in [&client, &server] {
        assert_eq!((side.pid, side.uid), (std::process::id(), uid()));
        assert!(side.barrier_global && side.paths == PathSet::all());
        assert!(process::pidfd_alive(&side.pidfd));
        assert_eq!(side.mapping.len(), SEGMENT_BYTES);
        // Where a filter forbids the calls the outcome is a denial instead.
        for outcome in [side.we_read, side.we_write, side.peer_reads, side.peer_writes] {
            assert!(matches!(outcome, Ok(()) | Err(Refusal::Denied(_))), "{side:?}");
        }
    }
    assert_eq!(client.we_read, server.peer_reads);
    assert_eq!(client.peer_writes, server.we_write);
    assert_eq!((client.endpoint_id, server.endpoint_id), ([6; 16], [6; 16]));
    assert_eq!(seqpacket::drain(&server.socket).unwrap(), seqpacket::Drained::Quiet);
    drop(client);
    await_close(&server.socket);
}

#[test]
fn paths_that_are_off_are_not_tried() {
    let without = PathSet::all().without(Path::Cma);
    let (client, server) = pair(without, PathSet::all());
    for outcome in [client.we_read, client.we_write, client.peer_reads, client.peer_writes] {
        assert_eq!(outcome, Err(Refusal::SwitchedOff));
    }
    for outcome in [server.we_read, server.we_write, server.peer_reads, server.peer_writes] {
        assert_eq!(outcome, Err(Refusal::SwitchedOffByPeer));
    }
    assert!(client.paths == without && server.paths == without);
    let (client, server) = pair(without, without);
    assert_eq!(client.we_read, Err(Refusal::SwitchedOff));
    assert_eq!(server.peer_writes, Err(Refusal::SwitchedOff));
}

/// The other side's memory is not written either if it is that side which has the path off.
#[test]
fn memory_is_left_alone_where_either_side_has_the_kernels_path_off() {
    let without = PathSet::all().without(Path::Cma);
    for (ours, theirs) in [(without, PathSet::all()), (PathSet::all(), without)] {
        let (client, socket) = seqpacket::pair().unwrap();
        let who = seqpacket::peer_credentials(&socket).unwrap();
        let mut greeting = server(socket, who, ours);
        let (target, introduction) = sample();
        let us = Introduction { paths: theirs, ..introduction };
        seqpacket::send(&client, &hello::encode_hello(&us), &[]).unwrap();
        assert!(greeting.step(0).unwrap().is_none());
        let mut welcome = [0; hello::MESSAGE_MAX];
        let got = seqpacket::recv(&client, &mut welcome, 2).unwrap();
        let answer = hello::decode_answer(&welcome[..got.len]).unwrap();
        let Answer::Welcome(_, proof) = answer else { panic!("{answer:?}") };
        assert_eq!(proof, proof::NOT_TRIED);
        let untouched = Proof { read: Err(Refusal::SwitchedOff), write: Ok([0; 16]) };
        assert_eq!(target.judge(&untouched).write, Ok(()));
    }
}

#[test]
fn both_sides_may_be_moved_by_threads() {
    let scene = Scene::new(&Access::same_user());
    let run = |mut greeting: Handshake| loop {
        if let Some(established) = greeting.step(0).unwrap() {
            return established;
        }
        std::thread::yield_now();
    };
    std::thread::scope(|scope| {
        for _ in 0..20 {
            let client = scope.spawn(|| run(scene.connect(PathSet::all()).unwrap()));
            let (socket, who) = loop {
                if let Some(accepted) = scene.listener.accept().unwrap() {
                    break accepted;
                }
            };
            let server = run(server(socket, who, PathSet::all()));
            assert_eq!(client.join().unwrap().we_read, server.peer_reads);
        }
    });
}

#[test]
fn absent_names_are_gone_at_once() {
    let base = tempfile::tempdir().unwrap();
    let places = places(base.path());
    let us = us("client", PathSet::all());
    let connect = |name: &str| {
        Handshake::connect_in(&places, &name.parse().unwrap(), &us, GRANT_C, 0, PATIENCE)
    };
    assert!(matches!(connect("local:box"), Err(Error::NameGone { name }) if name == "local:box"));
    assert!(matches!(connect("local:4000000011/box"), Err(Error::NameGone { .. })));
    assert!(matches!(connect("local:no-such-user/box"), Err(Error::BadAddress { .. })));
    // The file of a killed owner, and one that is no socket.
    let listener = Listener::bind_in(&places, &address("other"), &Access::same_user()).unwrap();
    let dir = base.path().join(format!("pinfold-{}", uid()));
    drop(std::os::unix::net::UnixListener::bind(dir.join("box")).unwrap());
    while seqpacket::is_bound(&dir.join("box")).unwrap() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(matches!(connect("local:box"), Err(Error::NameGone { .. })));
    let _foreign = std::os::unix::net::UnixListener::bind(dir.join("foreign")).unwrap();
    assert!(matches!(connect("local:foreign"), Err(Error::NotAllowed { .. })));
    drop(listener);
    assert!(matches!(connect("local:other"), Err(Error::NameGone { .. })));
    // A directory that is not safe is named, not passed over.
    rustix::fs::chmod(&dir, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
    let said = connect("local:box").unwrap_err().to_string();
    assert!(said.contains("chmod 700"), "{said}");
}

#[test]
fn a_full_queue_is_waited_for() {
    let base = tempfile::tempdir().unwrap();
    let places = places(base.path());
    let dir = places.listening(KIND).unwrap();
    let listener = seqpacket::bind_listen(&dir.reach("box"), 0).unwrap();
    let first = seqpacket::connect(&dir.reach("box")).unwrap();
    let us = us("client", PathSet::all());
    let connect =
        || Handshake::connect_in(&places, &address("box"), &us, GRANT_C, 0, PATIENCE).unwrap();
    let mut client = connect();
    assert!(client.deadline_ns() < PATIENCE);
    assert!(client.step(0).unwrap().is_none());
    assert!(client.step(2 * RETRY_NS).unwrap().is_none());
    assert!(seqpacket::accept(&listener).unwrap().is_some());
    assert!(client.step(9 * RETRY_NS).unwrap().is_none());
    assert_eq!(client.deadline_ns(), PATIENCE);
    let accepted = seqpacket::accept(&listener).unwrap().unwrap();
    let who = seqpacket::peer_credentials(&accepted).unwrap();
    let mut server = server(accepted, who, PathSet::all());
    server.step(0).unwrap();
    client.step(0).unwrap();
    assert!(server.step(0).unwrap().is_some() && client.step(0).unwrap().is_some());

    let second = seqpacket::connect(&dir.reach("box")).unwrap();
    let mut late = connect();
    assert!(matches!(late.step(PATIENCE), Err(Error::NoAnswer { .. })));
    let mut orphan = connect();
    drop(listener);
    assert!(matches!(finish(&mut orphan, 9 * RETRY_NS), Err(Error::NameGone { .. })));
    drop((first, second));
}

#[test]
fn silence_runs_into_the_deadline() {
    let scene = Scene::new(&Access::same_user());
    let mut client = scene.connect(PathSet::all()).unwrap();
    let (socket, who) = scene.accept();
    assert!(client.step(PATIENCE - 1).unwrap().is_none());
    let late = client.step(PATIENCE);
    match late {
        Err(Error::NoAnswer { name, patience }) => {
            assert_eq!((name.as_str(), patience.as_nanos()), ("local:box", PATIENCE.into()));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(client.step(0), Err(Error::Closed)));

    // The server hears Hello but never the proof.
    let mut silent = server(socket, who, PathSet::all());
    assert_eq!(silent.deadline_ns(), PATIENCE_NS);
    assert!(silent.step(PATIENCE_NS - 1).unwrap().is_none());
    misbehaved(silent.step(PATIENCE_NS), "in time");
    let (_raw, mut silent) = raw();
    misbehaved(silent.step(PATIENCE_NS), "in time");
    // A message that is there at the deadline still counts.
    let (raw, mut slow) = raw();
    seqpacket::send(&raw, &hello::encode_hello(&sample().1), &[]).unwrap();
    misbehaved(slow.step(PATIENCE_NS), "in time");
    let mut buf = [0; hello::MESSAGE_MAX];
    assert!(seqpacket::recv(&raw, &mut buf, 2).unwrap().len > 0);
}

#[test]
fn other_versions_are_told_apart() {
    let mut future = hello::encode_hello(&sample().1);
    future[8..16].copy_from_slice(&[3, 0, 0, 0, 4, 0, 0, 0]);
    future.extend([0; 40]);
    let (raw, mut server) = raw();
    seqpacket::send(&raw, &future, &[]).unwrap();
    match server.step(0) {
        Err(Error::VersionMismatch { theirs_min: 3, theirs_max: 4, ours_min: 2, .. }) => {}
        other => panic!("{other:?}"),
    }
    let mut buf = [0; hello::MESSAGE_MAX];
    let got = seqpacket::recv(&raw, &mut buf, 0).unwrap();
    let told = hello::decode_answer(&buf[..got.len]).unwrap();
    assert_eq!(told, Answer::Refused(Refuse::Version { min: 2, max: 2 }));

    let scene = Scene::new(&Access::same_user());
    let (mut client, raw) = scene.bad_server();
    let refuse = hello::encode_refuse(&Refuse::Version { min: 5, max: 6 });
    seqpacket::send(&raw, &refuse, &[]).unwrap();
    match client.step(0) {
        Err(Error::VersionMismatch { theirs_min: 5, theirs_max: 6, peer, .. }) => {
            assert_eq!(peer, "local:box");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn whoever_is_not_admitted_is_told_so() {
    let scene = Scene::new(&Access::same_user());
    let mut client = scene.connect(PathSet::all()).unwrap();
    let (socket, who) = scene.accept();
    let stranger = Credentials { uid: uid() + 1, ..who };
    let rule = Access::same_user().user(uid() + 2).group(4_000_000_011);
    let us = us("server", PathSet::all());
    let mut server = Handshake::accepted(socket, stranger, &rule, &us, GRANT_S, true, 10, 77);
    assert_eq!(server.deadline_ns(), 0);
    let said = server.step(77).unwrap_err();
    assert!(matches!(&said, Error::NotAllowed { why, .. } if why.contains(".user(")), "{said}");
    drop(server);
    let told = client.step(0).unwrap_err().to_string();
    assert!(told.contains("1 other users and 1 groups"), "{told}");
    assert!(told.contains(&format!("add .user({}) to the rule", uid() + 1)), "{told}");

    let mut client = scene.connect(PathSet::all()).unwrap();
    let (socket, who) = scene.accept();
    let rule = Access::same_user();
    let mut server = Handshake::accepted(socket, who, &rule, &us, GRANT_S, false, 10, 0);
    assert!(matches!(server.step(0), Err(Error::LimitReached { limit: 10, .. })));
    assert!(matches!(client.step(0), Err(Error::LimitReached { limit: 10, .. })));
}

#[test]
fn a_refusal_survives_a_reset() {
    // The server closes with the greeting unread.
    let scene = Scene::new(&Access::same_user());
    let (mut client, raw) = scene.bad_server();
    seqpacket::send(&raw, &hello::encode_refuse(&Refuse::Full { peers_max: 3 }), &[]).unwrap();
    drop(raw);
    assert!(matches!(finish(&mut client, 0), Err(Error::LimitReached { limit: 3, .. })));

    for (errno, name, remedy) in [
        (Errno::MFILE, "accept4", "ulimit -n"),
        (Errno::NFILE, "accept4", "fs.file-max"),
        (Errno::NOMEM, "memfd_create", "local:box"),
        (Errno::PERM, "mmap", "seccomp"),
        (Errno::FBIG, "ftruncate", "ulimit -f"),
        (Errno::NOMEM, "", "a system call"),
    ] {
        let (mut client, raw) = scene.bad_server();
        let refuse = Refuse::Exhausted { call: name, errno: errno.raw_os_error() };
        seqpacket::send(&raw, &hello::encode_refuse(&refuse), &[]).unwrap();
        drop(raw);
        match finish(&mut client, 0) {
            Err(error @ Error::Os { .. }) => {
                let text = error.to_string();
                assert!(text.starts_with(name) && text.contains(remedy), "{text}");
                assert!(text.contains("local:box"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }

    let (mut client, raw) = scene.bad_server();
    drop(raw);
    assert!(matches!(finish(&mut client, 0), Err(Error::PeerGone { how: Gone::Closed, .. })));
}

#[test]
fn a_refusal_may_come_before_hello() {
    let base = tempfile::tempdir().unwrap();
    let places = places(base.path());
    let dir = places.listening(KIND).unwrap();
    let listener = seqpacket::bind_listen(&dir.reach("box"), 0).unwrap();
    let us = us("client", PathSet::all());
    for refuse in [true, false] {
        let _first = seqpacket::connect(&dir.reach("box")).unwrap();
        let mut client =
            Handshake::connect_in(&places, &address("box"), &us, GRANT_C, 0, PATIENCE).unwrap();
        drop(seqpacket::accept(&listener).unwrap());
        // Connect it by hand, and have it refused before it can speak.
        seqpacket::dial(client.fd(), &dir.reach("box")).unwrap();
        let raw = seqpacket::accept(&listener).unwrap().unwrap();
        if refuse {
            seqpacket::send(&raw, &hello::encode_refuse(&Refuse::Full { peers_max: 3 }), &[])
                .unwrap();
        }
        rustix::net::shutdown(&raw, rustix::net::Shutdown::Both).unwrap();
        drop(raw);
        let said = client.say_hello(uid()).unwrap_err();
        if refuse {
            assert!(matches!(said, Error::LimitReached { limit: 3, .. }), "{said}");
        } else {
            assert!(matches!(said, Error::NameGone { .. }), "{said}");
        }
    }
}
