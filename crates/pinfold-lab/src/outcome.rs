//! The results of an experiment: values, claims, plots, notes.

use serde::{Deserialize, Serialize};

/// The results of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The table, a value a row.
    pub values: Vec<Value>,
    /// The claims, the paper's main one first.
    pub claims: Vec<Claim>,
    /// The plots.
    pub plots: Vec<Plot>,
    /// Paragraphs: how the model was made, which values are fitted, and why any differ.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Results without anything in them.
    pub fn new() -> Outcome {
        Outcome::default()
    }

    /// Adds a paragraph.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Returns whether a claim fails in the model.
    pub fn is_failed(&self) -> bool {
        self.claims.iter().any(|claim| claim.model.verdict == Verdict::Fails)
    }

    /// The first number that is none, if there is one: no result may have such.
    pub fn not_a_number(&self) -> Option<String> {
        let of = |value: &Value| {
            let stated = value.paper.as_ref().map(|stated| stated.value);
            let all = [stated, value.model, value.here];
            let bad = all.into_iter().flatten().any(|number| !number.is_finite());
            bad.then(|| value.name())
        };
        let drawn = self.plots.iter().flat_map(|plot| &plot.series);
        let is_bad = |at: &(f64, f64)| !(at.0.is_finite() && at.1.is_finite());
        let bad = |series: &&Series| series.points.iter().any(is_bad);
        let drawn = || drawn.clone().find(bad).map(|series| format!("plot of {}", series.name));
        self.values.iter().find_map(of).or_else(drawn)
    }
}

/// A value of the table: what the paper states, what the model says, what was measured here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// The quantity, such as "system time".
    pub quantity: String,
    /// The line of a plot or the column of a table that it belongs to, such as "SCDA".
    pub series: String,
    /// The place on the axis, with its unit, such as "136 B"; empty if there is no axis.
    pub at: String,
    /// The unit of all three numbers.
    pub unit: String,
    /// The paper's value.
    pub paper: Option<Stated>,
    /// The model's value.
    pub model: Option<f64>,
    /// This machine's value.
    pub here: Option<f64>,
    /// The aim of the model.
    pub aim: Aim,
    /// A sentence about this value: the reason why it differs, or is not there.
    pub note: Option<String>,
}

/// A value that a paper states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stated {
    /// The number.
    pub value: f64,
    /// The place where it stands, such as "Table 5.1".
    pub place: String,
}

/// The aim of a model's value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// It follows from parameters that were stated elsewhere, and may be compared with the paper.
    #[default]
    Predicted,
    /// A parameter was chosen so that it comes out as the paper has it: no reproduction.
    Fitted,
    /// The paper contradicts this value of its own; it is shown, not aimed at. The reason.
    Contradicted(String),
}

impl Value {
    /// A value without numbers.
    pub fn new(quantity: &str, series: &str, at: impl Into<String>, unit: &str) -> Value {
        Value {
            quantity: quantity.into(),
            series: series.into(),
            at: at.into(),
            unit: unit.into(),
            paper: None,
            model: None,
            here: None,
            aim: Aim::Predicted,
            note: None,
        }
    }

    /// The same with the paper's value, and the place where it stands.
    pub fn paper(mut self, value: f64, place: &str) -> Value {
        self.paper = Some(Stated { value, place: place.into() });
        self
    }

    /// The same with the model's value.
    pub fn model(mut self, value: f64) -> Value {
        self.model = Some(value);
        self
    }

    /// The same with this machine's value, if it was measured.
    pub fn here(mut self, value: impl Into<Option<f64>>) -> Value {
        self.here = value.into();
        self
    }

    /// The same, fitted: a parameter of the model was chosen for it.
    pub fn fitted(mut self) -> Value {
        self.aim = Aim::Fitted;
        self
    }

    /// The same, fitted if `fitted`.
    pub fn fitted_if(self, fitted: bool) -> Value {
        if fitted { self.fitted() } else { self }
    }

    /// The same, contradicted by another place of the paper, for this reason.
    pub fn contradicted(mut self, why: &str) -> Value {
        self.aim = Aim::Contradicted(why.into());
        self
    }

    /// The same with a sentence about it.
    pub fn note(mut self, text: impl Into<String>) -> Value {
        self.note = Some(text.into());
        self
    }

    /// Quantity, series and place: unique in a table.
    pub fn name(&self) -> String {
        let parts = [&self.quantity, &self.series, &self.at];
        let parts: Vec<&str> =
            parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        parts.join(", ")
    }
}

/// A claim, judged in the model and here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// A sentence, without its dot.
    pub sentence: String,
    /// The judgement in the model.
    pub model: Finding,
    /// The judgement on this machine.
    pub here: Finding,
}

