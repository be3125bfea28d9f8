//! Two processes: every path, every size around a boundary, every alignment, and every way to wait.

use std::{io::IoSliceMut, pin::pin};

use async_executor::LocalExecutor;
use futures_lite::future;
use pinfold::{Arena, Endpoint, Path, PathSet, PeerId, Receipt, Refusal, Result, TagMatch};
use pinfold_tests::{
    Aligned, Args, Stage, block_on, role,
    stamp::{self, Random, mix},
};

pinfold_tests::roles!(source, sink);

/// The way that messages have to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// As the library likes.
    Auto,
    /// The pair has no path but inline and eager.
    Copy,
    /// Each by `cma`.
    Cma,
    /// Each by `eager`.
    Eager,
    /// As the library likes, out of an arena.
    Arena,
    /// Each by `mapped`, out of an arena; long ones by both sides.
    Mapped,
    /// Out of an arena that the peer has no address space for.
    Unmapped,
}

impl Way {
    /// Returns whether the messages lie in an arena.
    fn is_shared(self) -> bool {
        matches!(self, Way::Arena | Way::Mapped | Way::Unmapped)
    }
}

/// The way that ends of operations are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Blocking,
    Polling,
    TinyExecutor,
    Executor,
}

const WAYS: [(&str, Way); 7] = [
    ("auto", Way::Auto),
    ("copy", Way::Copy),
    ("cma", Way::Cma),
    ("eager", Way::Eager),
    ("arena", Way::Arena),
    ("mapped", Way::Mapped),
    ("unmapped", Way::Unmapped),
];
const MODES: [(&str, Mode); 4] = [
    ("blocking", Mode::Blocking),
    ("polling", Mode::Polling),
    ("tiny-executor", Mode::TinyExecutor),
    ("executor", Mode::Executor),
];

fn named<T: Copy>(choices: &[(&str, T)], name: &str) -> T {
    choices.iter().find(|choice| choice.0 == name).expect("one of them").1
}

fn play(way: &str, mode: &str) {
    let stage = Stage::new(120);
    stage.play(["sink", "source"].map(|role| stage.role(role).with("way", way).with("mode", mode)));
}

macro_rules! plays {
    ($($name:ident: $way:literal $mode:literal;)*) => {
        $(#[test]
        fn $name() {
            play($way, $mode);
        })*
    };
}

plays! {
    auto_blocking: "auto" "blocking";
    auto_polling: "auto" "polling";
    auto_tiny_executor: "auto" "tiny-executor";
    auto_executor: "auto" "executor";
    copy_blocking: "copy" "blocking";
    copy_polling: "copy" "polling";
    copy_tiny_executor: "copy" "tiny-executor";
    copy_executor: "copy" "executor";
    cma_blocking: "cma" "blocking";
    cma_polling: "cma" "polling";
    cma_tiny_executor: "cma" "tiny-executor";
    cma_executor: "cma" "executor";
    eager_blocking: "eager" "blocking";
    eager_polling: "eager" "polling";
    eager_tiny_executor: "eager" "tiny-executor";
    eager_executor: "eager" "executor";
    arena_blocking: "arena" "blocking";
    arena_polling: "arena" "polling";
    arena_executor: "arena" "executor";
    mapped_blocking: "mapped" "blocking";
    unmapped_blocking: "unmapped" "blocking";
    unmapped_polling: "unmapped" "polling";
}

/// One message of the sweep.
#[derive(Clone, Copy, Debug)]
struct Case {
    number: u64,
    len: usize,
    from: usize,
    to: usize,
}

impl Case {
    /// Its tag: all 64 bits vary, and now and then only the lower ones.
    fn tag(self) -> u64 {
        if self.number.is_multiple_of(3) { self.number } else { mix(self.number) | 1 << 63 }
    }

    /// Returns whether the sink has it posted before the source sends it.
    fn is_awaited(self) -> bool {
        self.number % 2 == 1
    }
}

