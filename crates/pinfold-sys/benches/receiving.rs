//! `cargo bench -p pinfold-sys --bench receiving [-- CONNECTIONS UNDER_WAY]`: the time that one
//! thread takes to receive short messages over many connections and to answer them, by each way
//! that the kernel has:
//!
//! - `each`: a `recv` for every connection in turn, with news or without;
//! - `epoll`: `epoll_wait`, and a `recv` for each connection it names;
//! - `multishot`: `IORING_OP_RECV` with `IORING_RECV_MULTISHOT` out of a ring of buffers, armed by
//!   one thread, which the kernel serves when that thread enters it anyway
//!   (`IORING_SETUP_COOP_TASKRUN`);
//! - `deferred`: the same, served when that thread asks (`IORING_SETUP_DEFER_TASKRUN`); no other
//!   thread may ask.
//!
//! Then the time to accept connections, by calls and by `IORING_ACCEPT_MULTISHOT`; and whether a
//! thread that has armed a multishot and waits for something else notices messages.
//!
//! The peer that asks has another processor. The ways take turns; the medians of all turns are
//! printed. The results are in `docs/measurements/tcp-receiving.md`.
#![allow(unsafe_code, missing_docs)]

#[path = "receiving/ways.rs"]
mod ways;

use std::{
    net::{Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use pinfold_sys::{
    cpu::affinity,
    io::poll::{Epoll, Events, Interest},
    process::Segment,
    socket::stream::{self, Received},
};
use rustix::time::{ClockId, clock_gettime};

use self::ways::{Ring, WAYS, Waiter, Way};

/// Connections, and messages under way.
const CELLS: [(usize, usize); 6] =
    [(1, 1), (16, 16), (256, 8), (256, 256), (1000, 32), (1000, 1000)];
const SIZES: [usize; 2] = [8, 1024];
const TURNS: usize = 5;
const WARM: Duration = Duration::from_millis(50);
const TIMED: Duration = Duration::from_millis(150);
/// Connections that are accepted at a time.
const CALLERS: usize = 500;

fn main() {
    if std::env::args().any(|arg| arg == "--test" || arg == "--list") {
        return;
    }
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|it| it.parse().ok()).collect();
    for (connections, under_way) in CELLS {
        if asked.iter().zip([connections, under_way]).any(|(asked, is)| *asked != is) {
            continue;
        }
        for size in SIZES {
            let mut runs = WAYS.map(|_| Vec::new());
            for _ in 0..TURNS {
                for (way, runs) in WAYS.iter().zip(&mut runs) {
                    runs.extend(echo(*way, connections, under_way, size));
                }
            }
            print!("{connections:4} connections, {under_way:4} under way, {size:4} bytes:");
            for (way, runs) in WAYS.iter().zip(runs) {
                match median(runs) {
                    Some(ns) => print!("  {way:?} {ns:5.0}"),
                    None => print!("  {way:?} none"),
                }
            }
            println!("  ns of the processor each");
        }
    }
    let (mut calls, mut ring) = (Vec::new(), Vec::new());
    for _ in 0..3 * TURNS {
        calls.push(accept_by_calls());
        ring.extend(accept_by_ring());
    }
    let ns = |runs| median(runs).map_or("none".to_owned(), |ns| format!("{ns:.0} ns"));
    println!("accepting a connection: by calls {}, by a multishot {}", ns(calls), ns(ring));
    for way in [Way::Multishot, Way::Deferred] {
        match interruptions(way) {
            Some(count) => println!("waits that {MESSAGES} messages ended, {way:?}: {count}"),
            None => println!("waits that messages ended, {way:?}: none to see"),
        }
    }
}

fn median(mut all: Vec<f64>) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// Connections: this side's ends, and the other's.
fn connections(count: usize) -> (Vec<OwnedFd>, Vec<OwnedFd>) {
    let listener = listen();
    let to = stream::local_address(&listener).expect("it is bound");
    let pair = |_| {
        let there = stream::connect(to).expect("it listens");
        let here = await_caller(&listener);
        for end in [&here, &there] {
            stream::tune(end, Duration::from_secs(60)).expect("a connection");
            stream::hurry_within_host(end).expect("a connection");
        }
        (here, there)
    };
    (0..count).map(pair).unzip()
}

fn listen() -> OwnedFd {
    stream::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), 1024).expect("a port")
}

fn await_caller(listener: &OwnedFd) -> OwnedFd {
    loop {
        if let Some((socket, _)) = stream::accept(listener).expect("descriptors") {
            return socket;
        }
    }
}

fn send(socket: &OwnedFd, bytes: &[u8]) {
    let part = Segment { ptr: bytes.as_ptr().cast_mut(), len: bytes.len() };
    // SAFETY: it is this slice, which is only read.
    let sent = unsafe { stream::send(socket, &[part], false) };
    assert_eq!(sent.expect("a connection"), bytes.len(), "there is room for some messages");
}

