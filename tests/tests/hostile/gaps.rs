//! How long an honest peer waits at most while another is attacked: figures, on which no test
//! hangs.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

use pinfold::{Endpoint, PeerId};
use pinfold_tests::{figures, role};

/// The gaps between one round of two honest peers and the next.
pub struct Gaps {
    attack: String,
    last: Instant,
    found: BTreeMap<String, Found>,
    /// Threads of this process and of the other one; only where figures are gathered.
    threads: [Threads; 2],
}

/// Figures of an attack.
#[derive(Clone, Copy, Default)]
struct Found {
    rounds: u64,
    took: Duration,
    longest: Duration,
    /// The longest but for the time in which one of the two waited for a processor.
    unexplained: Duration,
    /// The most that the other one has computed in a gap.
    computed: Duration,
}

impl Gaps {
    /// Gaps of this process with a peer.
    pub fn with(endpoint: &Endpoint, peer: PeerId) -> Gaps {
        let pid = endpoint.peer(peer).map_or(0, |peer| peer.pid);
        let pids = if figures::are_gathered() { [std::process::id(), pid] } else { [0, 0] };
        let threads = pids.map(Threads::of);
        Gaps { attack: String::new(), last: Instant::now(), found: BTreeMap::new(), threads }
    }

    /// The gaps from now on are under an attack of this name.
    pub fn begin(&mut self, attack: &str) {
        for threads in &mut self.threads {
            threads.since();
        }
        attack.clone_into(&mut self.attack);
        self.last = Instant::now();
    }

    /// A round has ended here.
    pub fn end_of_round(&mut self) {
        let now = Instant::now();
        let gap = now - self.last;
        self.last = now;
        let [(_, waited), (computed, other_waited)] = self.threads.each_mut().map(Threads::since);
        let waited = waited + other_waited;
        let found = self.found.entry(self.attack.clone()).or_default();
        found.rounds += 1;
        found.took += gap;
        found.longest = found.longest.max(gap);
        found.unexplained = found.unexplained.max(gap.saturating_sub(waited));
        found.computed = found.computed.max(computed);
    }

    /// Puts out all figures.
    pub fn tell(&self) {
        for (attack, found) in &self.found {
            let Found { rounds, took, longest, unexplained, computed } = *found;
            role::note(format_args!("{attack}: {rounds} rounds, the longest gap {longest:?}"));
            let us = |time: Duration| time.as_micros();
            let values: [(&str, &dyn std::fmt::Display); 6] = [
                ("way", attack),
                ("count", &rounds),
                ("took_us", &us(took)),
                ("longest_us", &us(longest)),
                ("unexplained_us", &us(unexplained)),
                ("computed_us", &us(computed)),
            ];
            figures::add("gaps", &values);
        }
    }
}

/// The kernel's counts for each thread of a process: how long it has computed, and has waited for a
/// processor.
struct Threads {
    pid: u32,
    known: BTreeMap<String, (File, [Duration; 2])>,
    asked: u32,
}

/// Samples between two looks for new threads.
const LOOKS: u32 = 32;

impl Threads {
    /// The threads of a process; none if `pid` is 0.
    fn of(pid: u32) -> Threads {
        Threads { pid, known: BTreeMap::new(), asked: 0 }
    }

    /// The time that they have computed since the last question, and the most that one of them has
    /// waited.
    fn since(&mut self) -> (Duration, Duration) {
        if self.pid != 0 && self.asked.is_multiple_of(LOOKS) {
            self.look();
        }
        self.asked += 1;
        let (mut computed, mut waited) = (Duration::ZERO, Duration::ZERO);
        for (file, before) in self.known.values_mut() {
            let mut text = [0; 64];
            // The file of a thread that has ended reads as nothing.
            let len = file.read_at(&mut text, 0).unwrap_or(0);
            let words = String::from_utf8_lossy(&text[..len]);
            let mut words = words.split_whitespace().map_while(|word| word.parse().ok());
            let (Some(ran), Some(queued)) = (words.next(), words.next()) else { continue };
            let now = [ran, queued].map(Duration::from_nanos);
            computed += now[0].saturating_sub(before[0]);
            waited = waited.max(now[1].saturating_sub(before[1]));
            *before = now;
        }
        (computed, waited)
    }

    /// Adds new threads, and forgets those that have ended; there are none where the kernel does
    /// not list them.
    fn look(&mut self) {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten();
        let mut before = std::mem::take(&mut self.known);
        for task in tasks.flatten() {
            let name = task.file_name().to_string_lossy().into_owned();
            let new = || Some((File::open(task.path().join("schedstat")).ok()?, <_>::default()));
            if let Some(thread) = before.remove(&name).or_else(new) {
                self.known.insert(name, thread);
            }
        }
    }
}
