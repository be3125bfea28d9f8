//! One lie at a time: a peer writes a single descriptor, or a few, that no honest peer writes, and
//! is cut off for that very reason. Random attacks find each check sooner or later; these miss
//! none.

use std::{thread, time::Instant};

use pinfold::{Arena, Endpoint, Path, PathSet, PeerId};
use pinfold_tests::{
    Args, Stage,
    host::send_raw,
    role::{self, say},
};

use super::{
    HOSTILE, PATIENCE, consumed,
    donations::{EXTENT, FIN, RTS, SMALL, WROTE, announcement, good, send_on_channel},
    liar::{
        ACTIVE, BATCH, BULK_BYTES, CALL, COUNTED, CTS, DATA, EAGER, FAILED, INLINE, INLINE_FIRST,
        INLINE_REST, INLINE_WIDE, Liar, OPEN, OPENED, RECEIVES, REPLY, REQUESTS, STREAM, UNASKED,
        USE, USED, code, piece, request,
    },
    newest, sockets,
};

/// A lie, and the reason for which its author is cut off.
struct Lie {
    name: &'static str,
    reason: &'static str,
    tell: fn(&Liar),
}

const fn lie(name: &'static str, reason: &'static str, tell: fn(&Liar)) -> Lie {
    Lie { name, reason, tell }
}

const TAMPERED: &str = "it tampered with a message that was asked for";

