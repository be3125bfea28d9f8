//! Cleaners of temporary files: they leave alone the files that live endpoints need, and files that
//! they or others remove all the same are made again, or reported.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use pinfold::{Access, Endpoint, Error, Progress, Source, TagMatch, status};
use pinfold_tests::{
    Args, Stage,
    role::{PATIENCE, hear, say},
    skip,
    stage::Player,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{FlockOperation, flock},
    process::Signal,
};

pinfold_tests::roles!(keeper, caller, thief);

fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn idle_until_readable(endpoint: &Endpoint) {
    if endpoint.arm().unwrap() {
        poll(&mut [PollFd::new(endpoint, PollFlags::IN)], None).unwrap();
    }
    endpoint.progress().unwrap();
}

/// Listens in the given way, and lets itself be called.
fn keeper(args: &Args) {
    let way = args.text("way");
    let own_thread = ["thread", "open"].contains(&way);
    let progress = if own_thread { Progress::Dedicated } else { Progress::Inline };
    let mut builder = Endpoint::builder().progress(progress);
    if way == "open" {
        builder = builder.access(Access::same_user().user(own() + 1));
    }
    if way == "beside" {
        builder = builder.listen("tcp:127.0.0.1:0");
    }
    let endpoint = builder.listen("local:box").build().unwrap();
    // Only a newcomer could end this receive.
    let mut receive = Some(endpoint.recv_request(Source::Any, TagMatch::any()));
    say("ready");
    loop {
        let accepted = match way {
            "descriptor" => {
                idle_until_readable(&endpoint);
                match endpoint.accept_timeout(Duration::ZERO) {
                    Err(Error::Timeout(_)) => continue,
                    accepted => accepted,
                }
            }
            _ => endpoint.accept_timeout(PATIENCE),
        };
        match accepted {
            Ok(_) => break,
            Err(Error::NameLost { name }) => {
                assert_eq!(name, "local:box");
                let received = receive.take().expect("it is told once").wait();
                assert!(matches!(received, Err(Error::NameLost { .. })), "{received:?}");
                say("lost");
            }
            Err(error) => panic!("{error}"),
        }
    }
    say("called");
    hear();
}

fn caller(_: &Args) {
    let endpoint = Endpoint::new().unwrap();
    endpoint.connect_wait("local:box", PATIENCE).unwrap();
    say("connected");
    hear();
}

/// Removes the name of another, and takes it.
fn thief(args: &Args) {
    let endpoint = loop {
        // Its owner, which is being stopped, may be faster once more.
        let _ = fs::remove_file(args.text("file"));
        match Endpoint::listen("local:box") {
            Err(Error::NameInUse { .. }) => {}
            listens => break listens.unwrap(),
        }
    };
    say("has it");
    hear();
    drop(endpoint);
}

/// A keeper that listens in this way, in this directory of the stage's.
fn keeper_in(stage: &Stage, place: &Path, way: &str) -> Player {
    let keeper = stage.role("keeper").with("way", way).env("PINFOLD_DIR", place);
    let mut keeper = keeper.spawn();
    keeper.expect("ready");
    keeper
}

/// Returns whether the keeper is found by its name.
fn is_found(stage: &Stage, place: &Path, keeper: &mut Player) {
    let mut caller = stage.role("caller").env("PINFOLD_DIR", place).spawn();
    caller.expect("connected");
    keeper.expect("called");
    for player in [&mut caller, keeper] {
        player.say("leave");
        player.end_well();
    }
}

fn directory(stage: &Stage, name: &str) -> PathBuf {
    let path = stage.path().join(name);
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    path
}

fn sockets_in(place: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
    let is_socket =
        |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    let mut sockets: Vec<_> = files.filter(is_socket).collect();
    sockets.sort();
    sockets
}

// Left alone.

/// Has `systemd-tmpfiles` clean up by its own rules all files in `place`, no matter how old.
/// Returns whether it did: the program may not exist.
fn clean(stage: &Stage, place: &Path) -> bool {
    let (rules, control) = (stage.path().join("rules.conf"), place.join("control"));
    fs::write(&rules, format!("d {} - - - 0\n", place.display())).unwrap();
    fs::write(&control, "").unwrap();
    let ran = Command::new("systemd-tmpfiles").arg("--clean").arg(&rules).output();
    match ran {
        Ok(_) if !control.exists() => true,
        Ok(output) => {
            skip(&format!("systemd-tmpfiles cleans nothing here: {output:?}"));
            false
        }
        Err(error) => {
            skip(&format!("there is no systemd-tmpfiles: {error}"));
            false
        }
    }
}

