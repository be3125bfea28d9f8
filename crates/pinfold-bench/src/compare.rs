//! The comparison of records: only those of one measure, size and class are set against each other.

use super::{
    class::Class,
    record::Record,
    terms::{Cell, Group, Id, Kind, Route, What},
};

/// One row of a summary.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) cell: Cell,
    /// The group of Pinfold's records that it is about.
    pub(crate) group: Group,
    pub(crate) class: Class,
    pub(crate) memcpy: Option<Record>,
    /// The better of the line and the ring; for an arena, the mapping; for given buffers, the line
    /// of any size.
    pub(crate) floor: Option<Record>,
    /// The best of the alternatives; for an arena, two copies through a ring are among these; for
    /// active messages, the usual way of requests and answers.
    pub(crate) best: Option<Record>,
    /// Pinfold as it is used, choosing by itself; or the best single path if that was not asked
    /// for.
    pub(crate) pinfold: Option<Record>,
    /// The path of that.
    pub(crate) path: Option<&'static str>,
}

impl Row {
    /// The factor by which Pinfold is better than the best alternative.
    pub(crate) fn against_best(&self) -> Option<f64> {
        goodness(self.pinfold.as_ref()?, self.best.as_ref()?)
    }

    /// The records that are shown of it.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> + Clone {
        [&self.floor, &self.best, &self.pinfold].into_iter().flatten()
    }

    /// The part of the bare machine's speed that Pinfold reaches.
    pub(crate) fn of_floor(&self) -> Option<f64> {
        goodness(self.pinfold.as_ref()?, self.floor.as_ref()?)
    }
}

/// The factor by which `one` is better than `other`, by their means: rare slow messages count.
fn goodness(one: &Record, other: &Record) -> Option<f64> {
    debug_assert_eq!((one.what, one.class), (other.what, other.class));
    let ratio = one.mean / other.mean;
    let better = if one.unit.more_is_better() { ratio } else { 1.0 / ratio };
    (better.is_finite() && better > 0.0).then_some(better)
}

/// The rows of all records, in the order of measures, groups, sizes and classes; touched messages
/// make rows of their own.
///
/// The best of a few is no best: a class in which only some of the subjects were seen makes no
/// row beside one with more. Nor do mixed runs, which can hardly be compared.
pub(crate) fn rows(
    records: &[Record],
    path_taken: impl Fn(Cell, Id) -> Option<&'static str>,
) -> Vec<Row> {
    let mut cells: Vec<Cell> = records.iter().map(Record::cell).collect();
    cells.sort_unstable();
    cells.dedup();
    let mut rows = Vec::new();
    for cell in cells {
        for group in groups(records, cell) {
            // A number that is added is no message, so messages are nothing to set it against.
            let adds = matches!(group, Group::Region | Group::Contended);
            let alone = adds && cell.what == What::Rate;
            let here = |r: &&Record| {
                r.cell() == cell && belongs(r, group) && !(alone && r.id().group().is_none())
            };
            let here: Vec<&Record> = records.iter().filter(here).collect();
            // The worth of a row: the number of its subjects, and settled runs above mixed ones.
            let worth = |class: Class| match here.iter().filter(|r| r.class == class).count() {
                0 => (false, 0),
                subjects => (class != Class::Mixed, subjects),
            };
            let most = Class::ALL.map(worth).into_iter().max();
            let wanted = Class::ALL
                .into_iter()
                .filter(|&class| worth(class).1 > 0 && Some(worth(class)) == most);
            rows.extend(wanted.map(|class| Row {
                floor: floor(records, &here, group, class),
                ..row(&here, cell, group, class, &path_taken)
            }));
        }
    }
    rows.sort_by_key(|row| {
        let Cell { what, size, touched, setting } = row.cell;
        (what, setting, touched, row.group, size, row.class)
    });
    rows
}

/// The groups that a cell has rows for: ordinary memory if there is nothing of Pinfold.
fn groups(records: &[Record], cell: Cell) -> Vec<Group> {
    let of = |r: &Record| r.id().group().filter(|_| r.cell() == cell);
    let mut groups: Vec<Group> = records.iter().filter_map(of).collect();
    groups.sort_unstable();
    groups.dedup();
    if groups.is_empty() { vec![Group::Heap] } else { groups }
}

