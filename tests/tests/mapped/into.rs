//! Messages that go to an arena which peers may write: the sender copies them there, alone or
//! beside the receiver, also where no `process_vm_*` can be called.

use std::time::Instant;

use pinfold::{Arena, Endpoint, Error, Path, PeerId, Receipt, Received, Refusal, SharedArena};
use pinfold_tests::{
    Aligned, Args, Stage,
    filter::{CMA, deny},
    host::{self, SharedPart},
    role::{self, PATIENCE, await_go, go},
    stamp,
};

use super::{ACCOUNT, MIB, UNTOUCHED};

/// Plays with those named in `denied` unable to call `process_vm_*`.
fn play(denied: &[&str], extra: &[(&str, &str)]) {
    let stage = Stage::new(120);
    let able = |role: &str| !denied.contains(&role);
    stage.play(["landing", "putting"].map(|role| {
        let cast = stage.role(role).with("reads", u8::from(able("landing")));
        let cast = extra.iter().fold(cast, |cast, (key, value)| cast.with(key, value));
        match (able(role), denied.len()) {
            // A filter of one side alone keeps the other off, too.
            (able, 1) => cast.with("denied", if able { "hidden" } else { "lesser" }),
            (true, _) => cast,
            (false, _) => cast.with("denied", "filtered"),
        }
    }));
}

#[test]
fn of_all_sizes() {
    play(&[], &[]);
}

#[test]
fn beside_threads_that_drive() {
    play(&[], &[("dedicated", "1")]);
}

#[test]
fn where_the_sender_cannot_write() {
    play(&["putting"], &[]);
}

#[test]
fn where_the_receiver_cannot_read() {
    play(&["landing"], &[]);
}

#[test]
fn where_neither_can() {
    play(&["putting", "landing"], &[]);
}

#[test]
fn where_cma_is_switched_off() {
    play(&["putting", "landing"], &[("paths", "inline,eager,mapped")]);
}

/// Lengths around the limits for short messages and shared copies, cut into chunks of each size.
const LENS: [usize; 13] = [
    1,
    57,
    4096,
    (64 << 10) - 1,
    64 << 10,
    (64 << 10) + 1,
    MIB - 1,
    MIB + 1,
    2 * MIB - 1,
    2 * MIB,
    2 * MIB + 1,
    5 * MIB + 3,
    16 * MIB,
];
/// Places of the message: on the heap, in an arena, in one that peers may write.
const SOURCES: usize = 3;
/// Destinations: all of a buffer, a buffer that is too short, the heap.
const TARGETS: usize = 3;
/// The receiver's buffers are at least that long, so that it says where messages go.
const ROOM: usize = 64 << 10;

fn cases() -> impl Iterator<Item = (usize, usize, usize, u64)> {
    let cases = LENS.into_iter().flat_map(|len| {
        (0..SOURCES).flat_map(move |from| (0..TARGETS).map(move |to| (len, from, to)))
    });
    cases.zip(0..).map(|((len, from, to), seed)| (len, from, to, seed))
}

/// The receiver's account of a message.
struct Account {
    path: u64,
    user: u64,
    kernel: u64,
}

fn tell(endpoint: &Endpoint, peer: PeerId, receipt: &Receipt) {
    let words = [receipt.path as u64, receipt.copied_user, receipt.copied_kernel];
    endpoint.send(peer, ACCOUNT, &words.map(u64::to_le_bytes).concat()).expect("the sender");
}

fn told(endpoint: &Endpoint, peer: PeerId) -> Account {
    let bytes = endpoint.recv_timeout(peer, ACCOUNT, PATIENCE).expect("an account");
    let word = |at: usize| u64::from_le_bytes(bytes[8 * at..][..8].try_into().expect("a word"));
    Account { path: word(0), user: word(1), kernel: word(2) }
}

fn obey(args: &Args) {
    match args.has("denied").then(|| args.text("denied")) {
        Some("lesser") => host::give_up_capabilities().unwrap(),
        Some("hidden") => host::hide_memory().unwrap(),
        Some(_) => deny(&CMA, libc::EPERM),
        None => {}
    }
}

