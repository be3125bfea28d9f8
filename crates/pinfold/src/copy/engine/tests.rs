#![allow(unsafe_code)]
//! The engine with threads, and with a back end that makes every fault it may. Unsafe for raw
//! requests and a back end.

mod faulty;
mod order;

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use self::faulty::{Faults, Faulty};
use super::*;

/// Bytes that tell their places apart.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + seed * 31 + 1) as u8).collect()
}

/// Everything is queued, and split where it can be.
fn eager() -> EngineConfig {
    EngineConfig { threads: 2, queue_max: 16, bytes_min: 1, part_bytes_min: 4096 }
}

/// A back end that does nothing as long as this is there: a test that fails does not hang.
struct Hold(Faulty);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.hold(false);
    }
}

/// An engine whose back end does nothing before it is let go.
fn held(config: EngineConfig) -> (CopyEngine, Hold) {
    let backend = Faulty::new(1, Faults::default());
    backend.hold(true);
    (CopyEngine::with_backend(backend.clone(), config), Hold(backend))
}

/// A buffer that says when it is dropped.
struct Told(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Told {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl AsMut<[u8]> for Told {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

/// Waits for a future, asleep.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn a_copy_is_split_and_arrives() {
    let engine = CopyEngine::new(eager());
    let from = pattern((9 << 20) + 13, 1);
    let request = engine.copy(from.clone(), vec![0; from.len()]).unwrap();
    let (end, from, to) = request.wait().unwrap();
    assert_eq!(end, Ok(()));
    assert!(from == to);
    let counts = engine.counts();
    assert_eq!((counts.queued, counts.short, counts.full), (1, 0, 0));
    assert!(counts.parts >= 3, "{counts:?}");
}

#[test]
fn what_is_short_is_copied_at_once_and_starts_no_thread() {
    let engine = CopyEngine::new(EngineConfig { bytes_min: 1000, ..eager() });
    let mut request = engine.copy(pattern(999, 1), vec![0; 999]).unwrap();
    let (end, from, to) = request.try_wait().unwrap();
    assert_eq!((end, from), (Ok(()), to));
    // They are handed out once.
    assert!(request.try_wait().is_none());
    assert!(request.wait().is_none());
    let counts = engine.counts();
    assert_eq!((counts.short, counts.queued, counts.parts), (1, 0, 0));
    let none = engine.copy(vec![], vec![]).unwrap().wait().unwrap();
    assert_eq!(none, (Ok(()), vec![], vec![]));
}

#[test]
fn lengths_that_differ_give_the_buffers_back() {
    let engine = CopyEngine::new(eager());
    let Unequal(from, to) = engine.copy(vec![1; 10], vec![2; 11]).unwrap_err();
    assert_eq!((from, to), (vec![1; 10], vec![2; 11]));
    let (from, mut to) = ([1; 10], [2; 11]);
    engine.scope(|scope| assert!(scope.copy(&mut to, &from).is_err()));
    assert_eq!(to, [2; 11]);
}

#[test]
fn futures_wake() {
    let engine = CopyEngine::new(eager());
    for seed in 0..20 {
        let from = pattern(1 << 20, seed);
        let (end, from, to) = block_on(engine.copy(from, vec![0; 1 << 20]).unwrap());
        assert_eq!(end, Ok(()));
        assert!(from == to && to == pattern(1 << 20, seed));
    }
}

#[test]
fn futures_of_a_back_end_that_says_nothing_end_all_the_same() {
    let engine = CopyEngine::with_backend(Faulty::new(3, Faults::default()), eager());
    let (end, from, to) = block_on(engine.copy(pattern(99_999, 1), vec![0; 99_999]).unwrap());
    assert_eq!(end, Ok(()));
    assert!(from == to);
}

#[test]
fn callbacks_get_the_buffers_and_may_use_the_engine() {
    let config = EngineConfig { threads: 1, queue_max: 2, ..eager() };
    let engine = Arc::new(CopyEngine::new(config));
    let (tell, told) = mpsc::channel();
    for seed in 0..30 {
        let (again, tell) = (Arc::clone(&engine), tell.clone());
        let request = engine.copy(pattern(300_000, seed), vec![0; 300_000]).unwrap();
        request.then(move |end, from, to| {
            assert_eq!(end, Ok(()));
            assert!(from == to);
            // On the only thread of the back end, as a rule, with the queue full now and then.
            let (end, _, to) = again.copy(to, vec![0; 300_000]).unwrap().wait().unwrap();
            tell.send((seed, end, to)).unwrap();
        });
    }
    for _ in 0..30 {
        let (seed, end, to) = told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(end, Ok(()));
        assert!(to == pattern(300_000, seed));
    }
}

#[test]
fn a_callback_that_panics_harms_nobody() {
    let engine = CopyEngine::new(EngineConfig { threads: 1, ..eager() });
    for seed in 0..5 {
        let dropped = Arc::new(AtomicUsize::new(0));
        let to = Told(vec![0; 100_000], Arc::clone(&dropped));
        let request = engine.copy(pattern(100_000, seed), to).unwrap();
        request.then(|_, _, _| panic!("on purpose"));
        let (end, from, to) =
            engine.copy(pattern(100_000, seed), vec![0; 100_000]).unwrap().wait().unwrap();
        assert_eq!(end, Ok(()));
        assert!(from == to);
        if seed == 4 {
            engine.shut_down(Shutdown::Finish);
            assert_eq!(dropped.load(Ordering::SeqCst), 1);
        }
    }
}

#[test]
fn a_full_queue_has_the_caller_copy() {
    let (engine, backend) = held(EngineConfig { queue_max: 2, ..eager() });
    let mut queued: Vec<_> =
        (0..2).map(|seed| engine.copy(pattern(5000, seed), vec![0; 5000]).unwrap()).collect();
    let (end, from, to) = engine.copy(pattern(5000, 7), vec![0; 5000]).unwrap().wait().unwrap();
    assert_eq!((end, from), (Ok(()), to));
    assert!(queued.iter_mut().all(|request| request.try_wait().is_none()));
    assert_eq!((engine.counts().queued, engine.counts().full), (2, 1));
    drop(backend);
    for (seed, request) in queued.into_iter().enumerate() {
        let (end, _, to) = request.wait().unwrap();
        assert_eq!((end, to), (Ok(()), pattern(5000, seed)));
    }
}

#[test]
fn who_finds_the_queue_full_waits_for_what_it_overlaps() {
    let (engine, backend) = held(EngineConfig { queue_max: 1, ..eager() });
    let mut memory = pattern(30_000, 1);
    let base = memory.as_mut_ptr();
    let mut oracle = pattern(30_000, 1);
    oracle.copy_within(0..10_000, 10_000);
    oracle.copy_within(10_000..20_000, 20_000);
    // SAFETY: all of them lie inside, and the memory is not touched before they have ended.
    let first = unsafe { engine.submit(Work::copy(base, base.add(10_000), 10_000)) };
    let opener = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        drop(backend);
    });
    // SAFETY: as above.
    let second = unsafe { engine.submit(Work::copy(base.add(10_000), base.add(20_000), 10_000)) };
    // It was done at once, so the other has ended.
    assert_eq!(second.poll_end(), Some(Ok(())));
    assert_eq!(first.wait(), Ok(()));
    assert_eq!(engine.counts().full, 1);
    opener.join().unwrap();
    assert!(memory == oracle);
}

