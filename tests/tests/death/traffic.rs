//! The traffic of victim and survivor until one of them is killed: messages by every path, in both
//! directions, awaited and not, with pauses long enough to fall asleep in.

use std::{thread, time::Duration};

use pinfold::{
    Arena, Endpoint, Error, Path, PeerId, RegionKey, RemoteRegion, Result, Rights, SharedArena,
};
use pinfold_tests::{
    Args,
    role::{self, say},
    stamp::{self, Random},
};

use super::spaces;

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
                match (i, turn == is_first) {
                    (LENDS, true) => lend(endpoint, peer, stamp)?,
                    (LENDS, false) => borrow(endpoint, peer, stamp)?,
                    (EXPOSES, true) => spaces::lend(endpoint, peer, &open, stamp)?,
                    (EXPOSES, false) => spaces::borrow(endpoint, peer, stamp)?,
                    _ => {}
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

/// A handler that answers with the request's own bytes.
const ECHO: u32 = 1;
/// The message of a round before which a side asks.
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

/// The message of a round before which one side lets the other use its memory by address.
const EXPOSES: usize = 5;

/// The message of a round before which one side lends the other a region.
const LENDS: usize = 4;
/// The tag of messages about it.
const REGION: u64 = 77;
/// A tag that no message has.
const NOTHING: u64 = 78;
/// Bytes that are written into a region, and read out of it; behind them are a word that is added
/// to, and room.
const LENT: usize = 4096;

/// Lends the other side a region, and takes it back.
fn lend(endpoint: &Endpoint, peer: PeerId, stamp: u64) -> Result<()> {
    let mut region = endpoint.region(2 * LENT, Rights::ReadWrite)?;
    region.write(0, &stamp::bytes(LENT, stamp))?;
    let key = region.key().expect("it stands");
    endpoint.send(peer, REGION, &key.to_bytes())?;
    let used = *endpoint.recv(peer, REGION)? == *b"used";
    region.revoke()?;
    if used {
        let mut bytes = vec![0; LENT];
        region.read(0, &mut bytes)?;
        stamp::check(&bytes, stamp + 1);
        let word = region.word64(LENT).expect("it is inside");
        assert_eq!(word.load(std::sync::atomic::Ordering::Relaxed), 3);
    }
    endpoint.send(peer, REGION, b"revoked").map(drop)
}

/// Uses the region that the other side lends, up to its end.
fn borrow(endpoint: &Endpoint, peer: PeerId, stamp: u64) -> Result<()> {
    let key = RegionKey::from_bytes(&endpoint.recv(peer, REGION)?)?;
    let region = match endpoint.open_region(peer, &key) {
        Ok(region) => region,
        Err(Error::PathRefused { .. }) => {
            endpoint.send(peer, REGION, b"refused")?;
            return endpoint.recv(peer, REGION).map(drop);
        }
        Err(error) => return Err(error),
    };
    match work(&region, stamp) {
        Ok(()) => {}
        // Its message names the region by a number alone.
        Err(Error::Withdrawn) => return endpoint.recv(peer, NOTHING).map(drop),
        Err(error) => panic!("a region that stands: {error}"),
    }
    endpoint.send(peer, REGION, b"used")?;
    endpoint.recv(peer, REGION)?;
    let late = region.write(0, b"too late").expect_err("it was revoked");
    match late {
        Error::Revoked => Ok(()),
        Error::Withdrawn => endpoint.recv(peer, NOTHING).map(drop),
        error => panic!("a region that was revoked: {error}"),
    }
}

fn work(region: &RemoteRegion, stamp: u64) -> Result<()> {
    let mut bytes = vec![0; LENT];
    region.read(0, &mut bytes)?;
    stamp::check(&bytes, stamp);
    region.write(0, &stamp::bytes(LENT, stamp + 1))?;
    for number in 0..3 {
        assert_eq!(region.fetch_add(LENT as u64, 1u64)?, number);
    }
    Ok(())
}

/// Now and then lets the other side wait until it sleeps, or its message until it is unexpected.
fn pause(random: &mut Random) {
    if random.below(8) == 0 {
        thread::sleep(Duration::from_micros(300));
    }
}

/// Sends the contents of a stamp; a message that is to be mapped goes out of the arena.
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
    let builder = args.builder().label("victim").heed_shortage(false);
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
