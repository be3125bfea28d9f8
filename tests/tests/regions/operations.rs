//! The effects of reads and writes, by mapping and through the kernel.

use std::{sync::atomic::Ordering, thread};

use pinfold::{Endpoint, Error, Path, Receipt, Refusal, RegionKey, RemoteRegion, Rights};
use pinfold_tests::{
    Args, Baseline,
    role::{self, PATIENCE},
    stamp::{self, Random},
};

use super::{hand_over, is_barred, key_from, path, play_both_ways, revoked, serve};

#[test]
fn reads_and_writes() {
    play_both_ways("owner", "user");
}

const LEN: usize = (1 << 20) + 77;

pub fn owner(args: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::listen(Endpoint::builder(), "regions");
    if is_barred(args, &endpoint, peer) {
        return;
    }
    let mut region = endpoint.region(LEN, Rights::ReadWrite).unwrap();
    let readable = endpoint.region(5000, Rights::Read).unwrap();
    assert_eq!((region.len(), region.rights()), (LEN, Rights::ReadWrite));
    readable.write(0, &stamp::bytes(5000, 3)).unwrap();
    hand_over(&endpoint, peer, &region);
    hand_over(&endpoint, peer, &readable);
    serve(&endpoint, peer);
    // The writer's last write is here.
    stamp::check(&region.to_vec().unwrap(), 44);
    assert!(matches!(region.read(LEN, &mut [0]), Err(Error::OutOfBounds { .. })));
    assert!(matches!(region.write(usize::MAX, b"x"), Err(Error::OutOfBounds { .. })));
    // A word that the peer polls while this side writes, and the other way round.
    endpoint.send(peer, 2, b"seen").unwrap();
    for round in 1..2000u64 {
        while region.word64(64).unwrap().load(Ordering::Acquire) != round {}
        region.word64(0).unwrap().store(round, Ordering::Release);
    }
    serve(&endpoint, peer);
    let old = region.key().unwrap();
    region.revoke().unwrap();
    assert_eq!(region.key(), None);
    let contents = region.to_vec().unwrap();
    endpoint.send(peer, 2, b"revoked").unwrap();
    serve(&endpoint, peer);
    assert!(region.to_vec().unwrap() == contents, "it changed after it was revoked");
    // The region can be used again, by another key only.
    let new = region.expose().unwrap();
    assert_ne!(old, new);
    hand_over(&endpoint, peer, &region);
    serve(&endpoint, peer);
    drop((region, readable));
    endpoint.send(peer, 2, b"dropped").unwrap();
    serve(&endpoint, peer);
    drop(endpoint);
    before.returns(PATIENCE);
}

