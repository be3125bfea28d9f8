//! A peer that greets like any other and then sends frames of its own making. The owner of a region
//! does nothing outside of it, and cuts off a peer that breaks the rules; an honest peer's
//! operations go on as ever.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use pinfold::{Endpoint, Error, Gone, PeerId, Progress, Region, RemoteRegion, Rights};
use pinfold_tests::stamp::{self, Random};

const KEY: [u8; 32] = [6; 32];
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a greeting, from the connecting side and from the listening side.
const GREETING: [usize; 2] = [48 + 264 + 44, 48 + 276];

// Kinds of descriptors.
const DATA: u64 = 5;
const OPEN: u64 = 12;
const OPENED: u64 = 13;
const USE: u64 = 14;
const USED: u64 = 15;

// Codes of operations, widths of their words, and codes of answers.
const READ: u64 = 0;
const WRITE: u64 = 1;
const BRIEF: u64 = 2;
const CHANGE: u64 = 32;
const U32: u64 = 0;
const U64: u64 = 1;
const WRITTEN: u64 = 0;
const WAS: u64 = 1;
const REVOKED: u64 = 3;
const READ_ONLY: u64 = 4;
const OUTSIDE: u64 = 5;
const MISALIGNED: u64 = 6;
const BYTES: u64 = 8;

/// Says that all bytes of a message follow.
const LONG: u64 = u32::MAX as u64;

/// Bytes of the region.
const SIZE: usize = 1 << 20;

/// Sends frames of its own over a connection whose greeting an endpoint has made.
struct Forger {
    owner: TcpStream,
    sent: u64,
    received: u64,
    key: [u64; 3],
    /// The endpoint that has greeted; it hears nothing now.
    _greeter: (Endpoint, TcpStream),
}

/// Passes so many bytes on.
fn pass(from: &mut TcpStream, to: &mut TcpStream, count: usize) {
    let mut bytes = vec![0; count];
    let mut at = 0;
    while at < count {
        let got = from.read(&mut bytes[at..]).unwrap();
        assert!(got > 0, "the greeting ended");
        to.write_all(&bytes[at..at + got]).unwrap();
        at += got;
    }
}

impl Forger {
    /// A forger that the owner takes for a peer, and the owner's id of it.
    fn meet(owner: &Endpoint, region: &Region) -> (Forger, PeerId) {
        let address = owner.listens_at().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let by = format!("tcp:{}", listener.local_addr().unwrap());
        let greeter = super::builder(Progress::Inline).key(&KEY).build().unwrap();
        let (there, streams) = thread::scope(|scope| {
            let streams = scope.spawn(|| {
                let mut greeter = listener.accept().unwrap().0;
                let mut owner = TcpStream::connect(address.strip_prefix("tcp:").unwrap()).unwrap();
                let (mut out, mut back) =
                    (greeter.try_clone().unwrap(), owner.try_clone().unwrap());
                thread::scope(|scope| {
                    scope.spawn(|| pass(&mut back, &mut out, GREETING[1]));
                    pass(&mut greeter, &mut owner, GREETING[0]);
                });
                (greeter, owner)
            });
            let there = scope.spawn(|| owner.accept_timeout(PATIENCE).unwrap());
            greeter.connect(&by).unwrap();
            (there.join().unwrap(), streams.join().unwrap())
        });
        let (heard, owner) = streams;
        owner.set_nodelay(true).unwrap();
        owner.set_read_timeout(Some(PATIENCE)).unwrap();
        owner.set_write_timeout(Some(PATIENCE)).unwrap();
        let bytes = region.key().unwrap().to_bytes();
        let key = std::array::from_fn(|at| {
            u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * at + byte]))
        });
        (Forger { owner, sent: 0, received: 0, key, _greeter: (greeter, heard) }, there)
    }

    /// Sends a frame. `false`: the connection is over.
    fn frame(&mut self, kind: u64, code: u64, aux: u32, words: &[u64], bytes: &[u8]) -> bool {
        self.sent += 1;
        let header = kind << 15 | code << 26 | u64::from(aux) << 32;
        let head = [self.sent, self.received, 0, header];
        let words = head.iter().chain(words).flat_map(|word| word.to_le_bytes());
        let frame: Vec<u8> = words.chain(bytes.iter().copied()).collect();
        self.owner.write_all(&frame).is_ok()
    }

    /// Asks for an operation on the region.
    fn ask(&mut self, code: u64, number: u32, offset: u64, operands: &[u64]) -> bool {
        let mut words = self.key.to_vec();
        words.push(offset);
        words.extend(operands);
        self.frame(USE, code, number, &words, &[])
    }

    /// The next answer: the value in the place of its length, its number and its words.
    fn answer(&mut self) -> (u64, u32, Vec<u64>) {
        loop {
            let head = self.words(4);
            if head[0] << 1 == 0 {
                continue;
            }
            self.received += 1;
            let (kind, code, aux) =
                (head[3] >> 15 & 31, head[3] >> 26 & 63, (head[3] >> 32) as u32);
            let words = match (kind, code) {
                (USED, WAS | 2) => 1,
                (USED, BYTES..) => (code - BYTES).div_ceil(8),
                (USED, _) => 0,
                (OPENED, _) => 2,
                other => panic!("{other:?}"),
            };
            return (code, aux, self.words(words as usize));
        }
    }

    fn words(&mut self, count: usize) -> Vec<u64> {
        let mut bytes = vec![0; 8 * count];
        self.owner.read_exact(&mut bytes).unwrap();
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }
}

