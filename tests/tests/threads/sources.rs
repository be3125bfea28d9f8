//! The library's sources: the calls by which they start threads.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use pinfold_tests::skip;

/// Calls by which a thread could be started; `scope` with nothing started in it is no harm.
const WAYS: [&str; 9] = [
    "thread::spawn",
    "thread::Builder",
    "Builder::new().name(",
    ".spawn_scoped(",
    "scope.spawn(",
    "s.spawn(",
    "pthread_create",
    "SYS_clone",
    "libc::clone",
];

/// The one call of another file: it starts a process for one operation, and waits for its end.
const HELPER: (&str, &str) =
    ("pinfold-sys/src/mem/fault_safe_change.rs", "libc::clone(help, top.cast(), flags, argument)");

/// The one file that starts threads.
const START: &str = "pinfold-sys/src/threads/start.rs";

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates")
}

/// The library's files, by path within `crates`, without their tests.
fn library() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut left = vec![crates().join("pinfold-sys/src"), crates().join("pinfold/src")];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(&at).expect("the sources") {
            let path = entry.expect("a file").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            if ["tests", "model_tests", "tests.rs", "model_tests.rs"].contains(&name) {
                continue;
            }
            if path.is_dir() {
                left.push(path);
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(&path).expect("text");
                let path = path.strip_prefix(crates()).expect("inside").to_string_lossy();
                found.push((path.into_owned(), without_tests(&text)));
            }
        }
    }
    found
}

/// The lines before the module of tests that ends a file.
fn without_tests(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |pair: &[&str]| {
        let is_test = pair[0].starts_with("#[cfg(") && pair[0].contains("test");
        is_test && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    };
    let end = lines.windows(2).position(begins).unwrap_or(lines.len());
    lines[..end].join("\n")
}

/// Returns whether this user can read the sources, which may lie in a directory of another's.
pub fn can_be_read() -> bool {
    fs::read_dir(crates()).is_ok()
}

/// The names of all kinds of threads that there are.
pub fn names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, text) in library() {
        for rest in text.split("Kind::new(\"").skip(1) {
            names.insert(rest.split('"').next().unwrap_or_default().to_owned());
        }
    }
    names
}

#[test]
fn threads_are_started_in_one_place() {
    if !can_be_read() {
        return skip("this user cannot read the sources");
    }
    let files = library();
    assert!(files.len() > 200, "{} files", files.len());
    let mut starts = 0;
    for (path, text) in &files {
        for (number, line) in text.lines().enumerate().filter(|_| path != START) {
            let is_helper = path == HELPER.0 && line.contains(HELPER.1);
            if line.trim_start().starts_with("//") || is_helper {
                continue;
            }
            let way = WAYS.iter().find(|way| line.contains(**way));
            assert!(way.is_none(), "{path}:{}: {line:?} is not {START}'s way", number + 1);
            starts += usize::from(line.contains(".start_scoped(") || line.contains(".start(move"));
        }
    }
    let (_, place) = files.iter().find(|(path, _)| path == START).expect("the place");
    assert!(place.contains("self.builder().spawn(work)"), "threads are started elsewhere");
    assert!(starts >= 6, "{starts}");
}
