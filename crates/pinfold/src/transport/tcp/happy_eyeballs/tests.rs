//! The race of a name's addresses, by a made-up clock.

use super::*;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const END: u64 = 30 * S;

fn four(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 7).into()
}

fn six(last: u16) -> SocketAddr {
    ([0xfd00, 0, 0, 0, 0, 0, 0, last], 7).into()
}

/// The steps that are begun before anything has to be waited for.
fn begun(race: &mut HappyEyeballs, now: u64) -> (Vec<Next>, Next) {
    let mut all = Vec::new();
    loop {
        match race.next(now) {
            end @ (Next::Wait(_) | Next::Over) => return (all, end),
            next => all.push(next),
        }
        assert!(all.len() < 100, "without end: {all:?}");
    }
}

#[test]
fn families_take_turns() {
    let given = [six(1), six(2), six(3), four(1), four(2), six(1)];
    assert_eq!(in_turns(&given), [six(1), four(1), six(2), four(2), six(3)]);
    assert_eq!(in_turns(&[four(1), four(2), six(1)]), [four(1), six(1), four(2)]);
    assert_eq!(in_turns(&[four(2), four(1)]), [four(2), four(1)]);
    assert_eq!(in_turns(&[]), []);
}

#[test]
fn who_is_silent_has_250_ms() {
    let mut race = HappyEyeballs::new(&[six(1), six(2), four(1)], false, 0, END);
    let mut now = 0;
    for address in [six(1), four(1), six(2)] {
        assert_eq!(race.next(now), Next::Try(address));
        if address != six(2) {
            assert_eq!(race.next(now + 250 * MS - 1), Next::Wait(now + 250 * MS));
        }
        now += 250 * MS;
    }
    // All three are under way until the end.
    assert_eq!(race.next(now), Next::Wait(END));
    assert_eq!(race.next(END - 1), Next::Wait(END));
    assert_eq!(race.next(END), Next::Over);
}

#[test]
fn after_a_failure_the_next_is_tried_at_once() {
    let mut race = HappyEyeballs::new(&[six(1), four(1), six(2)], false, 0, END);
    assert_eq!(race.next(0), Next::Try(six(1)));
    race.failed(MS, six(1), Failed::Passing);
    assert_eq!(race.next(MS), Next::Try(four(1)));
    race.failed(2 * MS, four(1), Failed::ForGood);
    assert_eq!(race.next(2 * MS), Next::Try(six(2)));
    assert_eq!(race.next(3 * MS), Next::Wait(END));
    race.failed(4 * MS, six(2), Failed::Useless);
    // A caller that does not wait tries each once.
    assert_eq!(race.next(4 * MS), Next::Over);
}

#[test]
fn what_did_not_win_is_tried_if_the_winner_comes_to_nothing() {
    let mut race = HappyEyeballs::new(&[six(1), four(1), six(2)], false, 0, END);
    assert_eq!(race.next(0), Next::Try(six(1)));
    assert_eq!(race.next(250 * MS), Next::Try(four(1)));
    race.won(300 * MS, four(1));
    race.failed(S, four(1), Failed::ForGood);
    assert_eq!(race.next(S), Next::Try(six(1)));
    assert_eq!(race.next(S + 250 * MS), Next::Try(six(2)));
}

