//! Reads, writes and atomic operations on memory of another host: every call and size, over TCP
//! between two network namespaces.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    time::Instant,
};

use pinfold_fi::ffi::{flags::*, object::Fid};
use pinfold_tests::{
    Args, Network, Stage,
    network::where_allowed,
    role::{hear, say},
    stage::Casting,
    stamp,
};

use crate::{
    atomics::{COUNT, Element, check_there},
    couple::{Incoming, Outgoing, Recv, Send, Toward, inject_max, posted, recv, send},
    host::host,
    rma::{Call, RIGHTS, SIZES, call},
    side::{PATIENCE, Side, Terms, close, hex, unhex},
};

/// The hosts that processes are on.
pub struct Hosts(Option<Network>);

impl Hosts {
    /// All are on this one.
    pub fn one() -> Hosts {
        Hosts(None)
    }

    /// Two, each a network of its own.
    pub fn two() -> Hosts {
        Hosts(Some(Network::new(2)))
    }

    /// The same process on one of them.
    pub fn on<'a>(&self, host: usize, stage: &Stage, role: Casting<'a>) -> Casting<'a> {
        let Some(network) = &self.0 else { return role };
        let key = stage.path().join("key");
        if !key.exists() {
            fs::write(&key, [7; 32]).expect("a key");
            fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("chmod");
        }
        // Names that both could open would have them talk without the network.
        let names = stage.path().join(format!("names-{host}"));
        role.inside(network.namespace(host))
            .env("PINFOLD_KEY_FILE", key)
            .env("PINFOLD_HOST", network.address(host).to_string())
            .env("PINFOLD_DIR", names)
    }
}

/// Room in front of what is written, and behind it.
const MARGIN: usize = 32;
/// Bytes of the region, of which the first are those of [`SIZES`].
const LEN: usize = (1 << 20) + 4096;
/// Bytes at the end of the region that atomic operations are for.
const ELEMENTS: usize = 64;
/// Writes to the region whose uses are counted.
const COUNTED: u64 = 5;
/// The tag of the message that says how all of the memory has to be.
const END: u64 = 3;

/// Posts a receive of a message from anybody.
pub fn await_message(side: &Side, room: &mut [u8], tag: u64) {
    let mut incoming = Incoming::tagged(room, tag);
    posted("fi_trecv", &[side], || recv(side, Recv::Plain, &mut incoming));
}

/// Sends a message, and waits until its memory is back.
pub fn deliver(side: &Side, message: &mut [u8], to: u64, tag: u64) {
    let mut outgoing = Outgoing::tagged(message, to, tag);
    posted("fi_tsend", &[side], || send(side, Send::Plain, &mut outgoing));
    side.take(side.tx, &[]).expect("no error");
}

/// The process whose memory it is.
pub fn owner(_: &Args) {
    let host = host().expect("the director has one");
    let side = Side::new(host, Terms::default());
    let (mut memory, mut counted) = (stamp::bytes(LEN, 1), vec![0; 4096]);
    let (mr, key) = side.register(&mut memory, RIGHTS, 1);
    let (counted_mr, counted_key) = side.register(&mut counted, RIGHTS, 2);
    let counter = side.open_counter(FI_WAIT_UNSPEC);
    let fid = counted_mr.cast::<Fid>();
    // SAFETY: both are open.
    let code = unsafe { ((*(*fid).ops).bind)(fid, counter.cast(), FI_REMOTE_WRITE) };
    assert_eq!(code, 0);
    let (at, counted_at) = (side.place(&memory), side.place(&counted));
    let mut wanted = vec![0; LEN];
    await_message(&side, &mut wanted, END);
    say(format_args!("is {} {at} {key} {counted_at} {counted_key}", hex(&side.name())));
    let mut told = Vec::new();
    loop {
        let entry = side.take(side.rx, &[]).expect("no error");
        if entry.flags & FI_REMOTE_CQ_DATA == 0 {
            break;
        }
        assert_eq!(entry.flags & (FI_RMA | FI_REMOTE_WRITE), FI_RMA | FI_REMOTE_WRITE);
        assert_eq!(entry.data, 77);
        told.push(entry.len);
    }
    let inject_max = inject_max(&side);
    let with_data = |size: &usize| 1 + usize::from(*size <= inject_max);
    let expected: Vec<usize> =
        SIZES.iter().flat_map(|size| std::iter::repeat_n(*size, with_data(size))).collect();
    assert_eq!(told, expected);
    assert!(memory == wanted);
    // SAFETY: the counter is open.
    assert_eq!(unsafe { ((*(*counter).ops).read)(counter) }, COUNTED);
    assert_eq!((close(mr), close(counted_mr), close(counter)), (0, 0, 0));
    say("closed");
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        side.progress();
    }
}

