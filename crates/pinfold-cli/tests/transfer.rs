//! `pinfold send` and `pinfold recv` between real processes.

#[path = "transfer/activated.rs"]
mod activated;
#[path = "transfer/calls.rs"]
mod calls;
#[path = "transfer/console.rs"]
mod console;
#[path = "transfer/denied.rs"]
mod denied;
#[path = "transfer/harness.rs"]
mod harness;
#[path = "transfer/limits.rs"]
mod limits;
#[path = "transfer/readme.rs"]
mod readme;
#[path = "transfer/served.rs"]
mod served;
#[path = "transfer/stopped.rs"]
mod stopped;
#[path = "transfer/tcp.rs"]
mod tcp;
#[path = "transfer/trees.rs"]
mod trees;

use std::{
    fs,
    io::{Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use harness::{PROGRAM, Place, is_root, pattern, wait_until};
use pinfold_tests::skip;
use rustix::process::Signal;

const BOX: &str = "local:box";

/// A tree of files of all sorts of sizes and names.
fn plant(root: &Path) {
    fs::create_dir_all(root.join("sub/deep er")).unwrap();
    let mut seed = 0;
    let mut put = |name: &[u8], size: usize| {
        seed += 1;
        let path = root.join(std::ffi::OsStr::from_bytes(name));
        fs::write(path, pattern(size, seed)).unwrap();
    };
    put(b"empty", 0);
    put(b"one", 1);
    put(b"-rf", 56);
    put(b"sub/57", 57);
    put(b"new\nline", 100);
    put("sub/ünïcödé 文字.txt".as_bytes(), 4096);
    put(b"sub/not\xffutf8", 5000);
    put(b"sub/deep er/.hidden", 70_000);
    put(b"sub/deep er/one block", 1 << 20);
    put(b"sub/deep er/some blocks", (7 << 20) + 13);
    let script = root.join("run me");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
}

/// `tar` over a stream; `send_first` says which side is started first.
fn tar_round_trip(send_first: bool) {
    let place = Place::new();
    plant(&place.dir("tree"));
    symlink("one", place.path("tree/link")).unwrap();
    let out = place.dir("out");
    let pack = |place: &Place| {
        let mut tar = Command::new("tar")
            .args(["c", "tree"])
            .current_dir(place.path("."))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = tar.stdout.take().unwrap();
        (tar, place.start(&["send", BOX], stdout.into(), Stdio::null()))
    };
    let unpack = |place: &Place| {
        let mut tar =
            Command::new("tar").arg("x").current_dir(&out).stdin(Stdio::piped()).spawn().unwrap();
        let stdin = tar.stdin.take().unwrap();
        (tar, place.start(&["recv", BOX], Stdio::null(), stdin.into()))
    };
    let ((mut packing, send), (mut unpacking, recv)) = if send_first {
        let packing = pack(&place);
        thread::sleep(Duration::from_millis(200));
        (packing, unpack(&place))
    } else {
        let unpacking = unpack(&place);
        let listening = place.path("names/box");
        wait_until("the receiver listens", || listening.exists());
        (pack(&place), unpacking)
    };
    let sent = send.end();
    sent.assert_code(0).assert_says("sent ").assert_says("verified");
    if send_first {
        sent.assert_says("waiting for a receiver at local:box, up to 30 s");
    }
    recv.end().assert_code(0).assert_says("received ");
    assert!(packing.wait().unwrap().success());
    assert!(unpacking.wait().unwrap().success());
    assert_eq!(place.files("tree").len(), 11);
    assert!(place.files("tree") == place.files("out/tree"));
    assert_eq!(fs::read_link(out.join("tree/link")).unwrap(), Path::new("one"));
}

#[test]
fn tar_goes_through_with_the_receiver_first() {
    tar_round_trip(false);
}

#[test]
fn tar_goes_through_with_the_sender_first() {
    tar_round_trip(true);
}

/// Sends a file of whole blocks and a bit, both sides with these words; returns the receipts.
fn receipts(place: &Place, send: &[&str], recv: &[&str]) -> [serde_json::Value; 2] {
    let contents = pattern((5 << 20) + 100_000, 7);
    fs::write(place.path("file"), &contents).unwrap();
    place.dir("out");
    let recv = place.recv(&[&["--json", BOX, "out", "--force"], recv].concat());
    let sent = place.send(&[&["--json", "file", BOX], send].concat()).end();
    let received = recv.end();
    sent.assert_code(0);
    received.assert_code(0);
    assert!(fs::read(place.path("out/file")).unwrap() == contents);
    [sent.json(), received.json()]
}

fn messages(receipt: &serde_json::Value, path: &str) -> u64 {
    receipt["paths"][path]["messages"].as_u64().unwrap_or(0)
}

#[test]
fn whole_blocks_are_given_away() {
    for receipt in receipts(&Place::new(), &[], &[]) {
        assert_eq!(messages(&receipt, "handoff"), 5, "{receipt}");
        assert_eq!(receipt["paths"]["handoff"]["bytes"], 5 << 20, "{receipt}");
        // Nothing but the rest of the file was copied, and records.
        let copied: u64 =
            ["copied_user", "copied_kernel"].iter().filter_map(|name| receipt[name].as_u64()).sum();
        assert!(copied <= 2 * 100_000 + 4096, "{receipt}");
    }
}

#[test]
fn blocks_are_copied_out_of_the_arena_where_they_cannot_be_given() {
    let place = Place::new();
    // At either side; a transfer that has no choice but eager may try that now and then.
    for (send, recv) in [(&["--paths", "inline,eager,mapped"][..], &[][..])] {
        for receipt in receipts(&place, send, recv) {
            assert_eq!(messages(&receipt, "handoff"), 0, "{receipt}");
            let copied = messages(&receipt, "mapped") + messages(&receipt, "eager");
            assert!(messages(&receipt, "mapped") >= 3 && copied >= 5, "{receipt}");
        }
    }
}

#[test]
fn blocks_go_by_other_paths_where_there_is_no_arena() {
    let place = Place::new();
    for paths in ["inline,eager,cma", "eager"] {
        for (send, recv) in [(&["--paths", paths][..], &[][..]), (&[], &["--paths", paths])] {
            for receipt in receipts(&place, send, recv) {
                assert_eq!(messages(&receipt, "handoff"), 0, "{receipt}");
                assert_eq!(messages(&receipt, "mapped"), 0, "{receipt}");
                assert!(messages(&receipt, "eager") + messages(&receipt, "cma") >= 5, "{receipt}");
            }
        }
    }
}

#[test]
fn a_tree_and_a_file_go_to_a_directory() {
    let place = Place::new();
    plant(&place.dir("tree"));
    symlink("one", place.path("tree/link")).unwrap();
    fs::write(place.path("single"), "single").unwrap();
    place.dir("out");
    let recv = place.recv(&["--json", BOX, "out"]);
    let sent = place.send(&["--json", "tree", "single", BOX]).end();
    let received = recv.end();
    sent.assert_code(0).assert_says("tree/link: skipped, it is a symbolic link");
    received.assert_code(0);
    let arrived = place.files("out");
    assert_eq!(arrived.len(), 12);
    assert!(place.files("tree") == place.files("out/tree"));
    assert_eq!(fs::read(place.path("out/single")).unwrap(), b"single");
    for name in ["run me", "one", "sub/57"] {
        let (from, to) = (place.path("tree").join(name), place.path("out/tree").join(name));
        let (from, to) = (from.metadata().unwrap(), to.metadata().unwrap());
        assert_eq!(from.permissions().mode(), to.permissions().mode(), "{name}");
        assert_eq!(from.modified().unwrap(), to.modified().unwrap(), "{name}");
    }
    let bytes: usize = arrived.iter().map(|(_, contents)| contents.len()).sum();
    for (side, json) in [("send", sent.json()), ("recv", received.json())] {
        assert_eq!(json["what"], "transfer");
        assert_eq!(json["side"], side);
        assert_eq!(json["ok"], true);
        assert_eq!(json["files"], 12);
        assert_eq!(json["bytes"], bytes);
        let by_path: u64 = ["inline", "eager", "cma", "mapped", "handoff"]
            .iter()
            .filter_map(|path| json["paths"][path]["bytes"].as_u64())
            .sum();
        assert!(by_path >= bytes as u64, "{json}");
    }
    assert_eq!(sent.json()["skipped"], 1);
}

#[test]
fn the_paths_can_be_chosen() {
    let place = Place::new();
    fs::write(place.path("file"), pattern(5 << 20, 1)).unwrap();
    place.dir("out");
    let recv = place.recv(&[BOX, "out"]);
    let sent = place.send(&["--json", "--paths", "inline,eager", "file", BOX]).end();
    sent.assert_code(0);
    recv.end().assert_code(0);
    let json = sent.json();
    assert!(json["paths"]["cma"].is_null(), "{json}");
    assert!(json["paths"]["eager"]["bytes"].as_u64().unwrap() >= 5 << 20, "{json}");
    let refused = json["refused"].as_array().unwrap();
    let off = |refused: &serde_json::Value| {
        refused["path"] == "cma" && refused["why"].as_str().unwrap().contains("switched off")
    };
    assert!(refused.iter().any(off), "{json}");
    assert!(place.files("out")[0].1 == pattern(5 << 20, 1));
}

#[test]
fn a_stream_is_passed_on_as_it_comes() {
    let place = Place::new();
    let (recv, mut out) = place.recv_stream(&[BOX]);
    let (send, mut input) = place.send_stream(&[BOX]);
    let mut byte = [0];
    for letter in b"abc" {
        input.write_all(&[*letter]).unwrap();
        out.read_exact(&mut byte).unwrap();
        assert_eq!(byte[0], *letter);
    }
    drop(input);
    assert_eq!(out.read(&mut byte).unwrap(), 0);
    send.end().assert_code(0);
    recv.end().assert_code(0).assert_says("received 3 B, verified");
}

#[test]
fn a_long_stream_arrives_whole() {
    let place = Place::new();
    let contents = pattern(48 << 20, 7);
    let (recv, mut out) = place.recv_stream(&["--quiet", BOX]);
    let (send, input) = place.send_stream(&["--quiet", BOX]);
    let mut got = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut input = input;
            // Writes of odd sizes.
            for piece in contents.chunks(100_003) {
                input.write_all(piece).unwrap();
            }
        });
        out.read_to_end(&mut got).unwrap();
    });
    assert!(got == contents);
    for ended in [send.end(), recv.end()] {
        assert_eq!(ended.assert_code(0).stderr, "", "quiet");
    }
}