#[test]
fn what_has_not_been_started_is_cancelled() {
    let (engine, backend) = held(eager());
    let mut memory = pattern(30_000, 1);
    let base = memory.as_mut_ptr();
    // SAFETY: all of them lie inside, and the memory is not touched before they have ended.
    let submit =
        |from, to| unsafe { engine.submit(Work::copy(base.add(from), base.add(to), 10_000)) };
    let started = submit(0, 10_000);
    // They wait for it, and the third for the second.
    let (second, third) = (submit(10_000, 20_000), submit(20_000, 0));
    assert!(second.cancel());
    assert_eq!(second.poll_end(), Some(Err(Cancelled)));
    assert_eq!(second.wait(), Err(Cancelled));
    assert!(!second.cancel());
    // The third reads the bytes that were there before the second, and writes those that the first
    // reads.
    assert_eq!(third.poll_end(), None);
    assert!(!started.cancel());
    assert_eq!(started.poll_end(), None);
    drop(backend);
    assert_eq!((started.wait(), third.wait()), (Ok(()), Ok(())));
    assert!(!started.cancel());
    let old = pattern(30_000, 1);
    assert!(memory[10_000..20_000] == old[..10_000]);
    assert!(memory[20_000..] == old[20_000..] && memory[..10_000] == old[20_000..]);
    assert_eq!(engine.counts().cancelled, 1);
}

#[test]
fn a_request_cancelled_in_the_middle_ends_when_its_parts_have() {
    let (engine, backend) = held(eager());
    // More parts than the back end is given at a time.
    let mut request = engine.copy(pattern(1 << 20, 1), vec![0; 1 << 20]).unwrap();
    assert!(request.cancel());
    assert!(request.try_wait().is_none());
    let out = engine.counts().parts;
    drop(backend);
    let (end, _, to) = request.wait().unwrap();
    assert_eq!(end, Err(Cancelled));
    assert_eq!(engine.counts().parts, out);
    assert!(to.ends_with(&[0; 4096]));
}

