//! Mapping makes none of the calls that containers deny; and where it is switched off, receipts say
//! so.

use std::io::IoSlice;

use pinfold::{Arena, Error, Path, Refusal};
use pinfold_tests::{
    Args, Stage,
    filter::{CMA, deny},
    role,
};

use super::{MIB, filled, offer, take};

/// Plays with these roles unable to call `process_vm_*`.
fn filtered(who: &[&str]) {
    let stage = Stage::new(60);
    stage.play(["reader", "writer"].map(|role| {
        let cast = stage.role(role);
        let cast = if who.contains(&role) { cast.with("denied", 1) } else { cast };
        cast.with("alone", u8::from(who.contains(&"writer")))
    }));
}

#[test]
fn filtered_at_the_sender() {
    filtered(&["writer"]);
}

#[test]
fn filtered_at_the_receiver() {
    filtered(&["reader"]);
}

#[test]
fn filtered_at_both() {
    filtered(&["writer", "reader"]);
}

/// Plays with `role` having the path switched off.
fn switched_off(role: &str) {
    let stage = Stage::new(60);
    stage.play(["reader", "writer"].map(|other| {
        let cast = stage.role(other).with("off", role);
        if other == role { cast.with("paths", "inline,eager,cma") } else { cast }
    }));
}

#[test]
fn switched_off_at_the_sender() {
    switched_off("writer");
}

#[test]
fn switched_off_at_the_receiver() {
    switched_off("reader");
}

#[test]
fn nothing_else_is_needed() {
    let stage = Stage::new(60);
    stage.play(
        ["reader", "writer"]
            .map(|role| stage.role(role).with("paths", "inline,eager,mapped").with("alone", 1)),
    );
}

const LENS: [usize; 8] = [1, 57, 4096, 100_001, MIB, 2 * MIB - 1, 2 * MIB, 9 * MIB + 7];

pub fn writer(args: &Args) {
    obey(args);
    let (endpoint, peer) = role::connect(args.builder(), "denied");
    let arena = Arena::new().unwrap();
    for (seed, len) in (0..).zip(LENS) {
        let buf = filled(&arena, len, seed);
        if !args.has("off") {
            assert!(offer(&endpoint, peer, &buf, seed));
            continue;
        }
        let why = match args.text("off") {
            "writer" => Refusal::SwitchedOff,
            _ => Refusal::SwitchedOffByPeer,
        };
        match endpoint.send_by(Path::Mapped, peer, seed, &buf) {
            Err(Error::PathRefused { path: Path::Mapped, why: said }) => assert_eq!(said, why),
            other => panic!("{other:?}"),
        }
        // To hand the arena over would put a descriptor in the peer's socket.
        let receipt = match seed % 2 {
            0 => endpoint.send_owned(peer, seed, buf).wait().0,
            _ => endpoint.send_vectored(peer, seed, &[IoSlice::new(&buf)]),
        };
        let receipt = receipt.unwrap();
        assert!(receipt.path != Path::Mapped, "{receipt}");
        if len > 56 {
            assert_eq!(receipt.refused(Path::Mapped), Some(why), "{receipt}");
        }
        endpoint.recv(peer, super::ACCOUNT).unwrap();
    }
}

pub fn reader(args: &Args) {
    obey(args);
    let (endpoint, peer) = role::listen(args.builder(), "denied");
    for (seed, len) in (0..).zip(LENS) {
        let receipt = take(&endpoint, peer, len, seed);
        if args.has("off") {
            assert!(receipt.path != Path::Mapped, "{receipt}");
            continue;
        }
        assert_eq!((receipt.path, receipt.copied_kernel), (Path::Mapped, 0));
        // A sender without the call copies nothing of it.
        if args.text("alone") == "1" || len < 2 * MIB {
            assert_eq!(receipt.copied_user, len as u64);
        }
    }
}

fn obey(args: &Args) {
    if args.has("denied") {
        deny(&CMA, libc::EPERM);
    }
}
