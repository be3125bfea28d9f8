//! Order: messages with one tag come in the order in which they were sent, whatever their lengths,
//! their paths and the calls, none is lost, and none comes twice.

use std::{
    io::{IoSlice, IoSliceMut},
    thread,
};

use pinfold::{Completed, CompletionQueue, Receipt, Result, TagMatch};
use pinfold_tests::{role::PATIENCE, stamp};

use crate::{
    pair::{End, LENGTHS, Pair, Transport},
    processes,
};

/// The tag of the messages, and of the word that all have been sent.
const STREAM: u64 = 1;
const ALL_SENT: u64 = 2;
/// The number of calls that receives are made by in turn.
const CALLS: usize = 5;

pub fn holds(on: Transport) {
    Pair::new(on).both(|end| {
        // Each call meets each length.
        stream(end, &LENGTHS.repeat(CALLS), false);
        stream(end, &LENGTHS.repeat(2), true);
    });
    if on.has_two_endpoints() {
        processes::talk(on);
    }
}

/// Sends messages of these lengths and takes as many, at once, or each of them after all have been
/// sent.
pub fn stream(end: &End, lengths: &[usize], late: bool) {
    thread::scope(|scope| {
        scope.spawn(|| send_all(end, lengths, late));
        if late {
            let word = end.endpoint.recv_timeout(end.peer, end.into(ALL_SENT), PATIENCE);
            assert_eq!(&*word.unwrap(), b"all are sent");
        }
        receive_all(end, lengths);
        if !late {
            let word = end.endpoint.recv(end.peer, end.into(ALL_SENT)).unwrap();
            assert_eq!(&*word, b"all are sent");
        }
    });
    // The other end may have gone on to the meeting.
    let any = TagMatch::masked(end.into(0), 0xff);
    assert_eq!(end.endpoint.try_probe(end.peer, any).unwrap(), None);
    // The other side's messages are not those of the next time.
    end.meet();
}

fn seed(end_tag: u64, number: u64) -> u64 {
    end_tag ^ number << 8
}

#[track_caller]
fn sent(receipt: Result<Receipt>, len: usize) {
    assert_eq!(receipt.unwrap().bytes, len as u64);
}

/// Sends them by calls in turn; if none is received meanwhile, by those that do not wait.
fn send_all(end: &End, lengths: &[usize], late: bool) {
    let (endpoint, peer, tag) = (&end.endpoint, end.peer, end.out(STREAM));
    let queue = CompletionQueue::new().unwrap();
    let mut requests = Vec::new();
    for (number, &len) in (0..).zip(lengths) {
        let bytes = stamp::bytes(len, seed(tag, number));
        match number % 4 {
            0 if !late => sent(endpoint.send(peer, tag, &bytes), len),
            1 if !late => {
                let (first, rest) = bytes.split_at(len / 3);
                let (second, third) = rest.split_at(len / 3);
                let parts = [first, second, third].map(IoSlice::new);
                sent(endpoint.send_vectored(peer, tag, &parts), len);
            }
            0 | 2 => requests.push((number, endpoint.send_owned(peer, tag, bytes))),
            _ => queue.add(number, endpoint.send_owned(peer, tag, bytes)),
        }
    }
    endpoint.send(peer, end.out(ALL_SENT), b"all are sent").unwrap();
    for (number, request) in requests {
        let (receipt, bytes) = request.wait();
        sent(receipt, lengths[number as usize]);
        stamp::check(&bytes, seed(tag, number));
    }
    let mut ended = Vec::new();
    while queue.outstanding() > 0 {
        assert!(queue.wait(&mut ended, usize::MAX, Some(PATIENCE)).unwrap() > 0);
    }
    ended.sort_unstable_by_key(|completion| completion.context);
    assert!(ended.windows(2).all(|two| two[0].context < two[1].context), "{ended:?}");
    for mut completion in ended {
        let Ok(Completed::Sent(receipt)) = completion.result else { panic!("{completion:?}") };
        assert_eq!(receipt.bytes, lengths[completion.context as usize] as u64);
        let bytes: Vec<u8> = completion.take_buffer().unwrap();
        stamp::check(&bytes, seed(tag, completion.context));
    }
}

/// Takes them by calls in turn.
fn receive_all(end: &End, lengths: &[usize]) {
    let (endpoint, peer, tag) = (&end.endpoint, end.peer, end.into(STREAM));
    let queue = CompletionQueue::new().unwrap();
    let numbered: Vec<(u64, usize)> = (0..).zip(lengths.iter().copied()).collect();
    for turn in numbered.chunks(CALLS) {
        let check = |(number, len), bytes: &[u8]| {
            assert_eq!(bytes.len(), len, "message {number}");
            stamp::check(bytes, seed(tag, number));
        };
        // Those that are posted come first, and are waited for last.
        let (posted, calls) = turn.split_at(turn.len().min(2));
        let posted_here =
            posted.first().map(|&(_, len)| endpoint.recv_owned(peer, tag, vec![0; len]));
        if let Some(&(number, len)) = posted.get(1) {
            queue.add(number, endpoint.recv_owned(peer, tag, vec![0; len]));
        }
        for (call, &(number, len)) in calls.iter().enumerate() {
            match call {
                0 => {
                    let mut bytes = vec![0; len];
                    let received = endpoint.recv_into(peer, tag, &mut bytes).unwrap();
                    assert_eq!((received.peer, received.tag), (peer, tag));
                    assert_eq!(received.len, len as u64);
                    check((number, len), &bytes);
                }
                1 => {
                    let message = endpoint.recv(peer, tag).unwrap();
                    assert_eq!((message.peer(), message.tag()), (peer, tag));
                    check((number, len), &message);
                }
                _ => {
                    let mut parts = [vec![0; len / 2], vec![0; len - len / 2]];
                    let [first, second] = &mut parts;
                    let mut into = [IoSliceMut::new(first), IoSliceMut::new(second)];
                    let received = endpoint.recv_vectored(peer, tag, &mut into).unwrap();
                    assert_eq!(received.len, len as u64);
                    check((number, len), &parts.concat());
                }
            }
        }
        if let Some(request) = posted_here {
            let (received, bytes) = request.wait();
            assert_eq!(received.unwrap().len, posted[0].1 as u64);
            check(posted[0], &bytes);
        }
        let mut ended = Vec::new();
        while queue.outstanding() > 0 {
            assert!(queue.wait(&mut ended, 1, Some(PATIENCE)).unwrap() > 0);
        }
        for mut completion in ended {
            let Ok(Completed::Received(received)) = completion.result else {
                panic!("{completion:?}")
            };
            assert_eq!((completion.context, received.len), (posted[1].0, posted[1].1 as u64));
            check(posted[1], &completion.take_buffer::<Vec<u8>>().unwrap());
        }
    }
}
