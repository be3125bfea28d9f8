//! The rows in which Pinfold is behind its alternatives: the worst first. No I/O.

use super::compare::Row;

/// Rows that are listed, at most.
pub(crate) const LISTED_MAX: usize = 10;

/// The rows in which Pinfold is behind, and how many rows there are to be behind in.
pub(crate) struct Behind<'a> {
    /// The worst of them, the worst first, with how many times better Pinfold is: less than one.
    pub(crate) worst: Vec<(f64, &'a Row)>,
    /// The number of rows in which it is behind.
    pub(crate) count: usize,
    /// The number of rows that have something to set Pinfold against.
    pub(crate) of: usize,
}

/// Finds them among all rows.
pub(crate) fn behind(rows: &[Row]) -> Behind<'_> {
    let against = rows.iter().filter_map(|row| Some((row.against_best()?, row)));
    let mut all: Vec<(f64, &Row)> = against.collect();
    let of = all.len();
    all.retain(|(ratio, _)| *ratio < 1.0);
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count = all.len();
    all.truncate(LISTED_MAX);
    Behind { worst: all, count, of }
}

impl Behind<'_> {
    /// The number of them, in words.
    pub(crate) fn summary(&self) -> String {
        match (self.count, self.of) {
            (_, 0) => "nothing was set against it".into(),
            (0, of) => format!("nowhere, in {of} rows"),
            (count, of) if count > self.worst.len() => {
                format!("in {count} of {of} rows; the worst {} of them first", self.worst.len())
            }
            (count, of) => format!("in {count} of {of} rows; the worst first"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{compare::rows, testing};

    fn found() -> Vec<Row> {
        rows(&testing::findings().collected.records(), |_, _| None)
    }

    /// Rows as if Pinfold took so many times as long.
    fn slower(row: &Row, times: f64) -> Row {
        let mut row = row.clone();
        let pinfold = row.pinfold.as_mut().unwrap();
        let better = pinfold.unit.more_is_better();
        pinfold.mean *= if better { 1.0 / times } else { times };
        row
    }

    #[test]
    fn the_worst_come_first() {
        let rows = found();
        let behind = behind(&rows);
        assert!(behind.count > 1 && behind.count < behind.of);
        assert!(behind.worst.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        assert!(behind.worst.iter().all(|(ratio, _)| *ratio < 1.0));
        assert!(behind.summary().contains(&format!("in {} of {} rows", behind.count, behind.of)));
    }

    #[test]
    fn nowhere_is_said() {
        let rows: Vec<Row> =
            found().iter().filter(|row| row.against_best() >= Some(1.0)).cloned().collect();
        let behind = super::behind(&rows);
        assert!(behind.worst.is_empty());
        assert_eq!(behind.summary(), format!("nowhere, in {} rows", rows.len()));
        assert_eq!(super::behind(&[]).summary(), "nothing was set against it");
    }

    #[test]
    fn no_more_are_listed_than_one_reads() {
        let one = found().into_iter().find(|row| row.against_best().is_some()).unwrap();
        let rows: Vec<Row> = (1..=30).map(|times| slower(&one, 1e3 * f64::from(times))).collect();
        let behind = behind(&rows);
        assert_eq!((behind.worst.len(), behind.count, behind.of), (LISTED_MAX, 30, 30));
        assert!(behind.worst[0].0 < behind.worst[9].0);
        assert!(behind.summary().starts_with("in 30 of 30 rows; the worst 10"));
    }
}
