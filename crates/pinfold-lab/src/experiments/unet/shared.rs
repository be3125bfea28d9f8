//! `unet-shared`: the TLB of a network interface by endpoints, entries, ways and size of page;
//! shared or divided; with an endpoint that attacks it. Beyond the paper.

use pinfold::translate::{
    Rights, SpaceId,
    tlb::{Geometry, Lookup, Tlb},
};

use super::failed;
use crate::{
    LabError,
    experiment::Run,
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
    random::Random,
    workloads::zipf::Zipf,
};

const ID: &str = "unet-shared";
const NOT_HERE: &str = "the TLB is that of an interface's processor";
/// Memory that an endpoint sends from and receives into, in turn at random.
const ENDPOINT_BYTES: u64 = 256 << 10;
/// The address space of an endpoint begins at a multiple of this, so that no page has two.
const APART: u64 = 1 << 30;
const ENTRIES: [usize; 3] = [1024, 4096, 16_384];
const PAGES: [(u64, &str); 3] = [(4 << 10, "4 KB"), (64 << 10, "64 KB"), (2 << 20, "2 MB")];
const WAYS: [usize; 4] = [1, 2, 4, 8];
/// The middle of each sweep.
const MIDDLE: (usize, usize, (u64, &str)) = (4096, 4, PAGES[1]);
/// Shares of all look-ups that the attacker makes, %.
const ATTACKS: [u64; 3] = [0, 10, 50];
/// Endpoints and entries of the comparison with a divided TLB: each has four entries there, which
/// hold its pages of 64 KB and not those of 4 KB.
const FEW: (u64, usize) = (256, 1024);

/// Look-ups and misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) look_ups: u64,
    pub(super) misses: u64,
}

impl Counts {
    pub(super) fn percent(self) -> f64 {
        100.0 * self.misses as f64 / self.look_ups.max(1) as f64
    }
}

/// The look-ups of all endpoints.
#[derive(Clone)]
pub(super) struct Traffic {
    law: Zipf,
    random: Random,
    endpoints: u64,
    /// The attacker's share, %. It is one more endpoint, and each of its pages is a new one.
    attack: u64,
    fresh: u64,
}

/// Misses of the honest, %: by the attacker's share, for pages of 4 and 64 KB, shared and divided.
type Attacked = Vec<[[f64; 2]; 2]>;

impl Traffic {
    pub(super) fn new(run: &Run<'_>, endpoints: u64, attack: u64) -> Traffic {
        // The same endpoints are popular, whatever the TLB.
        let mut random = run.random(endpoints);
        let law = Zipf::new(&mut random, endpoints);
        Traffic { law, random, endpoints, attack, fresh: 0 }
    }

    /// Endpoint and address of the next look-up; the attacker's endpoint is the last.
    pub(super) fn next(&mut self, page_bytes: u64) -> (u64, u64) {
        if self.random.below(100) < self.attack {
            self.fresh += 1;
            return (self.endpoints, (self.endpoints + 1) * APART + self.fresh * page_bytes);
        }
        let endpoint = self.law.pick(&mut self.random);
        (endpoint, endpoint * APART + self.random.below(ENDPOINT_BYTES))
    }
}

pub(super) fn tlb(sets: usize, ways: usize, page_bytes: u64) -> Result<Tlb<u64>, LabError> {
    // The history tells compulsory misses apart, which are not asked for here.
    let geometry = Geometry { sets, ways, victims: 0, page_bytes, history_groups_max: 0 };
    Tlb::new(geometry).map_err(|why| failed(ID, why))
}

/// Looks up a page, and puts it in if it is missing. Returns whether it was there.
pub(super) fn look_up(tlb: &mut Tlb<u64>, endpoint: u64, address: u64) -> bool {
    let (space, rights) = (SpaceId(endpoint), Rights::ReadWrite);
    if let Lookup::Hit(_) = tlb.look_up(space, address, rights) {
        return true;
    }
    let _ = tlb.insert(space, address, rights, address);
    false
}

