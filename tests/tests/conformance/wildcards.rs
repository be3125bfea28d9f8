//! Receives of several tags and from any source: they get the messages in the order in which these
//! were sent, but for those that other receives have taken, and each once.

use std::thread;

use pinfold::{Completed, CompletionQueue, Error, Source, TagMatch};
use pinfold_tests::{role::PATIENCE, stamp};

use crate::pair::{End, LENGTHS, Pair, Transport};

/// Tags that the messages have in turn; a receive of its own asks for the last one.
const TAGS: u64 = 4;
/// Messages.
const COUNT: u64 = 4 * LENGTHS.len() as u64;
/// No message has it.
const NEVER: u64 = TAGS + 1;

fn len(number: u64) -> usize {
    LENGTHS[number as usize % LENGTHS.len()]
}

fn seed(end_tag: u64, number: u64) -> u64 {
    end_tag ^ number << 8
}

pub fn holds(on: Transport) {
    Pair::new(on).both(|end| {
        thread::scope(|scope| {
            scope.spawn(|| send(end));
            receive(end);
        });
        end.meet();
    });
}

fn send(end: &End) {
    let send = |number: u64| {
        let bytes = stamp::bytes(len(number), seed(end.out(0), number));
        (number, end.endpoint.send_owned(end.peer, end.out(number % TAGS), bytes))
    };
    for (number, request) in (0..COUNT).map(send).collect::<Vec<_>>() {
        assert_eq!(request.wait().0.unwrap().bytes, len(number) as u64);
    }
}

fn receive(end: &End) {
    let (endpoint, peer) = (&end.endpoint, end.peer);
    let queue = CompletionQueue::new().unwrap();
    let own = TAGS - 1;
    let (of_its_own, others): (Vec<u64>, Vec<u64>) = (0..COUNT).partition(|n| n % TAGS == own);
    // Messages of one tag are taken out of the middle of the others.
    let (first, later) = of_its_own.split_at(of_its_own.len() / 2);
    let check = |number: u64, from, tag, bytes: &[u8]| {
        assert_eq!((from, tag), (peer, end.into(number % TAGS)), "message {number}");
        assert_eq!(bytes.len(), len(number), "message {number}");
        stamp::check(bytes, seed(end.into(0), number));
    };
    for &number in first {
        let message = endpoint.recv_timeout(peer, end.into(own), PATIENCE).unwrap();
        check(number, message.peer(), message.tag(), &message);
    }
    // All tags of this way.
    let any = TagMatch::masked(end.into(0), 0xff);
    let mut left: Vec<u64> = others.iter().chain(later).copied().collect();
    left.sort_unstable();
    for (turn, &number) in left.iter().enumerate() {
        match turn % 3 {
            0 => {
                let envelope = endpoint.probe(Source::Any, any).unwrap();
                assert_eq!((envelope.peer, envelope.tag), (peer, end.into(number % TAGS)));
                assert_eq!(envelope.len, len(number) as u64);
                let message = endpoint.recv(Source::Any, any).unwrap();
                check(number, message.peer(), message.tag(), &message);
            }
            1 => {
                let mut bytes = vec![0; LENGTHS[LENGTHS.len() - 1]];
                let received = endpoint.recv_into(Source::Any, any, &mut bytes).unwrap();
                check(number, received.peer, received.tag, &bytes[..received.len as usize]);
            }
            _ => {
                queue.add(number, endpoint.recv_request(peer, any));
                let mut ended = Vec::new();
                assert_eq!(queue.wait(&mut ended, 1, Some(PATIENCE)).unwrap(), 1);
                let Ok(Completed::Message(message)) = &ended[0].result else {
                    panic!("{:?}", ended[0])
                };
                assert_eq!(ended[0].context, number);
                check(number, message.peer(), message.tag(), message);
            }
        }
    }
    assert_eq!(endpoint.try_probe(Source::Any, any).unwrap(), None, "one came twice");
    let nothing = endpoint.recv_timeout(Source::Any, end.into(NEVER), std::time::Duration::ZERO);
    assert!(matches!(nothing, Err(Error::Timeout(_))), "{nothing:?}");
}
