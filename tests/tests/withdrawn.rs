#![allow(unsafe_code)]
//! Pairs from which the kernel takes the `cma` path after they have met: messages go on by the
//! paths that are left, none is lost, and receipts say why. And messages in memory that the kernel
//! does not show to other processes.

use std::{io::IoSlice, ptr, slice};

use pinfold::{Arena, Endpoint, Error, Path, PeerId, Receipt, Refusal, RegionKey, Rights};
use pinfold_tests::{
    Args, Stage,
    filter::{CMA, deny, kill},
    role::{self, say},
    skip, stamp,
};

pinfold_tests::roles!(caller, listener, teller, hearer, exposer, user);

const MIB: usize = 1 << 20;
/// A user without rights.
const NOBODY: u32 = 65_534;

/// The calls and rights that the sides lose, the caller's first.
fn play(losses: [&str; 2]) {
    let is_root = rustix::process::geteuid().is_root();
    let setuid = losses.contains(&"setuid");
    if setuid && !is_root {
        return skip("changing the user takes root");
    }
    let stage = Stage::new(120);
    let cast = |role, mine: &str, theirs: &str| {
        let role = stage.role(role).with("loses", mine).with("peer", theirs).unmeasured();
        // Root may get at every process, dumpable or not.
        if is_root && !setuid { role.user(NOBODY) } else { role }
    };
    let mut listener = cast("listener", losses[1], losses[0]).spawn();
    listener.expect("ready");
    let mut caller = cast("caller", losses[0], losses[1]).spawn();
    for player in [&mut listener, &mut caller] {
        player.end_well();
    }
}

#[test]
fn a_caller_that_is_not_dumpable_any_more() {
    play(["prctl", ""]);
}

#[test]
fn a_listener_that_is_not_dumpable_any_more() {
    play(["", "prctl"]);
}

#[test]
fn neither_is_dumpable_any_more() {
    play(["prctl", "prctl"]);
}

#[test]
fn filters_of_the_one_side() {
    for errno in [libc::EPERM, libc::ENOSYS, libc::EACCES, libc::ESRCH, libc::EIO] {
        play([&errno.to_string(), ""]);
        play(["", &errno.to_string()]);
    }
}

#[test]
fn filters_of_both_sides() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        play([&errno.to_string(), &errno.to_string()]);
    }
}

/// These errors may mean the memory of a message as well: each is tried anew, and comes all the
/// same.
#[test]
fn filters_that_answer_as_if_memory_were_missing() {
    for errno in [libc::EFAULT, libc::EINVAL, libc::ENOMEM, libc::EAGAIN, libc::EINTR] {
        play([&errno.to_string(), &errno.to_string()]);
    }
}

#[test]
fn another_user_since() {
    play(["setuid", ""]);
    play(["", "setuid"]);
}

// Where processors are short one side copies alone, and not all calls are found to be denied.
fn caller(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder().heed_shortage(false), "withdrawn");
    traffic(&endpoint, peer, args, true);
}

fn listener(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder().heed_shortage(false), "withdrawn");
    traffic(&endpoint, peer, args, false);
}

/// Loses the call or right that the test names.
fn lose(what: &str) {
    match what {
        "" => {}
        "prctl" => {
            // SAFETY: changes a flag of this process.
            assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) }, 0);
        }
        // SAFETY: all threads of this process become another user's.
        "setuid" => assert_eq!(unsafe { libc::setuid(NOBODY) }, 0),
        errno => deny(&CMA, errno.parse().expect("an errno")),
    }
}

/// The `errno` that this side's calls answer, if any.
fn answer_here(mine: &str, theirs: &str) -> Option<i32> {
    match (mine, theirs) {
        (errno, _) if errno.parse::<i32>().is_ok() => errno.parse().ok(),
        (_, "prctl") | ("setuid", _) => Some(libc::EPERM),
        _ => None,
    }
}

fn is_of_memory(errno: i32) -> bool {
    [libc::EFAULT, libc::EINVAL, libc::ENOMEM, libc::EAGAIN, libc::EINTR].contains(&errno)
}

