//! Machines that take things away: `process_vm_readv` and `process_vm_writev` filtered on one side
//! or on both, as containers do; the filters of a stricter container; and endpoints that insist on
//! a path.

use std::io::IoSlice;

use pinfold::{Endpoint, Error, Path, PeerId, Receipt, Refusal};
use pinfold_tests::{
    Args, Stage,
    filter::{CMA, deny},
    host,
    role::{self, say},
    stage::Player,
    stamp,
};

pinfold_tests::roles!(asker, answerer, severe, lenient);

const EPERM: i32 = libc::EPERM;
const ENOSYS: i32 = libc::ENOSYS;

/// Lengths around every boundary, and long enough for every way of copying.
const LENGTHS: [usize; 16] = [
    0,
    8,
    56,
    57,
    1000,
    4096,
    8192,
    8193,
    65_535,
    65_536,
    65_537,
    262_144,
    262_145,
    1 << 20,
    (4 << 20) + 1,
    16 << 20,
];

/// Takes away the calls that the arguments name.
fn obey(args: &Args) {
    if args.has("denied") {
        let calls: Vec<libc::c_long> = args
            .text("denied")
            .split(' ')
            .flat_map(|name| match name {
                "cma" => &CMA[..],
                "readv" => &CMA[..1],
                "writev" => &CMA[1..],
                "container" => &CONTAINER[..],
                "barriers" => &[libc::SYS_membarrier],
                "lesser" | "hidden" => &[],
                other => panic!("{other}?"),
            })
            .copied()
            .collect();
        match args.text("denied") {
            "lesser" => host::give_up_capabilities().expect("they can be given up"),
            "hidden" => host::hide_memory().expect("it can be hidden"),
            _ => deny(&calls, args.number("errno")),
        }
    }
}

/// The calls that strict containers deny, beside `process_vm_*`.
const CONTAINER: [libc::c_long; 12] = [
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_membarrier,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_perf_event_open,
    libc::SYS_ptrace,
    libc::SYS_kcmp,
    libc::SYS_mbind,
    libc::SYS_bpf,
];

/// One side's account of a message: its path, and the bytes that the kernel copied for it.
#[derive(Debug)]
struct Account {
    path: String,
    kernel: u64,
}

impl Account {
    fn read(line: &str) -> Account {
        let (path, kernel) = line.split_once(' ').expect("two words");
        Account { path: path.to_owned(), kernel: kernel.parse().expect("a number") }
    }
}

/// Two players that send each other a message of every length, by `cma` if they can.
struct Pair {
    players: [Player; 2],
}

impl Pair {
    /// `denials` are the calls that each side does without.
    fn open(stage: &Stage, denials: [Option<&str>; 2], errno: i32) -> Pair {
        let cast = |role, denied: Option<&str>| match denied {
            Some(denied) => stage.role(role).with("denied", denied).with("errno", errno),
            None => stage.role(role),
        };
        let mut answerer = cast("answerer", denials[1]).spawn();
        answerer.expect("ready");
        let asker = cast("asker", denials[0]).spawn();
        Pair { players: [asker, answerer] }
    }

    /// The answers of both sides to the question whether they may use `cma` to the other.
    fn refusals(&mut self) -> [String; 2] {
        self.players.each_mut().map(|player| player.expect("cma"))
    }

    /// The accounts of all messages, as (sender, receiver), each sent by either side in turn.
    fn accounts(&mut self) -> Vec<(usize, Account, Account)> {
        let mut all = Vec::new();
        for len in LENGTHS {
            for sender in [0, 1] {
                let sent = Account::read(&self.players[sender].expect("sent"));
                let received = Account::read(&self.players[1 - sender].expect("received"));
                assert_eq!(sent.path, received.path, "{len} bytes: the sides differ");
                if sent.path == "cma" {
                    assert_eq!(sent.kernel + received.kernel, len as u64, "{len} bytes");
                } else {
                    assert_eq!((sent.kernel, received.kernel), (0, 0), "{len} bytes");
                }
                all.push((len, sent, received));
            }
        }
        all
    }

    fn close(mut self) {
        for player in &mut self.players {
            player.end_well();
        }
    }
}

