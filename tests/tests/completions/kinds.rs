//! Each kind of operation.

use std::collections::BTreeMap;

use pinfold::{AtomicChange, Completed, Completion, CompletionQueue, Endpoint, Error, Rights};
use pinfold_tests::{driven, stamp};

use super::{Pair, all};

const LENGTHS: [usize; 6] = [0, 8, 57, 5_000, 100_000, 3 << 20];

/// The completions by their contexts, of which each comes once.
fn by_context(ended: Vec<Completion>) -> BTreeMap<u64, Completion> {
    let count = ended.len();
    let all: BTreeMap<_, _> = ended.into_iter().map(|it| (it.context, it)).collect();
    assert_eq!(all.len(), count, "one came twice");
    all
}

fn messages(pair: &Pair) {
    let queue = CompletionQueue::new().unwrap();
    for round in 0..3 {
        for (at, len) in LENGTHS.into_iter().enumerate() {
            let at = at as u64;
            let tag = round << 8 | at;
            // Receives that come first, and messages that do.
            let receive = || match round {
                2 => queue.add(at, pair.one.recv_request(pair.to_two, tag)),
                _ => queue.add(at, pair.one.recv_owned(pair.to_two, tag, vec![0; len])),
            };
            let send = || {
                let bytes = stamp::bytes(len, tag);
                queue.add(100 + at, pair.two.send_owned(pair.to_one, tag, bytes));
            };
            if round == 1 {
                send();
                receive();
            } else {
                receive();
                send();
            }
        }
        let ended = by_context(all(&queue));
        assert_eq!(ended.len(), 2 * LENGTHS.len());
        for (context, mut completion) in ended {
            let len = LENGTHS[(context % 100) as usize];
            let tag = (round << 8) | (context % 100);
            match completion.result.as_ref().unwrap() {
                Completed::Sent(receipt) => {
                    assert!(context >= 100);
                    assert_eq!(receipt.bytes, len as u64);
                    stamp::check(&completion.take_buffer::<Vec<u8>>().unwrap(), tag);
                }
                Completed::Received(received) => {
                    assert_eq!((received.tag, received.len), (tag, len as u64));
                    stamp::check(&completion.take_buffer::<Vec<u8>>().unwrap(), tag);
                    assert!(completion.take_buffer::<Vec<u8>>().is_none());
                }
                Completed::Message(message) => {
                    assert_eq!((message.tag(), message.len(), round), (tag, len, 2));
                    stamp::check(message, tag);
                    assert!(completion.take_buffer::<Vec<u8>>().is_none());
                }
                other => panic!("{context}: {other:?}"),
            }
        }
    }
    assert_eq!(queue.outstanding(), 0);
}

#[test]
fn messages_on_one_host() {
    messages(&Pair::new("completions", Endpoint::builder));
}

#[test]
fn messages_over_tcp() {
    messages(&Pair::tcp());
}

/// The bytes that fit are in the buffer, and the error says how many there were.
#[test]
fn a_message_that_is_too_long_is_cut() {
    let pair = Pair::new("completions", Endpoint::builder);
    let queue = CompletionQueue::new().unwrap();
    for len in [40, 5_000, 1 << 20] {
        queue.add(1, pair.one.recv_owned(pair.to_two, 1, vec![0; len / 2]));
        queue.add(2, pair.two.send_owned(pair.to_one, 1, stamp::bytes(len, 1)));
        let mut ended = by_context(all(&queue));
        let cut = ended.get_mut(&1).unwrap();
        let Err(Error::Truncated { len: whole, capacity, .. }) = cut.result else {
            panic!("{cut:?}")
        };
        assert_eq!((whole, capacity), (len as u64, len as u64 / 2));
        let bytes: Vec<u8> = cut.take_buffer().unwrap();
        assert_eq!(bytes, stamp::bytes(len, 1)[..len / 2]);
    }
}

#[test]
fn a_buffer_of_another_type_stays() {
    let pair = Pair::new("completions", Endpoint::builder);
    let queue = CompletionQueue::new().unwrap();
    queue.add(1, pair.one.recv_owned(pair.to_two, 1, vec![0; 5]));
    pair.two.send(pair.to_one, 1, b"hello").unwrap();
    let mut ended = all(&queue);
    assert_eq!(ended[0].take_buffer::<Box<[u8]>>(), None);
    assert_eq!(ended[0].take_buffer::<Vec<u8>>(), Some(b"hello".to_vec()));
}

