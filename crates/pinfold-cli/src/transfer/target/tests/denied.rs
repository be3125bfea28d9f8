//! Tests without the calls that give a file its name: each in a process of its own, with a filter.

use pinfold_tests::{
    filter::{deny, deny_if, kill},
    host::{Ended, fork},
};

use super::*;

const REFUSALS: [i32; 5] =
    [libc::EPERM, libc::ENOSYS, libc::EOPNOTSUPP, libc::EACCES, libc::EINVAL];

const RENAME_NEW: libc::c_long = libc::SYS_renameat2;

/// Denies the making of files without a name.
fn deny_nameless(errno: i32) {
    let flag = u64::from((OFlags::TMPFILE - OFlags::DIRECTORY).bits());
    deny_if(libc::SYS_openat, 2, flag, flag, errno);
}

/// The promises of a receiver in an empty directory, kept under every denial.
fn promises(dir: &Path) {
    let rules = Rules { sync: true, ..RULES };
    let mut target = Directory::open(dir, rules).unwrap();
    for name in ["a", "b", "d/c"] {
        let mut file = target.begin(&offer(name)).unwrap();
        file.write(b"abc").unwrap();
        file.skip(9000);
        let path = dir.join(name);
        assert!(!path.exists());
        file.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), [&b"abc"[..], &[0; 9000]].concat());
        let metadata = path.metadata().unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.nlink()), (0o644, 1));
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000_000, 123_456_789));
    }
    // A file that is given up leaves nothing.
    let mut file = target.begin(&offer("e")).unwrap();
    file.write(b"abc").unwrap();
    drop(file);
    // An existing file is kept, also if it has come meanwhile.
    assert_eq!(put(&mut target, "a", "new").unwrap_err().status(), 5);
    let mut file = target.begin(&offer("f")).unwrap();
    file.write(b"abc").unwrap();
    fs::write(dir.join("f"), "other").unwrap();
    let failure = file.commit().unwrap_err();
    assert!(failure.to_string().contains("File exists"), "{failure}");
    assert_eq!(fs::read(dir.join("f")).unwrap(), b"other");
    // Unless that is wanted.
    let mut target = Directory::open(dir, Rules { force: true, ..rules }).unwrap();
    put(&mut target, "a", "new").unwrap();
    put(&mut target, "g", "new").unwrap();
    assert_eq!(fs::read(dir.join("a")).unwrap(), b"new");
    assert_eq!(listing(dir), ["a", "b", "d", "f", "g"]);
    assert_eq!(listing(&dir.join("d")), ["c"]);
}

/// Checks the promises in a process after `filter` has denied calls.
#[track_caller]
fn kept(what: &str, filter: impl Fn()) {
    let dir = tempfile::tempdir().unwrap();
    let ended = fork(|| {
        filter();
        promises(dir.path());
        0
    });
    assert_eq!(ended, Ended::Code(0), "{what}");
}

#[test]
fn nothing_is_denied() {
    kept("nothing", || {});
}

#[test]
fn links_are_denied() {
    for errno in REFUSALS {
        kept(&format!("linkat, {errno}"), || deny(&[libc::SYS_linkat], errno));
    }
}

#[test]
fn nameless_files_are_denied() {
    for errno in REFUSALS {
        kept(&format!("O_TMPFILE, {errno}"), || deny_nameless(errno));
    }
}

#[test]
fn renames_that_replace_nothing_are_denied() {
    for errno in REFUSALS {
        kept(&format!("O_TMPFILE and renameat2, {errno}"), || {
            deny_nameless(errno);
            deny(&[RENAME_NEW], errno);
        });
    }
}

#[test]
fn all_of_it_is_denied() {
    for errno in REFUSALS {
        kept(&format!("linkat and renameat2, {errno}"), || {
            deny(&[libc::SYS_linkat, RENAME_NEW], errno);
        });
        kept(&format!("O_TMPFILE, linkat and renameat2, {errno}"), || {
            deny_nameless(errno);
            deny(&[libc::SYS_linkat, RENAME_NEW], errno);
        });
    }
}

/// A link by way of /proc, if that is not mounted, and by the descriptor, which older kernels
/// refuse.
#[test]
fn proc_is_missing() {
    let (by_proc, by_descriptor) = (0x400, 0x1000);
    kept("/proc", || deny_if(libc::SYS_linkat, 4, by_proc, by_proc, libc::ENOENT));
    kept("/proc, and the right to do without", || {
        deny_if(libc::SYS_linkat, 4, by_proc, by_proc, libc::ENOENT);
        deny_if(libc::SYS_linkat, 4, by_descriptor, by_descriptor, libc::ENOENT);
    });
}

