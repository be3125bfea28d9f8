#![allow(unsafe_code)]
//! Attackers that hand over arenas without memory, and a victim that has none to spare: a process
//! that touches a hole of a file pays for it.

use std::time::{Duration, Instant};

use pinfold::{Endpoint, Error, OwnedBufMut, Path, PeerId, TagMatch};
use pinfold_tests::{
    Args, Stage,
    baseline::{Mapped, segments},
    group::Group,
    host::send_raw,
    role::{self, hear, say},
    skip,
};
use rustix::fs::SealFlags;

use super::{
    HOSTILE, PATIENCE, SEQ, consumed,
    donations::{
        EXTENT, LARGE, RTS, WRITABLE, add, announcement, file, good, right, send_on_channel,
    },
    is_cut_off, newest, sockets,
};

const LIMIT: u64 = 96 << 20;
const ROOM: usize = 32 << 20;
/// The bit of an announcement, beside the number of its parts, that says that the memory was given
/// away.
const GIVEN: u64 = 1 << 33;

/// One victim that does `what` with the offered arenas, under a limit.
fn play(what: &str) {
    let group = match Group::new(LIMIT) {
        Ok(group) => group,
        Err(error) => return skip(&format!("making a memory control group: {error}")),
    };
    let stage = Stage::new(120);
    let mut poor = stage.role("poor").with("what", what).spawn();
    poor.expect("begins");
    if let Err(error) = group.add(poor.pid()) {
        return skip(&format!("entering a memory control group: {error}"));
    }
    poor.say("go on");
    poor.expect("ready");
    let mut beggar = stage.role("beggar").with("what", what).spawn();
    // Announced messages are looked at only while their sender lives.
    poor.expect("through");
    beggar.say("go");
    beggar.end_well();
    poor.end_well();
    assert_eq!(group.kills(), 0);
}

#[test]
fn messages_in_holes_take_no_memory_of_the_victim() {
    play("copy");
}

#[test]
fn donations_of_holes_take_no_memory_of_the_victim() {
    play("look");
}

/// Takes every offered message, into memory that it has already.
pub fn poor(args: &Args) {
    say("begins");
    hear();
    let (endpoint, peer) = role::listen(Endpoint::builder(), "victim");
    let any = TagMatch::masked(HOSTILE, 0xffff);
    match args.text("what") {
        "copy" => copy(&endpoint, peer, any),
        _ => look(&endpoint, peer, any),
    }
    say("through");
    let end = endpoint.recv(peer, any).expect_err("nothing more is announced");
    assert!(end.is_peer_gone(), "{end}");
}

/// Memory that all receives share: nothing ever comes.
#[derive(Clone, Copy)]
struct Room(*mut u8);

// SAFETY: plain memory that is there for good.
unsafe impl Send for Room {}
// SAFETY: as above, and no other code looks at it.
unsafe impl OwnedBufMut for Room {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.0, ROOM)
    }
}

fn copy(endpoint: &Endpoint, peer: PeerId, any: TagMatch) {
    if let Some(why) = endpoint.peer(peer).and_then(|peer| peer.cma_refused) {
        // The message would wait for pieces that never come.
        return role::skip(format_args!("a message in a hole, without the cma path: {why}"));
    }
    let room = Room(vec![1u8; ROOM].leak().as_mut_ptr());
    let mut out = Vec::new();
    for number in 0..LARGE as usize / ROOM * 2 {
        let mut request = endpoint.recv_owned(peer, any, room);
        match request.wait_timeout(Duration::from_millis(50)) {
            // Its sender is asked to send it, and never does.
            None => out.push(request),
            Some((other, _)) => panic!("message {number}: it does not come: {other:?}"),
        }
    }
}

fn look(endpoint: &Endpoint, peer: PeerId, any: TagMatch) {
    let mut room = vec![1u8; ROOM];
    for number in 0..LARGE as usize / ROOM * 2 {
        let view = endpoint.recv_view(peer, any).expect("a view");
        assert_eq!(view.receipt().path, Path::Handoff);
        for at in [ROOM - 4096, ROOM / 2 + 1] {
            match view.read(at, &mut room[at..]) {
                Err(Error::Os { source, .. }) => {
                    assert_eq!(
                        source.raw_os_error(),
                        Some(rustix::io::Errno::NODATA.raw_os_error())
                    );
                }
                other => {
                    panic!("donated buffer {number}: what is not there is an error: {other:?}")
                }
            }
        }
        assert!(view.to_vec().is_err());
    }
}

/// Announces one gigabyte of nothing, twice: in a file that no process can write, and in one that
/// it could still take memory out of.
pub fn beggar(args: &Args) {
    let before = segments();
    // Never driven again: the answers would be news to it.
    let _connected = role::connect(Endpoint::builder(), "victim");
    let segment = segments().into_iter().find(|segment| !before.contains(segment));
    let segment = segment.expect("a segment");
    let others = file(LARGE, right() - SealFlags::FUTURE_WRITE, false, 9000).expect("a file");
    let all = LARGE / ROOM as u64;
    let flags = if args.text("what") == "look" { GIVEN } else { 0 };
    for (extent, kind, file) in [(1, EXTENT, good(LARGE, 9000)), (2, EXTENT | WRITABLE, others)] {
        send_on_channel([kind, extent, LARGE], &[file]);
        for part in 0..all {
            let number = extent * all + part;
            let offset = part * ROOM as u64;
            let mut body = announcement(HOSTILE | number, ROOM as u64, extent, offset);
            body[3] |= flags;
            add(segment, RTS, 1000 + number, &body);
            if !is_taken(segment, number) {
                return;
            }
        }
    }
    hear();
}

/// Waits until the victim has taken the last descriptor. Returns whether it did not cut us off.
fn is_taken(segment: Mapped, number: u64) -> bool {
    let end = Instant::now() + PATIENCE;
    while consumed(segment) & SEQ < newest(segment).0 {
        sockets().into_iter().for_each(|socket| drop(send_raw(socket, &[1], &[])));
        std::thread::sleep(Duration::from_micros(100));
        if is_cut_off(segment) {
            return false;
        }
        assert!(Instant::now() < end, "message {number} is not taken");
    }
    true
}