#[test]
fn callbacks_may_wait_for_what_ended_with_their_own() {
    let (engine, backend) = held(eager());
    let mut memory = pattern(30_000, 1);
    let base = memory.as_mut_ptr();
    // SAFETY: all of them lie inside, and the memory is not touched before they have ended.
    let submit =
        |from, to| unsafe { engine.submit(Work::copy(base.add(from), base.add(to), 10_000)) };
    let started = submit(0, 10_000);
    // Both wait for it, and are cancelled together.
    let (second, third) = (submit(10_000, 20_000), submit(10_000, 0));
    let (tell, told) = mpsc::channel();
    for (own, other) in [(&second, &third), (&third, &second)] {
        let (other, tell) = (other.clone(), tell.clone());
        own.clone().then(move |end| tell.send((end, other.wait())).unwrap());
    }
    thread::scope(|scope| {
        let engine = &engine;
        scope.spawn(move || engine.shut_down(Shutdown::Cancel));
        for _ in 0..2 {
            let ends = told.recv_timeout(Duration::from_secs(60)).unwrap();
            assert_eq!(ends, (Err(Cancelled), Err(Cancelled)));
        }
        drop(backend);
    });
    assert_eq!(started.poll_end(), Some(Ok(())));
}

#[test]
fn dropped_requests_keep_their_buffers_as_long_as_they_are_used() {
    let (engine, backend) = held(eager());
    let dropped = Arc::new(AtomicUsize::new(0));
    let told = |seed| Told(pattern(100_000, seed), Arc::clone(&dropped));
    drop(engine.copy(told(1), told(2)).unwrap());
    // Some of it is out, and the rest cancelled. Of the next nothing is out.
    assert_eq!((engine.counts().cancelled, dropped.load(Ordering::SeqCst)), (1, 0));
    drop(engine.copy(told(7), told(8)).unwrap());
    assert_eq!((engine.counts().cancelled, dropped.load(Ordering::SeqCst)), (2, 2));
    let mut last = engine.copy(told(3), told(4)).unwrap();
    // A request that is leaked leaks its buffers, and is copied between them.
    std::mem::forget(engine.copy(told(5), told(6)).unwrap());
    drop(backend);
    while last.try_wait().is_none() {}
    engine.shut_down(Shutdown::Finish);
    assert_eq!(dropped.load(Ordering::SeqCst), 6);
}

#[test]
fn a_shut_down_finishes_what_is_queued() {
    let engine = CopyEngine::new(eager());
    let requests: Vec<_> = (0..16)
        .map(|seed| engine.copy(pattern(500_000, seed), vec![0; 500_000]).unwrap())
        .collect();
    engine.shut_down(Shutdown::Finish);
    for (seed, mut request) in requests.into_iter().enumerate() {
        let (end, _, to) = request.try_wait().unwrap();
        assert_eq!(end, Ok(()));
        assert!(to == pattern(500_000, seed));
    }
    // A later request is copied at once; and the engine can be shut down twice.
    let mut late = engine.copy(pattern(5000, 1), vec![0; 5000]).unwrap();
    assert_eq!(late.try_wait().unwrap().2, pattern(5000, 1));
    engine.shut_down(Shutdown::Cancel);
    assert_eq!(engine.counts().full, 1);
}

#[test]
fn a_shut_down_cancels_what_is_queued_and_waits_for_the_rest() {
    let (engine, backend) = held(eager());
    let requests: Vec<_> =
        (0..16).map(|seed| engine.copy(pattern(5000, seed), vec![0; 5000]).unwrap()).collect();
    let opener = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        drop(backend);
    });
    engine.shut_down(Shutdown::Cancel);
    let mut cancelled = 0;
    for (seed, mut request) in requests.into_iter().enumerate() {
        match request.try_wait().unwrap() {
            (Ok(()), _, to) => assert_eq!(to, pattern(5000, seed)),
            (Err(Cancelled), _, to) => {
                assert_eq!(to, vec![0; 5000]);
                cancelled += 1;
            }
        }
    }
    // Two lanes: four parts are out.
    assert_eq!((cancelled, engine.counts().cancelled), (12, 12));
    opener.join().unwrap();
}

#[test]
fn an_engine_that_is_dropped_with_work_queued_finishes_it() {
    let (tell, told) = mpsc::channel();
    let engine = CopyEngine::new(EngineConfig { threads: 1, ..eager() });
    for seed in 0..8 {
        let tell = tell.clone();
        let request = engine.copy(pattern(200_000, seed), vec![0; 200_000]).unwrap();
        request.then(move |end, _, to| tell.send((seed, end, to)).unwrap());
    }
    drop((engine, tell));
    let ended: Vec<_> = told.iter().collect();
    assert_eq!(ended.len(), 8);
    assert!(ended.iter().all(|(seed, end, to)| *end == Ok(()) && *to == pattern(200_000, *seed)));
}

