//! Golden tables: for each experiment a committed file with the model's values, which a change of a
//! model has to renew, so that nobody changes one unawares.

use std::{fs, io, path::PathBuf};

use crate::{outcome::Outcome, table};

/// The variable in the environment that has tables written instead of compared: `write`.
pub const VARIABLE: &str = "PINFOLD_LAB_GOLDEN";

/// The file of an experiment's golden table.
pub fn file(id: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{id}.csv"))
}

/// The golden table of results: the model's column, six digits of each number, so that it is the
/// same whatever the mathematical library rounds.
pub fn golden(outcome: &Outcome) -> String {
    let mut text = String::from("quantity,series,at,unit,model\n");
    for value in &outcome.values {
        let Some(model) = value.model else { continue };
        let fields = [&value.quantity, &value.series, &value.at, &value.unit];
        let mut fields: Vec<String> = fields.into_iter().cloned().collect();
        // 0 has one sign here.
        fields.push(format!("{:.5e}", if model == 0.0 { 0.0 } else { model }));
        text += &table::csv_line(&fields);
    }
    text
}

/// Compares results with the experiment's golden table, or writes that if [`VARIABLE`] asks for it.
///
/// # Errors
/// The first line that differs, and how to renew the table.
pub fn check(id: &str, outcome: &Outcome) -> Result<(), String> {
    let (path, now) = (file(id), golden(outcome));
    if std::env::var(VARIABLE).is_ok_and(|value| value == "write") {
        return fs::write(&path, now).map_err(|why| format!("{}: {why}", path.display()));
    }
    let then = match fs::read_to_string(&path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|why| format!("{}: {why}", path.display()))?,
    };
    difference(&then, &now).map_or(Ok(()), |found| {
        Err(format!(
            "{id}: the model's values are not those of {}: {found}. If the change is meant: \
             {VARIABLE}=write cargo test -p pinfold-lab --test golden, then read the difference",
            path.display()
        ))
    })
}

/// The first line in which two tables differ.
fn difference(then: &str, now: &str) -> Option<String> {
    let lines = then.lines().count().max(now.lines().count());
    let line = |text: &str, at: usize| text.lines().nth(at).unwrap_or("(nothing)").to_owned();
    let at = (0..lines).find(|&at| line(then, at) != line(now, at))?;
    Some(format!("line {}: {} became {}", at + 1, line(then, at), line(now, at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Value;

    #[test]
    fn a_table_has_the_models_column_alone() {
        let value = || Value::new("time", "a", "4 B", "s");
        let values = vec![value().model(1.0 / 3.0).here(7.0), value().paper(3.0, "Table 1")];
        let text = golden(&Outcome { values, ..Outcome::new() });
        assert_eq!(text, "quantity,series,at,unit,model\ntime,a,4 B,s,3.33333e-1\n");
    }

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nb\n", "a\nc\n").unwrap(), "line 2: b became c");
        assert_eq!(difference("a\n", "a\nc\n").unwrap(), "line 2: (nothing) became c");
    }
}
