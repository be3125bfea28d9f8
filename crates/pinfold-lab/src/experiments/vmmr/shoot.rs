//! `vmmr-shoot`: remapping or copying a fragment, by its size and by the cores that have to drop
//! their translations of it. Beyond the paper.

use pinfold::reassembly::gather::{Backing, Costs, How, Piece, Target, plan};

use crate::{
    LabError,
    experiment::Run,
    here::remapping::{Moved, moved},
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

const PAGE_BYTES: u64 = 4096;
/// Other cores that run the process, and so may have translations.
const CORES: [u32; 9] = [0, 1, 2, 4, 8, 16, 32, 64, 128];
/// Pages of a fragment.
const PAGES: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// A fragment of more pages is never asked for.
const MOST: u64 = 1 << 16;

/// The cost of a shoot-down.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ShootDown {
    name: &'static str,
    /// For the caller if there is any other core, ns.
    base_ns: f64,
    /// For the caller, for each other core: to send, and to wait for its answer, ns.
    core_ns: f64,
    /// For each other core: the interrupt, ns.
    taken_ns: f64,
}

/// Three machines. The first has no interrupts: its cores are told by the hardware, as ARM's are by
/// a TLBI that is broadcast (its cost is taken to be none). The second's numbers are those of a
/// survey on the web (*TLB Shootdown*, unseel.com: about 1 µs and 200 ns for each receiver, 14 µs
/// for 64 cores). The third's follow from 80 µs for 120 cores of eight sockets (Kumar and others,
/// *LATR*, ASPLOS 2018, section 1; from memory). The interrupt's own time is taken.
const SHOOT_DOWNS: [ShootDown; 3] = [
    ShootDown { name: "broadcast by hardware", base_ns: 0.0, core_ns: 0.0, taken_ns: 0.0 },
    ShootDown { name: "interrupts, a socket", base_ns: 1000.0, core_ns: 200.0, taken_ns: 700.0 },
    ShootDown { name: "interrupts, sockets", base_ns: 1000.0, core_ns: 660.0, taken_ns: 1500.0 },
];

impl ShootDown {
    /// The caller's time, ns.
    fn waited_ns(self, cores: u32) -> f64 {
        if cores == 0 { 0.0 } else { self.base_ns + self.core_ns * f64::from(cores) }
    }

    /// The time of all other cores together, ns.
    fn taken_ns(self, cores: u32) -> f64 {
        self.taken_ns * f64::from(cores)
    }
}

/// The library's costs, where a call that moves pages has a shoot-down. `all` counts what the other
/// cores lose, too.
fn costs(shoot_down: ShootDown, cores: u32, all: bool) -> Costs {
    let mut costs = Costs::DEFAULT;
    costs.move_call_ns += shoot_down.waited_ns(cores);
    if all {
        costs.move_call_ns += shoot_down.taken_ns(cores);
    }
    costs
}

/// The library's plan for a fragment of whole pages, alone: its way, and the cost of that and of a
/// copy, ns.
fn planned(pages: u64, costs: &Costs) -> (Option<How>, f64, f64) {
    let len = pages * PAGE_BYTES;
    let piece = Piece { at: 1 << 30, len, room: len, huge: false, backing: Backing::Anonymous };
    let target = Target::Window { align: PAGE_BYTES, maps_max: 0 };
    let plan = plan(&[piece], target, costs);
    (plan.only(), plan.cost_ns, plan.copy_ns)
}

/// The fewest pages from which on the plan moves a fragment; none up to [`MOST`].
fn moves_from(costs: &Costs) -> Option<u64> {
    let moves = |pages| planned(pages, costs).0 == Some(How::Move);
    let (mut low, mut high) = (0, MOST);
    if !moves(high) {
        return None;
    }
    while high - low > 1 {
        let middle = (low + high) / 2;
        *(if moves(middle) { &mut high } else { &mut low }) = middle;
    }
    Some(high)
}

/// The crossovers of a machine by cores: for the caller alone, and with all cores' time.
type ByCores = [[Option<u64>; 2]; CORES.len()];

