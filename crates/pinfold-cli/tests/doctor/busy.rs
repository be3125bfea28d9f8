//! Costs of messages: figures that make sense, or a reason why there are none.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use serde_json::Value;

use super::harness::{Found, MEASURES, PROGRAM, under, under_with};

/// Checks costs as they are reported, also on a machine that is busy.
pub fn costs(report: &Value) {
    let costs = &report["costs"];
    let all = &costs["withheld"];
    if all.is_string() {
        assert!(costs["class"].is_null() && costs["hop_ns"].is_null(), "{costs:#}");
    } else {
        assert!(["near", "far", "mixed"].contains(&costs["class"].as_str().unwrap()));
        assert!(costs["hop_ns"].as_f64().unwrap() > 0.0);
    }
    let rows = costs["rows"].as_array().unwrap();
    for row in rows {
        figures(row, all);
    }
    let row =
        |size: u64, path: &str| rows.iter().find(|row| row["size"] == size && row["path"] == path);
    for (size, path) in [(8, "inline"), (1024, "eager"), (4096, "eager"), (8, "auto")] {
        let row = row(size, path).unwrap_or_else(|| panic!("{size} {path}: {costs:#}"));
        assert_eq!(row["taken"].is_string(), path == "auto", "{row}");
    }
    assert_eq!(row(8, "auto").unwrap()["taken"], "inline");
    assert!(row(1024, "inline").is_none());
    if report["paths"]["cma"]["works"] == true {
        assert!(row(65536, "cma").is_some() && row(1 << 20, "cma").is_some(), "{costs:#}");
    }
}

/// Each figure of a row is positive, or withheld with a reason.
fn figures(row: &Value, all: &Value) {
    let withheld = row["withheld"].as_str();
    let mut given = 0;
    for name in ["latency_ns", "bandwidth_mb_s"] {
        match row[name].as_f64() {
            Some(figure) => {
                assert!(figure.is_finite() && figure > 0.0, "{name}: {row}");
                given += 1;
            }
            // A path that is not possible stands beside another.
            None => assert!(row[name].is_null(), "{name}: {row}"),
        }
    }
    match (all.as_str(), withheld) {
        (Some(all), Some(why)) => assert!(all == why && given == 0, "{row}"),
        (Some(_), None) => panic!("nothing is withheld of {row}"),
        (None, Some(why)) => assert!(!why.is_empty() && given < 2, "{row}"),
        (None, None) => assert!(given > 0, "{row}"),
    }
}

/// Programs that keep all processors busy, as long as this lives.
struct CoRunners<'a>(&'a AtomicBool);

impl Drop for CoRunners<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` beside two threads for each processor that do nothing but burn it.
fn beside_co_runners<T>(work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    let count = 2 * thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let _until_here = CoRunners(&over);
        work()
    })
}

#[test]
fn beside_programs_that_burn_all_processors() {
    let place = tempfile::tempdir().unwrap();
    let doctor = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("doctor").args(args).env("PINFOLD_DIR", place.path().join("names"));
        beside_co_runners(|| command.output().unwrap())
    };
    // The exit status is that of the problems in the report: withheld figures are none of them.
    let found = Found::of(&doctor(&["--json"]));
    if found.exit == 3 {
        return pinfold_tests::skip::skip(&format!("{}", found.report["verdict"]["text"]));
    }
    let costs = &found.report["costs"];
    if costs.is_null() {
        // There are no costs at all: then the report says so.
        found.problem("could not be measured");
    } else {
        for row in costs["rows"].as_array().unwrap() {
            figures(row, &costs["withheld"]);
        }
        if costs["withheld"].is_string() {
            let why = costs["withheld"].as_str().unwrap();
            assert!(why.starts_with("the machine was busy ("), "{why}");
            let problem = found.problem("cost is withheld");
            assert_eq!(
                (&problem["severity"], problem["why"].as_str()),
                (&"warning".into(), Some(why))
            );
        } else {
            assert!(costs["hop_ns"].as_f64().unwrap() > 0.0, "{costs:#}");
        }
    }
    let done = doctor(&[]);
    let text = String::from_utf8_lossy(&done.stdout);
    assert_eq!(done.status.code(), Some(found.exit), "{text}");
    let costs = text.split("COSTS").nth(1).and_then(|rest| rest.split("LIMITS").next());
    let Some(costs) = costs else {
        return assert!(text.contains("could not be measured"), "{text}");
    };
    let withheld = costs.contains("Withheld: ");
    assert!(withheld || costs.contains(" ns") || costs.contains(" µs"), "{costs}");
    let nothing = |word: &&str| word.parse::<f64>().is_ok_and(|figure| figure == 0.0);
    assert_eq!(costs.split_whitespace().find(nothing), None, "{costs}");
}

/// Two processes that share a processor wait for each other: that alone is no reason to withhold
/// anything.
#[test]
fn on_one_processor() {
    let place = tempfile::tempdir().unwrap();
    let found = under_with("cpu", |command| {
        command.env(MEASURES, "1").env("PINFOLD_DIR", place.path().join("names"))
    });
    if found.exit == 3 || found.report["costs"].is_null() {
        return pinfold_tests::skip::skip(&format!("{}", found.report["verdict"]["text"]));
    }
    for row in found.report["costs"]["rows"].as_array().unwrap() {
        figures(row, &found.report["costs"]["withheld"]);
    }
}

#[test]
fn one_processor() {
    let found = under("cpu");
    assert_eq!(found.report["processors"]["usable"].as_array().unwrap().len(), 1);
    assert!(found.exit == 1 || found.exit == 3);
    let problem = found.problem("share one processor");
    if found.report["processors"]["online"].as_u64() > Some(1) {
        let remedies = problem["remedies"].to_string();
        assert!(remedies.contains("taskset") || remedies.contains("cpuset"), "{remedies}");
    }
}
