#![allow(unsafe_code)]
//! Bridges: order, back-pressure, ends, frames in pieces, nonsense.

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use pinfold_sys::process::Segment as Part;
use proptest::prelude::*;

mod breaks;
mod nonsense;
mod words;

use super::*;
use crate::{
    transport::{
        Direct, Transmitted,
        shm::{
            budget::Budget,
            lane::{LaneRx, LaneTx},
        },
    },
    wire::{
        descriptor::{Body, Eager, Header, Kind, Piece},
        rendezvous::{Place, Rts},
        tcp::frame::{Brings, HEAD_BYTES, Head, Signal},
    },
};

mod leaving;

/// One side: its bridge, and the endpoint's ends of the lanes.
struct Side {
    bridge: Bridge,
    tx: LaneTx,
    rx: LaneRx,
    budget: Budget,
}

fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let two = listener.accept().unwrap().0;
    (one, two)
}

impl Side {
    fn new(stream: TcpStream, budget: usize) -> Side {
        stream.set_nodelay(true).unwrap();
        // So that little is taken at a time.
        rustix::net::sockopt::set_socket_send_buffer_size(&stream, 4096).unwrap();
        Side::over(stream.into(), budget, true)
    }

    fn over(socket: OwnedFd, budget: usize, resumes: bool) -> Side {
        Side::of(socket.into(), budget, resumes)
    }

    fn of(connection: Connection, budget: usize, resumes: bool) -> Side {
        let tally = Arc::default();
        let (bridge, segment) = Bridge::new(connection, Vec::new(), resumes, &tally).unwrap();
        let fence = LightFence::Compiler;
        Side {
            bridge: *bridge,
            tx: LaneTx::new(&segment, WAY, &tally).without_waiting(),
            rx: LaneRx::new(&segment, WAY.reverse(), fence, &tally),
            budget: Budget::new(budget),
        }
    }

    fn turn(&mut self) -> bool {
        self.bridge.turn(true, &mut self.budget).unwrap()
    }

    /// Turns until the connection has ended: how.
    fn until_it_ends(&mut self) -> Ended {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < end);
            if let Err(ended) = self.bridge.turn(false, &mut self.budget) {
                return ended;
            }
        }
    }
}

fn pair(budget: usize) -> (Side, Side) {
    let (one, two) = streams();
    (Side::new(one, budget), Side::new(two, budget))
}

/// The same over an encrypted connection.
fn encrypted_pair(budget: usize) -> (Side, Side) {
    let (one, two) = streams();
    rustix::net::sockopt::set_socket_send_buffer_size(&one, 4096).unwrap();
    let [one, two] = crate::transport::tcp::tls::tests::encrypted([one, two])
        .map(|connection| Side::of(connection, budget, true));
    (one, two)
}

/// A message of a test: descriptors, some with bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sent {
    Inline(u32, Vec<u64>),
    /// A message of one tag and one byte in all places, in pieces of a length.
    Bytes {
        tag: u64,
        byte: u8,
        len: u32,
        piece: u32,
    },
}

impl Sent {
    fn any() -> impl Strategy<Value = Sent> {
        let inline = (any::<u32>(), prop::collection::vec(any::<u64>(), 0..=7))
            .prop_map(|(tag, words)| Sent::Inline(tag, words));
        let bytes = (any::<u64>(), any::<u8>(), 1..200_000u32, 1..100_000u32)
            .prop_map(|(tag, byte, len, piece)| Sent::Bytes { tag, byte, len, piece });
        prop_oneof![3 => inline, 1 => bytes]
    }
}

/// Puts messages into a lane bit by bit.
#[derive(Default)]
struct Feeder {
    queue: VecDeque<Sent>,
    /// Bytes of the first that are in the lane.
    at: u32,
}