const LENGTHS: [usize; 4] = [40_000, 70_000, MIB + 1, 7 * MIB];
const ECHO: u32 = 1;

/// One message of each kind goes one way.
fn send_each(endpoint: &Endpoint, peer: PeerId, arena: &Arena, round: u64) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    for (at, len) in LENGTHS.into_iter().enumerate() {
        let (tag, bytes) = (round << 8 | at as u64, stamp::bytes(len, round));
        receipts.push(endpoint.send(peer, tag, &bytes).unwrap());
        let (one, two) = bytes.split_at(len / 3);
        let parts = [IoSlice::new(one), IoSlice::new(&[]), IoSlice::new(two)];
        receipts.push(endpoint.send_vectored(peer, tag, &parts).unwrap());
        let mut buf = arena.alloc(len).unwrap();
        buf.copy_from_slice(&bytes);
        receipts.push(endpoint.send(peer, tag, &buf).unwrap());
    }
    receipts
}

fn receive_each(endpoint: &Endpoint, peer: PeerId, round: u64) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    let open = Arena::builder().build_shared().unwrap();
    for (at, len) in LENGTHS.into_iter().enumerate() {
        let tag = round << 8 | at as u64;
        for kind in 0..3 {
            match (kind + round) % 3 {
                0 => {
                    let message = endpoint.recv(peer, tag).unwrap();
                    stamp::check(&message, round);
                    receipts.push(message.receipt());
                }
                1 => {
                    let mut bytes = vec![0; len];
                    let (one, two) = bytes.split_at_mut(len / 2);
                    let parts = &mut [std::io::IoSliceMut::new(one), std::io::IoSliceMut::new(two)];
                    receipts.push(endpoint.recv_vectored(peer, tag, parts).unwrap().receipt);
                    stamp::check(&bytes, round);
                }
                _ => {
                    let request = endpoint.recv_owned(peer, tag, open.alloc(len).unwrap());
                    let (received, bytes) = request.wait();
                    receipts.push(received.unwrap().receipt);
                    stamp::check(&bytes.to_vec(), round);
                }
            }
        }
    }
    receipts
}

/// Sends a message of each kind each way, in turns, and has a handler echo one.
fn exchange(
    endpoint: &Endpoint,
    peer: PeerId,
    arena: &Arena,
    round: u64,
    begins: bool,
) -> [Vec<Receipt>; 2] {
    let sent = begins.then(|| send_each(endpoint, peer, arena, round));
    let received = receive_each(endpoint, peer, round);
    let sent = sent.unwrap_or_else(|| send_each(endpoint, peer, arena, round));
    for asks in [true, false] {
        if asks == begins {
            let bytes = stamp::bytes(300_000, round);
            stamp::check(&endpoint.request(peer, ECHO, &bytes).wait().unwrap(), round);
            endpoint.send(peer, round << 8 | 9, b"").unwrap();
        } else {
            endpoint.recv(peer, round << 8 | 9).unwrap();
        }
    }
    [sent, received]
}

/// Each side insists on the kernel a few times, so that both learn of every denial: by each of the
/// calls, for memory in one part and in several.
fn settle(endpoint: &Endpoint, peer: PeerId, begins: bool) {
    let bytes = stamp::bytes(3 * MIB, 6);
    for turn in 0..16 {
        let tag = 2 << 32 | turn;
        if (turn % 2 == 0) == begins {
            match endpoint.send_by(Path::Cma, peer, tag, &bytes) {
                Ok(receipt) => assert_eq!(receipt.path, Path::Cma),
                Err(Error::PathRefused { path: Path::Cma, .. }) => {}
                Err(error) => panic!("{turn}: {error}"),
            }
            endpoint.send(peer, 3 << 32 | turn, b"").unwrap();
        } else {
            let mut request = endpoint.recv_owned(peer, tag, vec![0; 3 * MIB]);
            endpoint.recv(peer, 3 << 32 | turn).unwrap();
            match request.try_wait() {
                Some((Ok(_), bytes)) => stamp::check(&bytes, 6),
                // The sender was told that it cannot be copied.
                Some((Err(Error::Transfer { .. }), _)) | None => {}
                Some((Err(error), _)) => panic!("{turn}: {error}"),
            }
        }
    }
}