fn refused_on_both(denial: &str, errno: i32) {
    let stage = Stage::new(60);
    let mut pair = Pair::open(&stage, [Some(denial); 2], errno);
    assert_eq!(pair.refusals(), [(); 2].map(|()| format!("denied {errno}")));
    for (len, sent, _) in pair.accounts() {
        assert_eq!(sent.path, if len <= 56 { "inline" } else { "eager" }, "{len} bytes");
    }
    pair.close();
}

#[test]
fn cma_filtered_on_both_sides() {
    refused_on_both("cma", EPERM);
}

#[test]
fn cma_unknown_to_both_sides() {
    refused_on_both("cma", ENOSYS);
}

#[test]
fn a_strict_container() {
    refused_on_both("container", EPERM);
}

/// The side that may copies for both; the one with number `idle` copies nothing.
fn done_by_the_other(idle: usize) {
    let stage = Stage::new(60);
    let mut denials = ["hidden"; 2];
    denials[idle] = "lesser";
    let mut pair = Pair::open(&stage, denials.map(Some), 0);
    let refusals = pair.refusals();
    if refusals.iter().all(|refusal| refusal != "allowed") {
        pinfold_tests::skip(&format!("the cma path where one side may not: {refusals:?}"));
        return;
    }
    assert_eq!(refusals, ["allowed"; 2], "one side that may is enough");
    let mut by_cma = 0;
    for (i, (len, sent, received)) in pair.accounts().into_iter().enumerate() {
        let idler = if i % 2 == idle { &sent } else { &received };
        assert_eq!(idler.kernel, 0, "{len} bytes: {sent:?} {received:?}");
        by_cma += usize::from(sent.path == "cma");
    }
    assert_eq!(by_cma, 2 * LENGTHS.iter().filter(|len| **len > 56).count());
    pair.close();
}

#[test]
fn cma_denied_where_the_caller_is() {
    done_by_the_other(0);
}

#[test]
fn cma_denied_where_the_listener_is() {
    done_by_the_other(1);
}

/// A process with filters that its peer does not have may be unable to stop the peer's copies, so
/// it is left alone: the peer copies nothing that the filtered side cannot copy.
fn nobody_copies_for_the_filtered(denials: [Option<&str>; 2]) {
    let stage = Stage::new(60);
    let mut pair = Pair::open(&stage, denials, EPERM);
    let refusals = pair.refusals();
    assert!(refusals.iter().all(|refusal| refusal != "allowed"), "{refusals:?}");
    for (len, sent, received) in pair.accounts() {
        assert_eq!((sent.kernel, received.kernel), (0, 0), "{len} bytes");
    }
    pair.close();
}

#[test]
fn a_caller_that_is_filtered_is_left_alone() {
    nobody_copies_for_the_filtered([Some("cma"), None]);
}

#[test]
fn a_listener_that_is_filtered_is_left_alone() {
    nobody_copies_for_the_filtered([None, Some("cma")]);
}

/// Filters that the peer has, too, may be a container's: the filtered process has to show that it
/// may more.
#[test]
fn whoever_is_filtered_alike_and_shows_nothing_is_left_alone() {
    nobody_copies_for_the_filtered([Some("cma"), Some("barriers")]);
    nobody_copies_for_the_filtered([Some("barriers"), Some("cma")]);
}

/// The side with such a filter copies for both, if it may.
#[test]
fn who_is_filtered_otherwise_copies() {
    for (denials, idle) in [([Some("barriers"), None], 1), ([None, Some("barriers")], 0)] {
        let stage = Stage::new(60);
        let mut pair = Pair::open(&stage, denials, ENOSYS);
        let refusals = pair.refusals();
        if refusals.iter().all(|refusal| refusal != "allowed") {
            pinfold_tests::skip(&format!("the cma path: {refusals:?}"));
            return;
        }
        assert_eq!(refusals, ["allowed"; 2], "one side that may is enough");
        for (i, (len, sent, received)) in pair.accounts().into_iter().enumerate() {
            let idler = if i % 2 == idle { &sent } else { &received };
            assert_eq!(idler.kernel, 0, "{len} bytes: {sent:?} {received:?}");
        }
        pair.close();
    }
}