impl Feeder {
    /// Puts in as much as there is room for.
    fn feed(&mut self, side: &mut Side) {
        while side.tx.has_room(&mut side.budget).unwrap() {
            match self.queue.front() {
                None => return,
                Some(Sent::Inline(tag, words)) => {
                    let header = Header::new(Kind::Inline, 8 * words.len() as u8, *tag);
                    side.tx.push(header, words);
                    self.queue.pop_front();
                }
                Some(&Sent::Bytes { tag, byte, len, piece }) => {
                    let want = piece.min(len - self.at);
                    let Some(mut piece) = side.tx.lend(want, 1, &mut side.budget).unwrap() else {
                        return;
                    };
                    let bytes = vec![byte; piece.len as usize];
                    // SAFETY: it has so many bytes.
                    piece.sample = unsafe { side.tx.fill(piece, bytes.as_ptr()) }.unwrap();
                    if self.at == 0 {
                        let body = Eager { tag, len: u64::from(len), piece }.body();
                        side.tx.push(Header::new(Kind::Eager, 0, 5), &body);
                    } else {
                        side.tx.push(Header::new(Kind::Data, 0, 5), &piece.body());
                    }
                    self.at += piece.len;
                    if self.at == len {
                        self.at = 0;
                        self.queue.pop_front();
                    }
                }
            }
        }
    }
}

/// Takes messages out of a lane and puts their pieces together.
#[derive(Default)]
struct Taker {
    came: Vec<Sent>,
    /// The message that is coming, and how many bytes of it have.
    coming: Option<(Sent, u32)>,
}

impl Taker {
    fn take(&mut self, side: &mut Side, most: u32) {
        for _ in 0..most {
            let Some(header) = side.rx.head() else { break };
            let body = side.rx.body();
            match header.kind().unwrap() {
                Kind::Inline => {
                    let words = header.inline_len(56).unwrap() / 8;
                    self.came.push(Sent::Inline(header.aux(), body[..words].to_vec()));
                    assert!(self.coming.is_none());
                }
                Kind::Eager => {
                    assert!(self.coming.is_none());
                    assert_eq!(header.aux(), 5);
                    let Eager { tag, len, piece } = Eager::read(&body);
                    let message = Sent::Bytes { tag, byte: 0, len: len as u32, piece: 0 };
                    self.coming = Some((message, 0));
                    self.piece(side, piece);
                }
                Kind::Data => self.piece(side, Piece::read(&body)),
                other => panic!("{other:?}"),
            }
            side.rx.advance(header).unwrap();
            side.tx.passed(header, side.rx.consumed());
        }
        if side.rx.head().is_none() {
            side.tx.nothing_on_the_way();
        }
        let _ = side.rx.publish();
    }

    fn piece(&mut self, side: &mut Side, piece: Piece) {
        let mut bytes = vec![0; piece.len as usize];
        // SAFETY: it has room for so many bytes.
        unsafe { side.rx.drain(piece, bytes.as_mut_ptr()) }.unwrap();
        let Some((Sent::Bytes { byte, len, .. }, came)) = &mut self.coming else {
            panic!("a piece of nothing");
        };
        if *came == 0 {
            *byte = bytes[0];
        }
        assert!(bytes.iter().all(|there| there == byte), "a mixture");
        *came += piece.len;
        assert!(came <= len);
        if came == len {
            self.came.push(self.coming.take().unwrap().0);
        }
    }
}

