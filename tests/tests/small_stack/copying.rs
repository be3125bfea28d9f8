//! Copies by handlers, sites and engines, and the tables that they go by.
#![allow(unsafe_code)]
// Invariant: blocks that are copied by address are vectors of the test's own, and long enough.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use pinfold::copy::{
    self, Algorithm, Block, CacheState, Caller, Fixed, Handler, Hints, InForce, Machine, Maker,
    Origin, Piece, Plan, Probe, Reader, Site, Sites, Tally,
    class::Class,
    engine::{CopyEngine, EngineConfig, Shutdown, Threads, Work},
    table::{self, Operation, Placement, Situation, Table},
    tuned::{self, Seen, Tuned},
};
use pinfold_tests::{block_on, stamp};

use super::small;

const LEN: usize = 1 << 20;

#[test]
fn pieces_and_plans() {
    small(|| {
        let from = stamp::bytes(LEN, 1);
        let mut to = vec![0; LEN];
        let rows = (0..LEN / 4096).map(|row| Piece { from: row * 4096, to: row * 2048, len: 2048 });
        let done = copy::copy_pieces(&mut to, &from, rows, Reader::OtherCore).unwrap();
        assert_eq!((done.pieces, done.copies, done.merged), (256, 256, 0));
        let wrong = [Piece { from: LEN, to: 0, len: 1 }];
        assert!(copy::copy_pieces(&mut to, &from, wrong, Reader::Me).is_err());
        for len in [10, 100, 1000, 5000, LEN] {
            // SAFETY: both are as long.
            unsafe { copy::copy_as_planned(Hints::default(), from.as_ptr(), to.as_mut_ptr(), len) };
            assert_eq!(to[..len], from[..len]);
        }
        // There is a plan already, most likely another one.
        if let Err(late) = copy::insist(Algorithm::LIBC) {
            assert!(!late.to_string().is_empty());
        }
        assert!(copy::size_class(100).is_none() && copy::size_class(5000).is_some());
        let block = Block { len: LEN, ..Block::default() };
        let plan = copy::plan();
        assert!(plan.candidates(&block).any(|it| it == plan.pick(&block)));
        assert!(plan.candidates_zero(&block).any(|it| it == plan.pick_zero(&block)));
        assert_eq!(Class::of(10.0, 10.0), Class::Near);
        assert!(Reader::core(Class::Near).is_other_core());
    });
}

#[test]
fn handlers_and_sites() {
    small(|| {
        let from = stamp::bytes(LEN, 2);
        let mut to = vec![0; LEN];
        let (source, target, hints) = (from.as_ptr(), to.as_mut_ptr(), Hints::default());
        let tally = Arc::<Tally>::default();
        let mut handler = Handler::counting(InForce, Arc::clone(&tally));
        let mut sites = Sites::new();
        let caller = Caller::here();
        for len in [300, 5000, LEN] {
            for _ in 0..40 {
                let site = sites.site(caller, len);
                // SAFETY: both are as long.
                let done = unsafe { handler.copy(site, hints, source, target, len) };
                done.learn(site, 1000);
                // SAFETY: as above.
                unsafe { handler.copy_untimed(site, hints, source, target, len) };
            }
        }
        assert_eq!((sites.counts().count(), sites.replaced()), (1, 0));
        assert!(handler.tally().counts().by_size.iter().any(|count| count.copies > 0));
        assert_eq!(to, from);
        let mut site = Site::new();
        let piece = Piece { from: source.addr(), to: target.addr(), len: LEN };
        // SAFETY: as above.
        unsafe {
            let done = handler.copy_pieces(&mut site, hints, source, target, [piece]);
            assert_eq!(done.bytes, LEN);
            let _ = Handler::new(Fixed(Algorithm::LIBC)).zero(&mut Site::new(), hints, target, LEN);
        }
        site.observe(LEN, Algorithm::LIBC, 1000);
        let _ = (site.is_settled(LEN), site.using(LEN));
        let _ = site.next(LEN, || [Algorithm::LIBC]);
        site.forget();
        assert!(site.using(LEN).is_none());
    });
}

