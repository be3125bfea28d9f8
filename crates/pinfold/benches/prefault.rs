//! `cargo bench -p pinfold --bench ready [-- WORDS]`: the gain of prefaulting the memory of
//! receives before their messages come. A receive is posted, its message sent a millisecond later;
//! the time is from the send to the end of the receive, with and without, in turns. WORDS pick
//! cases by their names, as in `cma fresh`.
//!
//! Each side has a processor of its own, the first and the last that there is. The median of each
//! and of the ratios of neighbours is printed, with the quartiles of these. Contents are looked at
//! each time.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use pinfold::{Builder, Endpoint, Path, PathSet, PeerId};
use pinfold_sys::{cpu::affinity, mem::userfault::Pages};

const PAUSE: Duration = Duration::from_millis(1);
const WAYS: [&str; 3] = ["ring", "cma", "tcp"];
/// Pairs of endpoints for each case: the place of memory, and the lanes' learning, differ with
/// them.
const PAIRS: usize = 6;
const WARM: usize = 10;
const ROUNDS: usize = 40;
/// Round trips that are timed as one.
const TRIPS: usize = 2000;

/// The cases: true if a receive has untouched memory of its own each time, or else always the same;
/// and true if it waits a while for its message.
const CASES: [(&str, bool, bool); 3] =
    [("fresh", true, true), ("again", false, true), ("at once", false, false)];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if words.iter().any(|arg| arg == "--test" || arg == "--list") {
        return;
    }
    let picked = |name: &str| words.iter().all(|word| name.contains(word.as_str()));
    for way in WAYS {
        for (case, fresh, waits) in CASES {
            for kib in [64, 256, 1024, 8192] {
                let name = format!("{way} {case} {kib}k");
                if picked(&name) {
                    compare(&name, |with| Bench { way, with, fresh, waits, len: kib << 10 });
                }
            }
        }
        let name = format!("{way} 8 bytes");
        if picked(&name) {
            compare(&name, |with| Bench { way, with, fresh: false, waits: false, len: 8 });
        }
    }
}

#[derive(Clone, Copy)]
struct Bench {
    way: &'static str,
    with: bool,
    fresh: bool,
    waits: bool,
    len: usize,
}

/// Runs both in turns.
fn compare(name: &str, bench: impl Fn(bool) -> Bench + Sync) {
    let mut times = [Vec::new(), Vec::new()];
    let mut made = [0; 2];
    for pair in 0..PAIRS {
        let withs = if pair % 2 == 0 { [false, true] } else { [true, false] };
        let mut run = || {
            let mut sides = withs.map(|with| Side::begin(bench(with)));
            // Not before: an endpoint that is made with one processor takes it that all share that.
            let _ = affinity::pin_to(affinity::current_cpus()[0]);
            for round in 0..WARM + ROUNDS {
                for at in [round % 2, 1 - round % 2] {
                    let (time, ready) = sides[at].round(round);
                    if round >= WARM {
                        times[usize::from(withs[at])].push(time);
                        made[usize::from(withs[at])] += ready;
                    }
                }
            }
        };
        // A thread of its own, for it stays where it is pinned.
        thread::scope(|scope| scope.spawn(&mut run).join().expect("no panic"));
    }
    let mut ratios: Vec<f64> = times[0].iter().zip(&times[1]).map(|(off, on)| on / off).collect();
    let [off, on] = times.map(|mut times| part(&mut times, 2));
    println!(
        "{name:16}: without {off:8.1} µs, with {on:8.1} µs: {:5.3} ({:5.3} to {:5.3}), {:.2} made ready",
        part(&mut ratios, 2),
        part(&mut ratios, 1),
        part(&mut ratios, 3),
        made[1] as f64 / (PAIRS * ROUNDS * bench(true).len) as f64,
    );
    assert_eq!(made[0], 0);
}

/// A quartile.
fn part(numbers: &mut [f64], quarters: usize) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() * quarters / 4]
}

/// A receiving end, and a thread that sends when it is told.
struct Side {
    bench: Bench,
    endpoint: Endpoint,
    from: PeerId,
    memory: Pages,
    go: mpsc::Sender<usize>,
    sent: mpsc::Receiver<Instant>,
}

