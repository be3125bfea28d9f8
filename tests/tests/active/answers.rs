//! Requests and their outcomes.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use pinfold::{Active, Error, NotHandled, Path, Replier};
use pinfold_tests::{Args, Stage, block_on, role, stamp};

use super::{BYE, ECHO, PATIENCE, SINK, WAYS, driven};

fn play(roles: [&str; 2]) {
    let stage = Stage::new(120);
    for way in WAYS {
        stage.play(roles.map(|role| driven(stage.role(role), way)));
    }
}

const LATER: u32 = 10;
const FORGET: u32 = 11;
const PANIC: u32 = 12;
const LATE_PANIC: u32 = 13;
const ASK_BACK: u32 = 14;
const TWICE: u32 = 15;
const DROP_LATER: u32 = 16;
const NOBODY: u32 = 17;
const HOLD: u32 = 18;

/// Requests whose answers are held back.
const HELD: usize = 1500;

#[test]
fn threads_and_futures_get_their_own_answers() {
    play(["serving", "crowd"]);
}

#[test]
fn answers_come_late_in_any_order_or_not_at_all() {
    play(["serving", "asking"]);
}

#[test]
fn panics_and_missing_handlers_are_errors_of_the_one_request() {
    play(["failing", "wanting"]);
}

/// Serves until the other side says goodbye.
pub fn serving(args: &Args) {
    // Requests that are answered later, last come, first served.
    type Later = Arc<Mutex<Vec<(Replier, Vec<u8>)>>>;
    let later = Later::default();
    let (tell, told) = mpsc::channel::<(Replier, Vec<u8>)>();
    // Requests that are held back until everything has come to a stop.
    let (hold, held) = mpsc::channel::<Replier>();
    let builder = args
        .builder()
        .handle(ECHO, |active: Active<'_>| active.reply(active.payload()).unwrap())
        .handle(LATER, {
            let later = Arc::clone(&later);
            move |active: Active<'_>| {
                let answer = active.reply_later().expect("it is a request");
                assert!(active.reply_later().is_none());
                assert!(matches!(active.reply(b"no"), Err(Error::AlreadyAnswered)));
                let mut later = later.lock().unwrap();
                later.push((answer, active.payload().to_vec()));
                if later.len() == 10 {
                    later.drain(..).rev().for_each(|late| tell.send(late).unwrap());
                }
            }
        })
        .handle(HOLD, move |active: Active<'_>| {
            hold.send(active.reply_later().expect("it is a request")).unwrap();
        })
        .handle(DROP_LATER, |active: Active<'_>| drop(active.reply_later()))
        .handle(FORGET, |_: Active<'_>| {})
        .handle(TWICE, |active: Active<'_>| {
            active.reply(b"once").unwrap();
            assert!(matches!(active.reply(b"twice"), Err(Error::AlreadyAnswered)));
        })
        .handle(ASK_BACK, |active: Active<'_>| {
            // While it waits, its thread does everything else, but runs no handler.
            let endpoint = active.endpoint();
            let back = endpoint.request(active.peer(), ECHO, active.payload()).wait().unwrap();
            let long = endpoint.request(active.peer(), ECHO, &vec![7; 200_000]).wait().unwrap();
            assert!(*long == vec![7; 200_000]);
            active.reply(&back).unwrap();
        });
    let (endpoint, peer) = role::listen(builder, "serving");
    let answerer = thread::spawn(move || {
        for (answer, bytes) in told {
            answer.reply(&bytes).unwrap();
        }
    });
    let holder = thread::spawn(move || {
        let Ok(first) = held.recv() else { return };
        thread::sleep(Duration::from_millis(300));
        let rest: Vec<Replier> = held.try_iter().collect();
        assert_eq!(rest.len(), 1023);
        // A thread that sleeps now is woken by this alone.
        first.reply(b"at last").unwrap();
        held.recv().unwrap().reply(b"at last").unwrap();
        rest.into_iter().for_each(|answer| answer.reply(b"at last").unwrap());
        held.into_iter().for_each(|answer| answer.reply(b"at last").unwrap());
    });
    endpoint.recv(peer, BYE).unwrap();
    endpoint.close();
    // With the handlers, the ways to them are gone.
    answerer.join().expect("no panic");
    holder.join().expect("no panic");
}

/// Four threads, each with requests of its own under way.
pub fn crowd(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "serving");
    let ask = |thread: u64| {
        for round in 0..300 {
            let seed = thread << 32 | round;
            let lengths = [8usize, 40, 48, 49, 2000, 30_000];
            let asked: Vec<_> = lengths
                .iter()
                .map(|len| endpoint.request(peer, ECHO, &stamp::bytes(*len, seed)))
                .collect();
            for (i, (mut reply, len)) in asked.into_iter().zip(lengths).enumerate() {
                let answer = match (round as usize + i) % 4 {
                    0 => reply.wait(),
                    1 => block_on(reply),
                    2 => reply.wait_timeout(PATIENCE).expect("an answer in time"),
                    // No thread waits for this request, or ever will.
                    _ if round % 2 == 0 => continue,
                    _ => {
                        std::mem::forget(reply);
                        continue;
                    }
                };
                let answer = answer.unwrap();
                assert_eq!(answer.len(), len);
                stamp::check(&answer, seed);
            }
        }
    };
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || ask(thread));
        }
    });
    endpoint.send(peer, BYE, b"").unwrap();
}

