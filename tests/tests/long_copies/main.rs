//! Copies of long messages that are held up in the middle, by a page that a userfaultfd is to
//! provide. Other threads of the endpoint go on meanwhile, and no buffer is given back before the
//! copy has ended, no matter what ends the operation.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Duration,
};

use pinfold::{
    Arena, Counters, Endpoint, Error, Gone, OwnedBufMut, Path, PathSet, PeerId, Progress,
    SharedArena,
};
use pinfold_tests::{pair, role::PATIENCE, stamp};

mod held;
mod peers;

use self::{
    held::{LEN, held, hold},
    peers::{attacker, victim},
};

pinfold_tests::roles!(victim, attacker);

const LONG: u64 = 1;
const PING: u64 = 2;
const ROUNDS: u64 = 1000;
/// Time in which an operation that may end would.
const A_WHILE: Duration = Duration::from_millis(100);
/// Time in which a thread that may go on does, nearly always.
const SOON: Duration = Duration::from_secs(2);

/// An endpoint with a peer for long messages and one for short ones.
struct Three {
    one: Endpoint,
    to_long: PeerId,
    long: Endpoint,
    from_long: PeerId,
    to_short: PeerId,
    short: Endpoint,
    from_short: PeerId,
}

impl Three {
    fn meet(name: &str) -> Three {
        Three::driving(name, Progress::Inline)
    }

    /// The endpoint that has two peers is driven so.
    fn driving(name: &str, progress: Progress) -> Three {
        let paths = PathSet::only(&[Path::Inline, Path::Eager, Path::Mapped]);
        let builder = || Endpoint::builder().paths(paths);
        let (one, to_long, long, from_long) = pair(name, builder().progress(progress), builder());
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let address = format!("local:{name}-short-{}-{number}", std::process::id());
        let short = Endpoint::builder().listen(&address).build().unwrap();
        let (from_short, to_short) = thread::scope(|s| {
            let calls = s.spawn(|| one.connect(&address).unwrap());
            (short.accept().unwrap(), calls.join().unwrap())
        });
        Three { one, to_long, long, from_long, to_short, short, from_short }
    }

    /// Runs `work` while a thread makes progress at the endpoint, and another at the peer for long
    /// messages.
    fn driven<T>(&self, work: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        thread::scope(|s| {
            for endpoint in [&self.one, &self.long] {
                let over = &over;
                s.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        if endpoint.progress().is_err() {
                            break;
                        }
                        thread::yield_now();
                    }
                });
            }
            let done = work();
            over.store(true, Ordering::Relaxed);
            done
        })
    }

    /// Lets a shortage of processors pass that the endpoint met: meanwhile it copies alone.
    fn rest(&self) {
        for _ in 0..10 {
            thread::sleep(A_WHILE / 10);
            self.one.progress().unwrap();
        }
    }

    fn ping_pong(&self) {
        ping_pong((&self.one, self.to_short), (&self.short, self.from_short));
    }
}

/// Short messages go back and forth between two endpoints, and all of them arrive.
fn ping_pong((one, to_other): (&Endpoint, PeerId), (other, to_one): (&Endpoint, PeerId)) {
    let sent = |counters: &Counters| counters.sent.iter().map(|it| it.messages).sum::<u64>();
    let before = sent(&one.counters());
    thread::scope(|s| {
        s.spawn(|| {
            for round in 0..ROUNDS {
                let ping = other.recv(to_one, PING).unwrap();
                assert_eq!(ping[..], round.to_ne_bytes());
                other.send(to_one, PING, &ping).unwrap();
            }
        });
        for round in 0..ROUNDS {
            one.send(to_other, PING, &round.to_ne_bytes()).unwrap();
            let pong = one.recv(to_other, PING).unwrap();
            assert_eq!(pong[..], round.to_ne_bytes());
        }
    });
    assert_eq!(sent(&one.counters()) - before, ROUNDS);
}

#[test]
fn a_receive_that_is_held_up_holds_up_nobody_else() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let Some((memory, holder)) = held() else { return };
        let three = Three::driving("held-in", progress);
        let arena = Arena::new().unwrap();
        let mut message = arena.alloc(LEN).unwrap();
        stamp::fill(&mut message, 1);
        let request = three.one.recv_owned(three.to_long, LONG, memory);
        three.driven(|| {
            let sent = three.long.send_owned(three.from_long, LONG, message);
            holder.await_touch();
            three.ping_pong();
            assert!(!holder.is_dropped());
            holder.release();
            let (received, memory) = request.wait();
            let receipt = received.unwrap().receipt;
            assert_eq!((receipt.path, receipt.copied_user), (Path::Mapped, LEN as u64));
            stamp::check(memory.as_slice(), 1);
            assert_eq!(sent.wait().0.unwrap().path, Path::Mapped);
        });
    }
}

