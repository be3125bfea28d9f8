//! Every block gets an algorithm that the processor has.

use std::collections::HashSet;

use pinfold_sys::cpu::block::{Isa, Stores};
use proptest::prelude::*;

use super::*;
use crate::copy::Maker;

/// Processors: each with the C library, and any of the other instructions.
fn processor() -> impl Strategy<Value = HashSet<Isa>> {
    let isas = vec![Isa::Word, Isa::Rep, Isa::Sse2, Isa::Avx2, Isa::Avx512];
    proptest::sample::subsequence(isas, 0..=5).prop_map(|isas| {
        let mut isas: HashSet<Isa> = isas.into_iter().collect();
        isas.insert(Isa::Libc);
        isas
    })
}

fn block() -> impl Strategy<Value = Block> {
    let len = prop_oneof![
        0usize..1024,
        (0u32..64, -2i64..3)
            .prop_map(|(shift, off)| (1usize << shift).wrapping_add_signed(off as isize)),
        any::<usize>(),
    ];
    let state = || proptest::sample::select(CacheState::ALL.to_vec());
    let reader = proptest::sample::select(Reader::ALL.to_vec());
    (len, any::<usize>(), any::<usize>(), state(), state(), reader).prop_map(
        |(len, from, to, source, destination, reader)| Block {
            len,
            from,
            to,
            source,
            destination,
            reader,
        },
    )
}

fn makers() -> impl Strategy<Value = Maker> {
    proptest::sample::select(vec![Maker::Intel, Maker::Other])
}

/// Tables: the defaults of other machines, and any algorithm for everything.
fn table() -> impl Strategy<Value = Table> {
    let all: Vec<Algorithm> = Algorithm::all().collect();
    prop_oneof![
        (makers(), 0usize..1 << 30).prop_map(|(maker, bytes)| Table::defaults(
            maker,
            bytes,
            |_| true
        )),
        proptest::sample::select(all).prop_map(Table::uniform),
    ]
}

proptest! {
    #[test]
    fn every_block_gets_what_the_processor_has(
        isas in processor(), table in table(), block in block(),
    ) {
        let has = |algorithm: Algorithm| isas.contains(&algorithm.isa());
        let plan = Plan::new(table, Origin::Defaults, has);
        for (pick, few) in [
            (plan.pick(&block), plan.candidates(&block).collect::<Vec<_>>()),
            (plan.pick_zero(&block), plan.candidates_zero(&block).collect()),
        ] {
            prop_assert!(has(pick), "{pick}");
            prop_assert!(few.iter().all(|one| has(*one)), "{few:?}");
            prop_assert_eq!(few[0], pick);
            prop_assert!(few.contains(&Algorithm::LIBC));
            prop_assert_eq!(few.iter().collect::<HashSet<_>>().len(), few.len());
            if block.len < 2048 && block.len < choice_min(block.reader, block.destination) {
                prop_assert_eq!(few, [Algorithm::LIBC]);
            }
        }
    }

    #[test]
    fn defaults_need_not_be_fitted(
        maker in makers(), isas in processor(), block in block(), bytes in 0usize..1 << 30
    ) {
        let has = |algorithm: Algorithm| isas.contains(&algorithm.isa());
        let table = Table::defaults(maker, bytes, has);
        prop_assert!(table.clone().fitted(has) == table);
        let plan = Plan::new(table, Origin::Defaults, has);
        let large = Block { len: block.len.max(64 << 20), ..block };
        let can_stream = Algorithm::all().any(|it| has(it) && it.stores() == Stores::Streaming);
        // Beyond the last cache it is always past it.
        if bytes < 64 << 20 {
            prop_assert_eq!(plan.pick(&large).stores() == Stores::Streaming, can_stream);
        }
    }
}

