//! Plans to fold: the pages that are moved, mapped or copied.

use proptest::prelude::*;

use super::{
    super::{HUGE_BYTES, PAGE_BYTES},
    *,
};

const PAGE: u64 = PAGE_BYTES as u64;
const HUGE: u64 = HUGE_BYTES as u64;

const WINDOW: Target = Target::Window { align: HUGE, maps_max: u32::MAX };

/// Costs with which it is easy to reckon: a byte costs 1, a page copied 4,096.
const PLAIN: Costs = Costs {
    move_call_ns: 1000.0,
    move_page_ns: 100.0,
    move_few_page_ns: 100.0,
    move_huge_ns: 200.0,
    map_call_ns: 3000.0,
    map_page_ns: 10.0,
    fault_ns: 0.0,
    copy_byte_ns: 1.0,
};

fn anonymous(at: u64, len: u64) -> Piece {
    Piece { at, len, room: len, huge: false, backing: Backing::Anonymous }
}

fn file(at: u64, len: u64) -> Piece {
    Piece { backing: Backing::File { offset: at + (7 << 30) }, ..anonymous(at, len) }
}

fn step(how: How, from: u64, to: u64, len: u64) -> Step {
    Step { how, from, to, len }
}

#[test]
fn whole_pages_are_moved_where_that_is_cheaper() {
    let plan = plan(&[anonymous(16 * PAGE, 4 * PAGE)], WINDOW, &PLAIN);
    assert_eq!(plan.steps, [step(How::Move, 16 * PAGE, 0, 4 * PAGE)]);
    assert_eq!((plan.cost_ns, plan.copy_ns), (1400.0, 16384.0));
    assert_eq!(plan.moving, Reasons { cheapest: 1, ..Reasons::default() });
    assert_eq!(plan.mapping, Reasons { backing: 1, ..Reasons::default() });
    assert_eq!(plan.only(), Some(How::Move));
}

#[test]
fn small_pieces_are_copied() {
    let costs = Costs { move_call_ns: 4000.0, ..PLAIN };
    let plan = plan(&[anonymous(16 * PAGE, PAGE), anonymous(32 * PAGE, PAGE)], WINDOW, &costs);
    assert_eq!(plan.only(), Some(How::Copy));
    assert_eq!(plan.steps.len(), 2);
    assert_eq!(plan.moving, Reasons { dearer: 2, ..Reasons::default() });
    assert_eq!((plan.cost_ns, plan.copy_ns), (8192.0, 8192.0));
}

#[test]
fn the_default_costs_say_what_was_measured() {
    let pieces = |len: u64| -> Vec<Piece> {
        (0..24).map(|at| Piece { huge: true, ..anonymous((24 - at) * HUGE, len) }).collect()
    };
    let huge = plan(&pieces(HUGE), WINDOW, &Costs::DEFAULT);
    assert_eq!(huge.only(), Some(How::Move));
    assert!(huge.copy_ns / huge.cost_ns > 60.0, "{huge}");
    let some = plan(&pieces(16 * PAGE), WINDOW, &Costs { fault_ns: 0.0, ..Costs::DEFAULT });
    assert_eq!(some.only(), Some(How::Move));
    assert!((1.2..2.0).contains(&(some.copy_ns / some.cost_ns)), "{some}");
    let small = plan(&pieces(PAGE), WINDOW, &Costs::DEFAULT);
    assert_eq!(small.only(), Some(How::Copy));
    for (pages, how) in [(2, How::Copy), (3, How::Move)] {
        assert_eq!(plan(&pieces(pages * PAGE), WINDOW, &Costs::DEFAULT).only(), Some(how));
    }
    let text = serde_json::to_string(&Costs::COPY_ONLY).unwrap();
    assert_eq!(serde_json::from_str::<Costs>(&text).unwrap(), Costs::COPY_ONLY);
    let all = plan(&pieces(HUGE), WINDOW, &Costs::COPY_ONLY);
    assert_eq!((all.only(), all.moving.unmeasured), (Some(How::Copy), 24));
}