/// One of the two calls is enough.
fn one_call_is_enough(denial: &str, copies: impl Fn(&Account, &Account) -> u64) {
    let stage = Stage::new(60);
    let mut pair = Pair::open(&stage, [Some(denial); 2], ENOSYS);
    let refusals = pair.refusals();
    if refusals.iter().any(|refusal| refusal == &format!("denied {EPERM}")) {
        pinfold_tests::skip(&format!("the cma path without {denial}: {refusals:?}"));
        return;
    }
    assert_eq!(refusals, ["allowed"; 2]);
    for (len, sent, received) in pair.accounts() {
        if sent.path == "cma" {
            assert_eq!(copies(&sent, &received), len as u64, "{sent:?} {received:?}");
        }
    }
    pair.close();
}

#[test]
fn only_writing_is_allowed() {
    one_call_is_enough("readv", |sent, _| sent.kernel);
}

#[test]
fn only_reading_is_allowed() {
    one_call_is_enough("writev", |_, received| received.kernel);
}

// The two sides.

fn asker(args: &Args) {
    obey(args);
    let (endpoint, peer) = role::connect(Endpoint::builder(), "denied");
    exchange(&endpoint, peer, true, args);
}

fn answerer(args: &Args) {
    obey(args);
    let (endpoint, peer) = role::listen(Endpoint::builder(), "denied");
    exchange(&endpoint, peer, false, args);
}

fn exchange(endpoint: &Endpoint, peer: PeerId, begins: bool, args: &Args) {
    let info = endpoint.peer(peer).expect("connected");
    assert_eq!(info.paths.contains(Path::Cma), info.cma_refused.is_none());
    match info.cma_refused {
        None => say("cma allowed"),
        Some(Refusal::Denied(errno)) => say(format_args!("cma denied {errno}")),
        Some(other) => say(format_args!("cma {other}")),
    }
    for (i, len) in LENGTHS.into_iter().enumerate() {
        for turn in [true, false] {
            let (tag, stamp) = (i as u64, (2 * i + usize::from(turn)) as u64);
            if turn == begins {
                let bytes = stamp::bytes(len, stamp);
                let receipt = send(endpoint, peer, tag, &bytes, info.cma_refused);
                assert_eq!(receipt.bytes, len as u64);
                say(format_args!("sent {} {}", receipt.path, receipt.copied_kernel));
            } else {
                let receipt = receive(endpoint, peer, tag, len, stamp);
                if let Some(why) = info.cma_refused
                    && receipt.path == Path::Eager
                {
                    assert_eq!(
                        receipt.refused(Path::Cma).map(as_told),
                        Some(as_told(why)),
                        "{receipt}"
                    );
                }
                say(format_args!("received {} {}", receipt.path, receipt.copied_kernel));
            }
        }
    }
    let counters = endpoint.counters();
    let by_cma = counters.sent[Path::Cma as usize].messages;
    assert_eq!(by_cma > 0, info.cma_refused.is_none(), "{counters:?}");
    assert!(args.has("denied") || info.cma_refused.is_none() || counters.copied_kernel == 0);
}

/// The refusal as the other side tells it.
fn as_told(why: Refusal) -> Refusal {
    if why == Refusal::Confined { Refusal::Denied(EPERM) } else { why }
}

/// Sends by `cma` if that is allowed and the message is not short; else as the library likes.
fn send(
    endpoint: &Endpoint,
    peer: PeerId,
    tag: u64,
    bytes: &[u8],
    refused: Option<Refusal>,
) -> Receipt {
    let Some(why) = refused else {
        return match bytes.len() {
            0..=56 => endpoint.send(peer, tag, bytes),
            _ => endpoint.send_by(Path::Cma, peer, tag, bytes),
        }
        .unwrap();
    };
    let insisted = endpoint.send_by(Path::Cma, peer, tag, bytes);
    match &insisted {
        Err(Error::PathRefused { path: Path::Cma, why: said }) => assert_eq!(*said, why),
        other => panic!("{other:?}"),
    }
    let error = insisted.unwrap_err().to_string();
    let says = format!("path cma was required but cannot be taken: {why}");
    assert!(error.starts_with(&says), "{error}");
    // In calls short of blocking, as well.
    let receipt = if tag.is_multiple_of(2) {
        endpoint.send(peer, tag, bytes)
    } else {
        endpoint.send_owned(peer, tag, bytes.to_vec()).wait().0
    };
    let receipt = receipt.unwrap();
    // The receipt of a message by the fastest path need say nothing else.
    if bytes.len() > 56 {
        assert_eq!(receipt.refused(Path::Cma).map(as_told), Some(as_told(why)), "{receipt}");
        assert!(receipt.to_string().contains("; not cma: "), "{receipt}");
    }
    receipt
}

