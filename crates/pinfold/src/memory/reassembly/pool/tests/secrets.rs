//! Nothing that one message wrote is ever in the pages of another.

use proptest::prelude::*;

use super::*;

#[test]
fn only_what_is_not_overwritten_is_cleared() {
    let pool = heap(2);
    drop(message(&pool, 1, &[1; 3000]));
    // A second message leaves bytes 2,000 to 3,000 of the first to be cleared, and nothing else.
    let filled = message(&pool, 2, &[2; 2000]);
    let all = whole(&pool, &filled);
    assert!(all[..2000].iter().all(|byte| *byte == 2) && all[2000..].iter().all(|byte| *byte == 0));
    // To be seen by a byte put there behind the pool's back, where it has no need to look.
    let span = filled.spans().next().unwrap();
    // SAFETY: byte 2,500 of the message's own page.
    unsafe { span.at.add(2500).write(5) };
    drop(filled);
    let filled = message(&pool, 3, &[3; 10]);
    let all = whole(&pool, &filled);
    assert!(all[10..2500].iter().all(|byte| *byte == 0));
    assert_eq!(all[2500], 5);
}

/// The life of a message before it gives its pages back.
#[derive(Clone, Debug)]
enum Life {
    /// All of it is written.
    Whole,
    /// It ends early.
    Short(u8),
    /// All of its room is written from elsewhere, and only a part of that counts.
    Spare(u8),
    /// Its pages are written to their ends afterwards.
    Exposed,
    /// It breaks off in the middle.
    Broken(u8),
}

fn lives() -> impl Strategy<Value = Vec<(u64, Life, bool)>> {
    let life = prop_oneof![
        2 => Just(Life::Whole),
        2 => (0u8..100).prop_map(Life::Short),
        2 => (0u8..100).prop_map(Life::Spare),
        1 => Just(Life::Exposed),
        1 => (0u8..100).prop_map(Life::Broken),
    ];
    let bytes = prop_oneof![1u64..5 * PAGE, 0u64..40 * PAGE];
    proptest::collection::vec((bytes, life, any::<bool>()), 2..40)
}

/// Writes all that a span has.
fn scribble(span: Span, tag: u8) {
    // SAFETY: the message has this span.
    unsafe { span.at.write_bytes(tag, span.len) };
}

/// The number of bytes of others that the messages show in their pages. Each writes its own number
/// and nothing else, so that any other byte that is not zero is a secret that leaked.
fn secrets_seen(lives: &[(u64, Life, bool)]) -> usize {
    let pool = heap(64);
    let mut kept = Vec::new();
    let mut seen = 0;
    for (at, (bytes, life, keep)) in lives.iter().enumerate() {
        let tag = (at % 250) as u8 + 1;
        let Ok(mut filling) = pool.take(Owner(at as u64), *bytes) else {
            kept.clear();
            continue;
        };
        let part = |percent: u8| (bytes * u64::from(percent) / 100) as usize;
        match life {
            Life::Whole | Life::Exposed => filling.write(&vec![tag; *bytes as usize]).unwrap(),
            Life::Short(percent) => filling.write(&vec![tag; part(*percent)]).unwrap(),
            Life::Spare(percent) => {
                filling.spare(*bytes).for_each(|span| scribble(span, tag));
                filling.assume_filled(part(*percent) as u64).unwrap();
            }
            Life::Broken(percent) => {
                filling.write(&vec![tag; part(*percent)]).unwrap();
                continue;
            }
        }
        let mut filled = filling.finish();
        let all = whole(&pool, &filled);
        let (own, behind) = all.split_at(filled.bytes() as usize);
        assert!(own.iter().all(|byte| *byte == tag));
        seen += behind.iter().filter(|byte| **byte != 0).count();
        if matches!(life, Life::Exposed) {
            filled.expose();
            for piece in filled.pieces() {
                let at = piece.first as usize * PAGE_BYTES;
                // SAFETY: the message has these pages.
                let at = unsafe { pool.memory().base().add(at) };
                scribble(Span { at, len: piece.pages as usize * PAGE_BYTES }, tag);
            }
        }
        if *keep {
            kept.push(filled);
        }
    }
    seen
}

proptest! {
    #[test]
    fn secrets_stay_where_they_were(lives in lives()) {
        prop_assert_eq!(secrets_seen(&lives), 0);
    }
}

#[test]
fn without_clearing_secrets_are_found() {
    let lives = [
        (3 * PAGE, Life::Whole, false),
        (2 * PAGE + 7, Life::Whole, false),
        (3 * PAGE, Life::Short(50), false),
    ];
    assert_eq!(secrets_seen(&lives), 0);
    ZEROES.set(false);
    let seen = secrets_seen(&lives);
    ZEROES.set(true);
    assert_eq!(seen, 4096 - 7 + 6144);
}
