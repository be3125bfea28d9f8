//! `unet-fair`: a TLB that endpoints share, whole or in parts: misses, fairness, attackers. Beyond
//! the paper.

use pinfold::translate::tlb::Tlb;

use super::shared::{Counts, Traffic, look_up, tlb};
use crate::{
    LabError,
    experiment::Run,
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

const NOT_HERE: &str = "the TLB is that of an interface's processor";
const ENTRIES: usize = 16_384;
const WAYS: usize = 4;
const PAGE: (u64, &str) = (64 << 10, "64 KB");
/// Parts of the TLB; an endpoint has one of them, by its number.
const PARTS: [usize; 4] = [1, 16, 256, 4096];
/// Attackers, which make half of all look-ups together; with 10,000 other endpoints.
const ATTACKERS: [u64; 4] = [0, 1, 64, 4096];
const ATTACKED: u64 = 10_000;
const HALF: u64 = 50;
/// Endpoints with fewer look-ups have no hit ratio to compare.
const FEW: u64 = 8;

/// The results of the honest endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Found {
    /// Misses, % of their look-ups.
    misses: f64,
    /// Jain's index of their hit ratios: 1 if all are alike, 1/n if one has all hits.
    fairness: f64,
}

/// Jain's fairness index (Jain, Chiu, Hawe, *A Quantitative Measure of Fairness and
/// Discrimination*, DEC-TR-301, 1984); 1 of nothing, or of nothing but zeros.
fn jain(all: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for it in all {
        count += 1.0;
        sum += it;
        squares += it * it;
    }
    if squares == 0.0 { 1.0 } else { sum * sum / (count * squares) }
}

/// Makes so many look-ups, of which the second half counts, in a TLB of so many parts.
fn found(
    traffic: &mut Traffic,
    (endpoints, attackers): (u64, u64),
    parts: usize,
    count: u64,
) -> Result<Found, LabError> {
    let own = ENTRIES / parts;
    let ways = WAYS.min(own);
    let all: Result<Vec<Tlb<u64>>, LabError> =
        (0..parts).map(|_| tlb(own / ways, ways, PAGE.0)).collect();
    let mut all = all?;
    let mut uses = vec![Counts::default(); endpoints as usize];
    let mut attacks = 0;
    for at in 0..count {
        let (mut endpoint, address) = traffic.next(PAGE.0);
        if endpoint == endpoints {
            // The attackers take turns.
            endpoint += attacks % attackers.max(1);
            attacks += 1;
        }
        let part = &mut all[(endpoint % parts as u64) as usize];
        let is_hit = look_up(part, endpoint, address);
        if at >= count / 2
            && let Some(of) = uses.get_mut(endpoint as usize)
        {
            of.look_ups += 1;
            of.misses += u64::from(!is_hit);
        }
    }
    let mut sum = Counts::default();
    for of in &uses {
        sum.look_ups += of.look_ups;
        sum.misses += of.misses;
    }
    let ratios = uses.iter().filter(|of| of.look_ups >= FEW).map(|of| 100.0 - of.percent());
    Ok(Found { misses: sum.percent(), fairness: jain(ratios) })
}

/// Adds both quantities of a result.
fn add(outcome: &mut Outcome, what: &str, series: &str, at: &str, found: Found) {
    let value = Value::new(&format!("misses{what}"), series, at, "%");
    outcome.values.push(value.model(found.misses));
    let value = Value::new(&format!("fairness{what}"), series, at, "");
    outcome.values.push(value.model(found.fairness));
}

/// Two plots, of misses and of fairness, by parts.
fn plots(title: &str, axis: &str, points: &[(f64, [Found; PARTS.len()])]) -> [Plot; 2] {
    let mut misses =
        Plot::new(&format!("Misses {title}"), Axis::log(axis), Axis::linear("% of look-ups"));
    let mut fairness =
        Plot::new(&format!("Fairness {title}"), Axis::log(axis), Axis::linear("Jain's index"));
    for (at, parts) in PARTS.into_iter().enumerate() {
        let name = words(parts);
        let of = |get: fn(Found) -> f64| points.iter().map(|(x, y)| (*x, get(y[at]))).collect();
        misses.add(&name, Column::Model, of(|it| it.misses));
        fairness.add(&name, Column::Model, of(|it| it.fairness));
    }
    [misses, fairness]
}

fn words(parts: usize) -> String {
    if parts == 1 { "shared".into() } else { format!("{parts} parts") }
}