fn receive(endpoint: &Endpoint, peer: PeerId, tag: u64, len: usize, stamp: u64) -> Receipt {
    if tag.is_multiple_of(3) {
        let mut bytes = vec![0; len];
        let received = endpoint.recv_into(peer, tag, &mut bytes).unwrap();
        assert_eq!(received.len, len as u64);
        stamp::check(&bytes, stamp);
        return received.receipt;
    }
    let message = endpoint.recv(peer, tag).unwrap();
    assert_eq!(message.len(), len);
    stamp::check(&message, stamp);
    message.receipt()
}

// Strict.

#[test]
fn strict_endpoints_refuse_what_is_slower_than_need_be() {
    let stage = Stage::new(60);
    // By the default costs cma is the faster way for long messages; by costs measured on this
    // machine it may not be.
    let cast = |role| {
        let role = stage.role(role).with("denied", "cma").with("errno", EPERM);
        role.unmeasured()
    };
    let mut lenient = cast("lenient").spawn();
    lenient.expect("ready");
    let mut severe = cast("severe").spawn();
    severe.end_well();
    lenient.end_well();
}

/// Sends of this length fail.
const REFUSED: usize = 16 << 20;

fn severe(args: &Args) {
    obey(args);
    let (endpoint, peer) = role::connect(Endpoint::builder().strict(true), "strict");
    let long = stamp::bytes(REFUSED, 1);
    // A message whose best path is not denied goes as ever.
    for len in [0, 8, 56, 57, 1000] {
        let receipt = endpoint.send(peer, len as u64, &long[..len]).unwrap();
        assert_eq!(receipt.path, if len <= 56 { Path::Inline } else { Path::Eager });
    }
    let refused = |what: &str, error: Error| {
        let text = error.to_string();
        match error {
            Error::PathRefused { path: Path::Cma, why: Refusal::Denied(EPERM) } => {}
            other => panic!("{what}: {other:?}"),
        }
        let says = "path cma was required but cannot be taken: denied by the kernel";
        assert!(text.starts_with(says), "{text}");
    };
    refused("send", endpoint.send(peer, 1, &long).unwrap_err());
    refused("send_vectored", {
        let parts = [IoSlice::new(&long[..9]), IoSlice::new(&long[9..])];
        endpoint.send_vectored(peer, 1, &parts).unwrap_err()
    });
    let (result, long) = endpoint.send_owned(peer, 1, long).wait();
    refused("send_owned", result.unwrap_err());
    refused(
        "scope",
        endpoint.scope(|s| s.send(peer, 1, &long).and_then(|send| send.wait())).unwrap_err(),
    );
    // A sender that names the slow path wants it.
    assert_eq!(endpoint.send_by(Path::Eager, peer, 2, &long).unwrap().path, Path::Eager);
    // None of the refused messages has gone out.
    let back = endpoint.recv(peer, 3).unwrap();
    assert_eq!(back.receipt().path, Path::Eager);
    stamp::check(&back, 1);
}

fn lenient(args: &Args) {
    obey(args);
    let (endpoint, peer) = role::listen(Endpoint::builder(), "strict");
    for len in [0, 8, 56, 57, 1000] {
        stamp::check(&endpoint.recv(peer, len as u64).unwrap(), 1);
    }
    let long = endpoint.recv(peer, 2).unwrap();
    assert_eq!(endpoint.try_probe(peer, 1).unwrap(), None);
    endpoint.send(peer, 3, &long).unwrap();
}
