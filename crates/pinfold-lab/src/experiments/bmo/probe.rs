//! `bmo-probe`: how well the first line tells the state of a block (Tables 5.1 and 5.2).

use super::tables::{PROGRAMS, Program, size};
use crate::{
    LabError,
    experiment::Run,
    models::{
        copying::processor::OPTERON_250,
        hierarchy::{Hierarchy, LINE},
        residency::{self, Told, Traffic},
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value, Verdict},
    trace::replay::{self, Recording},
};

const NOT_HERE: &str = "no kernel whose copies could be watched is at hand; the accuracy of the \
                        library's probe is in the output of `pinfold tune`";
const SIDES: [&str; 2] = ["source", "destination"];
/// The programs whose cached shares the paper states (chapter 3): 89 to 92 % of the data copied
/// are not in the cache, nor 82 to 88 % of the targets; the middles.
const STATED: [&str; 2] = ["PostMark", "Chat"];
const AGAIN: [f64; 2] = [0.095, 0.15];
/// Fewer blocks than these say nothing, of a size in the model.
const FEW: u64 = 20;

/// The rate in the model, percent, for each row and side: blocks of the paper's counts by size.
fn modelled(program: &Program, run: &Run<'_>) -> Vec<[Option<f64>; 2]> {
    let with = &OPTERON_250;
    let mut caches = Hierarchy::new(with.first, with.second, with.sharing);
    let sizes = program.rows.iter().map(|row| (row.bytes, row.blocks)).collect();
    let traffic = Traffic { sizes, again: AGAIN };
    let stream = program.blocks();
    let told = traffic.told(&mut caches, run.pick(20_000, 500_000), &mut run.random(stream));
    let rate = |it: Told| (it.blocks >= FEW).then(|| 100.0 * it.right as f64 / it.blocks as f64);
    told.into_iter().map(|row| row.map(rate)).collect()
}

/// The recordings of programs of the paper's kinds.
const RECORDED: [Recording; 5] =
    [replay::COMPILE, replay::SPOOL, replay::PIPE, replay::BULK, replay::CHAT];

/// Copies a recording's blocks of at least a line, rounded to lines, through the Opteron's caches.
fn told(recording: &Recording) -> Result<[Told; 2], LabError> {
    let failed = |why| LabError::Failed { id: "bmo-probe", why: format!("{why}") };
    let with = &OPTERON_250;
    let mut caches = Hierarchy::new(with.first, with.second, with.sharing);
    let mut told = [Told::default(); 2];
    for block in replay::copies(recording).map_err(failed)? {
        if block.bytes >= LINE {
            let places = block.places.map(|place| place / LINE * LINE);
            residency::copy(&mut caches, places, block.bytes, &mut told);
        }
    }
    Ok(told)
}

/// The recorded programs' values and plot. Returns the least share that the first line tells, and
/// those of less than 90 %.
fn recorded(outcome: &mut Outcome) -> Result<(f64, Vec<String>), LabError> {
    let mut least = (f64::INFINITY, Vec::new());
    let mut points = [Vec::new(), Vec::new()];
    for (at, recording) in RECORDED.iter().enumerate() {
        for (side, told) in told(recording)?.into_iter().enumerate() {
            let series = format!("{}, {}", recording.name, SIDES[side]);
            let percent = |count: u64| 100.0 * count as f64 / told.blocks.max(1) as f64;
            for (quantity, share) in [
                ("told by the first line, recorded", percent(told.right)),
                ("cached before, recorded", percent(told.cached)),
            ] {
                outcome.values.push(Value::new(quantity, &series, "", "%").model(share));
            }
            points[side].push((at as f64 + 1.0, percent(told.right)));
            least.0 = least.0.min(percent(told.right));
            if percent(told.right) < 90.0 {
                least.1.push(format!("{series}: {:.1} %", percent(told.right)));
            }
        }
    }
    let axis_of = Axis::linear("1 compile, 2 mail spool, 3 pipe, 4 bulk sender, 5 chat");
    let mut plot = Plot::new("Recorded programs: told by the first line", axis_of, axis());
    for (words, points) in SIDES.into_iter().zip(points) {
        plot.add(words, Column::Model, points);
    }
    outcome.plots.push(plot);
    Ok(least)
}

