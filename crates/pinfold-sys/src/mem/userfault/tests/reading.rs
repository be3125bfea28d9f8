//! The threads that read.
use rustix::thread::{CpuSet, sched_getaffinity};

use super::*;
use crate::{
    cpu::affinity::{current_cpus, pin_to},
    mem::userfault::duty::{Rule, Who},
};

fn reader() -> Option<Reader> {
    Some(Reader::new(watch()?).unwrap())
}

#[test]
fn what_is_heard_changes_the_stamp_before_the_caller_returns() {
    let Some(reader) = reader() else { return };
    let mut stamp = reader.take(|_| {});
    for _ in 0..200 {
        let range = mapped(2);
        reader.watch().watch(range.clone()).unwrap();
        while !reader.holds(stamp).unwrap() {
            stamp = reader.take(|event| panic!("{event:?}"));
        }
        unmap(range.clone());
        assert!(!reader.is_unchanged(stamp));
        assert!(!reader.holds(stamp).unwrap());
        let mut events = Vec::new();
        while !reader.holds(stamp).unwrap() {
            stamp = reader.take(|event| events.push(event));
        }
        assert_eq!(events, [Event::Unmapped(range)]);
    }
    assert!(!reader.is_unchanged(Stamp::NEVER));
}

#[test]
fn more_events_than_fit_are_lost_with_a_word() {
    let Some(reader) = reader() else { return };
    let range = mapped(1);
    reader.watch().watch(range.clone()).unwrap();
    for _ in 0..1100 {
        advise(range.clone(), Advice::LinuxDontNeed);
    }
    let mut events = Vec::new();
    let mut stamp = Stamp::NEVER;
    while !reader.holds(stamp).unwrap() {
        stamp = reader.take(|event| events.push(event));
    }
    assert_eq!(events[0], Event::Lost);
    assert!((1025..1100).contains(&events.len()), "{}", events.len());
    drop(reader);
    unmap(range);
}

/// Nobody hangs, however it ends.
#[test]
fn a_dropped_reader_leaves_nobody_waiting() {
    for _ in 0..20 {
        let Some(reader) = reader() else { return };
        let range = mapped(64);
        reader.watch().watch(range.clone()).unwrap();
        std::thread::scope(|scope| {
            let work = || {
                for page in range.clone().step_by(PAGE) {
                    unmap(page..page + PAGE);
                }
            };
            scope.spawn(work);
            drop(reader);
        });
    }
}

#[test]
fn a_child_drops_it_without_waiting() {
    let Some(reader) = reader() else { return };
    let range = mapped(2);
    reader.watch().watch(range.clone()).unwrap();
    let mut kept = Some(reader);
    let child = || {
        let reader = kept.take();
        let refused = reader.as_ref().is_some_and(|reader| {
            let stamp = reader.take(|_| {});
            reader.holds(stamp).is_err_and(|error| error.reason() == Reason::Child)
        });
        drop(reader);
        i32::from(!refused)
    };
    // SAFETY: the child drops its copies; the C library keeps the allocator usable.
    let pid = unsafe { crate::child::spawn(child) }.unwrap();
    assert_eq!(crate::child::status_of(pid), Some(0));
    // It still works here.
    unmap(range);
    drop(kept);
}

/// Memory that another thread gets anew at the same place, while the thread that unmapped it has
/// not returned yet, must never be taken for the old one.
#[test]
fn memory_given_anew_before_the_unmap_returns_is_noticed() {
    let Some(reader) = reader() else { return };
    let range = mapped(1);
    let (mut told, rounds) = (0, 300);
    for _ in 0..rounds {
        map_over(range.clone());
        fill(range.clone(), 1);
        reader.watch().watch(range.clone()).unwrap();
        let mut stamp = Stamp::NEVER;
        while !reader.holds(stamp).unwrap() {
            stamp = reader.take(|_| {});
        }
        std::thread::scope(|scope| {
            scope.spawn(|| unmap(range.clone()));
            let at = ptr::with_exposed_provenance_mut(range.start);
            let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
            // SAFETY: takes the place only once it is free.
            while unsafe { mm::mmap_anonymous(at, PAGE, RW, flags) }.is_err() {
                std::hint::spin_loop();
            }
            // From here on it is new memory.
            assert!(!reader.holds(stamp).unwrap());
            told += 1;
        });
    }
    assert_eq!(told, rounds);
    drop(reader);
    unmap(range);
}

const BOTH: [Who; 2] = [Who::Modest, Who::Ordinary];

