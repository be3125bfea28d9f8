//! Peers that greet like any other and then write whatever they like into all they share, forge
//! descriptors, garble the socket, or fall silent. Their victim neither crashes nor hangs nor
//! leaks, and what it exchanges with an honest peer meanwhile stays intact.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    os::fd::{AsFd, RawFd},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use pinfold::{
    Answer, Arena, Endpoint, Error, Path, PeerId, Progress, SendRequest, Source, TagMatch,
};
use pinfold_tests::{
    Args, Baseline, Stage,
    baseline::{Mapped, arenas, segments, status_bytes},
    host::{peek, scribble, send_raw},
    role::{self, hear, say},
    skip::is_long,
    stamp::{self, Random, mix},
};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};

mod gifts;
mod holes;
mod regions;
mod rooms;

use self::{
    gifts::{flooded, flooder},
    holes::{beggar, poor},
    regions::{asked, asker, false_owner, guesser},
    rooms::{giver, judge, liar, taker},
};

pinfold_tests::roles!(
    victim,
    honest,
    attacker,
    stranger,
    flooded,
    flooder,
    poor,
    beggar,
    giver,
    taker,
    judge,
    liar,
    asker,
    false_owner,
    asked,
    guesser,
);

/// The tags of attackers have this bit; what the honest peer says is never matched with theirs.
const HOSTILE: u64 = 1 << 63;
const BYE: u64 = 1 << 62;

/// Handlers of the victim's: one that answers, one that asks back, one that answers later.
const ECHO: u32 = 1;
const CALL_BACK: u32 = 2;
const LATER: u32 = 3;

/// How long an attack lasts.
const ATTACK: Duration = Duration::from_millis(120);
/// How long an honest answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

const ATTACKS: [&str; 12] = [
    "anywhere", "control", "rings", "headers", "forge", "claims", "closed", "socket", "silence",
    "arenas", "shelves", "rooms",
];

fn play(attacks: &[&str], how: &str) {
    let stage = Stage::new(120);
    let mut victim = stage.role("victim").with("progress", how).spawn();
    victim.expect("ready");
    let mut honest = stage.role("honest").spawn();
    honest.expect("ready");
    let rounds = if is_long() { 60 } else { 8 };
    for round in 0..rounds {
        for attack in attacks {
            let seed = mix(round) >> 32;
            let mut attacker =
                stage.role("attacker").with("how", attack).with("seed", seed).spawn();
            // Some are killed in the act, some kill themselves, and some crash when their own
            // endpoint is cut off and lets the memory go; whichever it is, the others live.
            attacker.expect("attacking");
            if round % 2 == 0 {
                thread::sleep(ATTACK / 2);
                attacker.kill();
            }
            attacker.end();
        }
    }
    let mut stranger = stage.role("stranger").spawn();
    stranger.end_well();
    honest.say("end");
    honest.end_well();
    victim.end_well();
}

#[test]
fn scribblers() {
    play(&ATTACKS[..4], "inline");
}

#[test]
fn forgers() {
    play(&ATTACKS[4..9], "inline");
}

#[test]
fn givers_of_bad_arenas() {
    play(&ATTACKS[9..], "inline");
}

#[test]
fn all_of_them_beside_a_thread_that_drives() {
    play(&ATTACKS, "dedicated");
}

// The victim.

