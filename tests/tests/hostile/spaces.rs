#![allow(unsafe_code)]
//! Peers that ask the agent for memory that was not exposed to them. They have keys, and write
//! their questions themselves.
// Invariant: only memory of the test's own that nothing refers to is exposed.

use std::{thread, time::Duration};

use pinfold::{Endpoint, Rights};
use pinfold_tests::{
    Args, Stage,
    baseline::{Mapped, segments},
    host::{peek, send_raw},
    role::{self, say},
};

use super::{KIND, PATIENCE, RINGS, SLOT, SLOTS, donations::add, is_cut_off, liar::code, sockets};

/// Active messages: their kind, and verbs of theirs.
const ACTIVE: u64 = 11;
/// The question for memory, and the answer.
const OPEN: u64 = 12;
const OPENED: u64 = 13;
const REPLY: u64 = 3;
const SERVE: u64 = 5;

/// Questions and answers.
const TRANSLATE: u64 = 2;
const READ: u64 = 3;
const WRITE: u64 = 4;
/// Adds to a word of 4 bytes, or of 8; and puts another in the place of one of 4.
const ADD: u64 = 32;
const ADD_LONG: u64 = 33;
const REPLACE: u64 = 60;
const PLAIN: u64 = 3;
const DONE: u64 = 4;
const UNKNOWN: u64 = 5;
const READ_ONLY: u64 = 6;
const OUTSIDE: u64 = 7;
const NOT_MAPPED: u64 = 9;
const SENSELESS: u64 = 11;
const MISALIGNED: u64 = 8;
const WAS: u64 = 64;

const LEN: usize = 4096;

#[test]
fn those_who_ask_for_what_is_not_exposed_get_nothing() {
    let stage = Stage::new(60);
    stage.play([stage.role("exposer"), stage.role("exploiter")]);
}

pub fn exposer(_: &Args) {
    // Words lie at multiples of their size.
    let memory = vec![0x0707_0707_0707_0707u64; 3 * LEN / 8].leak();
    let start = memory.as_mut_ptr().expose_provenance() + LEN;
    let (endpoint, peer) = role::listen(Endpoint::builder(), "victim");
    let mut words = vec![start as u64];
    let mut exposed = Vec::new();
    for rights in [Rights::Read, Rights::ReadWrite] {
        // SAFETY: `memory` is looked at when all of it has ended only.
        exposed.push(unsafe { endpoint.expose(start..start + LEN, rights) }.unwrap());
    }
    // SAFETY: revoked before a peer can ask.
    let revoked = unsafe { endpoint.expose(start..start + LEN, Rights::ReadWrite) }.unwrap();
    exposed.push(revoked);
    for key in exposed.iter().map(|it| it.key().to_bytes()) {
        words.extend(key.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())));
    }
    exposed.pop().unwrap().revoke().unwrap();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    endpoint.send(peer, 1, &bytes).unwrap();
    assert!(endpoint.recv(peer, 2).unwrap_err().is_peer_gone());
    exposed.into_iter().for_each(|it| it.revoke().unwrap());
    assert!(memory.iter().all(|word| *word == 0x0707_0707_0707_0707));
}

