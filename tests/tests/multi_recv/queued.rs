//! Messages as completions of a queue.

use std::sync::{Arc, atomic::Ordering};

use pinfold::{Completed, Completion, CompletionQueue, Error};
use pinfold_tests::{role::PATIENCE, stamp};

use super::{Counted, MIB, Pair, in_order, take};

/// Takes completions until one has a buffer.
fn until_free(pair: &Pair, queue: &CompletionQueue) -> Vec<Completion> {
    let mut ended = Vec::new();
    pair.until("the buffer is free", || {
        queue.poll(&mut ended, 3).unwrap();
        ended.iter().any(|completion| match &completion.result {
            Ok(Completed::MultiReceived(message)) => message.is_last,
            other => other.is_err(),
        })
    });
    ended
}

#[test]
fn each_message_is_a_completion_and_the_last_has_the_buffer() {
    for pair in [Pair::new(), Pair::ring_only(), Pair::tcp()] {
        let queue = CompletionQueue::new().unwrap();
        let lengths = [8, 0, 3 * MIB, 57, 5_000, MIB, 40];
        let room: usize = lengths.iter().map(|len| len.next_multiple_of(8).max(8)).sum();
        for context in 5..8 {
            // Some are there before the receive is queued.
            let posted = pair.all(vec![0u8; room], 1);
            let mut sends: Vec<_> = lengths
                .iter()
                .enumerate()
                .map(|(tag, len)| {
                    pair.two.send_owned(pair.to_one, tag as u64, stamp::bytes(*len, tag as u64))
                })
                .collect();
            pair.work(context as u32 - 5);
            queue.add(context, posted);
            let mut ended = until_free(&pair, &queue);
            assert_eq!((ended.len(), queue.outstanding()), (lengths.len(), 0));
            assert!(ended.iter().all(|completion| completion.context == context));
            let (last, others) = ended.split_last_mut().unwrap();
            for other in others {
                assert!(other.take_buffer::<Vec<u8>>().is_none());
            }
            let buffer: Vec<u8> = last.take_buffer().unwrap();
            let messages = ended.into_iter().map(|completion| match completion.result {
                Ok(Completed::MultiReceived(message)) => message,
                other => panic!("{other:?}"),
            });
            for (tag, message) in in_order(messages.collect()).iter().enumerate() {
                assert_eq!((message.tag, message.len), (tag as u64, lengths[tag] as u64));
                assert!(message.result.is_ok());
                stamp::check(&buffer[message.range.clone()], message.tag);
            }
            pair.until("all are sent", || {
                sends.retain_mut(|send| send.try_wait().is_none());
                sends.is_empty()
            });
        }
    }
}

#[test]
fn a_thread_that_waits_is_woken_for_each() {
    let pair = Pair::new();
    let queue = CompletionQueue::new().unwrap();
    queue.add(9, pair.all(vec![0u8; 32], 8));
    let mut ended = Vec::new();
    for tag in 0..4 {
        assert_eq!(queue.outstanding(), 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(5));
                pair.two.send(pair.to_one, tag, &stamp::bytes(8, tag)).unwrap();
            });
            assert_eq!(queue.wait(&mut ended, 8, Some(PATIENCE)).unwrap(), 1);
        });
    }
    assert_eq!(queue.outstanding(), 0);
    let buffer: Vec<u8> = ended.last_mut().unwrap().take_buffer().unwrap();
    buffer.chunks(8).zip(0..).for_each(|(bytes, tag)| stamp::check(bytes, tag));
}

/// All that were taken before stay taken; the completion has what is left.
#[test]
fn one_that_has_ended_is_queued() {
    let pair = Pair::new();
    let queue = CompletionQueue::new().unwrap();
    let mut multi = pair.all(vec![0u8; 24], 8);
    for tag in 0..3 {
        pair.two.send(pair.to_one, tag, &stamp::bytes(8, tag)).unwrap();
    }
    assert_eq!(take(&mut multi, 1)[0].tag, 0);
    queue.add(1, multi);
    let mut ended = until_free(&pair, &queue);
    assert_eq!((ended.len(), queue.outstanding()), (2, 0));
    assert!(ended[0].take_buffer::<Vec<u8>>().is_none());
    assert!(ended[1].take_buffer::<Vec<u8>>().is_some());
}

#[test]
fn the_end_of_the_endpoint_is_the_last_completion() {
    let pair = Pair::new();
    let queue = CompletionQueue::new().unwrap();
    queue.add(3, pair.all(vec![0u8; 100], 8));
    pair.two.send(pair.to_one, 1, &stamp::bytes(8, 1)).unwrap();
    let mut ended = Vec::new();
    assert_eq!(queue.wait(&mut ended, 8, Some(PATIENCE)).unwrap(), 1);
    pair.one.close();
    assert_eq!(queue.wait(&mut ended, 8, Some(PATIENCE)).unwrap(), 1);
    assert!(matches!(ended[0].result, Ok(Completed::MultiReceived(_))));
    assert!(matches!(ended[1].result, Err(Error::Closed)));
    let buffer: Vec<u8> = ended[1].take_buffer().unwrap();
    stamp::check(&buffer[..8], 1);
    assert_eq!(queue.outstanding(), 0);
}

/// The messages that it had not completed are the next receives'.
#[test]
fn a_queue_that_is_dropped_gives_it_up() {
    let count = Arc::default();
    for pair in [Pair::new(), Pair::ring_only(), Pair::tcp()] {
        let queue = CompletionQueue::new().unwrap();
        queue.add(3, pair.all(Counted::new(16 * MIB, &count), 8));
        let mut long = pair.two.send_owned(pair.to_one, 1, stamp::bytes(9 * MIB, 1));
        pair.work(2);
        drop(queue);
        let mut next = pair.one.recv_request(pair.to_two, 1);
        pair.until("the next receive has it", || match next.try_wait() {
            Some(message) => {
                stamp::check(&message.unwrap(), 1);
                true
            }
            None => false,
        });
        pair.until("it is sent", || long.try_wait().is_some());
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
