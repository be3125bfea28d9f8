//! Names and places; that files come whole and are never trusted is tested where they are used.

use std::{fs, os::unix::fs::PermissionsExt};

use super::*;

#[test]
fn directories() {
    let dir = |base: Option<&str>, home: Option<&str>| {
        directory_of(base.map(Into::into), home.map(Into::into), ".cache")
            .map(|dir| dir.into_os_string().into_string().unwrap())
    };
    assert_eq!(dir(Some("/c"), Some("/h")).as_deref(), Some("/c/pinfold"));
    assert_eq!(dir(None, Some("/h")).as_deref(), Some("/h/.cache/pinfold"));
    assert_eq!(dir(Some(""), Some("/h")).as_deref(), Some("/h/.cache/pinfold"));
    assert_eq!(dir(Some("relative"), Some("/h")).as_deref(), Some("/h/.cache/pinfold"));
    assert_eq!(dir(None, Some("")), None);
    assert_eq!(dir(None, None), None);
}

#[test]
fn names() {
    assert_eq!(name(["costs", "Core (TM)/9", "6.1"]), "costs_Core--TM--9_6.1.json");
    assert_eq!(plain("A/b c\u{e9}\0.1"), "A-b-c--.1");
    assert_eq!(plain(&"x".repeat(1000)).len(), 64);
    assert_eq!(
        model_in("processor\t: 0\nmodel\t\t: 17\nmodel name\t: Core (TM) 9\n"),
        Some("Core (TM) 9")
    );
    assert_eq!(model_in("CPU part\t: 0xd0c\n"), Some("0xd0c"));
    assert_eq!(model_in("model name\t:\n"), None);
    assert_eq!(model_in(""), None);
    assert!(!cpu_model().unwrap().is_empty());
}

#[test]
fn kept_whole_and_private() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("a/b/it.json");
    store(&file, b"one").unwrap();
    store(&file, b"four").unwrap();
    assert_eq!(read(&file, 4).unwrap(), "four");
    assert!(read(&file, 3).is_err(), "too long");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&file), 0o600);
    assert_eq!(mode(file.parent().unwrap()), 0o700);
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    assert!(read(home.path(), 4).is_err(), "no file");
    can_store(&file).unwrap();
    can_store(&home.path().join("new/it.json")).unwrap();
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "no trace of the trial");
    assert!(!home.path().join("new/it.json").exists());
    for no_place in [home.path(), Path::new("/"), &file.join("below"), Path::new("/proc/it/it")] {
        assert!(can_store(no_place).is_err(), "{}", no_place.display());
    }
    assert!(store(home.path(), b"").is_err() && store(Path::new("/"), b"").is_err());
}
