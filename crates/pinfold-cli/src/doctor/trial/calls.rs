//! Single facilities of the kernel, each tried in a process of its own, by the library's own calls.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use pinfold::Arena;
use pinfold_sys::{
    barrier,
    mapping::SharedMapping,
    memfd,
    pin::{self, Pin, Registered},
    poll::{Epoll, EventFd, Interest},
    process, socket,
    stream::{self, zerocopy::ZeroCopy},
    trial,
    userfault::{self, Mover, Pages, Watch},
};
use rustix::{
    fs::{SealFlags, fcntl_add_seals, fstat, ftruncate},
    io::Errno,
    net::{self, AddressFamily, SocketType},
};
use serde::{Deserialize, Serialize};

use super::super::child::{Denial, FORK, PIPE, Tried, attempt};

/// Bytes of memory that is shared for a trial.
const BYTES: usize = 1 << 20;
/// A page as large as the kernel makes them of shared memory, on x86-64.
const HUGE: usize = 2 << 20;
/// Bytes of an arena's buffer: a few huge pages.
const ARENA_BYTES: usize = 4 * HUGE;
/// Bytes that are pinned at a time where each send pins its own.
const PINNED_BYTES: usize = 512 << 10;
/// Bytes that are sent without copying: little, as they have to fit into the other end's memory.
const SENT_BYTES: usize = 8 << 10;

/// Memory of an arena that asked for huge pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Huge {
    pub(crate) bytes: u64,
    /// Of these in huge pages.
    pub(crate) bytes_huge: u64,
    /// What the kernel says of a single one where there are none.
    pub(crate) refused: Option<Denial>,
}

/// What a userfaultfd is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Faults {
    /// Files in shared memory can be watched, too.
    pub(crate) shared: bool,
    /// Any memory can.
    pub(crate) any: bool,
    /// Pages can be moved.
    pub(crate) moves: bool,
}

/// What came of it.
pub(crate) struct Calls {
    pub(crate) memfd: Tried<()>,
    pub(crate) memfd_seals: Tried<()>,
    pub(crate) mapping: Tried<()>,
    pub(crate) noexec_seal: Tried<()>,
    pub(crate) future_write_seal: Tried<()>,
    pub(crate) populate_write: Tried<()>,
    pub(crate) remove: Tried<()>,
    pub(crate) huge_shmem: Tried<Huge>,
    pub(crate) barrier_global: Tried<()>,
    pub(crate) barrier_private: Tried<()>,
    pub(crate) pidfd_open: Tried<()>,
    pub(crate) peer_pidfd: Tried<()>,
    pub(crate) peer_credentials: Tried<()>,
    pub(crate) unix_sockets: Tried<()>,
    pub(crate) descriptors: Tried<()>,
    pub(crate) events: Tried<()>,
    pub(crate) userfaultfd: Tried<Faults>,
    /// Features.
    pub(crate) io_uring: Tried<u32>,
    /// A connection over the loopback.
    pub(crate) tcp: Tried<()>,
    pub(crate) msg_zerocopy: Tried<()>,
    pub(crate) send_zc: Tried<()>,
}

impl Calls {
    /// Makes them all.
    pub(crate) fn make() -> Calls {
        let memfd = attempt("memfd_create", || file(BYTES).map(drop));
        // What takes shared memory says nothing where there is none.
        let mapping = after(&memfd, || attempt(MMAP, mapped));
        let (unix_sockets, tcp) = (unix_sockets(), tcp());
        Calls {
            memfd_seals: after(&memfd, || attempt("fcntl", seals)),
            noexec_seal: attempt("memfd_create", noexec),
            future_write_seal: after(&mapping, || attempt("fcntl", future_write)),
            populate_write: after(&mapping, || attempt("madvise", populate)),
            remove: after(&mapping, || attempt("madvise", remove)),
            huge_shmem: after(&mapping, || attempt("madvise", huge)),
            barrier_global: attempt("membarrier", || {
                fences(trial::BARRIER_GLOBAL, barrier::global_available)
            }),
            barrier_private: attempt("membarrier", || {
                fences(trial::BARRIER_PRIVATE, barrier::private_available)
            }),
            pidfd_open: attempt("pidfd_open", pidfd_open),
            peer_credentials: after(&unix_sockets, || attempt("getsockopt", peer_credentials)),
            peer_pidfd: after(&unix_sockets, || attempt("getsockopt", peer_pidfd)),
            descriptors: after(&unix_sockets, || attempt("sendmsg", descriptors)),
            events: attempt("epoll_create1", epoll).and_then(|()| attempt("eventfd2", events)),
            userfaultfd: attempt("userfaultfd", userfaultfd),
            io_uring: attempt("io_uring_setup", rings),
            msg_zerocopy: after(&tcp, || {
                attempt("setsockopt", || {
                    let (one, _two) = connection()?;
                    ZeroCopy::new(&one).map(drop).map_err(Denial::of("setsockopt"))
                })
            }),
            send_zc: after(&tcp, || attempt("io_uring_setup", send_zc)),
            memfd,
            mapping,
            unix_sockets,
            tcp,
        }
    }
}

