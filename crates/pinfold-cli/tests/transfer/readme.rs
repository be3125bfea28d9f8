//! The transfers of the read-me, command by command as they stand there.

use std::{fs, net::TcpListener, process::Stdio};

use crate::harness::{Place, Running, pattern};

const README: &str = include_str!("../../../../README.md");

/// The commands behind `mark`, without their comments, with the addresses of this test.
fn commands(mark: &str, port: u16) -> Vec<Vec<String>> {
    let block = README.split_once(&format!("<!-- {mark} -->\n```sh\n")).expect("the mark").1;
    let block = block.split_once("```").expect("its end").0;
    let words = |line: &str| {
        let line = line.split(" # ").next().unwrap_or_default();
        let line = line.replace("host:7000", &format!("127.0.0.1:{port}"));
        let line = line.replace("0.0.0.0:7000", &format!("127.0.0.1:{port}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    block.lines().map(words).collect()
}

fn start(place: &Place, words: &[String]) -> Running {
    assert_eq!(words[0], "pinfold");
    let words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    place.start(&words, Stdio::null(), Stdio::piped())
}

fn play(mark: &str) {
    let place = Place::new();
    place.dir("photos/of/cats");
    fs::write(place.path("photos/of/cats/one"), pattern(100_000, 1)).unwrap();
    place.dir("inbox");
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let mut receiver = None;
    let mut sent = 0;
    for words in commands(mark, port) {
        match (words[0].as_str(), words[1].as_str()) {
            // Both hosts are this one.
            ("scp", _) => {}
            (_, "recv") => receiver = Some(start(&place, &words)),
            (_, step) => {
                let ended = start(&place, &words).end();
                ended.assert_code(0);
                sent += usize::from(step == "send");
            }
        }
    }
    receiver.expect("a receiver").end().assert_code(0);
    assert_eq!(sent, 1);
    assert!(place.files("photos") == place.files("inbox/photos"));
    assert_eq!(place.files("inbox/photos").len(), 1);
}

#[test]
fn on_one_host() {
    play("one host");
}

#[test]
fn on_two_hosts_with_a_key() {
    play("two hosts");
}