/// Every size around a boundary, by every alignment of source and destination where that is cheap.
fn sweep() -> impl Iterator<Item = Case> {
    const MIB: usize = 1 << 20;
    let around = |len: usize| [len - 1, len, len + 1];
    let mut sizes = vec![0, 1, 7, 8, 9, 16 * MIB + 3];
    for len in
        [48, 56, 64, 1024, 2048, 4096, 8192, 32 << 10, 65536, 128 << 10, 256 << 10, MIB / 2, MIB]
    {
        sizes.extend(around(len));
    }
    let offsets = [0, 1, 7, 63];
    let mut cases = Vec::new();
    for len in sizes {
        for from in offsets {
            for to in offsets {
                if len <= 8193 || from == to || len < MIB && from + to == 64 {
                    cases.push((len, from, to));
                }
            }
        }
    }
    // The same message twice in a row tests nothing: sizes come mixed.
    let mut random = Random::new(cases.len() as u64);
    for i in (1..cases.len()).rev() {
        cases.swap(i, random.below(i as u64 + 1) as usize);
    }
    let cases = cases.into_iter().enumerate();
    cases.map(|(i, (len, from, to))| Case { number: i as u64 + 1, len, from, to })
}

/// The paths of one side's endpoint; each restriction is made on one side only.
fn paths(way: Way, mode: Mode, is_source: bool) -> PathSet {
    match (way, mode, is_source) {
        (Way::Copy, _, true) => PathSet::only(&[Path::Inline, Path::Eager]),
        // Only blocking sends can name their path.
        (Way::Cma, Mode::Polling | Mode::TinyExecutor | Mode::Executor, true) => {
            PathSet::only(&[Path::Cma])
        }
        (Way::Eager, Mode::Polling | Mode::TinyExecutor | Mode::Executor, false) => {
            PathSet::only(&[Path::Eager])
        }
        _ => PathSet::all(),
    }
}

/// Returns `true`, and says so, if the machine has no `cma` and the play is about that.
fn is_denied(endpoint: &Endpoint, peer: PeerId, way: Way) -> bool {
    let why = endpoint.peer(peer).expect("connected").cma_refused;
    match why {
        Some(why) if way == Way::Cma => {
            assert!(why.is_denial(), "{why}");
            role::skip(format_args!("the cma path: {why}"));
            true
        }
        _ => false,
    }
}

const GO: u64 = 1 << 62;
const ACK: u64 = 1 << 62 | 1;

fn source(args: &Args) {
    let (way, mode) = (named(&WAYS, args.text("way")), named(&MODES, args.text("mode")));
    let builder = Endpoint::builder().label("source").paths(paths(way, mode, true));
    let (endpoint, peer) = role::connect(builder, "sweep");
    if is_denied(&endpoint, peer, way) {
        return;
    }
    let arena = Arena::new().unwrap();
    let mut read = 0;
    for case in sweep() {
        let mut memory = match way.is_shared() {
            true => Aligned::in_arena(&arena, case.len, case.from),
            false => Aligned::new(case.len, case.from),
        };
        stamp::fill(memory.get_mut(), case.number);
        if case.is_awaited() {
            endpoint.recv(peer, GO).unwrap();
        }
        let receipt = send(&endpoint, peer, case.tag(), &mut memory, way, mode);
        let receipt = receipt.unwrap_or_else(|error| panic!("{case:?}: {error}"));
        memory.check_guards();
        stamp::check(memory.get(), case.number);
        let ack = endpoint.recv(peer, ACK).unwrap();
        let word = |i: usize| u64::from_le_bytes(ack[8 * i..][..8].try_into().unwrap());
        check_source(case, way, &receipt);
        assert_eq!(word(0), receipt.path as u64, "{case:?}: {receipt}; the sides differ");
        if receipt.path == Path::Cma {
            // And those that had gone through the ring, if it was to go there.
            let both = receipt.copied_kernel + word(1) + receipt.copied_user;
            assert_eq!(both, case.len as u64, "{case:?}: {receipt}; copied by both");
        }
        if receipt.path == Path::Mapped {
            // The bytes that the receiver copied out of its mapping, and those that this side
            // helped with.
            let both = receipt.copied_kernel + word(2);
            assert_eq!(both, case.len as u64, "{case:?}: {receipt}; copied by both");
            read += 1;
        }
    }
    match way {
        Way::Mapped => assert_eq!(read, sweep().count()),
        // Every long message, once the arena is known.
        Way::Arena => {
            let long = sweep().filter(|case| case.len >= 256 << 10).count();
            assert!(read >= long / 2, "{read} of {long}");
        }
        _ => assert_eq!(read, 0),
    }
    let counters = endpoint.counters();
    assert_eq!(
        counters.sent.iter().map(|count| count.messages).sum::<u64>(),
        sweep().count() as u64
    );
    let bytes: usize = sweep().map(|case| case.len).sum();
    assert_eq!(counters.sent.iter().map(|count| count.bytes).sum::<u64>(), bytes as u64);
}