/// Messages that are on their way, both ways, as the kernel withdraws its leave.
const FLIGHT: u64 = 12;

fn traffic(endpoint: &Endpoint, peer: PeerId, args: &Args, begins: bool) {
    let (mine, theirs) = (args.text("loses"), args.text("peer"));
    if let Some(why) = endpoint.peer(peer).unwrap().cma_refused {
        role::skip(format_args!("losing the cma path, which this pair never had: {why}"));
        return;
    }
    let arena = Arena::new().unwrap();
    endpoint.handle(ECHO, |active| active.reply(active.payload()).unwrap()).unwrap();
    let [sent, _] = exchange(endpoint, peer, &arena, 1, begins);
    assert!(
        sent.iter().all(|receipt| receipt.refused(Path::Cma).is_none_or(|why| !why.is_denial()))
    );
    let bytes = stamp::bytes(8 * MIB, 5);
    let receipt = if begins {
        endpoint.send_by(Path::Cma, peer, 5, &bytes).unwrap()
    } else {
        endpoint.recv(peer, 5).unwrap().receipt()
    };
    assert_eq!(receipt.path, Path::Cma);
    // In flight.
    let tag = |number| 1 << 32 | number;
    let len = |number: u64| (number as usize % 5 + 1) * MIB;
    let sends: Vec<_> = (0..FLIGHT)
        .map(|number| endpoint.send_owned(peer, tag(number), stamp::bytes(len(number), number)))
        .collect();
    let receives: Vec<_> = (0..FLIGHT)
        .map(|number| endpoint.recv_owned(peer, tag(number), vec![0; len(number)]))
        .collect();
    for _ in 0..20 {
        endpoint.progress().unwrap();
    }
    lose(mine);
    for (number, request) in receives.into_iter().enumerate() {
        let (received, bytes) = request.wait();
        received.unwrap_or_else(|error| panic!("{number}: {error}"));
        stamp::check(&bytes, number as u64);
    }
    for (number, request) in sends.into_iter().enumerate() {
        let (receipt, _) = request.wait();
        receipt.unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    // All traffic goes on.
    for round in 2..5 {
        exchange(endpoint, peer, &arena, round, begins);
    }
    settle(endpoint, peer, begins);
    let (here, there) = (answer_here(mine, theirs), answer_here(theirs, mine));
    // A call that is denied for good is not tried any more.
    if here.is_some_and(|errno| !is_of_memory(errno)) {
        kill(&CMA);
    }
    let [sent, received] = exchange(endpoint, peer, &arena, 5, begins);
    let info = endpoint.peer(peer).unwrap();
    match (here, there) {
        (Some(errno), Some(_)) if is_of_memory(errno) => {
            assert_eq!(info.cma_refused, None);
        }
        (Some(errno), Some(_)) => {
            assert_eq!(info.cma_refused, Some(Refusal::Denied(errno)), "{info:?}");
            assert!(!info.paths.contains(Path::Cma));
            for receipt in sent.iter().chain(&received) {
                assert_ne!(receipt.path, Path::Cma, "{receipt}");
                assert_eq!(receipt.copied_kernel, 0, "{receipt}");
                assert_eq!(receipt.refused(Path::Cma), Some(Refusal::Denied(errno)), "{receipt}");
            }
            let insisted = endpoint.send_by(Path::Cma, peer, 6, &bytes);
            assert!(
                matches!(insisted, Err(Error::PathRefused { path: Path::Cma, why })
                    if why == Refusal::Denied(errno)),
                "{insisted:?}"
            );
        }
        // One side that may is enough, unless root lacks a right in this place.
        _ if mine == "setuid" || theirs == "setuid" => {}
        _ => {
            assert_eq!(info.cma_refused, None);
            assert!(info.paths.contains(Path::Cma));
        }
    }
    // Neither side leaves before the other is done.
    endpoint.send(peer, 9, b"").unwrap();
    endpoint.recv(peer, 9).unwrap();
}

// Memory that the kernel does not show to other processes, or that no process can read.

#[test]
fn memory_that_the_kernel_shows_to_nobody() {
    let stage = Stage::new(60);
    let mut hearer = stage.role("hearer").unmeasured().spawn();
    hearer.expect("ready");
    let mut teller = stage.role("teller").unmeasured().spawn();
    teller.end_well();
    hearer.end_well();
}

/// Memory that peers use by its address: the owner's agent takes over from a kernel that no longer
/// copies.
#[test]
fn spaces_that_the_kernel_denies_later() {
    for (denied, strict) in [("writev", false), ("cma", false), ("cma", true)] {
        let stage = Stage::new(60);
        let mut exposer = stage.role("exposer").with("dedicated", 1).spawn();
        exposer.expect("ready");
        let mut user = stage.role("user").with("denied", denied).with("strict", strict).spawn();
        user.end_well();
        exposer.end_well();
    }
}

const EXPOSED: usize = MIB;

fn exposer(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder(), "spaces");
    let memory = memory(EXPOSED, false);
    stamp::fill(memory, 1);
    let start = memory.as_ptr().addr();
    // SAFETY: no thread looks at it before the peer is done.
    let exposed = unsafe { endpoint.expose(start..start + EXPOSED, Rights::ReadWrite) }.unwrap();
    endpoint.send(peer, 1, &exposed.key().to_bytes()).unwrap();
    if endpoint.recv(peer, 2).unwrap()[0] == 1 {
        drop(exposed);
        stamp::check(memory, 3);
    }
}

