//! Two results of the same experiments, and where they differ.

use std::path::Path;

use crate::{
    LabError,
    agreement::deviation,
    experiment::Depth,
    outcome::Outcome,
    store::{self, Record, Store},
    table::number,
};

/// The results at a path: of a file, or of all files of a folder, the quick ones if there are any.
///
/// # Errors
/// There are none, or one cannot be read.
pub fn read(path: &Path) -> Result<Vec<Record>, LabError> {
    if !path.is_dir() {
        return store::read(path).map(|one| vec![one]);
    }
    let store = Store::at(path);
    match store.all(Depth::Quick) {
        Err(LabError::Nothing { .. }) => store.all(Depth::Full),
        found => found,
    }
}

/// The lines that say where two sets of results differ: terms, verdicts, the model's values, and
/// this machine's that differ by more than `noise`, a part. None if they are alike.
pub fn differences(one: &[Record], two: &[Record], noise: f64) -> Vec<String> {
    let mut lines = Vec::new();
    for a in one {
        match two.iter().find(|b| b.id == a.id) {
            Some(b) => record(a, b, noise, &mut lines),
            None => lines.push(format!("{}: only the first has it", a.id)),
        }
    }
    for b in two.iter().filter(|b| one.iter().all(|a| a.id != b.id)) {
        lines.push(format!("{}: only the second has it", b.id));
    }
    lines
}

fn record(a: &Record, b: &Record, noise: f64, lines: &mut Vec<String>) {
    let mut terms = |what: &str, a: &dyn ToString, b: &dyn ToString, id: &str| {
        let (a, b) = (a.to_string(), b.to_string());
        if a != b {
            lines.push(format!("{id}: {what}: {a} / {b}"));
        }
    };
    terms("version", &a.version, &b.version, &a.id);
    terms("depth", &a.depth, &b.depth, &a.id);
    terms("seed", &a.seed, &b.seed, &a.id);
    terms("machine", &a.machine, &b.machine, &a.id);
    claims(&a.id, &a.outcome, &b.outcome, lines);
    values(&a.id, &a.outcome, &b.outcome, noise, lines);
}

fn claims(id: &str, a: &Outcome, b: &Outcome, lines: &mut Vec<String>) {
    for one in &a.claims {
        let Some(two) = b.claims.iter().find(|two| two.sentence == one.sentence) else {
            lines.push(format!("{id}: only the first judges: {}", one.sentence));
            continue;
        };
        let model = [one, two].map(|claim| claim.model.verdict.words());
        let here = [one, two].map(|claim| claim.here.verdict.words());
        for (place, [first, second]) in [("in the model", model), ("here", here)] {
            if first != second {
                lines.push(format!("{id}: {}: {place}: {first} / {second}", one.sentence));
            }
        }
    }
    for two in b.claims.iter().filter(|two| a.claims.iter().all(|c| c.sentence != two.sentence)) {
        lines.push(format!("{id}: only the second judges: {}", two.sentence));
    }
}

fn values(id: &str, a: &Outcome, b: &Outcome, noise: f64, lines: &mut Vec<String>) {
    for one in &a.values {
        let name = one.name();
        let Some(two) = b.values.iter().find(|two| two.name() == name) else {
            lines.push(format!("{id}: only the first has {name}"));
            continue;
        };
        // A model's values are the same or not; rounding is below this.
        for (column, x, y, most) in
            [("model", one.model, two.model, 1e-9), ("here", one.here, two.here, noise)]
        {
            let shown = |value: Option<f64>| value.map_or("nothing".into(), number);
            let line =
                || format!("{id}: {name}: {column}: {} / {} {}", shown(x), shown(y), one.unit);
            match (x, y) {
                (Some(first), Some(second)) => {
                    let part = deviation(second, first);
                    if part.abs() > most {
                        lines.push(format!("{} ({:+.1} %)", line(), part * 100.0));
                    }
                }
                (None, None) => {}
                _ => lines.push(line()),
            }
        }
    }
    for two in b.values.iter().filter(|two| a.values.iter().all(|v| v.name() != two.name())) {
        lines.push(format!("{id}: only the second has {}", two.name()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        outcome::{Claim, Finding, Value},
        store::Terms,
    };

    fn result(model: f64, here: f64, holds: bool) -> Record {
        let mut outcome = Outcome::new();
        outcome.values.push(Value::new("time", "a", "", "s").model(model).here(here));
        outcome.claims.push(Claim::modelled("it is so", Finding::of(holds, ""), "no means"));
        let terms = Terms { depth: Depth::Quick, seed: 1, here: true, machine: "m".into() };
        terms.record("pm-pin", 1.0, outcome)
    }

    #[test]
    fn differences_are_named() {
        let (a, b) = ([result(1.0, 5.0, true)], [result(1.0, 5.4, true)]);
        assert_eq!(differences(&a, &a, 0.1), [""; 0]);
        assert_eq!(differences(&a, &b, 0.1), [""; 0]);
        assert_eq!(differences(&a, &b, 0.05), ["pm-pin: time, a: here: 5.000 / 5.400 s (+8.0 %)"]);
        let found = differences(&a, &[result(2.0, 5.0, false)], 0.1);
        assert_eq!(
            found,
            [
                "pm-pin: it is so: in the model: holds / fails",
                "pm-pin: time, a: model: 1.000 / 2.000 s (+100.0 %)"
            ]
        );
        let mut other = result(1.0, 5.0, true);
        (other.seed, other.outcome.values[0].here) = (2, None);
        let found = differences(&a, &[other], 0.1);
        assert_eq!(found, ["pm-pin: seed: 1 / 2", "pm-pin: time, a: here: 5.000 / nothing s"]);
        assert_eq!(differences(&a, &[], 0.1), ["pm-pin: only the first has it"]);
        assert_eq!(differences(&[], &a, 0.1), ["pm-pin: only the second has it"]);
    }
}
