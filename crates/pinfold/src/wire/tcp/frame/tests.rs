use proptest::prelude::*;

use super::{super::decoder::Decoder, body::*, *};
use crate::wire::active::{Label, Verb};

fn verbs() -> impl Strategy<Value = Verb> {
    (0u64..6).prop_map(|bits| Verb::from_bits(bits).unwrap())
}

fn spots() -> impl Strategy<Value = Spot> {
    (any::<u64>(), any::<[u64; 2]>(), 0u64..1 << 60, any::<u64>())
        .prop_map(|(region, secret, offset, request)| Spot { region, secret, offset, request })
}

fn payloads() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1u64..100, 0..=PAYLOAD_BYTES_MAX]
}

fn heads() -> impl Strategy<Value = MessageHead> {
    (any::<u64>(), 0..=LEN_MAX, 1u64.., verbs()).prop_map(|(tag, len, id, verb)| MessageHead {
        tag,
        len,
        id,
        verb,
    })
}

fn atomics() -> impl Strategy<Value = AtomicOp> {
    use Change::*;
    let changes = prop::sample::select(vec![Add, And, Or, Xor, Min, Max, Swap, Replace]);
    (spots(), any::<bool>(), any::<bool>(), changes, any::<u64>(), any::<u64>()).prop_map(
        |(mut at, wide, signed, change, by, to)| {
            at.offset &= !7;
            let mask = if wide { u64::MAX } else { u32::MAX.into() };
            let to = if change == Replace { to & mask } else { 0 };
            AtomicOp { word: RemoteWord { at, wide, signed }, change, by: by & mask, to }
        },
    )
}

/// What an honest peer says, and how long its payload is.
fn whats() -> impl Strategy<Value = (What, u64)> {
    use Status::*;
    let ids = || 1u64..;
    let failed = prop::sample::select(vec![BadKey, Revoked, OutOfBounds, ReadOnly, Exhausted]);
    prop_oneof![
        (heads(), payloads())
            .prop_map(|(head, payload)| (What::First(head), payload.min(head.len))),
        (ids(), 0u64..1 << 62, 1..=PAYLOAD_BYTES_MAX)
            .prop_map(|(id, offset, payload)| (What::More(Piece { id, offset }), payload)),
        heads().prop_map(|head| (What::Rts(head), 0)),
        (ids(), 0..=LEN_MAX).prop_map(|(id, want)| (What::Cts { id, want }, 0)),
        ids().prop_map(|id| (What::Cancel { id }, 0)),
        (ids(), any::<bool>()).prop_map(|(id, cancelled)| (What::Fin { id, cancelled }, 0)),
        (spots(), payloads()).prop_map(|(spot, payload)| (What::Write(spot), payload)),
        (spots(), 0..=PAYLOAD_BYTES_MAX).prop_map(|(from, len)| (What::Read { from, len }, 0)),
        atomics().prop_map(|op| (What::Atomic(op), 0)),
        (any::<u64>(), any::<u64>(), payloads()).prop_map(|(request, was, payload)| {
            (What::Answer(Answer { request, status: Done, was }), payload)
        }),
        (any::<u64>(), failed).prop_map(|(request, status)| {
            (What::Answer(Answer { request, status, was: 0 }), 0)
        }),
        ((1u64..6), any::<u32>(), any::<u32>(), payloads()).prop_map(
            |(verb, id, token, payload)| {
                (What::Active(Label { verb: Verb::from_bits(verb).unwrap(), id, token }), payload)
            }
        ),
        Just((What::Ack, 0)),
        any::<bool>().prop_map(|answer| (What::KeepAlive { answer }, 0)),
        prop::sample::select(vec![Goodbye::Closed, Goodbye::Disconnected, Goodbye::Misbehaved])
            .prop_map(|why| (What::Goodbye(why), 0)),
    ]
}

fn frames() -> impl Strategy<Value = Frame> {
    (whats(), 1..=SEQ_MAX, 0..=SEQ_MAX, any::<u32>()).prop_map(
        |((what, payload), seq, acked, credit)| {
            let seq = if what.kind().is_numbered() { seq } else { 0 };
            Frame { seq, acked, credit, payload, what }
        },
    )
}

/// The only frame in these bytes.
fn decode(bytes: &[u8]) -> Result<Option<Frame>, Violation> {
    let (used, frame) = Decoder::new().feed(bytes)?;
    assert_eq!(used, bytes.len());
    Ok(frame)
}

fn sample(what: What, payload: u64) -> Frame {
    let seq = if what.kind().is_numbered() { 7 } else { 0 };
    Frame { seq, acked: 5, credit: 3, payload, what }
}

