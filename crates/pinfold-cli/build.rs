//! Names the commit that the command is built from, if that is known: git's of the tree, or the one
//! that a package of this crate was made of.

use std::{fs, path::Path, process::Command};

/// A digest is shown by so many of its digits.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let commit = packed().or_else(of_tree).unwrap_or_default();
    let commit: String = commit.chars().take(DIGITS).filter(char::is_ascii_hexdigit).collect();
    println!("cargo::rustc-env=PINFOLD_COMMIT={commit}");
}

/// Returns the commit in the file that `cargo package` adds.
fn packed() -> Option<String> {
    let text = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    rest.split('"').nth(1).map(str::to_owned)
}

/// Returns the commit of this tree, and has cargo ask again when it changes. `None`: no git, or the
/// tree that git finds above is another project's.
fn of_tree() -> Option<String> {
    let root = git(&["rev-parse", "--show-toplevel"])?;
    let own = fs::canonicalize("../..").ok()?;
    if fs::canonicalize(root).ok()? != own {
        return None;
    }
    // Each commit and each change of branch adds a line there.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "HEAD"])
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
