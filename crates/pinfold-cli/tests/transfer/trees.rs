//! Trees of files of all kinds: modes, times, directories, holes, and files that the kernel makes
//! up.

use std::{
    fs,
    io::Read,
    os::unix::{
        fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, chown, symlink},
        net::UnixListener,
    },
    path::Path,
    process::Command,
};

use pinfold_tests::skip;

use crate::{
    BOX,
    harness::{Ended, PROGRAM, Place, is_root, pattern, wait_until},
};

fn mode(path: impl AsRef<Path>) -> u32 {
    path.as_ref().metadata().unwrap().mode() & 0o7777
}

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Sends `name` to the directory `out`, both sides with these words.
fn go(place: &Place, name: &str, send: &[&str], recv: &[&str]) -> [Ended; 2] {
    place.dir("out");
    let recv = place.recv(&[&["--json", BOX, "out"], recv].concat());
    let sent = place.send(&[&["--json", name, BOX], send].concat()).end();
    [sent, recv.end()]
}

#[test]
fn modes_of_directories_go_along() {
    // As the owner of the files, and not as root, which may do anything.
    let place = if is_root() { Place::of_nobody() } else { Place::new() };
    let names = [("tree", 0o755), ("tree/private", 0o700), ("tree/fixed", 0o555)];
    let names =
        [&names[..], &[("tree/private/group", 0o750), ("tree/fixed/empty", 0o511)]].concat();
    for (name, _) in &names {
        place.dir(name);
    }
    for name in ["private/file", "private/group/file", "fixed/file"] {
        fs::write(place.path("tree").join(name), name).unwrap();
    }
    for (name, mode) in names.iter().rev() {
        if is_root() {
            chown(place.path(name), Some(65534), Some(65534)).unwrap();
        }
        set_mode(place.path(name), *mode);
    }
    set_mode(place.dir("out"), 0o777);
    let [sent, received] = go(&place, "tree", &[], &["--times"]);
    for ended in [&sent, &received] {
        let json = ended.assert_code(0).json();
        assert_eq!((&json["files"], &json["directories"]), (&3.into(), &5.into()), "{json}");
        assert_eq!((&json["skipped"], &json["unkept"]), (&0.into(), &0.into()), "{json}");
    }
    for (name, wanted) in &names {
        let (from, to) = (place.path(name), place.path("out").join(name));
        assert_eq!(mode(&to), *wanted, "{name}");
        let (from, to) = (from.metadata().unwrap(), to.metadata().unwrap());
        assert_eq!(from.modified().unwrap(), to.modified().unwrap(), "{name}");
    }
    assert_eq!(place.files("out/tree").len(), 3);
    // With these modes users other than root can remove it.
    for (name, _) in names.iter().filter(|_| !is_root()) {
        set_mode(place.path(name), 0o755);
        set_mode(place.path("out").join(name), 0o755);
    }
}

#[test]
fn the_umask_and_special_bits() {
    let place = Place::new();
    let tree = place.dir("tree/sub");
    fs::write(tree.join("file"), "x").unwrap();
    set_mode(tree.join("file"), 0o6755);
    set_mode(&tree, 0o1777);
    place.dir("out");
    let script = format!("umask 027; exec {PROGRAM} recv {BOX} out");
    let recv = place.run_in(Command::new("sh").args(["-c", &script]));
    place.send(&["tree", BOX]).end().assert_code(0);
    recv.end().assert_code(0).assert_says("in 1 file and 2 directories, verified");
    let arrived = place.path("out/tree/sub");
    assert_eq!((mode(&arrived), mode(arrived.join("file"))), (0o750, 0o750));
}

#[test]
fn a_directory_that_was_there_is_spoken_of() {
    let place = Place::new();
    fs::write(place.dir("tree").join("file"), "x").unwrap();
    set_mode(place.path("tree"), 0o700);
    set_mode(place.dir("out/tree"), 0o755);
    let [sent, received] = go(&place, "tree", &[], &["--quiet"]);
    sent.assert_code(0);
    received
        .assert_code(0)
        .assert_says("tree: this directory was there before")
        .assert_says("0755");
    assert_eq!(received.json()["unkept"], 1);
    assert_eq!(mode(place.path("out/tree")), 0o755);
    let [sent, received] = go(&place, "tree", &[], &["--force"]);
    sent.assert_code(0);
    assert_eq!(received.assert_code(0).json()["unkept"], 0);
    assert_eq!(mode(place.path("out/tree")), 0o700);
}

