//! One-sided operations with peers on other hosts: as on one host, but that the owner has to make
//! progress.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use pinfold::{
    Endpoint, Error, Path, PeerId, Progress, Refusal, Region, RegionKey, RemoteRegion, Rights,
    SendMode,
};
use pinfold_tests::{
    driven,
    remote::use_until_withdrawn,
    stamp::{self, Random},
};

use super::{builder, pair};

/// Lengths of all ways that bytes go, and between them.
const LENGTHS: [usize; 15] = [
    0,
    1,
    8,
    16,
    17,
    48,
    49,
    4096,
    16_383,
    16_384,
    65_536,
    100_001,
    1 << 20,
    (1 << 20) + 1,
    (5 << 20) + 77,
];

fn opened(
    (one, _): &(Endpoint, PeerId),
    (two, to_one): &(Endpoint, PeerId),
    len: usize,
    rights: Rights,
) -> (Region, RemoteRegion) {
    let region = one.region(len, rights).unwrap();
    let key = region.key().unwrap();
    (region, driven(one, || two.open_region(*to_one, &key)).unwrap())
}

const BOTH: [Progress; 2] = [Progress::Inline, Progress::Dedicated];

#[test]
fn they_say_what_they_are() {
    let (one, two) = pair(builder(Progress::Inline), builder(Progress::Inline));
    for (rights, len) in [(Rights::Read, 0), (Rights::ReadWrite, 4096)] {
        let (_region, remote) = opened(&one, &two, len, rights);
        assert_eq!((remote.len(), remote.rights(), remote.peer()), (len as u64, rights, two.1));
        assert_eq!((remote.path(), remote.is_empty()), (Path::Eager, len == 0));
        assert_eq!(remote.why_not_mapped(), Some(Refusal::OtherHost));
    }
    // A program that has switched off the way that it would go is told so.
    let inline = |builder: pinfold::Builder| {
        builder.paths(pinfold::PathSet::only(&[Path::Inline, Path::Cma]))
    };
    let sets = [
        (
            inline(builder(Progress::Dedicated)),
            builder(Progress::Inline),
            Refusal::SwitchedOffByPeer,
        ),
        (builder(Progress::Dedicated), inline(builder(Progress::Inline)), Refusal::SwitchedOff),
    ];
    for (owner, user, said) in sets {
        let (owner, user) = pair(owner, user);
        let region = owner.0.region(8, Rights::Read).unwrap();
        let error = user.0.open_region(user.1, &region.key().unwrap()).unwrap_err();
        let fits = matches!(error, Error::PathRefused { path: Path::Eager, why } if why == said);
        assert!(fits, "{error}");
    }
    let stranger = RegionKey::from_bytes(&[7; RegionKey::BYTES]).unwrap();
    let error = driven(&one.0, || two.0.open_region(two.1, &stranger)).unwrap_err();
    assert!(matches!(error, Error::BadKey), "{error}");
}

/// All lengths and alignments, with either side as the owner, and both ways of progress.
#[test]
fn bytes_come_where_they_belong() {
    for progress in BOTH {
        let (one, two) = pair(builder(progress), builder(Progress::Inline));
        for (owner, user) in [(&one, &two), (&two, &one)] {
            let size = (6 << 20) + 123;
            let (region, remote) = opened(owner, user, size, Rights::ReadWrite);
            let mut model = vec![0; size];
            let mut random = Random::new(1);
            driven(&owner.0, || {
                for (seed, len) in (1..).zip(LENGTHS.into_iter().cycle().take(40)) {
                    let at = match random.below(3) {
                        0 => random.below((size - len) as u64 + 1) as usize,
                        1 => size - len,
                        _ => (random.below((size - len) as u64 + 1) as usize) & !7,
                    };
                    let new = stamp::bytes(len, seed);
                    let wrote = remote.write(at as u64, &new).unwrap();
                    assert_eq!((wrote.path, wrote.bytes), (Path::Eager, len as u64));
                    let copied = (wrote.copied_user, wrote.copied_kernel);
                    let bulk = len >= 16 << 10;
                    assert_eq!(copied, if bulk { (0, len as u64) } else { (len as u64, 0) });
                    assert_eq!(wrote.sent_by().is_some(), bulk);
                    assert_eq!(wrote.refused(Path::Mapped), Some(Refusal::OtherHost));
                    assert_eq!(wrote.refused(Path::Cma), Some(Refusal::OtherHost));
                    model[at..][..len].copy_from_slice(&new);
                    // The bytes are in the owner's memory when the write is over.
                    let mut there = vec![0; len];
                    region.read(at, &mut there).unwrap();
                    assert!(there == new, "{len} at {at}");
                    let around = at.saturating_sub(9)..(at + len + 9).min(size);
                    let mut read = vec![0xee; around.len()];
                    let receipt = remote.read(around.start as u64, &mut read).unwrap();
                    assert_eq!((receipt.path, receipt.bytes), (Path::Eager, read.len() as u64));
                    let copied = receipt.copied_user + receipt.copied_kernel;
                    assert_eq!(copied, read.len() as u64);
                    assert!(read == model[around.clone()], "{around:?}");
                }
                remote.flush().unwrap();
            });
            assert!(region.to_vec().unwrap() == model);
        }
        // None of these operations was a message.
        for (endpoint, peer) in [&one, &two] {
            let none = endpoint.recv_timeout(*peer, pinfold::TagMatch::any(), Default::default());
            assert!(matches!(none, Err(Error::Timeout(_))), "{none:?}");
            let counted = endpoint.counters();
            let messages = counted.sent.iter().chain(&counted.received).map(|it| it.messages);
            assert_eq!(messages.sum::<u64>(), 0);
        }
    }
}