fn why(result: pinfold::Result<pinfold::Message>) -> NotHandled {
    match result {
        Err(Error::NotHandled { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

pub fn asking(args: &Args) {
    let builder =
        args.builder().handle(ECHO, |active: Active<'_>| active.reply(active.payload()).unwrap());
    let (endpoint, peer) = role::connect(builder, "serving");
    let ask = |id: u32, bytes: &[u8]| endpoint.request(peer, id, bytes);
    // More requests than the credit; but it comes back with each.
    for _ in 0..10_000 {
        assert_eq!(ask(ECHO, b"x").wait().unwrap().receipt().path, Path::Inline);
    }
    assert_eq!(endpoint.counters().credit_stalls, 0);
    for len in [5, 5000, 100_000] {
        let replies: Vec<_> = (0..10).map(|i| (i, ask(LATER, &stamp::bytes(len, i)))).collect();
        for (i, reply) in replies {
            stamp::check(&reply.wait().unwrap(), i);
        }
    }
    for _ in 0..20 {
        assert_eq!(why(ask(FORGET, b"x").wait()), NotHandled::NoAnswer);
        assert_eq!(why(ask(DROP_LATER, &[1; 100]).wait()), NotHandled::NoAnswer);
        assert_eq!(&*ask(TWICE, b"").wait().unwrap(), b"once");
        assert_eq!(&*ask(ASK_BACK, b"and you?").wait().unwrap(), b"and you?");
    }
    // More answers than may be owed at a time.
    let replies: Vec<_> = (0..HELD).map(|_| ask(HOLD, b"")).collect();
    for mut reply in replies {
        let answer = reply.wait_timeout(PATIENCE).expect("it ends").unwrap();
        assert_eq!(&*answer, b"at last");
    }
    endpoint.send(peer, BYE, b"").unwrap();
}

pub fn failing(args: &Args) {
    std::panic::set_hook(Box::new(|_| {}));
    let count = Arc::new(AtomicU64::new(0));
    let builder = args
        .builder()
        .active_bytes_max(1 << 20)
        .handle(ECHO, |active: Active<'_>| active.reply(active.payload()).unwrap())
        .handle(PANIC, |active: Active<'_>| panic!("{} bytes are too many", active.payload().len()))
        .handle(LATE_PANIC, |active: Active<'_>| {
            active.reply(b"fine").unwrap();
            std::panic::panic_any(7);
        })
        .handle(SINK, {
            let count = Arc::clone(&count);
            move |_: Active<'_>| {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    let (endpoint, peer) = role::listen(builder, "failing");
    endpoint.recv(peer, BYE).unwrap();
    let counters = endpoint.counters();
    assert_eq!(count.load(Ordering::Relaxed), 40);
    assert_eq!(counters.handlers_panicked, 4 * 20, "{counters:?}");
    assert_eq!(counters.unhandled, 5 * 20 + 2, "{counters:?}");
    endpoint.send(peer, BYE, b"").unwrap();
}

pub fn wanting(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "failing");
    let ask = |id: u32, len: usize| endpoint.request(peer, id, &vec![1; len]);
    for _ in 0..20 {
        assert_eq!(why(ask(PANIC, 3).wait()), NotHandled::Panicked);
        endpoint.call(peer, PANIC, b"nobody hears").unwrap();
        endpoint.call(peer, SINK, b"this one comes").unwrap();
        assert_eq!(why(ask(PANIC, 300_000).wait()), NotHandled::Panicked);
        assert_eq!(&*ask(LATE_PANIC, 3).wait().unwrap(), b"fine");
        endpoint.call(peer, SINK, &[0; 5000]).unwrap();

        for len in [0, 1000, 400_000] {
            assert_eq!(why(ask(NOBODY, len).wait()), NotHandled::NoHandler);
        }
        endpoint.call(peer, NOBODY, b"x").unwrap();
        // This call has to wait for the receiver, and so hears of it.
        match endpoint.call(peer, NOBODY, &vec![0; 900_000]) {
            Err(Error::NotHandled { why: NotHandled::NoHandler, id: NOBODY, .. }) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(ask(ECHO, 1000).wait().unwrap().len(), 1000);
    }
    assert_eq!(why(ask(ECHO, (1 << 20) + 1).wait()), NotHandled::TooLong);
    let error = endpoint.call(peer, SINK, &vec![1; 3 << 20]).unwrap_err();
    assert!(error.to_string().contains("active_bytes_max"), "{error}");
    endpoint.send(peer, BYE, b"").unwrap();
    endpoint.recv(peer, BYE).unwrap();
}
