#![allow(unsafe_code)]
//! A peer that announces memory that it does not have: memory that is mapped nowhere, of any
//! length.
// Invariant: nothing is ever mapped where the message is said to be.

use std::fs;

use pinfold::{Endpoint, OwnedBuf};
use pinfold_tests::{
    Args, Stage,
    role::{self, hear, say},
    stage::all_end_well,
};

use super::HOSTILE;

const LEN: usize = 1 << 30;
/// An address far from all memory that the kernel maps by itself.
const NOWHERE: usize = 1 << 44;
/// Memory that the receiver may have touched for it, KiB.
const TOUCHED_MAX_KIB: u64 = 128 << 10;

/// Memory that is made for a message is not touched, page by page, to find out which side's fault
/// it is that it cannot be copied.
#[test]
fn what_cannot_be_read_costs_nothing() {
    let stage = Stage::new(60);
    // The boaster, which would have to read the memory for any other path, lives by the kernel's.
    let cast = |role| stage.role(role).with("paths", "inline,cma");
    let mut gullible = cast("gullible").spawn();
    gullible.expect("ready");
    let mut boaster = cast("boaster").spawn();
    let touched: u64 = gullible.expect("touched").parse().unwrap();
    assert!(touched < TOUCHED_MAX_KIB, "{touched} KiB were touched");
    boaster.say("end");
    all_end_well(&mut [gullible, boaster]);
}

pub fn gullible(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder(), "victim");
    let before = peak_kib();
    for _ in 0..4 {
        let error = endpoint.recv(peer, HOSTILE).unwrap_err();
        assert!(matches!(error, pinfold::Error::Transfer { .. }), "{error:?}");
    }
    say(format_args!("touched {}", peak_kib() - before));
}

pub fn boaster(args: &Args) {
    let (endpoint, victim) = role::connect(args.builder(), "victim");
    for _ in 0..4 {
        let (sent, _) = endpoint.send_owned(victim, HOSTILE, Nowhere).wait();
        assert!(sent.is_err(), "{sent:?}");
    }
    hear();
    drop::<Endpoint>(endpoint);
}

/// The most memory that this process has had at once.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

struct Nowhere;

// SAFETY: there is no memory, so no thread reads or writes it: the kernel fails a copy of it.
unsafe impl OwnedBuf for Nowhere {
    fn bytes(&self) -> (*const u8, usize) {
        (std::ptr::without_provenance(NOWHERE), LEN)
    }
}
