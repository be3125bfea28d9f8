#![allow(unsafe_code)]
// Invariant: memory that is exposed or changed is the test's own, and raw pointers alone reach it.
//! Memory that is unmapped, replaced, moved and discarded between uses: none of them finds the old
//! contents.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use pinfold::{Endpoint, Path, Rights, SharedArena, SharedBuf};
use pinfold_tests::{
    Args,
    host::{Ended, fork},
    role,
    skip::{again, is_long},
    stamp::{self, Random},
};

use super::{
    memory::{Area, PAGE, advise, fd, file, map, map_at_best, move_over, unmap},
    play, space, tell, told,
};

#[test]
fn what_is_read_and_written_is_what_is_there_now() {
    play("changer", "follower");
}

const LEN: usize = 24 * PAGE;

fn rounds() -> u64 {
    if is_long() { 100_000 } else { again(1500) }
}

/// Changes the memory behind an address.
fn change(area: Area, random: &mut Random) {
    match random.below(9) {
        0 => {
            unmap(area);
            // Most often at the area's address; another mapping of this process in between.
            let other = map(None, LEN, libc::MAP_PRIVATE, None);
            other.fill(8);
            unmap(other);
            map(Some(area), LEN, libc::MAP_PRIVATE, None);
        }
        1 => _ = map(Some(area), LEN, libc::MAP_PRIVATE, None),
        2 => _ = map(Some(area), LEN, libc::MAP_SHARED, None),
        3 => _ = map(Some(area), LEN, libc::MAP_SHARED, fd(&file(LEN, 1))),
        4 => _ = map(Some(area), LEN, libc::MAP_PRIVATE, fd(&file(LEN, 2))),
        5 => {
            let other = map(None, LEN, libc::MAP_PRIVATE, None);
            other.fill(3);
            move_over(other, area);
        }
        6 => advise(area, libc::MADV_DONTNEED),
        7 => {
            let part = Area { at: area.at.wrapping_add(5 * PAGE), len: 7 * PAGE };
            unmap(part);
            map(Some(part), part.len, libc::MAP_PRIVATE, None);
        }
        _ => assert_eq!(fork(|| 0), Ended::Code(0)),
    }
}

pub fn changer(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "churn");
    let area = map(None, LEN, libc::MAP_PRIVATE, None);
    let addresses = area.address()..area.address() + LEN;
    // SAFETY: reached by raw pointers alone.
    let exposed = unsafe { endpoint.expose(addresses, Rights::ReadWrite) }.unwrap();
    endpoint.send(peer, 1, &exposed.key().to_bytes()).unwrap();
    let over = AtomicBool::new(false);
    // A lock, so that no other mapping gets the addresses of the area while nothing is there.
    let apart = Mutex::new(());
    let mut random = Random::new(5);
    std::thread::scope(|scope| {
        // Other threads map and unmap meanwhile.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let alone = apart.lock().unwrap();
                let other = map(None, LEN, libc::MAP_PRIVATE, None);
                drop(alone);
                other.fill(4);
                let _alone = apart.lock().unwrap();
                unmap(other);
            }
        });
        for round in 1..=rounds() {
            let alone = apart.lock().unwrap();
            change(area, &mut random);
            drop(alone);
            area.fill(2 * round);
            tell(&endpoint, peer, &[2 * round]);
            told(&endpoint, peer);
            area.check(2 * round + 1);
        }
        over.store(true, Ordering::Relaxed);
    });
    tell(&endpoint, peer, &[]);
    exposed.revoke().unwrap();
}

pub fn follower(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "churn");
    let space = space(&endpoint, peer);
    let start = space.addresses().start;
    let mut bytes = vec![0; LEN];
    while let Some(seed) = told(&endpoint, peer).first() {
        space.read(start, &mut bytes).unwrap();
        stamp::check(&bytes, *seed);
        space.write(start, &stamp::bytes(LEN, seed + 1)).unwrap();
        tell(&endpoint, peer, &[]);
    }
}

/// Arenas come and go, and other memory, perhaps at their addresses: a mapping of one is not taken
/// for it.
#[test]
fn arenas_that_are_gone_are_not_taken_for_what_comes_after_them() {
    play("recycler", "rereader");
}

const BUF: usize = 100_000;

pub fn recycler(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "recycled");
    // SAFETY: the peer writes nothing but what it is told to.
    let exposed = unsafe { endpoint.expose(0..1 << 47, Rights::ReadWrite) }.unwrap();
    endpoint.send(peer, 1, &exposed.key().to_bytes()).unwrap();
    let mut kept: Vec<SharedBuf> = Vec::new();
    let mut seed = 0;
    let mut ask = |area: Area| {
        seed += 2;
        area.fill(seed);
        tell(&endpoint, peer, &[area.address() as u64, seed]);
        told(&endpoint, peer);
        area.check(seed + 1);
    };
    for round in 0..60 {
        let arena = SharedArena::builder().bytes_max(1 << 20).build_shared().unwrap();
        let buf = arena.alloc(BUF).unwrap();
        let area = Area::of(&buf);
        (0..3).for_each(|_| ask(area));
        if round % 7 == 0 {
            kept.push(buf);
        } else {
            drop(buf);
        }
        drop(arena);
        // Maps at the buffer's address, if nothing is there.
        let plain = map_at_best(area.at.wrapping_sub(area.address() % PAGE), 2 << 20);
        for part in [area.address() % PAGE, 1 << 20, 64] {
            ask(Area { at: plain.at.wrapping_add(part), len: BUF });
        }
        unmap(plain);
        if let Some(buf) = kept.first() {
            ask(Area::of(buf));
        }
    }
    tell(&endpoint, peer, &[]);
    exposed.revoke().unwrap();
}

pub fn rereader(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "recycled");
    let space = space(&endpoint, peer);
    let mut bytes = vec![0; BUF];
    let (mut mapped, mut all) = (0, 0);
    while let [address, seed] = told(&endpoint, peer)[..] {
        let receipt = space.read(address, &mut bytes).unwrap();
        stamp::check(&bytes, seed);
        space.write(address, &stamp::bytes(BUF, seed + 1)).unwrap();
        tell(&endpoint, peer, &[]);
        mapped += u32::from(receipt.path == Path::Mapped);
        all += 1;
    }
    assert_eq!(mapped > 60, args.text("way") == "all", "{mapped} of {all} were mapped");
}