#[test]
fn systemd_tmpfiles_leaves_live_names_alone() {
    for way in ["accept", "open", "beside"] {
        // The second is too long for the address of a socket.
        for name in ["short".to_owned(), "long".repeat(40)] {
            let stage = Stage::new(120);
            let place = directory(&stage, &name);
            let mut keeper = keeper_in(&stage, &place, way);
            let listens = match way {
                "open" => PathBuf::from(format!("{}.open", place.display())),
                _ => place.clone(),
            };
            let before = sockets_in(&listens);
            assert_eq!(before.len(), if way == "beside" { 2 } else { 1 });
            if !clean(&stage, &listens) {
                return;
            }
            assert_eq!(sockets_in(&listens), before);
            is_found(&stage, &place, &mut keeper);
        }
    }
}

/// Files in a directory of which only the one above is named in the rules.
#[test]
fn systemd_tmpfiles_leaves_directories_of_live_names_alone() {
    let stage = Stage::new(120);
    let above = directory(&stage, "above");
    let place = above.join("place");
    let mut keeper = keeper_in(&stage, &place, "accept");
    fs::write(place.join("notes"), "").unwrap();
    if !clean(&stage, &above) {
        return;
    }
    assert!(place.join("notes").exists() && place.join(".lock").exists());
    is_found(&stage, &place, &mut keeper);
}

/// A model of the rules by which that cleaner spares a file, where it is not installed: each of
/// them alone would do.
#[test]
fn by_a_model_of_its_rules_a_cleaner_leaves_live_names_alone() {
    let stage = Stage::new(120);
    let place = directory(&stage, "place");
    let mut keeper = keeper_in(&stage, &place, "accept");
    let [file] = &sockets_in(&place)[..] else { panic!("one") };
    let bound = fs::read_to_string("/proc/net/unix").unwrap();
    let listed = bound.lines().filter_map(|line| line.split_whitespace().nth(7));
    // Where others can rename a directory above, no path leads there for certain.
    let is_safe = file.ancestors().skip(2).all(|above| {
        let mode = above.metadata().unwrap().permissions().mode();
        mode & 0o022 == 0 || mode & 0o1000 != 0
    });
    let file = file.canonicalize().unwrap();
    assert!(!is_safe || listed.into_iter().any(|path| Path::new(path) == file), "{bound}");
    assert_ne!(file.metadata().unwrap().permissions().mode() & 0o1000, 0);
    let opened = fs::File::open(&place).unwrap();
    flock(&opened, FlockOperation::NonBlockingLockExclusive).unwrap_err();
    is_found(&stage, &place, &mut keeper);
    // No process holds it any more.
    flock(&opened, FlockOperation::NonBlockingLockExclusive).unwrap();
}

// Made again.

#[test]
fn a_name_that_is_removed_is_made_again() {
    for way in ["accept", "descriptor", "thread", "open", "beside"] {
        let stage = Stage::new(120);
        let place = directory(&stage, "place");
        let mut keeper = keeper_in(&stage, &place, way);
        let listens = match way {
            "open" => PathBuf::from(format!("{}.open", place.display())),
            _ => place.clone(),
        };
        let before = sockets_in(&listens);
        // All files are removed, the lock file as well; then the directory itself.
        for file in fs::read_dir(&listens).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
        if way != "accept" {
            fs::remove_dir(&listens).unwrap();
        }
        // Of two names each comes back.
        let end = Instant::now() + PATIENCE;
        while before.len() > 1 && (!listens.exists() || sockets_in(&listens) != before) {
            assert!(Instant::now() < end, "not all of {before:?} are made again");
            thread::sleep(Duration::from_millis(20));
        }
        is_found(&stage, &place, &mut keeper);
    }
}

// Reported.

#[test]
fn a_name_that_another_has_taken_is_reported_and_comes_back() {
    let stage = Stage::new(120);
    let place = directory(&stage, "place");
    let mut keeper = keeper_in(&stage, &place, "accept");
    let is_lost = |keeper: &Player| {
        let view = status::endpoints_of(keeper.pid()).unwrap();
        view.endpoints.iter().any(|endpoint| endpoint.name_lost)
    };
    assert!(!is_lost(&keeper));
    keeper.signal(Signal::STOP);
    let thief = stage.role("thief").with("file", place.join("box").display());
    let mut thief = thief.env("PINFOLD_DIR", &place).spawn();
    thief.expect("has it");
    keeper.signal(Signal::CONT);
    keeper.expect("lost");
    assert!(is_lost(&keeper));
    thief.say("leave");
    thief.end_well();
    is_found(&stage, &place, &mut keeper);
}
