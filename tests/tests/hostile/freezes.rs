#![allow(unsafe_code)]
//! Peers that have others wait in the kernel: for memory that never comes, since a `userfaultfd(2)`
//! is to provide it and no process serves that; for connections that are closed once all their
//! bytes have been sent, and no process takes them. And strangers that take a listener's time.
//! Their victim goes on with an honest peer.
// Invariant: the pages are the role's own, and stay mapped for good.

use std::{
    io::{IoSlice, Write},
    net::{TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    ptr, thread,
    time::{Duration, Instant},
};

use pinfold::{Endpoint, OwnedBuf, OwnedBufMut, Source};
use pinfold_tests::{
    Args, Stage, figures,
    host::send_raw,
    role::{self, hear, say},
    stage::all_end_well,
};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};

use super::{HOSTILE, gaps::Gaps, sockets};

const LEN: usize = 1 << 20;
/// The messages of the two honest endpoints to each other.
const PING: u64 = 1;
const ROUNDS: u64 = 3000;
/// Time that attackers go on where figures are gathered.
const GATHERING: Duration = Duration::from_secs(2);
const LAST: u64 = u64::MAX;

/// The ways in which a peer has its victim touch its memory.
const WAYS: [&str; 4] = ["sends", "sends the end", "receives", "sends parts"];

#[test]
fn who_waits_for_its_own_memory_waits_alone() {
    for way in WAYS {
        for paths in ["inline,eager,cma", "inline,eager,cma,mapped"] {
            let stage = Stage::new(60);
            let mut beset = stage.role("beset").with("way", way).with("paths", paths).spawn();
            beset.expect("ready");
            let mut hoarder = stage.role("hoarder").with("way", way).with("paths", paths).spawn();
            let heard = hoarder.hear();
            if heard != "attacking" {
                beset.kill();
                beset.end();
                return pinfold_tests::skip::skip(&heard);
            }
            let attack = format!("memory that never comes: {way}, {paths}");
            let mut friend = stage.role("friend").with("attack", attack).spawn();
            friend.expect("through");
            beset.expect("through");
            hoarder.kill();
            hoarder.end();
            friend.say("end");
            beset.say("end");
            all_end_well(&mut [friend, beset]);
        }
    }
}

/// Descriptors of connections that linger, in all places where a thread may come to close them.
#[test]
fn who_passes_what_lingers_holds_nobody_up() {
    let stage = Stage::new(60);
    let mut beset = stage.role("beset").with("way", "passes").spawn();
    beset.expect("ready");
    let mut lingerer = stage.role("lingerer").spawn();
    lingerer.expect("attacking");
    let mut friend = stage.role("friend").with("attack", "connections that linger").spawn();
    friend.expect("through");
    beset.expect("through");
    // It has the descriptors that keep them open.
    friend.say("end");
    beset.say("end");
    all_end_well(&mut [friend, beset]);
    lingerer.kill();
    lingerer.end();
}

/// Callers, as fast as they can, several at once, none of which sends a valid greeting.
#[test]
fn callers_without_end_hold_no_peer_up() {
    for address in ["local:victim", "tcp:127.0.0.1:0"] {
        let stage = Stage::new(60);
        let mut beset = stage.role("beset").with("way", "listens").with("at", address).spawn();
        let at = beset.hear();
        let attack =
            format!("three callers without end, at {}", &address[..address.find(':').unwrap()]);
        let friend = || stage.role("friend").with("at", &at).with("attack", &attack);
        let mut first = friend().spawn();
        let callers = [0; 3].map(|_| stage.role("caller").with("at", &at).spawn());
        first.expect("through");
        beset.expect("through");
        // A new honest peer is let in as well.
        let mut another = friend().spawn();
        another.expect("through");
        beset.expect("through");
        for mut caller in callers {
            caller.kill();
            caller.end();
        }
        first.say("end");
        another.say("end");
        beset.say("end");
        all_end_well(&mut [first, another, beset]);
    }
}