#[test]
fn an_engine_may_be_dropped_by_its_own_thread() {
    let engine = Arc::new(CopyEngine::new(EngineConfig { threads: 1, ..eager() }));
    let (tell, told) = mpsc::channel();
    let last = Arc::clone(&engine);
    let request = engine.copy(pattern(4 << 20, 1), vec![0; 4 << 20]).unwrap();
    request.then(move |end, from, to| {
        drop(last);
        tell.send(end.is_ok() && from == to).unwrap();
    });
    drop(engine);
    assert!(told.recv_timeout(Duration::from_secs(60)).unwrap());
}

#[test]
fn scopes_end_what_they_began_even_if_leaked_or_unwound() {
    let engine = CopyEngine::new(eager());
    let from = pattern(600_000, 1);
    let (mut a, mut b, mut c) = (vec![0; 600_000], vec![0; 600_000], vec![9; 600_000]);
    engine.scope(|scope| {
        let copy = scope.copy(&mut a, &from).unwrap();
        std::mem::forget(scope.copy(&mut b, &from).unwrap());
        std::mem::forget(scope.zero(&mut c));
        let (end, a) = copy.wait();
        assert_eq!(end, Ok(()));
        assert!(a == from);
        a[0] = 77;
    });
    assert!(a[0] == 77 && b == from && c.iter().all(|byte| *byte == 0));

    let (engine, backend) = held(eager());
    let engine = &engine;
    let mut to = [vec![0; 50_000], vec![0; 50_000], vec![0; 50_000], vec![0; 50_000]];
    let unwound = thread::scope(|s| {
        // Nothing goes on before the scope has begun to cancel: to unwind may take long, with a
        // backtrace.
        s.spawn(move || {
            let end = Instant::now() + Duration::from_secs(20);
            while engine.counts().cancelled == 0 && Instant::now() < end {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(20));
            drop(backend);
        });
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            engine.scope(|scope| {
                for to in &mut to {
                    let _ = scope.copy(to, &from[..50_000]).unwrap();
                }
                panic!("on purpose");
            });
        }))
    });
    assert!(unwound.is_err());
    // Nothing is in use any more. All of the first was out, and some of the second.
    assert_eq!(engine.counts().cancelled, 3);
    assert_eq!(engine.counts().parts, 4);
    assert!(to[0] == from[..50_000] && to[1].ends_with(&[0; 4096]));
    assert!(to[2] == vec![0; 50_000] && to[3] == to[2]);
}

#[test]
fn many_threads_use_one_engine() {
    let engine = CopyEngine::new(EngineConfig { queue_max: 1, ..eager() });
    thread::scope(|scope| {
        for thread in 0..8 {
            let engine = &engine;
            scope.spawn(move || {
                for round in 0..20 {
                    let len = 1 + (thread * 7919 + round * 104_729) % 200_000;
                    let from = pattern(len, thread + round);
                    let mut to = vec![0; len];
                    engine.scope(|scope| {
                        let (first, second) = to.split_at_mut(len / 3);
                        let _ = scope.copy(first, &from[..len / 3]).unwrap();
                        let _ = scope.copy(second, &from[len / 3..]).unwrap();
                    });
                    assert!(from == to);
                    let request = engine.copy(to, vec![0; len]).unwrap();
                    if round % 3 == 0 {
                        drop(request);
                    } else {
                        let (end, _, to) = request.wait().unwrap();
                        assert_eq!(end, Ok(()));
                        assert!(from == to);
                    }
                }
            });
        }
    });
    let counts = engine.counts();
    assert_eq!((counts.failed, counts.partial, counts.unknown), (0, 0, 0));
    assert!(counts.queued > 0 && counts.full > 0, "{counts:?}");
}

#[test]
fn threads_start_with_the_first_part() {
    let threads = Threads::new(3);
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    threads.start(Arc::new(move || tell.lock().send(()).unwrap()));
    assert_eq!(threads.started(), 0);
    let (from, mut to) = (pattern(100, 1), vec![0; 100]);
    let mut slots = super::slots::Slots::new();
    let id = slots.insert(());
    let work = Work::copy(from.as_ptr(), to.as_mut_ptr(), 100);
    // SAFETY: the memory is not touched before it is polled.
    unsafe { threads.submit(Part { id, work }) }.unwrap();
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    let mut done = Vec::new();
    threads.poll(&mut |completion| done.push(completion));
    assert_eq!(done, [Completion { id, outcome: Outcome::Moved(100) }]);
    assert_eq!(from, to);
    assert_eq!(threads.started(), 1);
    threads.stop();
    // SAFETY: as above.
    assert!(unsafe { threads.submit(Part { id, work }) }.is_err());
}