fn victim(args: &Args) {
    let progress = match args.text("progress") {
        "dedicated" => Progress::Dedicated,
        _ => Progress::Inline,
    };
    let (tell, later) = mpsc::channel();
    let builder = Endpoint::builder()
        .label("victim")
        .progress(progress)
        .active_bytes_max(4 << 20)
        .handle(ECHO, |active| {
            // A peer that is gone wants no answer.
            let _ = active.reply(active.payload());
        })
        .handle(CALL_BACK, |active| {
            let _ = active.call(active.peer(), ECHO, active.payload());
            drop(active.endpoint().request(active.peer(), ECHO, active.payload()));
            let _ = active.reply(b"");
        })
        .handle(LATER, move |active| drop(tell.send(active.answer_later())));
    let (endpoint, honest) = role::listen(builder, "victim");
    let before = Baseline::now();
    let memory_before = status_bytes("VmRSS");
    role::go(&endpoint, honest);
    let mut from_honest = endpoint.recv_message(honest, TagMatch::masked(0, !HOSTILE));
    let hostile = TagMatch::masked(HOSTILE, !HOSTILE);
    let mut from_hostile = endpoint.recv_message(Source::Any, hostile);
    let mut to_honest = VecDeque::new();
    let mut to_hostile = VecDeque::<SendRequest<Vec<u8>>>::new();
    let mut ends = BTreeMap::<String, u32>::new();
    let (mut came, mut refused, mut met) = (0u64, 0u64, 0u64);
    for turn in 0u64.. {
        if let Some(result) = from_honest.try_wait() {
            let message = result.expect("the honest peer is there");
            stamp::check(&message, message.tag());
            let tag = message.tag();
            to_honest.push_back(endpoint.send_owned(honest, tag, message.into_vec()));
            if tag == BYE {
                break;
            }
            from_honest = endpoint.recv_message(honest, TagMatch::masked(0, !HOSTILE));
        }
        while let Some(done) = to_honest.front_mut().and_then(|request| request.try_wait()) {
            done.0.expect("the honest peer listens");
            to_honest.pop_front();
        }
        if let Some(result) = from_hostile.try_wait() {
            match result {
                // Whatever it is, all of it is there.
                Ok(message) => came += u64::from(message.iter().fold(1u8, |a, b| a ^ b) != 0),
                Err(_) => refused += 1,
            }
            from_hostile = endpoint.recv_message(Source::Any, hostile);
        } else if turn % 4096 == 0 {
            // One that will never be whole is given up.
            from_hostile = endpoint.recv_message(Source::Any, hostile);
        }
        match endpoint.accept_timeout(Duration::ZERO) {
            Ok(newcomer) => {
                met += 1;
                // What it does with these is its own business.
                for len in [40, 3000, 150_000, 900_000] {
                    let bytes = stamp::bytes(len, 1);
                    to_hostile.push_back(endpoint.send_owned(newcomer, HOSTILE, bytes));
                }
            }
            Err(Error::Timeout(_)) => {}
            Err(error) => panic!("{error}"),
        }
        if turn % 64 == 0 {
            later.try_iter().flatten().for_each(|answer: Answer| drop(answer.send(b"late")));
        }
        to_hostile.retain_mut(|request| match request.try_wait() {
            Some((Err(Error::PeerGone { how, .. }), _)) => {
                *ends.entry(how.to_string()).or_insert(0) += 1;
                false
            }
            Some(_) => false,
            None => true,
        });
        while to_hostile.len() > 32 {
            to_hostile.pop_front();
        }
    }
    drop((from_hostile, to_hostile));
    for request in to_honest {
        request.wait().0.expect("the honest peer listens");
    }
    role::note(format_args!(
        "met {met} attackers, {came} of their messages came, {refused} did not; {} were handled",
        endpoint.counters().handled
    ));
    for (end, count) in &ends {
        role::note(format_args!("{count} sends ended: {end}"));
    }
    assert!(met > 0 && came > 0, "met {met}, {came} came");
    let caught = ends.keys().filter(|end| end.contains("broke the protocol")).count();
    assert!(caught > 1, "hardly anything was found out: {ends:?}");
    // Whoever is dead is gone without a trace.
    let end = Instant::now() + PATIENCE;
    while endpoint.peers().len() > 1 || !arenas().is_empty() {
        endpoint.progress().unwrap();
        assert!(Instant::now() < end, "{:?} {:?} are still there", endpoint.peers(), arenas());
    }
    before.returns(Duration::from_secs(2));
    let grown = status_bytes("VmRSS").saturating_sub(memory_before);
    assert!(grown < 200 << 20, "{grown} bytes of memory are left behind");
    // The honest peer goes last.
    endpoint.send(honest, BYE, b"").unwrap();
    assert!(endpoint.recv(honest, HOSTILE).unwrap_err().is_peer_gone());
}