impl Side {
    fn begin(bench: Bench) -> Side {
        let paths = if bench.way == "ring" {
            PathSet::only(&[Path::Inline, Path::Eager])
        } else {
            PathSet::all()
        };
        let builder = move || Endpoint::builder().paths(paths).local_shortcut(false);
        let listen = |builder: Builder| match bench.way {
            "tcp" => builder.listen("tcp:127.0.0.1:0"),
            _ => builder.listen(&format!("local:ready-{}-{}", std::process::id(), bench.with)),
        };
        let endpoint = listen(builder()).prepare_receives(bench.with).build().expect("an endpoint");
        let address = match endpoint.listens_at() {
            Some(address) if bench.way == "tcp" => address,
            _ => format!("local:ready-{}-{}", std::process::id(), bench.with),
        };
        let ((go, gone), (say, sent)) = (mpsc::channel(), mpsc::channel());
        thread::spawn(move || {
            let endpoint = builder().build().expect("an endpoint");
            let _ = affinity::current_cpus().last().map(|last| affinity::pin_to(*last));
            let peer = endpoint.connect(&address).expect("to connect");
            send(bench, &endpoint, peer, &gone, &say);
        });
        let from = endpoint.accept().expect("a peer");
        let mut memory = fresh(bench.len);
        memory.as_mut_slice().fill(1);
        Side { bench, endpoint, from, memory, go, sent }
    }

    /// Microseconds, and bytes that were prefaulted.
    fn round(&mut self, round: usize) -> (f64, u64) {
        if self.bench.len == 8 {
            return (self.trips(round), 0);
        }
        if self.bench.fresh {
            self.memory = fresh(self.bench.len);
        }
        self.go.send(round).expect("it sends");
        let received = self.endpoint.recv_into(self.from, 1, self.memory.as_mut_slice());
        let end = Instant::now();
        let made = received.expect("a message").receipt.prefaulted();
        let expected = bytes(round);
        assert!(self.memory.as_mut_slice().chunks_exact(8).all(|chunk| chunk == expected));
        ((end - self.sent.recv().expect("it was sent")).as_nanos() as f64 / 1e3, made)
    }

    /// Messages of 8 bytes to and fro.
    fn trips(&mut self, round: usize) -> f64 {
        self.go.send(round).expect("it sends");
        let memory = &mut self.memory.as_mut_slice()[..8];
        self.endpoint.recv_into(self.from, 1, memory).expect("the first");
        let begin = Instant::now();
        for _ in 0..TRIPS {
            self.endpoint.send(self.from, 1, &bytes(round)).expect("it waits");
            self.endpoint.recv_into(self.from, 1, memory).expect("the answer");
            assert_eq!(*memory, bytes(round));
        }
        begin.elapsed().as_nanos() as f64 / 1e3 / TRIPS as f64
    }
}

/// Memory that has not been touched.
fn fresh(len: usize) -> Pages {
    Pages::new(len.next_multiple_of(4096), false).expect("memory")
}

fn bytes(round: usize) -> [u8; 8] {
    (round as u64 | 1 << 63).to_ne_bytes()
}

/// Sends when it is told, until the channel closes.
fn send(
    bench: Bench,
    endpoint: &Endpoint,
    peer: PeerId,
    go: &mpsc::Receiver<usize>,
    say: &mpsc::Sender<Instant>,
) {
    for round in go {
        let message = bytes(round).repeat(bench.len / 8);
        if bench.len == 8 {
            endpoint.send(peer, 1, &message).expect("it waits");
            let mut answer = [0; 8];
            for _ in 0..TRIPS {
                endpoint.recv_into(peer, 1, &mut answer).expect("it goes");
                endpoint.send(peer, 1, &answer).expect("it waits");
            }
            continue;
        }
        // The receive is posted some microseconds after the word to go.
        let pause = if bench.waits { PAUSE } else { Duration::from_micros(30) };
        let begin = Instant::now();
        while begin.elapsed() < pause {
            std::hint::spin_loop();
        }
        let begin = Instant::now();
        endpoint.send(peer, 1, &message).expect("it waits");
        say.send(begin).expect("somebody times it");
    }
}
