//! Values as a table: text, CSV, JSON.

use crate::{
    agreement,
    outcome::{Outcome, Value},
    store::Record,
};

const HEAD: [&str; 8] =
    ["quantity", "series", "at", "unit", "paper", "model", "here", "model against paper"];

/// A number as tables show it: four digits that mean something, or all before the point.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e7).contains(&size) {
        return format!("{value:.3e}");
    }
    let digits = match size {
        1000.0.. => 0,
        100.0.. => 1,
        10.0.. => 2,
        1.0.. => 3,
        0.1.. => 4,
        _ => 5,
    };
    let text = format!("{value:.digits$}");
    if size == 0.0 { "0".into() } else { text }
}

/// The fields of a row, as text.
pub fn fields(value: &Value) -> [String; 8] {
    let shown = |value: Option<f64>| value.map_or(String::new(), number);
    [
        value.quantity.clone(),
        value.series.clone(),
        value.at.clone(),
        value.unit.clone(),
        shown(value.paper.as_ref().map(|stated| stated.value)),
        shown(value.model),
        shown(value.here),
        agreement::of(value).words(),
    ]
}

/// The columns' names, and the rows. A column without any text is left out, as is the unit.
pub fn columns(outcome: &Outcome) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let rows: Vec<[String; 8]> = outcome.values.iter().map(fields).collect();
    let is_shown = |at: &usize| rows.iter().any(|row| !row[*at].is_empty());
    let shown: Vec<usize> = (0..HEAD.len()).filter(is_shown).collect();
    let head = shown.iter().map(|&at| HEAD[at]).collect();
    let pick = |row: &[String; 8]| shown.iter().map(|&at| row[at].clone()).collect();
    (head, rows.iter().map(pick).collect())
}

/// Returns whether a column holds numbers, which stand on the right.
pub fn is_number(column: &str) -> bool {
    matches!(column, "at" | "paper" | "model" | "here" | "model against paper")
}

/// The table as text; an empty one has no lines.
pub fn text(outcome: &Outcome) -> String {
    let (head, rows) = columns(outcome);
    if rows.is_empty() {
        return String::new();
    }
    let width_of = |at: usize| {
        let widths = rows.iter().map(|row| row[at].chars().count());
        widths.chain([head[at].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width_of).collect();
    let line = |cells: &[&str]| {
        let cell = |(at, text): (usize, &&str)| match is_number(head[at]) {
            true => format!("{text:>width$}", width = widths[at]),
            false => format!("{text:<width$}", width = widths[at]),
        };
        let cells: Vec<String> = cells.iter().enumerate().map(cell).collect();
        format!("  {}\n", cells.join("  ").trim_end())
    };
    let mut text = line(&head);
    for row in &rows {
        text += &line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

/// The table as CSV, numbers whole.
pub fn csv(outcome: &Outcome) -> String {
    let mut text = String::from("quantity,series,at,unit,paper,place,model,here,agreement,note\n");
    for value in &outcome.values {
        let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let stated = value.paper.as_ref();
        let fields = [
            value.quantity.clone(),
            value.series.clone(),
            value.at.clone(),
            value.unit.clone(),
            number(stated.map(|stated| stated.value)),
            stated.map_or(String::new(), |stated| stated.place.clone()),
            number(value.model),
            number(value.here),
            agreement::of(value).words(),
            value.note.clone().unwrap_or_default(),
        ];
        text += &csv_line(&fields);
    }
    text
}

/// A line of CSV (RFC 4180, section 2; it ends as lines of Unix do).
pub fn csv_line(fields: &[String]) -> String {
    let quoted = |field: &String| match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.clone(),
    };
    fields.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n"
}

/// A result as JSON on one line.
///
/// # Errors
/// A number in it is none.
pub fn json(record: &Record) -> serde_json::Result<String> {
    serde_json::to_string(record).map(|text| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        let shown = [0.0, 8.79, 24.63, 176.9, 6144.0, 0.53, 0.0123, 1.5e9, 2e-6, -3.25];
        let text = shown.map(number);
        assert_eq!(
            text,
            [
                "0", "8.790", "24.63", "176.9", "6144", "0.5300", "0.01230", "1.500e9", "2.000e-6",
                "-3.250"
            ]
        );
    }

    #[test]
    fn columns_without_text_are_left_out() {
        let value = |series: &str| Value::new("time", series, "", "s").model(12.0);
        let outcome = Outcome { values: vec![value("a"), value("long")], ..Outcome::new() };
        assert_eq!(
            text(&outcome),
            "  quantity  series  unit  model\n  time      a       s     12.00\n  \
             time      long    s     12.00\n"
        );
        assert_eq!(text(&Outcome::new()), "");
    }

    #[test]
    fn csv_has_whole_numbers_and_quotes() {
        let value =
            Value::new("time, all", "a", "4 B", "s").paper(0.125, "Table \"1\"").model(1.0 / 3.0);
        let text = csv(&Outcome { values: vec![value], ..Outcome::new() });
        let line = text.lines().nth(1).unwrap();
        assert!(
            line.starts_with("\"time, all\",a,4 B,s,0.125,\"Table \"\"1\"\"\",0.3333333333333333,")
        );
    }
}
