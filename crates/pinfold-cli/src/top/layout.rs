//! The columns of the table, in one line or, if there is no room for that, in two.
//!
//! ```text
//!      PID  USER      ENDPOINT, PEERS       SENT   BYTES    RECV   BYTES QUEUED    HELD  MEMORY  STATE
//!
//!      PID  USER      ENDPOINT, PEERS       SENT   BYTES    RECV   BYTES
//!                QUEUED    HELD  MEMORY  STATE
//! ```
//!
//! The text of the state takes as many lines as it needs.

use crate::fold::{Width, fold, hanging};

/// The indent of an endpoint's own lines, characters.
const INDENT: usize = 14;
/// A process and a user, with the blanks behind.
const OWNER: usize = 20;
/// The longest name of an endpoint, and the shortest that it is cut to.
const NAME_MAX: usize = 26;
const NAME_MIN: usize = 8;
/// Columns that numbers take, each with a blank before: those of traffic, and the rest.
const TRAFFIC: [usize; 4] = [7, 7, 7, 7];
const REST: [usize; 3] = [6, 7, 7];
/// With less room left for the state, a row takes two lines.
const STATE_MIN: usize = 24;

pub(super) struct Layout {
    width: Width,
    name: usize,
    one_line: bool,
}

impl Layout {
    pub(super) fn of(width: Width) -> Layout {
        let traffic = OWNER + room(&TRAFFIC);
        let all = traffic + NAME_MAX + room(&REST) + 2 + STATE_MIN;
        let one_line = width.is_none_or(|width| width >= all);
        let name = match width {
            Some(width) if !one_line => width.saturating_sub(traffic).clamp(NAME_MIN, NAME_MAX),
            _ => NAME_MAX,
        };
        Layout { width, name, one_line }
    }

    /// The beginning of an endpoint's row.
    pub(super) fn own(&self, pid: &str, user: &str, name: &str) -> String {
        format!("{pid:>8}  {:8}  {:2$}", cut(user, 8), cut(name, self.name), self.name)
    }

    /// The beginning of a peer's row.
    pub(super) fn others(&self, name: &str) -> String {
        let width = OWNER - INDENT + self.name;
        format!("{:INDENT$}{:width$}", "", cut(name, width))
    }

    /// The lines of a row.
    pub(super) fn row(&self, begin: &str, cells: &[String; 7], state: &str) -> Vec<String> {
        let (traffic, rest) = cells.split_at(TRAFFIC.len());
        let first = numbers(begin.to_owned(), traffic, &TRAFFIC);
        if self.one_line {
            return hanging(&(numbers(first, rest, &REST) + "  "), state, self.width);
        }
        let second = numbers(" ".repeat(INDENT), rest, &REST);
        let mut lines = vec![first];
        lines.extend(hanging(&(second + "  "), state, self.width));
        lines
    }

    /// The lines of the text below a row.
    pub(super) fn below(&self, text: &str) -> Vec<String> {
        let (before, hang) = (INDENT + 2, INDENT + 4);
        let lines = fold(text, hang, self.width).into_iter().enumerate();
        let indent = |at| if at == 0 { before } else { hang };
        lines.map(|(at, line)| format!("{:1$}{line}", "", indent(at))).collect()
    }
}

fn room(widths: &[usize]) -> usize {
    widths.iter().map(|width| width + 1).sum()
}

fn numbers(line: String, cells: &[String], widths: &[usize]) -> String {
    cells.iter().zip(widths).fold(line, |line, (cell, width)| {
        // A blank at least between, also with wide numbers.
        line + &format!(" {cell:>width$}")
    })
}

/// The first characters of a text.
pub(super) fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_and_keep_all_that_is_said() {
        let cells = ["1.01 k", "28.0 KB", "501", "501 B", "12", "5.64 KB", "131 KB"];
        let cells = cells.map(str::to_owned);
        let state = "waits on its descriptor, 2 posted, 14 stored, 3 copying, arenas 3.15 MB";
        for (width, lines, name) in [(60, 5, 8), (80, 3, 26), (200, 1, 26)] {
            let layout = Layout::of(Some(width));
            let own = layout.own("4194304", "somebody", "an endpoint with a long name");
            assert_eq!(own.chars().count(), OWNER + name, "{width}");
            assert_eq!(layout.others("another one with a long name").chars().count(), OWNER + name);
            let row = layout.row(&own, &cells, state);
            assert_eq!(row.len(), lines, "{width}: {row:#?}");
            assert!(row.iter().all(|line| line.chars().count() <= width), "{width}: {row:#?}");
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let (said, all) = (words(&row.join(" ")), words(&(cells.join(" ") + " " + state)));
            assert!(said.ends_with(&all), "{width}: {row:#?}");
            let below = layout.below(state);
            assert!(below.iter().all(|line| line.chars().count() <= width), "{width}: {below:#?}");
            assert_eq!(words(&below.join(" ")), words(state));
            // Titles stand above their numbers.
            let heads = ["SENT", "BYTES", "RECV", "BYTES", "QUEUED", "HELD", "MEMORY"];
            let titles = layout.row(
                &layout.own("PID", "USER", "ENDPOINT"),
                &heads.map(str::to_owned),
                "STATE",
            );
            for (head, cell) in [("SENT", "1.01 k"), ("QUEUED", " 12"), ("MEMORY", "131 KB")] {
                let end = |lines: &[String], text: &str| {
                    lines
                        .iter()
                        .enumerate()
                        .find_map(|(at, line)| Some((at, line.find(text)? + text.len())))
                };
                // Bytes before it are characters, but for the sign that a name was cut.
                let off = |(at, end): (usize, usize)| (at, if at == 0 { end - 2 } else { end });
                assert_eq!(end(&titles, head), end(&row, cell).map(off), "{width}: {titles:#?}");
            }
        }
        assert_eq!(Layout::of(None).row("", &cells, state).len(), 1);
    }

    #[test]
    fn texts_are_cut_where_characters_end() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
        assert_eq!(cut("", 0), "");
    }
}