/// A file system that has neither modes, nor links, nor files without a name.
#[test]
fn a_file_system_that_keeps_no_modes_says_so() {
    if !is_root() {
        return skip("only root can mount a file system without modes");
    }
    let place = Place::new();
    place.dir("out");
    fs::write(place.dir("tree").join("file"), "secret").unwrap();
    fs::write(place.path("tree/other"), "secret").unwrap();
    set_mode(place.path("tree"), 0o700);
    set_mode(place.path("tree/file"), 0o600);
    let script = format!(
        "truncate -s 8M image && mkfs.vfat image > /dev/null && mount -o loop image out || exit 99
         {PROGRAM} recv --json {BOX} out; code=$?; stat -c '%n %a' out/tree out/tree/file > left
         cat out/tree/* > contents; ls -A out > top; exit $code"
    );
    let recv = place.run_in(Command::new("unshare").args(["-m", "sh", "-c", &script]));
    let sent = place.send(&["--wait", "20", "tree", BOX]).end();
    let received = recv.end();
    if received.status.code() == Some(99) {
        return skip("a FAT file system cannot be made or mounted here");
    }
    sent.assert_code(0);
    received.assert_code(0).assert_says("tree/file: its mode is 0755 here, not 0600");
    assert!(received.json()["unkept"].as_u64().unwrap() >= 2, "{received:?}");
    assert_eq!(
        fs::read_to_string(place.path("left")).unwrap(),
        "out/tree 755\nout/tree/file 755\n"
    );
    assert_eq!(fs::read_to_string(place.path("contents")).unwrap(), "secretsecret");
    assert_eq!(fs::read_to_string(place.path("top")).unwrap(), "tree\n", "something is left");
}

#[test]
fn an_interrupted_transfer_leaves_no_directory_open() {
    let place = Place::new();
    let tree = place.dir("tree/private");
    fs::write(tree.join("first"), "x").unwrap();
    for (number, byte) in (0..3u8).enumerate() {
        fs::write(tree.join(format!("long {number}")), vec![byte; 64 << 20]).unwrap();
    }
    set_mode(&tree, 0o500);
    place.dir("out");
    let recv = place.recv(&[BOX, "out"]);
    let send = place.send(&["tree", BOX]);
    let arrived = place.path("out/tree/private");
    wait_until("the first file arrives", || arrived.join("first").exists());
    assert_eq!(mode(&arrived) & 0o077, 0);
    send.signal(rustix::process::Signal::KILL);
    recv.end();
    assert_eq!(mode(&arrived) & 0o077, 0);
    set_mode(&tree, 0o700);
    set_mode(&arrived, 0o700);
}

#[test]
fn holes_stay_holes() {
    const SIZE: u64 = 1 << 30;
    let place = Place::new();
    let tree = place.dir("tree");
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(SIZE).unwrap();
    sparse.write_all_at(&pattern(4096, 1), 700 << 20).unwrap();
    fs::File::create(tree.join("hollow")).unwrap().set_len(SIZE).unwrap();
    fs::write(tree.join("dense"), pattern(3 << 20, 2)).unwrap();
    if sparse.metadata().unwrap().blocks() * 512 > 1 << 20 {
        return skip("this file system has no holes");
    }
    let bytes = 2 * SIZE + (3 << 20);
    for ended in go(&place, "tree", &[], &[]) {
        let json = ended.assert_code(0).json();
        assert_eq!((&json["files"], &json["bytes"]), (&3.into(), &bytes.into()), "{json}");
        let paths = json["paths"].as_object().unwrap();
        let moved: u64 = paths.values().map(|path| path["bytes"].as_u64().unwrap()).sum();
        assert!(moved < (3 << 20) + (1 << 20), "holes were sent: {json}");
    }
    for (name, room) in [("sparse", 1 << 20), ("hollow", 1 << 20), ("dense", 4 << 20)] {
        let (from, to) = (tree.join(name), place.path("out/tree").join(name));
        let (from, to) = (fs::File::open(from).unwrap(), fs::File::open(to).unwrap());
        let metadata = to.metadata().unwrap();
        assert_eq!(metadata.len(), from.metadata().unwrap().len(), "{name}");
        assert!(metadata.blocks() * 512 <= room, "{name} takes {} blocks", metadata.blocks());
        // All of the small file, and the surroundings of the data of the large one.
        let (at, len) = if name == "dense" { (0, 3 << 20) } else { ((700 << 20) - 4096, 12288) };
        let (mut wanted, mut found) = (vec![1; len], vec![2; len]);
        from.read_exact_at(&mut wanted, at).unwrap();
        to.read_exact_at(&mut found, at).unwrap();
        assert!(wanted == found, "{name}");
    }
}

#[test]
fn what_the_kernel_makes_up_is_sent() {
    let place = Place::new();
    for name in ["/proc/cpuinfo", "/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"] {
        let Ok(wanted) = fs::read(name) else { continue };
        let [sent, received] = go(&place, name, &[], &["--force"]);
        for ended in [sent, received] {
            assert_eq!(ended.assert_code(0).json()["bytes"], wanted.len(), "{name}");
        }
        let arrived = place.path("out").join(Path::new(name).file_name().unwrap());
        assert!(fs::read(arrived).unwrap() == wanted, "{name}");
    }
    // And a whole directory of them.
    if let Ok(wanted) = fs::read("/proc/sys/kernel/random/uuid").map(|uuid| uuid.len()) {
        let [sent, received] = go(&place, "/proc/sys/kernel/random", &[], &[]);
        sent.assert_code(0);
        received.assert_code(0);
        assert_eq!(fs::read(place.path("out/random/uuid")).unwrap().len(), wanted);
    }
}

#[test]
fn what_cannot_be_read_is_told_for_the_true_reason() {
    let place = Place::new();
    let tree = place.dir("tree");
    // A file of size 0, of which the kernel finds no byte at its beginning.
    symlink("/proc/self/mem", tree.join("memory")).unwrap();
    for name in ["/proc/self/mem", "tree/memory"] {
        let [sent, received] = go(&place, name, &[], &[]);
        let text = format!("reading {name}: Input/output error");
        sent.assert_code(5).assert_says(&text);
        received.assert_code(1).assert_says("the sender gave up").assert_says(&text);
        for ended in [sent, received] {
            assert!(!ended.stderr.contains("grew"), "{ended:#?}");
        }
        assert_eq!(fs::read_dir(place.path("out")).unwrap().count(), 0, "something is left");
    }
}

#[test]
fn special_files_in_a_tree_are_named_and_skipped() {
    let place = Place::new();
    let tree = place.dir("tree");
    fs::write(tree.join("file"), "x").unwrap();
    symlink("file", tree.join("link")).unwrap();
    let _socket = UnixListener::bind(tree.join("socket")).unwrap();
    let pipe = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, tree.join("pipe"), pipe, mode, 0).unwrap();
    assert!(tree.join("pipe").metadata().unwrap().file_type().is_fifo());
    let [sent, received] = go(&place, "tree", &["--quiet"], &[]);
    sent.assert_code(0).assert_says("tree/pipe: skipped, it is a pipe");
    sent.assert_says("tree/socket: skipped, it is a socket");
    sent.assert_says("tree/link: skipped, it is a symbolic link");
    assert_eq!(sent.json()["skipped"], 3);
    received.assert_code(0);
    assert_eq!(fs::read_dir(place.path("out/tree")).unwrap().count(), 1);
    let [sent, _received] = go(&place, "tree/pipe", &[], &["--force"]);
    sent.assert_code(5).assert_says("it is a pipe").assert_says("pinfold send ADDRESS < tree/pipe");
}

#[test]
fn nothing_at_all_arrives_too() {
    let place = Place::new();
    place.dir("out");
    place.dir("hollow/hollow");
    fs::write(place.path("empty"), "").unwrap();
    let recv = place.recv(&[BOX, "out"]);
    place.send(&["hollow", BOX]).end().assert_code(0);
    recv.end().assert_code(0).assert_says("received 0 B in 2 directories, verified");
    assert_eq!(fs::read_dir(place.path("out/hollow/hollow")).unwrap().count(), 0);
    fs::remove_dir_all(place.path("out/hollow")).unwrap();
    place.dir("bare");
    let recv = place.recv(&[BOX, "out"]);
    let bare = place.send_in("bare", &[".", BOX]).end();
    bare.assert_code(0).assert_says("there is nothing in what is to be sent");
    recv.end().assert_code(0).assert_says("received 0 B, verified");
    assert_eq!(fs::read_dir(place.path("out")).unwrap().count(), 0);
    let recv = place.recv(&[BOX, "out"]);
    place.send(&["empty", BOX]).end().assert_code(0).assert_says("sent 0 B in 1 file, verified");
    recv.end().assert_code(0);
    assert_eq!(place.files("out"), [("empty".into(), Vec::new())]);
    let (recv, mut out) = place.recv_stream(&[BOX]);
    let (send, input) = place.send_stream(&[BOX]);
    drop(input);
    assert_eq!(out.read(&mut [0]).unwrap(), 0);
    send.end().assert_code(0);
    recv.end().assert_code(0).assert_says("received 0 B, verified");
}
