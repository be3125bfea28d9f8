//! `pinfold perf copy` from outside: its cells, its JSON, its page, and how it ends. No times.

use std::{
    fs,
    process::{Command, Output},
    sync::{Mutex, MutexGuard, PoisonError},
};

use pinfold_tests::skip::skip;
use serde_json::Value;

/// One run at a time: each would like two cores for itself.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run with these arguments and the defaults' plan, or the one that `plan` names.
fn run(args: &[&str], plan: Option<&str>) -> Output {
    let nowhere = std::env::temp_dir().join("pinfold-test-no-settings");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pinfold"));
    command.args(["perf", "copy"]).args(args).env_remove("PINFOLD_COPY");
    command.env("XDG_CONFIG_HOME", nowhere).envs(plan.map(|plan| ("PINFOLD_COPY", plan)));
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The same, of a run that succeeds. `None`, loudly, if nothing can be measured.
fn measured(args: &[&str], plan: Option<&str>) -> Option<String> {
    let done = run(args, plan);
    let said = text(&done.stderr);
    if said.contains("no instruction that empties") || said.contains("no second processor to pass")
    {
        skip(&said);
        return None;
    }
    assert_eq!(done.status.code(), Some(0), "{args:?}: {said}");
    Some(text(&done.stdout))
}

fn has_two_cores() -> bool {
    std::thread::available_parallelism().map_or(1, usize::from) > 1
}

fn lines(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn names(value: &Value) -> String {
    let mut names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names.join(" ")
}

const CELL: &str = "best best_ns best_streaming best_streaming_ns best_temporal best_temporal_ns \
                    class destination learnt_ns learnt_of_best learnt_of_libc libc_ns meets_best meets_libc of_best of_libc placement plan \
                    plan_ns reader rounds size source verified what";
const TOTALS: &str = "apart apart_best_gain apart_gain cells learnt_meet_best learnt_meet_libc meet_best \
                      meet_libc plan short short_meet_libc what";
const RING: &str =
    "chunk class contestant gb_s hop_ns into of_libc out_of rounds size verified what";

#[test]
fn every_state_of_a_size_is_measured_and_checked() {
    let _alone = alone();
    let page = std::env::temp_dir().join(format!("pinfold-perf-copy-{}.html", std::process::id()));
    let args = ["--json", "--sizes", "100,5000", "--rounds", "1", "--html"];
    let args = [&args[..], &[page.to_str().unwrap()]].concat();
    let Some(out) = measured(&args, None) else { return };
    let lines = lines(&out);
    let (totals, cells) = lines.split_last().unwrap();
    let readers = if has_two_cores() { 3 } else { 2 };
    assert_eq!(cells.len(), 2 * readers * 2 * 3 * 3);
    let mut states: Vec<String> = Vec::new();
    for cell in cells {
        assert_eq!((names(cell), &cell["what"]), (CELL.into(), &"cell".into()));
        for field in ["verified", "rounds"] {
            assert!(cell[field].as_u64().unwrap() > 0, "{field}: {cell}");
        }
        // The copies of every contestant were checked.
        assert!(cell["verified"].as_u64().unwrap() > 4 * cell["rounds"].as_u64().unwrap());
        for field in ["libc_ns", "plan_ns", "best_ns", "best_temporal_ns"] {
            assert!(cell[field].as_f64().unwrap() > 0.0, "{field}: {cell}");
        }
        let at = |field: &str| cell[field].as_f64().unwrap();
        assert!(
            at("best_ns") <= at("libc_ns") && at("best_ns") <= at("best_temporal_ns"),
            "{cell}"
        );
        // Medians of the ratios, round by round.
        assert!(["of_libc", "of_best"].iter().all(|of| at(of) > 0.0), "{cell}");
        assert_eq!(cell["meets_best"], at("of_best") >= 0.9);
        assert_eq!(cell["meets_libc"], at("of_libc") >= 0.95);
        for field in ["learnt_ns", "learnt_of_best", "learnt_of_libc"] {
            assert_eq!(
                cell[field].as_f64().is_some_and(|it| it > 0.0),
                cell["size"] == 5000,
                "{cell}"
            );
        }
        assert_eq!(cell["class"].is_null(), cell["reader"] != "other-core", "{cell}");
        if cell["size"] == 100 {
            // Bytes that have to come from elsewhere to be written may be fetched first.
            let away = cell["reader"] == "other-core" || cell["destination"] == "uncached";
            let plan = cell["plan"].as_str().unwrap();
            assert!(plan == "libc" || (away && plan == "libc+destination"), "{cell}");
        }
        let state = ["size", "source", "destination", "reader", "placement"];
        states.push(state.map(|field| cell[field].to_string()).join(" "));
    }
    states.sort_unstable();
    states.dedup();
    assert_eq!(states.len(), cells.len());

    assert_eq!((names(totals), &totals["what"]), (TOTALS.into(), &"totals".into()));
    let count = |what: &dyn Fn(&&Value) -> bool| cells.iter().filter(what).count() as u64;
    assert_eq!(
        (totals["cells"].as_u64(), &totals["plan"]),
        (Some(count(&|_| true)), &"defaults".into())
    );
    for (field, aim) in [("meet_best", "meets_best"), ("meet_libc", "meets_libc")] {
        assert_eq!(totals[field], count(&|cell| cell[aim] == true));
    }
    for (field, learnt, plan, aim) in [
        ("learnt_meet_best", "learnt_of_best", "of_best", 0.9),
        ("learnt_meet_libc", "learnt_of_libc", "of_libc", 0.95),
    ] {
        let part = |cell: &Value| cell[learnt].as_f64().or(cell[plan].as_f64()).unwrap();
        assert_eq!(totals[field], count(&|cell| part(cell) >= aim));
    }
    let short = |cell: &&Value| cell["size"] == 100;
    assert_eq!(totals["short"], count(&short));
    assert_eq!(totals["short_meet_libc"], count(&|cell| short(cell) && cell["meets_libc"] == true));
    let apart = |cell: &&Value| {
        cell["reader"] == "other-core"
            || [&cell["source"], &cell["destination"]].contains(&&Value::from("uncached"))
    };
    assert_eq!(totals["apart"], count(&apart));
    // Speeds over libc's; the gains are their geometric means.
    let gain = |of: &dyn Fn(&Value) -> f64| {
        let logs: Vec<f64> = cells.iter().filter(apart).map(|cell| of(cell).ln()).collect();
        (logs.iter().sum::<f64>() / logs.len() as f64).exp()
    };
    let number = |of: &Value, field: &str| of[field].as_f64().unwrap();
    let plan = gain(&|cell| number(cell, "of_libc"));
    let best = gain(&|cell| number(cell, "libc_ns") / number(cell, "best_ns"));
    assert!((number(totals, "apart_gain") / plan - 1.0).abs() < 1e-9);
    assert!((number(totals, "apart_best_gain") / best - 1.0).abs() < 1e-9);

    let html = fs::read_to_string(&page).unwrap();
    let _ = fs::remove_file(&page);
    assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"));
    // A plot for each state and placement.
    assert_eq!(html.matches("<svg").count(), readers * 2 * 3 * 3);
    assert!(!html.contains("http"), "the page needs nothing from elsewhere");
    assert!(["libc", "plan", "best temporal", "best streaming"].iter().all(|it| html.contains(it)));
}

#[test]
fn cells_that_miss_are_reported_and_all_on_demand() {
    let _alone = alone();
    // Words past the cache, for blocks that are read at once: nothing is slower.
    let few =
        ["--sizes", "64K", "--readers", "me", "--sources", "cached", "--destinations", "dirty"];
    let args = [&few[..], &["--placements", "aligned,aliased", "--rounds", "3"]].concat();
    let slow = "word+source+streaming";
    let Some(out) = measured(&args, Some(slow)) else { return };
    assert!(out.contains("by PINFOLD_COPY"), "{out}");
    let met = |aim: &str| {
        let line = out.lines().find(|line| line.ends_with(aim)).expect(aim);
        line.split_whitespace().next().unwrap().parse::<usize>().unwrap()
    };
    let (best, libc) = (met("within 10 % of the best algorithm"), met("slower than libc"));
    // A cell that misses either aim has a row, and no other has.
    let rows = out.matches("  64 KiB  cached").count();
    assert!((2 - best.min(libc)..=4 - best - libc).contains(&rows), "{out}");
    assert_eq!(out.contains("CELLS THAT MISS AN AIM"), rows > 0, "{out}");
    assert_eq!(out.matches("!").count(), 4 - best - libc, "each miss is marked: {out}");
    let Some(out) = measured(&[&args[..], &["--json"]].concat(), Some(slow)) else { return };
    let lines = lines(&out);
    assert_eq!((lines.len(), &lines[2]["plan"]), (3, &"variable".into()));
    for cell in &lines[..2] {
        assert_eq!(cell["plan"], slow);
        let meets = cell["meets_best"] == true && cell["meets_libc"] == true;
        assert!(meets || cell["rounds"].as_u64().unwrap() > 3, "repeated where it misses: {cell}");
    }
    // No time is time for one cell, and the output names those left out.
    let Some(out) = measured(&[&args[..], &["--seconds", "1e-6"]].concat(), None) else { return };
    assert!(out.contains("there was no time for 1 of 2 cells"), "{out}");
    assert!(out.contains("of 1 cells: the plan is within 10 %"), "{out}");
    // If the C library's is used for everything, the plan is libc's equal or reported; --all shows
    // it anyhow.
    let all = measured(&[&args[..], &["--all"]].concat(), Some("libc")).unwrap();
    assert!(all.contains("ALL CELLS") && !all.contains("CELLS THAT MISS"), "{all}");
    assert_eq!(all.matches("  64 KiB  cached").count(), 2, "{all}");
}

#[test]
fn what_cannot_be_cached_is_left_out_and_said() {
    let _alone = alone();
    let cache = fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size");
    let Some(kib) = cache.ok().and_then(|it| it.trim().trim_end_matches('K').parse::<u64>().ok())
    else {
        return skip("the kernel does not say how large the last cache is");
    };
    let size = format!("{kib}K");
    let args = ["--sizes", &size, "--rounds", "1", "--readers", "nobody", "--json"];
    let Some(out) = measured(&args, None) else { return };
    let lines = lines(&out);
    assert_eq!(lines.len(), 2, "one cell and the totals: {out}");
    let cell = &lines[0];
    assert_eq!((&cell["source"], &cell["destination"]), (&"uncached".into(), &"uncached".into()));
    assert_eq!(cell["placement"], "aligned");
    let said = text(&run(&args, None).stderr);
    assert!(said.contains("17 cells are left out"), "{said}");
    let done = run(&["--sizes", &size, "--sources", "cached"], None);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("nothing is left to measure"), "{}", text(&done.stderr));
}

#[test]
fn the_ring_is_measured_with_each_algorithm_that_may_be_best_and_bounds() {
    let _alone = alone();
    let args = ["--ring", "--json", "--sizes", "70000", "--rounds", "1"];
    let Some(out) = measured(&args, None) else { return };
    let laps = lines(&out);
    let of = |name: &str| laps.iter().filter(|lap| lap["contestant"] == name).count();
    // One for each size of chunks.
    assert_eq!(["libc", "plan", "learnt", "word+streaming"].map(of), [2; 4]);
    assert_eq!(["read-only", "lines-only"].map(of), [2; 2]);
    for lap in &laps {
        assert_eq!((names(lap), &lap["what"]), (RING.into(), &"ring".into()));
        assert_eq!(lap["size"], 70000);
        // A contestant that makes no copy has nothing to be checked.
        let verified = if lap["out_of"].is_null() { 0 } else { 4 };
        assert!(lap["verified"] == verified && lap["gb_s"].as_f64().unwrap() > 0.0, "{lap}");
        match lap["contestant"].as_str().unwrap() {
            "libc" => assert_eq!((&lap["into"], &lap["out_of"]), (&"libc".into(), &"libc".into())),
            "plan" | "learnt" => assert!(lap["into"].is_string()),
            "read-only" | "lines-only" => assert!(lap["out_of"].is_null(), "{lap}"),
            name if name.ends_with("+destination") => {
                assert_eq!((&lap["into"], &lap["out_of"]), (&name.into(), &name.into()));
            }
            name => assert!(lap["into"] == name && name.ends_with("+streaming"), "{lap}"),
        }
        if lap["contestant"] == "libc" {
            assert_eq!(lap["of_libc"], 1.0);
        }
    }
    let out = measured(&args[..1], Some("libc")).unwrap();
    assert!(out.contains("A RING OF TWO COPIES") && out.contains("4 MiB"), "{out}");
}

#[test]
fn what_makes_no_sense_is_said() {
    for (args, why) in [
        (&["--sizes", "0"][..], "nothing to measure"),
        (&["--sizes", "2G"], "2 GiB is too long"),
        (&["--sources", "warm"], "possible values: cached, uncached"),
        (&["--destinations", "wet"], "dirty, clean, uncached"),
        (&["--readers", "you"], "me, other-core, nobody"),
        (&["--placements", "here"], "aligned, misaligned, aliased"),
        (&["--rounds", "0"], "0"),
        (&["--seconds", "0"], "give a positive number"),
        (&["--seconds", "nan"], "give a positive number"),
        (&["--quick", "--seconds", "60"], "leave it out"),
        (&["--cores", "0"], "give two"),
        (&["--cores", "0,99999"], "99999"),
        (&["--ring", "--all"], "cannot be used"),
        (&["--ring", "--html", "x.html"], "cannot be used"),
        (&["--json", "--all"], "cannot be used"),
        (&["4096"], "unexpected argument"),
    ] {
        let done = run(args, None);
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(why) && done.stdout.is_empty(), "{args:?}: {said}");
    }
    let done = run(&["--html", "/nowhere/x.html"], None);
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("/nowhere/x.html"), "{}", text(&done.stderr));
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let _alone = alone();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let args = ["perf", "copy", "--sizes", "64", "--rounds", "1", "--readers", "me"];
    let done =
        Command::new(env!("CARGO_BIN_EXE_pinfold")).args(args).stdout(full).output().unwrap();
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write") || said.contains("no instruction"), "{said}");
}