#[test]
fn the_few_are_of_both_kinds() {
    let plan =
        Plan::new(Table::defaults(Maker::Intel, 32 << 20, |_| true), Origin::Defaults, |_| true);
    let names = |block: &Block| {
        plan.candidates(block).map(|algorithm| algorithm.to_string()).collect::<Vec<_>>()
    };
    let block = Block { len: 1 << 20, reader: Reader::OtherCore, ..Block::default() };
    let twin = "avx2+destination";
    assert_eq!(names(&block), ["avx2+streaming", "avx2", "libc", twin]);
    let mine = Block { reader: Reader::Me, ..block };
    assert_eq!(names(&mine), ["avx2", "avx2+streaming", "libc", twin]);
    assert_eq!(names(&Block { len: 2731, ..block }), ["avx2", "avx2+streaming", "libc", twin]);
    assert_eq!(
        names(&Block { len: 2048, ..block }),
        ["libc+destination", "avx2+streaming", "libc", twin]
    );
    assert_eq!(plan.pick(&Block { len: 64, ..block }), Algorithm::LIBC_FETCHED);
    assert_eq!(names(&Block { len: 63, ..block }), ["libc"]);
    // If nothing is learnt the C library's is the best guess; if something is, others are tried.
    let mine = Block { reader: Reader::Me, len: 2048, ..block };
    assert_eq!(plan.pick(&mine), Algorithm::LIBC);
    assert_eq!(names(&mine), ["libc", "avx2", "avx2+streaming", twin]);
    assert_eq!(names(&Block { len: 2049, ..mine }), ["avx2", "avx2+streaming", "libc", twin]);
    assert_eq!(names(&Block { len: 2047, ..mine }), ["libc"]);
}

#[test]
fn one_of_the_few_fetches_the_destination_otherwise() {
    let few = |temporal: &str, streaming: &str, fetches: bool| {
        let [temporal, streaming] = [temporal, streaming].map(|it| it.parse().unwrap());
        let choice = crate::copy::table::Choice::new(temporal, streaming, false);
        let has = |it: Algorithm| fetches || it.prefetch() != Prefetch::Destination;
        let table = Table::from_fn(|_, _| choice).unwrap();
        let plan = Plan::new(table, Origin::Defaults, has);
        let few = plan.candidates(&Block { len: 1 << 20, ..Block::default() });
        few.map(|algorithm| algorithm.to_string()).collect::<Vec<_>>().join(" ")
    };
    for (temporal, streaming, wanted) in [
        ("avx512", "avx2+streaming", "avx512 avx2+streaming libc avx512+destination"),
        ("avx512+destination", "avx2+streaming", "avx512+destination avx2+streaming libc avx512"),
        ("sse2+source", "sse2+streaming", "sse2+source sse2+streaming libc sse2+destination"),
        // Those that do not go by cache lines have none; streaming ones go by them.
        ("libc", "avx2+streaming", "libc avx2+streaming avx2+destination"),
        ("rep", "avx2+streaming", "rep avx2+streaming libc avx2+destination"),
        (
            "rep+destination",
            "avx2+streaming",
            "rep+destination avx2+streaming libc avx2+destination",
        ),
        // If none streams, its own.
        ("word", "word", "word libc word+destination"),
    ] {
        assert_eq!(few(temporal, streaming, true), wanted);
    }
    // A processor that cannot fetch has no such choice.
    assert_eq!(few("avx512", "avx2+streaming", false), "avx512 avx2+streaming libc");
}

