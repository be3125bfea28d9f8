//! Files below a directory, and streams; [`denied`] is about missing calls.

mod denied;
mod directories;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
};

use super::*;
use crate::transfer::{frame::Attributes, name::RelativeName};

const RULES: Rules =
    Rules { force: false, sync: false, times: false, umask: 0o022, nameless: true };

fn offer(name: &str) -> FileOffer {
    FileOffer {
        name: RelativeName::new(name.as_bytes()).unwrap(),
        size: Some(3),
        attributes: Attributes { mode: 0o666, modified: (1_000_000_000, 123_456_789) },
    }
}

fn put(directory: &mut Directory, name: &str, contents: &str) -> Result<(), Failure> {
    let mut file = directory.begin(&offer(name))?;
    file.write(contents.as_bytes())?;
    file.commit()
}

fn listing(path: &Path) -> Vec<String> {
    let name =
        |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(path).unwrap().map(name).collect();
    names.sort();
    names
}

/// Runs `test` with files that have no name while they are written, and with files that do.
fn both_ways(test: impl Fn(&Path, Rules)) {
    for nameless in [true, false] {
        for sync in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            test(dir.path(), Rules { nameless, sync, ..RULES });
        }
    }
}

#[test]
fn a_file_appears_when_it_is_complete() {
    both_ways(|dir, rules| {
        let mut directory = Directory::open(dir, rules).unwrap();
        let mut file = directory.begin(&offer("sub/deep/file")).unwrap();
        file.write(b"ab").unwrap();
        file.write(b"c").unwrap();
        assert_eq!(file.written(), 3);
        let path = dir.join("sub/deep");
        assert!(listing(&path).iter().all(|name| name.starts_with(TEMPORARY)));
        file.commit().unwrap();
        assert_eq!(listing(&path), ["file"]);
        let path = path.join("file");
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        let metadata = path.metadata().unwrap();
        assert_eq!(metadata.mode() & 0o7777, 0o644);
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000_000, 123_456_789));
        // The second file of a directory, and one elsewhere.
        put(&mut directory, "sub/deep/other", "x").unwrap();
        put(&mut directory, "top", "x").unwrap();
        assert_eq!(listing(&dir.join("sub/deep")), ["file", "other"]);
        assert_eq!(listing(dir), ["sub", "top"]);
    });
}

#[test]
fn a_file_that_is_given_up_leaves_nothing() {
    both_ways(|dir, rules| {
        let mut directory = Directory::open(dir, rules).unwrap();
        let mut file = directory.begin(&offer("file")).unwrap();
        file.write(b"abc").unwrap();
        drop(file);
        assert!(listing(dir).is_empty());
    });
}

#[test]
fn an_existing_file_is_kept_unless_forced() {
    both_ways(|dir, rules| {
        fs::write(dir.join("file"), "old").unwrap();
        let mut directory = Directory::open(dir, rules).unwrap();
        // The failure comes before anything is written.
        let failure = directory.begin(&offer("file")).map(drop).unwrap_err();
        assert_eq!(failure.status(), 5);
        assert!(failure.to_string().contains("--force"), "{failure}");
        assert_eq!(fs::read(dir.join("file")).unwrap(), b"old");
        let mut directory = Directory::open(dir, Rules { force: true, ..rules }).unwrap();
        put(&mut directory, "file", "new").unwrap();
        put(&mut directory, "fresh", "new").unwrap();
        assert_eq!(fs::read(dir.join("file")).unwrap(), b"new");
        assert_eq!(listing(dir), ["file", "fresh"]);
    });
}

#[test]
fn a_file_that_appears_meanwhile_is_kept() {
    both_ways(|dir, rules| {
        let mut directory = Directory::open(dir, rules).unwrap();
        let mut file = directory.begin(&offer("file")).unwrap();
        file.write(b"new").unwrap();
        fs::write(dir.join("file"), "old").unwrap();
        assert_eq!(file.commit().unwrap_err().status(), 5);
        assert_eq!(fs::read(dir.join("file")).unwrap(), b"old");
        assert_eq!(listing(dir), ["file"]);
    });
}

