#![allow(unsafe_code)]
// Invariant: memory that is exposed or changed is the test's own, and raw pointers alone reach it.
//! Memory that takes its time to come: a thread that asks for it waits, and no other.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::mpsc,
    thread,
};

use pinfold::{Endpoint, PeerId, Progress, RegionKey, RemoteSpace, Rights};
use pinfold_tests::{Args, Stage, role, stamp};

use super::{
    go,
    memory::{Area, PAGE, map},
    tell, told,
};

/// The agent copies for both: if the kernel copied, the peer itself would wait.
#[test]
fn pages_that_are_slow_to_come_keep_nobody_else_waiting() {
    for progress in ["inline", "dedicated"] {
        let stage = Stage::new(60);
        let owner = stage.role("sleeper").with("progress", progress);
        let users = ["waiter", "bystander"].map(|name| go(stage.role(name), "agent"));
        let [waiter, bystander] = users;
        stage.play([owner, waiter, bystander]);
    }
}

/// More reads of memory that does not come than the agent puts off for one peer: they wait here,
/// and none is refused.
#[test]
fn bounded_many_operations_wait_for_the_agent() {
    let stage = Stage::new(60);
    stage.play([stage.role("hoarder"), go(stage.role("flooder"), "agent")]);
}

/// Reads that are posted.
const READS: usize = 500;

pub fn hoarder(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "flood");
    let Some(slow) = slow(&endpoint, &[peer]) else { return };
    // SAFETY: reached by raw pointers alone.
    let exposed = unsafe { endpoint.expose(0..1 << 47, Rights::ReadWrite) }.unwrap();
    endpoint.send(peer, 1, &exposed.key().to_bytes()).unwrap();
    tell(&endpoint, peer, &[slow.area.address() as u64, 0]);
    // All of them have been posted.
    told(&endpoint, peer);
    await_fault(&endpoint, &slow);
    slow.come(6);
    told(&endpoint, peer);
    exposed.revoke().unwrap();
}

pub fn flooder(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "flood");
    let Some((space, [slow, _])) = begin(&endpoint, peer) else { return };
    let reads: Vec<_> = (0..READS).map(|_| space.read_owned(slow, vec![0; LEN])).collect();
    tell(&endpoint, peer, &[]);
    for read in reads {
        let (receipt, bytes) = read.wait();
        assert_eq!(receipt.unwrap().bytes, LEN as u64);
        stamp::check(&bytes, 6);
    }
    tell(&endpoint, peer, &[1]);
    assert!(endpoint.recv(peer, 3).unwrap_err().is_peer_gone());
}

/// Memory whose pages come only when the test copies them in.
struct Slow {
    uffd: OwnedFd,
    area: Area,
}

const API: libc::c_ulong = 0xc018_aa3f;
const REGISTER: libc::c_ulong = 0xc020_aa00;
const COPY: libc::c_ulong = 0xc028_aa03;