/// An owner with a region, and an honest peer that uses it.
struct Ground {
    owner: Endpoint,
    region: Region,
    _honest: Endpoint,
    remote: RemoteRegion,
    rounds: u64,
}

impl Ground {
    fn new(rights: Rights) -> Ground {
        let owner = super::builder(Progress::Dedicated).key(&KEY).listen("tcp:127.0.0.1:0");
        let owner = owner.build().unwrap();
        let honest = super::builder(Progress::Inline).key(&KEY).build().unwrap();
        let peer = honest.connect(&owner.listens_at().unwrap()).unwrap();
        owner.accept_timeout(PATIENCE).unwrap();
        let region = owner.region(SIZE, rights).unwrap();
        let remote = honest.open_region(peer, &region.key().unwrap()).unwrap();
        Ground { owner, region, _honest: honest, remote, rounds: 0 }
    }

    fn forger(&self) -> (Forger, PeerId) {
        Forger::meet(&self.owner, &self.region)
    }

    /// The honest peer gets the bytes that it asks for, and the rest of the region is as it was.
    fn is_as_ever(&mut self) {
        self.rounds += 1;
        let new = stamp::bytes(SIZE / 2, self.rounds);
        let receipt = self.remote.write(SIZE as u64 / 2, &new);
        assert_eq!(receipt.unwrap().bytes, SIZE as u64 / 2);
        let mut read = vec![0; SIZE];
        self.remote.read(0, &mut read).unwrap();
        assert!(read[SIZE / 2..] == new && read[..SIZE / 2].iter().all(|byte| *byte == 0));
    }

    fn is_cut_off(&self, peer: PeerId, why: &str) {
        let error = self.owner.recv_timeout(peer, 1, PATIENCE).unwrap_err();
        match error {
            Error::PeerGone { how: Gone::Misbehaved(said), .. } => {
                assert!(said.contains(why), "{said}, not {why}");
            }
            other => panic!("{other}, not {why}"),
        }
    }
}

