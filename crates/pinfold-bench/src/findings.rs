//! The findings, and the ledger that decides which thread has the last word.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{busy, class::Class, load::Conditions, machine::Machine, record::Collected};

/// All results so far, and at the end.
pub(crate) struct Findings {
    pub(crate) machine: Machine,
    pub(crate) collected: Collected,
    /// Cache-line hops, nanoseconds, one before each run.
    pub(crate) hops_ns: Vec<f64>,
    /// The load of other programs during these runs.
    pub(crate) conditions: Conditions,
    /// Sentences the reader must see.
    pub(crate) notes: Vec<String>,
    pub(crate) touched: bool,
    pub(crate) took: Duration,
}

impl Findings {
    /// The distance between the cores, in a sentence.
    pub(crate) fn distance(&self) -> String {
        let part = |class: Class| {
            let runs = self.collected.runs(class);
            let hop = match (class, self.hop_ns(class)) {
                (Class::Near | Class::Far, Some(hop)) => format!("{hop:.0} ns "),
                _ => String::new(),
            };
            (runs > 0).then(|| format!("{hop}{class} in {runs} runs"))
        };
        let parts: Vec<String> = Class::ALL.into_iter().filter_map(part).collect();
        if parts.is_empty() {
            return "How far apart the cores are cannot be told of what was measured.".into();
        }
        format!("From core to core a cache line takes: {}.", parts.join(", "))
    }

    /// The treatment of the payload, in a sentence.
    pub(crate) fn payload(&self) -> &'static str {
        if self.touched {
            "Every message was written before it was sent and read after it arrived (not timed)."
        } else {
            "Between messages the payload stayed as it was, unless a table says otherwise."
        }
    }

    /// The usual hop, nanoseconds.
    pub(crate) fn usual_hop_ns(&self) -> Option<f64> {
        let mut hops = self.hops_ns.clone();
        hops.sort_by(f64::total_cmp);
        hops.get(hops.len() / 2).copied()
    }

    /// A sentence for readers if other programs ran on the machine meanwhile.
    pub(crate) fn doubt(&self) -> Option<String> {
        let why = busy::conditions(&self.conditions, self.usual_hop_ns())?;
        Some(format!("{why}: figures tell of that, too; measure again when nothing else runs"))
    }

    /// The usual hop of a class, nanoseconds.
    pub(crate) fn hop_ns(&self, class: Class) -> Option<f64> {
        let of_class = |&hop: &f64| Class::of(hop, hop) == class;
        let mut hops: Vec<f64> = self.hops_ns.iter().copied().filter(of_class).collect();
        hops.sort_by(f64::total_cmp);
        hops.get(hops.len() / 2).copied()
    }
}

/// The findings while they are added to.
///
/// Two threads may want to end the run: the one that measures, when it is done or has failed, and
/// the watchdog, when the run no longer gets anywhere. The thread that takes the findings has the
/// last word.
#[derive(Clone)]
pub(crate) struct Ledger {
    start: Instant,
    findings: Arc<Mutex<Option<Findings>>>,
}

impl Ledger {
    /// Empty, of a run that began at `start`.
    pub(crate) fn new(start: Instant, touched: bool) -> Ledger {
        let findings = Findings {
            machine: Machine::look([None; 2]),
            collected: Collected::default(),
            hops_ns: Vec::new(),
            conditions: Conditions::default(),
            notes: Vec::new(),
            touched,
            took: Duration::ZERO,
        };
        Ledger { start, findings: Arc::new(Mutex::new(Some(findings))) }
    }

    /// Since the run began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Adds to the findings, unless they have been taken.
    pub(crate) fn add(&self, add: impl FnOnce(&mut Findings)) {
        if let Some(findings) = &mut *self.findings.lock().unwrap_or_else(PoisonError::into_inner) {
            add(findings);
        }
    }

    /// Takes the findings. `None` if the other thread has taken them, and will end the process.
    pub(crate) fn take(&self) -> Option<Findings> {
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        findings.took = self.start.elapsed();
        Some(findings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_is_said_where_there_is_one() {
        let findings = crate::testing::findings();
        assert!(findings.distance().contains("50 ns near in "), "{}", findings.distance());
        let findings = Findings { collected: Collected::default(), ..findings };
        assert!(findings.distance().contains("cannot be told"), "{}", findings.distance());
    }

    #[test]
    fn the_last_word_is_had_once() {
        let ledger = Ledger::new(Instant::now(), true);
        ledger.add(|findings| findings.notes.push("one".into()));
        let other = ledger.clone();
        let findings = other.take().unwrap();
        assert_eq!((findings.notes.len(), findings.touched), (1, true));
        ledger.add(|_| unreachable!("they are taken"));
        assert!(ledger.take().is_none());
    }
}
