//! The exchange of the two sides of a pair: a little of everything.
#![allow(unsafe_code)]
// Invariant: exposed memory is not touched until the exposure has ended.

use std::{
    io::{IoSlice, IoSliceMut},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use pinfold::{
    Arena, Endpoint, Error, Path, PeerId, RegionKey, Rights, SharedArena, Source, TagMatch, status,
};
use pinfold_sys::cpu::clock;
use pinfold_tests::stamp;

/// Lengths around the boundaries between the ways.
const LENGTHS: [usize; 8] = [0, 8, 56, 57, 2000, 9000, 100_000, 1 << 20];

/// Long enough for a waiting thread to fall asleep.
const DOZE: Duration = Duration::from_millis(3);

/// The handler that sends a request's bytes back.
const ECHO: u32 = 1;

type Done = Result<(), Error>;
type Step = (&'static str, fn(&Endpoint, PeerId, bool) -> Done);

/// A step, and its error.
pub struct Failed {
    pub step: &'static str,
    pub error: Error,
}

/// One side of the whole exchange. `first` begins.
pub fn with(endpoint: &Endpoint, peer: PeerId, first: bool) -> Result<(), Failed> {
    let steps: [Step; 8] = [
        ("messages", messages),
        ("parts", parts),
        ("sleeping", sleeping),
        ("donations", donations),
        ("regions", regions),
        ("spaces", spaces),
        ("active messages", active),
        ("looking", looking),
    ];
    for (step, take) in steps {
        take(endpoint, peer, first).map_err(|error| Failed { step, error })?;
    }
    Ok(())
}

/// Both sides send and both receive, in turns.
fn in_turns(
    first: bool,
    mut send: impl FnMut() -> Done,
    mut receive: impl FnMut() -> Done,
) -> Done {
    if first {
        send()?;
        receive()
    } else {
        receive()?;
        send()
    }
}

fn messages(endpoint: &Endpoint, peer: PeerId, first: bool) -> Done {
    for len in LENGTHS {
        let bytes = stamp::bytes(len, 1);
        in_turns(
            first,
            || {
                endpoint.send(peer, 1, &bytes)?;
                endpoint.send_owned(peer, 2, bytes.clone()).wait().0.map(drop)
            },
            || {
                let mut into = vec![0; len];
                endpoint.recv_into(peer, 1, &mut into)?;
                assert!(into == bytes, "{len} bytes came wrong");
                let message = endpoint.recv(Source::Any, TagMatch::exact(2))?;
                assert!(*message == *bytes, "{len} bytes came wrong");
                Ok(())
            },
        )?;
    }
    Ok(())
}

fn parts(endpoint: &Endpoint, peer: PeerId, first: bool) -> Done {
    let bytes = stamp::bytes(300_000, 2);
    let (head, tail) = bytes.split_at(100_001);
    in_turns(
        first,
        || endpoint.send_vectored(peer, 1, &[IoSlice::new(head), IoSlice::new(tail)]).map(drop),
        || {
            let (mut one, mut two) = (vec![0; 9], vec![0; bytes.len() - 9]);
            let mut parts = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
            endpoint.recv_vectored(peer, 1, &mut parts)?;
            assert!(one == bytes[..9] && two == bytes[9..], "parts came wrong");
            Ok(())
        },
    )
}

/// The waiting side has fallen asleep.
fn sleeping(endpoint: &Endpoint, peer: PeerId, first: bool) -> Done {
    for len in [8, 100_000] {
        let bytes = stamp::bytes(len, 3);
        in_turns(
            first,
            || {
                clock::pause(DOZE);
                endpoint.send(peer, 1, &bytes).map(drop)
            },
            || {
                let message = endpoint.recv(peer, 1)?;
                assert!(*message == *bytes, "{len} bytes came wrong");
                Ok(())
            },
        )?;
    }
    let nothing = endpoint.recv_timeout(peer, 99, DOZE);
    if !matches!(nothing, Err(Error::Timeout(_))) {
        nothing?;
    }
    Ok(())
}

fn donations(endpoint: &Endpoint, peer: PeerId, first: bool) -> Done {
    let (arena, shared) = (Arena::new()?, SharedArena::builder().build_shared()?);
    for len in [8, 300_000, 3 << 20] {
        let bytes = stamp::bytes(len, 4);
        in_turns(
            first,
            || {
                let mut memory = arena.alloc(len)?;
                memory.copy_from_slice(&bytes);
                endpoint.handoff(peer, 1, memory).wait().0?;
                let words = shared.alloc(len)?;
                words.write(0, &bytes);
                endpoint.handoff(peer, 1, words).wait().0?;
                let mut memory = arena.alloc(len)?;
                memory.copy_from_slice(&bytes);
                endpoint.give(peer, 1, memory)
            },
            || {
                for _ in 0..2 {
                    let view = endpoint.recv_view(peer, 1)?;
                    assert!(view.to_vec()? == bytes, "{len} bytes given came wrong");
                }
                let message = endpoint.recv(peer, 1)?;
                assert!(*message == *bytes, "{len} bytes given came wrong");
                Ok(())
            },
        )?;
    }
    let _ = (arena.trim(), shared.trim());
    Ok(())
}

fn key_from(endpoint: &Endpoint, peer: PeerId) -> Result<RegionKey, Error> {
    let bytes = endpoint.recv(peer, 1)?;
    Ok(RegionKey::from_bytes(&bytes).expect("a key"))
}

fn regions(endpoint: &Endpoint, peer: PeerId, first: bool) -> Done {
    const LEN: usize = 1 << 20;
    let bytes = stamp::bytes(LEN / 2, 5);
    in_turns(
        first,
        || {
            let region = endpoint.region(LEN, Rights::ReadWrite)?;
            endpoint.send(peer, 1, &region.key().expect("it stands").to_bytes())?;
            endpoint.recv(peer, 2)?;
            assert!(region.to_vec()?[4096..][..bytes.len()] == bytes, "a region came wrong");
            Ok(())
        },
        || {
            let remote = endpoint.open_region(peer, &key_from(endpoint, peer)?)?;
            remote.write(4096, &bytes)?;
            remote.flush()?;
            let mut back = vec![0; bytes.len()];
            remote.read(4096, &mut back)?;
            assert!(back == bytes, "a region came wrong");
            if remote.path() != pinfold::Path::Cma {
                let before = remote.fetch_add(8, 5u64)?;
                assert_eq!(remote.swap(8, 0u64)?, before + 5);
            }
            endpoint.send(peer, 2, b"over").map(drop)
        },
    )
}

fn spaces(endpoint: &Endpoint, peer: PeerId, first: bool) -> Done {
    const LEN: usize = 1 << 20;
    let bytes = stamp::bytes(LEN / 2, 6);
    in_turns(
        first,
        || {
            let mut memory = vec![0u8; LEN];
            memory[..bytes.len()].copy_from_slice(&bytes);
            let at = memory.as_mut_ptr() as usize;
            // SAFETY: no thread touches it until the exposure has ended.
            let exposed = unsafe { endpoint.expose(at..at + LEN, Rights::ReadWrite) }?;
            endpoint.send(peer, 1, &exposed.key().to_bytes())?;
            endpoint.recv(peer, 2)?;
            exposed.revoke()?;
            assert!(memory[bytes.len()..] == bytes, "exposed memory came wrong");
            Ok(())
        },
        || {
            let space = endpoint.open_space(peer, &key_from(endpoint, peer)?)?;
            let from = space.addresses().start;
            let mut back = vec![0; bytes.len()];
            space.read(from, &mut back)?;
            assert!(back == bytes, "exposed memory came wrong");
            space.write(from + bytes.len() as u64, &bytes)?;
            // Without one of the calls for it, the owner refuses, and says so.
            match space.fetch_add(from.next_multiple_of(8), 0u64) {
                Ok(_) | Err(Error::PathRefused { path: Path::Mapped, .. }) => {}
                Err(error) => return Err(error),
            }
            endpoint.send(peer, 2, b"over").map(drop)
        },
    )
}

fn active(endpoint: &Endpoint, peer: PeerId, first: bool) -> Done {
    in_turns(
        first,
        || {
            let wrong = std::sync::Arc::new(AtomicBool::new(false));
            let tells = std::sync::Arc::clone(&wrong);
            endpoint.handle(ECHO, move |active| {
                tells.fetch_or(active.reply(active.payload()).is_err(), Ordering::Relaxed);
            })?;
            endpoint.send(peer, 1, b"ready")?;
            endpoint.recv(peer, 2)?;
            assert!(endpoint.unhandle(ECHO) && !wrong.load(Ordering::Relaxed));
            Ok(())
        },
        || {
            endpoint.recv(peer, 1)?;
            for len in [0, 56, 300, 100_000] {
                let bytes = stamp::bytes(len, 7);
                let back = endpoint.request(peer, ECHO, &bytes).wait()?;
                assert!(*back == *bytes, "an answer of {len} bytes came wrong");
            }
            endpoint.send(peer, 2, b"over").map(drop)
        },
    )
}

/// The view of `pinfold top`, and the calls of a program with a loop of its own.
fn looking(endpoint: &Endpoint, peer: PeerId, first: bool) -> Done {
    status::endpoints_of(std::process::id())?;
    endpoint.arm()?;
    in_turns(
        first,
        || endpoint.send(peer, 1, b"bye").map(drop),
        || endpoint.recv(peer, 1).map(drop),
    )?;
    endpoint.drain(Duration::from_secs(20))
}
