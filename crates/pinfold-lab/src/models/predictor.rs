//! Predictors of whether the destination of a copy is used again, by the site that copies.

use std::collections::HashMap;

/// A predictor.
pub trait Predictor {
    /// The prediction for the next copy of a site.
    fn predict(&self, site: u32) -> bool;

    /// The outcome of it.
    fn learn(&mut self, site: u32, is_used: bool);
}

/// Always the same.
#[derive(Clone, Copy, Debug)]
pub struct Fixed(pub bool);

impl Predictor for Fixed {
    fn predict(&self, _site: u32) -> bool {
        self.0
    }

    fn learn(&mut self, _site: u32, _is_used: bool) {}
}

/// As the site's last time.
#[derive(Clone, Debug, Default)]
pub struct LastTime(HashMap<u32, bool>);

impl Predictor for LastTime {
    fn predict(&self, site: u32) -> bool {
        self.0.get(&site).copied().unwrap_or(false)
    }

    fn learn(&mut self, site: u32, is_used: bool) {
        self.0.insert(site, is_used);
    }
}

/// A counter of two bits, of which the upper one predicts (J. E. Smith, *A Study of Branch
/// Prediction Strategies*, ISCA 1981).
#[derive(Clone, Copy, Debug, Default)]
struct Counter(u8);

impl Counter {
    fn predicts(self) -> bool {
        self.0 > 1
    }

    fn count(&mut self, is_used: bool) {
        self.0 = if is_used { (self.0 + 1).min(3) } else { self.0.saturating_sub(1) };
    }
}

/// A counter of two bits for each site.
#[derive(Clone, Debug, Default)]
pub struct TwoBit(HashMap<u32, Counter>);

impl Predictor for TwoBit {
    fn predict(&self, site: u32) -> bool {
        self.0.get(&site).copied().unwrap_or_default().predicts()
    }

    fn learn(&mut self, site: u32, is_used: bool) {
        self.0.entry(site).or_default().count(is_used);
    }
}

/// Outcomes of a site that its history has.
const HISTORY: u32 = 4;

/// For each site its last four outcomes, and a counter of two bits for each pattern of them (Yeh,
/// Patt, *Two-Level Adaptive Training Branch Prediction*, MICRO 1991, with a table for each).
#[derive(Clone, Debug, Default)]
pub struct History(HashMap<u32, (u8, [Counter; 1 << HISTORY])>);

impl Predictor for History {
    fn predict(&self, site: u32) -> bool {
        self.0.get(&site).is_some_and(|(last, all)| all[usize::from(*last)].predicts())
    }

    fn learn(&mut self, site: u32, is_used: bool) {
        let (last, all) = self.0.entry(site).or_default();
        all[usize::from(*last)].count(is_used);
        *last = (*last << 1 | u8::from(is_used)) & ((1 << HISTORY) - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The predictions for outcomes of site 7, beside another site that has the opposite.
    fn told(mut predictor: impl Predictor, outcomes: &[u8]) -> Vec<u8> {
        outcomes
            .iter()
            .map(|&outcome| {
                let said = predictor.predict(7);
                predictor.learn(7, outcome == 1);
                predictor.learn(8, outcome == 0);
                u8::from(said)
            })
            .collect()
    }

    #[test]
    fn predictors_by_hand() {
        let outcomes = [1, 1, 1, 0, 1, 1];
        assert_eq!(told(Fixed(true), &outcomes), [1; 6]);
        assert_eq!(told(LastTime::default(), &outcomes), [0, 1, 1, 1, 0, 1]);
        // 0, 1, 2, 3, 2, 3: one that is otherwise does not turn it.
        assert_eq!(told(TwoBit::default(), &outcomes), [0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn a_history_learns_what_alternates() {
        let outcomes: Vec<u8> = (0..40).map(|at| at % 2).collect();
        let said = told(History::default(), &outcomes);
        assert_eq!(said[20..], outcomes[20..]);
        let last = told(LastTime::default(), &outcomes);
        assert!(last[1..].iter().zip(&outcomes[1..]).all(|(said, is)| said != is));
        // Two of three: the counter says always, the history knows when.
        let outcomes: Vec<u8> = (0..60).map(|at| u8::from(at % 3 != 0)).collect();
        assert_eq!(told(History::default(), &outcomes)[30..], outcomes[30..]);
        assert_eq!(told(TwoBit::default(), &outcomes)[30..], [1; 30]);
    }
}