/// Runs the experiment.
///
/// # Errors
/// The library's TLB refused its shape.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let count = run.pick(60_000, 4_000_000);
    let crowds: &[u64] =
        run.pick(&[100, 10_000, 1_000_000], &[100, 1000, 10_000, 100_000, 1_000_000]);
    let mut outcome = Outcome::new();
    let mut by_crowd = Vec::new();
    for (at, &endpoints) in crowds.iter().enumerate() {
        run.progress(0.7 * at as f64 / crowds.len() as f64, &format!("{endpoints} endpoints"));
        let traffic = Traffic::new(run, endpoints, 0);
        let mut all = [Found::default(); PARTS.len()];
        for (it, parts) in all.iter_mut().zip(PARTS) {
            *it = found(&mut traffic.clone(), (endpoints, 0), parts, count)?;
            add(&mut outcome, "", &words(parts), &format!("{endpoints} endpoints"), *it);
        }
        by_crowd.push((endpoints as f64, all));
    }
    outcome.plots.extend(plots("by endpoints", "endpoints", &by_crowd));
    let mut by_attackers = Vec::new();
    for (at, attackers) in ATTACKERS.into_iter().enumerate() {
        run.progress(0.7 + 0.3 * at as f64 / 4.0, &format!("{attackers} attackers"));
        let share = if attackers == 0 { 0 } else { HALF };
        let traffic = Traffic::new(run, ATTACKED, share);
        // As many look-ups of the honest, whatever the attackers'.
        let count = count * 100 / (100 - share);
        let mut all = [Found::default(); PARTS.len()];
        for (it, parts) in all.iter_mut().zip(PARTS) {
            *it = found(&mut traffic.clone(), (ATTACKED, attackers), parts, count)?;
            let at = format!("{attackers} attackers");
            add(&mut outcome, " of the honest", &words(parts), &at, *it);
        }
        by_attackers.push((attackers as f64, all));
    }
    outcome.plots.extend(plots("of the honest beside attackers", "attackers", &by_attackers[1..]));
    judge(&mut outcome, &by_crowd, &by_attackers);
    outcome.note(format!(
        "Ours; the traffic is that of `unet-shared`, pages of {}, {ENTRIES} entries of {WAYS} ways \
         without a victim list. In parts, an endpoint has the part of its number's remainder, with \
         as many of the entries as that part has: 4,096 parts have four entries, an endpoint's \
         pages, so that up to as many endpoints each have a TLB for themselves. Of {count} \
         look-ups the second half counts; fairness is Jain's index of the hit ratios of endpoints \
         that make {FEW} look-ups or more. Attackers take turns, and each of their look-ups is of \
         a new page; they make half of all.",
        PAGE.1
    ));
    Ok(outcome)
}

type Series = [(f64, [Found; PARTS.len()])];

fn judge(outcome: &mut Outcome, by_crowd: &Series, by_attackers: &Series) {
    let misses = |all: &[Found; PARTS.len()]| {
        all.iter().map(|it| format!("{:.1}", it.misses)).collect::<Vec<_>>().join(", ")
    };
    let words: Vec<String> =
        by_crowd.iter().map(|(count, all)| format!("{count:.0}: {} %", misses(all))).collect();
    let crowded = || by_crowd.iter().filter(|it| it.0 * 4.0 > ENTRIES as f64);
    outcome.claims.push(Claim::modelled(
        "where endpoints use more pages than there are entries, the more parts the more misses",
        Finding::of(
            crowded().all(|(_, all)| all[0].misses <= all[3].misses),
            format!("endpoints, by {PARTS:?} parts: {}", words.join("; ")),
        ),
        NOT_HERE,
    ));
    let (Some((_, none)), Some((_, one)), Some((_, many))) =
        (by_attackers.first(), by_attackers.get(1), by_attackers.last())
    else {
        return;
    };
    let hurt = |with: &[Found; PARTS.len()], at: usize| with[at].misses - none[at].misses;
    outcome.claims.push(Claim::modelled(
        "parts leave less than a third of one attacker's harm",
        Finding::of(
            (1..PARTS.len()).all(|at| hurt(one, at) < hurt(one, 0) / 3.0),
            format!(
                "one attacker with half of the look-ups adds {:.1} points shared, {:.1} in 16 \
                 parts, {:.1} in 256, {:.2} in 4,096",
                hurt(one, 0),
                hurt(one, 1),
                hurt(one, 2),
                hurt(one, 3)
            ),
        ),
        NOT_HERE,
    ));
    outcome.claims.push(Claim::modelled(
        "against as many attackers as parts, parts help no more",
        Finding::of(
            (1..PARTS.len()).all(|at| hurt(many, at) > hurt(many, 0) / 2.0),
            format!(
                "4,096 attackers with as many look-ups add {:.1} points shared, {:.1}, {:.1} and \
                 {:.1} in parts",
                hurt(many, 0),
                hurt(many, 1),
                hurt(many, 2),
                hurt(many, 3)
            ),
        ),
        NOT_HERE,
    ));
    let fair = |all: &[Found; PARTS.len()]| {
        all.iter().map(|it| format!("{:.3}", it.fairness)).collect::<Vec<_>>().join(", ")
    };
    outcome.claims.push(Claim::modelled(
        "parts of four entries are less fair than a TLB that all share, as long as nobody attacks",
        Finding::of(
            crowded().all(|(_, all)| all[0].fairness > all[3].fairness),
            format!(
                "Jain's index with 10,000 endpoints: {}; beside one attacker: {}",
                fair(none),
                fair(one)
            ),
        ),
        NOT_HERE,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Depth, SEED};

    #[test]
    fn jains_index_of_equals_and_of_one_of_four() {
        assert_eq!(jain([0.5; 4].into_iter()), 1.0);
        assert_eq!(jain([1.0, 0.0, 0.0, 0.0].into_iter()), 0.25);
        assert_eq!(jain([1.0, 0.0].into_iter()), 0.5);
        assert_eq!(jain(std::iter::empty()), 1.0);
    }

    #[test]
    fn an_attacker_hurts_its_part_alone() {
        let traffic =
            |attack| Traffic::new(&Run::new(Depth::Quick, SEED, false, &mut |_, _| {}), 16, attack);
        // 16 endpoints of four pages; each has a part, and the attacker has that of the first.
        let alone = found(&mut traffic(0), (16, 0), 4096, 4000).unwrap();
        assert_eq!(alone, Found { misses: 0.0, fairness: 1.0 });
        let beside = found(&mut traffic(50), (16, 1), 4096, 8000).unwrap();
        assert_eq!(beside, alone, "the attacker is the 17th");
        // As many attackers as parts: each part has one, which takes one of its four entries.
        let beside = found(&mut traffic(50), (16, 4096), 4096, 100_000).unwrap();
        assert!(beside.misses > 0.1, "{beside:?}");
    }
}
