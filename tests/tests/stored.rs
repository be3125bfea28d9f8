//! Long messages in memory of the library's own: for every later receive, however late, and however
//! many are held.

use std::{cell::RefCell, io::IoSliceMut};

use pinfold::{Endpoint, Message, Path, PathSet};
use pinfold_tests::{
    host::{Ended, fork},
    pair,
    stamp::{self, Random},
};

/// A builder without the kernel's help, so that messages are stored here until they are received.
fn eager() -> pinfold::Builder {
    Endpoint::builder().paths(PathSet::only(&[Path::Inline, Path::Eager]))
}

const LENGTHS: [usize; 8] =
    [100_000, 131_071, 131_072, 200_001, 1 << 20, (2 << 20) + 4097, 8 << 20, (8 << 20) + 1];

#[test]
fn stored_messages_are_handed_out_in_every_way() {
    let (a, from_b, b, to_a) = pair("stored", eager(), eager());
    for (at, len) in LENGTHS.into_iter().enumerate() {
        let bytes = stamp::bytes(len, at as u64);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..5).for_each(|tag| _ = b.send(to_a, tag, &bytes).unwrap()));
            for tag in 0..5 {
                // All messages, or as many as there is credit for, are here by then.
                while a.try_probe(from_b, tag).unwrap().is_none() {}
                if tag != 4 {
                    (0..1000).for_each(|_| _ = a.progress().unwrap());
                }
                let mut into = vec![0; len];
                match tag {
                    0 | 4 => into = a.recv(from_b, tag).unwrap().into_vec(),
                    1 => assert_eq!(a.recv_into(from_b, tag, &mut into).unwrap().len, len as u64),
                    2 => {
                        let (one, two) = into.split_at_mut(len / 3);
                        let parts = &mut [IoSliceMut::new(one), IoSliceMut::new(two)];
                        a.recv_vectored(from_b, tag, parts).unwrap();
                    }
                    _ => {
                        let view = a.recv_view(from_b, tag).unwrap();
                        assert_eq!(view.len(), len);
                        into.copy_from_slice(view.bytes().expect("the library's"));
                    }
                }
                assert_eq!(stamp::wrong_at(&into, at as u64), None, "{len} bytes, way {tag}");
            }
        });
    }
}

/// Messages that are given back in between leave holes, in which the next ones lie in pieces.
#[test]
fn messages_that_are_held_stay_and_those_in_pieces_come_in_a_row() {
    let (a, from_b, b, to_a) = pair("held", Endpoint::builder(), Endpoint::builder());
    let mut random = Random::new(7);
    let mut held: Vec<(u64, Message)> = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(8);
            for seed in 0..400 {
                let len = (128 << 10) + random.below(3 << 20) as usize;
                b.send(to_a, 1, &stamp::bytes(len, seed)).unwrap();
            }
        });
        for seed in 0..400 {
            let message = a.recv(from_b, 1).unwrap();
            stamp::check(&message, seed);
            held.push((seed, message));
            while held.len() > 24 {
                let (seed, message) = held.swap_remove(random.below(24) as usize);
                stamp::check(&message, seed);
            }
        }
    });
    held.iter().for_each(|(seed, message)| stamp::check(message, *seed));
}

#[test]
fn a_child_has_the_messages_that_its_parent_had() {
    let (a, from_b, b, to_a) = pair("inherited", Endpoint::builder(), Endpoint::builder());
    let messages = RefCell::new(Vec::new());
    for (at, len) in LENGTHS.into_iter().enumerate() {
        std::thread::scope(|scope| {
            scope.spawn(|| b.send(to_a, 1, &stamp::bytes(len, at as u64)).unwrap());
            messages.borrow_mut().push(a.recv(from_b, 1).unwrap());
        });
    }
    let are_whole = |messages: &[Message]| {
        let wrong = |(at, message): (usize, &Message)| stamp::wrong_at(message, at as u64);
        messages.iter().enumerate().all(|it| wrong(it).is_none())
    };
    let ended = fork(|| {
        let well = are_whole(&messages.borrow());
        messages.borrow_mut().clear();
        i32::from(!well)
    });
    assert_eq!(ended, Ended::Code(0));
    assert!(are_whole(&messages.borrow()));
    drop(messages);
    std::thread::scope(|scope| {
        scope.spawn(|| b.send(to_a, 1, &stamp::bytes(1 << 20, 99)).unwrap());
        stamp::check(&a.recv(from_b, 1).unwrap(), 99);
    });
}
