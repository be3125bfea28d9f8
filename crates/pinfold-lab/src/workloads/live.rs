//! Programs run for real: an endpoint for each rank, puts and gets by one-sided operations on
//! registered memory, small messages by active messages. [`run`] has the ranks in threads;
//! [`processes`](super::processes) has them in processes of their own.

use std::{
    process,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use pinfold::{Endpoint, PeerId, Progress, RegionKey, Registered, RemoteRegion, Rights};

use super::{Carrier, Kind, Log, Node, Program, Transfer, lockstep};

/// Handlers of active messages.
const STORE: u32 = 1;
const FENCE: u32 = 2;
/// A rank waits no longer for the others' messages of a phase.
const PATIENCE: Duration = Duration::from_secs(60);

/// Looks for the others' messages before a rank sleeps between two.
const LOOKS: u32 = 200;
/// The sleep between two later looks.
const SLEEP: Duration = Duration::from_micros(100);

/// Names of endpoints that this process made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// The messages that came to a rank.
#[derive(Debug, Default)]
struct Inbox {
    /// By sender.
    words: Vec<Vec<u64>>,
    /// Phases that senders have ended, added up.
    fences: usize,
}

/// The others, as a rank reaches them; itself is none.
struct Wire {
    endpoint: Endpoint,
    memory: Registered<Vec<u8>>,
    peers: Vec<Option<(PeerId, RemoteRegion)>>,
    rank: usize,
    /// The moments when transfers were begun, ns of the system's clock.
    at_ns: Vec<u64>,
}

/// Now, ns of the system's clock.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn words(why: impl ToString) -> String {
    why.to_string()
}

impl Wire {
    fn peer(&self, rank: usize) -> Result<&(PeerId, RemoteRegion), String> {
        let peer = self.peers.get(rank).and_then(Option::as_ref);
        peer.ok_or_else(|| format!("rank {} transfers to {rank}", self.rank))
    }

    fn others(&self) -> impl Iterator<Item = &(PeerId, RemoteRegion)> {
        self.peers.iter().flatten()
    }
}

impl Carrier for Wire {
    fn read(&self, at: usize, into: &mut [u8]) -> Result<(), String> {
        self.memory.read(at, into).map_err(words)
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), String> {
        self.memory.write(at, bytes).map_err(words)
    }

    fn carry(&mut self, transfer: Transfer) -> Result<(), String> {
        self.at_ns.push(now_ns());
        let (own, theirs) = (transfer.own as usize, u64::from(transfer.theirs));
        let mut bytes = vec![0; transfer.bytes as usize];
        let remote = &self.peer(transfer.peer as usize)?.1;
        if transfer.kind == Kind::Get {
            remote.read(theirs, &mut bytes).map_err(words)?;
            self.memory.write(own, &bytes).map_err(words)
        } else {
            self.memory.read(own, &mut bytes).map_err(words)?;
            remote.write(theirs, &bytes).map(drop).map_err(words)
        }
    }

    fn store(&mut self, to: usize, word: u64) -> Result<(), String> {
        self.at_ns.push(now_ns());
        let mut payload = [0; 10];
        payload[..2].copy_from_slice(&(self.rank as u16).to_le_bytes());
        payload[2..].copy_from_slice(&word.to_le_bytes());
        let peer = self.peer(to)?.0;
        self.endpoint.call(peer, STORE, &payload).map(drop).map_err(words)
    }
}

/// A barrier that breaks when a rank fails, so that nobody waits for that one.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    waiting: usize,
    opened: u64,
    broken: bool,
}

impl Gate {
    /// Waits for all of so many ranks.
    fn wait(&self, ranks: usize) -> Result<(), String> {
        let mut state = self.state.lock().map_err(words)?;
        state.waiting += 1;
        if state.waiting == ranks {
            state.waiting = 0;
            state.opened += 1;
            self.changed.notify_all();
        }
        let opened = state.opened;
        let closed =
            |state: &mut GateState| state.opened == opened && !state.broken && state.waiting > 0;
        let state = self.changed.wait_while(state, closed).map_err(words)?;
        if state.broken { Err(BROKEN.into()) } else { Ok(()) }
    }

