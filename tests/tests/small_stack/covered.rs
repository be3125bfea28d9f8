//! A check that no public call is missing here.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The modules and files with public calls.
const MODULES: [&str; 9] = [
    "copy",
    "endpoint",
    "error.rs",
    "memory/arena",
    "memory/reassembly",
    "memory/translate",
    "policy/route",
    "status",
    "transport/local/access.rs",
];

/// Calls that take the same way as one that is made here, or that no program makes.
const LEFT_OUT: [&str; 0] = [];

fn files(at: PathBuf, found: &mut Vec<String>) {
    if at.is_file() {
        found.push(fs::read_to_string(&at).expect("text"));
        return;
    }
    for entry in fs::read_dir(at).expect("the sources") {
        let path = entry.expect("a file").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        if !name.starts_with("tests") {
            files(path, found);
        }
    }
}

#[test]
fn every_public_call_is_made() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    if fs::read_dir(here).is_err() {
        return pinfold_tests::skip("this user cannot read the sources");
    }
    let mut sources = Vec::new();
    for module in MODULES {
        files(here.join("../crates/pinfold/src").join(module), &mut sources);
    }
    let mut calls = BTreeSet::new();
    for line in sources.iter().flat_map(|source| source.lines()) {
        let line = line.trim_start();
        let names = ["pub fn ", "pub const fn ", "pub unsafe fn "];
        let rest = names.iter().find_map(|name| line.strip_prefix(name));
        calls.extend(rest.and_then(|rest| rest.split(['(', '<']).next()));
    }
    assert!(calls.len() > 300, "{}: {calls:?}", calls.len());
    let mut tests = Vec::new();
    files(here.join("tests/small_stack"), &mut tests);
    let tests = tests.concat();
    let is_made = |call: &&str| {
        [".", "::"].iter().any(|dot| tests.contains(&format!("{dot}{call}(")))
            || tests.contains(&format!(" {call}("))
            || LEFT_OUT.contains(call)
    };
    let missing: Vec<_> = calls.iter().filter(|call| !is_made(call)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
