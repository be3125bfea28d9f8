//! Directories: their permissions during the transfer and after it.

use super::*;
use crate::transfer::frame::DirectoryOffer;

fn directory(name: &str, mode: u32) -> DirectoryOffer {
    let name = RelativeName::new(name.as_bytes()).unwrap();
    DirectoryOffer { name, attributes: Attributes { mode, modified: (1_000_000_000, 5) } }
}

fn mode(path: impl AsRef<Path>) -> u32 {
    path.as_ref().metadata().unwrap().mode() & 0o7777
}

#[test]
fn a_directory_is_never_more_open_than_in_the_end() {
    both_ways(|dir, rules| {
        for sent in (0..=0o777u32).step_by(5) {
            let mut target = Directory::open(dir, rules).unwrap();
            let (name, wanted) = (format!("{sent:o}"), sent & !0o022);
            let path = dir.join(&name);
            target.make(&directory(&name, sent)).unwrap();
            assert_eq!(mode(&path), wanted & 0o077 | 0o700, "{sent:o}");
            put(&mut target, &format!("{name}/file"), "x").unwrap();
            target.make(&directory(&format!("{name}/sub"), sent)).unwrap();
            put(&mut target, &format!("{name}/sub/file"), "x").unwrap();
            assert_eq!(mode(&path), wanted & 0o077 | 0o700, "{sent:o}");
            target.finish().unwrap();
            assert_eq!(mode(&path), wanted, "{sent:o}");
            // To look into it, and to remove it.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
            assert_eq!(mode(path.join("sub")), wanted, "{sent:o}");
            fs::set_permissions(path.join("sub"), fs::Permissions::from_mode(0o700)).unwrap();
            assert_eq!(fs::read(path.join("sub/file")).unwrap(), b"x");
            assert_eq!(target.unkept().count(), 0);
        }
    });
}

#[test]
fn times_are_set_when_all_is_in_it_if_that_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    for times in [false, true] {
        let mut target = Directory::open(dir.path(), Rules { times, ..RULES }).unwrap();
        let name = format!("{times}");
        target.make(&directory(&name, 0o755)).unwrap();
        target.make(&directory(&format!("{name}/sub"), 0o755)).unwrap();
        put(&mut target, &format!("{name}/sub/file"), "x").unwrap();
        put(&mut target, &format!("{name}/file"), "x").unwrap();
        target.finish().unwrap();
        for path in [dir.path().join(&name), dir.path().join(&name).join("sub")] {
            let metadata = path.metadata().unwrap();
            let kept = (metadata.mtime(), metadata.mtime_nsec()) == (1_000_000_000, 5);
            assert_eq!(kept, times, "{metadata:?}");
        }
    }
}

#[test]
fn a_directory_that_exists_keeps_its_mode_unless_forced_and_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    for (before, sent, force, after, notes) in [
        (0o755, 0o700, false, 0o755, 1),
        (0o755, 0o755, false, 0o755, 0),
        (0o700, 0o755, false, 0o700, 0),
        (0o755, 0o700, true, 0o700, 0),
        (0o700, 0o755, true, 0o755, 0),
        (0o777, 0o505, true, 0o505, 0),
    ] {
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
        let mut target = Directory::open(dir.path(), Rules { force, ..RULES }).unwrap();
        target.make(&directory("d", sent)).unwrap();
        put(&mut target, "d/file", "x").unwrap();
        if force {
            assert_eq!(mode(&path), before & sent & 0o077 | 0o700);
        }
        target.finish().unwrap();
        assert_eq!((mode(&path), target.unkept().count()), (after, notes), "{before:o} {sent:o}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn the_group_of_a_directory_for_groups_stays() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o2755)).unwrap();
    let mut target = Directory::open(dir.path(), RULES).unwrap();
    target.make(&directory("d", 0o550)).unwrap();
    assert_eq!(mode(dir.path().join("d")), 0o2750);
    target.finish().unwrap();
    assert_eq!(mode(dir.path().join("d")), 0o2550);
    assert_eq!(target.unkept().count(), 0);
}

#[test]
fn directories_do_not_lead_out_either() {
    let dir = tempfile::tempdir().unwrap();
    let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    let before = mode(&outside);
    symlink(&outside, inside.join("way")).unwrap();
    fs::write(inside.join("file"), "x").unwrap();
    for force in [false, true] {
        let mut target = Directory::open(&inside, Rules { force, ..RULES }).unwrap();
        for name in ["way", "way/d", "file", "file/d"] {
            let failure = target.make(&directory(name, 0o700)).unwrap_err();
            assert!(failure.to_string().contains("a directory is needed there"), "{failure}");
        }
        target.finish().unwrap();
    }
    assert!(listing(&outside).is_empty());
    assert_eq!(mode(&outside), before);
}

#[test]
fn a_directory_that_is_exchanged_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("d"), dir.path().join("other"));
    let mut target = Directory::open(dir.path(), RULES).unwrap();
    target.make(&directory("d", 0o511)).unwrap();
    fs::rename(&path, &other).unwrap();
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    target.finish().unwrap();
    assert_eq!((mode(&path), target.unkept().count()), (0o750, 1));
    // And one that is gone is an error.
    let mut target = Directory::open(dir.path(), RULES).unwrap();
    target.make(&directory("gone", 0o511)).unwrap();
    fs::remove_dir(dir.path().join("gone")).unwrap();
    assert_eq!(target.finish().unwrap_err().status(), 5);
}