#[test]
fn links_do_not_lead_out() {
    both_ways(|dir, rules| {
        let inside = dir.join("inside");
        let outside = dir.join("outside");
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        symlink(&outside, inside.join("way")).unwrap();
        symlink(outside.join("new"), inside.join("name")).unwrap();
        let mut directory = Directory::open(&inside, Rules { force: true, ..rules }).unwrap();
        let failure = put(&mut directory, "way/file", "x").unwrap_err();
        assert!(failure.to_string().contains("symbolic links are not followed"), "{failure}");
        // A link in the place of the file is replaced, not followed.
        put(&mut directory, "name", "x").unwrap();
        assert!(listing(&outside).is_empty());
        assert!(inside.join("name").symlink_metadata().unwrap().is_file());
        let mut directory = Directory::open(&inside, rules).unwrap();
        symlink(outside.join("new"), inside.join("dangling")).unwrap();
        assert_eq!(put(&mut directory, "dangling", "x").unwrap_err().status(), 5);
        assert!(listing(&outside).is_empty());
    });
}

#[test]
fn things_in_the_way() {
    both_ways(|dir, rules| {
        fs::write(dir.join("file"), "x").unwrap();
        fs::create_dir(dir.join("dir")).unwrap();
        let mut directory = Directory::open(dir, Rules { force: true, ..rules }).unwrap();
        let failure = put(&mut directory, "file/below", "x").unwrap_err();
        assert!(failure.to_string().contains("a directory is needed there"), "{failure}");
        // The failure comes before anything is written.
        let failure = directory.begin(&offer("dir")).map(drop).unwrap_err();
        assert!(failure.to_string().contains("Is a directory"), "{failure}");
    });
}

#[test]
fn the_directory_must_be_there() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Directory::open(&dir.path().join("missing"), RULES).unwrap_err();
    assert_eq!(missing.status(), 5);
    assert!(missing.to_string().contains("make it first"), "{missing}");
    fs::write(dir.path().join("file"), "x").unwrap();
    let file = Directory::open(&dir.path().join("file"), RULES).unwrap_err();
    assert!(file.to_string().contains("it is no directory"), "{file}");
}

#[test]
fn the_longest_name_can_be_replaced() {
    both_ways(|dir, rules| {
        let name = "n".repeat(255);
        let mut directory = Directory::open(dir, Rules { force: true, ..rules }).unwrap();
        put(&mut directory, &name, "old").unwrap();
        put(&mut directory, &name, "new").unwrap();
        assert_eq!(fs::read(dir.join(&name)).unwrap(), b"new");
    });
}

#[test]
fn bits_of_the_umask_are_not_given() {
    let dir = tempfile::tempdir().unwrap();
    let mut directory = Directory::open(dir.path(), Rules { umask: 0o077, ..RULES }).unwrap();
    let mut wanted = offer("file");
    wanted.attributes.mode = 0o777;
    directory.begin(&wanted).unwrap().commit().unwrap();
    let mode = dir.path().join("file").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);
}

#[test]
fn output_that_is_closed_and_output_that_is_full() {
    let (out, into) = rustix::pipe::pipe().unwrap();
    let mut output = Output::new(into);
    output.write(b"abc").unwrap();
    drop(out);
    let closed = output.write(b"def").unwrap_err();
    assert!(matches!(closed, Failure::OutputClosed { bytes: 3 }), "{closed}");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let failure = Output::new(full).write(b"abc").unwrap_err();
    assert_eq!(failure.status(), 5);
    assert!(failure.to_string().contains("No space left"), "{failure}");
}

#[test]
fn output_that_does_not_block_is_waited_for() {
    let (out, into) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
    let bytes = vec![7u8; 3 << 20];
    let length = bytes.len();
    let writer = std::thread::spawn(move || Output::new(into).write(&bytes));
    let mut got = 0;
    let mut buffer = vec![0u8; 1 << 16];
    while got < length {
        match rustix::io::read(&out, &mut buffer) {
            Ok(count) => got += count,
            Err(Errno::AGAIN) => std::thread::yield_now(),
            Err(why) => panic!("{why}"),
        }
    }
    writer.join().unwrap().unwrap();
}
