//! Addresses, names and the directory they are in: in use, gone, left by the dead, unanswered,
//! unsafe, malformed. Each has its own error that says what to do.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{FileTypeExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use pinfold::{Endpoint, Error, Progress, Result};
use pinfold_tests::{
    Args, Stage,
    host::{Ended, fork},
    role::{PATIENCE, hear, say},
    skip::is_root_or_skip,
};
use rustix::process::Signal;

pinfold_tests::roles!(
    holder,
    second,
    absent,
    waiting,
    heir,
    hasty,
    patient,
    late_caller,
    malformed,
    unsafe_place,
    mother,
    visitor,
);

fn sockets(stage: &Stage) -> PathBuf {
    stage.sockets(rustix::process::geteuid().as_raw())
}

/// Where this role's endpoints listen.
fn own_directory() -> PathBuf {
    std::env::var_os("PINFOLD_DIR").expect("set by the director").into()
}

// In use.

#[test]
fn a_name_is_one_endpoints_at_a_time() {
    let stage = Stage::new(60);
    let mut holder = stage.role("holder").spawn();
    holder.expect("ready");
    let mut second = stage.role("second").spawn();
    second.expect("was refused");
    holder.say("leave");
    holder.end_well();
    second.say("again");
    second.end_well();
}

/// A forked child may drop its copy of an endpoint: the name is its parent's.
#[test]
fn a_child_leaves_the_name_to_its_parent() {
    let stage = Stage::new(60);
    let mut mother = stage.role("mother").spawn();
    mother.expect("has a child no more");
    stage.role("visitor").spawn().end_well();
    mother.end_well();
}

fn mother(_: &Args) {
    let endpoint = Endpoint::listen("local:child").expect("to listen");
    let mut endpoint = Some(endpoint);
    let ended = fork(|| {
        drop(endpoint.take());
        0
    });
    assert_eq!(ended, Ended::Code(0));
    say("has a child no more");
    endpoint.expect("the parent's").accept_timeout(PATIENCE).expect("a visitor");
}

fn visitor(_: &Args) {
    Endpoint::new().unwrap().connect("local:child").expect("to find it");
}

/// An endpoint that greets all callers while its program does something else.
fn attentive(address: &str) -> Result<Endpoint> {
    Endpoint::builder().progress(Progress::Dedicated).listen(address).build()
}

/// Holds `local:box`, until it is told to leave.
fn holder(_: &Args) {
    let endpoint = attentive("local:box").unwrap();
    // Within one process, too.
    match Endpoint::listen("local:box") {
        Err(Error::NameInUse { name }) => assert_eq!(name, "local:box"),
        other => panic!("{other:?}"),
    }
    say("ready");
    hear();
    drop(endpoint);
}

fn second(_: &Args) {
    let error = Endpoint::listen("local:box").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the name local:box is in use by another endpoint; choose another name, or stop its owner"
    );
    match error {
        Error::NameInUse { name } => assert_eq!(name, "local:box"),
        other => panic!("{other:?}"),
    }
    // The process chooses another name, and reaches the owner of the first.
    let other = Endpoint::listen("local:box2").unwrap();
    other.connect("local:box").unwrap();
    say("was refused");
    hear();
    // Its owner was stopped.
    Endpoint::listen("local:box").unwrap();
}

// Gone.

#[test]
fn a_name_that_is_gone_is_gone_at_once() {
    let stage = Stage::new(60);
    stage.role("absent").spawn().end_well();
}

fn absent(_: &Args) {
    let endpoint = Endpoint::new().unwrap();
    let gone = |address: &str| {
        let error = endpoint.connect(address).unwrap_err();
        let says = format!("no endpoint listens at {address}; start the listening side first, or");
        assert!(error.to_string().starts_with(&says), "{error}");
        assert!(matches!(error, Error::NameGone { name } if name == address));
    };
    gone("local:box");
    let other = Endpoint::listen("local:box").unwrap();
    drop(other);
    gone("local:box");
    gone("local:0/no-such-name");
    // A missing directory makes no difference.
    fs::remove_dir_all(own_directory()).unwrap();
    gone("local:box");
    // The call waits for a while, if it is asked to; the peer may come in time.
    let patience = Duration::from_millis(100);
    let error = endpoint.connect_wait("local:box", patience).unwrap_err();
    assert!(matches!(error, Error::NameGone { .. }), "{error}");
    let late = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(200));
        let endpoint = Endpoint::listen("local:box").unwrap();
        endpoint.accept_timeout(PATIENCE).map(drop)
    });
    endpoint.connect_wait("local:box", PATIENCE).unwrap();
    late.join().expect("no panic").unwrap();
}