/// A verdict, and the reason for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason in words, with the numbers.
    pub why: String,
}

/// A judgement on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The claim is true.
    Holds,
    /// The claim is not true.
    Fails,
    /// The claim is true by a parameter that was chosen for it: no reproduction.
    Fitted,
    /// Two places of the paper do not agree on it.
    PaperContradictsItself,
    /// Nothing was measured that could tell.
    NotMeasured,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Verdict; 5] = [
        Verdict::Holds,
        Verdict::Fails,
        Verdict::Fitted,
        Verdict::PaperContradictsItself,
        Verdict::NotMeasured,
    ];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Fails => "fails",
            Verdict::Fitted => "fitted",
            Verdict::PaperContradictsItself => "the paper contradicts itself",
            Verdict::NotMeasured => "not measured",
        }
    }
}

impl Finding {
    /// A finding with any verdict.
    pub fn new(verdict: Verdict, why: impl Into<String>) -> Finding {
        Finding { verdict, why: why.into() }
    }

    /// [`Verdict::Holds`] or [`Verdict::Fails`].
    pub fn of(holds: bool, why: impl Into<String>) -> Finding {
        Finding::new(if holds { Verdict::Holds } else { Verdict::Fails }, why)
    }

    /// [`Verdict::NotMeasured`], with the reason.
    pub fn not_measured(why: impl Into<String>) -> Finding {
        Finding::new(Verdict::NotMeasured, why)
    }
}

impl Claim {
    /// A claim that is judged in the model, and cannot be judged here for the reason given.
    pub fn modelled(sentence: impl Into<String>, model: Finding, not_here: &str) -> Claim {
        Claim { sentence: sentence.into(), model, here: Finding::not_measured(not_here) }
    }

    /// The same, judged here, too.
    pub fn and_here(mut self, here: Finding) -> Claim {
        self.here = here;
        self
    }
}

/// A plot in the paper's axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// The heading: the paper's figure.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines and points.
    pub series: Vec<Series>,
}

/// An axis of a plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// True if the axis is logarithmic. Numbers that are not positive are left out then.
    pub log: bool,
}

impl Axis {
    /// An axis with equal steps.
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.into(), log: false }
    }

    /// A logarithmic axis.
    pub fn log(label: &str) -> Axis {
        Axis { label: label.into(), log: true }
    }
}

/// The column that the points of a series are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Column {
    /// The paper: points.
    Paper,
    /// The model: a line.
    Model,
    /// This machine: a dashed line.
    Here,
}

impl Column {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Column::Paper => "paper",
            Column::Model => "model",
            Column::Here => "here",
        }
    }
}

/// Points of a plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The name; series of the same name have the same colour.
    pub name: String,
    /// The column.
    pub column: Column,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
}

impl Plot {
    /// A plot without series.
    pub fn new(title: &str, x: Axis, y: Axis) -> Plot {
        Plot { title: title.into(), x, y, series: Vec::new() }
    }

    /// Adds a series, unless it has no points.
    pub fn add(&mut self, name: &str, column: Column, points: Vec<(f64, f64)>) {
        if !points.is_empty() {
            self.series.push(Series { name: name.into(), column, points });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_claim_is_one_that_fails_in_the_model() {
        let claim = |model, here| Claim {
            sentence: String::new(),
            model: Finding::new(model, ""),
            here: Finding::new(here, ""),
        };
        let mut outcome = Outcome::new();
        assert!(!outcome.is_failed());
        for verdict in Verdict::ALL {
            outcome.claims = vec![claim(Verdict::Holds, Verdict::Fails), claim(verdict, verdict)];
            assert_eq!(outcome.is_failed(), verdict == Verdict::Fails, "{verdict:?}");
        }
    }

    #[test]
    fn numbers_that_are_none_are_found() {
        let mut outcome = Outcome::new();
        outcome.values.push(Value::new("time", "a", "", "s").paper(1.0, "Table 1").model(2.0));
        assert_eq!(outcome.not_a_number(), None);
        outcome.values.push(Value::new("time", "b", "4 B", "s").here(f64::NAN));
        assert_eq!(outcome.not_a_number().as_deref(), Some("time, b, 4 B"));
        outcome.values.pop();
        let mut plot = Plot::new("", Axis::linear(""), Axis::linear(""));
        plot.add("a", Column::Model, vec![(1.0, f64::INFINITY)]);
        outcome.plots.push(plot);
        assert_eq!(outcome.not_a_number().as_deref(), Some("plot of a"));
    }
}
