//! What victim and survivor do together until one of them is killed: messages by every path, in
//! both directions, awaited and not, with pauses long enough to fall asleep in.

use std::{thread, time::Duration};

use pinfold::{Arena, Endpoint, Error, Path, PeerId, Result, SharedArena};
use pinfold_tests::{
    Args,
    role::{self, say},
    stamp::{self, Random},
};

/// Rounds until the victim closes, if nothing kills it.
const ROUNDS: u64 = 25;

/// The messages of a round: length, path if it matters, and the high half of the tag.
const ROUND: [(usize, Option<Path>, u64); 11] = [
    (8, None, 0),
    (50, None, 1),
    (56, None, 2),
    (1000, None, 0),
    (20_000, Some(Path::Eager), 0),
    (100_000, Some(Path::Cma), 0),
    (2 << 20, Some(Path::Eager), 0),
    (4 << 20, Some(Path::Cma), 3),
    (300_000, None, 0),
    (90_000, Some(Path::Mapped), 0),
    (5 << 20, Some(Path::Mapped), 0),
];

/// One side of the traffic, until `rounds` are over or the other side is gone.
pub fn exchange(
    endpoint: &Endpoint,
    peer: PeerId,
    is_first: bool,
    seed: u64,
    rounds: u64,
) -> Result<()> {
    let mut random = Random::new(seed + u64::from(is_first));
    let mut arena = Arena::new()?;
    let mut open = SharedArena::builder().build_shared()?;
    endpoint.handle(ECHO, |active| drop(active.reply(active.payload())))?;
    for round in 0..rounds {
        if round % 3 == 2 {
            arena = Arena::new()?;
            open = SharedArena::builder().build_shared()?;
        }
        for (i, (len, by, high)) in ROUND.into_iter().enumerate() {
            let tag = high << 32 | i as u64;
            let stamp = round << 8 | i as u64;
            for turn in [true, false] {
                if turn == is_first && i == ASKS {
                    ask(endpoint, peer, stamp)?;
                }
                if turn == is_first {
                    send(endpoint, peer, by, tag, &arena, (len, stamp))?;
                } else {
                    pause(&mut random);
                    let bytes = receive(endpoint, peer, tag, len, (&open, &mut random))?;
                    stamp::check(&bytes, stamp);
                }
            }
        }
    }
    Ok(())
}

/// A handler that answers with what it was asked.
const ECHO: u32 = 1;
/// The message of a round before which something is asked.
const ASKS: usize = 3;

fn ask(endpoint: &Endpoint, peer: PeerId, stamp: u64) -> Result<()> {
    for len in [8, 2000, 150_000] {
        let bytes = stamp::bytes(len, stamp);
        endpoint.call(peer, ECHO, &bytes)?;
        match endpoint.request(peer, ECHO, &bytes).wait() {
            Ok(answer) => stamp::check(&answer, stamp),
            Err(Error::NotHandled { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Now and then lets the other side wait until it sleeps, or its message until it is unexpected.
fn pause(random: &mut Random) {
    if random.below(8) == 0 {
        thread::sleep(Duration::from_micros(300));
    }
}

/// Sends what belongs to a stamp; what is to be mapped, out of the arena.
fn send(
    endpoint: &Endpoint,
    peer: PeerId,
    by: Option<Path>,
    tag: u64,
    arena: &Arena,
    (len, stamp): (usize, u64),
) -> Result<()> {
    let (mut own, mut shared);
    let bytes: &mut [u8] = if by == Some(Path::Mapped) {
        shared = arena.alloc(len)?;
        &mut shared
    } else {
        own = vec![0; len];
        &mut own
    };
    stamp::fill(bytes, stamp);
    let result = match by {
        None => endpoint.send(peer, tag, bytes),
        Some(path) => endpoint.send_by(path, peer, tag, bytes),
    };
    match result {
        Err(Error::PathRefused { .. }) => endpoint.send(peer, tag, bytes).map(drop),
        result => result.map(drop),
    }
}

fn receive(
    endpoint: &Endpoint,
    peer: PeerId,
    tag: u64,
    len: usize,
    (open, random): (&SharedArena, &mut Random),
) -> Result<Vec<u8>> {
    match random.below(4) {
        0 => endpoint.recv(peer, tag).map(pinfold::Message::into_vec),
        1 => {
            let mut bytes = vec![0; len];
            endpoint.recv_into(peer, tag, &mut bytes).map(|_| bytes)
        }
        2 => {
            let (result, bytes) = endpoint.recv_owned(peer, tag, vec![0; len]).wait();
            result.map(|_| bytes)
        }
        _ => {
            let (result, buf) = endpoint.recv_owned(peer, tag, open.alloc(len)?).wait();
            result.map(|_| buf.to_vec())
        }
    }
}

/// Lives until it is killed, or for so many rounds.
pub fn victim(args: &Args) {
    let seed = args.number("seed");
    let rounds = if args.has("endless") { u64::MAX } else { ROUNDS };
    let builder = Endpoint::builder().label("victim");
    let (endpoint, peer) = if args.has("listens") {
        let address = format!("local:{}", args.text("name"));
        let endpoint = builder.listen(&address).build().expect("to listen");
        say("ready");
        role::hear();
        let peer = endpoint.accept().expect("the survivor calls");
        (endpoint, peer)
    } else {
        say("ready");
        role::hear();
        role::connect(builder, "survivor")
    };
    exchange(&endpoint, peer, true, seed, rounds).expect("the survivor survives");
}
