//! The ring of two copies between two cores, with one algorithm after the other: it shows the worth
//! of the choice for messages that are passed on.

use std::{
    os::fd::OwnedFd,
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::Instant,
};

use pinfold::copy::{Algorithm, Prefetch, Reader, Stores};
use pinfold_sys::{
    cpu::{affinity, clock},
    shuffle::Shuffle,
};

use super::{
    measure::Pace,
    samples::{Round, median, medians},
};
use crate::{
    class::Class,
    console::progress,
    control::Control,
    fail::{Fail, Result},
    payload::Messages,
    shared::{Shared, Way},
    stats,
    subject::{
        Subject,
        ring::{self, Manner, Ring},
    },
    sync::{self, Sync, Watch},
    terms::{Memory, Side},
    units, verify,
};

/// Bytes that a turn passes on, about, and its least and most messages.
const TURN_BYTES: usize = 32 << 20;
const TURN_LEAST: usize = 8;
const TURN_MOST: usize = 256;

/// Different messages, used in turn.
const MESSAGES: usize = 2;

/// Bytes that are copied at once: as perf's own ring does it, and as many as a fast core may like.
const CHUNKS: [usize; 2] = [16 << 10, 64 << 10];

/// The result of one contestant with one size.
#[derive(Clone, Debug)]
pub(super) struct Lap {
    pub(super) size: usize,
    pub(super) chunk: usize,
    pub(super) name: String,
    pub(super) copies: Copies,
    pub(super) class: Class,
    /// From core to core, the median of all rounds: within a class it may still differ.
    pub(super) hop_ns: f64,
    pub(super) rounds: usize,
    /// Messages that were checked byte by byte.
    pub(super) verified: u64,
    pub(super) gb_s: f64,
    /// Times as fast as with the C library.
    pub(super) of_libc: f64,
}

/// The algorithms of the two copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copies {
    pub(super) into: Algorithm,
    /// `None` if the messages were only read.
    pub(super) out_of: Option<Algorithm>,
}

/// A way to copy, into the ring and out of it.
struct Contestant {
    name: String,
    into: Way,
    learns: bool,
    out_of: Way,
}

/// The contestant that all others are compared to.
const LIBC: &str = "libc";

/// Contestants that show the best possible, and are no copies: arrivals are only read; and beside
/// that nothing is read to be sent.
const READ_ONLY: &str = "read-only";
const LINES_ONLY: &str = "lines-only";

/// Both copies: by the C library, which copies most programs' bytes; as the plan says; and as lanes
/// learn. Then by each algorithm that streams into the ring, and by each that fetches its
/// destination, in and out. Last come those that copy less than a ring must, which tell how much is
/// to be had at most.
fn contestants() -> Vec<Contestant> {
    let who = |name: String, into, out_of| Contestant { name, into, learns: false, out_of };
    let libc = Way::By(Algorithm::LIBC);
    let read_here = Way::Planned(Reader::Me);
    let planned = Way::Planned(Reader::OtherCore);
    let mut all = vec![
        who(LIBC.into(), libc, libc),
        who("plan".into(), planned, read_here),
        Contestant { learns: true, ..who("learnt".into(), planned, read_here) },
    ];
    let supported = || Algorithm::all().filter(|it| it.is_supported());
    let streaming = supported().filter(|it| it.stores() == Stores::Streaming);
    all.extend(streaming.map(|it| who(it.to_string(), Way::By(it), read_here)));
    let fetching: Vec<Algorithm> = supported()
        .filter(|it| (it.prefetch(), it.stores()) == (Prefetch::Destination, Stores::Temporal))
        .collect();
    all.extend(fetching.iter().map(|&it| who(it.to_string(), Way::By(it), Way::By(it))));
    // The widest is the last.
    let widest = fetching.last().copied().unwrap_or(Algorithm::LIBC);
    let lines = Way::Lines(widest);
    all.push(who(READ_ONLY.into(), Way::By(widest), lines));
    all.push(who(LINES_ONLY.into(), lines, lines));
    all
}

/// The next task of both threads.
#[derive(Clone, Copy)]
enum Order {
    /// Look how far apart the cores are.
    Look,
    /// Pass messages on.
    Turn { size: usize, count: usize, seed: u64, manner: Manner },
}

/// The second thread's answer to an order.
struct Heard {
    /// The algorithm that it copied by.
    last: Algorithm,
    /// Messages that it checked byte by byte.
    verified: u64,
}

/// One thread's part.
struct End {
    ring: Ring,
    sync: Sync,
    messages: Messages,
}

