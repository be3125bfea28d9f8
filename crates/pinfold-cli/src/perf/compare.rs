//! Which records are set against which: those of one measure, size and class, and no others.

use super::{
    class::Class,
    record::Record,
    terms::{Cell, Id, Kind, Route},
};

/// One row of a summary.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) cell: Cell,
    pub(crate) class: Class,
    pub(crate) memcpy: Option<Record>,
    /// The better of the line and the ring.
    pub(crate) floor: Option<Record>,
    /// The best of what one would use instead.
    pub(crate) best: Option<Record>,
    /// Pinfold as it is used: choosing by itself; or the best single path if that was not asked
    /// for.
    pub(crate) pinfold: Option<Record>,
    /// The path of that.
    pub(crate) path: Option<&'static str>,
}

impl Row {
    /// How many times better Pinfold is than the best alternative.
    pub(crate) fn against_best(&self) -> Option<f64> {
        goodness(self.pinfold.as_ref()?, self.best.as_ref()?)
    }

    /// What part of what the bare machine does Pinfold reaches.
    pub(crate) fn of_floor(&self) -> Option<f64> {
        goodness(self.pinfold.as_ref()?, self.floor.as_ref()?)
    }
}

/// How many times better `one` is than `other`.
fn goodness(one: &Record, other: &Record) -> Option<f64> {
    debug_assert_eq!((one.what, one.size, one.class), (other.what, other.size, other.class));
    let ratio = one.median / other.median;
    let better = if one.unit.more_is_better() { ratio } else { 1.0 / ratio };
    (better.is_finite() && better > 0.0).then_some(better)
}

/// The rows of all records, in the order of measures, sizes and classes.
///
/// The best of a few is no best: a class in which only some of the subjects were seen makes no
/// row beside one with more. Nor do mixed runs, which can hardly be compared.
pub(crate) fn rows(
    records: &[Record],
    path_taken: impl Fn(Cell, Id) -> Option<&'static str>,
) -> Vec<Row> {
    let mut keys: Vec<(Cell, Class)> = records.iter().map(|r| (cell_of(r), r.class)).collect();
    keys.sort();
    keys.dedup();
    let seen = |cell: Cell, class: Class| {
        records.iter().filter(|r| cell_of(r) == cell && r.class == class).count()
    };
    // How much a row is worth: as many subjects as there are, and better settled than mixed.
    let worth = |cell: Cell, class: Class| match seen(cell, class) {
        0 => (false, 0),
        subjects => (class != Class::Mixed, subjects),
    };
    let most = |cell: Cell| Class::ALL.map(|class| worth(cell, class)).into_iter().max();
    let wanted = keys.iter().filter(|&&(cell, class)| Some(worth(cell, class)) == most(cell));
    wanted.map(|&(cell, class)| row(records, cell, class, &path_taken)).collect()
}

fn cell_of(record: &Record) -> Cell {
    Cell { what: record.what, size: record.size, touched: record.touched }
}

fn row(
    records: &[Record],
    cell: Cell,
    class: Class,
    path_taken: &impl Fn(Cell, Id) -> Option<&'static str>,
) -> Row {
    let here = || records.iter().filter(move |r| cell_of(r) == cell && r.class == class);
    let best_of = |wanted: &dyn Fn(&Record) -> bool| {
        let better = |one: &&Record, other: &&Record| {
            let order = one.median.total_cmp(&other.median);
            if one.unit.more_is_better() { order } else { order.reverse() }
        };
        here().filter(|r| wanted(r)).max_by(better).cloned()
    };
    let auto = here().find(|r| r.path == Some(Route::Auto)).cloned();
    let pinfold = auto.or_else(|| best_of(&|r| r.subject == Kind::Pinfold));
    let path = pinfold.as_ref().and_then(|record| match record.path {
        Some(Route::Auto) => path_taken(cell, record.id()).or(Some("auto")),
        other => other.map(Route::name),
    });
    Row {
        cell,
        class,
        memcpy: here().find(|r| r.subject == Kind::Memcpy).cloned(),
        floor: best_of(&|r| matches!(r.subject, Kind::Line | Kind::Ring)),
        best: best_of(&|r| r.subject.is_alternative()),
        pinfold,
        path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::{terms::What, testing};

    #[test]
    fn only_like_is_set_against_like() {
        let findings = testing::findings();
        let records = findings.collected.records();
        let rows = rows(&records, |cell, id| findings.collected.path_taken(cell, id));
        let find = |what, size, class| {
            let at = |row: &&Row| (row.cell.what, row.cell.size, row.class) == (what, size, class);
            rows.iter().find(at).unwrap()
        };
        let near = find(What::Latency, 8, Class::Near);
        assert_eq!(near.best.as_ref().unwrap().subject, Kind::Pipe);
        assert_eq!(near.floor.as_ref().unwrap().subject, Kind::Line);
        assert_eq!(near.path, Some("inline"));
        assert!((near.against_best().unwrap() - 10.0).abs() < 0.1);
        // Far, only Pinfold was seen, and the near runs of the others are nothing to set it against.
        let far = |row: &&Row| row.class == Class::Far;
        assert_eq!(rows.iter().filter(far).count(), 0);
        // More is better here, and a rival that is better gives less than 1.
        let stream = find(What::Bandwidth, 1 << 20, Class::Near);
        assert_eq!(stream.best.as_ref().unwrap().subject, Kind::Cma);
        assert!((stream.against_best().unwrap() - 0.5).abs() < 0.01);
        // Mixed runs make no row beside others, but one of their own if alone.
        let mixed = |row: &&Row| row.class == Class::Mixed;
        assert_eq!(rows.iter().filter(mixed).count(), 1);
        assert_eq!(rows.iter().find(mixed).unwrap().cell.what, What::Rate);
    }

    #[test]
    fn without_auto_the_best_path_stands_for_pinfold() {
        let mut records = testing::findings().collected.records();
        records.retain(|r| r.path != Some(Route::Auto));
        let rows = rows(&records, |_, _| None);
        let row = rows.iter().find(|row| row.cell.what == What::Bandwidth).unwrap();
        assert_eq!(row.path, Some("eager"));
    }
}
