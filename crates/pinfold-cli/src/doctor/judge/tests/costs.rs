//! Costs, as recorded on machines that were idle and on others.

use super::*;
use pinfold_bench::{
    brief::{Brief, BriefRow, Route, What},
    class::Class,
    load::{Conditions, Load},
};

fn row(what: What, route: Route, class: Class, rounds: &[f64], samples: u64) -> BriefRow {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    BriefRow {
        what,
        size: 8,
        route,
        class,
        median: sorted[sorted.len() / 2],
        samples,
        rounds: rounds.to_vec(),
        taken: (route == Route::Auto).then(|| "inline".into()),
    }
}

/// Measurements of 2.5 s on two processors by processes that waited so long.
fn brief(rows: Vec<BriefRow>, waited_ns: u64) -> Brief {
    let load = Load { ran_ns: 2_000_000_000, waited_ns: Some(waited_ns), preempted: Some(3) };
    Brief {
        rows,
        hop_ns: 48.123,
        conditions: Conditions {
            wall_ns: 2_500_000_000,
            sides: [load, load],
            stolen: Some((0, 2_700_000_000)),
            one_core: false,
        },
        cores: [Some(0), Some(1)],
        notes: vec!["it was slow".into()],
    }
}

fn some_rows() -> Vec<BriefRow> {
    vec![
        row(What::Latency, Route::Inline, Class::Near, &[80.0, 80.0], 100),
        row(What::Latency, Route::Inline, Class::Far, &[200.0], 10),
        row(What::Bandwidth, Route::Inline, Class::Far, &[90.0, 91.0, 89.0], 10),
        row(What::Latency, Route::Auto, Class::Near, &[81.0, 82.0, 80.0], 100),
    ]
}

fn reported(brief: Brief) -> Report {
    let (mut trials, facts) = well();
    trials.costs = Some(Ok(brief));
    report(&trials, &facts)
}

#[test]
fn they_are_those_of_the_usual_class() {
    let report = reported(brief(some_rows(), 20_000_000));
    let costs = report.costs.as_ref().unwrap();
    assert_eq!((costs.class, costs.hop_ns, costs.rows.len()), (Some("near"), Some(48.1), 2));
    assert_eq!(costs.withheld, None);
    let of = |path: &str| costs.rows.iter().find(|row| row.path == path).unwrap();
    let inline = of("inline");
    assert_eq!((inline.latency_ns, inline.bandwidth_mb_s), (Some(80.0), Some(90.0)));
    assert_eq!(inline.withheld, None);
    assert_eq!(of("auto").taken.as_deref(), Some("inline"));
    let text = shown(&report);
    assert!(text.contains("80.0 ns") && text.contains("Note: it was slow."), "{text}");
    assert!(!text.to_lowercase().contains("withheld"), "{text}");
    assert_eq!((report.verdict.exit, report.problems.len()), (0, 0));
}

#[test]
fn without_a_measurement_there_is_a_warning() {
    let (mut trials, facts) = well();
    trials.costs = Some(Err(Denial::Untried("the other process is gone".into())));
    let failed = report(&trials, &facts);
    assert_eq!((failed.verdict.exit, failed.costs.is_none()), (0, true));
    assert!(failed.problems[0].why.as_ref().unwrap().contains("gone"));
}

/// Two other programs, one for each processor, had half of the time.
#[test]
fn a_busy_machine_has_none() {
    let report = reported(brief(some_rows(), 1_200_000_000));
    let costs = report.costs.as_ref().unwrap();
    let why = costs.withheld.as_deref().unwrap();
    assert!(why.contains("busy") && why.contains("waited 48 %"), "{why}");
    assert_eq!((costs.class, costs.hop_ns), (None, None));
    for row in &costs.rows {
        assert_eq!((row.latency_ns, row.bandwidth_mb_s), (None, None));
        assert_eq!(row.withheld.as_deref(), Some(why));
    }
    let text = shown(&report);
    assert!(text.contains("Withheld: the machine was busy") && !text.contains("one way"), "{text}");
    assert_eq!((report.verdict.exit, report.verdict.works), (0, true));
    let problem = &report.problems[0];
    assert_eq!((problem.severity, problem.why.as_deref()), (Severity::Warning, Some(why)));
    assert!(!problem.remedies.is_empty());
}

/// Figures that were once printed: the processes could never run together.
#[test]
fn milliseconds_are_no_latency() {
    let rows = vec![
        row(What::Latency, Route::Eager, Class::Far, &[2.64e6, 2.5e6, 2.7e6], 9),
        row(What::Bandwidth, Route::Eager, Class::Far, &[0.003, 0.003, 0.002], 9),
    ];
    let mut found = brief(rows, 20_000_000);
    // The kernel does not say that other processes ran.
    found.conditions.stolen = None;
    found.conditions.sides.iter_mut().for_each(|side| *side = Load { waited_ns: None, ..*side });
    found.hop_ns = 1.3e6;
    let report = reported(found);
    let costs = report.costs.as_ref().unwrap();
    assert!(costs.withheld.as_ref().unwrap().contains("1.30 ms from core to core"), "{costs:?}");
    let text = shown(&report);
    assert!(!text.contains("0.00") && !text.contains("2.64"), "{text}");
}

#[test]
fn a_figure_whose_rounds_differ_is_withheld_alone() {
    let mut rows = some_rows();
    rows.push(row(What::Latency, Route::Eager, Class::Near, &[190.0, 210.0, 4.0e6], 9));
    rows.push(row(What::Bandwidth, Route::Eager, Class::Near, &[512.0, 500.0, 490.0], 9));
    rows.push(row(What::Latency, Route::Cma, Class::Near, &[900.0], 9));
    let report = reported(brief(rows, 0));
    let costs = report.costs.as_ref().unwrap();
    let of = |path: &str| costs.rows.iter().find(|row| row.path == path).unwrap();
    let eager = of("eager");
    assert_eq!((eager.latency_ns, eager.bandwidth_mb_s), (None, Some(500.0)));
    let why = eager.withheld.as_deref().unwrap();
    assert!(why.starts_with("latency: the machine was busy (of 3 rounds"), "{why}");
    let cma = of("cma").withheld.as_deref().unwrap();
    assert!(cma.contains("once only"), "{cma}");
    assert_eq!(of("inline").latency_ns, Some(80.0));
    let text = shown(&report);
    assert!(
        text.contains(" withheld") && text.contains("Withheld: 8 B, eager, latency:"),
        "{text}"
    );
    assert!(text.contains("500 MB/s"), "{text}");
    let json = serde_json::to_value(costs).unwrap();
    let row = json["rows"].as_array().unwrap().iter().find(|row| row["path"] == "eager").unwrap();
    assert!(row["latency_ns"].is_null() && row["withheld"].is_string(), "{row}");
    assert_eq!((report.verdict.exit, report.problems.len()), (0, 0));
}