/// Mapping a file makes both calls.
const MMAP: &str = "mmap or madvise";

/// Tries something that takes something else.
fn after<T>(first: &Tried<()>, then: impl FnOnce() -> Tried<T>) -> Tried<T> {
    match first {
        Ok(()) => then(),
        // Why everything fails is not for everything to say, unless it is want of descriptors.
        Err(Denial::Errno { call, .. } | Denial::Killed { call, .. })
            if call != FORK && call != PIPE && !call.is_empty() =>
        {
            Err(Denial::Untried(format!("it takes {call}")))
        }
        Err(why) => Err(why.clone()),
    }
}

fn wrong<T>(what: &str) -> Tried<T> {
    Err(Denial::Wrong(what.to_owned()))
}

/// A file without seals.
fn file(len: usize) -> Tried<OwnedFd> {
    let file = memfd::create_empty("pinfold-doctor").map_err(Denial::of("memfd_create"))?;
    ftruncate(&file, len as u64).map_err(Denial::of("ftruncate"))?;
    Ok(file)
}

/// A file that is not executable. The library's own has that mark where the kernel knows it.
fn noexec() -> Tried<()> {
    use rustix::fs::{MemfdFlags, memfd_create};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
    memfd_create("pinfold-doctor", flags).map(drop).map_err(Denial::of("memfd_create"))
}

fn map(file: &OwnedFd, len: usize) -> Tried<SharedMapping> {
    SharedMapping::map(file.as_fd(), len).map_err(Denial::of(MMAP))
}

/// As lanes are mapped, and as arenas are.
fn mapped() -> Tried<()> {
    let file = file(BYTES)?;
    map(&file, BYTES)?;
    SharedMapping::map_aligned(file.as_fd(), BYTES, HUGE).map(drop).map_err(Denial::of(MMAP))
}

fn seals() -> Tried<()> {
    let file = file(BYTES)?;
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, all).map_err(Denial::of("fcntl"))?;
    if ftruncate(&file, 0).is_ok() || ftruncate(&file, 2 * BYTES as u64).is_ok() {
        return wrong("a file sealed against it changes its size");
    }
    let file = memfd::create_sealed("pinfold-doctor", BYTES).map_err(Denial::of("memfd_create"))?;
    match memfd::check_sealed(file.as_fd(), BYTES) {
        Ok(()) => Ok(()),
        Err(why) => wrong(&format!("a file that was just sealed is {why}")),
    }
}

/// As an arena's file is sealed before a peer gets it.
fn future_write() -> Tried<()> {
    let file = memfd::create_fixed("pinfold-doctor", BYTES).map_err(Denial::of("fcntl"))?;
    let before = map(&file, BYTES)?;
    memfd::seal(file.as_fd(), true).map_err(Denial::of("fcntl"))?;
    if !memfd::refuses_writers(file.as_fd()) {
        // The seal does without it where the kernel does not know it.
        return Err(Denial::of("fcntl")(Errno::INVAL));
    }
    if map(&file, BYTES).is_ok() {
        return wrong("a file sealed against it can be mapped for writing");
    }
    before.populate(0..BYTES).map_err(Denial::of("madvise"))
}

fn populate() -> Tried<()> {
    let file = file(BYTES)?;
    let map = map(&file, BYTES)?;
    // `populate` makes do without the call, so ask for it by its name.
    trial::populate_write(&map).map_err(Denial::of("madvise"))?;
    match allocated(&file)? {
        all if all >= BYTES as u64 => Ok(()),
        _ => wrong("memory that was reserved is not there"),
    }
}