#[test]
fn who_waits_waits_for_directories_and_rights_as_well() {
    let stage = Stage::new(120);
    stage.role("waiting").spawn().end_well();
}

fn waiting(_: &Args) {
    let directory = own_directory();
    let endpoint = Endpoint::new().unwrap();
    let open_to = |mode| fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
    // A directory where all users may write is not searched.
    open_to(0o777);
    let error = endpoint.connect("local:box").unwrap_err();
    assert!(matches!(error, Error::NotAllowed { .. }), "{error}");
    let error = endpoint.connect_wait("local:box", Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, Error::NotAllowed { .. }), "{error}");
    let listens_after = |change: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| {
            let late = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(200));
                change();
                std::thread::sleep(Duration::from_millis(100));
                let endpoint = attentive("local:box").unwrap();
                endpoint.accept_timeout(PATIENCE).map(drop)
            });
            endpoint.connect_wait("local:box", PATIENCE).unwrap();
            late.join().expect("no panic").unwrap();
        });
    };
    listens_after(&|| open_to(0o700));
    fs::remove_dir_all(&directory).unwrap();
    listens_after(&|| {
        fs::create_dir(&directory).unwrap();
        open_to(0o700);
    });
}

#[test]
fn the_name_of_a_dead_process_is_free() {
    let stage = Stage::new(60);
    let mut holder = stage.role("holder").spawn();
    holder.expect("ready");
    holder.kill();
    assert!(holder.was_killed());
    let file = sockets(&stage).join("box");
    assert!(file.metadata().expect("the dead clean up nothing").file_type().is_socket());
    stage.role("heir").spawn().end_well();
    assert!(!file.exists());
}

fn heir(_: &Args) {
    let endpoint = Endpoint::new().unwrap();
    match endpoint.connect("local:box") {
        Err(Error::NameGone { name }) => assert_eq!(name, "local:box"),
        other => panic!("{other:?}"),
    }
    let heir = attentive("local:box").unwrap();
    endpoint.connect("local:box").unwrap();
    heir.accept_timeout(PATIENCE).unwrap();
}

// Unanswered.

#[test]
fn an_endpoint_that_does_not_answer_is_not_waited_for_for_ever() {
    let stage = Stage::new(60);
    let mut patient = stage.role("patient").spawn();
    patient.expect("ready");
    patient.signal(Signal::STOP);
    let mut hasty = stage.role("hasty").spawn();
    hasty.expect("has waited long enough");
    patient.signal(Signal::CONT);
    // A caller that calls later is answered later.
    stage.role("late_caller").spawn().end_well();
    hasty.say("look");
    hasty.end_well();
    patient.say("leave");
    patient.end_well();
}

fn patient(_: &Args) {
    let _endpoint = attentive("local:box").unwrap();
    say("ready");
    hear();
}

/// The objects that are put in place of the memory of a call that was given up.
const BOXES: usize = 2000;

fn hasty(_: &Args) {
    let patience = Duration::from_millis(100);
    let endpoint = Endpoint::builder().connect_timeout(patience).build().unwrap();
    let error = endpoint.connect("local:box").unwrap_err();
    assert_eq!(
        error.to_string(),
        "local:box did not answer within 100ms; see that its process runs and uses its endpoint, \
         or raise Builder::connect_timeout"
    );
    match error {
        Error::NoAnswer { name, patience: said } => {
            assert_eq!((name.as_str(), said), ("local:box", patience));
        }
        other => panic!("{other:?}"),
    }
    // Boxes of the same sizes as memory that others may write while a call lasts.
    let boxes: Vec<[Box<[u8; 16]>; 2]> =
        (0..BOXES).map(|_| [(); 2].map(|()| Box::new([0x5a; 16]))).collect();
    assert!(endpoint.peers().is_empty());
    say("has waited long enough");
    hear();
    // The other side has by now seen the call. Our memory is ours no matter what it did about it.
    for bytes in std::hint::black_box(boxes).iter().flatten() {
        assert_eq!(**bytes, [0x5a; 16], "written by a peer");
    }
}