fn send(
    endpoint: &Endpoint,
    peer: PeerId,
    tag: u64,
    memory: &mut Aligned,
    way: Way,
    mode: Mode,
) -> Result<Receipt> {
    if mode == Mode::Blocking {
        return match way {
            Way::Auto | Way::Copy | Way::Arena | Way::Unmapped => {
                endpoint.send(peer, tag, memory.get())
            }
            Way::Mapped => endpoint.send_by(Path::Mapped, peer, tag, memory.get()),
            Way::Cma => endpoint.send_by(Path::Cma, peer, tag, memory.get()),
            Way::Eager => endpoint.send_by(Path::Eager, peer, tag, memory.get()),
        };
    }
    let owned = std::mem::replace(memory, Aligned::new(0, 0)).into_bytes();
    let mut request = endpoint.send_owned(peer, tag, owned);
    let (result, bytes) = match mode {
        Mode::Blocking => unreachable!(),
        Mode::Polling => loop {
            if let Some(done) = request.try_wait() {
                break done;
            }
        },
        Mode::TinyExecutor => block_on(request),
        Mode::Executor => {
            let executor = LocalExecutor::new();
            future::block_on(executor.run(executor.spawn(request)))
        }
    };
    *memory = Aligned::from_bytes(bytes);
    result
}

fn check_source(case: Case, way: Way, receipt: &Receipt) {
    let len = case.len as u64;
    let what = format!("{case:?} {way:?}: {receipt}");
    check_receipt(case, way, receipt, &what);
    let (user, kernel) = (receipt.copied_user, receipt.copied_kernel);
    match receipt.path {
        Path::Inline | Path::Eager => assert_eq!((user, kernel), (len, 0), "{what}"),
        // The first part of it went through the ring.
        Path::Cma if receipt.refused(Path::Eager) == Some(Refusal::Stalled) => {
            assert!(user < len && kernel == 0, "{what}");
        }
        Path::Cma | Path::Mapped => assert!(user == 0 && kernel <= len, "{what}"),
        Path::Handoff => panic!("{what}"),
    }
    // The place of a short message makes no difference.
    if way == Way::Auto && len >= 64 << 10 {
        assert_eq!(receipt.refused(Path::Mapped), Some(Refusal::NotShareable), "{what}");
    }
    if way == Way::Copy && len > 56 {
        assert_eq!(receipt.refused(Path::Cma), Some(Refusal::SwitchedOff), "{what}");
    }
}

/// Checks the figures that are the same on both sides.
fn check_receipt(case: Case, way: Way, receipt: &Receipt, what: &str) {
    assert_eq!(receipt.bytes, case.len as u64, "{what}");
    assert_eq!(receipt.refused(receipt.path), None, "{what}");
    let fits = case.len <= 56;
    match (way, receipt.path) {
        (Way::Cma, path) => assert_eq!(path, Path::Cma, "{what}"),
        (Way::Eager, path) => assert_eq!(path, Path::Eager, "{what}"),
        (Way::Mapped, path) => assert_eq!(path, Path::Mapped, "{what}"),
        (_, Path::Inline) => assert!(fits, "{what}"),
        (_, Path::Eager)
        | (Way::Auto | Way::Arena | Way::Unmapped, Path::Cma)
        | (Way::Arena, Path::Mapped) => {
            assert!(!fits, "{what}");
            assert_eq!(receipt.refused(Path::Inline), Some(Refusal::TooLong), "{what}");
        }
        (_, Path::Cma | Path::Mapped | Path::Handoff) => panic!("{what}"),
    }
}