/// Sends all kinds of messages and wants them back, until the director says so.
fn honest(_: &Args) {
    let (endpoint, victim) = role::connect(Endpoint::builder().label("honest"), "victim");
    role::await_go(&endpoint, victim);
    say("ready");
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || tell.send(hear()));
    let mut random = Random::new(5);
    let mut count = 0u64;
    let mut mapped = 0u64;
    let arena = Arena::new().expect("an arena");
    let mut exchange = |tag: u64, len: usize| {
        let mut bytes = arena.alloc(len).expect("memory");
        stamp::fill(&mut bytes, tag);
        let request = endpoint.send_owned(victim, tag, bytes);
        let back = endpoint.recv_timeout(victim, tag, PATIENCE).expect("the victim answers");
        assert_eq!(back.len(), len);
        stamp::check(&back, tag);
        let asked = endpoint.request(victim, ECHO, &stamp::bytes(len, !tag)).wait();
        let answer = asked.expect("the victim answers");
        assert_eq!(answer.len(), len);
        stamp::check(&answer, !tag);
        let receipt = request.wait().0.expect("the victim listens");
        mapped += u64::from(receipt.path == Path::Mapped);
        count += 1;
    };
    while told.try_recv().is_err() {
        let len = random.pick(&[0, 8, 8, 56, 57, 57, 1000, 1000, 9000, 9000, 70_000, 300_000]);
        exchange(random.next() >> 2, len);
    }
    // The victim lets go of it, too.
    drop(arena);
    endpoint.send(victim, BYE, &stamp::bytes(100, BYE)).expect("the victim listens");
    stamp::check(&endpoint.recv_timeout(victim, BYE, PATIENCE).expect("it answers"), BYE);
    endpoint.recv_timeout(victim, BYE, PATIENCE).expect("the victim says goodbye");
    role::note(format_args!("{count} honest exchanges, {mapped} messages by mapping"));
}

// The attackers. They know the layout of a segment as anybody can read it.

const RINGS: [usize; 2] = [4 << 10, 68 << 10];
const SLOT: usize = 64;
const SLOTS: usize = 1024;
/// Where each direction's words of control begin; the claim lines follow the first three lines.
const CONTROL: [usize; 2] = [0, 1024];
const LINE: usize = 64;

fn attacker(args: &Args) {
    let mut random = Random::new(args.number("seed"));
    let end = Instant::now() + ATTACK;
    say("attacking");
    while Instant::now() < end {
        assault(args.text("how"), &mut random, end);
    }
    // Without a word of goodbye from whatever is left.
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
        .expect("kill");
}

/// One connection, until it is cut off or time is up.
fn assault(how: &str, random: &mut Random, end: Instant) {
    let before = segments();
    let (endpoint, victim) = role::connect(Endpoint::builder().label("attacker"), "victim");
    let segment = segments().into_iter().find(|segment| !before.contains(segment));
    let segment = segment.expect("a new segment");
    // Something in every state.
    let mut kept = Vec::new();
    for len in [8, 2000, 200_000] {
        kept.push(endpoint.send_owned(victim, HOSTILE, stamp::bytes(len, 2)));
    }
    let into = endpoint.recv_owned(victim, HOSTILE, vec![0; 150_000]);
    let mut asked = Vec::new();
    for (len, id) in [(8, ECHO), (3000, CALL_BACK), (200_000, ECHO)] {
        asked.push(endpoint.request(victim, id, &stamp::bytes(len, 2)));
    }
    match how {
        "closed" => {
            for control in CONTROL {
                scribble(segment.at + control + 2 * LINE + LINE / 2, 1);
            }
            thread::sleep(ATTACK / 4);
        }
        "socket" => garble_socket(random, end),
        "silence" => thread::sleep(ATTACK),
        "rooms" => rooms::offer(random, segment, end),
        "arenas" | "shelves" => gifts::give(how, random, segment, end),
        "claims" => {
            // Ordinary traffic, while another thread plays with what both sides share.
            let seed = random.next();
            let player = thread::spawn(move || {
                let mut random = Random::new(seed);
                while Instant::now() < end && !is_cut_off(segment) {
                    let control = random.pick(&CONTROL);
                    let line = 3 + random.below(8) as usize;
                    let word = random.next();
                    let word = random.pick(&[0, 1, 1 << 24, u64::MAX, word]);
                    scribble(segment.at + control + line * LINE, word);
                    spin(random.below(3000));
                }
            });
            big_traffic(&endpoint, victim, end);
            player.join().expect("no panic");
        }
        how => {
            // Half of the time only once everything before has been taken.
            let patient = random.below(2) == 0;
            while Instant::now() < end && !is_cut_off(segment) {
                if patient || how == "forge" {
                    let waiting = Instant::now() + Duration::from_millis(3);
                    while consumed(segment) < newest(segment).0 && Instant::now() < waiting {
                        let _ = endpoint.progress();
                    }
                }
                match how {
                    "anywhere" => scribble_in(random, segment, 0, segment.len),
                    "control" => scribble_in(random, segment, 0, 4096),
                    "rings" => scribble_in(random, segment, 4096, 132 << 10),
                    "headers" => twist_header(random, segment),
                    "forge" => forge(random, segment),
                    other => panic!("{other}?"),
                }
                spin(random.below(2000));
            }
        }
    }
    // Most connections stay; others are closed by an endpoint that knows of nothing.
    if random.below(8) != 0 {
        std::mem::forget((into, kept, asked, endpoint));
    }
}