/// Runs the experiment.
///
/// # Errors
/// None.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let mut outcome = Outcome::new();
    let mut plot = Plot::new(
        "Fragments that are moved, by cores that take shoot-downs",
        Axis::linear("other cores"),
        Axis::log("pages, at least"),
    );
    let mut all = Vec::new();
    for (at, shoot_down) in SHOOT_DOWNS.into_iter().enumerate() {
        run.progress(at as f64 / 4.0, shoot_down.name);
        let of = |cores| [false, true].map(|all| moves_from(&costs(shoot_down, cores, all)));
        let by_cores: ByCores = CORES.map(of);
        for (side, words) in ["the caller's time", "all cores' time"].into_iter().enumerate() {
            let series = format!("{}, {words}", shoot_down.name);
            for (cores, found) in CORES.into_iter().zip(by_cores) {
                let at = format!("{cores} cores");
                let value = Value::new("moved from", &series, at, "pages");
                outcome.values.push(match found[side] {
                    Some(pages) => value.model(pages as f64),
                    None => value.note("never"),
                });
            }
            let points = CORES.iter().zip(by_cores);
            let points = points.filter_map(|(&x, it)| Some((f64::from(x), it[side]? as f64)));
            plot.add(&series, Column::Model, points.collect());
        }
        all.push(by_cores);
    }
    outcome.plots.push(plot);
    times(&mut outcome);
    run.progress(0.75, "this machine");
    let here = here(run, &mut outcome);
    judge(&mut outcome, &all, here);
    outcome.note(
        "Ours: the paper's machine has one processor. The library's own plan decides, by the costs \
         that it begins with (moving a fragment: 950 ns and 130 ns a page; copying: 0.066 ns a \
         byte and 250 ns for each page of the window that appears), to which the shoot-down of a \
         fragment is added: one for each call that moves \
         pages, whatever their number, since a kernel sends one interrupt for all of them. A copy \
         needs none. The library measures its costs where it runs, so that a shoot-down that \
         happens meanwhile is in them. The costs of shoot-downs are parameters: their sources are \
         beside them in the file of the experiment, one of them cited from memory.",
    );
    outcome.note(
        "Here pages are moved to and fro by mremap(2), which is what a program without \
         userfaultfd(2) can do, with none and with one other thread of the process that runs on \
         another processor, and are copied by the library. A page is written to before it is moved \
         each time. On a virtual machine an interrupt for another processor may cost more than on \
         its host.",
    );
    Ok(outcome)
}

/// The time of a fragment by size, moved and copied, one plot for some numbers of cores.
fn times(outcome: &mut Outcome) {
    let shoot_down = SHOOT_DOWNS[1];
    let mut plot = Plot::new(
        &format!("Time of a fragment: {}", shoot_down.name),
        Axis::log("pages"),
        Axis::log("µs"),
    );
    let us = |ns: f64| ns / 1000.0;
    let copied = PAGES.map(|pages| (pages as f64, us(planned(pages, &Costs::COPY_ONLY).1)));
    for (pages, us) in copied {
        let value = Value::new("time", "copied", format!("{pages} pages"), "µs");
        outcome.values.push(value.model(us));
    }
    plot.add("copied", Column::Model, copied.into());
    for cores in [0, 1, 16, 128] {
        let costs = costs(shoot_down, cores, false);
        let moving = |pages: u64| {
            costs.move_call_ns
                + pages as f64
                    * match pages <= Costs::FEW_PAGES {
                        true => costs.move_few_page_ns,
                        false => costs.move_page_ns,
                    }
        };
        let points = PAGES.map(|pages| (pages as f64, us(moving(pages))));
        for (pages, us) in points {
            let series = format!("moved, {cores} cores");
            let value = Value::new("time", &series, format!("{pages} pages"), "µs");
            outcome.values.push(value.model(us));
        }
        plot.add(&format!("moved, {cores} cores"), Column::Model, points.into());
    }
    outcome.plots.push(plot);
}