pub fn exploiter(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "victim");
    let message = endpoint.recv(peer, 1).unwrap();
    let words: Vec<u64> =
        message.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
    let [start, ref keys @ ..] = words[..] else { panic!("{words:?}") };
    let [read, write, revoked] = [&keys[..3], &keys[3..6], &keys[6..]];
    // From here on its endpoint is not driven any more.
    let segment = segments()[0];
    let end = start + LEN as u64;
    let wrong = [write[0], write[1] ^ 1, write[2]];
    let cases: [(u64, &[u64], u64, u64, u64); 36] = [
        (READ, &[99, 1, 2], 0, 0, UNKNOWN),
        (1, write, start, 8, SENSELESS),
        (READ, read, start, 8, DONE),
        (READ, read, end - 8, 8, DONE),
        (READ, &wrong, start, 8, UNKNOWN),
        (READ, revoked, start, 8, UNKNOWN),
        (READ, read, start - 1, 8, OUTSIDE),
        (READ, read, end - 7, 8, OUTSIDE),
        (READ, read, end, 1, OUTSIDE),
        (READ, read, 0, 1, OUTSIDE),
        (READ, read, u64::MAX, 2, OUTSIDE),
        (READ, read, start, u64::MAX, SENSELESS),
        (READ, read, start, 1 << 20, SENSELESS),
        (WRITE, read, start, 0, READ_ONLY),
        (WRITE, &wrong, start, 0, UNKNOWN),
        (WRITE, revoked, start, 0, UNKNOWN),
        (WRITE, write, end + 1, 0, OUTSIDE),
        (WRITE, write, start, 0, DONE),
        (TRANSLATE, write, start, 1, PLAIN),
        (TRANSLATE, read, start, 1, READ_ONLY),
        (TRANSLATE, write, end, 0, OUTSIDE),
        (TRANSLATE, &wrong, start, 0, UNKNOWN),
        (TRANSLATE, write, start, 2, SENSELESS),
        (77, write, start, 0, SENSELESS),
        (ADD, write, start, 0, WAS),
        (ADD_LONG, write, end - 8, 0, WAS),
        (ADD, read, start, 0, READ_ONLY),
        (ADD, &wrong, start, 0, UNKNOWN),
        (ADD, revoked, start, 0, UNKNOWN),
        (ADD_LONG, write, end, 0, OUTSIDE),
        (ADD_LONG, write, start - 8, 0, OUTSIDE),
        (ADD, write, start + 2, 0, MISALIGNED),
        (ADD_LONG, write, start + 4, 0, MISALIGNED),
        (ADD, write, start, 1 << 32, SENSELESS),
        (REPLACE, write, start, 0, SENSELESS),
        (64, write, start, 0, SENSELESS),
    ];
    for (token, (verb, key, address, more, answer)) in (100..).zip(cases) {
        let question = [token | SERVE << 32, verb, key[0], key[1], key[2], address, more];
        add(segment, ACTIVE | code(48), 0, &question);
        let said = await_answer(segment, token);
        assert_eq!(said, answer, "question {}: {question:x?}", token - 100);
        assert_ne!(said, NOT_MAPPED);
    }
    // Memory that is exposed, and memory that is not.
    let opened: [(u64, &[u64], u64); 5] =
        [(1, &wrong, 1), (2, revoked, 1), (3, &[99, 1, 2], 1), (4, read, 10), (5, write, 11)];
    for (number, key, kind) in opened {
        add(segment, OPEN, number, &[key[0], key[1], key[2], 0, 0, 0, 0]);
        let opened = await_opened(segment, number);
        assert_eq!(opened[0] & 0xff, kind, "opened {number}: {opened:x?}");
        let range = if kind == 1 { [0, 0] } else { [start, LEN as u64] };
        assert_eq!(opened[1..3], range, "opened {number}");
    }
    // A question that is too short to be one.
    add(segment, ACTIVE | code(8), 0, &[99 | SERVE << 32, READ, 0, 0, 0, 0, 0]);
    assert_eq!(await_answer(segment, 99), SENSELESS);
    say("all asked");
}

/// The victim's answer to the question for what is exposed.
fn await_opened(segment: Mapped, number: u64) -> [u64; 3] {
    await_slot(segment, |at| {
        let header = peek(at);
        let is_it = header >> KIND & 31 == OPENED && header >> 32 == number;
        is_it.then(|| [8, 16, 24].map(|offset| peek(at + offset)))
    })
}

/// The victim's answer to a question.
fn await_answer(segment: Mapped, token: u64) -> u64 {
    await_slot(segment, |at| {
        let is_it = peek(at) >> KIND & 31 == ACTIVE && peek(at + 8) == token | REPLY << 32;
        is_it.then(|| peek(at + 16))
    })
}

/// Waits for a descriptor of the victim's.
fn await_slot<T>(segment: Mapped, find: impl Fn(usize) -> Option<T>) -> T {
    let ring = segment.at + RINGS[0];
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        assert!(!is_cut_off(segment), "cut off");
        if let Some(found) = (0..SLOTS).find_map(|slot| find(ring + slot * SLOT)) {
            return found;
        }
        sockets().into_iter().for_each(|socket| drop(send_raw(socket, &[1], &[])));
        thread::sleep(Duration::from_millis(1));
        assert!(std::time::Instant::now() < end, "no answer");
    }
}
