//! Key files: contents, lengths, rights, and the advice in a refusal.

use std::{
    fs::Permissions,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::PathBuf,
};

use pinfold_sys::user::uid;

use super::*;

const BYTES: [u8; 40] = *b"forty bytes that nobody else may ever se";

struct Scene {
    base: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        Scene { base: tempfile::tempdir().unwrap() }
    }

    fn file(&self, bytes: &[u8], mode: u32) -> PathBuf {
        let path = self.base.path().join("the key");
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }
}

/// The text of the error.
fn said(path: &Path) -> String {
    Key::from_file(path).unwrap_err().to_string()
}

#[test]
fn a_file_and_its_bytes_are_one_key() {
    let scene = Scene::new();
    for mode in [0o600, 0o400] {
        let path = scene.file(&BYTES, mode);
        let key = Key::from_file(&path).unwrap();
        assert_eq!(key, Key::from_bytes(&BYTES).unwrap());
        std::fs::remove_file(path).unwrap();
    }
    let path = scene.file(&BYTES, 0o600);
    let link = scene.base.path().join("link");
    symlink(path, &link).unwrap();
    assert_eq!(Key::from_file(&link).unwrap(), Key::from_bytes(&BYTES).unwrap());
}

#[test]
fn one_line_feed_at_the_end_does_not_count() {
    let with = |end: &[u8]| Key::from_bytes(&[&BYTES[..], end].concat()).unwrap();
    assert_eq!(with(b""), with(b"\n"));
    assert_ne!(with(b""), with(b"\n\n"));
    assert_ne!(with(b""), with(b"\r\n"));
}

#[test]
fn every_byte_counts() {
    let key = Key::from_bytes(&BYTES).unwrap();
    for at in 0..BYTES.len() {
        let mut other = BYTES;
        other[at] ^= 1;
        assert_ne!(key, Key::from_bytes(&other).unwrap(), "byte {at}");
    }
    // Not the same first byte and not only that.
    for at in 0..MAC_BYTES {
        let mut other = Key::from_bytes(&BYTES).unwrap();
        other.0[at] ^= 0x80;
        assert_ne!(key, other, "byte {at} of the digest");
    }
}

#[test]
fn lengths_are_bounded() {
    for len in [0, 1, 31, 4097, 100_000] {
        let said = Key::from_bytes(&vec![7; len]).unwrap_err().to_string();
        assert_eq!(said, format!("a key has 32 to 4096 bytes, not {len}; draw 32 at random"));
        let scene = Scene::new();
        let path = scene.file(&vec![7; len], 0o600);
        let KeyError::FileLength { file, len: is } = Key::from_file(&path).unwrap_err() else {
            panic!("a key of {len} bytes");
        };
        assert_eq!((file, is), (quoted(&path), len as u64));
    }
    for len in [32, 33, 4095, 4096] {
        Key::from_bytes(&vec![7; len]).unwrap();
        let scene = Scene::new();
        Key::from_file(&scene.file(&vec![7; len], 0o600)).unwrap();
    }
}

#[test]
fn what_others_may_use_is_refused_and_mended_by_what_is_said() {
    let scene = Scene::new();
    let gid = std::fs::metadata(scene.file(&BYTES, 0o600)).unwrap().gid();
    let group = |what| format!("its group {gid} may {what}");
    for (mode, trouble, change) in [
        (0o620, group("write it"), "g-w"),
        (0o660, group("write it"), "g-w"),
        (0o604, "all users may read it".into(), "o-r"),
        (0o602, "all users may write it".into(), "o-w"),
        (0o666, group("write it") + ", and all users may read and write it", "g-w,o-rw"),
        (0o777, group("write it") + ", and all users may read and write it", "g-w,o-rw"),
    ] {
        let path = scene.file(&BYTES, mode);
        let said = said(&path);
        let says = format!("has mode {mode:04o}: {trouble}; run: chmod {change} {}", quoted(&path));
        assert!(said.ends_with(&says), "{said}");
        let command = said.rsplit_once("run: ").unwrap().1;
        let done = std::process::Command::new("sh").args(["-c", command]).status().unwrap();
        assert!(done.success());
        Key::from_file(&path).unwrap();
    }
}

#[test]
fn the_group_may_read_where_it_is_ours_or_roots_to_say() {
    let (ours, unauthenticated) = (|| true, || false);
    for (mode, roots, wrong) in [
        (0o440, true, 0),
        (0o640, true, 0),
        (0o400, true, 0),
        (0o460, true, GROUP_WRITE),
        (0o444, true, OTHER_READ),
        (0o640, false, GROUP_READ),
        (0o660, false, GROUP_READ | GROUP_WRITE),
        (0o610, false, 0),
    ] {
        assert_eq!(forbidden(mode, roots, unauthenticated), wrong, "{mode:o}");
        assert_eq!(forbidden(mode, roots, ours), wrong & !GROUP_READ, "{mode:o}");
    }
    assert_eq!(taken(GROUP_READ | GROUP_WRITE | OTHER_READ), "g-rw,o-r");
    assert_eq!(trouble(GROUP_READ, 7), "its group 7 may read it");
    // This process's own.
    let scene = Scene::new();
    let path = scene.file(&BYTES, 0o640);
    if in_group(std::fs::metadata(&path).unwrap().gid()) {
        Key::from_file(&path).unwrap();
    }
}

