//! Single facilities of the kernel, each tried in a process of its own.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::{AsFd, OwnedFd},
};

use pinfold_sys::{
    mapping::SharedMapping,
    memfd,
    poll::{Epoll, EventFd, Interest},
    process, socket, trial,
};
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create},
    io::Errno,
    net::{self, AddressFamily, SocketType},
};

use super::super::child::{Denial, FORK, PIPE, Tried, attempt};

/// Bytes of memory that is shared for a trial.
const BYTES: usize = 1 << 20;
/// A page as large as the kernel makes them of shared memory, on x86-64.
const HUGE: usize = 2 << 20;

/// What came of it.
pub(crate) struct Calls {
    pub(crate) memfd: Tried<()>,
    pub(crate) memfd_seals: Tried<()>,
    pub(crate) mapping: Tried<()>,
    pub(crate) noexec_seal: Tried<()>,
    pub(crate) future_write_seal: Tried<()>,
    pub(crate) populate_write: Tried<()>,
    pub(crate) remove: Tried<()>,
    /// Bytes of memory that one touched byte takes where huge pages were asked for.
    pub(crate) huge_shmem: Tried<u64>,
    pub(crate) barrier_global: Tried<()>,
    pub(crate) barrier_private: Tried<()>,
    pub(crate) pidfd_open: Tried<()>,
    pub(crate) peer_pidfd: Tried<()>,
    pub(crate) peer_credentials: Tried<()>,
    pub(crate) unix_sockets: Tried<()>,
    pub(crate) descriptors: Tried<()>,
    pub(crate) events: Tried<()>,
    /// Features, and whether it is for faults of user mode only.
    pub(crate) userfaultfd: Tried<(u64, bool)>,
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
        let memfd = attempt("memfd_create", || file(MemfdFlags::empty()).map(drop));
        // What takes shared memory says nothing where there is none.
        let mapping = after(&memfd, || attempt(MMAP, mapped));
        let (unix_sockets, tcp) = (unix_sockets(), tcp());
        Calls {
            memfd_seals: after(&memfd, || attempt("fcntl", seals)),
            noexec_seal: attempt("memfd_create", || file(MemfdFlags::NOEXEC_SEAL).map(drop)),
            future_write_seal: after(&mapping, || attempt("fcntl", future_write)),
            populate_write: after(&mapping, || attempt("madvise", populate)),
            remove: after(&mapping, || attempt("madvise", remove)),
            huge_shmem: after(&mapping, || attempt("madvise", huge)),
            barrier_global: attempt("membarrier", || barrier(trial::BARRIER_GLOBAL)),
            barrier_private: attempt("membarrier", || barrier(trial::BARRIER_PRIVATE)),
            pidfd_open: attempt("pidfd_open", pidfd_open),
            peer_credentials: after(&unix_sockets, || attempt("getsockopt", peer_credentials)),
            peer_pidfd: after(&unix_sockets, || attempt("getsockopt", peer_pidfd)),
            descriptors: after(&unix_sockets, || attempt("sendmsg", descriptors)),
            events: attempt("epoll_create1", epoll).and_then(|()| attempt("eventfd2", events)),
            userfaultfd: attempt("userfaultfd", userfaultfd),
            io_uring: attempt("io_uring_setup", || {
                trial::io_uring().map_err(Denial::of("io_uring_setup"))
            }),
            msg_zerocopy: after(&tcp, || {
                attempt("setsockopt", || trial::zerocopy(inet()?).map_err(Denial::of("setsockopt")))
            }),
            send_zc: attempt("io_uring_setup", || {
                trial::send_zc().map_err(Denial::of("io_uring_setup"))
            }),
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

/// A file without seals. Where the system insists, it is not executable.
fn file(more: MemfdFlags) -> Tried<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | more;
    let made = match memfd_create("pinfold-doctor", flags) {
        // vm.memfd_noexec=2 wants to be told.
        Err(Errno::ACCESS) => memfd_create("pinfold-doctor", flags | MemfdFlags::NOEXEC_SEAL),
        made => made,
    };
    let file = made.map_err(Denial::of("memfd_create"))?;
    ftruncate(&file, BYTES as u64).map_err(Denial::of("ftruncate"))?;
    Ok(file)
}

fn map(file: &OwnedFd, len: usize) -> Tried<SharedMapping> {
    SharedMapping::map(file.as_fd(), len).map_err(Denial::of(MMAP))
}

fn mapped() -> Tried<()> {
    map(&file(MemfdFlags::empty())?, BYTES).map(drop)
}

fn seals() -> Tried<()> {
    let file = file(MemfdFlags::empty())?;
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

fn future_write() -> Tried<()> {
    let file = file(MemfdFlags::empty())?;
    let before = map(&file, BYTES)?;
    fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).map_err(Denial::of("fcntl"))?;
    let seals = fcntl_get_seals(&file).map_err(Denial::of("fcntl"))?;
    if !seals.contains(SealFlags::FUTURE_WRITE) || map(&file, BYTES).is_ok() {
        return wrong("a file sealed against it can be mapped for writing");
    }
    before.populate(0..BYTES).map_err(Denial::of("madvise"))
}

fn populate() -> Tried<()> {
    let file = file(MemfdFlags::empty())?;
    let map = map(&file, BYTES)?;
    // `populate` makes do without the call, so ask for it by its name.
    trial::populate_write(&map).map_err(Denial::of("madvise"))?;
    match allocated(&file)? {
        all if all >= BYTES as u64 => Ok(()),
        _ => wrong("memory that was reserved is not there"),
    }
}

fn remove() -> Tried<()> {
    let file = file(MemfdFlags::empty())?;
    let map = map(&file, BYTES)?;
    map.populate(0..BYTES).map_err(Denial::of("madvise"))?;
    map.release(0..BYTES).map_err(Denial::of("madvise"))?;
    match allocated(&file)? {
        0 => Ok(()),
        _ => wrong("memory that was given back is still there"),
    }
}

fn huge() -> Tried<u64> {
    let file = file(MemfdFlags::empty())?;
    ftruncate(&file, 3 * HUGE as u64).map_err(Denial::of("ftruncate"))?;
    let map = map(&file, 3 * HUGE)?;
    trial::advise_huge(&map).map_err(Denial::of("madvise"))?;
    map.populate(HUGE..HUGE + 1).map_err(Denial::of("madvise"))?;
    allocated(&file)
}

/// Memory that a file takes, bytes.
fn allocated(file: &OwnedFd) -> Tried<u64> {
    let stat = fstat(file).map_err(Denial::of("fstat"))?;
    Ok(u64::try_from(stat.st_blocks).unwrap_or(0) * 512)
}

fn barrier(kind: [i32; 2]) -> Tried<()> {
    trial::membarrier(kind).map_err(Denial::of("membarrier"))
}

fn pidfd_open() -> Tried<()> {
    let own = process::self_pidfd().map_err(Denial::of("pidfd_open"))?;
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

/// A socket that listens on the loopback, and one that connects to it.
fn tcp() -> Tried<()> {
    attempt("socket", || inet().map(drop))?;
    attempt("connect", || {
        let (one, two) = (inet()?, inet()?);
        let here = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        net::bind(&one, &here).map_err(Denial::of("bind"))?;
        net::listen(&one, 1).map_err(Denial::of("listen"))?;
        let here = net::getsockname(&one).map_err(Denial::of("getsockname"))?;
        net::connect(&two, &here).map_err(Denial::of("connect"))?;
        let flags = net::SocketFlags::CLOEXEC;
        net::accept_with(&one, flags).map(drop).map_err(Denial::of("accept4"))
    })
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

fn userfaultfd() -> Tried<(u64, bool)> {
    match trial::userfaultfd(true) {
        Ok(features) => Ok((features, true)),
        // Before Linux 5.11 there was but one kind.
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            let features = trial::userfaultfd(false).map_err(Denial::of("userfaultfd"))?;
            Ok((features, false))
        }
        Err(error) => Err(Denial::of("userfaultfd")(error)),
    }
}
