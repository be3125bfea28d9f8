//! `unet-tlb`: misses of the interface's TLB in parallel programs and with sockets (Figure 3).

use pinfold::translate::{
    Rights, SpaceId,
    tlb::{Geometry, GeometryError, Lookup, Tlb},
};

use crate::{
    LabError,
    experiment::Run,
    models::unet::PAGE_BYTES,
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value, Verdict},
    random::Random,
    trace::replay,
    workloads::{
        Log, Program, live, lockstep,
        matrix::Matrix,
        radix::Radix,
        references::{Reference, Way, pages},
        sample::Sample,
        sockets,
    },
};

const ID: &str = "unet-tlb";
/// Entries of the first level, direct-mapped (section 6.2); each with a victim list of 16.
const ENTRIES: [usize; 2] = [1024, 256];
/// Ranks; not stated.
const RANKS: usize = 8;
/// Keys of each rank (section 6.2).
const KEYS: usize = 256 << 10;
/// Pages that matrix multiply uses (section 6.2), its receive buffers and the page of small
/// messages among them: the rest are taken for staging buffers.
const MATRIX_PAGES: u32 = 82;
const STAGING: u32 = MATRIX_PAGES - 64 - 1;
const SOCKETS: &str = "sockets, 4 at once";
const CROWD: &str = "sockets, all at once";

/// A trace: its name, and the references with their processes, for each interface.
pub(super) struct Trace {
    pub(super) name: &'static str,
    pub(super) interfaces: Vec<Vec<(u32, Reference)>>,
}

/// Misses, % of all look-ups: transmit and receive, compulsory and not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Misses {
    transmit_first: f64,
    transmit_other: f64,
    receive_first: f64,
    receive_other: f64,
}

impl Misses {
    /// Those that are not compulsory.
    pub(super) fn other(&self) -> f64 {
        self.transmit_other + self.receive_other
    }