/// Secrets are mounted into containers as files of root that a group may read, behind two links.
#[test]
fn a_mounted_secret_is_read() {
    let scene = Scene::new();
    let mount = scene.base.path();
    std::fs::create_dir(mount.join("..2024")).unwrap();
    std::fs::rename(scene.file(&BYTES, 0o440), mount.join("..2024/key")).unwrap();
    symlink("..2024", mount.join("..data")).unwrap();
    symlink("..data/key", mount.join("key")).unwrap();
    let path = mount.join("key");
    // As another user would read it, if it is root's.
    let owner = std::fs::metadata(&path).unwrap().uid();
    let reader = if owner == 0 { 65534 } else { owner };
    assert_eq!(Key::from_file_of(&path, reader).unwrap(), Key::from_bytes(&BYTES).unwrap());
    if owner != 0 {
        return;
    }
    // A file that root has left open is not for this user to change.
    for (mode, trouble) in [(0o444, "all users may read it"), (0o460, "may write it")] {
        let file = mount.join("..2024/key");
        std::fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
        let said = Key::from_file_of(&path, reader).unwrap_err().to_string();
        assert!(said.contains(trouble) && !said.contains("chmod"), "{said}");
        assert!(said.ends_with(&format!("cat {} > ~/pinfold.key)", quoted(&path))), "{said}");
    }
}

#[test]
fn a_missing_file_is_made_by_what_is_said() {
    let scene = Scene::new();
    let path = scene.base.path().join("it's new");
    let said = said(&path);
    let command = said.rsplit_once("make one: ").unwrap().1;
    assert!(std::process::Command::new("sh").args(["-c", command]).status().unwrap().success());
    Key::from_file(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 32);
}

#[test]
fn what_is_no_file_is_refused_without_waiting() {
    let scene = Scene::new();
    let said_of = |path: &Path| said(path);
    assert!(said_of(scene.base.path()).contains("but a directory"));
    assert!(said_of(Path::new("/dev/null")).contains("but a device"));
    let pipe = scene.base.path().join("pipe");
    fs::mknodat(fs::CWD, &pipe, FileType::Fifo, fs::Mode::RUSR, 0).unwrap();
    assert!(said_of(&pipe).contains("but a pipe"));
    let socket = scene.base.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(said_of(&socket).contains("but a socket"));
    let below = scene.file(&BYTES, 0o600).join("below");
    assert!(said_of(&below).contains("namei -l"));
}

#[test]
fn the_owner_is_this_user_or_root() {
    let scene = Scene::new();
    let path = scene.file(&BYTES, 0o600);
    let owner = std::fs::metadata(&path).unwrap().uid();
    assert_eq!(owner, uid());
    // Read as another user would: only root's file will do for that one.
    match Key::from_file_of(&path, owner + 1) {
        Ok(_) => assert_eq!(owner, 0),
        Err(error) => {
            assert_ne!(owner, 0);
            let said = error.to_string();
            assert!(said.contains("use a copy of your own") && !said.contains("chown"), "{said}");
        }
    }
    // Root can make a stranger's file.
    if owner == 0 {
        std::os::unix::fs::chown(&path, Some(4_000_000_011), None).unwrap();
        let said = said(&path);
        assert!(said.contains("belongs to user 4000000011, not to user 0 (root)"), "{said}");
        assert!(said.contains("use a copy of your own") && !said.contains("chown"), "{said}");
        assert_eq!(
            Key::from_file_of(&path, 4_000_000_011).unwrap(),
            Key::from_bytes(&BYTES).unwrap()
        );
    }
}

#[test]
fn it_is_not_shown() {
    let key = Key::from_bytes(&BYTES).unwrap();
    assert_eq!(format!("{key:?}"), "Key(hidden)");
}

/// RFC 4231, test case 2, with its key padded to the length ours has, which changes nothing.
#[test]
fn the_mac_is_hmac_sha256() {
    let mut key = [0; MAC_BYTES];
    key[..4].copy_from_slice(b"Jefe");
    let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    let hex = |mac: [u8; 32]| mac.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(mac(&key, &[b"what do ya want ", b"for nothing?"])), expected);
    let shared = Key(Box::new(key));
    assert_eq!(hex(shared.mac(&[b"what do ya want for nothing?"])), expected);
}

/// Another SHA-256 digest of the same bytes is no key.
#[test]
fn keys_have_a_domain_of_their_own() {
    let key = Key::from_bytes(&BYTES).unwrap();
    assert_ne!(key.0[..], Sha256::digest(BYTES)[..]);
    let own = Sha256::digest([b"pinfold tcp shared key\0", &BYTES[..]].concat());
    assert_eq!(key.0[..], own[..]);
}
