//! Crowds: sixty-four processes, each of which talks with every other, and more processes than
//! processors.

use std::{collections::VecDeque, fs};

use pinfold::{Arena, Endpoint, Path, PathSet, PeerId, SendRequest, Source, TagMatch};
use pinfold_tests::{
    Aligned, Args, Baseline, Stage,
    baseline::cpu_time,
    block_on,
    host::Bytes,
    role::{PATIENCE, hear, say},
    skip,
    stage::{Player, all_end_well},
    stamp::{self, Random},
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

pinfold_tests::roles!(member, passer);

// Each member with every other.

/// Mostly short ones; some go by every path.
const LENGTHS: [usize; 16] =
    [0, 1, 8, 8, 55, 56, 57, 64, 700, 1024, 4096, 8193, 8193, 30_000, 70_000, 260_000];

#[test]
fn each_with_each() {
    meeting(64, 4);
}

#[test]
fn two_hundred_each_with_each() {
    meeting(200, 1);
}

/// Processes that take their names, or give them back, at the same time. Names are taken under one
/// lock, each with a look at all others; where there are far more processes than processors,
/// hundreds of processes that ask for it at once do not all get it in the seconds that an endpoint
/// waits for it.
const TOGETHER: usize = 16;

/// `count` processes, each of which sends so many messages to every other.
fn meeting(count: u64, each: u64) {
    let stage = Stage::new(240);
    let cast = |me| stage.role("member").with("me", me).with("members", count).with("each", each);
    let mut members: Vec<Player> = Vec::new();
    for first in (0..count).step_by(TOGETHER) {
        let here = members.len();
        let group = first..count.min(first + TOGETHER as u64);
        members.extend(group.map(|me| cast(me).spawn()));
        for member in &mut members[here..] {
            member.expect("listens");
        }
    }
    for member in &mut members {
        member.say("go on");
    }
    for member in &mut members {
        member.expect("has met all");
    }
    for member in &mut members {
        member.say("go on");
    }
    let mut sent = [0u64; Path::ALL.len()];
    let mut is_denied = false;
    for member in &mut members {
        let counts = member.expect("has heard all");
        for (sum, count) in sent.iter_mut().zip(counts.split(' ')) {
            *sum += count.parse::<u64>().expect("a number");
        }
        is_denied |= counts.ends_with("denied");
    }
    // No member leaves before all have heard all.
    for group in members.chunks_mut(TOGETHER) {
        for member in &mut *group {
            member.say("leave");
        }
        all_end_well(group);
    }
    assert_eq!(sent.iter().sum::<u64>(), count * (count - 1) * each);
    // No member gives memory away.
    for path in Path::ALL.into_iter().filter(|path| *path != Path::Handoff) {
        if path == Path::Cma && is_denied {
            skip("the cma path among sixty-four processes: denied");
        } else {
            assert!(sent[path as usize] > 0, "nothing went by {path}: {sent:?}");
        }
    }
    let left: Vec<_> = fs::read_dir(stage.sockets(rustix::process::geteuid().as_raw()))
        .expect("the directory")
        .map(|entry| entry.expect("an entry").file_name())
        .filter(|name| name.to_string_lossy().starts_with("member"))
        .collect();
    assert!(left.is_empty(), "names left behind: {left:?}");
}

/// The number that identifies a message, and gives it its length and contents.
fn seed(from: u64, to: u64, number: u64) -> u64 {
    from << 32 | to << 16 | number
}

fn length(seed: u64) -> usize {
    Random::new(seed).pick(&LENGTHS)
}

fn member(args: &Args) {
    let (me, members): (u64, u64) = (args.number("me"), args.number("members"));
    let each: u64 = args.number("each");
    let before = Baseline::now();
    // Pairs agree on different paths.
    let paths = if me % 4 == 3 { PathSet::all().without(Path::Cma) } else { PathSet::all() };
    let endpoint = Endpoint::builder()
        .label(&format!("member-{me}"))
        .listen(&format!("local:member-{me}"))
        .paths(paths)
        .build()
        .expect("to listen");
    say("listens");
    hear();
    let peers = meet(&endpoint, me, members);
    say("has met all");
    hear();
    let mut meeting =
        Meeting { endpoint: &endpoint, peers, me, members, each, next: Vec::new(), left: 0 };
    meeting.talk();
    let peers = endpoint.peers();
    assert_eq!(peers.len() as u64, members - 1);
    let is_denied = peers.iter().any(|peer| peer.cma_refused.is_some_and(|why| why.is_denial()));
    let counters = endpoint.counters();
    assert_eq!(
        counters.received.iter().map(|count| count.messages).sum::<u64>(),
        (members - 1) * each
    );
    let sent = counters.sent.map(|count| count.messages.to_string()).join(" ");
    let end = if is_denied { "denied" } else { "allowed" };
    say(format_args!("has heard all {sent} {end}"));
    hear();
    drop(endpoint);
    before.returns(PATIENCE);
}

/// Connects to all with smaller numbers, and is connected to by all others.
fn meet(endpoint: &Endpoint, me: u64, members: u64) -> Vec<Option<PeerId>> {
    let mut peers = vec![None; members as usize];
    for other in 0..me {
        let peer = endpoint.connect(&format!("local:member-{other}")).expect("to connect");
        peers[other as usize] = Some(peer);
    }
    for _ in me + 1..members {
        let peer = endpoint.accept_timeout(PATIENCE).expect("a member");
        let name = endpoint.peer(peer).expect("it is connected").name;
        let number = name.strip_prefix("member-").and_then(|rest| rest.split(' ').next());
        let number: usize = number.expect("its label").parse().expect("its number");
        assert!(number > me as usize && peers[number].replace(peer).is_none(), "{name}");
    }
    peers
}

/// One member's part in the conversation.
struct Meeting<'a> {
    endpoint: &'a Endpoint,
    peers: Vec<Option<PeerId>>,
    me: u64,
    members: u64,
    each: u64,
    /// The number of the next message from each member.
    next: Vec<u64>,
    left: u64,
}

