//! Attackers. They know the layout of a segment, which is public.

use std::{
    fs,
    os::fd::{AsFd, RawFd},
    thread,
    time::{Duration, Instant},
};

use pinfold::{Endpoint, Path, PeerId};
use pinfold_tests::{
    Args,
    baseline::{Mapped, segments},
    host::{peek, scribble, send_raw},
    role::{self, say},
    stamp::{self, Random},
};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};

use super::{ATTACK, CALL_BACK, ECHO, HOSTILE, donations, put_places};
pub const RINGS: [usize; 2] = [4 << 10, 68 << 10];
pub const SLOT: usize = 64;
pub const SLOTS: usize = 1024;
/// The place of the kind in a header, above its sequence number.
pub const KIND: u64 = 15;
/// The bits of the sequence number.
pub const SEQ: u64 = (1 << KIND) - 1;
/// The beginnings of each direction's words of control; the claim lines follow the first three
/// lines.
pub const CONTROL: [usize; 2] = [0, 1024];
pub const LINE: usize = 64;

pub fn attacker(args: &Args) {
    let mut random = Random::new(args.number("seed"));
    let end = Instant::now() + ATTACK;
    say("attacking");
    while Instant::now() < end {
        assault(args.text("how"), &mut random, end);
    }
    // Killed, so that no endpoint that is left says goodbye.
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
        .expect("kill");
}