#[test]
fn answers_of_handlers() {
    let echo = || Endpoint::builder().handle(1, |active| active.reply(active.payload()).unwrap());
    let pair = Pair::new("completions", echo);
    let queue = CompletionQueue::new().unwrap();
    driven(&pair.two, || {
        for len in [0, 8, 300, 200_000] {
            let asked = pair.one.request_owned(pair.to_two, 1, stamp::bytes(len, 3));
            queue.add(len as u64, asked);
            queue.add(1 << 40 | len as u64, pair.one.request(pair.to_two, 2, b"nobody"));
        }
        for (context, completion) in by_context(all(&queue)) {
            match completion.result {
                Ok(Completed::Message(answer)) => {
                    assert_eq!(answer.len() as u64, context);
                    stamp::check(&answer, 3);
                }
                Err(Error::NotHandled { .. }) => assert!(context >= 1 << 40),
                other => panic!("{context}: {other:?}"),
            }
        }
    });
}

fn regions(pair: &Pair) {
    const LEN: usize = 1 << 20;
    let region = pair.two.region(LEN, Rights::ReadWrite).unwrap();
    let queue = CompletionQueue::new().unwrap();
    driven(&pair.two, || {
        let remote = pair.one.open_region(pair.to_two, &region.key().unwrap()).unwrap();
        for (at, len) in [(0, 8), (64, 57), (4096, 70_000), (100_000, 800_000)] {
            queue.add(at, remote.write_owned(at, stamp::bytes(len, at)));
            for completion in all(&queue) {
                let Ok(Completed::Copied(receipt)) = completion.result else {
                    panic!("{completion:?}")
                };
                assert_eq!((completion.context, receipt.bytes), (at, len as u64));
            }
            queue.add(at, remote.read_owned(at, vec![0; len]));
            let mut ended = all(&queue);
            assert!(matches!(ended[0].result, Ok(Completed::Copied(_))), "{ended:?}");
            stamp::check(&ended[0].take_buffer::<Vec<u8>>().unwrap(), at);
        }
        // Those posted to one owner are done in their order.
        remote.write(0, &5u64.to_ne_bytes()).unwrap();
        for by in 1..=20u64 {
            queue.add(by, remote.atomic(0, AtomicChange::Add(by)));
        }
        queue.add(21, remote.atomic(8, AtomicChange::Swap(-1i32)));
        queue.add(22, remote.atomic(8, AtomicChange::Replace(-1i32, 7)));
        let mut sum = 5;
        let ended = by_context(all(&queue));
        for (context, completion) in ended {
            let Ok(Completed::Was(was)) = completion.result else { panic!("{completion:?}") };
            match context {
                22 => assert_eq!(was, u64::from(u32::MAX)),
                21 => {}
                by => {
                    assert_eq!(was, sum);
                    sum += by;
                }
            }
        }
        for wrong in [
            remote.write_owned(LEN as u64 - 1, vec![0; 2]),
            remote.read_owned(u64::MAX, vec![0; 2]),
        ] {
            queue.add(0, wrong);
            let ended = all(&queue);
            assert!(matches!(ended[0].result, Err(Error::OutOfBounds { .. })), "{ended:?}");
        }
        queue.add(0, remote.atomic(3, AtomicChange::Add(1u64)));
        let ended = all(&queue);
        assert!(matches!(ended[0].result, Err(Error::Misaligned { .. })), "{ended:?}");
        // As futures, and waited for.
        assert_eq!(remote.atomic(8, AtomicChange::And(6i32)).wait().unwrap(), 7);
        let (read, bytes) = remote.read_owned(0, vec![0; 8]).wait();
        assert_eq!(read.unwrap().bytes, 8);
        assert_eq!(bytes, (5u64 + 210).to_ne_bytes());
    });
}

#[test]
fn regions_on_one_host() {
    regions(&Pair::new("completions", Endpoint::builder));
}

#[test]
fn regions_over_tcp() {
    regions(&Pair::tcp());
}
