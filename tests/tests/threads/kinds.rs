//! Every kind of thread that the library has: it blocks all signals, and has a name.
#![allow(unsafe_code)]
// Invariant: exposed memory is not touched while it is exposed. `getaddrinfo` is the C library's
// but for a pause.

use std::{
    collections::BTreeSet,
    ffi::{c_char, c_int},
    mem::transmute,
    net::SocketAddr,
    os::fd::AsFd,
    thread,
    time::Duration,
};

use pinfold::{
    Builder, Endpoint, Path, PathSet, PeerId, Progress, Rights,
    copy::{
        self,
        engine::{CopyEngine, EngineConfig},
    },
    topic::Subscriber,
    translate::{own::OwnMemory, pincache::Budget},
};
use pinfold_sys::{cpu::affinity, socket::seqpacket};
use pinfold_tests::{
    Args, Stage,
    network::{Relay, Way},
    role::{self, say},
};

use super::{sources, watcher::Watcher};

/// The name of a kind of threads, and the function that has one come to be.
type Kind = (&'static str, fn(&Watcher, &Args));

const KINDS: [Kind; 10] = [
    ("pinfold", driver),
    ("pinfold-agent", agent),
    ("pinfold-answers", control_flush),
    ("pinfold-closer", closer),
    ("pinfold-copies", copies),
    ("pinfold-lookup", lookup),
    ("pinfold-partner", partner),
    ("pinfold-topic", rounds),
    ("pinfold-tune", partner),
    ("pinfold-watch", watch),
];

#[test]
fn each_kind_is_tested() {
    let tested: BTreeSet<String> = KINDS.iter().map(|(name, _)| (*name).to_owned()).collect();
    if sources::can_be_read() {
        assert_eq!(tested, sources::names());
    }
}

/// Has a process make threads of that kind.
fn play(name: &str) {
    Stage::new(90).role("worker").with("kind", name).unmeasured().spawn().end_well();
}

#[test]
fn drivers_block_signals() {
    play("pinfold");
}

#[test]
fn control_flushes_block_signals() {
    play("pinfold-answers");
}

#[test]
fn agents_block_signals() {
    play("pinfold-agent");
}

#[test]
fn copy_engines_block_signals() {
    play("pinfold-copies");
}

#[test]
fn closers_block_signals() {
    play("pinfold-closer");
}

#[test]
fn watches_block_signals() {
    play("pinfold-watch");
}

#[test]
fn measurements_block_signals() {
    play("pinfold-tune");
    play("pinfold-partner");
}

#[test]
fn rounds_of_topics_block_signals() {
    play("pinfold-topic");
}

/// The name of a peer that does not come back is asked for again.
#[test]
fn lookups_block_signals() {
    let stage = Stage::new(90);
    let builder = Endpoint::builder().progress(Progress::Dedicated).local_shortcut(false);
    let endpoint = builder.listen("tcp:127.0.0.1:0").build().unwrap();
    let address = endpoint.listens_at().unwrap();
    let to: SocketAddr = address.strip_prefix("tcp:").unwrap().parse().unwrap();
    let relay = Relay::here(to);
    let port = relay.address().port();
    let mut worker = stage.role("worker").with("kind", "pinfold-lookup").with("port", port).spawn();
    worker.expect("met");
    relay.reset_after(Way::There, 0);
    worker.end_well();
}

/// The process in which a kind of thread comes to be.
pub fn worker(args: &Args) {
    let kind = args.text("kind");
    let (_, make) = KINDS.iter().find(|(name, _)| *name == kind).expect("a kind");
    let watcher = Watcher::start();
    make(&watcher, args);
    let open = watcher.end();
    assert!(open.is_empty(), "these can be interrupted: {open:?}");
}

/// Two endpoints that know each other.
fn pair(watcher: &Watcher, one: Builder, two: Builder) -> ((Endpoint, PeerId), (Endpoint, PeerId)) {
    let address = format!("local:threads-{}", std::process::id());
    let (one, two) = (one.listen(&address).build().unwrap(), two.build().unwrap());
    let (there, here) = thread::scope(|scope| {
        let there = scope.spawn(|| {
            watcher.is_own();
            one.accept().unwrap()
        });
        let here = two.connect(&address).unwrap();
        (there.join().unwrap(), here)
    });
    ((one, there), (two, here))
}

/// A descriptor comes that the endpoint does not want.
fn closer(watcher: &Watcher, _: &Args) {
    let (one, two) = seqpacket::pair().unwrap();
    seqpacket::send(&one, b"x", &[one.as_fd()]).unwrap();
    assert!(seqpacket::recv(&two, &mut [0; 8], 1).unwrap().foreign);
    watcher.until_seen("pinfold-closer");
}

fn driver(watcher: &Watcher, _: &Args) {
    let endpoint = Endpoint::builder().progress(Progress::Dedicated).build().unwrap();
    watcher.until_seen("pinfold");
    drop(endpoint);
    // A message that a future has asked for.
    let ((one, to_two), (two, to_one)) = pair(watcher, Endpoint::builder(), Endpoint::builder());
    let receive = one.recv_request(to_two, 1);
    let send = two.send_owned(to_one, 1, vec![7; 100]);
    let message = pinfold_tests::block_on(receive).unwrap();
    assert_eq!(&*message, &[7; 100]);
    pinfold_tests::block_on(send).0.unwrap();
}

/// An answer finds no room when the caller leaves.
fn control_flush(watcher: &Watcher, _: &Args) {
    let paths =
        || Endpoint::builder().paths(PathSet::only(&[Path::Inline, Path::Eager, Path::Cma]));
    let ((one, to_two), (two, to_one)) = pair(watcher, paths(), paths());
    if let Some(why) = one.peer(to_two).unwrap().cma_refused {
        return role::skip(format_args!("messages that the receiver fetches alone: {why}"));
    }
    let long = two.send_owned(to_one, 1, vec![7; 8 << 20]);
    // Of the messages that the other side does not take, only so many go out.
    let mut sends: Vec<_> = (0..20_000).map(|_| one.send_owned(to_two, 2, vec![1; 8])).collect();
    assert!(sends.last_mut().is_some_and(|send| send.try_wait().is_none()));
    let mut taken = vec![0; 8 << 20];
    let receipt = one.recv_into(to_two, 1, &mut taken).unwrap().receipt;
    assert_eq!((receipt.path, taken[5]), (Path::Cma, 7));
    watcher.until_seen("pinfold-answers");
    // The other side makes room while it waits for the answer, which the control flush then
    // delivers.
    long.wait().0.unwrap();
}

/// Memory that is not there yet is read for a peer.
fn agent(watcher: &Watcher, _: &Args) {
    let served = PathSet::only(&[Path::Inline, Path::Eager]);
    let owner = Endpoint::builder().progress(Progress::Dedicated);
    let ((owner, to_user), (user, to_owner)) =
        pair(watcher, owner, Endpoint::builder().paths(served));
    // Fresh of the kernel: nothing is there yet.
    let memory = vec![0u8; 16 << 20];
    let at = memory.as_ptr() as usize;
    // SAFETY: no thread touches it until it is revoked.
    let exposed = unsafe { owner.expose(at..at + (16 << 20), Rights::Read) }.unwrap();
    let space = user.open_space(to_owner, &exposed.key()).unwrap();
    let mut bytes = [1; 64];
    space.read(at as u64 + (8 << 20), &mut bytes).unwrap();
    assert_eq!(bytes, [0; 64]);
    watcher.until_seen("pinfold-agent");
    exposed.revoke().unwrap();
    drop((to_user, memory));
}

fn copies(watcher: &Watcher, _: &Args) {
    let engine =
        CopyEngine::new(EngineConfig { threads: 3, bytes_min: 4096, ..EngineConfig::default() });
    let copies: Vec<_> =
        (0..8).map(|n| engine.copy(vec![n; 4 << 20], vec![0; 4 << 20]).unwrap()).collect();
    watcher.until_seen("pinfold-copies");
    for (n, copy) in copies.into_iter().enumerate() {
        let (ended, _, to) = copy.wait().unwrap();
        ended.unwrap();
        assert!(to.iter().all(|byte| usize::from(*byte) == n));
    }
}

fn lookup(watcher: &Watcher, args: &Args) {
    let builder = Endpoint::builder().progress(Progress::Dedicated).local_shortcut(false);
    let endpoint = builder.build().unwrap();
    let peer = endpoint.connect(&format!("tcp:localhost:{}", args.text("port"))).unwrap();
    say("met");
    // Until then every send breaks the connection, and each new one.
    let _word = endpoint.send_owned(peer, 1, vec![0; 8]);
    watcher.until_seen("pinfold-lookup");
}

fn watch(watcher: &Watcher, _: &Args) {
    let memory = OwnMemory::new(Budget::of_bytes(1 << 20)).unwrap();
    let standing = memory.standing();
    if standing.not_kept.is_some() {
        return role::skip(format_args!("no memory is watched here: {standing:?}"));
    }
    watcher.until_seen("pinfold-watch");
}

/// A topic that a user is named for is looked at again and again.
fn rounds(watcher: &Watcher, _: &Args) {
    let topic = format!("{}/threads", rustix::process::geteuid().as_raw());
    let subscriber = Subscriber::<u64>::open(&topic).unwrap();
    watcher.until_seen("pinfold-topic");
    drop(subscriber);
}

fn partner(watcher: &Watcher, _: &Args) {
    let found = copy::tune(Duration::from_millis(300), None, |_| ()).unwrap();
    watcher.until_seen("pinfold-tune");
    if found.has_other_core {
        watcher.until_seen("pinfold-partner");
    } else {
        assert!(affinity::current_cpus().len() < 2);
        role::skip("a second processor");
    }
}

/// As in the C library; threads of the library's stay in it long enough to be seen.
///
/// # Safety
/// As for that of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const libc::addrinfo,
    found: *mut *mut libc::addrinfo,
) -> c_int {
    type Resolve = unsafe extern "C" fn(
        *const c_char,
        *const c_char,
        *const libc::addrinfo,
        *mut *mut libc::addrinfo,
    ) -> c_int;
    if thread::current().name() == Some("pinfold-lookup") {
        thread::sleep(Duration::from_millis(200));
    }
    // SAFETY: the name ends with a zero, and the symbol of that name is of that type; the caller
    // keeps its promises.
    unsafe {
        let real = libc::dlsym(libc::RTLD_NEXT, c"getaddrinfo".as_ptr());
        assert!(!real.is_null());
        transmute::<*mut libc::c_void, Resolve>(real)(node, service, hints, found)
    }
}