/// One connection, until it is cut off or time is up.
pub fn assault(how: &str, random: &mut Random, end: Instant) {
    let before = segments();
    let (endpoint, victim) = role::connect(Endpoint::builder().label("attacker"), "victim");
    let segment = segments().into_iter().find(|segment| !before.contains(segment));
    let segment = segment.expect("a new segment");
    // Operations in every state.
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
        "rooms" => put_places::offer(random, segment, end),
        "arenas" | "exported extents" => donations::give(how, random, segment, end),
        "claims" => {
            // Ordinary traffic, while another thread plays with the memory that both sides share.
            let seed = random.next();
            let player = thread::spawn(move || {
                let mut random = Random::new(seed);
                while Instant::now() < end && !is_cut_off(segment) {
                    let control = random.pick(&CONTROL);
                    let line = 3 + random.below(8) as usize;
                    let word = random.next();
                    let word = random.pick(&[0, 1, 1 << 24, u64::MAX, word]);
                    let at = control + line * LINE + random.below(8) as usize * 8;
                    scribble(segment.at + at, word);
                    spin(random.below(3000));
                }
            });
            big_traffic(&endpoint, victim, end);
            player.join().expect("no panic");
        }
        how => {
            // Half of the time only once all earlier descriptors have been taken.
            let patient = random.below(2) == 0;
            while Instant::now() < end && !is_cut_off(segment) {
                if patient || matches!(how, "forge" | "answers") {
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
                    "answers" => answer_for_others(random, segment),
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

/// Returns whether the victim has said that it closes.
pub fn is_cut_off(segment: Mapped) -> bool {
    peek(segment.at + 2 * LINE + LINE / 2) & 0xffff_ffff != 0
}

/// Our descriptors that the victim says it has taken.
pub fn consumed(segment: Mapped) -> u64 {
    peek(segment.at + CONTROL[1])
}

/// The number of the last descriptor towards the victim, and its slot.
pub fn newest(segment: Mapped) -> (u64, usize) {
    newest_in(segment.at + RINGS[1])
}

/// The number and slot of the last descriptor in any ring.
pub fn newest_in(ring: usize) -> (u64, usize) {
    let slots = (0..SLOTS).map(|slot| (peek(ring + slot * SLOT) & SEQ, slot));
    slots.max().expect("there are slots")
}

pub fn spin(ns: u64) {
    let end = Instant::now() + Duration::from_nanos(ns);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Writes a random word at a random place.
pub fn scribble_in(random: &mut Random, segment: Mapped, from: usize, to: usize) {
    let at = from + random.below((to - from - 8) as u64) as usize;
    let word = random.next() >> random.below(64);
    scribble(segment.at + at, word);
}

/// Changes some bits of an existing descriptor, but not the bits that make it fresh.
pub fn twist_header(random: &mut Random, segment: Mapped) {
    let ring = random.pick(&RINGS);
    let slot = segment.at + ring + random.below(64) as usize * SLOT;
    let twist = (random.next() & random.next()) << 16;
    scribble(slot, peek(slot) ^ twist);
    scribble(slot + 8 * random.below(8) as usize, odd_number(random));
}

/// Numbers at which arithmetic goes wrong.
pub fn odd_number(random: &mut Random) -> u64 {
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

/// Where the next descriptor towards the victim goes, and its number and slot.
pub fn next_slot(segment: Mapped) -> (usize, u64, usize) {
    let ring = segment.at + RINGS[1];
    let (number, slot) = newest(segment);
    let wraps = peek(ring + slot * SLOT) >> 20 & 1 == 1;
    let slot = if wraps || slot + 1 == SLOTS { 0 } else { slot + 1 };
    (ring + slot * SLOT, number + 1, slot)
}

/// Answers a request that was most likely made to another peer.
pub fn answer_for_others(random: &mut Random, segment: Mapped) {
    let (at, number, slot) = next_slot(segment);
    let (verb, token) = (random.pick(&[3, 3, 4]), random.below(8));
    scribble(at + 8, token | verb << 32);
    scribble(at + 16, random.next());
    let wrap = u64::from(slot == 63);
    scribble(at, number & SEQ | 11 << KIND | wrap << 20 | 8 << 26 | 1 << 32);
}

/// Adds a descriptor of its own behind the last one, with a fresh number.
pub fn forge(random: &mut Random, segment: Mapped) {
    let (at, number, slot) = next_slot(segment);
    for word in 1..8 {
        // The first word is a tag as often as not; only hostile ones are wanted.
        let value = if word == 1 && random.below(2) == 0 { HOSTILE } else { odd_number(random) };
        scribble(at + 8 * word, value);
    }
    let kind = if random.below(8) == 0 { random.below(16) } else { 1 + random.below(11) };
    let wrap = u64::from(slot == 63 || random.below(50) == 0);
    let len = if random.below(3) == 0 { random.below(256) } else { random.below(57) };
    let aux = if random.below(2) == 0 { random.below(8) } else { random.next() & 0xffff_ffff };
    let mut header = number & SEQ | kind << KIND | wrap << 20 | len << 24 | aux << 32;
    if random.below(2) == 0 {
        // A body that could mean a handler, or an unsolicited answer.
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
pub fn big_traffic(endpoint: &Endpoint, victim: PeerId, end: Instant) {
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
pub fn sockets() -> Vec<RawFd> {
    let all = fs::read_dir("/proc/self/fd").expect("/proc").filter_map(|entry| {
        let entry = entry.ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        let is_socket = target.to_string_lossy().starts_with("socket:");
        is_socket.then(|| entry.file_name().to_string_lossy().parse().ok())?
    });
    all.collect()
}

/// Packets of any length, and unsolicited descriptors.
pub fn garble_socket(random: &mut Random, end: Instant) {
    let donation = fs::File::open("/dev/null").expect("/dev/null");
    while Instant::now() < end {
        for socket in sockets() {
            let bytes = stamp::bytes(random.below(3000) as usize, random.next());
            let donations = vec![donation.as_fd(); random.below(10) as usize];
            let _ = send_raw(socket, &bytes, &donations);
        }
        spin(random.below(20_000));
    }
}

/// Never greets in a correct way.
pub fn stranger(_: &Args) {
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
            // A right beginning: magic, kind, versions.
            hello[..16]
                .copy_from_slice(&[b'P', b'N', b'F', b'D', 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        }
        if call % 6 == 0 {
            // All of it right, and then silence, or a second greeting, or rubbish.
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
