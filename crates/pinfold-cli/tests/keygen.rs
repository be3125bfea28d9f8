//! `pinfold keygen`: keys that two hosts can share, and nothing that is there is lost.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pinfold");

fn keygen(place: &Path, file: &str) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["keygen", file]).current_dir(place).stdin(Stdio::null());
    command.output().unwrap()
}

fn said(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

#[test]
fn a_key_is_new_and_its_owners_alone() {
    let place = tempfile::tempdir().unwrap();
    let mut keys = Vec::new();
    for name in ["one", "two"] {
        let done = keygen(place.path(), name);
        assert_eq!(done.status.code(), Some(0), "{}", said(&done));
        assert_eq!(said(&done), format!("pinfold: a new key is in {name}\n"));
        assert!(done.stdout.is_empty(), "a key is not shown");
        let file = place.path().join(name);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
        keys.push(fs::read(file).unwrap());
    }
    assert!(keys.iter().all(|key| key.len() == 32));
    assert_ne!(keys[0], keys[1]);
    // The library takes it.
    let listener = pinfold::Endpoint::builder()
        .listen("tcp:127.0.0.1:0")
        .key_file(place.path().join("one"))
        .build();
    listener.unwrap();
}

#[test]
fn what_is_there_stays() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("old"), "precious").unwrap();
    let done = keygen(place.path(), "old");
    assert_eq!(done.status.code(), Some(1));
    assert!(said(&done).contains("old exists already"), "{}", said(&done));
    assert_eq!(fs::read(place.path().join("old")).unwrap(), b"precious");
    // Neither is a link followed to what is not there yet.
    std::os::unix::fs::symlink("nowhere", place.path().join("link")).unwrap();
    assert_eq!(keygen(place.path(), "link").status.code(), Some(1));
    assert!(!place.path().join("nowhere").exists());
    let done = keygen(place.path(), "no/such/folder");
    assert_eq!(done.status.code(), Some(1));
    assert!(said(&done).contains("cannot make a key in no/such/folder"), "{}", said(&done));
}