/// The second half of so many look-ups in a TLB that all share: of the honest endpoints, and of the
/// most popular hundredth of them. And the entries that are in use at the end.
fn shared(
    traffic: &mut Traffic,
    count: u64,
    (entries, ways, page_bytes): (usize, usize, u64),
) -> Result<([Counts; 2], usize), LabError> {
    let mut tlb = tlb(entries / ways, ways, page_bytes)?;
    let mut found = [Counts::default(); 2];
    let mut uses = vec![Counts::default(); traffic.endpoints as usize];
    for at in 0..count {
        let (endpoint, address) = traffic.next(page_bytes);
        let is_hit = look_up(&mut tlb, endpoint, address);
        if at >= count / 2 && endpoint < traffic.endpoints {
            let of = &mut uses[endpoint as usize];
            of.look_ups += 1;
            of.misses += u64::from(!is_hit);
        }
    }
    uses.sort_unstable_by_key(|it| std::cmp::Reverse(it.look_ups));
    let popular = (uses.len() / 100).max(1);
    for (at, of) in uses.iter().enumerate() {
        for counts in &mut found[..1 + usize::from(at < popular)] {
            counts.look_ups += of.look_ups;
            counts.misses += of.misses;
        }
    }
    Ok((found, tlb.entries()))
}

/// The same where each endpoint, the attacker as well, has as many entries for itself.
fn divided(
    traffic: &mut Traffic,
    count: u64,
    (entries, ways, page_bytes): (usize, usize, u64),
) -> Result<Counts, LabError> {
    let own = (entries as u64 / traffic.endpoints).max(1) as usize;
    let ways = ways.min(own);
    let make = |_| tlb((own / ways).next_power_of_two(), ways, page_bytes);
    let all: Result<Vec<Tlb<u64>>, LabError> = (0..=traffic.endpoints).map(make).collect();
    let (mut all, mut found) = (all?, Counts::default());
    for at in 0..count {
        let (endpoint, address) = traffic.next(page_bytes);
        let is_hit = look_up(&mut all[endpoint as usize], endpoint, address);
        if at >= count / 2 && endpoint < traffic.endpoints {
            found.look_ups += 1;
            found.misses += u64::from(!is_hit);
        }
    }
    Ok(found)
}

/// Runs the experiment.
///
/// # Errors
/// The library's TLB refused its shape.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let count = run.pick(40_000, 4_000_000);
    let crowds: &[u64] =
        run.pick(&[100, 1000, 10_000, 100_000], &[100, 1000, 10_000, 100_000, 1_000_000]);
    let mut outcome = Outcome::new();
    let by_size = sizes(run, &mut outcome, crowds, count)?;
    run.progress(0.8, "ways");
    let by_ways = ways(run, &mut outcome, count)?;
    run.progress(0.9, "attack");
    let attacked = attack(run, &mut outcome, count)?;
    judge(&mut outcome, &by_size, &by_ways, &attacked);
    outcome.note(format!(
        "Ours. Each endpoint has 256 KiB of memory that its messages use at random, and endpoints \
         are used by Zipf's law with exponent 0.9; of {count} look-ups the second half counts. The \
         TLB is the library's, without a victim list. A divided TLB gives each of {} endpoints \
         four of the same {} entries; it cannot have more endpoints than entries. The attacker is \
         one more endpoint, whose every look-up is of a new page. A larger page has \
         more memory pinned for each entry, whether the endpoint uses it or not: with 2 MB eight \
         times what the endpoint has.",
        FEW.0, FEW.1
    ));
    Ok(outcome)
}