pub fn user(args: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::connect(args.builder(), "regions");
    if is_barred(args, &endpoint, peer) {
        return;
    }
    let path = path(args);
    let key = key_from(&endpoint, peer);
    let region = endpoint.open_region(peer, &key).unwrap();
    let readable = endpoint.open_region(peer, &key_from(&endpoint, peer)).unwrap();
    assert_eq!(
        (region.len(), region.rights(), region.peer()),
        (LEN as u64, Rights::ReadWrite, peer)
    );
    let why = (path == Path::Cma).then_some(Refusal::SwitchedOff);
    for region in [&region, &readable] {
        assert_eq!((region.path(), region.why_not_mapped()), (path, why));
        assert!(format!("{region:?}").contains(&format!("{path:?}")), "{region:?}");
    }
    assert_eq!((readable.len(), readable.rights()), (5000, Rights::Read));
    assert_eq!(RegionKey::from_bytes(&key.to_bytes()).unwrap(), key);
    assert!(matches!(RegionKey::from_bytes(b"short"), Err(Error::BadKey)));
    let guesses = [key.to_bytes().map(|byte| byte ^ 0x80), [0; 24], [0xff; 24]];
    for guess in guesses {
        let guess = RegionKey::from_bytes(&guess).unwrap();
        assert!(matches!(endpoint.open_region(peer, &guess), Err(Error::BadKey)));
    }
    // Every size and alignment, against a model.
    let mut model = vec![0; LEN];
    let mut random = Random::new(5);
    for len in [0, 1, 3, 7, 8, 9, 63, 64, 65, 100, 4096, 4097, 100_000, LEN - 70] {
        for _ in 0..20 {
            let at = random.below((LEN - len) as u64 + 1) as usize;
            let data = stamp::bytes(len, at as u64);
            let receipt = region.write(at as u64, &data).unwrap();
            copied(&receipt, path, len);
            assert_eq!(receipt.refused(Path::Mapped), why);
            model[at..at + len].copy_from_slice(&data);
            let mut back = vec![0; len];
            copied(&region.read(at as u64, &mut back).unwrap(), path, len);
            assert_eq!(back, data);
        }
    }
    let mut all = vec![0; LEN];
    region.read(0, &mut all).unwrap();
    assert!(all == model, "something else was written, too");
    // Parts, of which none is written if one cannot be.
    many_parts(&region, &mut model, &mut random);
    region.write_vectored(&[(10, b"one"), (4099, b"two"), (20, b"")]).unwrap();
    let (mut one, mut two) = ([0; 3], [0; 3]);
    region.read_vectored(&mut [(10, &mut one), (4099, &mut two)]).unwrap();
    assert_eq!((&one, &two), (b"one", b"two"));
    let beyond = region.write_vectored(&[(10, b"ten"), (LEN as u64 - 2, b"far")]);
    assert!(matches!(beyond, Err(Error::OutOfBounds { len: 3, .. })));
    region.read(10, &mut one).unwrap();
    assert_eq!(&one, b"one");
    for (offset, len) in [(LEN as u64, 1), (LEN as u64 + 1, 0), (u64::MAX, 2), (u64::MAX - 1, 1)] {
        let data = vec![0; len];
        assert!(matches!(region.write(offset, &data), Err(Error::OutOfBounds { .. })), "{offset}");
        let read = region.read(offset, &mut vec![0; len]);
        assert!(matches!(read, Err(Error::OutOfBounds { .. })), "{offset}");
        if path == Path::Mapped {
            assert!(matches!(region.fetch_add(offset & !7, 1u64), Err(Error::OutOfBounds { .. })));
        }
    }
    if path == Path::Mapped {
        for offset in [1, 2, 4, 7, 9] {
            let add = region.fetch_add(offset, 1u64);
            assert!(matches!(add, Err(Error::Misaligned { size: 8, .. })), "{offset}");
        }
        assert!(region.fetch_add(4, 1u32).is_ok());
    } else {
        let (mut before, mut after) = ([0; 16], [0; 16]);
        region.read(0, &mut before).unwrap();
        for refused in [region.fetch_add(8, 1u64), region.compare_swap(0, 0, 9u64)] {
            let why = Refusal::SwitchedOff;
            match refused {
                Err(Error::PathRefused { path: Path::Mapped, why: said }) => assert_eq!(said, why),
                other => panic!("{other:?}"),
            }
        }
        region.read(0, &mut after).unwrap();
        assert_eq!(before, after);
    }
    // A region that may only be read.
    let mut bytes = vec![0; 5000];
    readable.read(0, &mut bytes).unwrap();
    stamp::check(&bytes, 3);
    assert!(matches!(readable.write(0, b"x"), Err(Error::ReadOnly)));
    assert!(matches!(readable.write_vectored(&[(0, b"x")]), Err(Error::ReadOnly)));
    if path == Path::Mapped {
        assert!(matches!(readable.swap(0, 1u64), Err(Error::ReadOnly)));
    }
    region.write(0, &stamp::bytes(LEN, 44)).unwrap();
    region.flush().unwrap();
    endpoint.send(peer, 99, b"").unwrap();
    endpoint.recv(peer, 2).unwrap();
    for round in 1..2000u64 {
        region.write(64, &round.to_ne_bytes()).unwrap();
        let mut word = [0; 8];
        while u64::from_ne_bytes(word) != round {
            region.read(0, &mut word).unwrap();
        }
    }
    endpoint.send(peer, 99, b"").unwrap();
    // After it was revoked nothing succeeds, and nothing has an effect.
    endpoint.recv(peer, 2).unwrap();
    revoked(&region);
    readable.read(0, &mut [0]).unwrap();
    assert!(matches!(endpoint.open_region(peer, &key), Err(Error::BadKey)));
    endpoint.send(peer, 99, b"").unwrap();
    let again = endpoint.open_region(peer, &key_from(&endpoint, peer)).unwrap();
    let clone = again.clone();
    again.write(5, b"again").unwrap();
    revoked(&region);
    endpoint.send(peer, 99, b"").unwrap();
    endpoint.recv(peer, 2).unwrap();
    for region in [again, readable] {
        assert!(matches!(region.read(0, &mut [0]), Err(Error::Revoked)));
    }
    thread::spawn(move || revoked(&clone)).join().unwrap();
    endpoint.send(peer, 99, b"").unwrap();
    assert!(endpoint.recv(peer, 5).unwrap_err().is_peer_gone());
    assert!(matches!(region.read(0, &mut [0]), Err(Error::Withdrawn)));
    drop(region);
    drop(endpoint);
    before.returns(PATIENCE);
}

fn copied(receipt: &Receipt, path: Path, len: usize) {
    let len = len as u64;
    let (user, kernel) = if path == Path::Mapped { (len, 0) } else { (0, len) };
    assert_eq!((receipt.path, receipt.bytes), (path, len));
    assert_eq!((receipt.copied_user, receipt.copied_kernel), (user, kernel));
}

/// More parts than go in one call, empty ones and long ones among them, against the model.
fn many_parts(region: &RemoteRegion, model: &mut [u8], random: &mut Random) {
    let lens = [0, 1, 7, 8, 100, 0, 4097, 300_000];
    let parts: Vec<(usize, Vec<u8>)> = (0..300u64)
        .map(|part| {
            let len = lens[random.below(if part % 50 == 0 { 8 } else { 7 }) as usize];
            (random.below((LEN - len) as u64 + 1) as usize, stamp::bytes(len, part))
        })
        .collect();
    let data: Vec<(u64, &[u8])> = parts.iter().map(|(at, data)| (*at as u64, &data[..])).collect();
    let sum = parts.iter().map(|(_, data)| data.len()).sum();
    copied(&region.write_vectored(&data).unwrap(), region.path(), sum);
    for (at, data) in &parts {
        model[*at..][..data.len()].copy_from_slice(data);
    }
    let mut back: Vec<(u64, Vec<u8>)> =
        parts.iter().map(|(at, data)| (*at as u64, vec![0xee; data.len()])).collect();
    let mut into: Vec<(u64, &mut [u8])> =
        back.iter_mut().map(|(at, bytes)| (*at, &mut bytes[..])).collect();
    copied(&region.read_vectored(&mut into).unwrap(), region.path(), sum);
    for (at, bytes) in back {
        assert!(bytes == model[at as usize..][..bytes.len()], "a part at {at}");
    }
    let mut all = vec![0; LEN];
    region.read(0, &mut all).unwrap();
    assert!(all == model, "something else was written, too");
}