/// Memory that the kernel sends from where it lies, a region's or the writer's, is left alone until
/// it no longer looks; also if the region is revoked meanwhile.
#[test]
fn they_go_by_every_mode() {
    for mode in [SendMode::TwoCopy, SendMode::PerSend, SendMode::Cached] {
        let by = |progress| builder(progress).send_mode(mode).io_uring(true);
        let (one, two) = pair(by(Progress::Dedicated), by(Progress::Inline));
        let (mut region, remote) = opened(&one, &two, 4 << 20, Rights::ReadWrite);
        for (seed, len) in (0..).zip(LENGTHS.into_iter().filter(|len| *len <= 4 << 20)) {
            let mut new = stamp::bytes(len, seed);
            let wrote = remote.write(0, &new).unwrap();
            assert_eq!(wrote.sent_by().is_some(), len >= 16 << 10, "{mode:?}");
            new.fill(0xee);
            let mut read = vec![0; len];
            let receipt = remote.read(0, &mut read).unwrap();
            assert_eq!(receipt.bytes, len as u64);
            stamp::check(&read, seed);
        }
        let whole = stamp::bytes(4 << 20, 99);
        remote.write(0, &whole).unwrap();
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut read = vec![0; 4 << 20];
                for _ in 0..1000 {
                    match remote.read(0, &mut read) {
                        Ok(_) => assert!(read == whole),
                        Err(Error::Revoked) => return true,
                        Err(error) => panic!("{error}"),
                    }
                }
                false
            });
            thread::sleep(std::time::Duration::from_millis(10));
            region.revoke().unwrap();
            region.write(0, &vec![7; 4 << 20]).unwrap();
            assert!(reader.join().unwrap());
        });
    }
}

