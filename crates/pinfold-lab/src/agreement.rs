//! The one place that says whether a model's value agrees with the paper's.

use crate::outcome::{Aim, Outcome, Value};

/// The part of the paper's value by which a model's may differ and still agree with it.
pub const WITHIN: f64 = 0.15;

/// The judgement on a value of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Agreement {
    /// It was predicted, and is within [`WITHIN`] of the paper's. By how much it differs, a part of
    /// the paper's.
    Agrees(f64),
    /// It was predicted, and is farther away.
    Differs(f64),
    /// A parameter was chosen for it.
    Fitted,
    /// The paper contradicts its value.
    Contradicted,
    /// The paper states none.
    NotStated,
    /// The model has none.
    NotModelled,
}

/// Judges a value.
pub fn of(value: &Value) -> Agreement {
    let Some(stated) = &value.paper else { return Agreement::NotStated };
    let Some(model) = value.model else { return Agreement::NotModelled };
    match value.aim {
        Aim::Fitted => Agreement::Fitted,
        Aim::Contradicted(_) => Agreement::Contradicted,
        Aim::Predicted => {
            let part = deviation(model, stated.value);
            // A value exactly at the bound agrees, whatever binary fractions make of it.
            if part.abs() <= WITHIN + 1e-9 {
                Agreement::Agrees(part)
            } else {
                Agreement::Differs(part)
            }
        }
    }
}

/// By how much a value is above a stated one (below, if negative), as a part of the stated one. A
/// stated 0 differs wholly from everything but 0.
pub fn deviation(value: f64, stated: f64) -> f64 {
    match stated {
        0.0 if value == 0.0 => 0.0,
        0.0 => value.signum(),
        _ => (value - stated) / stated.abs(),
    }
}

impl Agreement {
    /// In words, short enough for a column.
    pub fn words(self) -> String {
        match self {
            Agreement::Agrees(part) => format!("{:+.1} %", part * 100.0),
            Agreement::Differs(part) => format!("{:+.1} % !", part * 100.0),
            Agreement::Fitted => "fitted".into(),
            Agreement::Contradicted => "contradicted".into(),
            Agreement::NotStated => String::new(),
            Agreement::NotModelled => "not modelled".into(),
        }
    }
}

/// How many values of an experiment came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Predicted, and within [`WITHIN`].
    pub agree: usize,
    /// Predicted, and farther away.
    pub differ: usize,
    /// Fitted.
    pub fitted: usize,
    /// Contradicted by the paper.
    pub contradicted: usize,
    /// Stated, and not modelled.
    pub not_modelled: usize,
    /// The largest deviation of a predicted value, a part.
    pub worst: f64,
}

impl Score {
    /// Adds up the values of an experiment.
    pub fn of(outcome: &Outcome) -> Score {
        let mut score = Score::default();
        for value in &outcome.values {
            match of(value) {
                Agreement::Agrees(part) => score.predicted(part, true),
                Agreement::Differs(part) => score.predicted(part, false),
                Agreement::Fitted => score.fitted += 1,
                Agreement::Contradicted => score.contradicted += 1,
                Agreement::NotModelled => score.not_modelled += 1,
                Agreement::NotStated => {}
            }
        }
        score
    }

    fn predicted(&mut self, part: f64, agrees: bool) {
        *(if agrees { &mut self.agree } else { &mut self.differ }) += 1;
        self.worst = self.worst.max(part.abs());
    }

    /// Values that were predicted.
    pub fn predictions(&self) -> usize {
        self.agree + self.differ
    }

    /// A sentence, without its dot.
    pub fn words(&self) -> String {
        let mut parts = Vec::new();
        let all = self.predictions();
        if all > 0 {
            let (agree, within, worst) = (self.agree, WITHIN * 100.0, self.worst * 100.0);
            parts.push(format!(
                "{agree} of {all} predicted values within {within:.0} % of the paper \
                 (largest deviation {worst:.1} %)"
            ));
        }
        for (count, words) in [
            (self.fitted, "fitted"),
            (self.contradicted, "contradicted by the paper itself"),
            (self.not_modelled, "stated and not modelled"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {words}"));
            }
        }
        if parts.is_empty() { "the paper states no value".into() } else { parts.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value() -> Value {
        Value::new("time", "", "", "s")
    }

    #[test]
    fn the_bound_is_fifteen_parts_of_a_hundred() {
        let at = |model| of(&value().paper(10.0, "Table 1").model(model));
        assert!(matches!(at(11.5), Agreement::Agrees(_)));
        assert!(matches!(at(8.5), Agreement::Agrees(_)));
        assert!(matches!(at(11.6), Agreement::Differs(part) if (part - 0.16).abs() < 1e-9));
        assert!(matches!(at(8.4), Agreement::Differs(_)));
        assert_eq!(deviation(-1.0, -2.0), 0.5);
        assert_eq!((deviation(0.0, 0.0), deviation(3.0, 0.0)), (0.0, 1.0));
    }

    #[test]
    fn only_predictions_count() {
        let of = |values: Vec<Value>| Score::of(&Outcome { values, ..Outcome::new() });
        let stated = || value().paper(10.0, "Table 1");
        let score = of(vec![
            stated().model(10.5),
            stated().model(13.0),
            stated().model(10.0).fitted(),
            stated().model(10.0).contradicted("the text says 20"),
            stated(),
            value().model(3.0),
        ]);
        assert_eq!(score.predictions(), 2);
        assert_eq!((score.agree, score.differ, score.fitted), (1, 1, 1));
        assert_eq!((score.contradicted, score.not_modelled), (1, 1));
        assert!((score.worst - 0.3).abs() < 1e-9);
        assert!(score.words().starts_with("1 of 2 predicted values within 15 %"), "{score:?}");
        assert_eq!(of(vec![value().model(1.0)]).words(), "the paper states no value");
    }
}