/// Runs the experiment.
///
/// # Errors
/// A recording is damaged.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let mut outcome = Outcome::new();
    let (mut least, mut below) = ((f64::INFINITY, String::new()), Vec::new());
    for (at, program) in PROGRAMS.iter().enumerate() {
        run.progress(at as f64 / 5.0, program.name);
        let is_modelled = STATED.contains(&program.name);
        let model = if is_modelled { modelled(program, run) } else { Vec::new() };
        let mut plot =
            Plot::new(&format!("Tables 5.1 and 5.2: {}", program.name), Axis::log("bytes"), axis());
        for (side, words) in SIDES.into_iter().enumerate() {
            let (mut stated, mut points) = (Vec::new(), Vec::new());
            for (at, row) in program.rows.iter().enumerate() {
                let series = format!("{}, {words}", program.name);
                let value = Value::new("told by the first line", &series, size(row.bytes), "%");
                let value = value.paper(row.told[side], "Tables 5.1 and 5.2");
                stated.push((row.bytes as f64, row.told[side]));
                if row.told[side] < 90.0 {
                    below.push(format!("{series}, {}: {}", size(row.bytes), row.told[side]));
                }
                let found = model.get(at).and_then(|row| row[side]);
                outcome.values.push(
                    value.note(
                        "not predicted: the order and the places of the copies are not stated",
                    ),
                );
                if let Some(rate) = found {
                    let made = "told by the first line in synthesised traffic";
                    let value = Value::new(made, &series, size(row.bytes), "%");
                    outcome.values.push(value.model(rate));
                }
                points.extend(found.map(|rate| (row.bytes as f64, rate)));
                if let Some(rate) = found.filter(|&rate| rate < least.0) {
                    least = (rate, format!("{series}, {}", size(row.bytes)));
                }
            }
            plot.add(words, Column::Paper, stated);
            plot.add(words, Column::Model, points);
        }
        outcome.plots.push(plot);
        totals(&mut outcome, program);
    }
    claims(&mut outcome, least, &below);
    let (rate, below) = recorded(&mut outcome)?;
    outcome.claims.push(Claim::modelled(
        "beyond the paper: in five programs recorded today it is right more often than not, but \
         not for 90 % of the blocks everywhere",
        Finding::of(
            rate > 50.0 && !below.is_empty(),
            format!("less than 90 %: {}", below.join("; ")),
        ),
        NOT_HERE,
    ));
    outcome.note(
        "No trace is published. Blocks are synthesised from the paper's own counts by size, with \
         the run's seed, for the two programs of which it states how much is cached: a source is \
         one of the last eight of its size for 9.5 % of the blocks, a destination for 15 %, and \
         else lies anywhere. They go through the Opteron's two levels of cache, and a block \
         counts as the paper counts it, cached above 60 %, uncached below 40 %.",
    );
    outcome.note(
        "The rates of synthesised traffic are not set against the table's: a rule that says 100 % \
         would agree with most rows as well. The first line is right nearly always there, since a \
         cache that lets the least recently used line go lets a block go at one time: a block is \
         cached in part only while it is going, the more seldom the shorter it is. This is the \
         paper's claim, and why it is true. The rates that are much lower in the tables (256-byte \
         destinations, 8 and 16 KB in Chat) must have another reason, such as headers that are \
         written before the rest of a block, of which the paper says nothing; they cannot be \
         predicted.",
    );
    outcome.note(
        "Five programs of the paper's kinds were recorded by `pinfold trace record`: gcc, a mail \
         spool, dd and cat, a bulk sender, a chat server. The program's side of each copy lies \
         where it lay; the kernel's side is not seen, and is taken to be a file's pages in a row, \
         or 64 KiB in turn for a pipe or a socket. The caches see the copies alone, nothing else \
         that programs do. These are no runs of the paper's programs, and no values of its tables.",
    );
    Ok(outcome)
}

fn axis() -> Axis {
    Axis::linear("%")
}

/// The totals, against the mean of their rows.
fn totals(outcome: &mut Outcome, program: &Program) {
    for (side, words) in SIDES.into_iter().enumerate() {
        let (stated, mean) = (program.total.told[side], program.told()[side]);
        let series = format!("{}, {words}", program.name);
        let value = Value::new("told by the first line, mean of the rows", &series, "", "%");
        let value = value.paper(stated, "Tables 5.1 and 5.2, total").model(mean);
        outcome.values.push(match (stated - mean).abs() < 2.0 {
            true => value.fitted().note("arithmetic on the table's own rows"),
            false => value.contradicted("the table's rows, counted by their blocks, give another"),
        });
    }
}

fn claims(outcome: &mut Outcome, least: (f64, String), below: &[String]) {
    outcome.claims = vec![
        Claim::modelled(
            "the first line tells the state of a block for well over 90 % of the blocks",
            Finding::of(
                least.0 > 90.0,
                format!(
                    "in synthesised traffic of {}: {:.1} % at least ({})",
                    STATED.join(" and "),
                    least.0,
                    least.1
                ),
            ),
            NOT_HERE,
        ),
        Claim::modelled(
            "it does so everywhere except for Netperf's destinations",
            Finding::new(
                Verdict::PaperContradictsItself,
                format!("its tables have below 90 %: {}", below.join("; ")),
            ),
            NOT_HERE,
        ),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_that_do_not_add_up_are_contradicted() {
        let contradicted = |program: &Program| {
            let mut outcome = Outcome::new();
            totals(&mut outcome, program);
            [0, 1].map(|side| {
                matches!(outcome.values[side].aim, crate::outcome::Aim::Contradicted(_))
            })
        };
        let all = PROGRAMS.each_ref().map(contradicted);
        assert_eq!(all[2], [true, false], "bw_pipe: 85.4 and 99.9");
        assert_eq!(all[3], [false, true], "Netperf: 62.7 and 67.9");
        assert_eq!(all[1], [false, false]);
    }
}