/// Several parts take effect in their order.
#[test]
fn parts_keep_their_order() {
    let (one, two) = pair(builder(Progress::Dedicated), builder(Progress::Inline));
    let (region, remote) = opened(&one, &two, 1 << 20, Rights::ReadWrite);
    let mut model = vec![0; 1 << 20];
    let mut random = Random::new(3);
    for round in 0..20 {
        let parts: Vec<(u64, Vec<u8>)> = (0..30)
            .map(|number| {
                let len = random.pick(&LENGTHS[..11]);
                // The parts overlap.
                (random.below(70_000), stamp::bytes(len, round << 8 | number))
            })
            .collect();
        let borrowed: Vec<(u64, &[u8])> =
            parts.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
        let receipt = remote.write_vectored(&borrowed).unwrap();
        let all: usize = parts.iter().map(|(_, bytes)| bytes.len()).sum();
        assert_eq!(receipt.bytes, all as u64);
        assert_eq!(receipt.copied_user + receipt.copied_kernel, all as u64);
        for (at, bytes) in &parts {
            model[*at as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        assert!(region.to_vec().unwrap() == model, "round {round}");
        let mut read: Vec<(u64, Vec<u8>)> =
            parts.iter().map(|(at, bytes)| (*at, vec![0; bytes.len()])).collect();
        let mut into: Vec<(u64, &mut [u8])> =
            read.iter_mut().map(|(at, bytes)| (*at, &mut bytes[..])).collect();
        remote.read_vectored(&mut into).unwrap();
        for (at, bytes) in &read {
            assert!(bytes[..] == model[*at as usize..][..bytes.len()]);
        }
    }
    // All parts are looked at before the first is written.
    let before = region.to_vec().unwrap();
    let error = remote.write_vectored(&[(0, b"here"), (1 << 20, b"there")]).unwrap_err();
    assert!(matches!(error, Error::OutOfBounds { .. }), "{error}");
    assert!(region.to_vec().unwrap() == before);
    assert_eq!(remote.write_vectored(&[]).unwrap().bytes, 0);
    assert_eq!(remote.read_vectored(&mut []).unwrap().bytes, 0);
}

/// A part that is read after a long part of the same call is not older than that.
#[test]
fn parts_are_read_in_their_order() {
    let (one, two) = pair(builder(Progress::Dedicated), builder(Progress::Inline));
    let len = 8 << 20;
    let (region, remote) = opened(&one, &two, 64 + len, Rights::ReadWrite);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let word = |at: usize| region.word64(at).unwrap();
            let mut value = 0;
            while !over.load(Ordering::Relaxed) {
                value += 1;
                word(0).store(value, Ordering::SeqCst);
                word(64 + len - 8).store(value, Ordering::SeqCst);
            }
        });
        let (mut long, mut short) = (vec![0; len], [0; 8]);
        let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
        let read: Vec<_> = (0..30)
            .map(|_| {
                let parts = &mut [(64, &mut long[..]), (0, &mut short[..])];
                let done = remote.read_vectored(parts).map(drop);
                (done, number(&long[len - 8..]), number(&short))
            })
            .collect();
        over.store(true, Ordering::Relaxed);
        for (done, was, is) in read {
            done.unwrap();
            assert!(is >= was, "{is} was read after {was}");
        }
    });
}

/// More threads than operations may be out at a time, at an owner that is busy with other things.
#[test]
fn many_threads_wait_for_their_turn() {
    let (one, two) = pair(builder(Progress::Inline), builder(Progress::Dedicated));
    let (region, remote) = opened(&one, &two, 300 << 16, Rights::ReadWrite);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..300u64)
            .map(|number| {
                let remote = &remote;
                scope.spawn(move || {
                    let (new, mut read) = (stamp::bytes(1 << 16, number), vec![1; 1 << 16]);
                    remote.read(number << 16, &mut read)?;
                    remote.write(number << 16, &new)?;
                    remote.read(number << 16, &mut read)?;
                    assert!(read == new);
                    Ok(())
                })
            })
            .collect();
        // Most threads have asked by then.
        thread::sleep(std::time::Duration::from_millis(300));
        driven(&one.0, || {
            let done: Result<Vec<()>, Error> =
                threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            done.unwrap();
        });
    });
    for (number, bytes) in (0u64..).zip(region.to_vec().unwrap().chunks(1 << 16)) {
        stamp::check(bytes, number);
    }
}

/// A write before a message is there when the message is.
#[test]
fn messages_come_after_what_was_written() {
    let (one, two) = pair(builder(Progress::Inline), builder(Progress::Inline));
    let (region, remote) = opened(&one, &two, 1 << 20, Rights::ReadWrite);
    thread::scope(|scope| {
        scope.spawn(|| {
            for (round, len) in (0u64..).zip(LENGTHS.into_iter().filter(|len| *len < 1 << 20)) {
                remote.write(5, &stamp::bytes(len, round)).unwrap();
                two.0.send(two.1, round, &len.to_le_bytes()).unwrap();
                two.0.recv(two.1, 1000).unwrap();
            }
        });
        for round in 0..LENGTHS.iter().filter(|len| **len < 1 << 20).count() as u64 {
            let message = one.0.recv(one.1, round).unwrap();
            let len = usize::from_le_bytes(message[..].try_into().unwrap());
            let mut there = vec![0; len];
            region.read(5, &mut there).unwrap();
            stamp::check(&there, round);
            one.0.send(one.1, 1000, b"").unwrap();
        }
    });
}

