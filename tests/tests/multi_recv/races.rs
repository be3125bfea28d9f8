//! Receives of many messages that are used up, cancelled and dropped at any moment, beside others:
//! each message comes once.

use std::{collections::VecDeque, thread, time::Duration};

use pinfold::{Endpoint, PeerId, Progress, Source, TagMatch};
use pinfold_tests::stamp::{self, Random};

use super::{MIB, Pair};

const MESSAGES: usize = 3000;
const LONGEST: usize = 2 * MIB;
/// Sends that are posted at a time.
const POSTED: usize = 24;

fn len_of(number: usize) -> usize {
    match stamp::mix(number as u64) % 200 {
        0 => LONGEST,
        1..5 => 300_000,
        5..15 => 20_000,
        15..40 => 1500,
        at => (at % 58) as usize,
    }
}

fn send_all(endpoint: &Endpoint, peer: PeerId) {
    let mut sends = VecDeque::new();
    for number in 0..MESSAGES {
        let bytes = stamp::bytes(len_of(number), number as u64);
        sends.push_back(endpoint.send_owned(peer, number as u64, bytes));
        if sends.len() == POSTED {
            sends.pop_front().unwrap().wait().0.unwrap();
        }
    }
    for send in sends {
        send.wait().0.unwrap();
    }
}

/// How often each message came.
struct Came(Vec<u32>);

impl Came {
    fn note(&mut self, tag: u64, bytes: &[u8]) {
        assert_eq!(bytes.len(), len_of(tag as usize));
        stamp::check(bytes, tag);
        self.0[tag as usize] += 1;
    }

    fn all(&self) -> bool {
        self.0.iter().all(|count| *count == 1)
    }

    /// Takes some messages into one buffer.
    fn many(&mut self, pair: &Pair, random: &mut Random) {
        let room = LONGEST + random.below(LONGEST as u64) as usize;
        let from = random.pick(&[Source::Any, pair.to_two.into()]);
        // None is cut off.
        let mut multi = pair.one.multi_recv(from, TagMatch::any(), vec![0; room], LONGEST);
        let mut left = random.pick(&[0, 1, 2, 20, 200]);
        while left > 0 && !multi.is_over() {
            left -= 1;
            if let Some(message) = multi.next_timeout(Duration::from_micros(200)) {
                let message = message.unwrap();
                self.note(message.tag, multi.bytes(&message).unwrap());
            }
        }
        if random.below(2) == 0 && multi.cancel() {
            while let Some(Ok(message)) = multi.next() {
                self.note(message.tag, multi.bytes(&message).unwrap());
            }
            assert!(multi.take_buffer().is_some());
        }
    }
}

fn race(pair: &Pair, seed: u64) {
    let mut random = Random::new(seed);
    let mut came = Came(vec![0; MESSAGES]);
    thread::scope(|scope| {
        let sender = scope.spawn(|| send_all(&pair.two, pair.to_one));
        while !came.all() {
            assert!(came.0.iter().all(|count| *count <= 1));
            match random.below(4) {
                0 => {
                    let patience = Duration::from_micros(100);
                    let taken = pair.one.recv_timeout(pair.to_two, TagMatch::any(), patience);
                    if let Ok(message) = taken {
                        came.note(message.tag(), &message);
                    }
                }
                1 => {
                    // Given up at once, beside one of many.
                    let one = pair.one.recv_owned(pair.to_two, TagMatch::any(), vec![0; LONGEST]);
                    came.many(pair, &mut random);
                    drop(one);
                }
                _ => came.many(pair, &mut random),
            }
        }
        sender.join().unwrap();
    });
    assert!(pair.one.try_probe(pair.to_two, TagMatch::any()).unwrap().is_none());
}

#[test]
fn by_all_paths() {
    (0..4).for_each(|seed| race(&Pair::new(), seed));
}

#[test]
fn through_the_ring() {
    (10..14).for_each(|seed| race(&Pair::ring_only(), seed));
}

#[test]
fn beside_a_thread_that_drives() {
    let builder = || Endpoint::builder().progress(Progress::Dedicated);
    (20..24).for_each(|seed| race(&Pair::of(builder), seed));
}

#[test]
fn over_a_connection() {
    (30..34).for_each(|seed| race(&Pair::tcp(), seed));
}