#[test]
fn tables() {
    small(|| {
        let machine = Machine::this();
        let defaults =
            Table::defaults(Maker::this(), machine.last_cache_bytes(), Algorithm::is_supported);
        let same = Table::from_fn(|situation, class| defaults.choice(situation, class));
        assert!(same.is_some_and(|same| same == defaults));
        let situation = Situation::all().next().unwrap();
        assert_eq!(situation.operation, Operation::Copy);
        let class = situation.classes().start;
        assert_eq!(table::class_of(table::class_bytes(class)), class);
        assert!(table::choice_min(Reader::Me, CacheState::Cached) > 0);
        assert_eq!(Placement::of_copy(0, 1024), Placement::of_zero(64));
        let libc = Table::uniform(Algorithm::LIBC).fitted(|_| false);
        assert_eq!(libc.best(situation, LEN), Algorithm::LIBC);
        assert!(libc.rows().count() > 0 && !libc.to_string().is_empty());
        let plan = Plan::new(libc.clone(), Origin::Defaults, Algorithm::is_supported);
        assert!(*plan.table() == libc);
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("table");
        tuned::can_store(&file).unwrap();
        let tuned = Tuned { table: libc, measured_s: 1, seen: Seen::default() };
        tuned::store(&file, &machine, &tuned).unwrap();
        let loaded = tuned::load(&file, &machine).unwrap();
        assert!(loaded == tuned && loaded.seen.at(Class::Far) == 0);
        let _ = tuned::file(&machine);
    });
}

/// Hardly anything is measured in so short a time.
#[test]
fn measurements() {
    small(|| {
        match copy::tune(Duration::from_millis(20), None, |_| {}) {
            Ok(found) => assert!(found.measured <= found.cases && !format!("{found:?}").is_empty()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        assert!(Probe::is_right(CacheState::Cached, 7, 10));
        assert!(!Probe::is_right(CacheState::Uncached, 7, 10));
        let line = [0; 64];
        match Probe::calibrate() {
            Ok(probe) => {
                // SAFETY: it is there.
                let _ = unsafe { probe.look(line.as_ptr()) };
                assert_eq!(probe.judge(0), CacheState::Cached);
                assert!(probe.threshold_ticks() > 0 && probe.cost_ns()[0] >= 0.0);
                assert!(probe.accuracy().min(probe.accuracy_partly()) >= 0.0);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

#[test]
fn engines() {
    small(|| {
        let threads = Threads::new(2);
        assert_eq!(threads.started(), 0);
        let config = EngineConfig { bytes_min: 4096, part_bytes_min: 4096, ..Default::default() };
        let engine = CopyEngine::with_backend(threads, config);
        let from = Arc::<[u8]>::from(stamp::bytes(LEN, 3));
        let begin = || engine.copy(Arc::clone(&from), vec![0; LEN]).unwrap();
        let (end, _, to) = begin().wait().unwrap();
        end.unwrap();
        stamp::check(&to, 3);
        let (tell, told) = mpsc::channel();
        begin().then(move |end, _, to| tell.send((end, to)).unwrap());
        engine.turn();
        let (end, mut to) = told.recv().unwrap();
        end.unwrap();
        stamp::check(&to, 3);
        assert!(engine.copy(Arc::clone(&from), vec![0; 5]).is_err());
        engine.scope(|scope| {
            let (one, two) = to.split_at_mut(LEN / 2);
            let mut zeroed = scope.zero(one);
            while let Err(again) = zeroed.try_wait() {
                zeroed = again;
            }
            let copied = scope.copy(two, &from[LEN / 2..]).unwrap();
            let (end, _) = copied.wait();
            end.unwrap();
        });
        let (source, target) = (from.as_ptr(), to.as_mut_ptr());
        let work = Work::copy(source, target, LEN).planned().by(Algorithm::LIBC);
        assert_eq!((work.algorithm(), work.len(), work.is_empty()), (Algorithm::LIBC, LEN, false));
        assert_eq!((work.from(), work.to()), (Some(source), target));
        // SAFETY: both are as long, and stay until all has ended.
        unsafe {
            work.perform();
            let ticket = engine.submit(work);
            let _ = (ticket.cancel(), ticket.wait(), ticket.poll_end());
            block_on(engine.submit(work)).unwrap();
            engine.submit(work).then(|end| end.unwrap());
        }
        engine.shut_down(Shutdown::Finish);
        stamp::check(&to, 3);
    });
}