    fn parts(&self) -> [(&'static str, f64); 4] {
        [
            ("transmit, compulsory", self.transmit_first),
            ("receive, compulsory", self.receive_first),
            ("transmit, not compulsory", self.transmit_other),
            ("receive, not compulsory", self.receive_other),
        ]
    }
}

/// The paper's TLB with so many entries.
fn direct(entries: usize) -> Geometry {
    Geometry { sets: entries, ..Geometry::default() }
}

/// Replays a trace in the library's TLB, one for each interface.
pub(super) fn replay(trace: &Trace, geometry: Geometry) -> Result<Misses, GeometryError> {
    let (mut misses, mut count) = (Misses::default(), 0u64);
    for references in &trace.interfaces {
        let mut tlb: Tlb<u64> = Tlb::new(geometry)?;
        for (process, reference) in references {
            let (space, address) =
                (SpaceId((*process).into()), u64::from(reference.page) * PAGE_BYTES);
            let first = tlb.counters().misses_compulsory;
            if let Lookup::Miss = tlb.look_up(space, address, Rights::ReadWrite) {
                let is_first = tlb.counters().misses_compulsory > first;
                *match (reference.way, is_first) {
                    (Way::Transmit, true) => &mut misses.transmit_first,
                    (Way::Transmit, false) => &mut misses.transmit_other,
                    (Way::Receive, true) => &mut misses.receive_first,
                    (Way::Receive, false) => &mut misses.receive_other,
                } += 1.0;
                let _ = tlb.insert(space, address, Rights::ReadWrite, address);
            }
        }
        count += references.len() as u64;
    }
    for part in [
        &mut misses.transmit_first,
        &mut misses.transmit_other,
        &mut misses.receive_first,
        &mut misses.receive_other,
    ] {
        *part *= 100.0 / count.max(1) as f64;
    }
    Ok(misses)
}

/// A program's trace, an interface for each rank.
fn traced(name: &'static str, logs: &[Log], staging: u32) -> Trace {
    let of = |rank| pages(logs, rank, staging).into_iter().map(|it| (0, it)).collect();
    Trace { name, interfaces: (0..logs.len()).map(of).collect() }
}

fn failed(why: impl ToString) -> LabError {
    LabError::Failed { id: ID, why: why.to_string() }
}

fn logs(mut programs: Vec<impl Program>) -> Result<Vec<Log>, LabError> {
    lockstep::run(&mut programs).map_err(failed)
}

/// Radix sort.
pub(super) fn radix(seed: u64) -> Result<Trace, LabError> {
    Ok(traced("radix sort", &logs(Radix::all(RANKS, KEYS, seed))?, 0))
}

/// Sample sort by large messages.
pub(super) fn sample(seed: u64) -> Result<Trace, LabError> {
    let programs = Sample::all(RANKS, KEYS, true, false, seed);
    Ok(traced("sample sort, large", &logs(programs)?, 0))
}

/// Sockets, so many processes at once: four or all.
pub(super) fn sessions(random: &mut Random, at_once: u32) -> Trace {
    let one = sockets::sessions(random, at_once, 2);
    Trace { name: if at_once == 4 { SOCKETS } else { CROWD }, interfaces: vec![one] }
}

fn traces(run: &mut Run<'_>) -> Result<Vec<Trace>, LabError> {
    let (seed, ranks) = (run.seed(), RANKS);
    // Small messages all leave from one page, however many there are.
    let few = run.pick(KEYS / 8, KEYS);
    let mut all = Vec::new();
    for (name, blocks, side) in [("mm 128×128", 8, 128), ("mm 16×16", 16, 16)] {
        let mut programs = Matrix::all(ranks, blocks, side, false);
        let logs = lockstep::dry(&mut programs).map_err(failed)?;
        all.push(traced(name, &logs, STAGING));
    }
    run.progress(0.2, "radix sort");
    all.push(radix(seed)?);
    run.progress(0.4, "sample sort");
    let programs = Sample::all(ranks, few, false, false, seed);
    all.push(traced("sample sort, small", &logs(programs)?, 0));
    all.push(sample(seed)?);
    for at_once in [4, sockets::PROCESSES] {
        all.push(sessions(&mut run.random(3), at_once));
    }
    let recorded = replay::references(&replay::SESSIONS).map_err(failed)?;
    all.push(Trace { name: replay::SESSIONS.name, interfaces: vec![recorded] });
    Ok(all)
}

/// Runs the programs over Pinfold's endpoints, smaller than the traces are, and checks their
/// results and that their transfers are those of the model's way to run them. Says what failed.
fn here() -> Result<String, String> {
    const FEW: usize = 4;
    let (mut matrix, mut other) = (Matrix::all(FEW, 8, 16, true), Matrix::all(FEW, 8, 16, true));
    let mut transfers = live::run_beside("matrix multiply", &mut matrix, &mut other)?;
    matrix.iter().try_for_each(Matrix::check)?;
    let keys = 16 << 10;
    let (mut radix, mut other) = (Radix::all(FEW, keys, 5), Radix::all(FEW, keys, 5));
    transfers += live::run_beside("radix sort", &mut radix, &mut other)?;
    Radix::check(&radix)?;
    for large in [false, true] {
        let make = || Sample::all(FEW, keys, large, true, 5);
        let (mut sample, mut other) = (make(), make());
        transfers += live::run_beside("sample sort", &mut sample, &mut other)?;
        Sample::check(&sample)?;
    }
    Ok(format!("{transfers} transfers by {FEW} endpoints are the same, and the results right"))
}

/// Runs the experiment.
///
/// # Errors
/// The library's TLB refused its shape, or a program failed.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let traces = traces(run)?;
    run.progress(0.7, "TLB");
    let mut outcome = Outcome::new();
    let mut plots = ENTRIES.map(|entries| {
        Plot::new(
            &format!("Figure 3: misses with {entries} entries"),
            Axis::linear("program, in the order of the table"),
            Axis::linear("%"),
        )
    });
    // For each trace, by entries.
    let mut found: Vec<(&str, [Misses; 2])> = Vec::new();
    for trace in &traces {
        let mut both = [Misses::default(); 2];
        for (misses, entries) in both.iter_mut().zip(ENTRIES) {
            *misses = replay(trace, direct(entries)).map_err(failed)?;
            for (quantity, percent) in misses.parts() {
                let value = Value::new(quantity, trace.name, format!("{entries} entries"), "%");
                outcome.values.push(value.model(percent));
            }
        }
        let mut used: Vec<(u32, u32)> =
            trace.interfaces[0].iter().map(|it| (it.0, it.1.page)).collect();
        used.sort_unstable();
        used.dedup();
        let value = Value::new("pages", trace.name, "", "").model(used.len() as f64);
        outcome.values.push(match trace.name {
            "mm 128×128" | "mm 16×16" => {
                value.paper(f64::from(MATRIX_PAGES), "section 6.2").fitted()
            }
            _ => value,
        });
        found.push((trace.name, both));
    }
    for (plot, at) in plots.iter_mut().zip(0..) {
        for part in 0..4 {
            let point = |(program, it): (usize, &(&str, [Misses; 2]))| {
                ((program + 1) as f64, it.1[at].parts()[part].1)
            };
            let points = found.iter().enumerate().map(point).collect();
            plot.add(Misses::default().parts()[part].0, Column::Model, points);
        }
    }
    outcome.plots = plots.into();
    judge(&mut outcome, &found);
    if run.here() {
        run.progress(0.8, "endpoints");
        let ran = here();
        let finding = match &ran {
            Ok(why) => Finding::of(true, why.clone()),
            Err(why) => Finding::of(false, why.clone()),
        };
        let claim = outcome.claims.pop().map(|claim| claim.and_here(finding));
        outcome.claims.extend(claim);
    }
    notes(&mut outcome);
    Ok(outcome)
}