/// Sends a message from a source.
fn put(
    endpoint: &Endpoint,
    peer: PeerId,
    (len, from, seed): (usize, usize, u64),
    (readable, open): (&Arena, &SharedArena),
) -> Receipt {
    let at = seed as usize % 9;
    let sent = match from {
        0 => {
            let mut bytes = Aligned::new(len, at);
            stamp::fill(bytes.get_mut(), seed);
            endpoint.send_by(Path::Mapped, peer, seed, bytes.get())
        }
        1 => {
            let mut bytes = Aligned::in_arena(readable, len, at);
            stamp::fill(bytes.get_mut(), seed);
            endpoint.send_by(Path::Mapped, peer, seed, bytes.get())
        }
        _ => {
            let buf = open.alloc(len + at).expect("memory");
            buf.write(at, &stamp::bytes(len, seed));
            endpoint.send_owned(peer, seed, SharedPart::new(buf, at, len)).wait().0
        }
    };
    sent.expect("the receiver")
}

pub fn putting(args: &Args) {
    obey(args);
    // Where processors are short the receiver copies alone.
    let (endpoint, peer) = role::connect(args.builder().heed_shortage(false), "into");
    let (readable, open) = (Arena::new().unwrap(), SharedArena::builder().build_shared().unwrap());
    let receiver_reads = args.number::<u8>("reads") == 1;
    let mut shared_source = 0;
    for (len, from, to, seed) in cases() {
        if from == 0 && to == 2 {
            // Neither side has memory to map.
            continue;
        }
        await_go(&endpoint, peer);
        let receipt = put(&endpoint, peer, (len, from, seed), (&readable, &open));
        let account = told(&endpoint, peer);
        let what = format!("{len} bytes, {from} to {to}: {receipt}");
        assert_eq!(receipt.path as u64, account.path, "{what}");
        if from == 2 {
            // The library chooses.
            shared_source += u32::from(receipt.path == Path::Mapped);
            if !matches!(receipt.path, Path::Mapped | Path::Cma) {
                continue;
            }
        }
        let want = if to == 1 { len / 2 } else { len } as u64;
        let mut here = receipt.copied_user + receipt.copied_kernel;
        if receipt.refused(Path::Eager) == Some(Refusal::Stalled) {
            // These bytes went through the ring, and were copied once more at the other side.
            here -= receipt.copied_user;
        }
        assert_eq!(here + account.user + account.kernel, want, "each byte once: {what}");
        if from == 2 {
            continue;
        }
        if to == 2 {
            assert_eq!((receipt.path, account.kernel), (Path::Mapped, 0), "{what}");
            continue;
        }
        assert_eq!(receipt.copied_kernel, 0, "it has a mapping: {what}");
        match (from, receiver_reads) {
            (0, true) => {
                assert_eq!(account.user, 0, "{what}");
                assert_eq!(receipt.path == Path::Mapped, receipt.copied_user > 0, "{what}");
                if want < 64 << 10 {
                    assert_eq!(account.kernel, want, "alone: {what}");
                }
            }
            (0, false) => {
                let mapped = if want == 0 { receipt.path } else { Path::Mapped };
                assert_eq!((receipt.path, receipt.copied_user), (mapped, want), "alone: {what}");
            }
            _ => {
                assert_eq!((receipt.path, account.kernel), (Path::Mapped, 0), "{what}");
                if want < 2 << 20 {
                    assert_eq!(account.user, want, "alone: {what}");
                }
            }
        }
    }
    let enough = !args.has("paths") || shared_source > 10;
    assert!(enough, "{shared_source} of those that peers may write");
    together(&endpoint, peer, (&readable, &open), receiver_reads);
}

pub fn landing(args: &Args) {
    obey(args);
    let (endpoint, peer) = role::listen(args.builder().heed_shortage(false), "into");
    let arena = SharedArena::builder().build_shared().unwrap();
    for (len, from, to, seed) in cases() {
        if from == 0 && to == 2 {
            continue;
        }
        if to == 2 {
            let mut bytes = vec![0; len];
            go(&endpoint, peer);
            let received = endpoint.recv_into(peer, seed, &mut bytes).unwrap();
            stamp::check(&bytes, seed);
            tell(&endpoint, peer, &received.receipt);
            continue;
        }
        let cut = to == 1;
        let want = if cut { len / 2 } else { len };
        let at = 64 + seed as usize % 7;
        let room = if cut { want } else { want.max(ROOM) };
        let buf = arena.alloc(at + room + 64).unwrap();
        buf.fill(UNTOUCHED);
        let request = endpoint.recv_owned(peer, seed, SharedPart::new(buf, at, room));
        go(&endpoint, peer);
        let (result, part) = request.wait();
        let receipt = match result {
            Ok(Received { len: got, receipt, .. }) => {
                assert!(!cut && got == len as u64);
                receipt
            }
            Err(Error::Truncated { len: whole, receipt, .. }) => {
                assert!(cut && whole == len as u64);
                receipt
            }
            Err(error) => panic!("{len} bytes: {error}"),
        };
        assert_eq!(receipt.bytes, want as u64);
        let bytes = part.into_buf().to_vec();
        stamp::check(&bytes[at..at + want], seed);
        let around = bytes[..at].iter().chain(&bytes[at + want..]);
        assert!(around.clone().all(|byte| *byte == UNTOUCHED), "{len} bytes: beside the buffer");
        tell(&endpoint, peer, &receipt);
    }
    take_together(&endpoint, peer, &arena);
}

