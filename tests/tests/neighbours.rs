//! Messages in thousands of parts that lie next to each other are one segment to the kernel.
//!
//! Both processes may hand the kernel one segment a call on either side, so that each call that
//! lists the parts fails, and with it the message.

use std::io::{IoSlice, IoSliceMut};

use pinfold::{Endpoint, Path, PathSet};
use pinfold_tests::{
    Args, Stage,
    filter::{CMA, deny_above},
    role, stamp,
};

pinfold_tests::roles!(sender, receiver);

/// Numbers of parts: the receiver reads the first alone; the sender writes a part of the others,
/// from 64 KiB on.
const PARTS: [usize; 3] = [500, 10_000, 30_000];

/// Bytes of a part at the source of the message, and at its destination.
const SENT: usize = 100;
const RECEIVED: usize = 70;

#[test]
fn many_parts_that_are_next_to_each_other_are_one() {
    let stage = Stage::new(60);
    stage.play(["receiver", "sender"].map(|role| stage.role(role)));
}

fn builder() -> pinfold::Builder {
    // Numbers of segments on this side, and on the other.
    deny_above(&CMA, &[2, 4], 1, libc::EPERM);
    Endpoint::builder().paths(PathSet::only(&[Path::Cma]))
}

fn sender(_: &Args) {
    let (endpoint, peer) = role::connect(builder(), "neighbours");
    if let Some(why) = endpoint.peer(peer).unwrap().cma_refused {
        return role::skip(format_args!("parts that the kernel copies: {why}"));
    }
    for parts in PARTS {
        let bytes = stamp::bytes(parts * SENT, parts as u64);
        let slices: Vec<IoSlice> = bytes.chunks(SENT).map(IoSlice::new).collect();
        let receipt = endpoint.send_vectored(peer, parts as u64, &slices).unwrap();
        assert_eq!((receipt.path, receipt.bytes), (Path::Cma, bytes.len() as u64));
    }
}

fn receiver(_: &Args) {
    let (endpoint, peer) = role::listen(builder(), "neighbours");
    if endpoint.peer(peer).unwrap().cma_refused.is_some() {
        return;
    }
    for parts in PARTS {
        let mut bytes = vec![0; parts * SENT];
        let mut slices: Vec<IoSliceMut> = bytes.chunks_mut(RECEIVED).map(IoSliceMut::new).collect();
        let received = endpoint.recv_vectored(peer, parts as u64, &mut slices).unwrap();
        assert_eq!((received.receipt.path, received.len), (Path::Cma, (parts * SENT) as u64));
        stamp::check(&bytes, parts as u64);
    }
}
