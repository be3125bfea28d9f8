//! A short run of each target, the same each time: half of the inputs are random, half are good
//! ones with a few bytes changed.

use super::*;
use crate::{
    Refusal,
    wire::{
        descriptor::{Header, Kind, Piece},
        rendezvous::Exported,
    },
};

const INPUTS: u32 = 100_000;

/// SplitMix64 (Steele, Lea, Flood, *Fast splittable pseudorandom number generators*, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    fn bytes(&mut self, len_max: usize) -> Vec<u8> {
        let len = self.below(len_max + 1);
        (0..len).map(|_| self.byte()).collect()
    }

    /// A good input, of which up to three bytes are changed and the end may be missing.
    fn spoilt(&mut self, mut good: Vec<u8>) -> Vec<u8> {
        for _ in 0..self.below(4) {
            let at = self.below(good.len());
            good[at] = match self.below(4) {
                0 => 0,
                1 => 0xff,
                2 => good[at] ^ 1 << self.below(8),
                _ => self.byte(),
            };
        }
        if self.below(4) == 0 {
            good.truncate(self.below(good.len() + 1));
        }
        good
    }
}

fn run(seed: u64, target: fn(&[u8]), good: impl FnMut(&mut Random) -> Vec<u8>) {
    run_times(INPUTS, seed, target, good);
}

fn run_times(
    inputs: u32,
    seed: u64,
    target: fn(&[u8]),
    mut good: impl FnMut(&mut Random) -> Vec<u8>,
) {
    let mut random = Random(seed);
    for at in 0..inputs {
        let input = if at % 2 == 0 {
            random.bytes(400)
        } else {
            let good = good(&mut random);
            random.spoilt(good)
        };
        target(&input);
    }
}

#[test]
fn frames_of_any_bytes() {
    run(1, frames, |random| {
        let messages = [Kind::Inline, Kind::Eager, Kind::Data, Kind::Rts, Kind::Cts, Kind::Active];
        let regions = [Kind::Open, Kind::Opened, Kind::Use, Kind::Use, Kind::Used, Kind::Used];
        let kinds = [messages, regions].concat();
        let len = random.below(64) as u8;
        let header = Header::new(kinds[random.below(kinds.len())], len, random.next() as u32);
        let (number, words) = (random.next() >> 1, 0);
        let (received, released) = (random.next(), random.next());
        let wants_word = random.below(2) == 0;
        let brings = Brings::Descriptor { number, header, words };
        let head = Head { received, released, wants_word, brings };
        let mut frame = head.bytes().to_vec();
        let piece = Piece { offset: random.next() as u32, len: 1 << random.below(20), sample: 0 };
        let some = random.next() >> random.below(64);
        let words = [random.next(), some, piece.body()[0], some & 15, some, random.next(), 0];
        frame.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        frame
    });
}

/// The packets of both sides in a good greeting, one after the other.
fn recording(nonces: [u8; 2]) -> [Vec<u8>; 2] {
    let (said, c_end, a_end) = converse(with_key(), nonces, usize::MAX, |_, _, _| {});
    assert!(matches!((c_end, a_end), (Some(Ok(_)), Some(Ok(_)))));
    said
}

#[test]
fn greetings_of_any_bytes() {
    let [ours, theirs] = recording([3, 4]);
    let (_, claim) = ours.split_at(packets::KNOCK_BYTES);
    let (claim, confirm) = claim.split_at(packets::CLAIM_BYTES);
    let (knock, reply) = theirs.split_at(packets::KNOCK_BYTES);
    let good = [claim, confirm, knock, reply];
    run(2, greeting, |random| match random.below(3) {
        // The packets of one side, from a greeting with other nonces, to the other.
        0 => {
            let side = random.below(2);
            let words = if side == 0 { &theirs } else { &ours };
            let mut input = vec![(side as u8) << 1 | random.byte() & !7];
            input.extend_from_slice(words);
            input
        }
        // A pair, and up to three changes to its packets, most of them where something is said.
        1 => {
            let mut input = vec![4 | random.byte() & !6];
            for _ in 0..random.below(4) {
                let place = random.below(360);
                input.extend([
                    (place >> 8 << 1) as u8 | random.byte() & 1,
                    place as u8,
                    random.byte(),
                ]);
            }
            input
        }
        _ => {
            let mut input = vec![6 | random.byte() & !7];
            input.extend_from_slice(good[random.below(4)]);
            input
        }
    });
}

#[test]
fn channels_of_any_bytes() {
    let roles = [packets::Role::Connecting, packets::Role::Accepting];
    let [mut client, mut server] = roles.map(|role| Securing::new(role).unwrap());
    let hello = spoken(&mut client);
    listened(&mut server, &hello, roles[1]).unwrap();
    let flight = spoken(&mut server);
    // Each is half a handshake or a whole one.
    run_times(3_000, 4, tls, |random| {
        let side = random.below(2);
        let mut input = vec![side as u8 | random.byte() & !3];
        input.extend_from_slice(if side == 0 { &flight } else { &hello });
        input
    });
}

#[test]
fn local_packets_of_any_bytes() {
    let introduction = hello::Introduction {
        endpoint_id: [3; 16],
        label: "sample".into(),
        pid: 77,
        paths: PathSet::all(),
        barrier_global: false,
        limits: Limits { unexpected_bytes: 1, rendezvous_max: 2 },
        nonce_addr: 8,
        scratch_addr: 16,
        mark: [4; 16],
    };
    let proof = hello::Proof { read: Ok([1; 16]), write: Err(Refusal::SwitchedOff) };
    let verdict = hello::Verdict { read: Ok(()), write: Err(Refusal::Denied(1)) };
    let claim = space::Claim { id: 1, secret: [2, 3] };
    let good = [
        hello::encode_hello(&introduction),
        hello::encode_welcome(&introduction, &proof),
        hello::encode_proof(&proof, &verdict),
        hello::encode_ready(&verdict),
        hello::encode_refuse(&hello::Refuse::Full { peers_max: 9 }),
        space::Ask::Read { address: 1, len: 2 }.payload(claim, 0),
        space::bytes_of(&space::Answered::Plain { start: 1, len: 2 }.words()),
        list_of(&[(3, 4096, 8192), (4, 0, 1), (3, 4096, 100)]),
    ];
    run(3, local, |random| good[random.below(good.len())].clone());
}

/// The length of a message in such parts, and the list of them.
fn list_of(parts: &[(u64, u64, u64)]) -> Vec<u8> {
    let mut bytes = Vec::from(parts.iter().map(|part| part.2).sum::<u64>().to_ne_bytes());
    for (extent, offset, len) in parts {
        let exported = Exported { extent: *extent, offset: *offset };
        list::add(list::Listed { exported, len: *len }, &mut bytes);
    }
    bytes
}

/// The targets would not let any of it pass.
#[test]
fn what_has_the_key_is_no_stranger() {
    let [ours, _] = recording(NONCES);
    // The very nonces of this greeting: only a side with the key could say this.
    let input = [&[2 | 7 << 3][..], &ours].concat();
    let got = std::panic::catch_unwind(|| greeting(&input)).unwrap_err();
    let said = got.downcast_ref::<String>().unwrap();
    assert!(said.starts_with("a stranger got to Decide"), "{said}");
}
