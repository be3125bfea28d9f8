#![allow(unsafe_code)]
// Messages are written as lanes and the kernel write them.
//! Room for messages of the library's own: filled, handed out, given back.

mod folding;

use super::*;

/// Room for a message, filled with numbers.
fn message(len: u64) -> Bytes {
    let (landing, memory) = Landing::new(len, None).unwrap();
    let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 4096) as u8).collect();
    let tally = std::sync::Arc::default();
    let mut copier = Copier::new(crate::copy::Reader::Me, &tally);
    assert_eq!(memory.write(&mut copier, 0, &bytes), len);
    // SAFETY: it was written just now.
    unsafe { landing.into_bytes(len) }
}

fn check(bytes: &[u8]) {
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == (at * 7 + at / 4096) as u8));
}

#[test]
fn long_messages_lie_in_pages_and_come_in_a_row() {
    for len in
        [0, 1, 4096, POOL_FROM - 1, POOL_FROM, POOL_FROM + 5, 1 << 20, POOL_MAX, POOL_MAX + 1]
    {
        let bytes = message(len);
        let pooled = matches!(bytes, Bytes::Pages(_));
        assert_eq!(pooled, (POOL_FROM..=POOL_MAX).contains(&len), "{len}");
        assert_eq!(bytes.len(), len);
        let whole = bytes.whole();
        assert_eq!(whole.len() as u64, len);
        check(&whole);
        check(&whole.into_vec());
    }
}

/// More than there is of the pool: some of them come to the heap, and all are whole.
#[test]
fn nothing_fails_when_the_pool_is_full() {
    let mut held: Vec<Bytes> = (0..48).map(|at| message((1 << 20) + at * 4096)).collect();
    let heap = held.iter().filter(|bytes| matches!(bytes, Bytes::Heap(_))).count();
    assert!((16..48).contains(&heap), "{heap} of {} are in the heap", held.len());
    // With holes between those that stay, the next ones lie in pieces.
    let mut at = 0;
    held.retain(|_| {
        at += 1;
        at % 2 == 0
    });
    let wide: Vec<Bytes> = (0..4).map(|_| message(3 << 20)).collect();
    let pieces = |bytes: &Bytes| match bytes {
        Bytes::Pages(paged) => paged.filled.spans().count(),
        Bytes::Heap(_) => 1,
    };
    assert!(wide.iter().any(|bytes| pieces(bytes) > 1), "none was in pieces");
    let (mut rows, mut folds) = (0, 0);
    for bytes in held.into_iter().chain(wide) {
        let (len, pieces) = (bytes.len(), pieces(&bytes));
        let whole = bytes.whole();
        check(&whole);
        match whole.folded() {
            None => rows += 1,
            Some(folded) => {
                assert!(pieces > 1, "{folded} of {pieces}");
                assert_eq!(folded.moved + folded.copied, len, "{folded}");
                assert_eq!(whole.copied(), folded.copied);
                folds += 1;
            }
        }
        check(&whole.into_vec());
    }
    assert!(rows > 0 && folds > 0, "{rows} in a row, {folds} folded");
}