/// Returns whether a record stands in rows of this group.
fn belongs(record: &Record, group: Group) -> bool {
    record.id().group().is_none_or(|only| only == group)
}

/// The best of some records of a class.
fn best_of<'a>(
    records: impl Iterator<Item = &'a Record>,
    class: Class,
    wanted: impl Fn(&Record) -> bool,
) -> Option<Record> {
    let better = |one: &&Record, other: &&Record| {
        let order = one.mean.total_cmp(&other.mean);
        if one.unit.more_is_better() { order } else { order.reverse() }
    };
    records.filter(|r| r.class == class && wanted(r)).max_by(better).cloned()
}

/// The record of the bare machine for rows that are made of `here`.
fn floor(all: &[Record], here: &[&Record], group: Group, class: Class) -> Option<Record> {
    let here = here.iter().copied();
    match group {
        Group::Arena | Group::WriteMapped | Group::ReadMapped => {
            best_of(here, class, |r| matches!(r.subject, Kind::Line | Kind::Mapping))
        }
        Group::Given => {
            best_of(all.iter(), class, |r| (r.subject, r.what) == (Kind::Line, What::Latency))
        }
        _ => best_of(here, class, |r| matches!(r.subject, Kind::Line | Kind::Ring)),
    }
}

fn row(
    here: &[&Record],
    cell: Cell,
    group: Group,
    class: Class,
    path_taken: &impl Fn(Cell, Id) -> Option<&'static str>,
) -> Row {
    let find = |wanted: &dyn Fn(&Record) -> bool| best_of(here.iter().copied(), class, wanted);
    let pinfold =
        find(&|r| r.path == Some(Route::Auto)).or_else(|| find(&|r| r.subject == Kind::Pinfold));
    let path = pinfold.as_ref().and_then(|record| match record.path {
        Some(Route::Auto) => path_taken(cell, record.id()).or(Some("auto")),
        other => other.map(Route::short),
    });
    let rivals = |r: &Record| match group {
        Group::Active => r.subject == Kind::Unix,
        Group::Arena | Group::Given if r.subject == Kind::Ring => true,
        _ if r.subject == Kind::CmaWrite => group.has_bare_writes(),
        _ => r.subject.is_alternative(),
    };
    Row {
        cell,
        group,
        class,
        memcpy: find(&|r| r.subject == Kind::Memcpy),
        floor: None,
        best: find(&rivals),
        pinfold,
        path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        terms::{Setting, What},
        testing,
    };

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
        // The means count: 80, 80 and 160 ns, and 800.
        assert!((near.against_best().unwrap() - 7.5).abs() < 0.01);
        // Far, only Pinfold was seen, and the near runs of the others are nothing to set it
        // against.
        let far = |row: &&Row| row.class == Class::Far;
        assert_eq!(rows.iter().filter(far).count(), 0);
        // More is better here, and a rival that is better gives less than 1.
        let stream = find(What::Bandwidth, 1 << 20, Class::Near);
        assert_eq!(stream.best.as_ref().unwrap().subject, Kind::Cma);
        assert!((stream.against_best().unwrap() - 0.5).abs() < 0.01);
        // Mixed runs make no row beside others, but one of their own if alone.
        let mixed = |row: &&Row| (row.class, row.cell.setting) == (Class::Mixed, Setting::Alone);
        assert_eq!(rows.iter().filter(mixed).count(), 1);
        assert_eq!(rows.iter().find(mixed).unwrap().cell.what, What::Rate);
    }

    #[test]
    fn arenas_have_rows_and_floors_of_their_own() {
        let records = testing::findings().collected.records();
        let rows = rows(&records, |_, _| Some("mapped"));
        let at = |row: &&Row| (row.cell.what, row.cell.size) == (What::Bandwidth, 4 << 20);
        let here: Vec<&Row> = rows.iter().filter(at).collect();
        // Rows: untouched in ordinary memory and in an arena, and touched in an arena.
        let kinds: Vec<_> = here.iter().map(|row| (row.cell.touched, row.group)).collect();
        assert_eq!(kinds, [(false, Group::Heap), (false, Group::Arena), (true, Group::Arena)]);
        let subject = |record: &Option<Record>| record.as_ref().map(|record| record.subject);
        // The same records of the others, but the ring changes sides.
        assert_eq!(subject(&here[0].floor), Some(Kind::Ring));
        assert_eq!(subject(&here[0].best), Some(Kind::Pipe));
        assert_eq!(subject(&here[1].floor), Some(Kind::Mapping));
        assert_eq!(subject(&here[1].best), Some(Kind::Ring));
        assert!((here[1].against_best().unwrap() - 3.0).abs() < 0.01);
        assert_eq!(subject(&here[2].best), Some(Kind::Pipe));
        assert_eq!(here[2].path, Some("mapped"));
        // Additions to a region are set against nothing.
        let added = rows.iter().find(|row| row.group == Group::Region).unwrap();
        assert!(added.best.is_none() && added.floor.is_none());
        // Given buffers are set against the messages of the same size, and against a bare hop.
        let given = rows.iter().find(|row| row.group == Group::Given).unwrap();
        assert_eq!((given.cell.size, given.path), (1 << 20, Some("handoff")));
        assert_eq!(subject(&given.floor), Some(Kind::Line));
        assert!((given.of_floor().unwrap() - 0.5).abs() < 0.01);
        assert_eq!(subject(&given.best), Some(Kind::Ring));
    }

    #[test]
    fn each_use_of_a_region_and_active_messages_have_rows_of_their_own() {
        let records = testing::findings().collected.records();
        let rows = rows(&records, |_, _| None);
        let find = |path| rows.iter().filter(|row| row.path == Some(path)).collect::<Vec<_>>();
        let subject = |record: &Option<Record>| record.as_ref().map(|record| record.subject);
        // A read is set against messages, a word that both add to against nothing.
        let [get] = find("get")[..] else { panic!("{rows:?}") };
        assert_eq!((get.cell.size, subject(&get.best)), (4096, Some(Kind::Pipe)));
        let [contended] = find("contended")[..] else { panic!("{rows:?}") };
        assert!(contended.best.is_none() && contended.floor.is_none());
        assert_eq!(find("fetch-add").len(), 1, "it is not hidden by the other");
        // A pipe is better, but no way to ask and be answered.
        let [active] = find("active")[..] else { panic!("{rows:?}") };
        assert_eq!((active.cell.size, subject(&active.best)), (8, Some(Kind::Unix)));
        assert_eq!(subject(&active.floor), Some(Kind::Line));
    }

    #[test]
    fn each_way_to_an_address_has_a_row_and_the_bare_call_beside_it() {
        let records = testing::findings().collected.records();
        let rows = rows(&records, |_, _| None);
        let subject = |record: &Option<Record>| record.as_ref().map(|record| record.subject);
        let writes = [Group::WriteMapped, Group::WriteKernel, Group::WriteAgent];
        for (group, ns) in writes.into_iter().zip([300.0, 2000.0, 4000.0]) {
            let [row] = rows.iter().filter(|row| row.group == group).collect::<Vec<_>>()[..] else {
                panic!("{rows:?}")
            };
            let mean = row.pinfold.as_ref().map_or(0.0, |record| record.mean);
            assert!((mean / ns - 1.0).abs() < 0.01, "{mean}");
            assert_eq!((row.path, subject(&row.best)), (Some("write"), Some(Kind::CmaWrite)));
        }
        // It writes to a place that both know, and is no way to send a message.
        let what = |row: &&Row| (row.cell.what, row.cell.size) == (What::Latency, 4096);
        let messages = |row: &&Row| row.group == Group::Heap && what(row);
        assert_eq!(rows.iter().filter(messages).count(), 1);
        assert_eq!(subject(&rows.iter().find(messages).unwrap().best), Some(Kind::Pipe));
    }

    #[test]
    fn circumstances_have_rows_of_their_own() {
        let records = testing::findings().collected.records();
        let rows = rows(&records, |_, _| None);
        let beside = |row: &&Row| row.cell.setting == Setting::Neighbour;
        let [row] = rows.iter().filter(beside).collect::<Vec<_>>()[..] else { panic!("{rows:?}") };
        assert_eq!((row.class, row.group, row.cell.size), (Class::Mixed, Group::Heap, 8));
        assert!((row.against_best().unwrap() - 6.0 / 9.0).abs() < 0.01);
        assert!(row.floor.is_none(), "nothing of another setting stands there");
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
