//! Listeners: taking names, sweeping dead ones, races, access.

use std::{os::unix::fs::PermissionsExt, path::Path};

use pinfold_sys::user::uid;

use super::{super::directory::Origin, *};

fn places(base: &Path) -> Places {
    Places {
        explicit: None,
        runtime: None,
        sessions: base.join("run"),
        tmp: base.to_owned(),
        uid: uid(),
    }
}

fn address(name: &str) -> Address {
    format!("local:{name}").parse().unwrap()
}

fn bind(places: &Places, name: &str) -> Result<Listener> {
    Listener::bind_in(places, &address(name), &Access::same_user())
}

fn file(places: &Places, name: &str) -> std::path::PathBuf {
    places.tmp.join(format!("pinfold-{}/{name}", uid()))
}

/// Leaves a socket file to which no process is bound, as a killed process does.
fn leave_stale(path: &Path) {
    drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    // A process that another test is starting may hold a copy for a moment.
    while seqpacket::is_bound(path).unwrap() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_name_is_taken_once_and_given_back() {
    let base = tempfile::tempdir().unwrap();
    let places = places(base.path());
    let one = bind(&places, "box").unwrap();
    assert_eq!(one.address(), &address("box"));
    let mode = file(&places, "box").metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let taken = bind(&places, "box");
    assert!(matches!(taken, Err(Error::NameInUse { name }) if name == "local:box"));
    // The check left nothing but a caller that has gone again.
    let (asked, who) = one.accept().unwrap().unwrap();
    assert_eq!(who.pid, std::process::id());
    assert_eq!(seqpacket::drain(asked).unwrap(), seqpacket::Drained::Closed);
    assert!(one.accept().unwrap().is_none());
    let two = bind(&places, "box2").unwrap();
    drop(one);
    assert!(!file(&places, "box").exists());
    bind(&places, "box").unwrap();
    assert!(file(&places, "box2").exists());
    drop(two);
}

#[test]
fn the_files_of_the_dead_are_swept_and_replaced() {
    let base = tempfile::tempdir().unwrap();
    let places = places(base.path());
    let alive = bind(&places, "alive").unwrap();
    for name in ["box", "other"] {
        leave_stale(&file(&places, name));
    }
    std::fs::write(file(&places, "notes"), "mine").unwrap();
    let listener = bind(&places, "box").unwrap();
    assert!(file(&places, "box").exists() && file(&places, "alive").exists());
    assert!(!file(&places, "other").exists());
    assert!(matches!(bind(&places, "notes"), Err(Error::NameInUse { .. })));
    assert_eq!(std::fs::read(file(&places, "notes")).unwrap(), b"mine");
    drop((alive, listener));
}

#[test]
fn dead_files_of_other_programs_are_left_alone() {
    let base = tempfile::tempdir().unwrap();
    let mut places = places(base.path());
    places.explicit = Some(base.path().join("given"));
    let file = |name: &str| base.path().join("given").join(name);
    drop(bind(&places, "first").unwrap());
    let same_host = Address::same_host(7);
    for name in ["theirs", "box", same_host.name()] {
        leave_stale(&file(name));
    }
    let _listener = bind(&places, "box").unwrap();
    assert!(file("theirs").exists() && file("box").exists());
    assert!(!file(same_host.name()).exists());
    let _other = bind(&places, "theirs").unwrap();
}

#[test]
fn a_name_that_was_taken_over_is_left_alone() {
    let base = tempfile::tempdir().unwrap();
    let places = places(base.path());
    let first = bind(&places, "box").unwrap();
    std::fs::remove_file(file(&places, "box")).unwrap();
    let second = bind(&places, "box").unwrap();
    drop(first);
    assert!(file(&places, "box").exists());
    assert!(seqpacket::connect(&file(&places, "box")).is_ok());
    drop(second);
    assert!(!file(&places, "box").exists());
}

#[test]
fn a_name_is_one_name_in_all_directories() {
    let base = tempfile::tempdir().unwrap();
    let mut places = places(base.path());
    let _here = bind(&places, "box").unwrap();
    let open = Access::same_user().user(uid() + 1);
    let taken = Listener::bind_in(&places, &address("box"), &open);
    assert!(matches!(taken, Err(Error::NameInUse { .. })));
    places.runtime = Some(base.path().join("session"));
    Directory::make(&base.path().join("session"), uid(), Kind::Private, Origin::Ours).unwrap();
    assert!(matches!(bind(&places, "box"), Err(Error::NameInUse { .. })));
    bind(&places, "box2").unwrap();
}

#[test]
fn others_are_let_in_only_on_request() {
    let base = tempfile::tempdir().unwrap();
    let places = places(base.path());
    let access = Access::same_user().user(uid() + 1);
    let listener = Listener::bind_in(&places, &address("box"), &access).unwrap();
    let path = places.tmp.join(format!("pinfold-{}.open/box", uid()));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o666);
    drop(listener);
    assert!(!path.exists());
    let unknown = Access::same_user().user("no such user");
    let refused = Listener::bind_in(&places, &address("box"), &unknown);
    assert!(matches!(refused, Err(Error::NotAllowed { .. })));
    let theirs = "local:4000000011/box".parse().unwrap();
    let refused = Listener::bind_in(&places, &theirs, &access).unwrap_err().to_string();
    assert!(refused.contains("listen at local:box, and"), "{refused}");
}