/// The lies that a peer may tell. A colon in a name begins the victim's part: it first `receives` a
/// message, `sends` one, `asks` something or `gives` memory; with `another` it does so with a
/// second peer.
const LIES: [Lie; 61] = [
    lie("kind", "a descriptor of no known kind", |liar| liar.write(0, 0, &[])),
    lie("inline", "an inline message that is too long", |liar| {
        liar.write(INLINE | code(57), 0, &[]);
    }),
    lie("inline wide", "an inline message that is too long", |liar| {
        liar.write(INLINE_WIDE | code(49), 0, &[HOSTILE]);
    }),
    lie("half", "it wrote half a message", |liar| {
        liar.write(INLINE_FIRST | code(8), 0, &[HOSTILE]);
    }),
    lie("rest", "it wrote the rest of no message", |liar| liar.write(INLINE_REST, 0, &[])),
    lie("verb", "a message of no known use", |liar| {
        liar.write(EAGER | code(6), 1, &[HOSTILE, 8, piece(0, 8)]);
    }),
    lie("verb of an announcement", "a message of no known use", |liar| {
        liar.write(RTS | code(6), 1, &announcement(HOSTILE, 8, 0, 0));
    }),
    lie("bulk beyond", "it named bytes outside its ring", |liar| {
        liar.write(EAGER, 1, &[HOSTILE, 64, piece(BULK_BYTES - 63, 64)]);
    }),
    lie("bulk far beyond", "it named bytes outside its ring", |liar| {
        liar.write(EAGER, 1, &[HOSTILE, 64, piece(u64::from(u32::MAX), 64)]);
    }),
    lie("bulk around", "it named bytes outside its ring", |liar| {
        liar.write(EAGER, 1, &[HOSTILE, 64, piece(u64::from(u32::MAX) - 31, 64)]);
    }),
    lie("bulk, received: receives", "it named bytes outside its ring", |liar| {
        liar.write(EAGER, 1, &[HOSTILE, 64, piece(BULK_BYTES - 63, 64)]);
    }),
    lie("credit", "it sent more than its credit", |liar| {
        liar.write_many(100_000, INLINE | code(8), &[0]);
    }),
    lie("credit for eager", "it sent more than its credit", |liar| {
        for stream in 1..100_000 {
            while newest(liar.segment).0 - consumed(liar.segment) > BATCH {
                thread::yield_now();
            }
            liar.write(EAGER, stream, &[HOSTILE, 1024, piece(0, 1024)]);
            if super::is_cut_off(liar.segment) {
                return;
            }
        }
    }),
    lie("grant: receives", "a piece that does not fit its message", |liar| {
        liar.write(EAGER, 1, &[HOSTILE, 1 << 40, piece(0, 64)]);
    }),
    lie("piece beyond its message: receives", "a piece that does not fit its message", |liar| {
        liar.write(EAGER, 1, &[HOSTILE, 64, piece(0, 65)]);
    }),
    lie("stream twice", "it began a stream twice", |liar| {
        liar.write(EAGER, 1, &[HOSTILE, 128, piece(0, 64)]);
        liar.write(EAGER, 1, &[HOSTILE, 128, piece(0, 64)]);
    }),
    lie("stream twice, once asked for: receives", "it began a stream twice", |liar| {
        liar.write(EAGER, 1, &[HOSTILE ^ 1, 128, piece(0, 64)]);
        liar.write(RTS, 1, &[HOSTILE, 1 << 20, 0, 1 | STREAM]);
    }),
    lie("piece of no stream", "a piece of no stream", |liar| {
        liar.write(DATA, 1, &[piece(0, 64)]);
    }),
    lie("more than announced", "more of a message than it announced", |liar| {
        liar.write(EAGER, 1, &[HOSTILE, 128, piece(0, 64)]);
        liar.write(DATA, 1, &[piece(0, 65)]);
    }),
    lie("longer than memory", "a message longer than memory", |liar| {
        liar.write(RTS, 1, &announcement(HOSTILE, 1 << 63, 0, 0));
    }),
    lie("announcements", "it announced more messages than it may", |liar| {
        liar.write_many(100_000, RTS, &announcement(HOSTILE, 1 << 20, 0, 0));
    }),
    lie("announced twice", "it announced a stream twice", |liar| {
        liar.write(RTS, 1, &announcement(HOSTILE, 1 << 20, 0, 0));
        liar.write(RTS, 1, &announcement(HOSTILE, 1 << 20, 0, 0));
    }),
    lie("outside its arena: receives", "a message outside its arena", |liar| {
        assert!(send_on_channel([EXTENT, 1, SMALL], &[good(SMALL, 4096)]));
        liar.write(RTS, 1, &announcement(HOSTILE, 4096, 1, SMALL - 4095));
    }),
    lie("around its arena: receives", "a message outside its arena", |liar| {
        assert!(send_on_channel([EXTENT, 1, SMALL], &[good(SMALL, 4096)]));
        liar.write(RTS, 1, &announcement(HOSTILE, 4096, 1, u64::MAX - 2047));
    }),
    lie("use", "it wrote what goes between hosts", |liar| liar.write(USE, 1, &[1, 2, 3])),
    lie("used", "it wrote what goes between hosts", |liar| liar.write(USED, 1, &[1, 2, 3])),
    lie("answer to nothing", "it answered a message that is not open", |liar| {
        liar.write(FIN, 12345, &[0, 0]);
    }),
    lie("answer of no kind: sends", "it answered in no known way", |liar| {
        liar.write(CTS, liar.announced(), &[9]);
    }),
    lie("answer twice: sends", "it answered a message twice", |liar| {
        let stream = liar.announced();
        liar.write(CTS, stream, &[1, 1 << 20, 0]);
        liar.write(CTS, stream, &[1, 1 << 20, 0]);
    }),
    lie("end unasked: sends", "it ended a message that it did not ask for", |liar| {
        let stream = liar.announced();
        liar.write(CTS, stream, &[1, 1 << 20, 0]);
        liar.write(FIN, stream, &[0, 0]);
    }),
    lie("by mapping: sends", "it read memory that it was not offered", |liar| {
        liar.write(FIN, liar.announced(), &[1 << 40, 0]);
    }),
    lie("kept: sends", "it kept memory that was not given away", |liar| {
        liar.write(FIN, liar.announced(), &[3 << 40, 0]);
    }),
    lie("claim beyond: sends", "it asked for a copy that makes no sense", |liar| {
        liar.write(CTS, liar.announced(), &[2, 4096, 0, 1 | 8 << 32, 1 | 16 << 16]);
    }),
    lie("chunk too small: sends", "it asked for a copy that makes no sense", |liar| {
        liar.write(CTS, liar.announced(), &[2, 4096, 0, 1, 1 | 11 << 16]);
    }),
    lie("chunk too large: sends", "it asked for a copy that makes no sense", |liar| {
        liar.write(CTS, liar.announced(), &[2, 4096, 0, 1, 1 | 31 << 16]);
    }),
    lie("more than there is: sends", "it asked for a copy that makes no sense", |liar| {
        liar.write(CTS, liar.announced(), &[2, (1 << 20) + 1, 0, 1, 1 | 16 << 16]);
    }),
    lie("word beyond: sends", "it asked for a message in a word that is none", |liar| {
        liar.write(CTS, liar.announced(), &[1, 1 << 20, 0, 0, 0, request(REQUESTS, 1)]);
    }),
    lie("request answered twice: sends", "it answered a message twice", |liar| {
        let stream = liar.announced();
        liar.write(CTS, stream, &[1, 1 << 20, 0, 0, 0, request(0, 1)]);
        liar.write(CTS, stream, &[1, 1 << 20, 0, 0, 0, request(1, 1)]);
    }),
    lie("claims more than there is: receives", TAMPERED, |liar| liar.claim((1 << 20) + 1)),
    lie("claims less than it sent: receives", TAMPERED, |liar| liar.claim(63)),
    lie("region not asked for", "it answered a question not asked", |liar| {
        liar.write(OPENED, 777, &[1]);
    }),
    lie("region answered in no way", "it answered in no known way", |liar| {
        liar.write(OPENED, 777, &[0]);
    }),
    lie("region asked for in no way", "it asked for a region in no known way", |liar| {
        liar.write(OPEN, 1, &[u64::MAX; 7]);
    }),
    lie("regions asked for without end", "it asks on without taking the answers", |liar| {
        liar.write_many(20_000, OPEN, &[1, 2, 3, 0]);
    }),
    lie("request not open", "it answered a request that is not open", |liar| {
        liar.write(ACTIVE | code(8), 1, &[5 | REPLY << 32, 0]);
    }),
    lie("of no use for a handler", "a message of no known use", |liar| {
        liar.write(ACTIVE | code(8), 1, &[9 << 32, 0]);
    }),
    lie("for a receive, as for a handler", "a message of no known use", |liar| {
        liar.write(ACTIVE | code(8), 1, &[0, 0]);
    }),
    lie("failure in pieces", "a message of no known use", |liar| {
        liar.write(EAGER | code(FAILED), 1, &[HOSTILE, 8, piece(0, 8)]);
    }),
    lie("failure that waits", "a message of no known use", |liar| {
        liar.write(RTS | code(FAILED), 1, &announcement(HOSTILE, 8, 0, 0));
    }),
    lie("failure for no reason: asks", "it failed for no known reason", |liar| {
        liar.write(ACTIVE, 99, &[liar.asked() | FAILED << 32]);
    }),
    lie(
        "answer to another's request: asks another",
        "it answered a request that is not open",
        |liar| {
            liar.write(ACTIVE | code(8), 1, &[REPLY << 32, 0]);
        },
    ),
    lie("reply longer than memory", "a message longer than memory", |liar| {
        liar.write(RTS | code(REPLY), 1, &announcement(HOSTILE, 1 << 63, 0, 0));
    }),
    lie("credit for a handler", "it sent more than its credit", |liar| {
        for stream in 1..100_000 {
            while newest(liar.segment).0 - consumed(liar.segment) > BATCH {
                thread::yield_now();
            }
            liar.write(EAGER | code(CALL), stream, &[HOSTILE, 1024, piece(0, 512)]);
            if super::is_cut_off(liar.segment) {
                return;
            }
        }
    }),
    lie("announcements for a handler", "it announced more messages than it may", |liar| {
        liar.write_many(liar.announced_max(), RTS, &announcement(HOSTILE, 1 << 20, 0, 0));
        liar.write(RTS | code(CALL), 100_000, &announcement(HOSTILE, 4096, 0, 0));
    }),
    lie("announced twice, for a handler", "it announced a stream twice", |liar| {
        liar.write(RTS, 1, &announcement(HOSTILE, 1 << 20, 0, 0));
        liar.write(RTS | code(CALL), 1, &announcement(HOSTILE, 4096, 0, 0));
    }),
    lie("announced twice, to be stored", "it announced a stream twice", |liar| {
        liar.write(RTS, 1, &announcement(HOSTILE, 1 << 20, 0, 0));
        liar.write(RTS, 1, &[HOSTILE, 4096, 0, 1 | UNASKED]);
    }),
    lie("end of another's message: sends another", "a message that is not its own", |liar| {
        liar.write(FIN, 0, &[0, 0]);
    }),
    lie("donated buffer not given", "it answered a donated buffer that it was not given", |liar| {
        liar.write(FIN, COUNTED | 7, &[0, 0]);
    }),
    lie("donated buffer ended twice: gives", "it ended a donation twice", |liar| {
        let _ = liar.announced();
        liar.write(FIN, COUNTED | 2, &[3 << 40, 0]);
        liar.write(FIN, COUNTED | 2, &[3 << 40, 0]);
    }),
    lie("active too long", "an inline message that is too long", |liar| {
        liar.write(ACTIVE | code(49), 1, &[0]);
    }),
    lie("senseless", "it sent something senseless over its socket", |_| {
        for socket in sockets() {
            let _ = send_raw(socket, &[7; 24], &[]);
        }
    }),
];

