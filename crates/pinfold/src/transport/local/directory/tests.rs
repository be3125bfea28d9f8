//! Directories for names: modes, owners, refusals and their remedies.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use pinfold_sys::user::uid;

use super::*;

fn places(base: &Path) -> Places {
    for dir in ["run", "tmp"] {
        std::fs::create_dir(base.join(dir)).unwrap();
    }
    Places {
        explicit: None,
        runtime: None,
        sessions: base.join("run"),
        tmp: base.join("tmp"),
        uid: uid(),
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn why(result: Result<impl std::fmt::Debug>) -> String {
    match result {
        Err(Error::NotAllowed { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn directories_are_made_with_their_modes() {
    let base = tempfile::tempdir().unwrap();
    for (name, kind, wanted) in [("a", Kind::Private, 0o700), ("b", Kind::Open, 0o711)] {
        let path = base.path().join(name);
        let dir = Directory::make(&path, uid(), kind, Origin::Ours).unwrap();
        assert_eq!(mode(&path), wanted);
        assert_eq!(dir.name(), path.display().to_string());
        // The directory is made again; a mode that is too narrow is widened for an open one.
        set_mode(&path, 0o700);
        Directory::make(&path, uid(), kind, Origin::Ours).unwrap();
        assert_eq!(mode(&path), wanted);
    }
    assert!(matches!(
        Directory::make(&base.path().join("no/such"), uid(), Kind::Private, Origin::Ours),
        Err(Error::Os { call: "mkdirat", .. })
    ));
}

#[test]
fn unsafe_directories_are_refused_with_the_cure() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("it's");
    assert!(Directory::open(&path, uid(), Kind::Private, Origin::Ours).unwrap().is_none());
    Directory::make(&path, uid(), Kind::Private, Origin::Ours).unwrap();

    for bad in [0o750, 0o705, 0o711] {
        set_mode(&path, bad);
        let why = why(Directory::open(&path, uid(), Kind::Private, Origin::Ours));
        assert!(why.contains(&format!("{bad:04o}")) && why.contains("chmod 700 '"), "{why}");
        assert!(why.contains(r"it'\''s'"), "{why}");
    }
    for bad in [0o731, 0o713] {
        set_mode(&path, bad);
        let why = why(Directory::make(&path, uid(), Kind::Open, Origin::Ours));
        assert!(why.contains("chmod 711"), "{why}");
    }
    set_mode(&path, 0o700);
    let other = uid() + 1;
    let said = why(Directory::open(&path, other, Kind::Private, Origin::Ours));
    assert!(said.contains("belongs to") && said.contains("PINFOLD_DIR"), "{said}");
    assert!(changes_nothing(&said), "{said}");

    let link = base.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(
        why(Directory::open(&link, uid(), Kind::Private, Origin::Ours)).contains("not a directory")
    );
    let file = base.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(
        why(Directory::make(&file, uid(), Kind::Private, Origin::Ours)).contains("not a directory")
    );
}

/// Returns whether `advice` contains no command that would change the directory.
fn changes_nothing(advice: &str) -> bool {
    !["chmod", "chown", "rm ", "rmdir", "mv ", "run:"].iter().any(|word| advice.contains(word))
}

/// A directory that `$PINFOLD_DIR` names may be of use to others.
#[test]
fn what_was_given_is_never_to_be_changed() {
    let base = tempfile::tempdir().unwrap();
    for (kind, modes) in
        [(Kind::Private, [0o1777, 0o755, 0o500]), (Kind::Open, [0o1777, 0o775, 0o700])]
    {
        for bad in modes {
            let path = base.path().join(format!("{kind:?}-{bad:o}"));
            std::fs::create_dir(&path).unwrap();
            set_mode(&path, bad);
            let said = why(Directory::make(&path, uid(), kind, Origin::Given));
            assert!(said.contains(&format!("{bad:04o}")), "{said}");
            assert!(said.contains("set PINFOLD_DIR") && changes_nothing(&said), "{said}");
            assert_eq!(mode(&path), bad);
        }
    }
    let theirs = why(Directory::open(base.path(), uid() + 1, Kind::Private, Origin::Given));
    assert!(theirs.contains("set PINFOLD_DIR") && changes_nothing(&theirs), "{theirs}");
    let file = base.path().join("file");
    std::fs::write(&file, "").unwrap();
    let none = why(Directory::make(&file, uid(), Kind::Private, Origin::Given));
    assert!(none.contains("set PINFOLD_DIR") && changes_nothing(&none), "{none}");
    // A directory with a wider mode that does no harm stays as it is, and one that is missing is
    // made.
    let wide = base.path().join("wide");
    std::fs::create_dir(&wide).unwrap();
    set_mode(&wide, 0o755);
    Directory::make(&wide, uid(), Kind::Open, Origin::Given).unwrap();
    assert_eq!(mode(&wide), 0o755);
    let new = base.path().join("new");
    Directory::make(&new, uid(), Kind::Private, Origin::Given).unwrap();
    assert_eq!(mode(&new), 0o700);
}

#[test]
fn the_runtime_directory_counts_if_it_can_be_used() {
    let base = tempfile::tempdir().unwrap();
    let mut places = places(base.path());
    let in_tmp = base.path().join(format!("tmp/pinfold-{}", uid()));
    let listens = |places: &Places| places.listening(Kind::Private).unwrap().name();
    assert_eq!(listens(&places), in_tmp.display().to_string());

    let runtime = base.path().join("session");
    places.runtime = Some(runtime.clone());
    assert_eq!(listens(&places), in_tmp.display().to_string());
    std::fs::create_dir(&runtime).unwrap();
    set_mode(&runtime, 0o700);
    assert_eq!(listens(&places), runtime.join("pinfold").display().to_string());

    set_mode(&runtime.join("pinfold"), 0o777);
    assert!(why(places.listening(Kind::Private)).contains("chmod 700"));
    set_mode(&runtime, 0o777);
    assert_eq!(listens(&places), in_tmp.display().to_string());

    let open = places.listening(Kind::Open).unwrap().name();
    assert_eq!(open, format!("{}.open", in_tmp.display()));

    places.explicit = Some(base.path().join("mine"));
    assert!(listens(&places).ends_with("/mine"));
    assert!(places.listening(Kind::Open).unwrap().name().ends_with("/mine.open"));
}

#[test]
fn candidates_cover_every_place_to_listen_in() {
    let base = tempfile::tempdir().unwrap();
    let mut places = places(base.path());
    let own: Address = "local:x".parse().unwrap();
    let other: Address = "local:4000000011/x".parse().unwrap();
    let paths = |places: &Places, address: &Address| -> Vec<String> {
        let strip = |candidate: Candidate| {
            candidate.path.strip_prefix(base.path()).unwrap().display().to_string()
        };
        places.candidates(address).unwrap().into_iter().map(strip).collect()
    };
    let me = uid();
    let session = format!("run/{me}/pinfold");
    let tmp = format!("tmp/pinfold-{me}");
    let open = format!("tmp/pinfold-{me}.open");
    places.runtime = Some(base.path().join("s"));
    assert_eq!(paths(&places, &own), [tmp.clone(), open.clone()]);
    for dir in ["s".to_owned(), format!("run/{me}")] {
        Directory::make(&base.path().join(dir), me, Kind::Private, Origin::Ours).unwrap();
    }
    assert_eq!(paths(&places, &own), ["s/pinfold".to_owned(), session.clone(), tmp, open]);
    places.runtime = Some(base.path().join(format!("run/{me}")));
    assert_eq!(paths(&places, &own)[0], session);
    assert_eq!(paths(&places, &own).len(), 3);
    assert_eq!(paths(&places, &other), ["tmp/pinfold-4000000011.open"]);

    places.explicit = Some(base.path().join("mine"));
    assert_eq!(paths(&places, &own), ["mine", "mine.open"]);
    assert_eq!(paths(&places, &other), ["mine.open", "tmp/pinfold-4000000011.open"]);
    let owners = places.candidates(&other).unwrap();
    assert!(owners.iter().all(|at| at.owner == 4_000_000_011 && at.kind == Kind::Open));
}

#[test]
fn files_are_reached_whatever_the_length() {
    let base = tempfile::tempdir().unwrap();
    let deep = base.path().join("d".repeat(200));
    let dir = Directory::make(&deep, uid(), Kind::Private, Origin::Ours).unwrap();
    let path = dir.reach("file");
    assert!(path.as_os_str().len() < 107 || !Path::new("/proc/self/fd").exists());
    std::fs::write(&path, "x").unwrap();
    assert_eq!(std::fs::read(deep.join("file")).unwrap(), b"x");
}

#[test]
fn a_path_is_settled_if_it_fits_and_nobody_can_move_what_is_above() {
    let base = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let path = base.path().join(name);
        Directory::make(&path, uid(), Kind::Private, Origin::Ours).unwrap()
    };
    let dir = make("dir");
    let real = base.path().canonicalize().unwrap().join("dir/file");
    let settled = dir.settled("file");
    if settled.is_none() {
        return eprintln!("SKIPPED: others may move what is above {}", real.display());
    }
    assert_eq!(settled.as_ref(), Some(&real));
    let link = base.path().join("link");
    symlink(base.path(), &link).unwrap();
    let by_link =
        Directory::open(&link.join("dir"), uid(), Kind::Private, Origin::Ours).unwrap().unwrap();
    assert_eq!(by_link.settled("file"), settled);
    assert_eq!(make(&"d".repeat(100)).settled("file"), None);
    set_mode(base.path(), 0o777);
    assert_eq!(dir.settled("file"), None);
    set_mode(base.path(), 0o1777);
    assert_eq!(dir.settled("file"), settled);
    std::fs::remove_dir(base.path().join("dir")).unwrap();
    assert!(dir.is_removed() && dir.settled("file").is_none());
}