fn user(args: &Args) {
    let strict: bool = args.number("strict");
    let (endpoint, peer) = role::connect(args.builder().strict(strict), "spaces");
    let key = RegionKey::from_bytes(&endpoint.recv(peer, 1).unwrap()).unwrap();
    let leave = |checks: bool| {
        endpoint.send(peer, 2, &[u8::from(checks)]).unwrap();
    };
    let space = match endpoint.open_space(peer, &key) {
        Ok(space) if space.path() == Path::Cma => space,
        other => {
            role::skip(format_args!("spaces by the kernel: {other:?}"));
            return leave(false);
        }
    };
    let start = space.addresses().start;
    let mut bytes = vec![0; EXPOSED];
    assert_eq!(space.read(start, &mut bytes).unwrap().path, Path::Cma);
    stamp::check(&bytes, 1);
    assert_eq!(space.write(start, &stamp::bytes(EXPOSED, 2)).unwrap().path, Path::Cma);
    let all = args.text("denied") == "cma";
    deny(if all { &CMA } else { &CMA[1..] }, libc::EPERM);
    let why = Refusal::Denied(libc::EPERM);
    if strict {
        let refused = space.read(start, &mut bytes);
        assert!(
            matches!(refused, Err(Error::PathRefused { path: Path::Cma, why: said }) if said == why),
            "{refused:?}"
        );
        return leave(false);
    }
    let receipt = space.write(start, &stamp::bytes(EXPOSED, 3)).unwrap();
    assert_eq!((receipt.path, receipt.refused(Path::Cma)), (Path::Eager, Some(why)), "{receipt}");
    assert_eq!(space.path(), Path::Eager);
    // The kernel is not asked to write any more.
    kill(&CMA[1..]);
    let receipt = space.read(start, &mut bytes).unwrap();
    assert_eq!((receipt.path, receipt.refused(Path::Cma)), (Path::Eager, Some(why)), "{receipt}");
    stamp::check(&bytes, 3);
    leave(true);
}

/// The mapping of this process with this name.
fn mapping(name: &str) -> Option<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with(name))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?))
}

/// `len` bytes of fresh memory, of which no process can read the page in the middle if it is
/// `broken`.
fn memory(len: usize, broken: bool) -> &'static mut [u8] {
    let (read_write, private) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: fresh memory, for good; the test does not look at the part that no process can read.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), len, read_write, private, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        if broken {
            let middle = at.cast::<u8>().add(len / 2 / 4096 * 4096).cast();
            assert_eq!(libc::mprotect(middle, 4096, libc::PROT_NONE), 0);
        }
        slice::from_raw_parts_mut(at.cast(), len)
    }
}