    fn end(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.broken = true;
        }
        self.changed.notify_all();
    }
}

/// The error of a rank that waits for one that failed.
const BROKEN: &str = "another rank failed";

/// The way that ranks find each other, and wait for each other.
pub(super) trait Meet {
    /// The names of all ranks' endpoints.
    fn names(&self) -> &[String];

    /// Tells the others the key of this rank's memory, and returns all ranks' keys. Waits until
    /// all ranks are here.
    ///
    /// # Errors
    /// Another rank failed; in words, as for all of these.
    fn keys(&self, rank: usize, key: RegionKey) -> Result<Vec<RegionKey>, String>;

    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// As [`Meet::keys`].
    fn wait(&self) -> Result<(), String>;

    /// Returns whether another rank is known to have failed.
    fn is_broken(&self) -> bool;
}

/// A meeting of ranks in threads.
struct Meeting {
    names: Vec<String>,
    keys: Mutex<Vec<Option<RegionKey>>>,
    gate: Gate,
}

impl Meet for Meeting {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn keys(&self, rank: usize, key: RegionKey) -> Result<Vec<RegionKey>, String> {
        self.keys.lock().map_err(words)?[rank] = Some(key);
        self.wait()?;
        let keys = self.keys.lock().map_err(words)?;
        let key = |(other, key): (usize, &Option<RegionKey>)| {
            key.ok_or_else(|| format!("rank {other} did not begin"))
        };
        keys.iter().enumerate().map(key).collect()
    }

    fn wait(&self) -> Result<(), String> {
        self.gate.wait(self.names.len())
    }

    fn is_broken(&self) -> bool {
        self.gate.state.lock().map_or(true, |state| state.broken)
    }
}

fn sender(payload: &[u8]) -> Option<(usize, u64)> {
    let (rank, word) = payload.split_at_checked(2)?;
    let rank = u16::from_le_bytes(rank.try_into().ok()?);
    Some((usize::from(rank), u64::from_le_bytes(word.try_into().ok()?)))
}

fn endpoint(name: &str, inbox: &Arc<Mutex<Inbox>>) -> Result<Endpoint, String> {
    let (stores, fences) = (Arc::clone(inbox), Arc::clone(inbox));
    Endpoint::builder()
        .listen(name)
        .progress(Progress::Dedicated)
        .handle(STORE, move |active| {
            let Some((rank, word)) = sender(active.payload()) else { return };
            let Ok(mut inbox) = stores.lock() else { return };
            if let Some(words) = inbox.words.get_mut(rank) {
                words.push(word);
            }
        })
        .handle(FENCE, move |_| {
            if let Ok(mut inbox) = fences.lock() {
                inbox.fences += 1;
            }
        })
        .build()
        .map_err(words)
}

/// Connects a rank with all others and opens their memory.
fn wire(
    rank: usize,
    memory: Vec<u8>,
    meeting: &dyn Meet,
    inbox: &Arc<Mutex<Inbox>>,
) -> Result<Wire, String> {
    let endpoint = endpoint(&meeting.names()[rank], inbox)?;
    let memory = endpoint.register(memory, Rights::ReadWrite).map_err(words)?;
    let keys = meeting.keys(rank, memory.key())?;
    let mut peers = Vec::new();
    for (other, (name, key)) in meeting.names().iter().zip(&keys).enumerate() {
        peers.push(if other == rank {
            None
        } else {
            let peer = endpoint.connect(name).map_err(words)?;
            Some((peer, endpoint.open_region(peer, key).map_err(words)?))
        });
    }
    meeting.wait()?;
    Ok(Wire { endpoint, memory, peers, rank, at_ns: Vec::new() })
}

/// Waits until all that was sent in a phase is here and everywhere.
fn end_phase(
    wire: &Wire,
    phase: usize,
    meeting: &dyn Meet,
    inbox: &Mutex<Inbox>,
) -> Result<(), String> {
    for (peer, remote) in wire.others() {
        remote.flush().map_err(words)?;
        wire.endpoint.call(*peer, FENCE, &[]).map_err(words)?;
    }
    let expected = (meeting.names().len() - 1) * (phase + 1);
    let (begun, mut looks) = (Instant::now(), 0);
    while inbox.lock().map_err(words)?.fences < expected {
        if meeting.is_broken() {
            return Err(BROKEN.into());
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("phase {phase} of rank {} does not end", wire.rank));
        }
        looks += 1;
        // With more ranks than processors the others have to get theirs.
        if looks < LOOKS { thread::yield_now() } else { thread::sleep(SLEEP) }
    }
    Ok(())
}

