//! Memory of a process that its peers use by address, of any kind and with any fate.

use pinfold::{Endpoint, Path, PeerId, RegionKey, RemoteSpace};
use pinfold_tests::{Stage, role::PATIENCE, stage::Casting};

mod atomics;
mod changed;
mod churn;
mod ends;
mod kinds;
mod memory;
mod operations;
mod registered;
mod waits;

use self::{
    atomics::{adder, asker, clerk, keeper, summer, unable},
    changed::{seer, shifter},
    churn::{changer, follower, recycler, rereader},
    ends::{closer, comer, hammer, revoker},
    kinds::{owner, user},
    operations::{borrower, lender},
    registered::{flusher, giver, heir, mortal, taker},
    waits::{bystander, flooder, hoarder, sleeper, waiter},
};

pinfold_tests::roles!(
    owner, user, changer, follower, recycler, rereader, revoker, hammer, closer, comer, sleeper,
    waiter, bystander, shifter, seer, keeper, clerk, summer, adder, unable, asker, lender,
    borrower, giver, taker, mortal, heir, flusher, hoarder, flooder
);

/// The ways that a peer's memory is used: arenas mapped and all else by the kernel; all by the
/// kernel; all by the agent.
const WAYS: [&str; 3] = ["all", "kernel", "agent"];

/// A role that uses memory in one way.
fn go<'a>(role: Casting<'a>, way: &str) -> Casting<'a> {
    let role = role.with("way", way);
    match way {
        "kernel" => role.with("paths", "inline,eager,cma"),
        "agent" => role.with("paths", "inline,eager"),
        _ => role,
    }
}

/// Has both roles play, once for each way.
fn play(owner: &str, user: &str) {
    for way in WAYS {
        let stage = Stage::new(120);
        stage.play([stage.role(owner).with("way", way), go(stage.role(user), way)]);
    }
}

/// The path to a peer's memory that is not mapped.
fn plain(endpoint: &Endpoint, peer: PeerId) -> Path {
    match endpoint.peer(peer).expect("connected").cma_refused {
        None => Path::Cma,
        Some(_) => Path::Eager,
    }
}

fn space(endpoint: &Endpoint, peer: PeerId) -> RemoteSpace {
    let key = endpoint.recv(peer, 1).unwrap();
    endpoint.open_space(peer, &RegionKey::from_bytes(&key).unwrap()).unwrap()
}

/// Sends numbers.
fn tell(endpoint: &Endpoint, peer: PeerId, words: &[u64]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    endpoint.send(peer, 2, &bytes).unwrap();
}

/// Receives numbers.
fn told(endpoint: &Endpoint, peer: PeerId) -> Vec<u64> {
    let message = endpoint.recv_timeout(peer, 2, PATIENCE).unwrap();
    message.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
}
