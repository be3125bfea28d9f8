//! Tests of the plan, and of how the time is shared.

use super::*;

fn wish() -> Wish {
    Wish {
        whats: What::ALL.to_vec(),
        sizes: vec![],
        kinds: Kind::ALL.to_vec(),
        routes: Route::ALL.to_vec(),
        settings: Setting::ALL.to_vec(),
        but: vec![],
        size_max: usize::MAX,
        memories: Memory::ALL.to_vec(),
        rounds: 5,
        touched: false,
        quick: true,
    }
}

#[test]
fn subjects_take_turns() {
    let wish = wish();
    let subjects = wish.subjects();
    let steps = steps(&wish, &wish.made());
    assert_eq!(subjects.len(), 27);
    // Every round has every row once, in order; every other round those of long messages.
    let mut rows: Vec<_> = steps.iter().map(|step| (step.round, step.cell)).collect();
    rows.dedup();
    let mut cells = wish.cells();
    cells.sort_by_key(|cell| cell.size);
    let in_round = |round: u32| {
        let here = move |cell: &Cell| cell.size < LONG_BYTES || round % 2 == 1;
        cells.clone().into_iter().filter(here).map(move |cell| (round, cell))
    };
    assert!(rows.into_iter().eq((0..5).flat_map(in_round)));
    for cell in cells {
        let here: Vec<_> = steps.iter().filter(|step| step.cell == cell).collect();
        let able = subjects.iter().filter(|&&id| wish.wants(cell, id)).count();
        let rounds = if cell.size < LONG_BYTES { 5 } else { 2 };
        assert_eq!(here.len(), able * rounds, "{cell:?}");
        for (at, round) in here.chunks(able).enumerate() {
            // Each row has every subject once, and starts with another one.
            let mut ids: Vec<_> = round.iter().map(|step| step.subject).collect();
            if at > 0 && able > 1 {
                assert_ne!(ids[0], here[(at - 1) * able].subject);
            }
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), able);
        }
    }
}

#[test]
fn only_what_makes_sense_is_planned() {
    let wish = wish();
    for step in steps(&wish, &wish.made()) {
        let Step { cell, subject, .. } = step;
        match (subject.kind, subject.route) {
            (Kind::Line, _) => assert_eq!((cell.what, cell.size), (What::Latency, 8)),
            (_, Some(Route::Inline)) => assert!(cell.size <= 56),
            (Kind::Ring, _) => assert_ne!(cell.what, What::Cpu),
            (_, Some(Route::FetchAdd | Route::Contended)) => assert_eq!(cell.what, What::Rate),
            (_, Some(Route::Put | Route::Get)) => assert_eq!(cell.what, What::Latency),
            (Kind::CmaWrite, _)
            | (_, Some(Route::Write | Route::Read | Route::WriteAgent | Route::ReadAgent)) => {
                assert!(matches!(cell.what, What::Latency | What::Rate) && !cell.touched);
                assert!(cell.size.is_multiple_of(8) && cell.size <= 4 << 20);
            }
            (_, Some(Route::Active)) => {
                assert_eq!(cell.size, 8);
                assert!(matches!(cell.what, What::Latency | What::Rate));
            }
            (_, Some(Route::Mapped)) | (Kind::Mapping, _) => {
                assert!(cell.size > 56 && !matches!(cell.what, What::Rate | What::Cpu));
            }
            _ => {}
        }
    }
}

#[test]
fn wishes_are_kept() {
    let wish = Wish {
        whats: vec![What::Rate, What::Latency],
        sizes: vec![100, 100],
        kinds: vec![Kind::Pinfold, Kind::Pipe],
        routes: vec![Route::Inline],
        settings: vec![Setting::Alone],
        ..wish()
    };
    let cells: Vec<_> = wish.cells().iter().map(|cell| (cell.what, cell.size)).collect();
    assert_eq!(cells, [(What::Latency, 100), (What::Rate, 8)]);
    assert_eq!(wish.subjects(), [Id::plain(Kind::Pipe), Id::pinfold(Route::Inline)]);
    assert!(steps(&wish, &[]).is_empty());
}

/// Runs the whole plan where each step takes `slowness` times what it should, and at least
/// `shortest`. Returns the time that passed, and the rounds that were done.
fn simulate(total: Duration, slowness: f64, shortest: Duration) -> (Duration, u32) {
    let (wish, budget) = (wish(), Budget::new(total));
    let steps = steps(&wish, &wish.made());
    let mut elapsed = Duration::ZERO;
    for (at, step) in steps.iter().enumerate() {
        match budget.next(elapsed, &steps, at, 0) {
            Turn::Take(share) => {
                assert!(share <= STEP_MAX && elapsed + share <= total);
                elapsed += share.mul_f64(slowness).max(shortest);
            }
            Turn::Skip => {}
            Turn::Stop => return (elapsed, step.round),
        }
    }
    (elapsed, wish.rounds)
}

#[test]
fn the_budget_is_kept() {
    let total = Duration::from_secs(25);
    // As planned: all rounds, all of the time and no more.
    let (elapsed, rounds) = simulate(total, 1.0, Duration::ZERO);
    assert!(elapsed <= total && elapsed > total.mul_f64(0.9), "{elapsed:?}");
    assert_eq!(rounds, 5);
    // Twice as slow, or with a great least: fewer rounds, but some for every row.
    for (slowness, shortest) in [(2.0, 0), (1.0, 60)] {
        let (elapsed, rounds) = simulate(total, slowness, Duration::from_millis(shortest));
        assert!(elapsed <= total + Duration::from_millis(500), "{elapsed:?}");
        assert!(rounds >= 1);
    }
    // Hopelessly slow: it ends all the same.
    let (elapsed, _) = simulate(total, 1.0, Duration::from_secs(2));
    assert!(elapsed <= total + Duration::from_secs(2));
}

