//! `/dev/shm` holds nothing of Pinfold's, and is not needed.

use std::fs;

use pinfold::{Endpoint, Error, Path, TagMatch};
use pinfold_tests::{
    Args, Stage,
    host::unshare_mounts,
    role::{self, hear, say},
    skip::is_root_or_skip,
    stamp,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

pinfold_tests::roles!(asker, answerer);

/// Lengths by every path, and around its boundaries.
const LENGTHS: [usize; 9] = [0, 8, 56, 57, 8193, 65_537, 262_145, 1 << 20, (4 << 20) + 1];

const SHM: &str = "/dev/shm";

#[test]
fn nothing_has_a_name_in_dev_shm() {
    in_dev_shm(false);
}

#[test]
fn dev_shm_is_not_needed() {
    if is_root_or_skip("unmounting /dev/shm") {
        in_dev_shm(true);
    }
}

fn in_dev_shm(unmounted: bool) {
    let stage = Stage::new(60);
    let before = names();
    let cast = |role| {
        let role = stage.role(role);
        if unmounted { role.with("unmounted", 1) } else { role }
    };
    let mut answerer = cast("answerer").spawn();
    answerer.expect("ready");
    let mut asker = cast("asker").spawn();
    // While they are connected, after all kinds of messages.
    asker.expect("talked");
    answerer.expect("talked");
    for player in [&asker, &answerer] {
        for what in ["fd", "map_files"] {
            let Ok(links) = fs::read_dir(format!("/proc/{}/{what}", player.pid())) else {
                continue;
            };
            for link in links.filter_map(|link| fs::read_link(link.ok()?.path()).ok()) {
                assert!(!link.starts_with(SHM), "{what}: {}", link.display());
            }
        }
    }
    let new: Vec<String> = names().into_iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(new, Vec::<String>::new());
    for player in [&mut asker, &mut answerer] {
        player.say("leave");
        player.end_well();
    }
}

/// The files that could be Pinfold's. Other programs may have put their names there on purpose.
fn names() -> Vec<String> {
    let entries = fs::read_dir(SHM).into_iter().flatten();
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.contains("pinfold")).collect()
}

fn forgo_dev_shm(args: &Args) {
    if !args.has("unmounted") {
        return;
    }
    // The view is this thread's.
    unshare_mounts().expect("a view of its own of what is mounted");
    let is_mounted = || {
        let mounts = fs::read_to_string("/proc/thread-self/mounts").expect("/proc");
        mounts.lines().any(|line| line.split(' ').nth(1) == Some(SHM))
    };
    while is_mounted() {
        unmount(SHM, UnmountFlags::DETACH).expect("to unmount /dev/shm");
    }
    // The file system below is not to be used either.
    mount("none", SHM, "tmpfs", MountFlags::RDONLY, None)
        .expect("something read-only in its place");
    assert!(fs::write(format!("{SHM}/x"), "x").is_err());
}

fn asker(args: &Args) {
    forgo_dev_shm(args);
    let (endpoint, peer) = role::connect(Endpoint::builder(), "bare");
    for (tag, len) in LENGTHS.into_iter().enumerate() {
        let tag = tag as u64;
        for by in Path::ALL {
            let sent = endpoint.send_by(by, peer, tag, &stamp::bytes(len, tag));
            let is_sent = match sent {
                Ok(receipt) => receipt.path == by,
                Err(Error::PathRefused { .. }) => false,
                Err(error) => panic!("{error}"),
            };
            assert!(is_sent || by != Path::Eager);
            if is_sent {
                stamp::check(&endpoint.recv(peer, tag).unwrap(), tag);
            }
        }
    }
    endpoint.send(peer, LENGTHS.len() as u64, b"").unwrap();
    say("talked");
    hear();
}

fn answerer(args: &Args) {
    forgo_dev_shm(args);
    let (endpoint, peer) = role::listen(Endpoint::builder(), "bare");
    loop {
        let message = endpoint.recv(peer, TagMatch::any()).unwrap();
        if message.tag() == LENGTHS.len() as u64 {
            break;
        }
        stamp::check(&message, message.tag());
        endpoint.send(peer, message.tag(), &message).unwrap();
    }
    say("talked");
    hear();
}