#[test]
fn what_is_around_the_pages_is_copied() {
    // The message begins in the middle of a page, at the same offset as in the window: byte 0 of
    // both.
    let pieces = [anonymous(5 * PAGE, PAGE + 100), anonymous(9 * PAGE + 100, 3 * PAGE)];
    let plan = plan(&pieces, WINDOW, &PLAIN);
    assert_eq!(
        plan.steps,
        [
            step(How::Move, 5 * PAGE, 0, PAGE),
            step(How::Copy, 6 * PAGE, PAGE, 100),
            step(How::Copy, 9 * PAGE + 100, PAGE + 100, PAGE - 100),
            step(How::Move, 10 * PAGE, 2 * PAGE, 2 * PAGE),
            step(How::Copy, 12 * PAGE, 4 * PAGE, 100),
        ]
    );
    assert_eq!(plan.cost_ns, 1100.0 + 100.0 + (PAGE - 100) as f64 + 1200.0 + 100.0);
    assert_eq!(plan.only(), None);
}

#[test]
fn the_last_page_goes_whole_if_it_may() {
    let piece = |room| [Piece { room, ..anonymous(PAGE, 3 * PAGE + 1) }];
    let whole = plan(&piece(4 * PAGE), WINDOW, &PLAIN);
    assert_eq!(whole.steps, [step(How::Move, PAGE, 0, 4 * PAGE)]);
    // No page more than the last one, for any room; and only at the end of the message.
    assert_eq!(plan(&piece(9 * PAGE), WINDOW, &PLAIN).steps, whole.steps);
    let short = plan(&piece(4 * PAGE - 1), WINDOW, &PLAIN);
    assert_eq!(short.steps[0], step(How::Move, PAGE, 0, 3 * PAGE));
    let [first] = piece(4 * PAGE);
    let two = plan(&[first, anonymous(99 * PAGE + 1, 10), anonymous(0, 0)], WINDOW, &PLAIN);
    assert_eq!(two.steps[0], step(How::Move, PAGE, 0, 3 * PAGE));
    assert_eq!(two.moving, Reasons { cheapest: 1, misaligned: 1, ..Reasons::default() });
}

/// The processor forgets few pages one by one, and many all at once.
#[test]
fn few_pages_may_be_copied_where_more_are_moved() {
    let costs = Costs { move_few_page_ns: 5000.0, ..PLAIN };
    for (pages, how) in [(Costs::FEW_PAGES, How::Copy), (Costs::FEW_PAGES + 1, How::Move)] {
        let piece = |at| Piece {
            at,
            len: pages * PAGE,
            room: pages * PAGE,
            huge: false,
            backing: Backing::Anonymous,
        };
        let target = Target::Window { align: PAGE, maps_max: 9 };
        let plan = plan(&[piece(1 << 30), piece(1 << 20)], target, &costs);
        assert_eq!(plan.only(), Some(how), "{pages} pages: {plan}");
    }
}

#[test]
fn the_huge_part_is_moved_and_the_rest_copied() {
    // Moving small pages is dear here.
    let costs = Costs { move_page_ns: 5000.0, move_few_page_ns: 5000.0, ..PLAIN };
    let piece = Piece { huge: true, ..anonymous(4 * HUGE, 2 * HUGE + 3 * PAGE) };
    let plan_of = |piece, target| plan(&[piece], target, &costs);
    let split = plan_of(piece, WINDOW);
    assert_eq!(
        split.steps,
        [step(How::Move, 4 * HUGE, 0, 2 * HUGE), step(How::Copy, 6 * HUGE, 2 * HUGE, 3 * PAGE)]
    );
    assert_eq!(split.cost_ns, 1000.0 + 400.0 + 3.0 * PAGE as f64);
    // Where small pages are cheap they go along.
    let along = plan(&[piece], WINDOW, &PLAIN);
    assert_eq!(along.steps, [step(How::Move, 4 * HUGE, 0, 2 * HUGE + 3 * PAGE)]);
    assert_eq!(along.cost_ns, 1000.0 + 400.0 + 300.0);
    // No huge pages: none there, none in the window, or not in the same place.
    let small = Target::Window { align: PAGE, maps_max: 0 };
    assert_eq!(plan_of(piece, small).only(), Some(How::Copy));
    assert_eq!(plan_of(Piece { huge: false, ..piece }, WINDOW).only(), Some(How::Copy));
    assert_eq!(plan_of(Piece { at: piece.at + PAGE, ..piece }, WINDOW).only(), Some(How::Copy));
}