const ODD: usize = 3 * MIB;

fn teller(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "odd");
    let may = endpoint.peer(peer).unwrap().cma_refused.is_none();
    let whole = stamp::bytes(ODD, 1);
    let is_fault = |error: &Error| {
        matches!(error, Error::Transfer { source, .. }
            if source.raw_os_error() == Some(libc::EFAULT))
    };
    // Without the kernel's copy, the page is not missed before it is touched.
    endpoint.send(peer, 1, &[u8::from(may)]).unwrap();
    if may {
        for broken in [ODD, 100_000, ODD] {
            let error = endpoint.send_by(Path::Cma, peer, 2, memory(broken, true)).unwrap_err();
            assert!(is_fault(&error), "{error}");
            assert_eq!(endpoint.send_by(Path::Cma, peer, 3, &whole).unwrap().path, Path::Cma);
        }
        // A fault of the receiver's memory is an error at both sides, too.
        let error = endpoint.send_by(Path::Cma, peer, 4, &whole).unwrap_err();
        assert!(is_fault(&error), "{error}");
        assert_eq!(endpoint.send_by(Path::Cma, peer, 5, &whole).unwrap().path, Path::Cma);
    } else {
        role::skip("memory that cannot be read, without the cma path");
    }
    // A page of the kernel's that this process reads whenever it asks for the time.
    let page = mapping("[vvar]").filter(|(start, end)| {
        // SAFETY: only looked at by the kernel.
        end > start
            && unsafe {
                pinfold_sys::mem::fault_safe_copy::check_own(*start as u64, 4096, false).is_ok()
            }
    });
    endpoint.send(peer, 6, &[u8::from(page.is_some())]).unwrap();
    let Some((start, _)) = page else {
        return role::skip("memory of a device: there is no [vvar]");
    };
    // SAFETY: readable for as long as the process lives; the test does not look at the bytes of it
    // that change.
    let odd = unsafe { slice::from_raw_parts(start as *const u8, 4096) };
    let parts = [IoSlice::new(&whole[..MIB]), IoSlice::new(odd), IoSlice::new(&whole[MIB..])];
    let receipt = endpoint.send_vectored(peer, 7, &parts).unwrap();
    say(format_args!("note the page goes by {receipt}"));
    if receipt.path == Path::Eager && may {
        let said = receipt.refused(Path::Cma);
        assert!(matches!(said, Some(Refusal::Denied(libc::EFAULT) | Refusal::Slower)), "{receipt}");
    }
    assert_eq!(endpoint.peer(peer).unwrap().cma_refused.is_none(), may, "the pair still may");
    // The other stays until then.
    endpoint.send(peer, 8, b"").unwrap();
}

fn hearer(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "odd");
    let may = endpoint.recv(peer, 1).unwrap()[0] == 1;
    let fails = |tag, into: &mut [u8]| {
        let error = endpoint.recv_into(peer, tag, into).unwrap_err();
        let fault = Some(libc::EFAULT);
        assert!(
            matches!(&error, Error::Transfer { source, .. } if source.raw_os_error() == fault),
            "{error}"
        );
    };
    if may {
        for broken in [ODD, 100_000, ODD] {
            fails(2, &mut vec![0; broken]);
            stamp::check(&endpoint.recv(peer, 3).unwrap(), 1);
        }
        fails(4, memory(ODD, true));
        stamp::check(&endpoint.recv(peer, 5).unwrap(), 1);
    }
    if endpoint.recv(peer, 6).unwrap()[0] == 0 {
        return;
    }
    let message = endpoint.recv(peer, 7).unwrap();
    let whole = stamp::bytes(ODD, 1);
    assert_eq!(message.len(), ODD + 4096);
    assert!(message[..MIB] == whole[..MIB] && message[MIB + 4096..] == whole[MIB..]);
    endpoint.recv(peer, 8).unwrap();
}