#[test]
fn an_unreadable_file_is_told_to_both() {
    let place = if is_root() { Place::of_nobody() } else { Place::new() };
    let secret = place.path("secret");
    fs::write(&secret, "x").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    let out = place.dir("out");
    fs::set_permissions(&out, fs::Permissions::from_mode(0o777)).unwrap();
    let recv = place.recv(&[BOX, "out"]);
    wait_until("the receiver listens", || place.path("names/box").exists());
    let text = "reading secret: Permission denied";
    place.send(&["secret", BOX]).end().assert_code(5).assert_says(text);
    recv.end().assert_code(1).assert_says("the sender gave up").assert_says(text);
    assert!(place.files("out").is_empty());
}

#[test]
fn a_directory_that_cannot_be_written_is_told_to_both() {
    let place = if is_root() { Place::of_nobody() } else { Place::new() };
    fs::write(place.path("file"), "x").unwrap();
    fs::set_permissions(place.dir("out"), fs::Permissions::from_mode(0o555)).unwrap();
    let recv = place.recv(&[BOX, "out"]);
    let sent = place.send(&["file", BOX]).end();
    let text = "creating file: Permission denied";
    sent.assert_code(1).assert_says("the receiver gave up").assert_says(text);
    recv.end().assert_code(5).assert_says(text);
}