/// Operations go both ways at once, beside messages, and wait for none of them.
#[test]
fn both_ways_at_once_beside_messages() {
    for progress in BOTH {
        // Little credit: messages wait for it.
        let small = || builder(progress).unexpected_bytes_max(64 << 10);
        let (one, two) = pair(small(), small());
        let len = 3 << 20;
        let (mine, at_mine) = opened(&one, &two, len, Rights::ReadWrite);
        let (other, at_other) = opened(&two, &one, len, Rights::ReadWrite);
        let over = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            let over = &over;
            for (endpoint, remote, seed) in [(&one, at_other, 7), (&two, at_mine, 9)] {
                let stuck: Vec<_> = (0..40)
                    .map(|tag| {
                        endpoint.0.send_owned(endpoint.1, tag, stamp::bytes(9000, seed ^ tag))
                    })
                    .collect();
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for round in 0..60 {
                        let len = random.pick(&LENGTHS[..13]);
                        let at = random.below((2 << 20) - len as u64 / 2);
                        let new = stamp::bytes(len, seed << 32 | round);
                        remote.write(at, &new).unwrap();
                        let mut read = vec![0; len];
                        remote.read(at, &mut read).unwrap();
                        assert!(read == new, "{len} at {at}");
                    }
                    for tag in 0..40 {
                        let got = endpoint.0.recv(endpoint.1, tag).unwrap();
                        stamp::check(&got, (seed ^ 14) ^ tag);
                    }
                    for send in stuck {
                        send.wait().0.unwrap();
                    }
                    // The side that is over first is still asked.
                    over.wait();
                });
            }
        });
        drop((mine, other));
    }
}

#[test]
fn limits_are_kept() {
    let (one, two) = pair(builder(Progress::Dedicated), builder(Progress::Inline));
    let (region, remote) = opened(&one, &two, 1000, Rights::ReadWrite);
    let size = 1000;
    let far = [(1000, 1), (999, 2), (0, 1001), (u64::MAX, 1), (u64::MAX - 7, 8), (1 << 63, 8)];
    for (offset, len) in far {
        let mut bytes = vec![1; len];
        for error in [
            remote.write(offset, &bytes).unwrap_err(),
            remote.read(offset, &mut bytes).unwrap_err(),
        ] {
            assert!(
                matches!(error, Error::OutOfBounds { offset: o, len: l, size: s }
                    if (o, l, s) == (offset, len as u64, size)),
                "{error}"
            );
        }
    }
    let misaligned = remote.fetch_add(4, 1u64).unwrap_err();
    assert!(matches!(misaligned, Error::Misaligned { offset: 4, size: 8 }), "{misaligned}");
    assert!(matches!(remote.fetch_add(2, 1u32), Err(Error::Misaligned { .. })));
    assert!(matches!(remote.fetch_add(1000, 1u64), Err(Error::OutOfBounds { .. })));
    assert!(remote.write(1000, b"").is_ok() && remote.read(1000, &mut []).is_ok());
    assert!(region.to_vec().unwrap().iter().all(|byte| *byte == 0));

    let (region, remote) = opened(&one, &two, 1000, Rights::Read);
    region.write(0, &stamp::bytes(1000, 4)).unwrap();
    for refused in [
        remote.write(0, b"1").map(drop),
        remote.write_vectored(&[(0, b"1")]).map(drop),
        remote.swap(0, 1u64).map(drop),
    ] {
        assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
    }
    let mut read = vec![0; 1000];
    remote.read(0, &mut read).unwrap();
    stamp::check(&read, 4);
}

#[test]
fn revoked_regions_are_left_alone() {
    for progress in BOTH {
        let (one, two) = pair(builder(progress), builder(Progress::Inline));
        let (mut region, remote) = opened(&one, &two, 1 << 20, Rights::ReadWrite);
        driven(&one.0, || remote.write(0, b"before").unwrap());
        region.revoke().unwrap();
        let before = region.to_vec().unwrap();
        let revoked = |remote: &RemoteRegion| {
            for len in LENGTHS.into_iter().filter(|len| *len <= 1 << 20) {
                let mut bytes = vec![1; len];
                assert!(matches!(remote.write(0, &bytes), Err(Error::Revoked)), "{len}");
                assert!(matches!(remote.read(0, &mut bytes), Err(Error::Revoked)), "{len}");
            }
            assert!(matches!(remote.fetch_add(0, 1u64), Err(Error::Revoked)));
            assert!(matches!(remote.flush(), Err(Error::Revoked)));
        };
        driven(&one.0, || revoked(&remote));
        let key = region.expose().unwrap();
        assert!(region.to_vec().unwrap() == before);
        // The old key opens nothing; the new one does.
        let again = driven(&one.0, || two.0.open_region(two.1, &key)).unwrap();
        driven(&one.0, || {
            revoked(&remote);
            again.write(0, b"after!").unwrap();
        });
        assert_eq!(region.to_vec().unwrap()[..6], *b"after!");
        drop(region);
        driven(&one.0, || revoked(&again));
    }
}

