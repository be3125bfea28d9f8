#![allow(unsafe_code)]
//! libfabric's calls, where the library is installed.

use std::{
    ffi::CStr,
    net::{Ipv4Addr, SocketAddrV4},
    ptr,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use super::{
    endpoint::Endpoint,
    error::Error,
    library::{Library, PROVIDERS},
};

const PATIENCE: Duration = Duration::from_secs(30);
/// An error that has nothing to do with messages: it ends a transfer that goes on without end.
const LATE: Error = Error::Broken;

/// `Some` if there is libfabric, of the real kind; says so if not.
fn library() -> Option<&'static Library> {
    match Library::get() {
        Ok(library) => Some(library),
        Err(why) => {
            assert!(matches!(why, Error::Missing { .. } | Error::Old { .. }), "{why}");
            eprintln!("SKIPPED: {why}");
            None
        }
    }
}

/// Runs one end in a thread of its own and the other here, connected with each other, by this
/// provider. `false` if there is no such provider.
fn joined(
    library: &'static Library,
    provider: &'static CStr,
    one: impl FnOnce(Endpoint) + Send,
    other: impl FnOnce(Endpoint),
) -> bool {
    let open = || Endpoint::over(library, library.offer(Ipv4Addr::LOCALHOST, &[provider])?);
    let mut here = match open() {
        Ok(here) => here,
        Err(Error::NoProvider { .. }) => return false,
        Err(why) => panic!("{why}"),
    };
    let (tell, hear) = mpsc::channel::<SocketAddrV4>();
    let at = here.address();
    assert_eq!(*at.ip(), Ipv4Addr::LOCALHOST);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut there = open().unwrap();
            there.connect(at).unwrap();
            tell.send(there.address()).unwrap();
            one(there);
        });
        here.connect(hear.recv().unwrap()).unwrap();
        other(here);
    });
    true
}

fn patience() -> impl FnMut() -> Result<(), Error> {
    let start = Instant::now();
    move || if start.elapsed() < PATIENCE { Ok(()) } else { Err(LATE) }
}

/// Messages of several lengths, each of its own bytes.
fn messages(seed: u8) -> Vec<Vec<u8>> {
    let lengths = [0, 1, 8, 100, 4096, 20_000, 70_000, 300_000, 1 << 20].into_iter().cycle();
    (0..200usize)
        .zip(lengths)
        .map(|(number, len)| (0..len).map(|at| (at ^ number) as u8 ^ seed).collect())
        .collect()
}

fn exchange(mut end: Endpoint, out: &[Vec<u8>], wanted: &[Vec<u8>]) {
    let mut into: Vec<Vec<u8>> = wanted.iter().map(|it| vec![0xa5; it.len()]).collect();
    let memory = into.iter_mut().map(Vec::as_mut_slice);
    end.transfer(out.iter().map(Vec::as_slice), memory, patience()).unwrap();
    assert!(into == wanted, "wrong contents");
}

#[test]
fn messages_pass_both_ways_by_every_provider() {
    let Some(library) = library() else { return };
    let mut had = 0;
    for provider in PROVIDERS {
        let (one, other) = (messages(1), messages(2));
        had += usize::from(joined(
            library,
            provider,
            |end| exchange(end, &one, &other),
            |end| exchange(end, &other, &one),
        ));
    }
    assert!(had > 0, "libfabric has no provider for TCP");
}

#[test]
fn lengths_are_checked() {
    let Some(library) = library() else { return };
    for provider in PROVIDERS {
        // Messages that are too short, then too long.
        for (sent, wanted) in [(8, 16), (16, 8)] {
            let (tell, hear) = mpsc::channel::<()>();
            joined(
                library,
                provider,
                move |mut end| {
                    let sent = end.transfer([&[7; 16][..sent]], [], patience());
                    // A receiver that has refused the message may have gone by then.
                    drop((sent, hear.recv()));
                },
                move |mut end| {
                    let mut into = [0; 16];
                    let why = end.transfer([], [&mut into[..wanted]], patience()).unwrap_err();
                    if sent < wanted {
                        assert_eq!(why, Error::Short { came: 8, wanted: 16 });
                    } else {
                        assert!(matches!(why, Error::Refused { .. }), "{why}");
                    }
                    assert_eq!(into[wanted..], [0; 16][wanted..]);
                    drop(tell);
                },
            );
        }
    }
}

#[test]
fn who_gives_up_has_their_memory_back() {
    let Some(library) = library() else { return };
    for provider in PROVIDERS {
        let (tell, hear) = mpsc::channel::<()>();
        joined(
            library,
            provider,
            move |mut end| {
                hear.recv().unwrap();
                // A send to nobody: it comes to an error or to an end, but not into that memory.
                let start = Instant::now();
                let soon = || {
                    if start.elapsed().as_millis() < 300 { Ok(()) } else { Err(LATE) }
                };
                let _ = end.transfer([&[7; 4096][..]], [], soon);
            },
            move |mut end| {
                let mut into = vec![0; 4096];
                let mut looks = 0;
                let few = || {
                    looks += 1;
                    if looks < 1000 { Ok(()) } else { Err(LATE) }
                };
                assert_eq!(end.transfer([], [&mut into[..]], few), Err(LATE));
                tell.send(()).unwrap();
                thread::sleep(Duration::from_millis(100));
                assert!(into.iter().all(|&byte| byte == 0), "written after it was given back");
                let again = end.transfer([], [&mut into[..]], || Ok::<_, Error>(()));
                assert_eq!(again, Err(Error::Broken));
            },
        );
    }
}

#[test]
fn what_is_not_there_is_said() {
    let why = Library::load(c"libpinfold-none.so.1").err().unwrap();
    let Error::Missing { name, why: said } = &why else { panic!("{why}") };
    assert_eq!(name, "libpinfold-none.so.1");
    assert!(said.contains("No such file"), "{said}");
    assert!(why.to_string().contains("package libfabric1"), "{why}");
    // A library that is there, but is no libfabric.
    let why = Library::load(c"libc.so.6").err().unwrap();
    assert!(why.to_string().contains("fi_version"), "{why}");
    let Some(library) = library() else { return };
    let nowhere = library.offer(Ipv4Addr::LOCALHOST, &[c"none"]).err().unwrap();
    assert_eq!(nowhere, Error::NoProvider { at: Ipv4Addr::LOCALHOST });
    assert_eq!(
        library.refused("fi_x", libc::ENOMEM).to_string(),
        format!("fi_x: Cannot allocate memory ({})", libc::ENOMEM)
    );
}

#[test]
fn signals_are_left_alone() {
    let Some(_) = library() else { return };
    // Nobody else in this program handles these.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGILL, libc::SIGABRT] {
        let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: changes nothing, and writes where it may.
        let now = unsafe {
            libc::sigaction(signal, ptr::null(), now.as_mut_ptr());
            now.assume_init()
        };
        // The program may have been started with some ignored.
        assert!([libc::SIG_DFL, libc::SIG_IGN].contains(&now.sa_sigaction), "{signal}");
    }
}