/// A question that is only refused: the peer stays, and nothing is touched.
#[test]
fn what_is_refused_touches_nothing() {
    let mut ground = Ground::new(Rights::ReadWrite);
    let (mut forger, peer) = ground.forger();
    let size = SIZE as u64;
    for (offset, len) in [
        (size, 1),
        (size - 7, 8),
        (u64::MAX, 1),
        (u64::MAX - 3, 8),
        (u64::MAX - 15, 16),
        (1 << 63, 16),
        (size + (1 << 32), 8),
    ] {
        assert!(forger.ask(
            BRIEF + len,
            1,
            offset,
            &[u64::MAX, u64::MAX][..len.div_ceil(8) as usize]
        ));
        assert_eq!(forger.answer(), (OUTSIDE, 1, vec![]), "{offset}");
        for read in [len, 48, 49, 1 << 20, i64::MAX as u64, u64::MAX - offset, u64::MAX] {
            assert!(forger.ask(READ, 2, offset, &[read]));
            assert_eq!(forger.answer(), (OUTSIDE, 2, vec![]), "{read} at {offset}");
        }
        assert!(forger.ask(CHANGE + U64, 3, offset & !7 | size, &[1]));
        assert_eq!(forger.answer(), (OUTSIDE, 3, vec![]), "{offset}");
        // The bytes of a refused write are taken, and dropped: by the lane, and past it.
        assert!(forger.ask(WRITE, 4, offset, &[100]));
        assert!(forger.frame(DATA, 0, 4, &[100 << 32, 0], &[0xff; 100]));
        assert_eq!(forger.answer(), (OUTSIDE, 4, vec![]), "{offset}");
        assert!(forger.ask(WRITE, 5, offset, &[70_000]));
        assert!(forger.frame(DATA, 0, 5, &[LONG, 70_000], &[0xff; 70_000]));
        assert_eq!(forger.answer(), (OUTSIDE, 5, vec![]), "{offset}");
    }
    assert!(forger.ask(READ, 6, 1, &[size]));
    assert_eq!(forger.answer(), (OUTSIDE, 6, vec![]));
    for (code, offset) in [(U64, 4), (U64, 1), (U32, 2)] {
        assert!(forger.ask(CHANGE + code, 7, offset, &[1]));
        assert_eq!(forger.answer(), (MISALIGNED, 7, vec![]));
    }
    // Keys that are wrong in a bit, or of no region.
    for (word, flip) in [(0, 1), (0, 1 << 63), (1, 1), (2, 1 << 63)] {
        forger.key[word] ^= flip;
        for code in [BRIEF + 8, READ, CHANGE + U64] {
            assert!(forger.ask(code, 8, 0, &[8]));
            assert_eq!(forger.answer(), (REVOKED, 8, vec![]));
        }
        let key = forger.key;
        assert!(forger.frame(OPEN, 0, 9, &[key[0], key[1], key[2], 2], &[]));
        assert_eq!(forger.answer().2[0], 1, "it opens");
        forger.key[word] ^= flip;
    }
    ground.is_as_ever();
    // A question in order is answered.
    assert!(forger.ask(BRIEF + 8, 9, 8, &[77]));
    assert_eq!(forger.answer(), (WRITTEN, 9, vec![]));
    assert!(forger.ask(CHANGE + 6 * 4 + U64, 9, 8, &[0]));
    assert_eq!(forger.answer(), (WAS, 9, vec![77]));
    assert!(forger.ask(READ, 9, 8, &[8]));
    assert_eq!(forger.answer(), (BYTES + 8, 9, vec![0]));
    assert!(ground.owner.peer(peer).is_some());
    ground.is_as_ever();
}

#[test]
fn what_may_be_read_only_is_not_written() {
    let ground = Ground::new(Rights::Read);
    let (mut forger, _) = ground.forger();
    for code in [BRIEF + 8, BRIEF, CHANGE + U64, CHANGE + 7 * 4 + U32] {
        assert!(forger.ask(
            code,
            1,
            0,
            &[1, 1][..if code == CHANGE + 28 { 2 } else { usize::from(code != BRIEF) }]
        ));
        assert_eq!(forger.answer(), (READ_ONLY, 1, vec![]));
    }
    assert!(forger.ask(WRITE, 2, 0, &[20_000]));
    assert!(forger.frame(DATA, 0, 2, &[LONG, 20_000], &[0xff; 20_000]));
    assert_eq!(forger.answer(), (READ_ONLY, 2, vec![]));
    assert!(ground.region.to_vec().unwrap().iter().all(|byte| *byte == 0));
}