impl End {
    fn new(
        control: OwnedFd,
        [page, area]: [OwnedFd; 2],
        side: Side,
        one_core: bool,
    ) -> Result<End> {
        let watch = Watch::new(&Control::new(control), one_core);
        let sync = Sync::new(Shared::open(&page, sync::BYTES)?, side, watch.clone());
        let ring = Ring::new(Shared::open(&area, ring::BYTES)?, side, watch);
        Ok(End { ring, sync, messages: Messages::new() })
    }

    /// Sends; returns the time of each message, nanoseconds; or the distance between the cores.
    fn first(&mut self, order: Order) -> Result<f64> {
        let Order::Turn { size, count, seed, manner } = order else { return self.sync.hop_ns() };
        self.messages.shape(size, MESSAGES, Memory::Heap)?;
        self.messages.fill(seed);
        self.ring.set_manner(manner);
        self.sync.barrier()?;
        let start = clock::ticks();
        self.ring.stream_out(&self.messages, count)?;
        // All has arrived.
        self.sync.barrier()?;
        let taken = clock::ticks().wrapping_sub(start);
        Ok(stats::ps(taken) as f64 / 1000.0 / count as f64)
    }

    /// Receives and checks.
    fn second(&mut self, order: Order) -> Result<Heard> {
        let mut verified = 0;
        if let Order::Turn { size, count, seed, manner } = order {
            self.messages.shape(size, MESSAGES, Memory::Heap)?;
            // Messages that arrived before must not do.
            self.messages.fill(!seed);
            self.ring.set_manner(manner);
            self.sync.barrier()?;
            self.ring.stream_in(&mut self.messages, count)?;
            self.sync.barrier()?;
            // A contestant that copies nothing has nothing to show.
            let copies = if manner.delivers() { MESSAGES } else { 0 };
            for at in 0..copies {
                verify::check(self.messages.get(at), verify::seed(seed + at as u64))
                    .map_err(|source| Fail::Wrong { subject: "ring".into(), size, source })?;
                verified += 1;
            }
        } else {
            self.sync.hop_ns()?;
        }
        Ok(Heard { last: self.ring.last_algorithm(), verified })
    }
}

/// The first thread, with its channels to the second.
struct Track {
    end: End,
    orders: Sender<Order>,
    replies: Receiver<Result<Heard>>,
    hops_ns: Vec<f64>,
    seed: u64,
}

impl Track {
    /// Both threads do `order`: returns the answers of the first and of the second.
    fn both(&mut self, order: Order) -> Result<(f64, Heard)> {
        // If the second thread is gone, it has said why.
        let _ = self.orders.send(order);
        let here = self.end.first(order);
        match (here, self.replies.recv()) {
            (Ok(here), Ok(Ok(there))) => Ok((here, there)),
            (_, Ok(Err(why))) | (Err(why), _) => Err(why),
            (Ok(_), Err(_)) => Err(Fail::Gone),
        }
    }

    fn look(&mut self) -> Result<f64> {
        let (hop_ns, _) = self.both(Order::Look)?;
        self.hops_ns.push(hop_ns);
        Ok(hop_ns)
    }

    /// All contestants with messages of `size`, in chunks of `chunk`, for some rounds.
    fn laps(
        &mut self,
        (size, chunk): (usize, usize),
        rounds_wanted: usize,
        rng: &mut Shuffle,
    ) -> Result<Vec<Lap>> {
        let all = contestants();
        let mut copies = vec![Copies { into: Algorithm::LIBC, out_of: None }; all.len()];
        let (mut rounds, mut hops_ns) = (Vec::<Round>::new(), Vec::new());
        let mut verified = vec![0; all.len()];
        let count = (TURN_BYTES / size).clamp(TURN_LEAST, TURN_MOST);
        // The first round brings in pages and code, and does not count.
        for round in 0..=rounds_wanted {
            let mut order: Vec<usize> = (0..all.len()).collect();
            rng.shuffle(&mut order);
            let mut ns = vec![0.0; all.len()];
            let before = self.look()?;
            for at in order {
                let Contestant { into, learns, out_of, .. } = all[at];
                let manner = Manner { into, learns, out_of, chunk: Some(chunk) };
                self.seed += MESSAGES as u64;
                let turn = Order::Turn { size, count, seed: self.seed, manner };
                let (taken, heard) = self.both(turn)?;
                let out_of = manner.delivers().then_some(heard.last);
                copies[at] = Copies { into: self.end.ring.last_algorithm(), out_of };
                verified[at] += heard.verified;
                ns[at] = taken;
            }
            let after = self.look()?;
            if round > 0 {
                rounds.push(Round { class: Some(Class::of(before, after)), ns });
                hops_ns.extend([before, after]);
            }
        }
        let Some((class, counted, ns)) = medians(&rounds, true) else { return Ok(Vec::new()) };
        let hop_ns = median(hops_ns).unwrap_or_default();
        let laps = all.into_iter().zip(copies).zip(verified).zip(&ns);
        let laps = laps.map(|(((who, copies), verified), own)| Lap {
            size,
            chunk,
            name: who.name,
            copies,
            class: class.unwrap_or(Class::Mixed),
            hop_ns,
            rounds: counted,
            verified,
            gb_s: size as f64 / own,
            of_libc: ns[0] / own,
        });
        Ok(laps.collect())
    }
}