#[test]
fn a_full_disk_is_told_to_both() {
    if !is_root() {
        return skip("only root can mount a small file system to fill");
    }
    // A mount that only the receiver sees, and that ends with it.
    let mount = "mount -t tmpfs -o size=2m tmpfs out";
    let possible = Command::new("unshare").args(["-m", "true"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        return skip("a small file system cannot be mounted in a name space of its own here");
    }
    let place = Place::new();
    place.dir("out");
    fs::write(place.path("file"), pattern(5 << 20, 1)).unwrap();
    let script = format!(
        "{mount} || exit 99; {PROGRAM} recv {BOX} out; code=$?; ls -A out > left; exit $code"
    );
    let recv = place.run_in(Command::new("unshare").args(["-m", "sh", "-c", &script]));
    let sent = place.send(&["file", BOX]).end();
    let received = recv.end();
    let text = "writing file: No space left on device";
    received.assert_code(5).assert_says(text).assert_says("free some space");
    sent.assert_code(1).assert_says("the receiver gave up").assert_says(text);
    assert_eq!(fs::read_to_string(place.path("left")).unwrap(), "", "something is left behind");
}

#[test]
fn a_full_output_is_told_to_both() {
    let place = Place::new();
    fs::write(place.path("file"), "x").unwrap();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let recv = place.start(&["recv", BOX], Stdio::null(), full.into());
    let input = fs::File::open(place.path("file")).unwrap();
    let sent = place.start(&["send", BOX], input.into(), Stdio::null()).end();
    let text = "writing standard output: No space left on device";
    recv.end().assert_code(5).assert_says(text);
    sent.assert_code(1).assert_says("the receiver gave up").assert_says(text);
}

#[test]
fn a_closed_output_is_told_to_both() {
    let place = Place::new();
    let (recv, mut out) = place.recv_stream(&[BOX]);
    let (send, mut input) = place.send_stream(&[BOX]);
    let writing = thread::spawn(move || {
        // Ends with a closed pipe, as the sender gives up.
        let _ = input.write_all(&vec![7; 64 << 20]);
    });
    out.read_exact(&mut [0]).unwrap();
    drop(out);
    recv.end().assert_code(5).assert_says("standard output was closed by its reader");
    send.end().assert_code(1).assert_says("standard output was closed by its reader");
    writing.join().unwrap();
}

#[test]
fn a_sender_that_waits_for_input_hears_of_the_end() {
    let place = Place::new();
    let (recv, mut out) = place.recv_stream(&[BOX]);
    let (send, mut input) = place.send_stream(&[BOX]);
    input.write_all(b"a").unwrap();
    out.read_exact(&mut [0]).unwrap();
    recv.signal(Signal::TERM);
    recv.end().assert_code(143);
    // Its standard input is still open.
    send.end().assert_code(1).assert_says("the receiver gave up: interrupted by signal 15");
    drop(input);
}

#[test]
fn an_existing_file_is_kept_unless_forced() {
    let place = Place::new();
    fs::write(place.path("file"), "new").unwrap();
    fs::write(place.dir("out").join("file"), "old").unwrap();
    let recv = place.recv(&[BOX, "out"]);
    let text = "creating file: File exists";
    place.send(&["file", BOX]).end().assert_code(1).assert_says(text);
    recv.end().assert_code(5).assert_says(text).assert_says("--force");
    assert_eq!(fs::read(place.path("out/file")).unwrap(), b"old");
    let recv = place.recv(&["--force", "--sync", BOX, "out"]);
    place.send(&["file", BOX]).end().assert_code(0);
    recv.end().assert_code(0);
    assert_eq!(fs::read(place.path("out/file")).unwrap(), b"new");
}

#[test]
fn files_and_streams_go_where_they_can() {
    let place = Place::new();
    place.dir("out");
    fs::write(place.path("file"), "x").unwrap();
    let recv = place.recv(&[BOX]);
    let text = "run it again as 'pinfold recv ADDRESS DIR'";
    place.send(&["file", BOX]).end().assert_code(1).assert_says(text);
    recv.end().assert_code(2).assert_says(text);
    let recv = place.recv(&[BOX, "out"]);
    let text = "pinfold recv ADDRESS > FILE";
    place.send(&[BOX]).end().assert_code(1).assert_says(text);
    recv.end().assert_code(2).assert_says(text);
    let missing = place.recv(&[BOX, "missing"]).end();
    missing.assert_code(5).assert_says("missing: there is no such directory; make it first");
}

#[test]
fn names_that_are_taken_gone_or_bad() {
    let place = Place::new();
    let first = place.recv(&[BOX]);
    wait_until("the receiver listens", || place.path("names/box").exists());
    place.recv(&[BOX]).end().assert_code(3).assert_says("in use");
    drop(first);
    for wait in ["0", "1"] {
        let ended = place.send(&["--wait", wait, BOX]).end();
        ended.assert_code(3).assert_says("no endpoint listens at local:box");
    }
    place.recv(&["--wait", "1", BOX]).end().assert_code(3).assert_says("no sender came");
    for command in ["send", "recv"] {
        let ended = place.start(&[command, "nonsense"], Stdio::null(), Stdio::null()).end();
        ended.assert_code(2).assert_says("nonsense").assert_says("local:NAME");
        let ended = place.start(&[command], Stdio::null(), Stdio::null()).end();
        ended.assert_code(2).assert_says("ADDRESS");
    }
}

#[test]
fn a_failure_is_json_too() {
    let place = Place::new();
    let ended = place.send(&["--json", "missing", BOX]).end();
    ended.assert_code(5).assert_says("missing: No such file or directory");
    let json = ended.json();
    assert_eq!((&json["ok"], &json["status"]), (&false.into(), &5.into()));
}

#[test]
fn a_second_sender_is_turned_away() {
    let place = Place::new();
    let (recv, mut out) = place.recv_stream(&[BOX]);
    let (send, mut input) = place.send_stream(&[BOX]);
    input.write_all(b"a").unwrap();
    out.read_exact(&mut [0]).unwrap();
    place.send(&[BOX]).end().assert_code(3).assert_says("busy with another sender");
    drop(input);
    send.end().assert_code(0);
    recv.end().assert_code(0);
}

#[test]
fn help_documents_the_statuses() {
    let place = Place::new();
    for command in ["send", "recv"] {
        let ended = place.start(&[command, "--help"], Stdio::null(), Stdio::piped()).end();
        ended.assert_code(0);
        for line in ["Exit status:", "4  the other side went away", "128 + N  stopped by signal"] {
            assert!(ended.stdout.contains(line), "{line:?} is not in {}", ended.stdout);
        }
    }
}
