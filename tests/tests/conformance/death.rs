//! Death: the process at the other end is killed amid traffic. All operations with it end with an
//! error, its memory is given back, and the descriptors and mappings are as before.

use std::time::Duration;

use pinfold::{Arena, Error, Gone, PeerId, RegionKey, Result, Rights};
use pinfold_tests::{
    Args, Baseline, Stage,
    role::{PATIENCE, say},
    stamp, until,
};

use crate::{
    pair::{End, LENGTHS, Transport, Way, builder, gone},
    processes,
};

/// How long a peer may be without a connection; a bound on the time of a loss over one.
const AWAY: Duration = Duration::from_millis(1500);
/// Many times as long as an error takes.
const BOUND: Duration = Duration::from_secs(30);
/// No message has it.
const NEVER: u64 = 100;
const FRAME: u64 = 50;
const KEY: u64 = 51;

pub fn holds(on: Transport) {
    let stage = Stage::new(80);
    let by = if on.shares_memory() { "memory" } else { "connection" };
    let mut survivor = processes::listener(&stage, "survivor", on).with("by", by).spawn();
    let (address, _relay) = processes::hear_address(&mut survivor, on);
    let mortal = |rounds: u64| stage.role("mortal").with("to", &address).with("rounds", rounds);
    // The first peer goes in good order: what an endpoint keeps from its first peer on is there.
    let mut first = mortal(2).spawn();
    survivor.expect("has lost one");
    first.end_well();
    let mut victim = mortal(u64::MAX).spawn();
    survivor.expect("is busy");
    victim.kill();
    assert!(victim.was_killed());
    survivor.expect("has lost one");
    survivor.end_well();
}

/// Messages of all lengths both ways, a view and a one-sided operation: one round after the other,
/// as many as are asked for.
fn traffic(end: &End, arena: &Arena, rounds: u64, mut after: impl FnMut(u64)) -> Result<()> {
    let (endpoint, peer) = (&end.endpoint, end.peer);
    let region = endpoint.region(4096, Rights::ReadWrite)?;
    endpoint.send(peer, end.out(KEY), &region.key().expect("it stands").to_bytes())?;
    let key = RegionKey::from_bytes(&endpoint.recv(peer, end.into(KEY))?)?;
    let remote = endpoint.open_region(peer, &key)?;
    for round in 0..rounds {
        for (tag, len) in (0..).zip(LENGTHS) {
            let sent = endpoint.send_owned(peer, end.out(tag), stamp::bytes(len, round));
            let message = endpoint.recv(peer, end.into(tag))?;
            assert_eq!(message.len(), len);
            stamp::check(&message, round);
            sent.wait().0?;
        }
        let mut frame = arena.alloc(100_000)?;
        stamp::fill(&mut frame, round);
        endpoint.give(peer, end.out(FRAME), frame)?;
        stamp::check(&endpoint.recv_view(peer, end.into(FRAME))?.to_vec()?, round);
        match remote.fetch_add(0, 1u64) {
            Ok(was) => assert_eq!(was, round),
            // The region goes before the peer does.
            Err(Error::Withdrawn | Error::Revoked) => {
                return endpoint.recv(peer, end.into(NEVER)).map(drop);
            }
            Err(error) => return Err(error),
        }
        after(round);
    }
    Ok(())
}

pub fn mortal(args: &Args) {
    let end = processes::end(args, builder().reconnect_timeout(AWAY));
    let arena = Arena::new().unwrap();
    traffic(&end, &arena, args.number("rounds"), |_| ()).unwrap();
    end.endpoint.drain(PATIENCE).unwrap();
}

pub fn survivor(args: &Args) {
    // Means that the first message asks for would count as left behind.
    let builder = builder().reconnect_timeout(AWAY).prepare_receives(false).io_uring(false);
    let end = processes::end(args, builder);
    let arena = Arena::new().unwrap();
    let first = traffic(&end, &arena, u64::MAX, |_| ());
    // A goodbye does not come over a connection that just broke.
    let how = gone(first.unwrap_err());
    let may_break = args.text("by") != "memory";
    assert!(how == Gone::Closed || may_break && matches!(how, Gone::Lost(_)), "{how}");
    let before = Baseline::now();
    say("has lost one");
    let peer = end.endpoint.accept_timeout(PATIENCE).unwrap();
    let end = End::new(end.endpoint, peer, Way::Out, String::new());
    dies(&end, &arena, args.text("by") == "memory");
    before.returns(BOUND);
    say("has lost one");
}

fn dies(end: &End, arena: &Arena, by_memory: bool) {
    let (endpoint, peer): (_, PeerId) = (&end.endpoint, end.peer);
    let name = endpoint.peer(peer).unwrap().name;
    let right = |error: Error| {
        let text = error.to_string();
        let how = gone(error);
        let fits = how == Gone::Died || !by_memory && matches!(how, Gone::Lost(_));
        assert!(fits && text.contains(&name), "{text}");
    };
    // Operations that nothing will ever satisfy.
    let mut into = endpoint.recv_owned(peer, end.into(NEVER), vec![7; 5000]);
    let mut message = endpoint.recv_request(peer, end.into(NEVER));
    let mut long = endpoint.send_owned(peer, end.out(NEVER), stamp::bytes(5 << 20, 1));
    let ended = traffic(end, arena, u64::MAX, |round| {
        if round == 2 {
            say("is busy");
        }
    });
    let error = ended.unwrap_err();
    // A copy that the death has cut off says so instead.
    if !matches!(error, Error::Transfer { .. }) {
        right(error);
    }
    let in_time = "an operation with the dead goes on";
    let (received, bytes) = into.wait_timeout(BOUND).expect(in_time);
    right(received.unwrap_err());
    assert_eq!(bytes, [7; 5000]);
    right(message.wait_timeout(BOUND).expect(in_time).unwrap_err());
    let (sent, bytes) = long.wait_timeout(BOUND).expect(in_time);
    right(sent.unwrap_err());
    stamp::check(&bytes, 1);
    right(endpoint.send(peer, 1, b"are you there").unwrap_err());
    right(endpoint.recv(peer, 1).unwrap_err());
    assert!(endpoint.peers().is_empty());
    // Memory that it had been given is back.
    until(|| {
        endpoint.progress().unwrap();
        arena.stats().buffers == 0
    });
}