/// Regions that are revoked while long and short operations are under way: operations that succeed
/// had their effect before, and none has one after.
#[test]
fn nothing_is_written_after_a_revocation() {
    let (one, two) = pair(builder(Progress::Dedicated), builder(Progress::Dedicated));
    let mut random = Random::new(5);
    for round in 0..60u64 {
        let len = if round % 3 == 0 { 4096 } else { 3 << 20 };
        let (mut region, remote) = opened(&one, &two, len, Rights::ReadWrite);
        let pause = random.below(2000);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut done = 0;
                for value in 1..=u8::MAX {
                    match remote.write(0, &vec![value; len]) {
                        Ok(_) => done = value,
                        Err(Error::Revoked) => break,
                        Err(error) => panic!("{error}"),
                    }
                    let mut read = vec![0; len];
                    match remote.read(0, &mut read) {
                        Ok(_) => assert!(read.iter().all(|byte| *byte == value), "{value}"),
                        Err(Error::Revoked) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                done
            });
            thread::sleep(std::time::Duration::from_micros(pause));
            region.revoke().unwrap();
            let first = region.to_vec().unwrap();
            let done = writer.join().unwrap();
            let last = region.to_vec().unwrap();
            assert!(first == last, "round {round}: written after it was revoked");
            // The last write may have been cut anywhere, the one before it was whole.
            let fits = |byte: &u8| *byte == done || *byte == done.wrapping_add(1);
            assert!(first.iter().all(fits), "round {round}: {done}");
        });
    }
}

/// Operations that are started by a copy engine are done at once.
#[test]
fn requests_work_as_well() {
    let (one, two) = pair(builder(Progress::Dedicated), builder(Progress::Inline));
    let (region, remote) = opened(&one, &two, 1 << 20, Rights::ReadWrite);
    let engine = pinfold::copy::engine::CopyEngine::new(Default::default());
    let new = stamp::bytes(300_000, 1);
    let (done, _) = remote.write_request(&engine, 77, new.clone()).wait().unwrap();
    assert_eq!(done.unwrap().bytes, 300_000);
    let (done, read) = remote.read_request(&engine, 77, vec![0; 300_000]).wait().unwrap();
    done.unwrap();
    assert!(read == new && region.to_vec().unwrap()[77..][..300_000] == new);
}

/// The counters agree with the operations that were done.
#[test]
fn operations_are_counted() {
    let (one, two) = pair(builder(Progress::Dedicated), builder(Progress::Inline));
    let (_region, remote) = opened(&one, &two, 1 << 20, Rights::ReadWrite);
    for _ in 0..3 {
        remote.write(0, &[1; 100]).unwrap();
        remote.read(0, &mut [0; 100_000]).unwrap();
        remote.fetch_add(0, 1u32).unwrap();
    }
    let counted = two.0.counters();
    let one_sided = &counted.one_sided;
    assert_eq!((one_sided.writes, one_sided.written_bytes), (3, 300));
    assert_eq!((one_sided.reads, one_sided.read_bytes), (3, 300_000));
    assert_eq!((one_sided.atomics, one_sided.by_agent), (3, 6));
}

/// Either side goes while operations are under way: they fail, and nothing hangs.
#[test]
fn ends_are_errors() {
    for (closes, progress) in
        [(0, Progress::Dedicated), (1, Progress::Dedicated), (0, Progress::Inline)]
    {
        let (one, two) = pair(builder(Progress::Dedicated), builder(progress));
        let (_region, remote) = opened(&one, &two, 4 << 20, Rights::ReadWrite);
        thread::scope(|scope| {
            use_until_withdrawn(scope, &remote);
            thread::sleep(std::time::Duration::from_millis(20));
            [&one.0, &two.0][closes].close();
        });
        assert!(matches!(remote.flush(), Err(Error::Withdrawn)));
    }
}