impl Meeting<'_> {
    fn talk(&mut self) {
        self.next = vec![0; self.members as usize];
        self.left = (self.members - 1) * self.each;
        let mut random = Random::new(self.me);
        let mut sends = VecDeque::<SendRequest<Bytes>>::new();
        let arena = Arena::new().expect("an arena");
        for number in 0..self.each {
            let (members, first) = (self.members, random.below(self.members));
            for other in (0..members).map(|i| (first + i) % members) {
                let Some(peer) = self.peers[other as usize] else { continue };
                let seed = seed(self.me, other, number);
                let len = length(seed);
                let mut memory = match self.me.is_multiple_of(2) {
                    true => Aligned::in_arena(&arena, len, 0),
                    false => Aligned::new(len, 0),
                };
                stamp::fill(memory.get_mut(), seed);
                sends.push_back(self.endpoint.send_owned(peer, seed, memory.into_bytes()));
                while self.left > 0
                    && self.endpoint.try_probe(Source::Any, TagMatch::any()).unwrap().is_some()
                {
                    self.hear_one(&mut random);
                }
            }
        }
        while self.left > 0 {
            self.hear_one(&mut random);
        }
        for send in sends {
            let (receipt, bytes) = send.wait();
            assert_eq!(receipt.expect("all listen").bytes, bytes.get().len() as u64);
        }
    }

    /// Takes the next message of any member, in one of the ways there are.
    fn hear_one(&mut self, random: &mut Random) {
        let all = TagMatch::any();
        let (peer, tag, bytes) = match random.below(if self.me.is_multiple_of(16) { 4 } else { 3 })
        {
            0 => {
                let message = self.endpoint.recv(Source::Any, all).expect("a message");
                (message.peer(), message.tag(), message.into_vec())
            }
            1 => {
                let envelope = self.endpoint.probe(Source::Any, all).expect("a message");
                let mut bytes = vec![0; envelope.len as usize];
                let received = self.endpoint.recv_into(envelope.peer, envelope.tag, &mut bytes);
                assert_eq!(received.expect("it is there").len, envelope.len);
                (envelope.peer, envelope.tag, bytes)
            }
            2 => {
                let (received, mut bytes) =
                    self.endpoint.recv_owned(Source::Any, all, vec![0; 300_000]).wait();
                let received = received.expect("a message");
                bytes.truncate(received.len as usize);
                (received.peer, received.tag, bytes)
            }
            _ => {
                let message = block_on(self.endpoint.recv_request(Source::Any, all));
                let message = message.expect("a message");
                (message.peer(), message.tag(), message.into_vec())
            }
        };
        let from = self.peers.iter().position(|other| *other == Some(peer)).expect("a member");
        let next = &mut self.next[from];
        assert_eq!(tag, seed(from as u64, self.me, *next), "out of order");
        assert_eq!(bytes.len(), length(tag));
        stamp::check(&bytes, tag);
        *next += 1;
        self.left -= 1;
    }
}