fn without_pieces(all: &[Sent]) -> Vec<Sent> {
    let plain = |sent: &Sent| match *sent {
        Sent::Bytes { tag, byte, len, .. } => Sent::Bytes { tag, byte, len, piece: 0 },
        ref other => other.clone(),
    };
    all.iter().map(plain).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// All messages come, once and in order, both ways, for any room and if either side is slow.
    #[test]
    fn all_comes_in_order(
        there in prop::collection::vec(Sent::any(), 0..120),
        back in prop::collection::vec(Sent::any(), 0..120),
        ample: bool,
        encrypted: bool,
        steps in prop::collection::vec((0..4u8, 1..30u32), 8..40),
    ) {
        let budget = if ample { 4 << 20 } else { 0 };
        let (mut one, mut two) = if encrypted { encrypted_pair(budget) } else { pair(budget) };
        let feeder = |all: &[Sent]| Feeder { queue: all.iter().cloned().collect(), at: 0 };
        let (mut out, mut home) = (feeder(&there), feeder(&back));
        let (mut at_one, mut at_two) = (Taker::default(), Taker::default());
        let end = Instant::now() + Duration::from_secs(60);
        let mut steps = steps.iter().cycle();
        while at_two.came.len() < there.len() || at_one.came.len() < back.len() {
            assert!(Instant::now() < end, "stuck at {} and {}", at_two.came.len(), at_one.came.len());
            let &(step, most) = steps.next().unwrap();
            match step {
                0 => { out.feed(&mut one); one.turn(); }
                1 => { home.feed(&mut two); two.turn(); }
                2 => { two.turn(); at_two.take(&mut two, most); }
                _ => { one.turn(); at_one.take(&mut one, most); }
            }
            // No choice of steps may leave one side out.
            one.turn();
            two.turn();
            out.feed(&mut one);
            home.feed(&mut two);
            at_one.take(&mut one, 1);
            at_two.take(&mut two, 1);
        }
        prop_assert_eq!(at_two.came, without_pieces(&there));
        prop_assert_eq!(at_one.came, without_pieces(&back));
        // And in the end each side knows that the other has it.
        while !one.bridge.is_flushed() || !two.bridge.is_flushed() {
            assert!(Instant::now() < end, "nobody says what has come");
            one.turn();
            two.turn();
        }
    }
}

/// Puts inline messages in until nothing moves any more, and returns how many.
fn flood(side: &mut Side, other: &mut Side, turns: bool) -> u64 {
    let (mut sent, mut idle) = (0, 0);
    while idle < 1000 {
        idle += 1;
        while side.tx.has_room(&mut side.budget).unwrap() {
            side.tx.push(Header::new(Kind::Inline, 8, 1), &[sent]);
            sent += 1;
            idle = 0;
        }
        side.turn();
        if turns {
            other.turn();
        }
    }
    sent
}

#[test]
fn who_does_not_take_stops_who_sends() {
    for (turns, encrypted) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut one, mut two) = if encrypted { encrypted_pair(1 << 20) } else { pair(1 << 20) };
        let sent = flood(&mut one, &mut two, turns);
        // The two lanes, and the kernel's queues: 40 bytes each in queues of some megabytes.
        assert!(sent < 400_000, "{sent}");
        let (most, least) = (one.tx.budgeted(), one.budget.used());
        assert!(most <= 1 << 20 && least <= 1 << 20);
        let mut taker = Taker::default();
        let end = Instant::now() + Duration::from_secs(60);
        while (taker.came.len() as u64) < sent {
            assert!(Instant::now() < end);
            two.turn();
            taker.take(&mut two, 1000);
            one.turn();
        }
        let numbers = taker.came.iter().map(|sent| match sent {
            Sent::Inline(_, words) => words[0],
            other => panic!("{other:?}"),
        });
        assert!(numbers.eq(0..sent));
    }
}

#[test]
fn a_goodbye_comes_after_all_else() {
    for (mut one, mut two) in [pair(1 << 20), encrypted_pair(1 << 20)] {
        for at in 0..50 {
            one.tx.push(Header::new(Kind::Inline, 8, 1), &[at]);
        }
        one.bridge.say_goodbye();
        assert!(one.bridge.is_sent());
        drop(one);
        let ended = two.until_it_ends();
        assert!(matches!(ended, Ended::Closed), "{ended:?}");
        assert!(two.rx.is_closed());
        let mut taker = Taker::default();
        taker.take(&mut two, 100);
        assert_eq!(taker.came.len(), 50);
    }
}

#[test]
fn who_goes_without_a_word_is_gone() {
    let (mut one, mut two) = pair(1 << 20);
    one.tx.push(Header::new(Kind::Inline, 8, 1), &[7]);
    one.turn();
    drop(one);
    let ended = two.until_it_ends();
    assert!(matches!(ended, Ended::Gone | Ended::Broken(_)), "{ended:?}");
    assert!(!two.rx.is_closed());
    // A message that had come whole is there.
    assert!(two.rx.head().is_some());
}

