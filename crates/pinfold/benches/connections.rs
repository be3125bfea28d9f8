//! `cargo bench -p pinfold --bench connections [-- CONNECTIONS UNDER_WAY]`: short messages between
//! two endpoints with many connections, some of them under way at a time, each on the next
//! connection, each answered.
//!
//! Each side has a processor of its own, the first and the last that there is: with fewer than two
//! the numbers mean nothing. The median of some runs is printed.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use pinfold::{Builder, Endpoint, Source, TagMatch};
use pinfold_sys::cpu::affinity;
use rustix::time::{ClockId, clock_gettime};

/// Connections, and messages under way.
const CELLS: [(usize, usize); 11] = [
    (1, 1),
    (16, 1),
    (16, 16),
    (64, 8),
    (64, 64),
    (256, 1),
    (256, 8),
    (256, 256),
    (1000, 1),
    (1000, 32),
    (1000, 1000),
];
const BYTES: usize = 8;
const RUNS: usize = 5;
const WARM: Duration = Duration::from_millis(100);
const TIMED: Duration = Duration::from_millis(300);
/// Connections between one message and the next, so that neighbours do not take turns; a prime.
const STRIDE: usize = 7919;

const ANSWER: u64 = 0;
/// The message that begins the count of the answering side,
const BEGIN: u64 = 1;
/// ...and ends with this.
const END: u64 = 2;

fn main() {
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|it| it.parse().ok()).collect();
    if std::env::args().any(|arg| arg == "--test" || arg == "--list") {
        return;
    }
    for (connections, under_way) in CELLS {
        if asked.iter().zip([connections, under_way]).any(|(asked, is)| *asked != is) {
            continue;
        }
        let mut runs: Vec<Run> = (0..RUNS).map(|_| run(connections, under_way)).collect();
        runs.sort_by(|one, other| one.a_second.total_cmp(&other.a_second));
        let Run { a_second, cpu_ns } = runs[RUNS / 2];
        println!(
            "{connections:4} connections, {under_way:4} under way: {:7.0} a second, \
             {cpu_ns:6.0} ns of the answering processor each",
            a_second
        );
    }
}

struct Run {
    a_second: f64,
    cpu_ns: f64,
}

/// With credit for all, so that no send waits for a receive.
fn builder() -> Builder {
    let credit = 1 << 40;
    Endpoint::builder().local_shortcut(false).peers_max(2000).unexpected_bytes_max(credit)
}

fn cpu_ns() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

fn run(connections: usize, under_way: usize) -> Run {
    let cpus = affinity::current_cpus();
    let (here, there) = (cpus[0], cpus[cpus.len() - 1]);
    let (say, hear) = mpsc::channel();
    thread::spawn(move || {
        thread::scope(|scope| {
            let answering = scope.spawn(move || {
                let _ = affinity::pin_to(there);
                let endpoint = builder().listen("tcp:127.0.0.1:0").build().expect("a port");
                say.send(endpoint.listens_at().expect("it listens")).expect("somebody asks");
                answer(&endpoint)
            });
            let _ = affinity::pin_to(here);
            let endpoint = builder().build().expect("an endpoint");
            let address = hear.recv().expect("it listens");
            let a_second = ask(&endpoint, &address, connections, under_way);
            Run { a_second, cpu_ns: answering.join().expect("no panic") }
        })
    })
    .join()
    .expect("no panic")
}

/// Answers all messages; returns the processor time for each of those between the beginning and the
/// end.
fn answer(endpoint: &Endpoint) -> f64 {
    let (mut began, mut count) = (0.0, 0);
    let mut buffer = [0; BYTES];
    loop {
        let got = endpoint.recv_into(Source::Any, TagMatch::any(), &mut buffer).expect("it asks");
        count += 1;
        endpoint.send(got.peer, ANSWER, &buffer).expect("it listens");
        match got.tag {
            BEGIN => (began, count) = (cpu_ns(), 0),
            END => return (cpu_ns() - began) / f64::from(count),
            _ => {}
        }
    }
}

/// Keeps so many messages under way, with a new one for each answer; returns answers a second.
fn ask(endpoint: &Endpoint, address: &str, connections: usize, under_way: usize) -> f64 {
    let peers: Vec<_> =
        (0..connections).map(|_| endpoint.connect(address).expect("it listens")).collect();
    let mut next = 0;
    let mut ask = |tag| {
        next = (next + STRIDE) % connections;
        endpoint.send(peers[next], tag, &[7; BYTES]).expect("it answers");
    };
    let mut buffer = [0; BYTES];
    let mut hear = || {
        endpoint.recv_into(Source::Any, TagMatch::any(), &mut buffer).expect("it answers");
    };
    (0..under_way).for_each(|_| ask(ANSWER));
    let warm = Instant::now();
    while warm.elapsed() < WARM {
        hear();
        ask(ANSWER);
    }
    hear();
    ask(BEGIN);
    let (started, mut count) = (Instant::now(), 0);
    while started.elapsed() < TIMED {
        hear();
        ask(ANSWER);
        count += 1;
    }
    let a_second = f64::from(count) / started.elapsed().as_secs_f64();
    (0..under_way).for_each(|_| hear());
    ask(END);
    hear();
    a_second
}