type Attack = (&'static str, fn(&mut Forger) -> bool);

/// A frame that no honest peer sends ends the connection.
#[test]
fn what_breaks_the_rules_is_cut_off() {
    let attacks: [Attack; 16] = [
        ("no frame", |it| it.ask(19, 1, 0, &[1])),
        ("no frame", |it| it.ask(31, 1, 0, &[1])),
        ("makes no sense", |it| it.ask(CHANGE + U32, 1, 0, &[1 << 32])),
        ("makes no sense", |it| it.ask(CHANGE + 28 + U32, 1, 0, &[1, 1 << 40])),
        ("writes nothing", |it| it.ask(WRITE, 1, 0, &[0])),
        ("writes nothing", |it| it.ask(WRITE, 1, 0, &[1 << 63])),
        ("within another", |it| it.ask(WRITE, 1, 0, &[100]) && it.ask(WRITE, 2, 0, &[100])),
        ("within another", |it| it.ask(WRITE, 1, 0, &[100]) && it.ask(WRITE, 1, 0, &[100])),
        ("more of a message", |it| {
            it.ask(WRITE, 1, SIZE as u64 / 2, &[100])
                && it.frame(DATA, 0, 1, &[101 << 32, 0], &[0; 101])
        }),
        ("more of a message", |it| {
            it.ask(WRITE, 1, SIZE as u64 - 100, &[100])
                && it.frame(DATA, 0, 1, &[LONG, 100_000], &[0; 100_000])
        }),
        ("no stream", |it| it.frame(DATA, 0, 1, &[100 << 32, 0], &[0; 100])),
        ("no stream", |it| it.ask(READ, 1, 0, &[8]) && it.frame(DATA, 0, 1, &[LONG, 8], &[0; 8])),
        ("makes no sense", |it| {
            let key = it.key;
            it.frame(OPEN, 0, 1, &[key[0], key[1], key[2], 0], &[])
        }),
        ("makes no sense", |it| {
            let key = it.key;
            it.frame(OPEN, 0, 1, &[key[0], key[1], key[2], 1], &[])
        }),
        // There may be one of that number by then, or none.
        ("it answered an operation", |it| it.frame(USED, WAS, 0, &[1], &[])),
        ("not open", |it| it.frame(USED, WRITTEN, u32::MAX, &[], &[])),
    ];
    let mut ground = Ground::new(Rights::ReadWrite);
    for (why, attack) in attacks {
        let (mut forger, peer) = ground.forger();
        assert!(attack(&mut forger), "{why}");
        ground.is_cut_off(peer, why);
        ground.is_as_ever();
    }
}

/// A peer that asks on without taking the answers is stopped, and the owner keeps little.
#[test]
fn who_asks_and_takes_nothing_is_stopped() {
    let mut ground = Ground::new(Rights::ReadWrite);
    let (mut forger, peer) = ground.forger();
    // Long reads: after as many as an owner has on their way.
    for number in 0..1000 {
        if !forger.ask(READ, number, 0, &[SIZE as u64]) {
            break;
        }
    }
    ground.is_cut_off(peer, "without taking");
    ground.is_as_ever();
    // Short reads: their answers fill the connection first, then the lane, then the room for
    // answers that wait.
    let (mut forger, peer) = ground.forger();
    for number in 0..10_000_000 {
        if !forger.ask(READ, number, 0, &[48]) {
            break;
        }
    }
    ground.is_cut_off(peer, "without taking");
    ground.is_as_ever();
}

/// Anything else: it is refused, or its sender is cut off.
#[test]
fn frames_of_any_kind_do_no_harm() {
    let mut ground = Ground::new(Rights::ReadWrite);
    let mut random = Random::new(8);
    for round in 0..60 {
        let (mut forger, peer) = ground.forger();
        for _ in 0..50 {
            let code = random.below(64);
            let number = random.below(3) as u32;
            let odd = |random: &mut Random| random.below(u64::MAX) >> random.below(64);
            let half = SIZE as u64 / 2;
            let words = [odd(&mut random), odd(&mut random)];
            let offset = half
                + if random.below(3) == 0 { odd(&mut random) >> 1 } else { random.below(half) };
            let count = match code {
                0 | 1 => 1,
                2..=18 => (code - 2).div_ceil(8),
                60.. => 2,
                _ => 1,
            };
            let sent = match random.below(6) {
                0 => {
                    let len = random.below(40_000);
                    let words = if random.below(2) == 0 { [LONG, len] } else { [len << 32, 0] };
                    forger.frame(DATA, 0, number, &words, &vec![0xff; len as usize])
                }
                1 => forger.frame(USED, random.below(2), number, &[1][..1], &[]),
                _ => forger.ask(code, number, offset, &words[..count as usize]),
            };
            if !sent {
                break;
            }
        }
        drop(forger);
        let gone = ground.owner.recv_timeout(peer, 1, Duration::from_millis(1 + round % 3));
        assert!(gone.is_err());
        let mut first = vec![0; SIZE / 2];
        ground.region.read(0, &mut first).unwrap();
        assert!(first.iter().all(|byte| *byte == 0), "round {round}");
    }
    ground.is_as_ever();
}