#[test]
fn a_thread_that_waits_takes_over_from_one_that_is_held_up() {
    let Some((memory, holder)) = held() else { return };
    let three = Three::meet("held-leader");
    let arena = Arena::new().unwrap();
    let mut message = arena.alloc(LEN).unwrap();
    stamp::fill(&mut message, 1);
    let slept = three.one.counters().sleeps;
    thread::scope(|s| {
        let waits = s.spawn(|| {
            // It sleeps for all, and copies once it is woken.
            let (received, memory) = three.one.recv_owned(three.to_long, LONG, memory).wait();
            assert_eq!(received.unwrap().receipt.path, Path::Mapped);
            stamp::check(memory.as_slice(), 1);
        });
        // The first that sleeps leads; the other would be the one that is held up.
        while three.one.counters().sleeps == slept {
            thread::yield_now();
        }
        let follows = s.spawn(|| three.one.recv(three.to_short, PING).unwrap());
        thread::sleep(A_WHILE);
        let sends = s.spawn(|| three.long.send_owned(three.from_long, LONG, message).wait().0);
        holder.await_touch();
        three.short.send(three.from_short, PING, b"wake up").unwrap();
        assert_eq!(follows.join().unwrap()[..], *b"wake up");
        assert!(!waits.is_finished());
        holder.release();
        waits.join().unwrap();
        assert_eq!(sends.join().unwrap().unwrap().path, Path::Mapped);
    });
}

#[test]
fn a_send_that_is_held_up_holds_up_nobody_else() {
    let Some((memory, holder)) = held() else { return };
    let three = Three::meet("held-out");
    let arena = SharedArena::builder().build_shared().unwrap();
    let room = arena.alloc(LEN).unwrap();
    let request = three.long.recv_owned(three.from_long, LONG, room);
    three.driven(|| {
        let sent = three.one.send_owned(three.to_long, LONG, memory);
        holder.await_touch();
        three.ping_pong();
        holder.release();
        let receipt = sent.wait().0.unwrap();
        assert_eq!((receipt.path, receipt.copied_user), (Path::Mapped, LEN as u64));
        let (received, room) = request.wait();
        assert_eq!(received.unwrap().len, LEN as u64);
        assert!(room.to_vec() == vec![0; LEN]);
    });
}

/// Ways to end a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Disconnect,
    PeerCloses,
    Close,
    Drop,
}

#[test]
fn a_receive_ends_no_sooner_than_its_copy() {
    for end in [End::Disconnect, End::PeerCloses, End::Close, End::Drop] {
        let Some((memory, holder)) = held() else { return };
        let three = Three::meet("held-end");
        let arena = Arena::new().unwrap();
        let message = arena.alloc(LEN).unwrap();
        let mut request = Some(three.one.recv_owned(three.to_long, LONG, memory));
        three.driven(|| {
            let sent = three.long.send_owned(three.from_long, LONG, message);
            holder.await_touch();
            match end {
                End::Disconnect => three.one.disconnect(three.to_long),
                End::PeerCloses => three.long.close(),
                End::Close => three.one.close(),
                End::Drop => drop(request.take()),
            }
            let early = request.as_mut().and_then(|request| request.wait_timeout(A_WHILE));
            assert!(early.is_none(), "{end:?}");
            thread::sleep(A_WHILE);
            assert!(!holder.is_dropped(), "{end:?}");
            if end == End::Disconnect {
                three.ping_pong();
            }
            holder.release();
            match (end, request.take().map(|request| request.wait().0)) {
                (End::Drop, None) => {
                    assert_eq!(sent.wait().0.unwrap().path, Path::Mapped);
                    pinfold_tests::progress_until(&[&three.one], "kept", || holder.is_dropped());
                    return;
                }
                (End::Disconnect, Some(Err(Error::PeerGone { how: Gone::Disconnected, .. }))) => {}
                (End::PeerCloses, Some(Err(Error::PeerGone { .. }))) => {}
                (End::Close, Some(Err(Error::Closed))) => {}
                (_, other) => panic!("{end:?}: {other:?}"),
            }
            assert!(holder.is_dropped());
            assert!(sent.wait().0.is_err(), "{end:?}");
        });
    }
}