/// Misses by endpoints, for each page and size: in that order.
fn sizes(
    run: &mut Run<'_>,
    outcome: &mut Outcome,
    crowds: &[u64],
    count: u64,
) -> Result<Vec<Vec<f64>>, LabError> {
    let mut all = Vec::new();
    let mut pins = Plot::new("Pinned memory", Axis::log("endpoints"), Axis::log("MiB"));
    for (page_bytes, page) in PAGES {
        let title = format!("Misses, pages of {page}");
        let mut plot = Plot::new(&title, Axis::log("endpoints"), Axis::linear("%"));
        for entries in ENTRIES {
            run.progress(all.len() as f64 / 12.0, &format!("{page}, {entries} entries"));
            let series = format!("{page}, {entries} entries");
            let (mut points, mut pinned) = (Vec::new(), Vec::new());
            for &endpoints in crowds {
                let mut traffic = Traffic::new(run, endpoints, 0);
                let shape = (entries, MIDDLE.1, page_bytes);
                let ([counts, popular], used) = shared(&mut traffic, count, shape)?;
                let at = format!("{endpoints} endpoints");
                let mib = (used as u64 * page_bytes) as f64 / (1 << 20) as f64;
                for (quantity, unit, model) in [
                    ("misses", "%", counts.percent()),
                    ("misses of the popular hundredth", "%", popular.percent()),
                    ("pinned", "MiB", mib),
                ] {
                    let value = Value::new(quantity, &series, &at, unit);
                    outcome.values.push(value.model(model));
                }
                points.push((endpoints as f64, counts.percent()));
                pinned.push((endpoints as f64, mib));
            }
            all.push(points.iter().map(|it| it.1).collect());
            plot.add(&format!("{entries} entries"), Column::Model, points);
            if entries == MIDDLE.0 {
                pins.add(page, Column::Model, pinned);
            }
        }
        outcome.plots.push(plot);
    }
    outcome.plots.push(pins);
    Ok(all)
}

/// Misses by ways.
fn ways(run: &Run<'_>, outcome: &mut Outcome, count: u64) -> Result<Vec<f64>, LabError> {
    let mut all = Vec::new();
    for ways in WAYS {
        let mut traffic = Traffic::new(run, 1000, 0);
        let shape = (MIDDLE.0, ways, MIDDLE.2.0);
        let percent = shared(&mut traffic, count, shape)?.0[0].percent();
        let series = format!("{}, {} entries, 1000 endpoints", MIDDLE.2.1, MIDDLE.0);
        let value = Value::new("misses by ways", &series, format!("{ways} ways"), "%");
        outcome.values.push(value.model(percent));
        all.push(percent);
    }
    Ok(all)
}

/// Misses of the honest, shared and divided, by the attacker's share.
fn attack(run: &Run<'_>, outcome: &mut Outcome, count: u64) -> Result<Attacked, LabError> {
    let mut all = Attacked::new();
    for share in ATTACKS {
        // As many look-ups of the honest, whatever the attacker's.
        let count = count * 100 / (100 - share);
        let mut both = [[0.0; 2]; 2];
        for (found, (page_bytes, page)) in both.iter_mut().zip(PAGES) {
            let shape = (FEW.1, MIDDLE.1, page_bytes);
            let traffic = || Traffic::new(run, FEW.0, share);
            *found = [
                shared(&mut traffic(), count, shape)?.0[0].percent(),
                divided(&mut traffic(), count, shape)?.percent(),
            ];
            for (way, percent) in ["shared", "divided"].into_iter().zip(*found) {
                let (series, at) =
                    (format!("{way}, {page}"), format!("attacker's share {share} %"));
                let value = Value::new("misses of the honest", &series, at, "%");
                outcome.values.push(value.model(percent));
            }
        }
        all.push(both);
    }
    let title = "Misses of the honest beside an attacker";
    let mut plot = Plot::new(title, Axis::linear("attacker's look-ups, %"), Axis::linear("%"));
    for (at, (_, page)) in PAGES.iter().take(2).enumerate() {
        for (way, word) in ["shared", "divided"].into_iter().enumerate() {
            let points = ATTACKS.iter().zip(&all).map(|(&x, it)| (x as f64, it[at][way]));
            plot.add(&format!("{word}, {page}"), Column::Model, points.collect());
        }
    }
    outcome.plots.push(plot);
    Ok(all)
}

