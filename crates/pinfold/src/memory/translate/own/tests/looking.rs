//! The threads that the kernel shows to be outside, and the use of that.
use std::sync::{atomic::AtomicBool, mpsc::channel};

use pinfold_sys::threads;

use super::super::{looking::Tasks, quarantine::Places};
use super::*;

#[test]
fn who_runs_is_never_outside_and_who_waits_is() {
    let (tell, told) = channel();
    let (stop, stopped) = channel::<()>();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ends, tell_too) = (&ends, tell.clone());
        scope.spawn(move || {
            tell.send(threads::own()).unwrap();
            while !ends.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let spins = told.recv().unwrap();
        scope.spawn(move || {
            tell_too.send(threads::own()).unwrap();
            let _ = stopped.recv();
        });
        let waits = told.recv().unwrap();
        while !Tasks.is_outside(waits) {
            std::thread::yield_now();
        }
        for _ in 0..100 {
            assert!(!Tasks.is_outside(spins));
        }
        ends.store(true, Ordering::Relaxed);
        drop(stop);
    });
}

#[test]
fn who_discards_is_not_outside() {
    let Ok(watch) = Watch::new() else { return eprintln!("SKIPPED: no userfaultfd") };
    let range = mapped(1);
    fill(range.clone());
    watch.watch(range.clone()).unwrap();
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            tell.send(threads::own()).unwrap();
            advise(range.clone(), Advice::LinuxDontNeed);
        });
        let id = told.recv().unwrap();
        while threads::place(id).unwrap() == threads::Place::Running || watch.is_quiet().unwrap() {
            std::thread::yield_now();
        }
        for _ in 0..100 {
            assert!(!Tasks.is_outside(id));
        }
        while watch.events(|_| {}).unwrap() == 0 {}
    });
    drop(watch);
    unmap(range);
}

/// Also if it came into quarantine after `begin` had asked.
#[test]
fn the_back_end_keeps_nothing_in_quarantine() {
    let Some(own) = keeping() else { return };
    let range = mapped(4);
    fill(range.clone());
    let (Some(guard), Some(cache)) = (&own.guard, &own.cache) else { panic!() };
    assert!(own.apply(guard));
    guard.quarantine.lock().note(range.end as u64 - 1, range.end as u64);
    let begin = |len: usize| cache.translate_unknown(HERE, range.start as u64, len as u64);
    let refused = begin(range.len()).unwrap_err();
    assert_eq!(refused, NoPin::Refused(Refused::NotKept(Why::Discarding.number())));
    cache.end(begin(3 * PAGE).unwrap().hold);
    drop(own);
    unmap(range);
}