/// Only a side that has found nothing may wait to be told of more: the end can have come together
/// with the last bytes.
#[test]
fn who_has_taken_something_looks_again() {
    let (stream, mut raw) = streams();
    let mut side = Side::new(stream, 0);
    assert!(!side.turn() && side.bridge.is_drained());
    raw.write_all(&frame(1, Header::new(Kind::Inline, 8, 1), &[7])[..5]).unwrap();
    raw.shutdown(std::net::Shutdown::Write).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while !side.turn() {
        assert!(side.bridge.is_drained() && Instant::now() < end);
    }
    assert!(!side.bridge.is_drained());
    assert_eq!(side.until_it_ends(), Ended::Gone);
    // Nor may one whose lane has no room for the next bytes.
    let (mut one, mut two) = pair(0);
    flood(&mut one, &mut two, true);
    assert!(!two.bridge.is_drained());
}

#[test]
fn what_means_nothing_elsewhere_is_not_sent() {
    let (mut one, _two) = pair(0);
    let place = Place { at: 0xdead_b000, parts: 1 };
    let (exported, list) = (None, None);
    let given = Rts {
        tag: 1,
        len: 2,
        place,
        stream: false,
        prefers_ring: false,
        unasked: false,
        given: true,
        exported,
        list,
        number: 1,
        head: None,
    };
    one.tx.push(Header::new(Kind::Rts, 0, 1), &given.body());
    let ended = one.bridge.turn(false, &mut one.budget).unwrap_err();
    assert!(matches!(ended, Ended::Violation(_)), "{ended:?}");
}

/// Feeds a stranger's bytes, and returns how that ends.
fn judged(bytes: &[u8], at_a_time: usize) -> Result<Side, Ended> {
    let (mut stranger, two) = streams();
    stranger.set_nodelay(true).unwrap();
    let mut side = Side::new(two, 0);
    for bytes in bytes.chunks(at_a_time) {
        stranger.write_all(bytes).unwrap();
        side.bridge.turn(false, &mut side.budget)?;
        while let Some(header) = side.rx.head() {
            side.rx.advance(header).unwrap();
            let _ = side.rx.publish();
        }
    }
    // All of it has come once the other side's queue says so.
    let end = Instant::now() + Duration::from_millis(20);
    while Instant::now() < end {
        side.bridge.turn(false, &mut side.budget)?;
    }
    Ok(side)
}

fn frame(number: u64, header: Header, words: &[u64]) -> Vec<u8> {
    let brings = Brings::Descriptor { number, header, words: words.len() };
    let head = Head { received: 0, released: 0, wants_word: false, brings };
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    head.bytes().into_iter().chain(words).collect()
}

#[test]
fn frames_come_byte_by_byte() {
    let mut bytes = frame(1, Header::new(Kind::Inline, 16, 9), &[3, 4]);
    let piece = Piece { offset: 0, len: 3, sample: 0 };
    let eager = Eager { tag: 1, len: 3, piece }.body();
    bytes.extend(frame(2, Header::new(Kind::Eager, 0, 9), &eager));
    bytes.extend(*b"abc");
    let side = judged(&bytes, 1).unwrap();
    assert_eq!(side.bridge.reached().unwrap().frames, 2);
}

#[test]
fn a_goodbye_ends_the_stream() {
    let (mut stranger, two) = streams();
    let mut side = Side::new(two, 0);
    side.tx.push(Header::new(Kind::Inline, 8, 1), &[0x0102]);
    side.bridge.say_goodbye();
    let mut bytes = Vec::new();
    stranger.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), 40 + 32);
    let signal = bytes[40..].first_chunk().and_then(Head::read).unwrap();
    assert_eq!(signal.brings, Brings::Signal(Signal::Goodbye));
}