#[test]
fn short_copies_are_fetched_for_or_picked_where_that_is_better() {
    let (fetched, rep) = (Algorithm::LIBC_FETCHED, "rep".parse().unwrap());
    let table = Table::from_fn(|situation, class| {
        let from = match situation.reader {
            Reader::OtherCore => 256,
            Reader::NearCore => 1024,
            Reader::FarCore => 2048,
            _ => 64,
        };
        let fetches = class >= class_of(from);
        let libc = if fetches { fetched } else { Algorithm::LIBC };
        let others = match situation.source {
            CacheState::Uncached => 512,
            CacheState::Cached => 256,
            _ => 64 << 10,
        };
        let best = if class >= class_of(others) { rep } else { libc };
        crate::copy::table::Choice::new(best, best, false)
    });
    let table = table.unwrap();
    let plan = |origin| Plan::new(table.clone(), origin, |_| true);
    let short = |plan: &Plan, reader, source, destination| {
        let Short { plain_below, fetched_below } =
            plan.short(Copies::of(reader, source, destination));
        let some = |len| (len != usize::MAX).then_some(len);
        (some(plain_below), some(fetched_below))
    };
    let from = |plan: &Plan, reader, destination| {
        let (plain, fetched) = short(plan, reader, CacheState::Unknown, destination);
        assert_eq!(fetched, None);
        plain
    };
    use CacheState::{Cached, Uncached};
    let defaults = plan(Origin::Defaults);
    assert_eq!(from(&defaults, Reader::OtherCore, Cached), Some(256));
    assert_eq!(from(&defaults, Reader::NearCore, Cached), Some(1024));
    assert_eq!(from(&defaults, Reader::FarCore, Cached), None);
    assert_eq!(from(&defaults, Reader::Me, Uncached), Some(64));
    let both = |reader, source| short(&defaults, reader, source, Uncached);
    assert_eq!(both(Reader::OtherCore, Uncached), (Some(256), Some(512)));
    assert_eq!(both(Reader::OtherCore, Cached), (Some(256), Some(256)));
    assert_eq!(both(Reader::FarCore, Uncached), (Some(512), Some(512)));
    assert_eq!(both(Reader::Me, Cached), (Some(64), Some(256)));
    // There is no choice.
    assert_eq!(from(&defaults, Reader::Me, Cached), None);
    assert_eq!(from(&plan(Origin::Variable(fetched)), Reader::Me, Uncached), None);
    let without = Plan::new(table.clone(), Origin::Defaults, |it| it != fetched);
    assert_eq!(from(&without, Reader::Me, Uncached), None);
}

#[test]
fn the_variable_leaves_no_choice() {
    let rep: Algorithm = "rep".parse().unwrap();
    let plan = Plan::new(Table::uniform(rep), Origin::Variable(rep), |_| true);
    let block = Block { len: 3072, ..Block::default() };
    assert_eq!(plan.candidates(&block).collect::<Vec<_>>(), [rep]);
    assert_eq!(plan.candidates_zero(&block).collect::<Vec<_>>(), [rep]);
    let short = Block { len: 2047, ..block };
    assert_eq!(plan.candidates(&short).collect::<Vec<_>>(), [Algorithm::LIBC]);
}

#[test]
fn what_is_known_of_a_block_is_looked_up() {
    // Each answer names the question.
    let table = Table::from_fn(|situation, _| {
        let temporal = match (situation.operation, situation.placement) {
            (Operation::Zero, Placement::Plain) => "rep",
            (Operation::Zero, _) => "rep+destination",
            (_, Placement::Plain) => "sse2",
            (_, Placement::Misaligned) => "avx2",
            (_, Placement::Aliased) => "word",
        };
        let streams = situation.source == CacheState::Cached;
        let streaming = if situation.destination == CacheState::Cached { "avx2" } else { "sse2" };
        crate::copy::table::Choice::new(
            temporal.parse().unwrap(),
            format!("{streaming}+streaming").parse().unwrap(),
            streams,
        )
    });
    let plan = Plan::new(table.unwrap(), Origin::Defaults, |_| true);
    let block = Block { len: 4096, ..Block::default() };
    let pick = |block: Block| (plan.pick(&block).to_string(), plan.pick_zero(&block).to_string());
    assert_eq!(pick(block), ("sse2".into(), "rep".into()));
    assert_eq!(pick(Block { to: 1000, ..block }), ("avx2".into(), "rep+destination".into()));
    assert_eq!(pick(Block { to: 64, ..block }), ("word".into(), "rep".into()));
    // The source counts for copies only.
    let cached = Block { source: CacheState::Cached, ..block };
    assert_eq!(pick(cached), ("sse2+streaming".into(), "rep".into()));
    let both = Block { destination: CacheState::Cached, ..cached };
    assert_eq!(pick(both), ("avx2+streaming".into(), "rep".into()));
}