fn each(lies: &[Lie]) {
    for lie in lies {
        let stage = Stage::new(60);
        let mut victim = stage.role("accuser").with("lie", lie.name).spawn();
        victim.expect("ready");
        let mut author = stage.role("author").with("lie", lie.name).spawn();
        let said = victim.expect("gone");
        assert!(said.ends_with(lie.reason), "{}: {said}", lie.name);
        victim.end_well();
        author.kill();
        author.end();
    }
}

#[test]
fn each_lie_is_found_out() {
    each(&LIES);
}

/// Memory is refused where neither side maps any.
#[test]
fn memory_that_nobody_maps() {
    each(&[MEMORY]);
}

const MEMORY: Lie =
    lie("memory, unmapped", "it sent memory although neither side maps any", |_| {
        assert!(send_on_channel([EXTENT, 1, SMALL], &[good(SMALL, 4096)]));
    });

/// A report on a message comes twice, or names more than it may.
#[test]
fn reports_of_nothing_change_nothing() {
    let stage = Stage::new(60);
    let mut victim = stage.role("patient").spawn();
    victim.expect("ready");
    let mut author = stage.role("reporter").spawn();
    victim.end_well();
    author.kill();
    author.end();
}

pub fn patient(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "victim");
    shake(&endpoint, peer);
    // The victim must not sleep: the doorbell is not rung.
    let mut receive = endpoint.recv_request(peer, HOSTILE);
    let end = Instant::now() + PATIENCE;
    let message = loop {
        assert!(Instant::now() < end, "nothing came");
        if let Some(message) = receive.try_wait() {
            break message.expect("a message");
        }
    };
    assert_eq!(*message, 7u64.to_ne_bytes());
}