#[test]
fn files_are_mapped() {
    let plan = plan(&[file(8 * PAGE, 4 * PAGE), file(40 * PAGE, 5)], WINDOW, &PLAIN);
    assert_eq!(
        plan.steps,
        [
            step(How::Map, (7 << 30) + 8 * PAGE, 0, 4 * PAGE),
            step(How::Copy, 40 * PAGE, 4 * PAGE, 5)
        ]
    );
    assert_eq!(plan.mapping, Reasons { cheapest: 1, misaligned: 1, ..Reasons::default() });
    assert_eq!(plan.moving, Reasons { backing: 1, misaligned: 1, ..Reasons::default() });
    // Where the file's pages do not lie as those in memory do.
    let odd = Piece { backing: Backing::File { offset: 1 }, ..file(8 * PAGE, 4 * PAGE) };
    let plan = super::plan(&[odd], WINDOW, &PLAIN);
    assert_eq!((plan.only(), plan.mapping.backing), (Some(How::Copy), 1));
}

#[test]
fn mappings_go_where_they_save_most() {
    let pieces = [4, 9, 4, 8, 4].map(|pages| file(pages * 100 * PAGE, pages * PAGE));
    for (maps_max, mapped) in [(0, 0), (1, 9), (2, 17), (3, 21), (4, 25), (5, 29), (9, 29)] {
        let target = Target::Window { align: PAGE, maps_max };
        let plan = plan(&pieces, target, &PLAIN);
        assert_eq!(plan.bytes(How::Map), mapped * PAGE);
        assert_eq!(plan.mapping.cheapest, maps_max.min(5));
        assert_eq!(plan.mapping.no_maps, 5 - maps_max.min(5));
    }
}

#[test]
fn memory_of_somebody_is_copied_to() {
    let pieces = [anonymous(0, 9 * PAGE), file(HUGE, HUGE)];
    let costs = Costs { fault_ns: 1e9, ..PLAIN };
    let plan = plan(&pieces, Target::Memory, &costs);
    assert_eq!(
        (plan.only(), plan.moving.no_window, plan.mapping.no_window),
        (Some(How::Copy), 2, 2)
    );
    assert_eq!(plan.cost_ns, (9 * PAGE + HUGE) as f64);
    let empty = super::plan(&[], WINDOW, &PLAIN);
    assert_eq!((empty.only(), empty), (None, Plan::default()));
}

#[test]
fn neighbours_are_one_step() {
    let pieces = [anonymous(4 * PAGE, 2 * PAGE), anonymous(6 * PAGE, 2 * PAGE)];
    assert_eq!(plan(&pieces, WINDOW, &PLAIN).steps, [step(How::Move, 4 * PAGE, 0, 4 * PAGE)]);
    let apart = [anonymous(4 * PAGE, 2 * PAGE), anonymous(7 * PAGE, 2 * PAGE)];
    assert_eq!(plan(&apart, WINDOW, &PLAIN).steps.len(), 2);
}

#[test]
fn plans_say_why() {
    let pieces = [anonymous(4 * PAGE, 2 * PAGE), anonymous(6 * PAGE + 1, 100)];
    let said = plan(&pieces, WINDOW, &PLAIN).to_string();
    for part in ["8192 bytes moved", "cheapest: 1, not aligned: 1", "100 copied", "1300 ns"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(Plan::default().to_string().contains("no pieces"));
}

fn cost(max: f64) -> impl Strategy<Value = f64> {
    let odd = prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(0.0)];
    prop_oneof![9 => 0.0..max, 1 => odd]
}