impl Slow {
    fn new(len: usize) -> io::Result<Slow> {
        let area = map(None, len, libc::MAP_PRIVATE, None);
        // SAFETY: no memory is involved; the descriptor is new.
        let uffd = unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd as i32)
        };
        let slow = Slow { uffd, area };
        slow.call(API, &mut [0xaa, 0, 0])?;
        slow.call(REGISTER, &mut [area.address() as u64, len as u64, 1, 0])?;
        Ok(slow)
    }

    fn call<const N: usize>(&self, call: libc::c_ulong, words: &mut [u64; N]) -> io::Result<()> {
        // SAFETY: as many words as the call reads and writes.
        match unsafe { libc::ioctl(self.uffd.as_raw_fd(), call, words.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits until a page is asked for.
    fn await_fault(&self) {
        let mut message = [0u8; 32];
        // SAFETY: room for a message.
        let read = unsafe {
            libc::read(self.uffd.as_raw_fd(), message.as_mut_ptr().cast(), message.len())
        };
        assert_eq!(read, 32, "{}", io::Error::last_os_error());
    }

    /// Has all pages come, filled with the contents of `seed`.
    fn come(&self, seed: u64) {
        let bytes = stamp::bytes(self.area.len, seed);
        let (to, from) = (self.area.address() as u64, bytes.as_ptr().addr() as u64);
        self.call(COPY, &mut [to, from, self.area.len as u64, 0, 0]).unwrap();
    }
}

const LEN: usize = 4 * PAGE;

/// Memory that takes its time; `None`, and all peers are told so, if there is none here.
fn slow(endpoint: &Endpoint, peers: &[PeerId]) -> Option<Slow> {
    let slow = Slow::new(LEN);
    if let Err(error) = &slow {
        role::skip(format_args!("slow pages: userfaultfd for the kernel's own faults: {error}"));
        peers.iter().for_each(|peer| _ = endpoint.send(*peer, 1, b"no").unwrap());
        peers.iter().for_each(|peer| _ = endpoint.recv(*peer, 3));
    }
    slow.ok()
}

pub fn sleeper(args: &Args) {
    let dedicated = args.text("progress") == "dedicated";
    let progress = if dedicated { Progress::Dedicated } else { Progress::Inline };
    let (endpoint, one) = role::listen(Endpoint::builder().progress(progress), "slow");
    let other = endpoint.accept_timeout(role::PATIENCE).unwrap();
    let waits = |peer| endpoint.recv(peer, 7).unwrap()[..] == *b"waits";
    let (one, other) = if waits(one) { (one, other) } else { (other, one) };
    let Some(slow) = slow(&endpoint, &[one, other]) else { return };
    let quick = map(None, LEN, libc::MAP_PRIVATE, None);
    quick.fill(5);
    // SAFETY: reached by raw pointers alone.
    let exposed = unsafe { endpoint.expose(0..1 << 47, Rights::ReadWrite) }.unwrap();
    for peer in [one, other] {
        endpoint.send(peer, 1, &exposed.key().to_bytes()).unwrap();
        tell(&endpoint, peer, &[slow.area.address() as u64, quick.address() as u64]);
    }
    await_fault(&endpoint, &slow);
    // The first user waits now. The other one goes on, by the agent and by message.
    tell(&endpoint, other, &[]);
    assert_eq!(told(&endpoint, other), [1]);
    assert!(endpoint.try_probe(one, 2).unwrap().is_none(), "the page came by itself");
    slow.come(6);
    told(&endpoint, one);
    slow.area.check(7);
    exposed.revoke().unwrap();
}

/// Waits until a page is asked for, while the endpoint makes progress.
fn await_fault(endpoint: &Endpoint, slow: &Slow) {
    let (say, faulted) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            slow.await_fault();
            say.send(()).unwrap();
        });
        while faulted.try_recv().is_err() {
            endpoint.progress().unwrap();
        }
    });
}

/// Reads memory that does not come, and then writes it.
pub fn waiter(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "slow");
    endpoint.send(peer, 7, b"waits").unwrap();
    let Some((space, [slow, _])) = begin(&endpoint, peer) else { return };
    let mut bytes = vec![0; LEN];
    space.read(slow, &mut bytes).unwrap();
    stamp::check(&bytes, 6);
    space.write(slow, &stamp::bytes(LEN, 7)).unwrap();
    tell(&endpoint, peer, &[1]);
    assert!(endpoint.recv(peer, 3).unwrap_err().is_peer_gone());
}

pub fn bystander(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "slow");
    endpoint.send(peer, 7, b"goes on").unwrap();
    let Some((space, [_, quick])) = begin(&endpoint, peer) else { return };
    told(&endpoint, peer);
    let mut bytes = vec![0; LEN];
    for _ in 0..100 {
        space.read(quick, &mut bytes).unwrap();
        stamp::check(&bytes, 5);
        space.write(quick, &bytes).unwrap();
        endpoint.send(peer, 9, b"on the way").unwrap();
    }
    tell(&endpoint, peer, &[1]);
    assert!(endpoint.recv(peer, 3).unwrap_err().is_peer_gone());
}

/// The memory, and the addresses of the slow part and of the other. `None`: it cannot be tested
/// here.
fn begin(endpoint: &Endpoint, peer: PeerId) -> Option<(RemoteSpace, [u64; 2])> {
    let key = RegionKey::from_bytes(&endpoint.recv(peer, 1).unwrap()).ok()?;
    let space = endpoint.open_space(peer, &key).unwrap();
    Some((space, told(endpoint, peer)[..].try_into().unwrap()))
}
