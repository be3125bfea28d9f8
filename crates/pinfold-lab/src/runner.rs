//! Runs experiments that have no result yet, and keeps the results.

use std::time::Instant;

use crate::{
    LabError,
    experiment::{Experiment, Run},
    store::{Record, Store, Terms},
};

/// The state of a run, as a progress bar shows it.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The part of all experiments that is done, 0 to 1.
    pub part: f64,
    /// The experiment that runs.
    pub id: &'a str,
    /// The step of it that runs.
    pub step: &'a str,
}

/// A result, and whether it was there already.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The result.
    pub record: Record,
    /// True if it was kept from an earlier run.
    pub was_there: bool,
}

/// Runs the experiments one after the other, and keeps each result as soon as it is there. One
/// that the store has already under the same terms is not run, unless `again`.
///
/// # Errors
/// An experiment failed, or the store. The results before it are kept.
pub fn run(
    experiments: &[&'static Experiment],
    terms: &Terms,
    store: &Store,
    again: bool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Ran>, LabError> {
    let mut all = Vec::with_capacity(experiments.len());
    for (at, one) in experiments.iter().enumerate() {
        let mut told = |part: f64, step: &str| {
            let part = (at as f64 + part) / experiments.len() as f64;
            progress(Progress { part, id: one.id, step });
        };
        told(0.0, "");
        // A file that cannot be understood is an error only where nothing new takes its place.
        let kept = if again { None } else { store.get(one.id, terms.depth)? };
        if let Some(record) = kept.filter(|record| terms.has(record)) {
            all.push(Ran { record, was_there: true });
            continue;
        }
        let record = run_one(one, terms, &mut told)?;
        store.put(&record)?;
        all.push(Ran { record, was_there: false });
    }
    Ok(all)
}

/// Runs one experiment, and keeps nothing.
///
/// # Errors
/// It failed.
pub fn run_one(
    one: &Experiment,
    terms: &Terms,
    progress: &mut dyn FnMut(f64, &str),
) -> Result<Record, LabError> {
    let start = Instant::now();
    let outcome = (one.run)(&mut Run::new(terms.depth, terms.seed, terms.here, progress))?;
    if let Some(name) = outcome.not_a_number() {
        let why = format!("{name}: the value is no number; the model divides by nothing there");
        return Err(LabError::Failed { id: one.id, why });
    }
    Ok(terms.record(one.id, start.elapsed().as_secs_f64(), outcome))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::{
        experiment::{Depth, Paper},
        outcome::{Outcome, Value},
    };

    static RUNS: AtomicU32 = AtomicU32::new(0);

    fn counted(run: &mut Run<'_>) -> Result<Outcome, LabError> {
        run.progress(0.5, "half");
        RUNS.fetch_add(1, Ordering::Relaxed);
        let mut outcome = Outcome::new();
        outcome.values.push(Value::new("seed", "", "", "").model(run.seed() as f64));
        Ok(outcome)
    }

    fn broken(_run: &mut Run<'_>) -> Result<Outcome, LabError> {
        let mut outcome = Outcome::new();
        outcome.values.push(Value::new("ratio", "a", "", "").model(f64::INFINITY));
        Ok(outcome)
    }

    const fn one(
        id: &'static str,
        run: fn(&mut Run<'_>) -> Result<Outcome, LabError>,
    ) -> Experiment {
        Experiment { id, paper: Paper::Ape, title: "T", what: "W", claim: "C", run }
    }

    static COUNTED: Experiment = one("ape-counted", counted);
    static BROKEN: Experiment = one("ape-broken", broken);

    #[test]
    fn what_is_there_is_not_run_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let terms = |seed| Terms { depth: Depth::Quick, seed, here: false, machine: "m".into() };
        let mut steps = Vec::new();
        let mut go = |all: &[&'static Experiment], seed, again| {
            let mut tell =
                |p: Progress<'_>| steps.push((p.part, p.id.to_owned(), p.step.to_owned()));
            run(all, &terms(seed), &store, again, &mut tell)
        };
        assert!(!go(&[&COUNTED], 1, false).unwrap()[0].was_there);
        assert!(go(&[&COUNTED], 1, false).unwrap()[0].was_there);
        assert!(!go(&[&COUNTED], 1, true).unwrap()[0].was_there);
        assert!(!go(&[&COUNTED], 2, false).unwrap()[0].was_there);
        assert_eq!(RUNS.load(Ordering::Relaxed), 3);
        // One that fails takes nothing from the one before.
        let error = go(&[&COUNTED, &BROKEN], 3, false).unwrap_err().to_string();
        assert!(error.contains("ape-broken: ratio, a: the value is no number"), "{error}");
        assert!(go(&[&COUNTED], 3, false).unwrap()[0].was_there);
        assert_eq!(RUNS.load(Ordering::Relaxed), 4);
        assert!(steps.contains(&(0.5, "ape-counted".into(), "half".into())), "{steps:?}");
        assert!(steps.contains(&(0.5, "ape-broken".into(), String::new())), "{steps:?}");
    }
}