/// Measures messages of these sizes on two processors. Returns the laps, and nanoseconds from core
/// to core, one for each probe.
///
/// # Errors
/// The first message that was wrong; no memory; resources that the threads cannot have.
pub(super) fn measure(
    sizes: &[usize],
    cores: [usize; 2],
    pace: Pace,
) -> Result<(Vec<Lap>, Vec<f64>)> {
    let (first, second) = Control::pair()?;
    let (_, page) = Shared::create("pinfold-perf-sync", sync::BYTES)?;
    let (_, area) = Shared::create("pinfold-perf-ring", ring::BYTES)?;
    let clone = |file: &OwnedFd| file.try_clone().map_err(Fail::os("dup"));
    let its = [clone(&page)?, clone(&area)?];
    let (orders, ordered) = mpsc::channel();
    let (reply, replies) = mpsc::channel();
    let one_core = cores[0] == cores[1];
    let serve = move || {
        let end = affinity::pin_to(cores[1])
            .map_err(Fail::os("sched_setaffinity"))
            .and_then(|()| End::new(second, its, Side::Second, one_core));
        let mut end = match end {
            Ok(end) => end,
            Err(why) => return drop(reply.send(Err(why))),
        };
        for order in ordered {
            let done = end.second(order);
            let failed = done.is_err();
            if reply.send(done).is_err() || failed {
                return;
            }
        }
    };
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("perf-copy-ring".into());
        builder.spawn_scoped(scope, serve).map_err(Fail::os("clone"))?;
        affinity::pin_to(cores[0]).map_err(Fail::os("sched_setaffinity"))?;
        let end = End::new(first, [page, area], Side::First, one_core)?;
        let mut track = Track { end, orders, replies, hops_ns: Vec::new(), seed: 0 };
        let start = Instant::now();
        let (mut laps, mut rng) = (Vec::new(), Shuffle::new());
        let races: Vec<(usize, usize)> =
            sizes.iter().flat_map(|&size| CHUNKS.map(|chunk| (size, chunk))).collect();
        let bar = progress::steps(races.len() as u64);
        for race in races {
            bar.set_message(format!("ring of {}", units::bytes(race.0)));
            let late = start.elapsed() > pace.time;
            let rounds = if late { pace.rounds_min } else { pace.rounds };
            laps.extend(track.laps(race, rounds, &mut rng)?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok((laps, track.hops_ns))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_passes_messages_on() {
        // Two threads that spin on one core take turns only as the kernel pleases.
        let Some(cores) = crate::cores::two_of(&affinity::current_cpus()) else {
            return pinfold_tests::skip::skip("there is no second processor");
        };
        let pace = Pace { rounds: 1, rounds_min: 1, time: std::time::Duration::ZERO };
        let sizes = [70_000, 100];
        let measured = thread::spawn(move || measure(&sizes, cores, pace));
        let (laps, hops_ns) = measured.join().unwrap().unwrap();
        assert_eq!(laps.len(), sizes.len() * CHUNKS.len() * contestants().len());
        assert!(hops_ns.len() >= 2 * sizes.len() * CHUNKS.len());
        for lap in &laps {
            let verified = if lap.copies.out_of.is_some() { 2 * MESSAGES as u64 } else { 0 };
            assert!(lap.gb_s > 0.0 && lap.verified == verified, "{lap:?}");
            match &*lap.name {
                READ_ONLY | LINES_ONLY => assert!(lap.copies.out_of.is_none()),
                LIBC => assert_eq!((lap.copies.into, lap.of_libc), (Algorithm::LIBC, 1.0)),
                "plan" | "learnt" => assert!(lap.copies.into.is_supported()),
                name => assert_eq!(lap.copies.into.to_string(), name),
            }
        }
    }
}
