//! The judgement whether the machine was too busy for figures to mean anything. No I/O.
//!
//! A figure is worth nothing if other processes ran where it was measured: it then tells of their
//! time slices. Code that shows figures withholds these, and says why.

use super::{
    load::{Conditions, Load},
    units,
};

/// The part of the time that a process may have waited for a processor, or its processor for the
/// host.
const WAITED_MAX: f64 = 0.1;
/// If that time is not known: how often a second other processes may have taken its processor.
const PREEMPTED_PER_S_MAX: f64 = 25.0;
/// A cache line that takes longer from core to core, nanoseconds, waits for something else.
const HOP_NS_MAX: f64 = 5_000.0;
/// The factor by which rounds of the same may differ.
pub(crate) const SPREAD_MAX: f64 = 4.0;

/// The reason why measurements under such conditions are worth nothing, if so.
pub fn conditions(it: &Conditions, hop_ns: Option<f64>) -> Option<String> {
    let busy = |why: String| Some(format!("the machine was busy ({why})"));
    for side in 0..2 {
        if let Some(why) = waited(it, side) {
            return busy(why);
        }
    }
    if let Some((stolen_ns, of_ns)) = it.stolen
        && share(stolen_ns, of_ns) > WAITED_MAX
    {
        let percent = percent(share(stolen_ns, of_ns));
        return busy(format!("its host took {percent} of the time of a processor"));
    }
    match hop_ns {
        // Processes on one core hand it to each other.
        Some(hop_ns) if !it.one_core && hop_ns > HOP_NS_MAX => {
            busy(format!("a cache line took {} from core to core", units::time(hop_ns)))
        }
        _ => None,
    }
}

/// The reason that the load of one of the processes gives.
fn waited(it: &Conditions, side: usize) -> Option<String> {
    let (own, other): (Load, Load) = (it.sides[side], it.sides[1 - side]);
    let which = ["first", "second"][side];
    // On one core either waits for the other, as it should.
    let by_right_ns = if it.one_core { other.ran_ns } else { 0 };
    if let Some(waited_ns) = own.waited_ns {
        let part = share(waited_ns.saturating_sub(by_right_ns), it.wall_ns);
        let why =
            || format!("the {which} process waited {} of the time for a processor", percent(part));
        return (part > WAITED_MAX).then(why);
    }
    let preempted = own.preempted.filter(|_| !it.one_core && it.wall_ns > 0)?;
    let per_s = preempted as f64 * 1e9 / it.wall_ns as f64;
    let why = || format!("others took the {which} process's processor {per_s:.0} times a second");
    (per_s > PREEMPTED_PER_S_MAX).then(why)
}

/// The reason why a figure is worth nothing, by the results of its rounds, if so. All rounds that
/// there were are `of`: those of another class are not compared.
pub fn rounds(rounds: &[f64], of: usize) -> Option<String> {
    let sound = |value: &&f64| value.is_finite() && **value > 0.0;
    if rounds.is_empty() || !rounds.iter().all(|value| sound(&value)) {
        return Some("nothing was measured".into());
    }
    if of < 2 {
        return Some("there was time to measure it once only".into());
    }
    let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rounds.iter().copied().fold(0.0, f64::max);
    let spread = most / least;
    (spread > SPREAD_MAX).then(|| {
        format!(
            "the machine was busy (of {} rounds one came to {} times another, more than {SPREAD_MAX})",
            rounds.len(),
            units::number(spread)
        )
    })
}

fn share(part_ns: u64, of_ns: u64) -> f64 {
    if of_ns == 0 { 0.0 } else { part_ns as f64 / of_ns as f64 }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Load = Load { ran_ns: 990, waited_ns: Some(9), preempted: Some(1) };

    fn under(first: Load, second: Load) -> Conditions {
        Conditions {
            wall_ns: 1000,
            sides: [first, second],
            stolen: Some((1, 1000)),
            one_core: false,
        }
    }

    #[test]
    fn an_idle_machine_is_believed() {
        assert_eq!(conditions(&under(IDLE, IDLE), Some(48.0)), None);
        assert_eq!(conditions(&under(IDLE, IDLE), Some(400.0)), None);
        assert_eq!(conditions(&Conditions::default(), None), None);
        // A kernel that says nothing gives no reason to doubt.
        let silent = Load { ran_ns: 990, waited_ns: None, preempted: None };
        let nothing = Conditions { stolen: None, ..under(silent, silent) };
        assert_eq!(conditions(&nothing, Some(48.0)), None);
    }

    #[test]
    fn either_side_may_have_waited() {
        let beside_another = Load { ran_ns: 500, waited_ns: Some(480), preempted: Some(300) };
        let why = conditions(&under(beside_another, IDLE), Some(48.0)).unwrap();
        assert_eq!(
            why,
            "the machine was busy (the first process waited 48 % of the time for a processor)"
        );
        let why = conditions(&under(IDLE, beside_another), None).unwrap();
        assert!(why.contains("the second process waited"), "{why}");
    }

    #[test]
    fn switches_tell_where_waits_are_not_known() {
        let of = |preempted| {
            let load = Load { ran_ns: 0, waited_ns: None, preempted: Some(preempted) };
            conditions(&Conditions { wall_ns: 2_000_000_000, ..under(load, IDLE) }, None)
        };
        assert_eq!(of(40), None);
        let why = of(600).unwrap();
        assert!(why.contains("the first process's processor 300 times a second"), "{why}");
    }

    #[test]
    fn hosts_take_time() {
        let taken = Conditions { stolen: Some((300, 1000)), ..under(IDLE, IDLE) };
        let why = conditions(&taken, Some(48.0)).unwrap();
        assert!(why.contains("its host took 30 %"), "{why}");
        let why = conditions(&under(IDLE, IDLE), Some(2.64e6)).unwrap();
        assert!(why.contains("2.64 ms from core to core"), "{why}");
    }

    #[test]
    fn two_on_one_core_wait_for_each_other() {
        let half = Load { ran_ns: 495, waited_ns: Some(500), preempted: Some(900) };
        let two = Conditions { one_core: true, ..under(half, half) };
        assert_eq!(conditions(&two, Some(9_000.0)), None);
        let third = Load { ran_ns: 330, waited_ns: Some(660), preempted: Some(900) };
        let three = Conditions { one_core: true, ..under(third, third) };
        assert!(conditions(&three, None).unwrap().contains("33 %"));
    }

    #[test]
    fn rounds_have_to_agree() {
        assert_eq!(rounds(&[80.0, 81.0, 160.0], 3), None);
        assert_eq!(rounds(&[80.0], 3), None, "the others were of another class");
        let why = rounds(&[80.0, 81.0, 2.64e6], 3).unwrap();
        assert!(why.contains("33 000 times another, more than 4"), "{why}");
        assert!(rounds(&[80.0], 1).unwrap().contains("once only"));
        for nonsense in [&[][..], &[0.0, 80.0], &[f64::NAN, 1.0], &[-1.0, 1.0]] {
            assert_eq!(rounds(nonsense, 3).as_deref(), Some("nothing was measured"));
        }
    }
}