/// Serves both from one thread.
pub fn beset(args: &Args) {
    if args.text("way") == "listens" {
        let endpoint = Endpoint::listen(args.text("at")).unwrap();
        say(endpoint.listens_at().unwrap_or(args.text("at").to_owned()));
        serve(&endpoint, || {});
        serve(&endpoint, || {});
        hear();
        return;
    }
    let (endpoint, attacker) = role::listen(args.builder(), "victim");
    endpoint.recv(attacker, HOSTILE).unwrap();
    let (mut ins, mut outs) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        match args.text("way") {
            "receives" => outs.push(endpoint.send_owned(attacker, HOSTILE, vec![7; LEN])),
            _ => ins.push(endpoint.recv_owned(attacker, HOSTILE, vec![1; LEN])),
        }
    }
    serve(&endpoint, || {});
    // A message that no peer has sent cannot have come.
    for request in &mut ins {
        assert!(
            !matches!(request.wait_timeout(Duration::ZERO), Some((Ok(_), _))),
            "it came from nowhere"
        );
    }
    hear();
}

/// Sends a friend's messages back, and runs `between` in between.
pub fn serve(endpoint: &Endpoint, mut between: impl FnMut()) {
    for round in 0u64.. {
        let ping = endpoint.recv(Source::Any, PING).unwrap();
        let last = ping[..] == LAST.to_ne_bytes();
        assert!(last || ping[..] == round.to_ne_bytes());
        endpoint.send(ping.peer(), PING, &ping[..]).unwrap();
        if last {
            break;
        }
        between();
    }
    say("through");
}

/// A peer as any other, but for its memory.
pub fn hoarder(args: &Args) {
    let way = args.text("way");
    let there = if way == "sends the end" { LEN - 1 } else { 0 };
    let pages = match hoarded(there) {
        Ok(pages) => pages,
        Err(why) => return say(format_args!("memory that is to be provided: {why}")),
    };
    let (endpoint, victim) = role::connect(args.builder(), "victim");
    endpoint.send(victim, HOSTILE, b"").unwrap();
    say("attacking");
    // Each of these waits for the peer's own memory, sooner or later.
    match way {
        "receives" => {
            let requests = [0; 4].map(|_| endpoint.recv_owned(victim, HOSTILE, Pages(pages)));
            for request in requests {
                let _ = request.wait();
            }
        }
        "sends parts" => {
            // SAFETY: mapped for good, and never written. A thread that reads it waits.
            let bytes = unsafe { std::slice::from_raw_parts(pages, LEN) };
            let parts: Vec<_> = bytes.chunks(LEN / 8).rev().map(IoSlice::new).collect();
            let _ = endpoint.send_vectored(victim, HOSTILE, &parts);
        }
        _ => {
            let requests = [0; 4].map(|_| endpoint.send_owned(victim, HOSTILE, Pages(pages)));
            for request in requests {
                let _ = request.wait();
            }
        }
    }
    hear();
}

pub fn friend(args: &Args) {
    let (endpoint, victim) = if args.has("at") {
        let endpoint = Endpoint::new().unwrap();
        let victim = endpoint.connect_wait(args.text("at"), role::PATIENCE).unwrap();
        (endpoint, victim)
    } else {
        role::connect(Endpoint::builder(), "victim")
    };
    let mut gaps = Gaps::with(&endpoint, victim);
    gaps.begin(args.text("attack"));
    let begun = Instant::now();
    let is_over =
        |round| round >= ROUNDS && (!figures::are_gathered() || begun.elapsed() > GATHERING);
    let mut ask = |word: u64| {
        endpoint.send(victim, PING, &word.to_ne_bytes()).unwrap();
        assert_eq!(endpoint.recv(victim, PING).unwrap()[..], word.to_ne_bytes());
        gaps.end_of_round();
    };
    (0..).take_while(|round| !is_over(*round)).for_each(&mut ask);
    ask(LAST);
    gaps.tell();
    say("through");
    hear();
}

/// Passes connections that linger to its victim, as a stranger and as a peer.
pub fn lingerer(_: &Args) {
    let (endpoint, victim) = role::connect(Endpoint::builder(), "victim");
    endpoint.send(victim, HOSTILE, b"").unwrap();
    let mut others = Vec::new();
    let own = sockets();
    let dir = std::env::var("PINFOLD_DIR").expect("set by the director");
    let address = SocketAddrUnix::new(format!("{dir}/victim")).expect("an address");
    let mut open = Vec::new();
    for call in 0..12 {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None).expect("a socket");
        connect(&socket, &address).expect("the victim listens");
        // The bytes begin with a possible greeting, with the first words of one, and behind a
        // seeming end.
        let hello = [b'P', b'N', b'F', b'D', 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0];
        for bytes in [&[7; 120][..], &hello, &[]].into_iter().cycle().skip(call % 3).take(3) {
            pass(socket.as_raw_fd(), bytes, &mut others);
        }
        if call % 2 == 0 {
            open.push(socket);
        }
    }
    // The sockets that the two ring each other by as well.
    for socket in own {
        pass(socket, &[7], &mut others);
    }
    say("attacking");
    hear();
}