// Both sides copy.

const HALVES: u64 = 1 << 20;
const HALVES_LEN: usize = 8 * MIB;
/// The tag of the word whether another one comes.
const MORE: u64 = 1 << 21;

/// Sends long messages out of both kinds of memory, until both sides have copied some of one each.
fn together(
    endpoint: &Endpoint,
    peer: PeerId,
    (readable, open): (&Arena, &SharedArena),
    receiver_reads: bool,
) {
    let end = Instant::now() + PATIENCE / 2;
    // The kernel reads the heap's; where it cannot, there is nothing to share.
    let sources = if receiver_reads { 0..2 } else { 1..2 };
    for from in sources {
        for round in 0u64.. {
            let seed = HALVES + round;
            endpoint.send(peer, MORE, &seed.to_le_bytes()).unwrap();
            await_go(endpoint, peer);
            let receipt = put(endpoint, peer, (HALVES_LEN, from, seed), (readable, open));
            let account = told(endpoint, peer);
            let theirs = account.user + account.kernel;
            assert_eq!(receipt.copied_user + theirs, HALVES_LEN as u64);
            if receipt.copied_user > 0 && theirs > 0 {
                role::note(format_args!(
                    "from {from}: {} bytes by the sender, {theirs} by the receiver, round {round}",
                    receipt.copied_user
                ));
                break;
            }
            assert!(Instant::now() < end, "one side copies alone: {receipt}");
        }
    }
    endpoint.send(peer, MORE, b"").unwrap();
}

fn take_together(endpoint: &Endpoint, peer: PeerId, arena: &SharedArena) {
    loop {
        let more = endpoint.recv(peer, MORE).unwrap();
        let Ok(seed) = <[u8; 8]>::try_from(&*more).map(u64::from_le_bytes) else { return };
        let request = endpoint.recv_owned(peer, seed, arena.alloc(HALVES_LEN).unwrap());
        go(endpoint, peer);
        let (received, buf) = request.wait();
        stamp::check(&buf.to_vec(), seed);
        tell(endpoint, peer, &received.unwrap().receipt);
    }
}

// Senders that cannot map.

#[test]
fn where_the_sender_has_no_room() {
    for (paths, by) in [("inline,eager,cma,mapped", "cma"), ("inline,eager,mapped", "eager")] {
        let stage = Stage::new(60);
        let cast = |role: &str| stage.role(role).with("paths", paths).with("by", by);
        stage.play(["hoping", "cramped"].map(cast));
    }
}

/// Offers in vain, more than the sender rests for.
const OFFERS: u64 = 12;
const OFFERED: usize = 700_000;

pub fn cramped(args: &Args) {
    // Less room than an extent takes.
    let (endpoint, peer) = role::connect(args.builder().mapped_bytes_max(MIB), "cramped");
    for seed in 0..OFFERS {
        await_go(&endpoint, peer);
        let bytes = stamp::bytes(OFFERED, seed);
        let receipt = endpoint.send_by(Path::Mapped, peer, seed, &bytes).unwrap();
        assert_eq!(receipt.path.name(), args.text("by"), "{receipt}");
        assert_eq!(receipt.refused(Path::Mapped), Some(Refusal::NotMapped), "{receipt}");
    }
}

pub fn hoping(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder(), "cramped");
    let arena = SharedArena::builder().build_shared().unwrap();
    let mut refused = 0;
    for seed in 0..OFFERS {
        let request = endpoint.recv_owned(peer, seed, arena.alloc(OFFERED).unwrap());
        go(&endpoint, peer);
        let (received, buf) = request.wait();
        stamp::check(&buf.to_vec(), seed);
        let receipt = received.unwrap().receipt;
        assert_eq!(receipt.path.name(), args.text("by"), "{receipt}");
        refused += u64::from(receipt.refused(Path::Mapped) == Some(Refusal::NotMapped));
    }
    // A sender that had nothing left to claim says nothing.
    let expected = if args.text("by") == "eager" { 1..OFFERS } else { 0..OFFERS };
    assert!(expected.contains(&refused), "{refused}");
}