/// The processors that the threads of a reader may run on, which are the same for both.
fn processors(reader: &Reader) -> Vec<usize> {
    let [one, other] = BOTH.map(|who| {
        let set = sched_getaffinity(Some(reader.thread_id(who))).unwrap();
        (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
    });
    assert_eq!(one, other);
    one
}

/// Runs `work` on a thread of its own, whose processor is nobody else's business.
fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

#[test]
fn it_comes_to_the_processor_of_who_calls_it() {
    let Some(reader) = reader() else { return };
    let all = current_cpus();
    assert_eq!(processors(&reader), all);
    for &cpu in all.iter().chain(&all) {
        apart(|| {
            pin_to(cpu).unwrap();
            // At once if it has rested; else it takes another call.
            for _ in 0..1000 {
                reader.come_here();
                if processors(&reader) == [cpu] {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            panic!("it is at {:?}, not at {cpu}", processors(&reader));
        });
    }
    // It does there as it did before.
    let range = mapped(1);
    reader.watch().watch(range.clone()).unwrap();
    unmap(range.clone());
    let (mut events, mut stamp) = (Vec::new(), Stamp::NEVER);
    // It may have read of the unmapping and be about to say so.
    while !reader.holds(stamp).unwrap() {
        stamp = reader.take(|event| events.push(event));
    }
    assert_eq!(events, [Event::Unmapped(range)]);
}

#[test]
fn it_does_not_come_to_realtime_threads() {
    let Some(reader) = reader() else { return };
    let all = processors(&reader);
    let asked = apart(|| {
        pin_to(all[0]).unwrap();
        let one = libc::sched_param { sched_priority: 1 };
        // SAFETY: it is read during the call.
        if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const one) } != 0 {
            crate::skip::skip("this user may not have realtime threads");
            return false;
        }
        reader.come_here();
        true
    });
    assert!(!asked || processors(&reader) == all);
}

#[test]
fn it_has_short_slices() {
    let slice = |thread: i32| {
        let mut attr = std::mem::MaybeUninit::<libc::sched_attr>::zeroed();
        let (size, at) = (size_of::<libc::sched_attr>(), attr.as_mut_ptr());
        // SAFETY: there is room for so many bytes.
        let got = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, at, size, 0) };
        assert_eq!(got, 0);
        // SAFETY: whole numbers, zero or as the kernel wrote them.
        unsafe { attr.assume_init() }.sched_runtime
    };
    let ordinary = slice(0);
    if ordinary == 0 {
        crate::skip::skip("this kernel has no slices of a thread's own");
        return;
    }
    let Some(reader) = reader() else { return };
    let thread = reader.thread_id(Who::Ordinary).as_raw_nonzero().get();
    // It has begun, and does this next.
    for _ in 0..1000 {
        if slice(thread) == 100_000 {
            return assert!(100_000 < ordinary, "{ordinary} ns");
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{} of {ordinary} ns", slice(thread));
}

#[test]
fn one_of_them_runs_where_nobody_else_wants_to() {
    // SAFETY: it takes a number and gives one.
    let policy = |thread: i32| unsafe { libc::sched_getscheduler(thread) };
    if policy(0) != libc::SCHED_OTHER {
        crate::skip::skip("the tests do not run as ordinary threads");
        return;
    }
    let Some(reader) = reader() else { return };
    let of = |who| policy(reader.thread_id(who).as_raw_nonzero().get());
    // It has begun, and does this next; unless this kernel does not count how late it is.
    for _ in 0..1000 {
        if of(Who::Modest) == libc::SCHED_IDLE {
            return assert_eq!(of(Who::Ordinary), libc::SCHED_OTHER);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("neither does");
}

/// Each event is read once, by either holder of the duty, and none is lost in between.
#[test]
fn threads_that_take_turns_lose_nothing() {
    let Some(watch) = watch() else { return };
    // The two change places each time they can.
    let rule = Rule { every: 1, late_ns: 0, term_ns: [0, 0] };
    let reader = Reader::by(watch, rule).unwrap();
    let range = mapped(1);
    let (mut stamp, mut events) = (Stamp::NEVER, Vec::new());
    for _ in 0..2000 {
        map_over(range.clone());
        reader.watch().watch(range.clone()).unwrap();
        unmap(range.clone());
        assert!(!reader.is_unchanged(stamp));
        while !reader.holds(stamp).unwrap() {
            stamp = reader.take(|event| events.push(event));
        }
        assert_eq!(std::mem::take(&mut events), [Event::Unmapped(range.clone())]);
    }
    let ran = BOTH.map(|who| switches(reader.thread_id(who)));
    // Half of the events each, and about one sleep for each of them: on a busy machine some find
    // the next event before they sleep.
    assert!(ran.iter().all(|&ran| ran >= 500), "{ran:?}");
}

/// Times that a thread of this process has slept.
fn switches(thread: rustix::thread::Pid) -> u64 {
    let path = format!("/proc/self/task/{}/status", thread.as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}
