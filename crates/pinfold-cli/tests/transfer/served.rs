//! Receivers that take one transfer after another, and the lines that both sides print.

use std::fs;

use rustix::process::Signal;

use crate::{
    BOX,
    harness::{Place, pattern},
};

#[test]
fn one_transfer_after_another() {
    let place = Place::new();
    place.dir("out");
    let recv = place.recv(&[BOX, "out", "--serve"]);
    for n in 0..3 {
        let name = format!("file{n}");
        fs::write(place.path(&name), pattern((3 << 20) + n, n as u64)).unwrap();
        place.send(&[&name, BOX]).end().assert_code(0);
        assert!(
            fs::read(place.path(&format!("out/{name}"))).unwrap()
                == pattern((3 << 20) + n, n as u64)
        );
    }
    // One that fails is no end: the file is there already.
    let sent = place.send(&["file1", BOX]).end();
    assert_ne!(sent.status.code(), Some(0), "{sent:?}");
    recv.wait_for("file1");
    // Neither is a sender that is killed in the midst of it.
    let (killed, stdin) = place.send_stream(&["-", BOX]);
    drop(stdin);
    drop(killed);
    fs::write(place.path("last"), "last").unwrap();
    place.send(&["last", BOX]).end().assert_code(0);
    assert_eq!(fs::read(place.path("out/last")).unwrap(), b"last");
    recv.signal(Signal::TERM);
    let ended = recv.end();
    ended.assert_code(128 + 15);
    assert_eq!(ended.stderr.matches("pinfold: received ").count(), 4, "{ended:?}");
    assert_eq!(ended.stderr.matches("waiting for a sender").count(), 1, "{ended:?}");
    // Its name is free again.
    place
        .recv(&[BOX, "out", "--wait", "0"])
        .end()
        .assert_code(3)
        .assert_says("waiting for a sender");
}

#[test]
fn it_serves_no_longer_than_it_is_to_wait() {
    let place = Place::new();
    place.dir("out");
    let recv = place.recv(&[BOX, "out", "--serve", "--json", "--wait", "2"]);
    fs::write(place.path("file"), "x").unwrap();
    place.send(&["file", BOX]).end().assert_code(0);
    let ended = recv.end();
    ended.assert_code(3);
    let lines: Vec<serde_json::Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["ok"], &lines[0]["files"]), (&true.into(), &1.into()));
    assert_eq!(lines[1]["ok"], false);
}

#[test]
fn a_stream_is_taken_once() {
    let ended = Place::new().recv(&[BOX, "--serve"]).end();
    ended.assert_code(2).assert_says("DIR");
}

#[test]
fn a_receipt_is_a_line_and_the_rest_is_asked_for() {
    let place = Place::new();
    place.dir("tree/with/folders");
    for n in 0..12 {
        fs::write(place.path(&format!("tree/{n}")), pattern(300_000 + n, n as u64)).unwrap();
    }
    for verbose in [false, true] {
        let more: &[&str] = if verbose { &["-v"] } else { &[] };
        let out = if verbose { "two" } else { "one" };
        place.dir(out);
        let recv = place.recv(&[&[BOX, out], more].concat());
        let sent = place.send(&[&["tree", BOX], more].concat()).end();
        let received = recv.end();
        for (ended, done) in [(&sent, "sent"), (&received, "received")] {
            ended.assert_code(0);
            let wanted =
                format!("pinfold: {done} 3.43 MiB in 12 files and 3 directories, verified, ");
            let lines: Vec<&str> = ended.stderr.lines().collect();
            let at = lines.iter().position(|line| line.starts_with(&wanted));
            let at = at.unwrap_or_else(|| panic!("{wanted}: {ended:?}"));
            let receipt = &lines[at..];
            assert!(receipt.iter().all(|line| line.chars().count() <= 80), "{receipt:#?}");
            let has = |text: &str| receipt.iter().any(|line| line.contains(text));
            assert_eq!(has("pinfold:   by inline: "), verbose, "{receipt:#?}");
            assert_eq!(has("copied "), verbose, "{receipt:#?}");
            assert!(verbose || receipt.len() == 1, "{receipt:#?}");
        }
    }
    Place::new().send(&["-v", "-q", "x", BOX]).end().assert_code(2);
}