/// The transfers of a rank, and when and where they were.
pub(super) struct Traced {
    /// The transfers, phase by phase.
    pub(super) log: Log,
    /// The moments when they were begun, in their order, ns of the system's clock.
    pub(super) at_ns: Vec<u64>,
    /// The address of the rank's memory.
    pub(super) address: u64,
}

/// Runs a rank's part of a program.
///
/// # Errors
/// It could not begin, a transfer failed, another rank failed, or the program said so; in words.
pub(super) fn rank(
    rank: usize,
    program: &mut dyn Program,
    meeting: &dyn Meet,
) -> Result<Traced, String> {
    let ranks = meeting.names().len();
    let inbox = Arc::new(Mutex::new(Inbox { words: vec![Vec::new(); ranks], fences: 0 }));
    let memory = vec![0; program.memory_bytes().max(1)];
    let address = memory.as_ptr().addr() as u64;
    let mut wire = wire(rank, memory, meeting, &inbox)?;
    let mut all = Vec::new();
    for phase in 0.. {
        let mut log = Vec::new();
        let mut node = Node { rank, ranks, log: &mut log, carrier: &mut wire };
        let goes_on = program.phase(phase, &mut node)?;
        all.push(log);
        end_phase(&wire, phase, meeting, &inbox)?;
        let came: Vec<Vec<u64>> =
            inbox.lock().map_err(words)?.words.iter_mut().map(std::mem::take).collect();
        // Nobody begins the next phase before all have taken this one's messages.
        meeting.wait()?;
        for (from, came) in came.into_iter().enumerate() {
            came.into_iter().for_each(|word| program.deliver(from, word));
        }
        if !goes_on {
            break;
        }
    }
    Ok(Traced { log: all, at_ns: wire.at_ns, address })
}

/// Runs a program, each rank's part of it in a thread with an endpoint of its own, on this host.
///
/// # Errors
/// The error of a rank that failed first: it could not begin, a transfer failed, or the program
/// said so. The others end, too.
pub fn run<P: Program + Send>(programs: &mut [P]) -> Result<Vec<Log>, String> {
    let made = MADE.fetch_add(1, Relaxed);
    let name = |rank| format!("local:pinfold-lab-{}-{made}-{rank}", process::id());
    let meeting = Meeting {
        names: (0..programs.len()).map(name).collect(),
        keys: Mutex::new(vec![None; programs.len()]),
        gate: Gate::default(),
    };
    let all: Vec<Result<Log, String>> = thread::scope(|scope| {
        let threads: Vec<_> = programs
            .iter_mut()
            .enumerate()
            .map(|(at, program)| {
                let meeting = &meeting;
                scope.spawn(move || {
                    let done = rank(at, program, meeting).map(|it| it.log);
                    done.inspect_err(|_| meeting.gate.end())
                })
            })
            .collect();
        let end = |thread: thread::ScopedJoinHandle<'_, Result<Log, String>>| {
            thread.join().unwrap_or_else(|_| Err("a rank panicked".into()))
        };
        threads.into_iter().map(end).collect()
    });
    let cause = all.iter().filter_map(|log| log.as_ref().err()).find(|why| *why != BROKEN);
    if let Some(why) = cause {
        return Err(why.clone());
    }
    all.into_iter().collect()
}

/// Runs `one` for real and `other`, the same program, in lock step, and compares their transfers.
/// Returns how many there were.
///
/// # Errors
/// The transfers differ; or either failed.
pub fn run_beside<P: Program + Send>(
    name: &str,
    one: &mut [P],
    other: &mut [P],
) -> Result<usize, String> {
    let logs = run(one)?;
    if lockstep::run(other)? != logs {
        return Err(format!("{name} has other transfers here"));
    }
    Ok(logs.iter().flatten().map(Vec::len).sum())
}