fn judge(outcome: &mut Outcome, by_size: &[Vec<f64>], by_ways: &[f64], attacked: &Attacked) {
    let rises = by_size.iter().flat_map(|row| row.windows(2)).filter(|it| it[1] < it[0]).count();
    let ends = |row: &Vec<f64>| (row.first().copied(), row.last().copied());
    let spread: Vec<String> = by_size
        .iter()
        .map(ends)
        .map(|(few, many)| format!("{:.0} to {:.0}", few.unwrap_or(0.0), many.unwrap_or(0.0)))
        .collect();
    outcome.claims.push(Claim::modelled(
        "more endpoints miss more often, whatever the entries and the page",
        Finding::of(
            rises == 0,
            format!(
                "from 100 endpoints to the most, by page and entries, %: {}",
                spread.join(", ")
            ),
        ),
        NOT_HERE,
    ));
    let (one, most) = (by_ways.first().copied(), by_ways.last().copied());
    let (one, most) = (one.unwrap_or(0.0), most.unwrap_or(0.0));
    outcome.claims.push(Claim::modelled(
        "ways help where endpoints lie at random: with 8 there are fewer misses than with 1",
        Finding::of(most < one, format!("{one:.1} % with 1 way, {most:.1} % with {}", WAYS[3])),
        NOT_HERE,
    ));
    let (Some([small, large]), Some([_, hurt])) = (attacked.first(), attacked.last()) else {
        return;
    };
    outcome.claims.push(Claim::modelled(
        "a TLB that is shared serves better where an endpoint's part would not hold its pages, and \
         not where it would",
        Finding::of(
            small[0] < small[1] && large[1] <= large[0],
            format!(
                "pages of 4 KB: {:.1} % misses shared, {:.1} % divided; of 64 KB: {:.1} % and \
                 {:.1} %",
                small[0], small[1], large[0], large[1]
            ),
        ),
        NOT_HERE,
    ));
    outcome.claims.push(Claim::modelled(
        "an attacker hurts the others where the TLB is shared, and not where it is divided",
        Finding::of(
            hurt[0] - large[0] > 5.0 && (hurt[1] - large[1]).abs() < 1.0,
            format!(
                "pages of 64 KB: with half of the look-ups an attacker's, the others miss {:.1} % \
                 in place of {:.1} % shared, and {:.1} % in place of {:.1} % divided",
                hurt[0], large[0], hurt[1], large[1]
            ),
        ),
        NOT_HERE,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Depth, SEED};

    fn traffic(endpoints: u64, attack: u64) -> Traffic {
        Traffic::new(&Run::new(Depth::Quick, SEED, false, &mut |_, _| {}), endpoints, attack)
    }

    #[test]
    fn endpoints_that_fit_miss_no_more() {
        // 16 endpoints with a page of 2 MB each, in a TLB of 1,024 entries.
        let ([all, popular], used) = shared(&mut traffic(16, 0), 2000, (1024, 4, 2 << 20)).unwrap();
        assert_eq!((all.look_ups, all.misses, used), (1000, 0, 16));
        assert!(popular.look_ups > 0 && popular.look_ups < 500);
        let own = divided(&mut traffic(16, 0), 2000, (1024, 4, 2 << 20)).unwrap();
        assert_eq!((own.look_ups, own.misses), (1000, 0));
    }

    #[test]
    fn an_attacker_gets_its_share_and_does_not_count() {
        let ([all, _], _) = shared(&mut traffic(16, 50), 4000, (64, 4, 2 << 20)).unwrap();
        assert!((900..1100).contains(&all.look_ups) && all.misses > 0, "{all:?}");
        let own = divided(&mut traffic(16, 50), 4000, (64, 4, 2 << 20)).unwrap();
        assert_eq!(own.misses, 0);
    }
}
