//! The file: kept, read back, and never trusted or missed.

use std::{cell::Cell, fs, os::unix::fs::PermissionsExt};

use super::*;
use crate::policy::route::Line;

const NOW: u64 = 1_800_000_000;

const COSTS: CostModel = CostModel {
    eager: Line { base_ns: 99.5, ns_per_byte: 0.2 },
    cma: Line { base_ns: 1500.0, ns_per_byte: 0.1 },
    mapped: Line { base_ns: 300.0, ns_per_byte: 0.05 },
};

/// Decides with a measurement that gives [`COSTS`]; returns also whether it was made.
fn run(wish: Wish, file: Option<&Path>, now_s: u64) -> (CostModel, bool) {
    let measured = Cell::new(false);
    let costs = decide(wish, file, now_s, || {
        measured.set(true);
        Measured { costs: COSTS, complete: true }
    });
    (costs.costs, measured.get())
}

#[test]
fn kept_and_used_again() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("a/b/costs.json");
    assert_eq!(run(Wish::Usual, Some(&file), NOW), (COSTS, true));
    assert_eq!(run(Wish::Usual, Some(&file), NOW + 10), (COSTS, false));
    assert_eq!(run(Wish::Measure, Some(&file), NOW + 20), (COSTS, true));
    assert_eq!(run(Wish::Defaults, Some(&file), NOW), (CostModel::DEFAULT, false));

    // Private, and alone in its directory.
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&file), 0o600);
    assert_eq!(mode(file.parent().unwrap()), 0o700);
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);

    // Good for 30 days, and not before its time.
    assert!(!run(Wish::Usual, Some(&file), NOW + 20 + AGE_MAX_S).1);
    assert_eq!(load(&file, NOW + 21 + AGE_MAX_S), None);
    assert_eq!(load(&file, NOW + 19), None);
}

#[test]
fn what_cannot_be_believed_is_measured_anew() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("costs.json");
    let good = serde_json::to_string(&Kept { measured_s: NOW, costs: COSTS }).unwrap();
    let bad = [
        String::new(),
        "null".into(),
        "{}".into(),
        good[..good.len() - 1].into(),
        good.replace("0.2", "-0.2"),
        good.replace("0.2", "1e300"),
        good.replace("1500.0", "0.0"),
        good.replace("1500.0", "1e999"),
        good.replace("1500.0", "\"many\""),
        good.replace("measured_s", "measured_on"),
        good.clone() + &" ".repeat(5000),
        "[".repeat(4000),
    ];
    fs::write(&file, &good).unwrap();
    assert_eq!(run(Wish::Usual, Some(&file), NOW), (COSTS, false));
    for text in bad {
        assert_ne!(text, good);
        fs::write(&file, &text).unwrap();
        assert_eq!(run(Wish::Usual, Some(&file), NOW), (COSTS, true), "{text:.80}");
        // The file was replaced.
        assert_eq!(run(Wish::Usual, Some(&file), NOW), (COSTS, false), "{text:.80}");
    }
    fs::write(&file, [0xff, 0xfe, 0]).unwrap();
    assert!(run(Wish::Usual, Some(&file), NOW).1);
}

#[test]
fn no_place_to_keep_is_no_error() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(run(Wish::Usual, None, NOW), (COSTS, true));
    // A file where a directory should be, and a directory where the file should be.
    let blocked = home.path().join("blocked");
    fs::write(&blocked, "").unwrap();
    assert_eq!(run(Wish::Usual, Some(&blocked.join("costs.json")), NOW), (COSTS, true));
    let taken = home.path().join("taken");
    fs::create_dir_all(taken.join("full")).unwrap();
    assert_eq!(run(Wish::Usual, Some(&taken), NOW), (COSTS, true));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2, "a temporary file is left");
    assert_eq!(run(Wish::Usual, Some(Path::new("/proc/none/costs.json")), NOW), (COSTS, true));
    assert_eq!(run(Wish::Usual, Some(Path::new("/")), NOW), (COSTS, true));
    // A link is not followed, but replaced.
    let link = home.path().join("link");
    std::os::unix::fs::symlink(&blocked, &link).unwrap();
    assert_eq!(run(Wish::Usual, Some(&link), NOW), (COSTS, true));
    assert!(fs::symlink_metadata(&link).unwrap().is_file());
    assert_eq!(fs::read(&blocked).unwrap(), b"");
}

#[test]
fn half_a_measurement_is_not_kept() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("costs.json");
    let half = || Measured { costs: COSTS, complete: false };
    assert_eq!(decide(Wish::Usual, Some(&file), NOW, half).costs, COSTS);
    assert!(!file.exists());
    // A failure is not remembered for good either.
    let (known, meanwhile) = (OnceLock::new(), OnceLock::new());
    assert_eq!(known_or(&known, &meanwhile, half), &COSTS);
    let other = CostModel { cma: COSTS.eager, ..COSTS };
    assert_eq!(known_or(&known, &meanwhile, || Measured { costs: other, complete: false }), &COSTS);
    assert_eq!(known_or(&known, &meanwhile, || Measured { costs: other, complete: true }), &other);
    assert_eq!(known_or(&known, &meanwhile, half), &other);
}

#[test]
fn names() {
    let name = file_name().unwrap();
    assert!(name.starts_with("costs_") && name.ends_with(".json"), "{name}");
    assert!(name.len() < 255 && !name.contains('/'), "{name}");
    assert_eq!(name, file_name().unwrap());
}

#[test]
fn wishes() {
    let wish = |value: &str| Wish::from_value(Some(value.into()));
    assert_eq!(Wish::from_value(None), Wish::Usual);
    assert_eq!(wish("0"), Wish::Defaults);
    assert_eq!(wish("force"), Wish::Measure);
    assert_eq!(wish("yes"), Wish::Usual);
}

#[test]
fn the_model_of_this_process_does_not_change() {
    let model = model();
    assert!(model.is_plausible());
    assert!(std::ptr::eq(model, super::model()));
}
