//! Nothing of one message is where another is, or where none is.

use std::{
    sync::{atomic::AtomicU32, mpsc},
    thread,
};

use parking_lot::Mutex;

use super::*;

#[test]
fn addresses_show_nothing_afterwards() {
    for costs in [FREE, Costs { move_call_ns: 1e5, ..FREE }] {
        let folder = folder(costs);
        let pool = anonymous(&folder, 64);
        let sealed = Pool::new(SealedPages::new(64).unwrap());
        let heap = Pool::new(HeapPages::new(64).unwrap());
        // Moved, mapped and copied; and each alone.
        for kinds in [&[0, 1, 2][..], &[0, 0], &[1, 1]] {
            let mut message: Vec<Box<dyn Quiet>> = kinds
                .iter()
                .rev()
                .map(|kind| -> Box<dyn Quiet> {
                    match kind {
                        0 => Box::new(filled(&pool, &[9; 3 * PAGE])),
                        1 => Box::new(filled(&sealed, &[9; 3 * PAGE])),
                        _ => Box::new(filled(&heap, &[9; PAGE - 5])),
                    }
                })
                .collect();
            message.reverse();
            let kept = [filled(&pool, &[1]), filled(&pool, &[1])];
            let folded = folder.fold(message).unwrap();
            if folded.receipt().place != Place::Window {
                assert!(folder.why_not_moving().is_some(), "{}", folded.receipt());
                continue;
            }
            let (at, len) = (folded.as_ptr().addr(), folded.len());
            assert!(folded.iter().all(|byte| *byte == 9));
            assert_eq!([at, at + len - 1].map(reads), [Some(9); 2]);
            drop(folded);
            for at in (at..at + len).step_by(PAGE) {
                assert_eq!(reads(at), None, "{kinds:?}");
            }
            drop(kept);
        }
    }
}

/// Each message has a byte of its own, and its last page is not full.
#[test]
fn secrets_stay_where_they_were() {
    for (costs, back) in [(FREE, true), (Costs { move_call_ns: 1e5, ..FREE }, false)] {
        let folder = folder(costs);
        let pool = anonymous(&folder, 24);
        for round in 1..=40u8 {
            let len = PAGE + usize::from(round) * 977 % (4 * PAGE);
            let message =
                vec![filled(&pool, &vec![round; 2 * PAGE]), filled(&pool, &vec![round; len])];
            let message: Vec<_> = message.into_iter().rev().collect();
            let mut folded = folder.fold(message).unwrap();
            assert!(folded.iter().all(|byte| *byte == round), "round {round}, back {back}");
            // The bytes behind the message in the window are zero.
            if folded.receipt().place == Place::Window {
                let end = folded.as_ptr().addr() + folded.len();
                for at in end..end.next_multiple_of(PAGE) {
                    // SAFETY: within the last page of the message.
                    let byte: u8 = unsafe { *std::ptr::with_exposed_provenance(at) };
                    assert_eq!(byte, 0);
                }
            }
            folded.as_mut().unwrap().fill(round);
            if round % 3 == 0 {
                drop(folded.unfold())
            } else {
                drop(folded)
            }
            // A message that writes less than the one before shows zeros behind it, in all pages
            // there are.
            let mut short = pool.take(Owner(1), 24 * PAGE as u64).unwrap();
            short.write(&[0; 100]).unwrap();
            let short = short.finish();
            assert_eq!(short.pieces().len(), 1);
            let all = pool.memory().base().as_ptr();
            // SAFETY: the pages of the message, which no thread writes to.
            let all = unsafe { std::slice::from_raw_parts(all, 24 * PAGE) };
            assert!(all.iter().all(|byte| *byte == 0), "round {round}, back {back}");
        }
    }
}

#[test]
fn threads_fold_what_others_deliver() {
    let folder = folder(FREE);
    let maps = folder.count().maps_left;
    let anon = anonymous(&folder, 1024);
    let sealed = Pool::new(SealedPages::new(1024).unwrap());
    type ChannelMessage = (u8, usize, Vec<Box<dyn Quiet>>);
    let (send, receive) = mpsc::sync_channel::<ChannelMessage>(8);
    let receive = Mutex::new(receive);
    let [wrong, done, window] = [0; 3].map(AtomicU32::new);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let Ok((tag, len, message)) = receive.lock().recv() else { break };
                    // To panic here would leave the senders waiting.
                    let Ok(folded) = folder.fold(message) else {
                        wrong.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    let right = folded.len() == len && folded.iter().all(|byte| *byte == tag);
                    wrong.fetch_add(u32::from(!right), Ordering::Relaxed);
                    let there = folded.receipt().place == Place::Window;
                    window.fetch_add(u32::from(there), Ordering::Relaxed);
                    done.fetch_add(1, Ordering::Relaxed);
                    if tag % 2 == 0 {
                        drop(folded.unfold());
                    }
                }
            });
        }
        for tag in 1..=3u8 {
            let (send, anon, sealed) = (send.clone(), &anon, &sealed);
            scope.spawn(move || {
                for at in 0..150usize {
                    let lens =
                        [1 + at * 7 % 9, 1 + at % 5, 1 + at % 3].map(|pages| pages * PAGE - at % 2);
                    let part = |at: usize, len: usize| -> Box<dyn Quiet> {
                        let bytes = vec![tag; len];
                        if at.is_multiple_of(2) {
                            Box::new(filled(anon, &bytes))
                        } else {
                            Box::new(filled(sealed, &bytes))
                        }
                    };
                    let parts = lens.iter().enumerate().map(|(n, len)| part(n + at, *len));
                    let mut parts: Vec<_> = parts.collect();
                    parts.reverse();
                    send.send((tag, lens.iter().sum(), parts)).unwrap();
                }
            });
        }
        drop(send);
    });
    assert_eq!((wrong.into_inner(), done.into_inner()), (0, 450));
    assert!(window.into_inner() > 0);
    nothing_left(&folder, maps);
    assert_eq!((anon.count().taken, sealed.count().taken), (0, 0));
}