/// Links that a file system refuses, which shows only when one is made.
#[test]
fn links_fail_late() {
    let dir = tempfile::tempdir().unwrap();
    let mut target = Directory::open(dir.path(), RULES).unwrap();
    if create_nameless(target.root.as_fd()).is_none() {
        return pinfold_tests::skip("this file system has no files without a name");
    }
    for name in ["a", "b"] {
        let mut file = target.begin(&offer(name)).unwrap();
        assert_eq!(file.parent.temporary.is_none(), name == "a", "the first is enough to know");
        file.write(b"abc").unwrap();
        file.skip(40 << 20);
        if name == "a" {
            extend(file.file.as_fd(), file.written()).unwrap();
            file.name_by_copy().unwrap();
            assert!(listing(dir.path()).iter().all(|name| name.starts_with(TEMPORARY)));
        }
        file.commit().unwrap();
        let path = dir.path().join(name);
        let contents = fs::read(&path).unwrap();
        assert!(contents[..3] == *b"abc" && contents.len() == (40 << 20) + 3);
        assert!(contents[3..].iter().all(|byte| *byte == 0));
        let metadata = path.metadata().unwrap();
        assert!(metadata.blocks() * 512 < 1 << 20, "holes are copied as holes");
        assert_eq!((metadata.mode() & 0o7777, metadata.mtime()), (0o644, 1_000_000_000));
    }
    assert_eq!(listing(dir.path()), ["a", "b"]);
}

/// The process is killed at the only moment at which the name is there and the file is not.
#[test]
fn what_is_left_of_the_last_way_does_not_look_complete() {
    let dir = tempfile::tempdir().unwrap();
    let ended = fork(|| {
        deny(&[libc::SYS_linkat, RENAME_NEW], libc::EPERM);
        kill(&[libc::SYS_renameat]);
        put(&mut Directory::open(dir.path(), RULES).unwrap(), "file", "abc").unwrap();
        0
    });
    assert_eq!(ended, Ended::Signal(libc::SIGSYS));
    let names = listing(dir.path());
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].starts_with(TEMPORARY), "{names:?}");
    let metadata = dir.path().join("file").metadata().unwrap();
    assert_eq!((metadata.len(), metadata.mode() & 0o7777), (0, 0));
}

/// A rename that fails at last leaves nothing behind.
#[test]
fn no_way_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let ended = fork(|| {
        deny(&[libc::SYS_linkat, RENAME_NEW, libc::SYS_renameat], libc::EPERM);
        let mut target = Directory::open(dir.path(), RULES).unwrap();
        assert_eq!(put(&mut target, "file", "abc").unwrap_err().status(), 5);
        0
    });
    assert_eq!(ended, Ended::Code(0));
    assert!(listing(dir.path()).is_empty());
}

#[test]
fn modes_and_times_that_cannot_be_set_are_counted() {
    use crate::transfer::frame::DirectoryOffer;
    for errno in [libc::EPERM, libc::EOPNOTSUPP, libc::ENOSYS] {
        let dir = tempfile::tempdir().unwrap();
        let ended = fork(|| {
            deny(&[libc::SYS_fchmod], errno);
            let mut target = Directory::open(dir.path(), RULES).unwrap();
            put(&mut target, "file", "abc").unwrap();
            assert_eq!(target.unkept().count(), 1);
            let name = RelativeName::new(b"d").unwrap();
            let attributes = Attributes { mode: 0o755, modified: (0, 0) };
            target.make(&DirectoryOffer { name, attributes }).unwrap();
            assert_eq!(target.unkept().count(), 2);
            deny(&[libc::SYS_utimensat], errno);
            for number in 0..10 {
                put(&mut target, &number.to_string(), "abc").unwrap();
            }
            target.finish().unwrap();
            assert_eq!(target.unkept().count(), 22);
            0
        });
        assert_eq!(ended, Ended::Code(0), "{errno}");
        // Directories that could not be opened up stay closed.
        for name in ["file", "9", "d"] {
            let mode = dir.path().join(name).metadata().unwrap().mode();
            assert_eq!(mode & 0o077, 0, "{name}");
        }
    }
}
