//! One-sided operations: their effect, their limits, their order among many, and their end.

use std::thread;

use pinfold::{Endpoint, Error, Path, PeerId, Region, RegionKey, RemoteRegion};
use pinfold_tests::{Args, Stage, role, stage::Casting};

mod atomics;
mod deferred_free;
mod denied;
mod ends;
mod operations;
mod revoked;

use self::{
    atomics::{counted, counter},
    deferred_free::{closer, comer, keeper, lingerer},
    denied::{filtered, lender, limited},
    ends::{churned, churner, dies, forker, outlives},
    operations::{owner, user},
    revoked::{filler, reuser, revoker, scribbler, writer},
};

pinfold_tests::roles!(
    owner, user, counted, counter, revoker, writer, scribbler, dies, outlives, forker, churner,
    churned, reuser, filler, keeper, lingerer, closer, comer, lender, limited, filtered
);

/// Sends a region's key to a peer.
fn hand_over(endpoint: &Endpoint, peer: PeerId, region: &Region) {
    endpoint.send(peer, 1, &region.key().expect("it stands").to_bytes()).unwrap();
}

fn key_from(endpoint: &Endpoint, peer: PeerId) -> RegionKey {
    RegionKey::from_bytes(&endpoint.recv(peer, 1).unwrap()).unwrap()
}

/// Answers questions for a region until the peer says so.
fn serve(endpoint: &Endpoint, peer: PeerId) {
    endpoint.recv(peer, 99).unwrap();
}

/// Plays `owner` and `user` twice: the user maps regions, and has the kernel reach them.
fn play_both_ways(owner: &str, user: &str) {
    for by in ["mapping", "kernel"] {
        let stage = Stage::new(120);
        stage.play([stage.role(owner).with("by", by), reach(stage.role(user), by)]);
    }
}

/// A role that uses regions by one path.
fn reach<'a>(role: Casting<'a>, by: &str) -> Casting<'a> {
    let role = role.with("by", by);
    if by == "kernel" { role.with("paths", "inline,eager,cma") } else { role }
}

/// Returns whether regions cannot be used here as the role has to; says so once.
fn is_barred(args: &Args, endpoint: &Endpoint, peer: PeerId) -> bool {
    let why = endpoint.peer(peer).and_then(|peer| peer.cma_refused);
    match why.filter(|_| args.text("by") == "kernel") {
        Some(why) => {
            role::skip(format_args!("regions by the kernel: {why}"));
            true
        }
        None => false,
    }
}

/// The path by which the role uses regions.
fn path(args: &Args) -> Path {
    if args.text("by") == "kernel" { Path::Cma } else { Path::Mapped }
}

fn revoked(region: &RemoteRegion) {
    assert!(matches!(region.write(0, b"late"), Err(Error::Revoked)));
    assert!(matches!(region.read(0, &mut [0]), Err(Error::Revoked)));
    match region.fetch_add(0, 1u64) {
        Err(Error::Revoked) if region.path() == Path::Mapped => {}
        Err(Error::PathRefused { path: Path::Mapped, .. }) if region.path() == Path::Cma => {}
        other => panic!("{other:?}"),
    }
    assert!(matches!(region.flush(), Err(Error::Revoked)));
}

/// The region as a peer in this process opens it.
fn open(a: &Endpoint, b: &Endpoint, to_a: PeerId, region: &Region) -> RemoteRegion {
    thread::scope(|s| {
        let opens = s.spawn(|| b.open_region(to_a, &region.key().unwrap()));
        while !opens.is_finished() {
            a.progress().unwrap();
        }
        opens.join().unwrap().unwrap()
    })
}