fn sink(args: &Args) {
    let (way, mode) = (named(&WAYS, args.text("way")), named(&MODES, args.text("mode")));
    let mut builder = Endpoint::builder().label("sink").paths(paths(way, mode, false));
    if way == Way::Unmapped {
        builder = builder.mapped_bytes_max(1 << 20);
    }
    let (endpoint, peer) = role::listen(builder, "sweep");
    if is_denied(&endpoint, peer, way) {
        return;
    }
    for case in sweep() {
        if !case.is_awaited() {
            let envelope = endpoint.probe(peer, case.tag()).unwrap();
            let expected = (peer, case.tag(), case.len as u64);
            assert_eq!((envelope.peer, envelope.tag, envelope.len), expected);
        }
        let receipt = receive(&endpoint, peer, case, mode);
        let what = format!("{case:?} {way:?}: {receipt}");
        check_receipt(case, way, &receipt, &what);
        let len = case.len as u64;
        match receipt.path {
            // The rest of a message that was to go through the ring.
            Path::Cma if receipt.refused(Path::Eager) == Some(Refusal::Stalled) => {
                assert_eq!(receipt.copied_user + receipt.copied_kernel, len, "{what}");
            }
            Path::Cma => assert_eq!(receipt.copied_user, 0, "{what}"),
            Path::Mapped => {
                assert!(receipt.copied_user <= len && receipt.copied_kernel == 0, "{what}");
                // Short ones are copied by this side alone, and nothing copies the rest here.
                assert!(receipt.copied_user == len || len >= 2 << 20, "{what}");
            }
            // A message that was not asked for is copied a second time, except a long one that is
            // still coming in.
            _ => {
                assert!((len..=2 * len).contains(&receipt.copied_user), "{what}");
                assert_eq!(receipt.copied_kernel, 0, "{what}");
                if case.is_awaited() {
                    assert_eq!(receipt.copied_user, len, "{what}");
                }
            }
        }
        if way == Way::Copy && len > 56 {
            assert_eq!(receipt.refused(Path::Cma), Some(Refusal::SwitchedOffByPeer), "{what}");
        }
        let mut ack = [0; 24];
        ack[16..].copy_from_slice(&receipt.copied_user.to_le_bytes());
        ack[..8].copy_from_slice(&(receipt.path as u64).to_le_bytes());
        ack[8..16].copy_from_slice(&receipt.copied_kernel.to_le_bytes());
        endpoint.send(peer, ACK, &ack).unwrap();
    }
    let counters = endpoint.counters();
    let messages: u64 = counters.received.iter().map(|count| count.messages).sum();
    assert_eq!(messages, sweep().count() as u64);
}

/// Receives the message of a case in one of the ways that the mode has, and checks it.
fn receive(endpoint: &Endpoint, peer: PeerId, case: Case, mode: Mode) -> Receipt {
    let tag = case.tag();
    let go = || {
        if case.is_awaited() {
            endpoint.send(peer, GO, &[]).unwrap();
        }
    };
    let into_own = (case.number / 2).is_multiple_of(2);
    let mut memory = Aligned::new(case.len, case.to);
    if mode == Mode::Blocking {
        go();
        return match case.number / 2 % 4 {
            0 => received(case, endpoint.recv_into(peer, tag, memory.get_mut()), memory),
            1 => message(case, endpoint.recv(peer, tag)),
            2 => {
                let (some, rest) = memory.get_mut().split_at_mut(case.len / 3);
                let mut parts = [IoSliceMut::new(some), IoSliceMut::new(rest)];
                let result = endpoint.recv_vectored(peer, tag, &mut parts);
                received(case, result, memory)
            }
            _ => message(case, endpoint.recv_timeout(peer, TagMatch::exact(tag), role::PATIENCE)),
        };
    }
    if into_own {
        let mut request = endpoint.recv_owned(peer, tag, memory.into_bytes());
        go();
        let (result, bytes) = match mode {
            Mode::Blocking => unreachable!(),
            Mode::Polling => loop {
                if let Some(done) = request.try_wait() {
                    break done;
                }
            },
            Mode::TinyExecutor => block_on(request),
            Mode::Executor => run(request),
        };
        return received(case, result, Aligned::from_bytes(bytes));
    }
    let mut request = endpoint.recv_request(peer, tag);
    go();
    let result = match mode {
        Mode::Blocking => unreachable!(),
        Mode::Polling => loop {
            if let Some(done) = request.try_wait() {
                break done;
            }
        },
        Mode::TinyExecutor => block_on(request),
        Mode::Executor => run(request),
    };
    message(case, result)
}

/// Runs a future beside another that is never idle.
fn run<F: Future>(future: F) -> F::Output {
    let executor = LocalExecutor::new();
    let busy = executor.spawn(async {
        loop {
            future::yield_now().await;
        }
    });
    let output = future::block_on(executor.run(pin!(future)));
    drop(busy);
    output
}

fn received(case: Case, result: Result<pinfold::Received>, memory: Aligned) -> Receipt {
    let received = result.unwrap_or_else(|error| panic!("{case:?}: {error}"));
    assert_eq!((received.len, received.tag), (case.len as u64, case.tag()));
    memory.check_guards();
    stamp::check(memory.get(), case.number);
    received.receipt
}

fn message(case: Case, result: Result<pinfold::Message>) -> Receipt {
    let message = result.unwrap_or_else(|error| panic!("{case:?}: {error}"));
    assert_eq!((message.len(), message.tag()), (case.len, case.tag()));
    stamp::check(&message, case.number);
    message.receipt()
}
