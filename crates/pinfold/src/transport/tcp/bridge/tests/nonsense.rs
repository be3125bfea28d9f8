//! Bytes that no honest peer sends: they end the connection.

use super::*;

#[test]
fn nonsense_ends_the_connection() {
    let inline = Header::new(Kind::Inline, 8, 1);
    let data = |len: u32| [Piece { offset: 0, len, sample: 0 }.body()[0], 0];
    let ahead =
        Head { received: 1, released: 0, wants_word: false, brings: Brings::Signal(Signal::Word) };
    let nonsense: &[(&str, Vec<u8>)] = &[
        ("a number left out", frame(2, inline, &[0])),
        ("a number twice", [frame(1, inline, &[0]), frame(1, inline, &[0])].concat()),
        ("memory of its own", frame(1, Header::new(Kind::Wrote, 0, 1), &[0; 7])),
        ("a region", frame(1, Header::new(Kind::Open, 0, 1), &[0; 7])),
        ("too long inline", frame(1, Header::new(Kind::Inline, 57, 1), &[0; 7])),
        ("too long a piece", frame(1, Header::new(Kind::Data, 0, 1), &data(300 << 10))),
        ("what was not sent", ahead.bytes().to_vec()),
        ("anything", vec![0xa5; 64]),
    ];
    for (what, bytes) in nonsense {
        let ended = judged(bytes, bytes.len()).err();
        assert!(matches!(ended, Some(Ended::Violation(_))), "{what}: {ended:?}");
    }
}

/// The count of frames that have come, and the credit that was given back, never shrink.
#[test]
fn what_was_said_is_not_taken_back() {
    let word = |received, released| {
        let brings = Brings::Signal(Signal::Word);
        Head { received, released, wants_word: false, brings }.bytes()
    };
    for (before, after) in [((1, 5), (1, 4)), ((1, 5), (0, 5))] {
        let (mut stranger, two) = streams();
        let mut side = Side::new(two, 1 << 20);
        assert!(side.tx.has_room(&mut side.budget).unwrap());
        side.tx.push(Header::new(Kind::Inline, 8, 1), &[7]);
        let mut sent = [0; 40];
        stranger.set_nonblocking(true).unwrap();
        while stranger.peek(&mut sent).unwrap_or(0) < sent.len() {
            side.turn();
        }
        for (at, (received, released)) in [before, before, after].into_iter().enumerate() {
            stranger.write_all(&word(received, released)).unwrap();
            let end = Instant::now() + Duration::from_secs(if at < 2 { 0 } else { 20 });
            let ended = loop {
                let ended = side.bridge.turn(false, &mut side.budget).err();
                if ended.is_some() || Instant::now() > end {
                    break ended;
                }
            };
            let is_cut = matches!(ended, Some(Ended::Violation(_)));
            assert_eq!(is_cut, at == 2, "{before:?} and {after:?}: {ended:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Bytes at random do no worse than end the connection.
    #[test]
    fn bytes_at_random_do_no_harm(
        kinds in prop::collection::vec((0..16u64, any::<u32>(), any::<Body>(), 0..40u64), 1..8),
        noise in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut bytes = Vec::new();
        for (at, (kind, aux, mut body, small)) in kinds.into_iter().enumerate() {
            // Lengths that are near those of honest peers.
            body[0] = small << 32;
            let word = kind << 15 | u64::from(aux) << 32 | (small & 0x3f) << 26;
            let mut head = [0; HEAD_BYTES];
            head[..8].copy_from_slice(&(at as u64 + 1).to_le_bytes());
            head[24..].copy_from_slice(&word.to_le_bytes());
            bytes.extend(head);
            bytes.extend(body.iter().flat_map(|word| word.to_le_bytes()));
        }
        bytes.extend(noise);
        let _ = judged(&bytes, bytes.len());
    }
}
