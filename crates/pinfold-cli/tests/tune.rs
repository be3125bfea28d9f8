//! `pinfold tune`: its measurements are kept, found again, and in force; errors are reported. No
//! times.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use pinfold_tests::skip::skip;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_pinfold");

/// A run with `home` as the place for settings.
fn tune(home: &Path, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("tune").args(args).env_remove("PINFOLD_COPY").env_remove("HOME");
    command.env("XDG_CONFIG_HOME", home).envs(variables.iter().copied());
    command.output().unwrap()
}

/// The output of a run that succeeds.
fn report(home: &Path, args: &[&str], variables: &[(&str, &str)]) -> Value {
    let done = tune(home, args, variables);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{args:?}: {said}");
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Returns whether anything can be measured here.
fn can_measure(done: &Output) -> bool {
    let said = String::from_utf8_lossy(&done.stderr);
    let cannot = said.contains("no instruction that empties");
    if cannot {
        skip(&said);
    }
    !cannot
}

fn names(value: &Value) -> String {
    let mut names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names.join(" ")
}

fn the_file(home: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(home.join("pinfold")).unwrap().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.into_iter().next().unwrap().unwrap().path()
}

#[test]
fn measured_kept_and_shown() {
    let home = tempfile::tempdir().unwrap();
    let show = ["--show", "--json"];
    assert_eq!(report(home.path(), &show, &[])["origin"], "defaults");
    let done = tune(home.path(), &["--seconds", "0.3", "--json"], &[]);
    if !can_measure(&done) {
        return;
    }
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(done.stderr.is_empty(), "no progress unless on a terminal: {done:?}");
    let made: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(
        names(&made),
        "file format ignored kept machine measured_s measuring origin probe seen table version"
    );
    assert_eq!(names(&made["machine"]), "caches_bytes features kernel processor");
    assert_eq!(names(&made["measuring"]), "cases gain measured other_core seconds withheld");
    // One of the two: the machine may be busy.
    let [gain, withheld] = ["gain", "withheld"].map(|name| &made["measuring"][name]);
    match gain.as_f64() {
        Some(gain) => assert!(gain > 0.0 && withheld.is_null(), "{made:#}"),
        None => assert!(withheld.as_str().unwrap().contains("busy"), "{made:#}"),
    }
    assert_eq!(
        names(&made["probe"]),
        "accuracy accuracy_partly cost_cached_ns cost_uncached_ns threshold_ticks why works"
    );
    assert_eq!((&made["origin"], &made["kept"]), (&"measured".into(), &true.into()));
    assert!(made["measuring"]["measured"].as_u64().unwrap() > 0);
    let rows = made["table"].as_array().unwrap();
    assert_eq!(rows.len(), 6 * (3 * 5) * 3 + 6 * 5 * 2);
    for row in rows {
        assert_eq!(names(row), "destination from operation placement reader source");
        assert_eq!(row["source"].is_null(), row["operation"] == "zero", "{row}");
        // The size from which on there is a choice.
        let core = row["reader"].as_str().unwrap().ends_with("_core");
        let away = core || row["destination"] == "uncached";
        assert_eq!(row["from"][0]["bytes"], if away { 64 } else { 4096 }, "{row}");
    }
    let file = the_file(home.path());
    assert_eq!(made["file"], file.to_str().unwrap());

    let shown = report(home.path(), &show, &[]);
    assert_eq!((&shown["origin"], &shown["kept"]), (&"tuned".into(), &true.into()));
    assert_eq!(shown["table"], made["table"]);
    assert_eq!(shown["measured_s"], made["measured_s"]);
    assert_eq!(names(&made["seen"]), "far mixed near");
    assert_eq!(shown["seen"], made["seen"]);
    assert!(shown["measuring"].is_null() && shown["ignored"] == Value::Array(Vec::new()));

    // The variable comes first, if it makes sense.
    let by_name = report(home.path(), &show, &[("PINFOLD_COPY", "libc")]);
    assert_eq!((&by_name["origin"], &by_name["kept"]), (&"variable".into(), &true.into()));
    for row in by_name["table"].as_array().unwrap() {
        assert_eq!(row["from"].as_array().unwrap().len(), 1);
        assert_eq!(row["from"][0]["algorithm"], "libc");
    }
    assert!(by_name["ignored"][0].as_str().unwrap().contains("comes first"), "{by_name}");
    let nonsense = report(home.path(), &show, &[("PINFOLD_COPY", "mmx")]);
    assert_eq!(nonsense["origin"], "tuned");
    let why = nonsense["ignored"][0].as_str().unwrap();
    assert!(why.contains("\"mmx\"") && why.contains("avx2+source+streaming"), "{why}");

    // So does a file that makes none.
    let text = fs::read_to_string(&file).unwrap();
    for (bad, says) in [
        (String::new(), "EOF"),
        (text.replace("\"kernel\": \"", "\"kernel\": \"not "), "another machine"),
    ] {
        fs::write(&file, bad).unwrap();
        let shown = report(home.path(), &show, &[]);
        assert_eq!((&shown["origin"], &shown["kept"]), (&"defaults".into(), &false.into()));
        let why = shown["ignored"][0].as_str().unwrap();
        assert!(why.contains(says) && why.contains("pinfold tune"), "{why}");
    }
}

#[test]
fn nothing_is_kept_of_a_dry_run() {
    let home = tempfile::tempdir().unwrap();
    let inside = home.path().join("not/yet");
    let done = tune(&inside, &["--seconds", "0.1", "--dry-run"], &[("PINFOLD_COPY", "libc")]);
    if !can_measure(&done) {
        return;
    }
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(text.starts_with("pinfold ") && text.contains("measured, and not kept."), "{text}");
    for part in ["probe: ", "another core", "uncached to cached", "libc"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("PINFOLD_COPY is set"), "{said}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn no_place_to_keep_it() {
    let home = tempfile::tempdir().unwrap();
    let taken = home.path().join("taken");
    fs::write(&taken, "").unwrap();
    // A file where a directory should be, and no directory at all. The command says so before it
    // measures.
    for (place, says) in [(taken.as_path(), "taken"), (Path::new(""), "HOME name none")] {
        let done = tune(place, &["--seconds", "600"], &[]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{said}");
        assert!(done.stdout.is_empty());
        assert!(said.contains(says) && said.contains("XDG_CONFIG_HOME"), "{said}");
        assert!(said.contains("--dry-run"), "{said}");
    }
    let shown = report(Path::new(""), &["--show", "--json"], &[]);
    assert!(shown["file"].is_null() && shown["origin"] == "defaults");
}

#[test]
fn nonsense_and_help() {
    let home = tempfile::tempdir().unwrap();
    for nonsense in [
        &["--seconds", "0"][..],
        &["--seconds", "soon"],
        &["--show", "--dry-run"],
        &["--show", "--seconds", "1"],
        &["now"],
    ] {
        let done = tune(home.path(), nonsense, &[]);
        assert_eq!(done.status.code(), Some(2), "{nonsense:?}");
        assert!(done.stdout.is_empty() && !done.stderr.is_empty());
    }
    let help = String::from_utf8(tune(home.path(), &["--help"], &[]).stdout).unwrap();
    for word in ["format", "origin", "measuring", "probe", "Exit status", "PINFOLD_COPY"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn on_one_processor() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new("taskset");
    command.args(["-c", &first_cpu().to_string(), PROGRAM, "tune", "--json", "--dry-run"]);
    command.args(["--seconds", "0.1"]).env("XDG_CONFIG_HOME", home.path());
    let Ok(done) = command.output() else { return skip("there is no taskset") };
    if !can_measure(&done) {
        return;
    }
    let made: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(made["measuring"]["other_core"], false);
}

fn first_cpu() -> usize {
    pinfold_sys::cpu::affinity::current_cpus()[0]
}
