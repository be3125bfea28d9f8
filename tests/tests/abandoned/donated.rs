//! Receives of memory that was given away: it is there for the next receive, or its sender takes it
//! back.

use pinfold::{Arena, Error, Path};
use pinfold_tests::{pair, stamp};

use super::{MIB, TAG, builder, donation, progress_until, work};

#[test]
fn memory_that_was_given_away() {
    let (a, to_b, b, to_a) = pair("abandoned-donated", builder(), builder());
    let arena = Arena::new().unwrap();
    for len in [100, 70_000, 3 * MIB] {
        let parts = || vec![donation(&arena, 2 * MIB, 3), donation(&arena, 2 * MIB, 4)];
        // A view that was never taken; then by a view, into memory, and by no receive until its
        // sender takes it back.
        for next in 0..3 {
            let mut handoff = b.handoff(to_a, TAG, donation(&arena, len, 1));
            let mut vectored = b.handoff_vectored(to_a, TAG, parts());
            let (one, two) = (a.recv_view_request(to_b, TAG), a.recv_view_request(to_b, TAG));
            work(&a, &b, 5);
            drop(two);
            drop(one);
            match next {
                0 => {
                    let view = a.recv_view_request(to_b, TAG).wait().unwrap();
                    stamp::check(&view.to_vec().unwrap(), 1);
                    assert_eq!(view.receipt().path, Path::Handoff);
                    let joined = a.recv_view_request(to_b, TAG).wait().unwrap();
                    let bytes = joined.to_vec().unwrap();
                    stamp::check(&bytes[..2 * MIB], 3);
                    stamp::check(&bytes[2 * MIB..], 4);
                }
                1 => {
                    let mut request = a.recv_owned(to_b, TAG, vec![0; len]);
                    let mut done = None;
                    progress_until(&[&a, &b], "copied", || {
                        done = request.try_wait();
                        done.is_some()
                    });
                    let (received, bytes) = done.unwrap();
                    received.unwrap();
                    stamp::check(&bytes, 1);
                    let mut request = a.recv_request(to_b, TAG);
                    let mut done = None;
                    progress_until(&[&a, &b], "copied", || {
                        done = request.try_wait();
                        done.is_some()
                    });
                    let bytes = done.unwrap().unwrap();
                    stamp::check(&bytes[..2 * MIB], 3);
                    stamp::check(&bytes[2 * MIB..], 4);
                }
                _ => {
                    assert!(handoff.cancel());
                    assert!(vectored.cancel());
                    let mut ended = (None, None);
                    progress_until(&[&a, &b], "taken back", || {
                        ended.0 = ended.0.take().or_else(|| handoff.try_wait());
                        ended.1 = ended.1.take().or_else(|| vectored.try_wait());
                        ended.0.is_some() && ended.1.is_some()
                    });
                    assert!(matches!(ended.0.unwrap().0, Err(Error::Cancelled)));
                    assert!(matches!(ended.1.unwrap().0, Err(Error::Cancelled)));
                    assert!(a.try_probe(to_b, TAG).unwrap().is_none());
                    continue;
                }
            }
            let mut ended = (None, None);
            progress_until(&[&a, &b], "given back", || {
                ended.0 = ended.0.take().or_else(|| handoff.try_wait());
                ended.1 = ended.1.take().or_else(|| vectored.try_wait());
                ended.0.is_some() && ended.1.is_some()
            });
            ended.0.unwrap().0.unwrap();
            ended.1.unwrap().0.unwrap();
        }
        // The same with a handoff whose return is counted.
        b.give(to_a, TAG, donation(&arena, len, 5)).unwrap();
        let view = a.recv_view_request(to_b, TAG);
        work(&a, &b, 5);
        drop(view);
        let view = a.recv_view_request(to_b, TAG).wait().unwrap();
        stamp::check(&view.to_vec().unwrap(), 5);
        drop(view);
        progress_until(&[&a, &b], "all is back in the arena", || arena.stats().buffers == 0);
    }
    let received = a.counters().received;
    let all: u64 = received.iter().map(|count| count.messages).sum();
    assert_eq!(all, 3 * (2 * 2 + 1), "each is counted once: {received:?}");
}