/// Unsolicited reports of chunks are passed over, as they may come late.
pub fn reporter(_: &Args) {
    let liar = Liar::connect();
    liar.write(WROTE, 3, &[0, 1]);
    liar.write(INLINE_WIDE | code(8), 0, &[HOSTILE, 7]);
    role::hear();
}

pub fn accuser(args: &Args) {
    let name = args.text("lie");
    let builder = Endpoint::builder().unexpected_bytes_max(1 << 20);
    let builder = match name {
        "memory, unmapped" => builder.paths(PathSet::only(&[Path::Inline, Path::Eager])),
        _ => builder,
    };
    let (endpoint, peer) = role::listen(builder, "victim");
    // Another peer, which does nothing.
    let another = name.ends_with(" another").then(|| {
        let friend = thread::spawn(|| role::connect(Endpoint::builder(), "victim"));
        let another = endpoint.accept_timeout(PATIENCE).expect("another peer");
        (another, friend.join().expect("it has connected"))
    });
    let receives = name.ends_with(": receives");
    let count = if receives { RECEIVES } else { 0 };
    let into = |_| endpoint.recv_owned(peer, HOSTILE, vec![0; 1 << 20]);
    let _into: Vec<_> = (0..count).map(into).collect();
    let _out = name.ends_with(": sends").then(|| {
        // Memory that cannot be mapped by the other side.
        endpoint.send_owned(peer, HOSTILE, vec![1; 1 << 20])
    });
    if name.ends_with(": gives") {
        let arena = Arena::new().expect("an arena");
        for _ in 0..4 {
            endpoint.give(peer, HOSTILE, arena.alloc(5000).expect("memory")).expect("to give");
        }
        // The gifts go once the peer says that it has their arena, which it does as long as its
        // endpoint does anything.
        let end = Instant::now() + PATIENCE;
        while waiting() < 4 {
            endpoint.progress().expect("progress");
            assert!(Instant::now() < end, "{name}: what is given does not go");
        }
    }
    // The endpoint's first operation.
    let _elsewhere = another.as_ref().map(|(another, _)| match name.ends_with(": asks another") {
        true => (Some(endpoint.request(*another, 5, b"question")), None),
        false => (None, Some(endpoint.send_owned(*another, HOSTILE, vec![1; 1 << 20]))),
    });
    shake(&endpoint, peer);
    // Asked only when the peer's endpoint does nothing any more: it would answer.
    let _asked = name.ends_with(": asks").then(|| endpoint.request(peer, 5, b"question"));
    let end = Instant::now() + PATIENCE;
    while endpoint.peer(peer).is_some() {
        endpoint.progress().expect("progress");
        assert!(Instant::now() < end, "{name}: it was not found out");
    }
    let error = endpoint.send(peer, 1, b"").expect_err("the peer is gone");
    assert!(error.is_peer_gone(), "{error}");
    say(format_args!("gone {error}"));
}

/// Messages that wait at the peer of this process's endpoint, by its own count.
fn waiting() -> u64 {
    let view = pinfold::status::endpoints_of(std::process::id()).expect("this process");
    let peers = view.endpoints.iter().flat_map(|endpoint| &endpoint.peers);
    peers.map(|peer| peer.waiting).sum()
}

/// The victim is ready, and its peer about to write, or has written and is gone.
fn shake(endpoint: &Endpoint, peer: PeerId) {
    role::go(endpoint, peer);
    let _ = endpoint.recv(peer, role::GO);
}

/// A connection whose endpoint does nothing any more: all bytes that go over it from now on are the
/// liar's.
pub fn author(args: &Args) {
    let name = args.text("lie");
    let lie = LIES.iter().chain([&MEMORY]).find(|lie| lie.name == name).expect("a lie");
    (lie.tell)(&Liar::connect());
    role::hear();
}