#[test]
fn who_waits_tries_again_until_the_end() {
    let mut race = HappyEyeballs::new(&[four(1)], true, 0, 10 * S);
    let (mut now, mut pauses) = (0, Vec::new());
    loop {
        match race.next(now) {
            Next::Try(address) => race.failed(now, address, Failed::Passing),
            Next::Wait(at) => {
                pauses.push((at - now) / MS);
                now = at;
            }
            Next::Over => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(now, 10 * S);
    assert_eq!(pauses[..7], [20, 40, 80, 160, 320, 500, 500]);
    assert!(pauses.len() > 20 && pauses.len() < 30, "{pauses:?}");
}

/// One family leads into a void, and the listener of the other comes later.
#[test]
fn who_waits_hears_of_one_while_another_is_silent() {
    let mut race = HappyEyeballs::new(&[six(1), four(1)], true, 0, END);
    assert_eq!(race.next(0), Next::Try(six(1)));
    let mut tries = 0;
    let mut now = 250 * MS;
    while now < 3 * S {
        match race.next(now) {
            Next::Try(address) => {
                assert_eq!(address, four(1));
                tries += 1;
                race.failed(now, address, Failed::Passing);
            }
            Next::Wait(at) => now = at,
            other => panic!("{other:?}"),
        }
    }
    assert!(tries > 5, "{tries}");
    race.failed(now, four(1), Failed::Passing);
    // A silent address is called anew, for the route may be there by now.
    let (mut ended, mut again) = (false, false);
    while now < 6 * S {
        match race.next(now) {
            Next::End(address) => {
                assert_eq!((address, now), (six(1), 4 * S));
                ended = true;
            }
            Next::Try(address) if address == six(1) => again = true,
            Next::Try(address) => race.failed(now, address, Failed::Passing),
            Next::Wait(at) => now = at,
            other => panic!("{other:?}"),
        }
    }
    assert!(ended && again);
}

#[test]
fn an_answer_ends_the_wait_when_all_were_tried() {
    let mut race = HappyEyeballs::new(&[six(1), four(1)], true, 0, END);
    assert_eq!(race.next(0), Next::Try(six(1)));
    race.won(MS, six(1));
    race.failed(2 * MS, six(1), Failed::ForGood);
    assert_eq!(race.next(2 * MS), Next::Try(four(1)));
    race.failed(3 * MS, four(1), Failed::Passing);
    assert_eq!(race.next(3 * MS), Next::Over);
    // The same in the other order.
    let mut race = HappyEyeballs::new(&[six(1), four(1)], true, 0, END);
    assert_eq!(race.next(0), Next::Try(six(1)));
    race.failed(MS, six(1), Failed::Passing);
    assert_eq!(race.next(MS), Next::Try(four(1)));
    race.failed(2 * MS, four(1), Failed::ForGood);
    assert_eq!(race.next(2 * MS), Next::Over);
}

#[test]
fn what_is_of_no_use_is_no_answer() {
    let mut race = HappyEyeballs::new(&[six(1), four(1)], true, 0, END);
    assert_eq!(race.next(0), Next::Try(six(1)));
    race.failed(0, six(1), Failed::Useless);
    assert_eq!(race.next(0), Next::Try(four(1)));
    race.failed(0, four(1), Failed::Passing);
    assert_eq!(race.next(0), Next::Wait(20 * MS));
    assert_eq!(race.places().collect::<Vec<_>>(), [four(1)]);
    race.failed(0, four(1), Failed::Useless);
    assert_eq!(race.next(0), Next::Over);
}

#[test]
fn a_name_is_looked_up_first() {
    let mut race = HappyEyeballs::by_name(false, 0, END);
    assert_eq!(begun(&mut race, 0), (vec![Next::LookUp], Next::Wait(END)));
    race.found(S, &[four(1), four(2)]);
    let (tried, _) = begun(&mut race, S);
    assert_eq!(tried, [Next::Try(four(1))]);
    race.failed(S, four(1), Failed::Passing);
    race.failed(S, four(2), Failed::Passing);
    // It is asked for once.
    assert_eq!(begun(&mut race, 5 * S), (vec![], Next::Over));
    let mut race = HappyEyeballs::by_name(false, 0, END);
    assert_eq!(race.next(0), Next::LookUp);
    race.not_found(0, true);
    assert_eq!(race.next(0), Next::Over);
}

#[test]
fn who_waits_looks_names_up_again() {
    let mut race = HappyEyeballs::by_name(true, 0, END);
    assert_eq!(race.next(0), Next::LookUp);
    race.not_found(0, true);
    assert_eq!(race.next(0), Next::Wait(S));
    assert_eq!(race.next(S), Next::LookUp);
    race.no_room(S);
    assert_eq!(race.next(S), Next::Wait(S + 20 * MS));
    assert_eq!(race.next(S + 20 * MS), Next::LookUp);
    race.found(2 * S, &[four(1)]);
    assert_eq!(race.next(2 * S), Next::Try(four(1)));
    race.failed(2 * S, four(1), Failed::Passing);
    assert_eq!(race.next(2 * S + 20 * MS), Next::Try(four(1)));
    // Meanwhile it leads elsewhere. Attempts under way go on.
    let (asked, _) = begun(&mut race, 3 * S);
    assert_eq!(asked, [Next::LookUp]);
    race.found(3 * S, &[six(2)]);
    assert_eq!(race.next(3 * S), Next::Try(six(2)));
    race.failed(3 * S, four(1), Failed::Passing);
    race.failed(3 * S, six(2), Failed::Passing);
    let (asked, _) = begun(&mut race, 4 * S);
    assert!(asked.contains(&Next::LookUp), "{asked:?}");
    race.found(4 * S, &[six(2)]);
    assert_eq!(race.places().collect::<Vec<_>>(), [six(2)]);
    // It is none any more, and never will be.
    let mut race = HappyEyeballs::by_name(true, 0, END);
    assert_eq!(race.next(0), Next::LookUp);
    race.not_found(0, false);
    assert_eq!(race.next(0), Next::Over);
}

#[test]
fn a_lookup_that_fails_later_takes_nothing_away() {
    let mut race = HappyEyeballs::by_name(true, 0, END);
    assert_eq!(race.next(0), Next::LookUp);
    race.found(0, &[four(1)]);
    assert_eq!(race.next(0), Next::Try(four(1)));
    race.failed(0, four(1), Failed::Passing);
    assert_eq!(race.next(20 * MS), Next::Try(four(1)));
    race.failed(20 * MS, four(1), Failed::Passing);
    let (asked, _) = begun(&mut race, S);
    assert_eq!(asked, [Next::LookUp, Next::Try(four(1))]);
    race.not_found(S, false);
    race.failed(S, four(1), Failed::Passing);
    assert!(matches!(race.next(S), Next::Wait(_)));
}

#[test]
fn nobody_to_call_is_the_end() {
    assert_eq!(HappyEyeballs::new(&[], true, 0, END).next(0), Next::Over);
    let mut race = HappyEyeballs::by_name(true, 0, END);
    assert_eq!(race.next(0), Next::LookUp);
    race.found(0, &[]);
    assert_eq!(race.next(0), Next::Over);
}