proptest! {
    #[test]
    fn frames_survive(frame in frames()) {
        let bytes = frame.encode();
        prop_assert_eq!(bytes.len(), HEAD_BYTES + frame.what.kind().body_bytes());
        prop_assert_eq!(decode(&bytes), Ok(Some(frame)));
    }

    /// Cut anywhere, a stream of frames and payloads comes to the same frames.
    #[test]
    fn a_stream_may_come_in_any_parts(
        frames in prop::collection::vec(frames(), 1..8),
        parts in prop::collection::vec(1usize..50, 1..20),
    ) {
        let mut stream = Vec::new();
        let shorten = |frame: &Frame| Frame { payload: frame.payload.min(20), ..*frame };
        let frames: Vec<_> = frames.iter().map(shorten).collect();
        for frame in &frames {
            stream.extend_from_slice(&frame.encode());
            stream.resize(stream.len() + frame.payload as usize, 0xee);
        }
        let (mut decoder, mut got, mut rest) = (Decoder::new(), Vec::new(), &stream[..]);
        for &part in parts.iter().cycle() {
            let (mut now, later) = rest.split_at(part.min(rest.len()));
            while !now.is_empty() {
                let (used, frame) = decoder.feed(now).unwrap();
                got.extend(frame);
                now = &now[used..];
                let payload = now.len().min(decoder.payload_left() as usize);
                prop_assert!(now[..payload].iter().all(|&byte| byte == 0xee));
                decoder.skip(payload as u64);
                now = &now[payload..];
            }
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert!(decoder.is_between());
        prop_assert_eq!(got, frames);
    }

    /// No byte is without meaning: what is accepted is what would be sent.
    #[test]
    fn what_is_accepted_is_what_would_be_sent(frame in frames(), at: prop::sample::Index, byte: u8) {
        let mut bytes = frame.encode().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let mut decoder = Decoder::new();
        match decoder.feed(&bytes) {
            Ok((used, Some(frame))) => prop_assert_eq!(&frame.encode()[..], &bytes[..used]),
            Ok((used, None)) => prop_assert_eq!(used, bytes.len()),
            Err(violation) => {
                prop_assert!(!violation.to_string().is_empty());
                prop_assert_eq!(decoder.feed(&frame.encode()), Err(violation));
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 1u8..15) {
        for kind in [None, Some(kind)] {
            let mut bytes = bytes.clone();
            if let (Some(kind), Some(first)) = (kind, bytes.first_mut()) {
                *first = kind;
            }
            let (mut decoder, mut rest) = (Decoder::new(), &bytes[..]);
            while let Ok((used, frame)) = decoder.feed(rest) {
                if used == 0 && frame.is_none() {
                    break;
                }
                rest = &rest[used..];
            }
        }
    }
}

#[test]
fn a_payload_is_waited_for() {
    let write = What::More(Piece { id: 1, offset: 0 });
    let bytes = sample(write, 10).encode();
    let mut decoder = Decoder::new();
    let mut used = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let (one, frame) = decoder.feed(&[*byte]).unwrap();
        used += one;
        assert_eq!(frame.is_some(), at + 1 == bytes.len());
        assert!(!decoder.is_between());
    }
    assert_eq!((used, decoder.payload_left()), (bytes.len(), 10));
    assert_eq!(decoder.feed(&bytes), Ok((0, None)));
    decoder.skip(9);
    assert_eq!(decoder.feed(&bytes), Ok((0, None)));
    decoder.skip(1);
    assert!(decoder.is_between());
    assert_eq!(decoder.feed(&bytes).unwrap().0, bytes.len());
}

#[test]
#[should_panic(expected = "more than the payload")]
fn no_more_than_the_payload_is_taken() {
    let mut decoder = Decoder::new();
    decoder.feed(&sample(What::More(Piece { id: 1, offset: 0 }), 10).encode()).unwrap();
    decoder.skip(11);
}

#[test]
fn what_cannot_be_is_named() {
    let head = MessageHead { tag: 1, len: 100, id: 9, verb: Verb::Tagged };
    let spot = Spot { region: 1, secret: [2, 3], offset: 8, request: 4 };
    let word = RemoteWord { at: spot, wide: false, signed: false };
    let op = AtomicOp { word, change: Change::Add, by: 1, to: 0 };
    let fails = |frame: Frame| decode(&frame.encode()).unwrap_err();
    let value = |what, payload| match fails(sample(what, payload)) {
        Violation::Value { what, .. } => what,
        other => panic!("{other:?}"),
    };
    let oversized = [
        sample(What::First(head), PAYLOAD_BYTES_MAX + 1),
        sample(What::First(head), u64::MAX),
        sample(What::Rts(head), 1),
        sample(What::Ack, 1),
        sample(What::Goodbye(Goodbye::Closed), 1),
        sample(What::More(Piece { id: 1, offset: 0 }), 0),
    ];
    for frame in oversized {
        let (kind, bytes) = (frame.what.kind(), frame.payload);
        assert_eq!(fails(frame), Violation::Payload { kind, bytes });
    }
    assert_eq!(value(What::First(head), 101), "a length, with more behind it");
    for len in [LEN_MAX + 1, u64::MAX] {
        assert_eq!(value(What::First(MessageHead { len, ..head }), 1), "a length");
        assert_eq!(value(What::Rts(MessageHead { len, ..head }), 0), "a length");
        assert_eq!(value(What::Cts { id: 1, want: len }, 0), "a length");
        assert_eq!(value(What::Read { from: spot, len }, 0), "a length");
    }
    assert_eq!(value(What::Read { from: spot, len: PAYLOAD_BYTES_MAX + 1 }, 0), "a length");
    for offset in [LEN_MAX, LEN_MAX + 1, u64::MAX] {
        let spot = Spot { offset, ..spot };
        assert_eq!(value(What::More(Piece { id: 1, offset }), 1), "an offset");
        assert_eq!(value(What::Write(spot), 1), "an offset");
        assert_eq!(value(What::Read { from: spot, len: 1 }, 0), "an offset");
        let word = RemoteWord { at: Spot { offset: offset & !7, ..spot }, wide: true, ..word };
        if offset != LEN_MAX {
            assert_eq!(value(What::Atomic(AtomicOp { word, ..op }), 0), "an offset");
        }
    }
    let ids = [
        What::First(MessageHead { id: 0, ..head }),
        What::Rts(MessageHead { id: 0, ..head }),
        What::Cts { id: 0, want: 1 },
        What::Cancel { id: 0 },
        What::Fin { id: 0, cancelled: true },
        What::More(Piece { id: 0, offset: 1 }),
    ];
    for what in ids {
        assert_eq!(value(what, 0), "a message");
    }
    for (wide, offset) in [(false, 2), (false, 5), (true, 4), (true, 7)] {
        let word = RemoteWord { at: Spot { offset, ..spot }, wide, ..word };
        assert_eq!(value(What::Atomic(AtomicOp { word, ..op }), 0), "an offset");
    }
    assert_eq!(value(What::Atomic(AtomicOp { to: 1, ..op }), 0), "a second operand");
    assert_eq!(value(What::Atomic(AtomicOp { by: 1 << 32, ..op }), 0), "an operand of 32 bits");
    let bad = Answer { request: 1, status: Status::BadKey, was: 1 };
    assert_eq!(value(What::Answer(bad), 0), "an outcome, and yet results");
    assert_eq!(value(What::Answer(Answer { was: 0, ..bad }), 1), "an outcome, and yet results");
    let with = |what, at: usize, byte: u8| {
        let mut bytes = sample(what, 0).encode().to_vec();
        bytes[at] = byte;
        decode(&bytes).unwrap_err()
    };
    for kind in [0, 15, 255] {
        assert_eq!(with(What::Ack, 0, kind), Violation::Kind(kind));
    }
    let kind = Kind::Ack;
    assert_eq!(with(What::Ack, 1, 1), Violation::Flags { kind, flags: 1 });
    assert_eq!(with(What::Ack, 2, 8), Violation::Body { kind, bytes: 8 });
    assert_eq!(with(What::Ack, 8, 1), Violation::Sequence { kind, seq: 1 });
    assert!(matches!(with(What::Ack, 23, 0x80), Violation::Acknowledged(_)));
    let kind = Kind::First;
    for flags in [6, 7, 8, 255] {
        assert_eq!(with(What::First(head), 1, flags), Violation::Flags { kind, flags });
    }
    assert_eq!(with(What::First(head), 8, 0), Violation::Sequence { kind, seq: 0 });
    assert!(matches!(with(What::First(head), 15, 0x80), Violation::Sequence { .. }));
    let active = What::Active(Label { verb: Verb::Call, id: 1, token: 2 });
    assert_eq!(with(active, 1, 0), Violation::Flags { kind: Kind::Active, flags: 0 });
    for reason in [0, 4] {
        let kind = Kind::Goodbye;
        let value = reason.into();
        let violation = Violation::Value { kind, what: "a reason", value };
        assert_eq!(with(What::Goodbye(Goodbye::Closed), HEAD_BYTES, reason), violation);
    }
    let fin = What::Fin { id: 1, cancelled: true };
    assert!(matches!(with(fin, HEAD_BYTES + 8, 2), Violation::Value { what: "a yes or no", .. }));
    let done = What::Answer(Answer { request: 1, status: Status::Done, was: 1 });
    assert!(matches!(with(done, HEAD_BYTES + 16, 6), Violation::Value { what: "an outcome", .. }));
}