/// The peer gives its memory to others as soon as it hears that this side is gone.
#[test]
fn a_peer_that_is_written_to_hears_of_the_end_no_sooner_than_the_copy_ends() {
    let Some((memory, holder)) = held() else { return };
    let three = Three::meet("held-farewell");
    let arena = SharedArena::builder().build_shared().unwrap();
    let room = arena.alloc(LEN).unwrap();
    let mut request = three.long.recv_owned(three.from_long, LONG, room);
    three.driven(|| {
        let mut sent = three.one.send_owned(three.to_long, LONG, memory);
        holder.await_touch();
        three.one.disconnect(three.to_long);
        assert!(request.wait_timeout(A_WHILE).is_none(), "its memory is written to");
        assert!(sent.wait_timeout(A_WHILE).is_none() && !holder.is_dropped());
        assert_eq!(three.long.peers().len(), 1);
        three.ping_pong();
        holder.release();
        let gone = |result: &Error| matches!(result, Error::PeerGone { .. });
        assert!(gone(&sent.wait().0.unwrap_err()));
        assert!(gone(&request.wait().0.unwrap_err()));
        assert!(three.one.peers().iter().all(|peer| peer.id != three.to_long));
    });
}

/// A message so long that its sender helps, which it reports.
const HELPED: usize = 4 << 20;
/// Bytes at one end of it: no more than either side copies at once.
const AT_ONCE: usize = 64 << 10;

/// Tries until a copy is held up, where that takes more than the holder: a receiver that lacks
/// processors copies alone, and memory that goes too early is found to be missing.
const TRIES: u32 = 10;

/// The sender's report comes before the receiver's copy has ended, at an endpoint that lets the
/// sender go.
#[test]
fn a_report_that_comes_before_the_end_of_a_copy_ends_the_receive() {
    for closes in [false, true] {
        let Some(came) = (0..TRIES).find_map(|_| report_before_the_end(closes)) else {
            panic!("no sender helped");
        };
        if !came {
            return;
        }
    }
}

/// Both sides are held up in the middle of a copy. `None`: the sender is not; `Some(false)`: there
/// is no memory for that here.
fn report_before_the_end(closes: bool) -> Option<bool> {
    let three = Three::meet("held-report");
    three.rest();
    let (here, there) = (SharedArena::builder().build_shared().unwrap(), Arena::new().unwrap());
    let mut room = here.alloc(HELPED).unwrap();
    room.fill(0);
    let mut message = there.alloc(HELPED).unwrap();
    stamp::fill(&mut message, 1);
    let Some(receiver) = hold(room.bytes_mut().0, AT_ONCE) else { return Some(false) };
    let end = message[HELPED - AT_ONCE..].as_mut_ptr();
    let Some(sender) = hold(end, AT_ONCE) else { return Some(false) };
    let mut request = three.one.recv_owned(three.to_long, LONG, room);
    let over = AtomicBool::new(false);
    thread::scope(|s| {
        // The one thread of its endpoint: it reports, and then hears of the end.
        let sends = s.spawn(|| three.long.send_owned(three.from_long, LONG, message).wait().0);
        let copies = s.spawn(|| {
            while !over.load(Ordering::Relaxed) && three.one.progress().is_ok() {
                thread::yield_now();
            }
        });
        receiver.await_touch();
        if !sender.is_touched(SOON) {
            receiver.release();
            sender.release();
            request.wait().0.unwrap();
            over.store(true, Ordering::Relaxed);
            return None;
        }
        match closes {
            false => three.one.disconnect(three.to_long),
            true => three.one.close(),
        }
        sender.release();
        assert!(request.wait_timeout(A_WHILE).is_none(), "its memory is in use");
        receiver.release();
        let result = request.wait_timeout(PATIENCE).expect("it ends").0;
        over.store(true, Ordering::Relaxed);
        copies.join().unwrap();
        match (closes, result.unwrap_err()) {
            (false, Error::PeerGone { how: Gone::Disconnected, .. }) | (true, Error::Closed) => {}
            (_, other) => panic!("{other:?}"),
        }
        assert!(sends.join().unwrap().is_err());
        Some(true)
    })
}
