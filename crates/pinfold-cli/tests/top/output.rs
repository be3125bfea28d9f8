//! The output of `pinfold top`, its destination, and its end.

use std::{
    io::{BufRead, BufReader, Read},
    os::fd::OwnedFd,
    process::{Command, Stdio},
};

use pinfold_tests::Stage;
use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcgetattr, tcsetwinsize},
};

use super::{
    harness::{Look, PROGRAM, refused, run},
    pair,
};

#[test]
fn a_table_where_nobody_watches() {
    let stage = Stage::new(60);
    let [pond, frog] = pair(&stage, "inline,eager");
    for words in [&["top"][..], &["top", "--once"]] {
        let table = run(words);
        let row = |player: &pinfold_tests::stage::Player, label: &str| {
            let begin = format!("{:>8}  ", player.pid());
            let row = table.lines().find(|line| line.starts_with(&begin) && line.contains(label));
            row.unwrap_or_else(|| panic!("{label}: {table}"))
        };
        assert!(row(&frog, "frog").contains("1.01 k"), "{table}");
        assert!(row(&pond, "pond local:pond").contains("28.0 KB"), "{table}");
        assert!(table.contains("not cma: switched off at this endpoint"), "{table}");
        assert!(table.lines().nth(1).unwrap().contains("SENT   BYTES"), "{table}");
    }
    let table = run(&["top", "--pid", &frog.pid().to_string()]);
    assert!(table.starts_with("pinfold top: 1 endpoint, 1 peer\n"), "{table}");
}

#[test]
fn a_bad_command_line() {
    for words in [&["--interval", "0"][..], &["--interval", "soon"], &["--pid", "x"], &["this"]] {
        assert_eq!(refused(&[&["top"], words].concat()).0, 2, "{words:?}");
    }
    // Beyond what process ids can be.
    let (code, why) = refused(&["top", "--pid", "4294967295"]);
    assert_eq!((code, why.contains("/proc/4294967295")), (1, true), "{why}");
    // The test runner itself has no endpoint.
    let (code, why) = refused(&["top", "--json", "--pid", &std::process::id().to_string()]);
    assert_eq!((code, why.contains("has no endpoint")), (1, true), "{why}");
}

#[test]
fn json_again_and_again() {
    let stage = Stage::new(60);
    let [mut pond, _frog] = pair(&stage, "inline,eager");
    let mut top = Command::new(PROGRAM)
        .args(["top", "--json", "--interval", "0.1", "--pid", &pond.pid().to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next = || {
        let mut text = String::new();
        loop {
            let line = lines.next().expect("another line");
            text += &line;
            text.push('\n');
            if line.contains("\"kind\":\"summary\"") {
                return Look::of(&text).endpoint();
            }
        }
    };
    let first = next();
    assert!(first.own["rates"].is_null() && first.peers[0]["rates"].is_null());
    let second = next();
    for of in [&second.own, &second.peers[0]] {
        for rate in ["sent_messages", "sent_bytes", "received_messages", "received_bytes"] {
            assert_eq!(of["rates"][rate], 0.0, "{of:#}");
        }
    }
    // The reader of the output leaves.
    drop(lines);
    assert_eq!(top.wait().unwrap().code(), Some(128 + 13));
    pond.say("leave");
    pond.end_well();
}

/// The master of a new terminal of this size, and a function that opens it.
fn terminal(ws_col: u16, ws_row: u16) -> (OwnedFd, impl Fn() -> OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let open = move || {
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap()
    };
    tcsetwinsize(&master, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (master, open)
}

#[test]
fn every_column_is_shown_whole() {
    let stage = Stage::new(60);
    let [pond, _frog] = pair(&stage, "inline,eager");
    let pid = pond.pid().to_string();
    let words = ["top", "--once", "--pid", &pid];
    // The state, which is last, and the text below the row.
    let wanted = ["awake, looked around", "inline eager", "not cma: switched off at this endpoint"];
    let has_all = |text: &str| {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let titles = ["SENT BYTES RECV BYTES", "QUEUED HELD MEMORY STATE"];
        for part in wanted.iter().chain(&titles) {
            assert!(text.contains(part), "{part}: {text}");
        }
    };
    // The pond is left alone so long that the table says so.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let piped = run(&words);
    has_all(&piped);
    let heads = piped.lines().nth(1).unwrap();
    assert!(heads.contains("PID") && heads.ends_with("STATE"), "a line each: {piped}");
    for width in [60, 80, 200] {
        let (master, open) = terminal(width, 24);
        let terminal = open();
        let mut top =
            Command::new(PROGRAM).args(words).stdin(open()).stdout(open()).spawn().unwrap();
        let mut screen = std::fs::File::from(master);
        assert_eq!(top.wait().unwrap().code(), Some(0));
        drop(terminal);
        // The command ends in an error, since the other end is closed.
        let mut bytes = Vec::new();
        let _ = screen.read_to_end(&mut bytes);
        let text = String::from_utf8(bytes).unwrap().replace("\r\n", "\n");
        has_all(&text);
        for line in text.lines() {
            assert!(line.chars().count() <= usize::from(width), "{width}: {text}");
        }
    }
}

#[test]
fn a_terminal_is_left_clean() {
    let stage = Stage::new(60);
    let _players = pair(&stage, "inline,eager");
    let (master, open) = terminal(90, 6);
    let terminal = open();
    let before = format!("{:?}", tcgetattr(&terminal).unwrap());
    let mut top = Command::new(PROGRAM)
        .args(["top", "--interval", "0.1"])
        .stdin(open())
        .stdout(open())
        .spawn()
        .unwrap();
    let mut screen = std::fs::File::from(master);
    let mut text = String::new();
    let mut read = |text: &mut String| {
        let mut bytes = [0; 4096];
        let len = screen.read(&mut bytes).unwrap_or(0);
        text.push_str(&String::from_utf8_lossy(&bytes[..len]));
        len
    };
    while text.matches("pinfold top: ").count() < 4 {
        assert!(read(&mut text) > 0, "{text}");
    }
    kill_process(Pid::from_child(&top), Signal::INT).unwrap();
    assert_eq!(top.wait().unwrap().code(), Some(0));
    assert_eq!(format!("{:?}", tcgetattr(&terminal).unwrap()), before);
    drop(terminal);
    while read(&mut text) > 0 {}
    assert!(text.ends_with("\n\r\x1b[K"), "{text:?}");
    // Each table fits, and covers the one before; the terminal gets no other commands.
    let text = text.trim_end_matches("\r\x1b[K").replace("\r\n", "\n");
    let tables: Vec<&str> = text.split("\r\x1b[J").collect();
    for (at, table) in tables.iter().enumerate() {
        let (table, up) = table.split_once("\x1b[").unwrap_or((table, ""));
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].starts_with("pinfold top: ") && lines[1].contains("SENT/s"), "{table:?}");
        assert!(lines.len() <= 5, "{table:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 90), "{table:?}");
        assert!(!table.chars().any(|char| char.is_control() && char != '\n'), "{table:?}");
        if at + 1 < tables.len() {
            assert_eq!(up, format!("{}A", lines.len()));
        }
    }
    assert!(text.contains("lines more"), "{text:?}");
}