fn costs() -> impl Strategy<Value = Costs> {
    let moving = (cost(5e3), cost(500.0), cost(500.0), cost(5e3));
    (moving, cost(5e3), cost(500.0), cost(500.0), cost(0.5)).prop_map(
        |(moving, map_call_ns, map_page_ns, fault_ns, copy_byte_ns)| {
            let (move_call_ns, move_page_ns, move_few_page_ns, move_huge_ns) = moving;
            Costs {
                move_call_ns,
                move_page_ns,
                move_few_page_ns,
                move_huge_ns,
                map_call_ns,
                map_page_ns,
                fault_ns,
                copy_byte_ns,
            }
        },
    )
}

/// Pieces far apart from each other, mostly of whole pages.
fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let len = prop_oneof![
        4 => (1u64..40).prop_map(|pages| pages * PAGE),
        2 => (1u64..3).prop_map(|huge| huge * HUGE),
        2 => 0u64..9 * PAGE,
        1 => (1u64..3, 0u64..2 * PAGE).prop_map(|(huge, more)| huge * HUGE + more),
    ];
    let offset =
        prop_oneof![3 => Just(0), 1 => (0u64..512).prop_map(|at| at * PAGE), 1 => 0u64..HUGE];
    let backing = prop_oneof![3 => Just(0), 3 => Just(1), 1 => Just(2), 1 => Just(3)];
    let piece = (len, offset, backing, any::<bool>(), 0u64..2 * PAGE);
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| {
        let piece = |(at, (len, offset, kind, huge, more))| {
            let at = (at as u64 + 1) * 16 * HUGE + offset;
            let backing = match kind {
                0 => Backing::Anonymous,
                1 => Backing::File { offset: at + (7 << 30) },
                2 => Backing::Other,
                _ => Backing::File { offset: at + 77 },
            };
            Piece { at, len, room: len + more, huge, backing }
        };
        pieces.into_iter().enumerate().map(piece).collect()
    })
}

fn targets() -> impl Strategy<Value = Target> {
    let align = prop_oneof![1 => Just(64), 2 => Just(PAGE), 3 => Just(HUGE)];
    let maps = prop_oneof![1 => 0u32..4, 2 => Just(u32::MAX)];
    let window = (align, maps).prop_map(|(align, maps_max)| Target::Window { align, maps_max });
    prop_oneof![9 => window, 1 => Just(Target::Memory)]
}