#[test]
fn all_subjects_of_a_row_have_the_same_time() {
    let (wish, budget) = (wish(), Budget::new(Duration::from_secs(24)));
    let steps = steps(&wish, &wish.made());
    let (mut elapsed, mut shares) = (Duration::ZERO, Vec::new());
    for at in 0..steps.len() {
        let Turn::Take(share) = budget.next(elapsed, &steps, at, usize::MAX) else {
            panic!("{at}")
        };
        elapsed += share;
        shares.push(share / parts(&steps[at]));
    }
    let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    assert!(*most - *least < Duration::from_micros(10), "{least:?} {most:?}");
}

#[test]
fn what_cannot_end_in_time_is_not_begun() {
    let wish = Wish { sizes: vec![8, 1 << 30], whats: vec![What::Latency], ..wish() };
    let steps = steps(&wish, &wish.made());
    let budget = Budget::new(Duration::from_secs(25));
    let long = steps.iter().position(|step| step.cell.size == 1 << 30).unwrap();
    let next = |seconds, at, ready| budget.next(Duration::from_secs(seconds), &steps, at, ready);
    assert!(matches!(next(10, long, 0), Turn::Take(_)));
    assert_eq!(next(18, long, 0), Turn::Skip);
    assert!(matches!(next(18, long, 1 << 30), Turn::Take(_)));
    assert_eq!(next(24, long, 1 << 30), Turn::Skip);
    assert!(matches!(next(24, 0, 0), Turn::Take(_)));
}

#[test]
fn settings_are_measured_with_what_one_would_use_instead() {
    let wish = wish();
    let made = wish.made();
    let steps = steps(&wish, &made);
    for setting in Setting::ALL.into_iter().filter(|&setting| setting != Setting::Alone) {
        for what in What::ALL {
            let here = steps.iter().filter(|it| (it.cell.setting, it.cell.what) == (setting, what));
            let kinds = here.map(|it| it.subject.kind).collect::<std::collections::BTreeSet<_>>();
            let wanted: &[Kind] = match setting.measures(what) {
                true => &[Kind::Pipe, Kind::Unix, Kind::Tcp, Kind::Pinfold],
                false => &[],
            };
            assert!(kinds.iter().eq(wanted), "{setting:?} {what:?} {kinds:?}");
        }
    }
    // Only settings that make a difference to a subject have it set up anew.
    assert!(made.contains(&(Id::AUTO, Setting::Dedicated)));
    assert!(made.contains(&(Id::plain(Kind::Unix), Setting::Peers)));
    assert!(!made.contains(&(Id::AUTO, Setting::Paced)));
    assert!(steps.iter().all(|step| made.contains(&step.made())));
}

#[test]
fn nothing_goes_on_after_the_end() {
    let wish = wish();
    let steps = steps(&wish, &wish.made());
    let budget = Budget::new(Duration::from_secs(25));
    assert_eq!(budget.next(Duration::from_secs(25), &steps, 0, 0), Turn::Stop);
    assert_eq!(budget.next(Duration::from_secs(99), &steps, 0, 0), Turn::Stop);
    let last = budget.next(Duration::from_micros(24_999_900), &steps, 0, 0);
    assert_eq!(last, Turn::Take(Duration::from_micros(100)));
}

#[test]
fn messages_lie_where_it_is_wished() {
    let rows = |memories: &[Memory], sizes: &[usize], touched| {
        let memories = memories.to_vec();
        let wish = Wish { memories, sizes: sizes.to_vec(), touched, ..wish() };
        steps(&wish, &wish.made())
    };
    let heap = rows(&[Memory::Heap], &[], false);
    assert!(heap.iter().all(|step| step.subject.memory == Memory::Heap && !step.cell.touched));
    let arena = rows(&[Memory::Arena], &[], false);
    let pinfold = |step: &&Step| step.subject.kind == Kind::Pinfold;
    assert!(arena.iter().filter(pinfold).all(|step| step.subject.memory == Memory::Arena));
    // Beside every row are those that it is compared with, touched or not.
    for touched in [false, true] {
        let cell = Cell::alone(What::Bandwidth, 1 << 20, touched);
        for kind in [Kind::Memcpy, Kind::Mapping, Kind::Ring, Kind::Cma, Kind::Pipe] {
            let at = |step: &Step| step.cell == cell && step.subject.kind == kind;
            assert!(arena.iter().any(at), "{kind:?}");
        }
    }
    // Short messages fit into a descriptor, wherever they lie.
    let short = rows(&Memory::ALL, &[8, 4096], true);
    assert!(short.iter().all(|step| step.cell.touched));
    let in_arena = |step: &&Step| step.subject.memory == Memory::Arena;
    assert!(short.iter().filter(in_arena).all(|step| step.cell.size == 4096));
    assert!(short.iter().all(|step| step.subject != Id::pinfold(Route::Handoff)));
    assert!(short.iter().any(|step| step.subject == Id::ARENA));
}

#[test]
fn long_messages_can_be_left_out() {
    let wish = Wish { size_max: 1 << 20, ..wish() };
    let longest = |wish: &Wish| wish.cells().iter().map(|cell| cell.size).max();
    assert_eq!(longest(&wish), Some(1 << 20));
    assert_eq!(longest(&Wish { size_max: usize::MAX, ..wish }), Some(64 << 20));
    // Sizes that everything else would take for ever with are only given.
    let all = Wish { quick: false, ..self::wish() };
    let steps = steps(&all, &all.made());
    let mut long = steps.iter().filter(|step| step.cell.size > 64 << 20).peekable();
    assert!(long.peek().is_some());
    assert!(long.all(|step| step.subject == Id::pinfold(Route::Handoff)));
}