/// The process that uses it.
pub fn user(_: &Args) {
    let host = host().expect("the director has one");
    let side = Side::new(host, Terms::default());
    let line = hear();
    let mut words = line.split(' ');
    let to = side.insert(&unhex(words.next().expect("a name")));
    let numbers: Vec<u64> = words.map(|word| word.parse().expect("a number")).collect();
    let [at, key, counted_at, counted_key] = numbers[..] else { panic!("{line}") };
    let toward = Toward { side: &side, other: None, to };
    let mut mirror = stamp::bytes(LEN, 1);
    for size in SIZES {
        for kind in Call::ALL {
            if !kind.is_silent() || size <= inject_max(&side) {
                one(&toward, kind, size, &mut mirror, (at, key));
            }
        }
    }
    for _ in 0..COUNTED {
        for kind in [Call::Write, Call::Read] {
            let mut bytes = [1; 100];
            toward.post("fi_rma", || call(&toward, kind, &mut bytes, counted_at, counted_key));
            toward.take().expect("no error");
        }
    }
    for (at, key, code) in [
        (at + LEN as u64 - 7, key, libc::EACCES),
        (at.wrapping_sub(1), key, libc::EACCES),
        (at, key + 1000, FI_ENOKEY),
    ] {
        let mut bytes = [0; 8];
        toward.post("fi_read", || call(&toward, Call::Read, &mut bytes, at, key));
        assert_eq!(toward.take().expect_err("what is not allowed").err, code);
    }
    let place = (at + (LEN - ELEMENTS) as u64, key);
    atomics::<i8>(&toward, place);
    atomics::<u16>(&toward, place);
    atomics::<i32>(&toward, place);
    atomics::<u64>(&toward, place);
    atomics::<f32>(&toward, place);
    atomics::<f64>(&toward, place);
    atomics::<[f64; 2]>(&toward, place);
    let elements = &mut mirror[LEN - ELEMENTS..];
    transfer(&toward, Call::Read, elements, place);
    deliver(&side, &mut mirror, to, END);
    say("delivered");
    assert_eq!(hear(), "closed");
    let mut bytes = [0; 8];
    toward.post("fi_read", || call(&toward, Call::Read, &mut bytes, at, key));
    assert_eq!(toward.take().expect_err("a region that is closed").err, FI_ENOKEY);
}

/// A read or a write that goes well.
fn transfer(toward: &Toward<'_>, kind: Call, bytes: &mut [u8], (at, key): (u64, u64)) {
    toward.post("fi_rma", || call(toward, kind, bytes, at, key));
    toward.take().expect("no error");
}

/// One operation, and a look at the memory around it.
fn one(toward: &Toward<'_>, kind: Call, size: usize, mirror: &mut [u8], (at, key): (u64, u64)) {
    let (seed, before) = (size as u64 + kind as u64, toward.side.count(3));
    let mut bytes = if kind.reads() { vec![0; size] } else { stamp::bytes(size, seed) };
    let place = (at + MARGIN as u64, key);
    if kind.is_silent() {
        toward.post("fi_rma", || call(toward, kind, &mut bytes, place.0, key));
        let end = Instant::now() + PATIENCE;
        while toward.side.count(3) == before {
            toward.side.progress();
            assert!(Instant::now() < end, "it is not counted");
        }
        assert!(toward.side.poll(toward.side.tx).unwrap().is_none());
    } else {
        transfer(toward, kind, &mut bytes, place);
    }
    let touched = &mut mirror[MARGIN..MARGIN + size];
    if kind.reads() {
        assert!(bytes == touched, "{kind:?} {size}");
    } else {
        touched.copy_from_slice(&bytes);
    }
    let mut around = vec![0; size + 2 * MARGIN];
    transfer(toward, Call::Read, &mut around, (at, key));
    assert!(around == mirror[..around.len()], "{kind:?} {size}");
}

/// Every atomic operation on a type, at a place that is otherwise read and written.
fn atomics<E: Element>(toward: &Toward<'_>, place: (u64, u64)) {
    let get = || {
        let mut all = [E::of(9); COUNT];
        transfer(toward, Call::Read, bytes_of(&mut all), place);
        all
    };
    let set = |mut all: [E; COUNT]| transfer(toward, Call::Write, bytes_of(&mut all), place);
    check_there::<E>(toward, place, &get, &set);
}

fn bytes_of<E: Element>(all: &mut [E; COUNT]) -> &mut [u8] {
    // SAFETY: elements are plain numbers, of which any bytes are one.
    unsafe { std::slice::from_raw_parts_mut(all.as_mut_ptr().cast(), size_of::<[E; COUNT]>()) }
}

#[test]
fn every_call_on_memory_of_another_host() {
    if host().is_none() {
        return;
    }
    where_allowed("hosts::every_call_on_memory_of_another_host", || {
        let (stage, hosts) = (Stage::new(120), Hosts::two());
        let mut owner = hosts.on(0, &stage, stage.role("owner")).spawn();
        let place = owner.expect("is");
        let mut user = hosts.on(1, &stage, stage.role("user")).spawn();
        user.say(place);
        user.expect("delivered");
        owner.expect("closed");
        user.say("closed");
        user.end_well();
        owner.kill();
    });
}