fn judge(outcome: &mut Outcome, found: &[(&str, [Misses; 2])]) {
    let not_here = "the TLB is that of an interface's processor";
    let of =
        |name: &str| found.iter().find(|it| it.0 == name).map_or([Misses::default(); 2], |it| it.1);
    let programs = || found.iter().filter(|it| !it.0.starts_with("sockets"));
    let most = programs().map(|it| it.1[0].other()).fold(0.0, f64::max);
    outcome.claims.push(Claim::modelled(
        "with 1,024 entries no parallel program has a miss that is not compulsory",
        Finding::of(most == 0.0, format!("at most {most:.3} % of look-ups")),
        not_here,
    ));
    let none = ["mm 128×128", "mm 16×16", "sample sort, small"].map(|name| of(name)[1].other());
    outcome.claims.push(Claim::modelled(
        "with 256 entries matrix multiply and sample sort by small messages still have none",
        Finding::new(
            if none.iter().all(|part| *part == 0.0) { Verdict::Fitted } else { Verdict::Fails },
            format!(
                "{:.3}, {:.3} and {:.3} %; that matrix multiply uses {MATRIX_PAGES} pages is from \
                 the paper",
                none[0], none[1], none[2]
            ),
        ),
        not_here,
    ));
    let some = ["radix sort", "sample sort, large"].map(|name| of(name)[1]);
    outcome.claims.push(Claim::modelled(
        "with 256 entries the other programs have such misses, both transmit and receive",
        Finding::of(
            some.iter().all(|it| it.transmit_other > 0.0 && it.receive_other > 0.0),
            format!(
                "radix sort {:.1} % and {:.1} %, sample sort by large messages {:.1} % and {:.1} %",
                some[0].transmit_other,
                some[0].receive_other,
                some[1].transmit_other,
                some[1].receive_other
            ),
        ),
        not_here,
    ));
    let (few, all) = (of(SOCKETS), of(CROWD));
    let dominated = |it: &Misses| {
        let rest = it.parts().iter().map(|part| part.1).sum::<f64>() - it.receive_first;
        it.receive_first > rest
    };
    outcome.claims.push(Claim::modelled(
        "with sockets most misses are compulsory ones of receive buffers",
        Finding::new(
            if dominated(&few[0]) { Verdict::Fitted } else { Verdict::Fails },
            format!(
                "{:.1} % of look-ups, with {:.1} % others, in a trace made up for it, 4 processes \
                 at once; with all at once {:.1} % and {:.1} %",
                few[0].receive_first,
                few[0].other(),
                all[0].receive_first,
                all[0].other()
            ),
        ),
        not_here,
    ));
    outcome.claims.push(Claim::modelled(
        "with sockets, too, no miss is not compulsory with 1,024 entries",
        Finding::new(
            if few[0].other() == 0.0 { Verdict::Fitted } else { Verdict::Fails },
            format!(
                "{:.2} % with 4 processes at once, {:.2} % with all at once: 2,048 receive buffers \
                 do not fit into 1,024 entries",
                few[0].other(),
                all[0].other()
            ),
        ),
        not_here,
    ));
    let recorded = of(replay::SESSIONS.name);
    outcome.claims.push(Claim::modelled(
        "beyond the paper: in sessions recorded from real programs, too, most misses are \
         compulsory ones of receive buffers",
        Finding::of(
            dominated(&recorded[0]),
            format!(
                "32 processes at once, 1,024 entries: {:.1} % of look-ups, {:.1} % compulsory \
                 ones of memory that is sent from, {:.2} % others; with 256 entries {:.1} % others",
                recorded[0].receive_first,
                recorded[0].transmit_first,
                recorded[0].other(),
                recorded[1].other()
            ),
        ),
        not_here,
    ));
    outcome.claims.push(Claim::modelled(
        "the programs run over Pinfold's endpoints with the transfers that the model has",
        Finding::not_measured("a matter of this machine"),
        "this machine was not to be measured",
    ));
}

