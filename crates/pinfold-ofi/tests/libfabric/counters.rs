//! Counters: what is counted, waits, and what programs set.

use std::time::{Duration, Instant};

use pinfold_fi::ffi::{flags::*, object::Fid, queue::FidCntr};

use crate::{
    couple::{Couple, Incoming, Outgoing, Recv, Send, recv, send},
    host::host,
    side::{Side, Terms, close, context},
};

fn read(counter: *mut FidCntr) -> (u64, u64) {
    // SAFETY: the counter is open.
    unsafe { (((*(*counter).ops).read)(counter), ((*(*counter).ops).readerr)(counter)) }
}

#[test]
fn programs_set_and_add() {
    let Some(host) = host() else { return };
    let side = Side::new(host, Terms::default());
    for wait in [FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD] {
        let counter = side.open_counter(wait);
        // SAFETY: the counter is open.
        unsafe {
            let ops = &*(*counter).ops;
            assert_eq!(read(counter), (0, 0));
            assert_eq!((ops.set)(counter, 10), 0);
            assert_eq!((ops.add)(counter, 5), 0);
            assert_eq!((ops.seterr)(counter, 3), 0);
            assert_eq!((ops.adderr)(counter, 4), 0);
            assert_eq!(read(counter), (15, 7));
            let waited = (ops.wait)(counter, 15, 0);
            if wait == FI_WAIT_NONE {
                assert_eq!(waited, -libc::ENOSYS);
            } else {
                assert_eq!(waited, 0);
                let begun = Instant::now();
                assert_eq!((ops.wait)(counter, 16, 30), -libc::ETIMEDOUT);
                assert!(begun.elapsed() >= Duration::from_millis(29));
            }
        }
        assert_eq!(close(counter), 0);
    }
}

/// A thread that waits is woken by another that counts, or that fails.
#[test]
fn a_wait_ends_when_it_is_reached_or_something_fails() {
    let Some(host) = host() else { return };
    let side = Side::new(host, Terms::default());
    let counter = side.open_counter(FI_WAIT_UNSPEC);
    let there = counter.expose_provenance();
    for fails in [false, true] {
        // SAFETY: the counter is open until both threads are done, here and below.
        assert_eq!(unsafe { ((*(*counter).ops).set)(counter, 0) }, 0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(move || {
                let counter = std::ptr::with_exposed_provenance_mut::<FidCntr>(there);
                // SAFETY: as above.
                unsafe { ((*(*counter).ops).wait)(counter, 100, 20_000) }
            });
            // A failure before the wait began is none of its.
            while !waits.is_finished() {
                std::thread::sleep(Duration::from_millis(10));
                // SAFETY: as above.
                let code = unsafe {
                    let ops = &*(*counter).ops;
                    if fails { (ops.adderr)(counter, 1) } else { (ops.set)(counter, 100) }
                };
                assert_eq!(code, 0);
            }
            assert_eq!(waits.join().unwrap(), if fails { -FI_EAVAIL } else { 0 });
        });
    }
    assert_eq!(close(counter), 0);
}

/// Each message is counted once on either side, also those that are not reported.
#[test]
fn messages_are_counted_once() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    for kind in Send::ALL {
        for size in [0, 8, 2048] {
            let before = (couple.one.count(0), couple.two.count(1));
            let (mut from, mut to) = (vec![1; size], vec![0; size]);
            let mut incoming = Incoming::tagged(&mut to, 1);
            couple.post("fi_trecv", || recv(&couple.two, Recv::Plain, &mut incoming));
            let mut outgoing = Outgoing {
                memory: &mut from,
                to: couple.to_two,
                tag: Some(1),
                data: 0,
                flags: FI_COMPLETION,
                context: context(2),
            };
            couple.post("fi_tsend", || send(&couple.one, kind, &mut outgoing));
            couple.until("both are counted", || {
                couple.one.count(0) == before.0 + 1 && couple.two.count(1) == before.1 + 1
            });
            couple.at_two(couple.two.rx).unwrap();
            if !kind.is_silent() {
                couple.at_one(couple.one.tx).unwrap();
            }
            assert_eq!(couple.one.count(0), before.0 + 1);
        }
    }
    // A receive that is cancelled is an error, not a success.
    let before = couple.two.count(1);
    let mut room = [0; 8];
    let mut incoming = Incoming {
        memory: &mut room,
        from: FI_ADDR_UNSPEC,
        tag: Some((2, 0)),
        flags: 0,
        context: context(3),
    };
    couple.post("fi_trecv", || recv(&couple.two, Recv::Plain, &mut incoming));
    // SAFETY: the endpoint is open.
    let code = unsafe { ((*(*couple.two.ep).ops).cancel)(couple.two.ep.cast(), context(3)) };
    assert_eq!(code, 0);
    assert_eq!(couple.at_two(couple.two.rx).unwrap_err().err, libc::ECANCELED);
    assert_eq!(read(couple.two.counters[1]), (before, 1));
}

/// The descriptor of a counter becomes readable when something is counted.
#[test]
fn a_counter_has_a_descriptor() {
    let Some(host) = host() else { return };
    let side = Side::new(host, Terms::default());
    let counter = side.open_counter(FI_WAIT_FD);
    let fid = counter.cast::<Fid>();
    let mut fd = -1;
    // SAFETY: the counter is open, and has a descriptor by its kind of wait.
    let code = unsafe { ((*(*fid).ops).control)(fid, FI_GETWAIT, (&raw mut fd).cast()) };
    assert_eq!(code, 0);
    let is_readable = |patience| {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor.
        unsafe { libc::poll(&mut poll, 1, patience) == 1 }
    };
    let may_sleep = || {
        let mut fids = [fid];
        // SAFETY: one object.
        unsafe { ((*(*side.fabric).ops).trywait)(side.fabric, fids.as_mut_ptr(), 1) == 0 }
    };
    for round in 1..4 {
        let end = Instant::now() + crate::side::PATIENCE;
        while !may_sleep() {
            assert!(Instant::now() < end, "it is never quiet");
        }
        // SAFETY: the counter is open.
        assert_eq!(unsafe { ((*(*counter).ops).add)(counter, 1) }, 0);
        assert!(is_readable(20_000));
        assert_eq!(read(counter), (round, 0));
    }
    let none = side.open_counter(FI_WAIT_NONE);
    let fid = none.cast::<Fid>();
    // SAFETY: the counter is open.
    assert!(unsafe { ((*(*fid).ops).control)(fid, FI_GETWAIT, (&raw mut fd).cast()) } < 0);
    assert_eq!((close(none), close(counter)), (0, 0));
}