/// Passes one connection on, with some bytes.
fn pass(socket: i32, bytes: &[u8], others: &mut Vec<(TcpListener, TcpStream)>) {
    let (lingers, other) = lingering();
    let _ = send_raw(socket, bytes, &[lingers.as_fd()]);
    // The victim may have closed its own by now or not, and the last to close waits.
    thread::spawn(|| drop(lingers));
    others.push(other);
}

/// A connection with bytes on the way that are never taken, whose last closer waits for them; and
/// the other end.
fn lingering() -> (OwnedFd, (TcpListener, TcpStream)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (two, _) = listener.accept().unwrap();
    one.set_nonblocking(true).unwrap();
    while one.write(&[0; 1 << 16]).is_ok() {}
    sockopt::set_socket_linger(&one, Some(Duration::from_secs(600))).unwrap();
    (one.into(), (listener, two))
}

/// Calls, sends bytes, and calls again.
pub fn caller(args: &Args) {
    let at = args.text("at");
    let dir = std::env::var("PINFOLD_DIR").expect("set by the director");
    let address = SocketAddrUnix::new(format!("{dir}/victim")).expect("an address");
    loop {
        if let Some(at) = at.strip_prefix("tcp:") {
            if let Ok(mut stream) = TcpStream::connect(at) {
                let _ = stream.write(&[7; 40]);
            }
            continue;
        }
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None).expect("a socket");
        if connect(&socket, &address).is_ok() {
            let _ = send_raw(socket.as_raw_fd(), &[7; 40], &[]);
        }
    }
}

/// Memory of which the first `there` bytes are there, and nothing else ever.
fn hoarded(there: usize) -> Result<*mut u8, String> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let (all, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping.
    let pages = unsafe { mmap_anonymous(ptr::null_mut(), LEN, all, flags) };
    let pages: *mut u8 = pages.map_err(|why| why.to_string())?.cast();
    // SAFETY: of the mapping, which no other thread has.
    unsafe { ptr::write_bytes(pages, 1, there / 4096 * 4096) };
    provided(pages, LEN, 0)?;
    Ok(pages)
}

/// Has pages of a mapping come from the reader of the descriptor that is returned.
pub fn provided(pages: *mut u8, len: usize, features: u64) -> Result<i32, String> {
    let call = |name: &str, done: libc::c_long| match done {
        0.. => Ok(done as i32),
        _ => Err(format!("{name}: {}", std::io::Error::last_os_error())),
    };
    // SAFETY: the call takes one integer; the descriptor stays open.
    let fd = call("userfaultfd", unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) })?;
    let mut api = [UFFD_API, features, 0];
    // SAFETY: the structures are those that the numbers stand for.
    call("UFFDIO_API", unsafe { libc::ioctl(fd, UFFDIO_API, api.as_mut_ptr()) }.into())?;
    let mut range = [pages.expose_provenance() as u64, len as u64, MODE_MISSING, 0];
    // SAFETY: as above.
    let registered = unsafe { libc::ioctl(fd, UFFDIO_REGISTER, range.as_mut_ptr()) };
    call("UFFDIO_REGISTER", registered.into())?;
    Ok(fd)
}

// Numbers of `linux/userfaultfd.h`.
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const MODE_MISSING: u64 = 1;

struct Pages(*mut u8);

// SAFETY: plain memory that is mapped for good.
unsafe impl Send for Pages {}

// SAFETY: as above. Several operations have it at once, and it is never looked at.
unsafe impl OwnedBuf for Pages {
    fn bytes(&self) -> (*const u8, usize) {
        (self.0, LEN)
    }
}

// SAFETY: as above.
unsafe impl OwnedBufMut for Pages {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.0, LEN)
    }
}