/// The cost of the steps by the model, reckoned apart from the plan: as many calls as steps, or
/// fewer.
fn cost_of(steps: &[Step], pieces: &[Piece], target: Target, costs: &Costs) -> f64 {
    let align = if let Target::Window { align, .. } = target { align } else { 1 };
    let number = |cost: f64| if cost.is_finite() && cost > 0.0 { cost } else { 0.0 };
    let of = |step: &Step| match step.how {
        How::Copy => {
            let pages = (step.to + step.len).div_ceil(PAGE) - step.to / PAGE;
            let pages = if target == Target::Memory { 0 } else { pages };
            number(costs.copy_byte_ns) * step.len as f64 + number(costs.fault_ns) * pages as f64
        }
        How::Map | How::Move => {
            let [call, few, page, huge] = match step.how {
                How::Move => {
                    let pages = [costs.move_few_page_ns, costs.move_page_ns];
                    [costs.move_call_ns, pages[0], pages[1], costs.move_huge_ns]
                }
                _ => [costs.map_call_ns, costs.map_page_ns, costs.map_page_ns, costs.map_page_ns],
            };
            let (mut huges, mut pages) = (0u64, 0u64);
            let (mut at, end) = (0, step.len);
            while at < end {
                let (from, to) = (step.from + at, step.to + at);
                let within = |p: &&Piece| {
                    let start = match p.backing {
                        Backing::File { offset } => offset,
                        _ => p.at,
                    };
                    (start..start + p.room).contains(&from)
                };
                let whole = pieces.iter().find(within).unwrap().huge
                    && align >= HUGE
                    && from % HUGE == 0
                    && to % HUGE == 0
                    && end - at >= HUGE;
                *if whole { &mut huges } else { &mut pages } += 1;
                at += if whole { HUGE } else { PAGE };
            }
            let page = if pages <= Costs::FEW_PAGES { few } else { page };
            call + huge * huges as f64 + page * pages as f64
        }
    };
    steps.iter().map(of).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn plans_are_right_and_never_dearer_than_copying(
        pieces in pieces(),
        target in targets(),
        costs in costs(),
    ) {
        let plan = plan(&pieces, target, &costs);
        prop_assert!(plan.cost_ns <= plan.copy_ns, "{}", plan);
        let total: u64 = pieces.iter().map(|piece| piece.len).sum();
        let copied: f64 = {
            let copy = |at: usize, to: u64| step(How::Copy, pieces[at].at, to, pieces[at].len);
            let mut to = 0;
            let mut sum = 0.0;
            for at in (0..pieces.len()).filter(|at| pieces[*at].len > 0) {
                sum += cost_of(&[copy(at, to)], &pieces, target, &costs);
                to += pieces[at].len;
            }
            sum
        };
        prop_assert!((plan.copy_ns - copied).abs() <= 1e-9 * copied);
        let cost = cost_of(&plan.steps, &pieces, target, &costs);
        prop_assert!((plan.cost_ns - cost).abs() <= 1e-6 * cost.max(1.0), "{} {}", cost, plan);
        // Every byte once, in order, and from where it is.
        let mut to = 0;
        for at in &plan.steps {
            prop_assert!(at.len > 0 && at.to == to);
            let mut begin = 0;
            let piece = pieces.iter().find(|piece| {
                begin += piece.len;
                begin > at.to
            });
            let piece = piece.unwrap();
            let skip = at.to - (begin - piece.len);
            let window = if let Target::Window { align, .. } = target { align } else { 1 };
            match (at.how, piece.backing) {
                (How::Copy, _) => prop_assert_eq!(at.from, piece.at + skip),
                (How::Move, Backing::Anonymous) => prop_assert_eq!(at.from, piece.at + skip),
                (How::Map, Backing::File { offset }) => prop_assert_eq!(at.from, offset + skip),
                wrong => prop_assert!(false, "{:?}", wrong),
            }
            if at.how != How::Copy {
                prop_assert!(window >= PAGE);
                prop_assert!(at.to % PAGE == 0 && at.from % PAGE == 0 && at.len % PAGE == 0);
                prop_assert!(skip + at.len <= piece.room);
            }
            to += at.len;
            // Bytes that go along lie behind the end, in the last page.
            prop_assert!(to <= total || at.how != How::Copy && to == total.next_multiple_of(PAGE));
        }
        prop_assert!(to >= total);
        if let Target::Window { maps_max, .. } = target {
            prop_assert!(plan.mapping.cheapest <= maps_max);
        }
        let filled = pieces.iter().filter(|piece| piece.len > 0).count() as u32;
        for Reasons { cheapest, dearer, misaligned, backing, no_maps, unmeasured, no_window } in
            [plan.moving, plan.mapping]
        {
            let sum = cheapest + dearer + misaligned + backing + no_maps + unmeasured + no_window;
            prop_assert_eq!(sum, filled);
        }
    }

    #[test]
    fn dearer_copies_make_no_more_copies(
        pieces in pieces(),
        target in targets(),
        costs in costs(),
        more in 0.0f64..10.0,
    ) {
        let dear = Costs { copy_byte_ns: costs.copy_byte_ns + more, ..costs };
        let (plan, dear) = (plan(&pieces, target, &costs), super::plan(&pieces, target, &dear));
        prop_assert!(dear.bytes(How::Copy) <= plan.bytes(How::Copy));
        let sane = costs.copy_byte_ns.is_finite() && costs.copy_byte_ns >= 0.0;
        prop_assert!(!sane || dear.cost_ns >= plan.cost_ns);
    }
}