#[test]
fn connections_come_with_credentials() {
    let base = tempfile::tempdir().unwrap();
    let places = places(base.path());
    let listener = bind(&places, "box").unwrap();
    assert!(listener.accept().unwrap().is_none());
    let _client = seqpacket::connect(&file(&places, "box")).unwrap();
    let (_socket, who) = listener.accept().unwrap().unwrap();
    assert_eq!((who.pid, who.uid), (std::process::id(), uid()));
}

#[test]
fn racing_for_a_name_has_one_winner() {
    let base = tempfile::tempdir().unwrap();
    let places = places(base.path());
    let place = base.path().join(format!("pinfold-{}", uid()));
    Directory::make(&place, uid(), Kind::Private, Origin::Ours).unwrap();
    leave_stale(&file(&places, "box"));
    let won = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..8).map(|_| scope.spawn(|| bind(&places, "box").ok())).collect();
        let won: Vec<_> = racers.into_iter().filter_map(|racer| racer.join().unwrap()).collect();
        won.len()
    });
    assert_eq!(won, 1);
}

#[test]
fn a_file_that_is_gone_is_made_again() {
    let base = tempfile::tempdir().unwrap();
    let places = places(base.path());
    let mut one = bind(&places, "box").unwrap();
    assert!(one.look_after(1).unwrap().is_none());
    std::fs::remove_file(file(&places, "box")).unwrap();
    assert!(!one.is_in_place());
    assert!(one.look_after(2).unwrap().is_some());
    assert!(one.is_in_place());
    // The whole directory is gone, and another file is in its place for a while.
    let directory = file(&places, "box").parent().unwrap().to_owned();
    std::fs::remove_dir_all(&directory).unwrap();
    std::fs::write(&directory, "").unwrap();
    assert!(matches!(one.look_after(3), Err(Error::NotAllowed { .. })));
    std::fs::remove_file(&directory).unwrap();
    assert!(one.look_after(4).unwrap().is_some());
    let _caller = seqpacket::connect(&file(&places, "box")).unwrap();
    assert!(one.accept().unwrap().is_some());
    drop(one);
    assert!(!file(&places, "box").exists());
}

#[test]
fn a_name_that_another_took_is_reported_until_it_is_free() {
    let base = tempfile::tempdir().unwrap();
    let places = places(base.path());
    let mut one = bind(&places, "box").unwrap();
    std::fs::remove_file(file(&places, "box")).unwrap();
    let two = bind(&places, "box").unwrap();
    for _ in 0..2 {
        let lost = one.look_after(1).unwrap_err();
        assert!(matches!(lost, Error::NameLost { name } if name == "local:box"));
        assert!(one.is_lost() && two.is_in_place());
    }
    drop(two);
    assert!(one.look_after(2).unwrap().is_some());
    assert!(!one.is_lost() && one.is_in_place());
}

#[test]
fn files_in_use_never_look_old() {
    let base = tempfile::tempdir().unwrap();
    let places = places(base.path());
    let mut listener = bind(&places, "box").unwrap();
    let files = ["box", LOCK].map(|name| file(&places, name));
    let long_ago = Timespec { tv_sec: 1000, tv_nsec: 0 };
    let old = Timestamps { last_access: long_ago, last_modification: long_ago };
    let ages = || files.each_ref().map(|file| file.metadata().unwrap().modified().unwrap());
    for file in &files {
        fs::utimensat(fs::CWD, file, &old, AtFlags::empty()).unwrap();
    }
    let before = ages();
    let now = clock::now_ns();
    listener.look_after(now).unwrap();
    assert_eq!(ages(), before);
    listener.look_after(now + TOUCH_NS).unwrap();
    assert!(ages().iter().zip(before).all(|(now, then)| *now > then));
}

fn directory(base: &Path) -> Directory {
    Directory::make(&base.join("place"), uid(), Kind::Private, Origin::Ours).unwrap()
}

#[test]
fn a_lock_whose_file_was_removed_locks_nobody_out_and_lets_nobody_in() {
    let base = tempfile::tempdir().unwrap();
    let directory = directory(base.path());
    let is_free = || Lock::take(&directory, Duration::ZERO).is_ok();
    let first = Lock::take(&directory, Duration::ZERO).unwrap();
    assert!(!is_free());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| Lock::take(&directory, LOCK_PATIENCE).unwrap());
        // The thread waits for a lock file that is about to be removed.
        std::thread::sleep(Duration::from_millis(50));
        fs::unlinkat(&directory, LOCK, AtFlags::empty()).unwrap();
        drop(first);
        let second = waits.join().unwrap();
        assert!(identity(&directory, LOCK).is_ok() && !is_free());
        drop(second);
    });
    assert!(is_free());
}

/// A child that was forked meanwhile has such a copy.
#[test]
fn a_lock_ends_though_copies_of_it_are_open() {
    let base = tempfile::tempdir().unwrap();
    let directory = directory(base.path());
    let lock = Lock::take(&directory, Duration::ZERO).unwrap();
    let copy = fcntl_dupfd_cloexec(&lock, 0).unwrap();
    drop(lock);
    Lock::take(&directory, Duration::ZERO).unwrap();
    drop(copy);
}