fn recv(socket: &OwnedFd, buffer: &mut [u8]) -> usize {
    let part = Segment { ptr: buffer.as_mut_ptr(), len: buffer.len() };
    // SAFETY: it is this slice.
    match unsafe { stream::recv(socket, &[part]) }.expect("a connection") {
        Received::Bytes(bytes) => bytes,
        _ => 0,
    }
}

fn cpu_ns() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Processor time that each message takes the end that receives and answers it, ns. `None`: there
/// is no such way here.
fn echo(way: Way, count: usize, under_way: usize, size: usize) -> Option<f64> {
    let cpus = affinity::current_cpus();
    let (here, there) = connections(count);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let _ = affinity::pin_to(cpus[0]);
            let took = answer(way, &here, size);
            over.store(true, Ordering::Relaxed);
            took
        });
        scope.spawn(|| {
            let _ = affinity::pin_to(cpus[cpus.len() - 1]);
            ask(&there, under_way, size, &over);
        });
        answering.join().expect("no panic")
    })
}

fn answer(way: Way, here: &[OwnedFd], size: usize) -> Option<f64> {
    let mut waiter = Waiter::new(way, here)?;
    let (mut got, mut began) = (0, 0.0);
    let (mut started, mut is_warm) = (Instant::now(), false);
    loop {
        waiter.turn(here, |socket, bytes| {
            got += bytes.len();
            send(socket, bytes);
        });
        let passed = started.elapsed();
        if !is_warm && passed > WARM {
            (is_warm, got, began, started) = (true, 0, cpu_ns(), Instant::now());
        } else if passed > TIMED {
            return Some((cpu_ns() - began) * size as f64 / got as f64);
        }
    }
}

/// Keeps so many messages under way, each on the next connection.
fn ask(there: &[OwnedFd], under_way: usize, size: usize, over: &AtomicBool) {
    let epoll = Epoll::new().expect("a descriptor");
    for (at, socket) in there.iter().enumerate() {
        epoll.add(socket, at as u64, Interest::Changes).expect("a socket");
    }
    let (message, mut buffer) = (vec![7; size], vec![0; 16 << 10]);
    let mut next = (0..there.len()).cycle();
    let mut ask = || send(&there[next.next().expect("without end")], &message);
    (0..under_way).for_each(|_| ask());
    let mut events = Events::with_capacity(256);
    let mut parts = 0;
    while !over.load(Ordering::Relaxed) {
        epoll.wait(&mut events, Some(Duration::from_millis(50))).expect("an epoll");
        for event in events.iter() {
            parts += recv(&there[event.token as usize], &mut buffer);
            while parts >= size {
                parts -= size;
                ask();
            }
        }
    }
}

/// A backlog of callers.
fn callers(listener: &OwnedFd) -> Vec<OwnedFd> {
    let to = stream::local_address(listener).expect("it is bound");
    (0..CALLERS).map(|_| stream::connect(to).expect("it listens")).collect()
}

fn accept_by_calls() -> f64 {
    let listener = listen();
    let _callers = callers(&listener);
    let started = Instant::now();
    let accepted: Vec<OwnedFd> = (0..CALLERS).map(|_| await_caller(&listener)).collect();
    started.elapsed().as_nanos() as f64 / accepted.len() as f64
}

fn accept_by_ring() -> Option<f64> {
    let listener = listen();
    let mut ring = Ring::accepting(&listener)?;
    let _callers = callers(&listener);
    let started = Instant::now();
    let mut accepted = Vec::new();
    while accepted.len() < CALLERS {
        ring.accepted(&mut accepted);
    }
    Some(started.elapsed().as_nanos() as f64 / accepted.len() as f64)
}

/// Messages that a thread which waits for something else may notice.
const MESSAGES: usize = 5;

/// Waits of a thread that were ended by messages it does not wait for.
fn interruptions(way: Way) -> Option<usize> {
    let (here, there) = connections(1);
    let _waiter = Waiter::new(way, &here)?;
    let mut ended = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..MESSAGES {
                thread::sleep(Duration::from_millis(40));
                send(&there[0], &[7; 8]);
            }
        });
        // An epoll of nothing: only a signal, or something like one, ends the wait before its time.
        let (epoll, mut events) = (Epoll::new().expect("a descriptor"), Events::with_capacity(1));
        let end = Instant::now() + Duration::from_millis(300);
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            epoll.wait(&mut events, Some(left)).expect("an epoll");
            ended += usize::from(Instant::now() + Duration::from_millis(5) < end);
        }
    });
    Some(ended)
}