fn remove() -> Tried<()> {
    let file = file(BYTES)?;
    let map = map(&file, BYTES)?;
    map.populate(0..BYTES).map_err(Denial::of("madvise"))?;
    map.release(0..BYTES).map_err(Denial::of("madvise"))?;
    match allocated(&file)? {
        0 => Ok(()),
        _ => wrong("memory that was given back is still there"),
    }
}

/// An arena, as programs have it.
fn huge() -> Tried<Huge> {
    let said = |error: pinfold::Error| match &error {
        pinfold::Error::Os { call, source, .. } => Denial::Errno {
            call: call.split('(').next().unwrap_or(call).to_owned(),
            errno: source.raw_os_error().unwrap_or(libc::EIO),
        },
        other => Denial::Untried(other.to_string()),
    };
    let arena = Arena::builder().build().map_err(said)?;
    let _buffer = arena.alloc(ARENA_BYTES).map_err(said)?;
    let held = arena.stats();
    let refused = if held.bytes_huge == 0 { collapse().err() } else { None };
    Ok(Huge { bytes: held.bytes_committed, bytes_huge: held.bytes_huge, refused })
}

/// The arena's call for huge pages alone, for its answer.
fn collapse() -> Tried<()> {
    let file = memfd::create_fixed("pinfold-doctor", HUGE).map_err(Denial::of("memfd_create"))?;
    let map = SharedMapping::map_aligned(file.as_fd(), HUGE, HUGE).map_err(Denial::of(MMAP))?;
    map.populate_file(file.as_fd(), 0..1).map_err(Denial::of("madvise"))?;
    map.collapse(0..HUGE).map_err(Denial::of("madvise"))
}

/// Memory that a file takes, bytes.
fn allocated(file: &OwnedFd) -> Tried<u64> {
    let stat = fstat(file).map_err(Denial::of("fstat"))?;
    Ok(u64::try_from(stat.st_blocks).unwrap_or(0) * 512)
}

fn fences(kind: [i32; 2], available: fn() -> bool) -> Tried<()> {
    trial::membarrier(kind).map_err(Denial::of("membarrier"))?;
    if available() { Ok(()) } else { wrong("the kernel has a membarrier and does not offer it") }
}

fn pidfd_open() -> Tried<()> {
    let own = process::pidfd_open(std::process::id()).map_err(Denial::of("pidfd_open"))?;
    if process::pidfd_alive(&own) { Ok(()) } else { wrong("a living process is taken for dead") }
}

fn peer_pidfd() -> Tried<()> {
    let (one, _two) = socket::pair().map_err(Denial::of("socketpair"))?;
    let peer = socket::peer_pidfd(&one).map_err(Denial::of("getsockopt"))?;
    if process::pidfd_alive(&peer) { Ok(()) } else { wrong("a living process is taken for dead") }
}

fn unix_sockets() -> Tried<()> {
    attempt("socket", || socket::unconnected().map(drop).map_err(Denial::of("socket")))?;
    attempt("socketpair", || socket::pair().map(drop).map_err(Denial::of("socketpair")))?;
    attempt("sendmsg", || sent().map(drop))?;
    attempt("recvmsg", || {
        let (one, two) = sent()?;
        let mut bytes = [0; 8];
        let got = socket::recv(&two, &mut bytes, 0).map_err(Denial::of("recvmsg"))?;
        drop(one);
        match &bytes[..got.len] {
            b"ping" => Ok(()),
            _ => wrong("a message did not arrive as it was sent"),
        }
    })
}

fn inet() -> Tried<OwnedFd> {
    net::socket(AddressFamily::INET, SocketType::STREAM, None).map_err(Denial::of("socket"))
}

/// A socket that listens on the loopback, and one that connects to it, with the options that connections have.
fn tcp() -> Tried<()> {
    attempt("socket", || inet().map(drop))?;
    attempt("connect", || connection().map(drop))?;
    attempt("setsockopt", || {
        let (one, _two) = connection()?;
        stream::tune(&one, Duration::from_secs(10)).map_err(Denial::of("setsockopt"))
    })
}

fn connection() -> Tried<(OwnedFd, OwnedFd)> {
    let (listener, one) = (inet()?, inet()?);
    let here = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    net::bind(&listener, &here).map_err(Denial::of("bind"))?;
    net::listen(&listener, 1).map_err(Denial::of("listen"))?;
    let here = net::getsockname(&listener).map_err(Denial::of("getsockname"))?;
    net::connect(&one, &here).map_err(Denial::of("connect"))?;
    let flags = net::SocketFlags::CLOEXEC;
    let two = net::accept_with(&listener, flags).map_err(Denial::of("accept4"))?;
    Ok((one, two))
}

