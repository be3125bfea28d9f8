//! The command line as others show it: completions of shells, pages of the manual, the version.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use pinfold_tests::skip;

const PROGRAM: &str = env!("CARGO_BIN_EXE_pinfold");

fn run(words: &[&str]) -> Output {
    Command::new(PROGRAM).args(words).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn said(words: &[&str]) -> String {
    let output = run(words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{words:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The names of the pages on `above` and all below it, as the help lists them.
fn pages(above: &[&str], found: &mut Vec<String>) {
    found.push(format!("{}.1", [&["pinfold"], above].concat().join("-")));
    let help = said(&[above, &["--help"]].concat());
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in list.take_while(|line| !line.is_empty()) {
        let name = line.strip_prefix("  ").and_then(|line| line.split(' ').next());
        if let Some(name) = name.filter(|name| !name.is_empty() && *name != "help") {
            pages(&[above, &[name]].concat(), found);
        }
    }
}

#[test]
fn every_subcommand_has_a_page() {
    let (place, mut wanted) = (tempfile::tempdir().unwrap(), Vec::new());
    pages(&[], &mut wanted);
    assert!(wanted.len() >= 16, "{wanted:?}");
    let out = place.path().join("man/man1");
    said(&["man", "--out", out.to_str().unwrap()]);
    let mut there: Vec<String> = fs::read_dir(&out)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    there.sort();
    wanted.sort();
    assert_eq!(there, wanted);
    for name in there {
        let page = fs::read_to_string(out.join(&name)).unwrap();
        let words = name.strip_suffix(".1").unwrap();
        for part in [".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"] {
            assert!(page.contains(part), "{name}: {part}: {page}");
        }
        let plain = page.replace("\\-", "-");
        assert!(plain.contains(words), "{name}: {page}");
    }
    // Without a directory it is the first of them.
    assert_eq!(said(&["man"]), fs::read_to_string(out.join("pinfold.1")).unwrap());
    let send = fs::read_to_string(out.join("pinfold-send.1")).unwrap().replace("\\-", "-");
    assert!(send.contains("--key") && send.contains("Exit status"), "{send}");
}

#[test]
fn a_manual_that_cannot_be_written_is_a_failure() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    let output = run(&["man", "--out", file.to_str().unwrap()]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains(file.to_str().unwrap()) && errors.contains("choose another"),
        "{errors}"
    );
}

#[test]
fn shells_complete_every_subcommand_and_its_options() {
    for shell in ["bash", "zsh", "fish"] {
        let text = said(&["completions", shell]);
        let words = ["doctor", "send", "recv", "top", "lab", "completions", "strict", "prometheus"];
        for word in words {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
    let output = run(&["completions", "csh"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn bash_completes() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("pinfold");
    fs::write(&file, said(&["completions", "bash"])).unwrap();
    let script = "source \"$1\" && COMP_WORDS=(pinfold re) COMP_CWORD=1 && \
                  _pinfold pinfold re pinfold && echo \"${COMPREPLY[@]}\"";
    let Ok(output) = Command::new("bash").args(["-c", script, "-"]).arg(&file).output() else {
        return skip("there is no bash");
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "recv");
}

#[test]
fn the_version_names_the_commit_and_what_peers_compare() {
    let short = said(&["-V"]);
    assert_eq!(short.trim(), concat!("pinfold ", env!("CARGO_PKG_VERSION")));
    let long = said(&["--version"]);
    let all = pinfold::Versions::of_this_library();
    assert!(long.starts_with(short.trim()), "{long}");
    assert!(long.contains(&all.to_string()), "{long}");
    assert!(long.trim_end().lines().last().unwrap().starts_with("'pinfold send'"), "{long}");
    let git = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "HEAD"])
        .stderr(Stdio::null())
        .output();
    match git {
        Ok(output) if output.status.success() => {
            let first = long.lines().next().unwrap();
            let (_, commit) = first.split_once("(commit ").unwrap_or_else(|| panic!("{first}"));
            let commit = commit.trim_end_matches(')');
            // Not that of `HEAD`: the program may be older than the last commit.
            assert!(
                commit.len() == 12 && commit.chars().all(|it| it.is_ascii_hexdigit()),
                "{first}"
            );
        }
        _ => skip("these sources are in no tree of git that this user can read"),
    }
}