fn late_caller(_: &Args) {
    Endpoint::new().unwrap().connect("local:box").unwrap();
}

// Malformed.

#[test]
fn addresses_that_are_none() {
    let stage = Stage::new(60);
    stage.role("malformed").spawn().end_well();
}

fn malformed(_: &Args) {
    let endpoint = Endpoint::new().unwrap();
    let long = format!("local:{}", "n".repeat(65));
    for (address, why) in [
        ("box", "it does not begin with \"local:\""),
        ("", "it does not begin with \"local:\""),
        ("local:", "the name is empty"),
        ("local:/box", "the user before the slash cannot be one"),
        ("local:..", "the name begins with a dot"),
        ("local:a/b/c", "the name has characters other than A-Z a-z 0-9 . _ -"),
        ("local:b ox", "the name has characters other than A-Z a-z 0-9 . _ -"),
        ("local:no-such-user-here/box", "there is no such user"),
        (&long, "the name is longer than 64 characters"),
    ] {
        for error in [
            Endpoint::listen(address).map(drop).unwrap_err(),
            endpoint.connect(address).map(drop).unwrap_err(),
            endpoint.connect_wait(address, PATIENCE).map(drop).unwrap_err(),
        ] {
            let text = error.to_string();
            match error {
                Error::BadAddress { address: said, why: reason } => {
                    assert_eq!(said, address);
                    assert_eq!(reason, why);
                }
                other => panic!("{address}: {other:?}"),
            }
            assert!(text.contains(&format!("{address:?} is not an address: ")), "{text}");
            assert!(
                text.ends_with("; write local:NAME, local:USER/NAME or tcp:HOST:PORT"),
                "{text}"
            );
        }
    }
}

// The directory.

/// The advice about a directory that is not for Pinfold to change.
const ELSEWHERE: &str = "set PINFOLD_DIR, for all programs that are to meet, to a directory of this \
                         user's alone, or to a path where there is nothing yet: Pinfold makes it";

/// A directory of the stage's, with this mode.
fn place(stage: &Stage, name: &str, mode: u32) -> PathBuf {
    let place = stage.path().join(name);
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, Permissions::from_mode(mode)).unwrap();
    place
}

/// The error of a role whose endpoints are to listen there.
fn told_of(stage: &Stage, place: &Path) -> String {
    let mut role = stage.role("unsafe_place").env("PINFOLD_DIR", place).spawn();
    let why = role.expect("refused");
    role.end_well();
    why
}

#[test]
fn directories_that_others_could_write() {
    let stage = Stage::new(60);
    for mode in [0o770, 0o707, 0o750, 0o777] {
        let place = place(&stage, &format!("mode-{mode:o}"), mode);
        let name = place.display();
        let expected = format!(
            "{name} its mode {mode:04o} lets other users in where they should not be; {ELSEWHERE}"
        );
        assert_eq!(told_of(&stage, &place), expected);
        assert_eq!(place.metadata().unwrap().permissions().mode() & 0o777, mode);
        fs::set_permissions(&place, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(told_of(&stage, &place), "nothing");
    }
    let real = place(&stage, "real", 0o700);
    let link = stage.path().join("link");
    symlink(&real, &link).unwrap();
    let why = told_of(&stage, &link);
    assert!(why.starts_with(&link.display().to_string()), "{why}");
}

#[test]
fn directories_of_others() {
    if !is_root_or_skip("a directory of another user's") {
        return;
    }
    let stage = Stage::new(60);
    let theirs = place(&stage, "theirs", 0o700);
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).unwrap();
    let why = told_of(&stage, &theirs);
    assert!(why.contains("belongs to user 65534 (nobody), not to user 0 (root)"), "{why}");
    assert!(why.ends_with(ELSEWHERE), "{why}");
}

fn unsafe_place(_: &Args) {
    let listened = attentive("local:box");
    let connected = Endpoint::new().unwrap().connect("local:box");
    match (listened, connected) {
        (Ok(_), Ok(_)) => say("refused nothing"),
        (Err(Error::NotAllowed { name, why }), Err(second)) => {
            let text = Error::NotAllowed { name: name.clone(), why: why.clone() }.to_string();
            assert_eq!(text, format!("access to {name} refused: {why}"));
            assert!(matches!(second, Error::NotAllowed { .. }), "{second:?}");
            say(format_args!("refused {name} {why}"));
        }
        other => panic!("{other:?}"),
    }
}