/// Two ends, with a message on the way to the second.
fn sent() -> Tried<(OwnedFd, OwnedFd)> {
    let (one, two) = socket::pair().map_err(Denial::of("socketpair"))?;
    socket::send(&one, b"ping", &[]).map_err(Denial::of("sendmsg"))?;
    Ok((one, two))
}

fn peer_credentials() -> Tried<()> {
    let (one, _two) = socket::pair().map_err(Denial::of("socketpair"))?;
    let who = socket::peer_credentials(&one).map_err(Denial::of("getsockopt"))?;
    if who.uid != pinfold_sys::user::uid() {
        return wrong("the kernel names another user at the other end of this user's socket");
    }
    Ok(())
}

fn descriptors() -> Tried<()> {
    let (one, two) = socket::pair().map_err(Denial::of("socketpair"))?;
    socket::send(&one, b"x", &[one.as_fd()]).map_err(Denial::of("sendmsg"))?;
    let got = socket::recv(&two, &mut [0; 8], 1).map_err(Denial::of("recvmsg"))?;
    if got.fds.len() == 1 { Ok(()) } else { wrong("a descriptor that was passed did not arrive") }
}

fn epoll() -> Tried<()> {
    Epoll::new().map(drop).map_err(Denial::of("epoll_create1"))
}

fn events() -> Tried<()> {
    let epoll = Epoll::new().map_err(Denial::of("epoll_create1"))?;
    let event = EventFd::new().map_err(Denial::of("eventfd2"))?;
    epoll.add(&event, 1, Interest::Read).map_err(Denial::of("epoll_ctl"))?;
    event.signal().map_err(Denial::of("write"))
}

/// Watches memory and moves pages, as an endpoint does.
fn userfaultfd() -> Tried<Faults> {
    let said = |error: userfault::Error| denied(error.call(), error.errno());
    let found = userfault::probe().map_err(said)?;
    let pages = Pages::new(BYTES, false).map_err(Denial::of("mmap"))?;
    let range = pages.addr()..pages.addr() + pages.len();
    let watch = Watch::new().map_err(said)?;
    watch.watch(range.clone()).map_err(said)?;
    watch.unwatch(range).map_err(said)?;
    let moves = found.moves && moves().is_ok_and(|moved| moved);
    Ok(Faults { shared: found.watch_shared, any: found.watch_any, moves })
}

/// Whether a page comes to lie elsewhere.
fn moves() -> std::io::Result<bool> {
    let mover = Mover::new()?;
    let mut from = Pages::new(BYTES, false)?;
    let mut window = mover.window(BYTES, false)?;
    from.as_mut_slice()[0] = 7;
    let page = rustix::param::page_size();
    mover.fold(&mut window, 0, &mut from, 0..page)?;
    Ok(window.as_slice()[0] == 7)
}

/// A ring's features, if it also pins memory.
fn rings() -> Tried<u32> {
    let features = trial::io_uring().map_err(Denial::of("io_uring_setup"))?;
    let said = |error: pin::Error| denied(error.call(), error.errno());
    let memory = vec![1u8; PINNED_BYTES];
    let at = memory.as_ptr().expose_provenance();
    let ring = Registered::new(1).map_err(said)?;
    let slot = ring.pin(at..at + memory.len()).map_err(said)?;
    ring.unpin(slot).map_err(said)?;
    Ok(features)
}

fn send_zc() -> Tried<()> {
    let (one, two) = connection()?;
    let sent = vec![7; SENT_BYTES];
    trial::send_zc(&one, &sent).map_err(|error| denied(error.call(), error.errno()))?;
    let mut got = vec![0; 2 * SENT_BYTES];
    let mut left = &mut got[..];
    while !left.is_empty() {
        match rustix::io::read(&two, &mut *left).map_err(Denial::of("read"))? {
            0 => return wrong("what was sent did not arrive"),
            some => left = &mut left[some..],
        }
    }
    if got.iter().all(|&byte| byte == 7) { Ok(()) } else { wrong("what was sent arrived changed") }
}

/// `call` without what it was called for.
fn denied(call: &str, errno: Errno) -> Denial {
    let call = call.split([' ', '(']).next().unwrap_or(call).to_owned();
    Denial::Errno { call, errno: errno.raw_os_error() }
}