/// This machine's times for each size, with none and with one other thread.
fn here(run: &Run<'_>, outcome: &mut Outcome) -> Result<[Vec<(u64, Moved)>; 2], String> {
    if !run.here() {
        return Err("this machine was not to be measured".into());
    }
    let turns = run.pick(200, 2000);
    let mut all = [Vec::new(), Vec::new()];
    for (others, found) in all.iter_mut().enumerate() {
        for pages in PAGES {
            let it = moved(pages as usize, others, turns)?;
            let at = format!("{pages} pages");
            let series = format!("this machine, moved, {others} other threads");
            let value = Value::new("time", &series, &at, "µs");
            outcome.values.push(value.here(it.move_ns / 1000.0));
            let series = format!("this machine, copied, {others} other threads");
            let value = Value::new("time", &series, &at, "µs");
            outcome.values.push(value.here(it.copy_ns / 1000.0));
            found.push((pages, it));
        }
    }
    let mut plot =
        Plot::new("Time of a fragment, this machine", Axis::log("pages"), Axis::log("µs"));
    for (others, found) in all.iter().enumerate() {
        let of = |get: fn(&Moved) -> f64| {
            found.iter().map(|(pages, it)| (*pages as f64, get(it) / 1000.0)).collect()
        };
        plot.add(&format!("moved, {others} other threads"), Column::Here, of(|it| it.move_ns));
        plot.add(&format!("copied, {others} other threads"), Column::Here, of(|it| it.copy_ns));
    }
    outcome.plots.push(plot);
    Ok(all)
}

fn judge(outcome: &mut Outcome, all: &[ByCores], here: Result<[Vec<(u64, Moved)>; 2], String>) {
    const NOT_HERE: &str = "it has not so many processors";
    let far = |it: Option<u64>| it.unwrap_or(u64::MAX);
    let rises = |by: &ByCores| {
        by.windows(2).all(|pair| (0..2).all(|side| far(pair[0][side]) <= far(pair[1][side])))
    };
    let words: Vec<String> = SHOOT_DOWNS
        .iter()
        .zip(all)
        .map(|(it, by)| {
            let said: Vec<String> = by
                .iter()
                .map(|found| found[0].map_or("never".into(), |pages| pages.to_string()))
                .collect();
            format!("{}: {}", it.name, said.join(", "))
        })
        .collect();
    let claim = Claim::modelled(
        "the more cores take shoot-downs, the longer a fragment has to be to be moved",
        Finding::of(
            all.iter().all(rises) && all[1..].iter().all(|by| far(by[0][0]) < far(by[8][0])),
            format!("pages, by {CORES:?} other cores: {}", words.join("; ")),
        ),
        "",
    );
    outcome.claims.push(claim.and_here(match here {
        Err(why) => Finding::not_measured(why),
        Ok([none, one]) => {
            let from = |all: &[(u64, Moved)]| {
                let dear = all.iter().rposition(|(_, it)| it.move_ns >= it.copy_ns);
                all.get(dear.map_or(0, |at| at + 1)).map(|it| it.0)
            };
            let said =
                |it: Option<u64>| it.map_or("never".into(), |pages| format!("{pages} pages"));
            let (none, one) = (from(&none), from(&one));
            let why =
                format!("alone from {}, beside another thread from {}", said(none), said(one));
            Finding::of(far(none) <= far(one), why)
        }
    }));
    let [broadcast, ..] = all else { return };
    outcome.claims.push(Claim::modelled(
        "where the hardware tells the cores, their number does not matter",
        Finding::of(
            broadcast.iter().all(|it| *it == broadcast[0]),
            format!("moved from {} pages on", far(broadcast[0][0])),
        ),
        NOT_HERE,
    ));
    let socket = &all[1];
    outcome.claims.push(Claim::modelled(
        "counting what the other cores lose, a fragment has to be more than twice as long with 16 \
         of them",
        Finding::of(
            far(socket[5][1]) > 2 * far(socket[5][0]),
            format!("{} pages in place of {}", far(socket[5][1]), far(socket[5][0])),
        ),
        NOT_HERE,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_crosses_where_the_costs_do() {
        // 950 + 130 p < 520.336 p from 3 pages on: a page that is copied to has to appear first.
        assert_eq!(moves_from(&Costs::DEFAULT), Some(3));
        // And 1,200 ns more: 2,150 / 390.336 = 5.5.
        let with = costs(SHOOT_DOWNS[1], 1, false);
        assert_eq!(moves_from(&with), Some(6));
        assert_eq!(planned(5, &with).0, Some(How::Copy));
        // The other core's 700 ns: 7.3.
        assert_eq!(moves_from(&costs(SHOOT_DOWNS[1], 1, true)), Some(8));
        assert_eq!(moves_from(&Costs::COPY_ONLY), None);
    }
}