/// Whether the victim has said that it closes.
fn is_cut_off(segment: Mapped) -> bool {
    peek(segment.at + 2 * LINE + LINE / 2) & 0xffff_ffff != 0
}

/// How many of our descriptors the victim says it has taken.
fn consumed(segment: Mapped) -> u64 {
    peek(segment.at + CONTROL[1])
}

/// The number of the last descriptor towards the victim, and its slot.
fn newest(segment: Mapped) -> (u64, usize) {
    newest_in(segment.at + RINGS[1])
}

/// The same of any ring.
fn newest_in(ring: usize) -> (u64, usize) {
    let slots = (0..SLOTS).map(|slot| (peek(ring + slot * SLOT) & 0xffff, slot));
    slots.max().expect("there are slots")
}

fn spin(ns: u64) {
    let end = Instant::now() + Duration::from_nanos(ns);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Writes a random word at a random place.
fn scribble_in(random: &mut Random, segment: Mapped, from: usize, to: usize) {
    let at = from + random.below((to - from - 8) as u64) as usize;
    let word = random.next() >> random.below(64);
    scribble(segment.at + at, word);
}

/// Changes some bits of a descriptor that is there, not those that make it fresh.
fn twist_header(random: &mut Random, segment: Mapped) {
    let ring = random.pick(&RINGS);
    let slot = segment.at + ring + random.below(64) as usize * SLOT;
    let twist = (random.next() & random.next()) << 16;
    scribble(slot, peek(slot) ^ twist);
    scribble(slot + 8 * random.below(8) as usize, odd_number(random));
}

/// Numbers at which arithmetic goes wrong.
fn odd_number(random: &mut Random) -> u64 {
    let base = random.pick(&[
        0,
        1,
        8,
        56,
        57,
        4096,
        1 << 16,
        1 << 18,
        1 << 20,
        1 << 22,
        1 << 31,
        1 << 32,
        1 << 63,
        u64::MAX,
        i64::MAX as u64,
    ]);
    let pair = random.pick(&[0, 1 << 32, 1 << 20, (1 << 22) << 32, u64::from(u32::MAX) << 32]);
    match random.below(4) {
        0 => random.next(),
        1 => base | pair,
        2 => base.wrapping_sub(random.below(3)),
        _ => base,
    }
}

/// Adds a descriptor of its own behind the last one, with a fresh number.
fn forge(random: &mut Random, segment: Mapped) {
    let ring = segment.at + RINGS[1];
    let (number, slot) = newest(segment);
    let wraps = peek(ring + slot * SLOT) >> 20 & 1 == 1;
    let slot = if wraps || slot + 1 == SLOTS { 0 } else { slot + 1 };
    let at = ring + slot * SLOT;
    for word in 1..8 {
        // Its first word is a tag as often as not; only hostile ones are wanted.
        let value = if word == 1 && random.below(2) == 0 { HOSTILE } else { odd_number(random) };
        scribble(at + 8 * word, value);
    }
    let kind = if random.below(8) == 0 { random.below(16) } else { 1 + random.below(11) };
    let wrap = u64::from(slot == 63 || random.below(50) == 0);
    let len = if random.below(3) == 0 { random.below(256) } else { random.below(57) };
    let aux = if random.below(2) == 0 { random.below(8) } else { random.next() & 0xffff_ffff };
    let mut header = (number + 1) & 0xffff | kind << 16 | wrap << 20 | len << 24 | aux << 32;
    if random.below(2) == 0 {
        // Something that a handler could be meant by, or an answer that nobody asked for.
        let (verb, id, token) = (random.below(6), 1 + random.below(3), random.below(6));
        match kind {
            4 | 6 => {
                header = header & !(0x3f << 26) | verb << 26;
                scribble(at + 8, id | token << 32);
            }
            11 => {
                header = header & 0xffff_ffff | id << 32;
                scribble(at + 8, token | verb << 32);
            }
            _ => {}
        }
    }
    scribble(at, header);
}

/// Sends and receives long messages until it is cut off or time is up.
fn big_traffic(endpoint: &Endpoint, victim: PeerId, end: Instant) {
    let bytes = stamp::bytes(2 << 20, 3);
    while Instant::now() < end {
        let mut request = endpoint.send_owned(victim, HOSTILE, bytes.clone());
        if let Some((Err(_), _)) = request.wait_timeout(Duration::from_millis(20)) {
            let _ = endpoint.send_by(Path::Cma, victim, HOSTILE, b"x");
            return;
        }
    }
}

/// The sockets of this process.
fn sockets() -> Vec<RawFd> {
    let all = fs::read_dir("/proc/self/fd").expect("/proc").filter_map(|entry| {
        let entry = entry.ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        let is_socket = target.to_string_lossy().starts_with("socket:");
        is_socket.then(|| entry.file_name().to_string_lossy().parse().ok())?
    });
    all.collect()
}

/// Packets of any length, and descriptors that nobody asked for.
fn garble_socket(random: &mut Random, end: Instant) {
    let gift = fs::File::open("/dev/null").expect("/dev/null");
    while Instant::now() < end {
        for socket in sockets() {
            let bytes = stamp::bytes(random.below(3000) as usize, random.next());
            let gifts = vec![gift.as_fd(); random.below(10) as usize];
            let _ = send_raw(socket, &bytes, &gifts);
        }
        spin(random.below(20_000));
    }
}

/// Never greets as one should.
fn stranger(_: &Args) {
    let dir = std::env::var("PINFOLD_DIR").expect("set by the director");
    let address = SocketAddrUnix::new(format!("{dir}/victim")).expect("an address");
    let mut random = Random::new(9);
    let mut held = Vec::new();
    for call in 0..300u64 {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a socket");
        if connect(&socket, &address).is_err() {
            continue;
        }
        let mut hello = stamp::bytes(120, call);
        if call % 2 == 0 {
            // A beginning that is right: magic, kind, versions.
            hello[..16]
                .copy_from_slice(&[b'P', b'N', b'F', b'D', 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        }
        if call % 6 == 0 {
            // All of it right, and then silence, or a second one, or rubbish.
            hello[48..].fill(0);
            hello[48..56].copy_from_slice(&4096u64.to_le_bytes());
            hello[56..64].copy_from_slice(&8192u64.to_le_bytes());
        }
        let len = if call % 5 == 0 { random.below(600) as usize } else { 120 };
        hello.resize(len, 7);
        let _ = send(&socket, &hello, SendFlags::NOSIGNAL);
        let _ = send(&socket, &stamp::bytes(64, call), SendFlags::NOSIGNAL);
        if call % 3 == 0 {
            held.push(socket);
        }
        if held.len() > 40 {
            held.clear();
        }
    }
}