fn notes(outcome: &mut Outcome) {
    outcome.note(format!(
        "The Split-C programs are written anew: a blocked matrix multiply, whose ranks get the \
         blocks they need, a radix sort of four digits, whose ranks put each group of keys where \
         it belongs, and a sample sort that sends each key by itself, or groups and puts them; \
         {RANKS} ranks, 256 K keys each, a number of ranks that the paper does not state. A quick \
         run sends an eighth of the keys by small messages. For the model they run rank after \
         rank, the same whenever that is done; on this machine as threads with an endpoint each, \
         over registered memory and active messages, smaller, and there the results are checked \
         and the transfers compared. The model does not multiply, nor sort what only a rank \
         itself sees."
    ));
    outcome.note(
        "Each rank has an interface, with the library's TLB over the pages of its process: 64 \
         receive buffers of 4 KB in turn, a page of small buffers, the memory that it sends from. \
         Messages are a page long at most. Which transfers of others come between a rank's own in \
         a phase is a matter of time; the model has them take turns. That matrix multiply sends \
         from 17 staging buffers is a guess by the paper's 82 pages, and fitted: sent from the \
         matrices themselves, its pages would be more than 256 entries for blocks of 128 × 128.",
    );
    outcome.note(
        "The sample sort by large messages has no miss but compulsory ones in the model, where the \
         paper counts it among the programs that have some with 256 entries. It sends each page of \
         its keys once, so that none of them can be missed again; and although its 282 pages are \
         more than the TLB and the victim list have, the receive buffers, which come round every \
         64 messages, lie in sets that few of the others fall into. Where the paper's program had \
         its memory, and how often it sent from it, is not stated.",
    );
    outcome.note(
        "The traffic of sockets is made up, since the paper's is not there any more: 32 processes \
         with 64 receive buffers each, twice as many messages in as a process has buffers, as many \
         out, of pages of their own. With four sessions at a time the paper's claims hold; with 32 \
         at once receive buffers drive each other out of 1,024 entries, as they must if a process \
         uses its buffers more than once. The paper does not say how its sessions lay in time, so \
         its claims on sockets are not reproduced.",
    );
    outcome.note(
        "Beside it stands traffic that `pinfold trace record` recorded from real programs on the \
         loopback: 32 processes, at once the two ends of four typing sessions, four drawing ones, \
         four of FTP (Python's client) and four of HTTP (curl, Python's server). Bytes that come \
         take a process's 64 receive buffers in turn, as in the paper; memory that is sent from \
         lies where the programs had it. The recording is committed, with the programs.",
    );
    outcome.note(
        "The library's TLB chooses the set of a page by its number and a hash of the higher bits, \
         which the paper's does not say: pages in a row are in sets in a row, so that a program \
         whose memory is one row has no conflict as long as it is shorter than the TLB.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(pages: impl IntoIterator<Item = (Way, u32)>) -> Trace {
        let references = pages.into_iter().map(|(way, page)| (0, Reference { way, page }));
        Trace { name: "", interfaces: vec![references.collect()] }
    }

    #[test]
    fn misses_are_told_apart_by_way_and_kind() {
        use Way::{Receive, Transmit};
        // With one set and sixteen victims, 17 pages fit; the eighteenth drives out the first.
        let pages = (0..18).map(|page| (Transmit, page)).chain([(Receive, 0), (Transmit, 17)]);
        let misses = replay(&trace(pages), direct(1)).unwrap();
        let expected = Misses { transmit_first: 90.0, receive_other: 5.0, ..Misses::default() };
        assert_eq!(misses, expected);
        assert_eq!(misses.other(), 5.0);
    }

    #[test]
    fn a_row_of_pages_as_long_as_the_tlb_stays() {
        let twice = (0..256).chain(0..256).map(|page| (Way::Receive, page));
        let misses = replay(&trace(twice), direct(256)).unwrap();
        assert_eq!(misses, Misses { receive_first: 50.0, ..Misses::default() });
        let longer = (0..320).chain(0..320).map(|page| (Way::Receive, page));
        assert!(replay(&trace(longer), direct(256)).unwrap().receive_other > 0.0);
    }
}