// More processes than processors.

/// Passes a token round, `laps` times.
fn pass(passers: u64, laps: u64, pinned: &str) {
    let stage = Stage::new(120);
    let mut players: Vec<Player> = (0..passers)
        .map(|me| {
            let role = stage.role("passer").with("me", me).with("passers", passers);
            role.with("laps", laps).with("pinned", pinned).spawn()
        })
        .collect();
    for player in &mut players {
        player.expect("listens");
    }
    for player in &mut players {
        player.say("go on");
    }
    let cpu_us: u64 = players
        .iter_mut()
        .map(|player| player.expect("has passed it").parse::<u64>().expect("a number"))
        .sum();
    for player in &mut players {
        player.say("leave");
    }
    all_end_well(&mut players);
    // A waiting thread gives its processor away long before its time slice, 3 ms and more, is over.
    let hops = passers * laps;
    assert!(
        cpu_us < 1000 * hops,
        "{cpu_us} us of processor time for {hops} hops: waiting burns it"
    );
}

#[test]
fn eight_on_two_processors() {
    pass(8, 400, "two");
}

#[test]
fn four_on_one_processor() {
    pass(4, 800, "one");
}

#[test]
fn four_on_one_processor_that_find_out_late() {
    pass(4, 400, "one, late");
}

/// Leaves this process so many of its processors.
fn pin(processors: usize) {
    let allowed = sched_getaffinity(None).expect("sched_getaffinity");
    let mut few = CpuSet::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).take(processors) {
        few.set(cpu);
    }
    sched_setaffinity(None, &few).expect("sched_setaffinity");
}

fn passer(args: &Args) {
    let (me, passers, laps): (u64, u64, u64) =
        (args.number("me"), args.number("passers"), args.number("laps"));
    match args.text("pinned") {
        "two" => pin(2),
        "one" => pin(1),
        _ => {}
    }
    let listening = Endpoint::builder().listen(&format!("local:passer-{me}"));
    let endpoint = listening.build().expect("to listen");
    say("listens");
    hear();
    let next = endpoint.connect(&format!("local:passer-{}", (me + 1) % passers)).expect("the next");
    let previous = endpoint.accept_timeout(PATIENCE).expect("the one before");
    if args.text("pinned") == "one, late" {
        pin(1);
    }
    let before = cpu_time();
    for lap in 0..laps {
        let hop = lap * passers + me;
        // Lengths for every path, mostly short.
        let len = match hop % 101 {
            0 => 100_000,
            1..10 => 5000,
            _ => 8 + (hop % 64) as usize,
        };
        if me > 0 || lap > 0 {
            stamp::check(&endpoint.recv(previous, hop).expect("the token"), hop);
        }
        if hop + 1 < laps * passers {
            let receipt = endpoint.send(next, hop + 1, &stamp::bytes(len, hop + 1));
            assert_eq!(receipt.expect("the next listens").bytes, len as u64);
        }
    }
    say(format_args!("has passed it {}", (cpu_time() - before).as_micros()));
    hear();
}
