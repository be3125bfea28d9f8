//! Single facilities of the kernel, each tried in a process of its own, by the library's own calls.

use std::os::fd::{AsFd, OwnedFd};

use pinfold::Arena;
use pinfold_sys::{
    cpu::barrier,
    failed::Failed,
    io::poll::{Epoll, EventFd, Interest},
    mem::{
        frames::Frames,
        mapping::SharedMapping,
        memfd::{self, SealError},
        pin::{self, Pin, Registered},
        userfault::{self, Mover, Pages, Watch},
    },
    process,
    socket::stream::zerocopy::{self, ZeroCopy},
    trial,
};
use rustix::{
    fs::{SealFlags, fcntl_add_seals, fstat, ftruncate},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{
    super::child::{Denial, FORK, PIPE, Tried, attempt},
    sockets::{connection, descriptors, peer_credentials, peer_pidfd, tcp, unix_sockets},
};

/// Bytes of shared memory for a trial.
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
    /// Bytes of these in huge pages.
    pub(crate) bytes_huge: u64,
    /// The kernel's answer about a single one where there are none.
    pub(crate) refused: Option<Denial>,
}

/// The uses of a userfaultfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Faults {
    /// Files in shared memory can be watched, too.
    pub(crate) shared: bool,
    /// Any memory can.
    pub(crate) any: bool,
    /// Pages can be moved.
    pub(crate) moves: bool,
}

/// The results of the calls.
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
    /// Succeeds if the kernel shows page numbers.
    pub(crate) page_numbers: Tried<()>,
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
        let memfd = attempt("memfd_create", || empty().map(drop))
            .and_then(|()| attempt("ftruncate", || file(BYTES).map(drop)));
        let memfd_seals = after(&memfd, seals);
        // Mappings of shared memory cannot be tried where there is none.
        let mapping = after(&memfd, || attempt(MMAP, mapped));
        let (unix_sockets, tcp) = (unix_sockets(), tcp());
        // A ring keeps its memory from children, as do pages that are moved.
        let kept = after(&mapping, || attempt("madvise", kept_from_children));
        let io_uring = after(&kept, rings);
        Calls {
            noexec_seal: attempt("memfd_create", noexec),
            future_write_seal: both(&mapping, &memfd_seals, || attempt("fcntl", future_write)),
            populate_write: after(&mapping, || attempt("madvise", populate)),
            remove: after(&mapping, || attempt("madvise", remove)),
            huge_shmem: both(&mapping, &memfd_seals, || attempt("madvise", huge)),
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
            events: events(),
            userfaultfd: after(&kept, || attempt("userfaultfd", userfaultfd)),
            page_numbers: attempt("open", || Frames::open().map(drop).map_err(Denial::of("open"))),
            msg_zerocopy: after(&tcp, msg_zerocopy),
            // Without a ring, its error is also the error of sending by one.
            send_zc: io_uring
                .as_ref()
                .map_err(Denial::clone)
                .and_then(|_| after(&tcp, || attempt("io_uring_enter", send_zc))),
            io_uring,
            memfd,
            memfd_seals,
            mapping,
            unix_sockets,
            tcp,
        }
    }
}

/// The calls by which a file is mapped: a filter may do without advice, but not kill for it.
const MMAP: &str = "mmap or madvise";

/// Tries something that depends on another trial.
fn after<T>(first: &Tried<()>, then: impl FnOnce() -> Tried<T>) -> Tried<T> {
    match first {
        Ok(()) => then(),
        // A common cause is not repeated for every facility, unless it is a lack of descriptors.
        Err(Denial::Errno { call, .. } | Denial::Killed { call, .. })
            if call != FORK && call != PIPE && !call.is_empty() =>
        {
            Err(Denial::Untried(format!("it takes {call}")))
        }
        Err(why) => Err(why.clone()),
    }
}

/// Tries something that depends on two other trials.
fn both<T>(one: &Tried<()>, two: &Tried<()>, then: impl FnOnce() -> Tried<T>) -> Tried<T> {
    after(one, || after(two, then))
}

pub(super) fn wrong<T>(what: &str) -> Tried<T> {
    Err(Denial::Wrong(what.to_owned()))
}

fn empty() -> Tried<OwnedFd> {
    memfd::create_empty("pinfold-doctor").map_err(Denial::of("memfd_create"))
}

/// A file without seals.
fn file(len: usize) -> Tried<OwnedFd> {
    let file = empty()?;
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
    SharedMapping::map(file.as_fd(), len).map_err(Denial::of("mmap"))
}

/// Maps a file as lanes are mapped, and as arenas are.
fn mapped() -> Tried<()> {
    let file = file(BYTES)?;
    map(&file, BYTES)?;
    SharedMapping::map_aligned(file.as_fd(), BYTES, HUGE).map(drop).map_err(Denial::of("mmap"))
}

fn seals() -> Tried<()> {
    attempt("fcntl", || {
        let file = file(BYTES)?;
        let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, all).map_err(Denial::of("fcntl"))?;
        if ftruncate(&file, 0).is_ok() || ftruncate(&file, 2 * BYTES as u64).is_ok() {
            return wrong("a file sealed against it changes its size");
        }
        memfd::create_sealed("pinfold-doctor", BYTES).map(drop).map_err(Denial::of("fcntl"))
    })?;
    // The check is the one that a peer makes of a file that it is given.
    attempt("fstatfs", || {
        let file = memfd::create_sealed("pinfold-doctor", BYTES).map_err(Denial::of("fcntl"))?;
        match memfd::check_sealed(file.as_fd(), BYTES) {
            Ok(()) => Ok(()),
            Err(SealError::Os(failed)) => Err(denied(failed.call, failed.errno)),
            Err(why) => wrong(&format!("a file that was just sealed is {why}")),
        }
    })
}

/// Seals a file as an arena's file is sealed before a peer gets it.
fn future_write() -> Tried<()> {
    let file = memfd::create_fixed("pinfold-doctor", BYTES).map_err(Denial::of("fcntl"))?;
    let before = map(&file, BYTES)?;
    memfd::seal(file.as_fd(), true).map_err(Denial::of("fcntl"))?;
    if !memfd::refuses_writers(file.as_fd()) {
        // The library does without the seal where the kernel does not know it.
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
    let map = SharedMapping::map_aligned(file.as_fd(), HUGE, HUGE).map_err(Denial::of("mmap"))?;
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

fn events() -> Tried<()> {
    let epoll = || Epoll::new().map_err(Denial::of("epoll_create1"));
    let event = || EventFd::new().map_err(Denial::of("eventfd2"));
    attempt("epoll_create1", || epoll().map(drop))?;
    attempt("eventfd2", || event().map(drop))?;
    attempt("epoll_ctl", || {
        let (epoll, event) = (epoll()?, event()?);
        epoll.add(&event, 1, Interest::Read).map_err(Denial::of("epoll_ctl"))?;
        event.signal().map_err(Denial::of("write"))
    })
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

/// Moves a page; `true` if it came to lie elsewhere.
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
    let features =
        attempt("io_uring_setup", || trial::io_uring().map_err(Denial::of("io_uring_setup")))?;
    attempt("io_uring_register", || {
        let said = |error: pin::Error| denied(error.call(), error.errno());
        let memory = vec![1u8; PINNED_BYTES];
        let at = memory.as_ptr().expose_provenance();
        let ring = Registered::new(1).map_err(said)?;
        let slot = ring.pin(at..at + memory.len()).map_err(said)?;
        ring.unpin(slot).map_err(said)
    })?;
    Ok(features)
}

fn kept_from_children() -> Tried<()> {
    trial::dont_fork(&map(&file(BYTES)?, BYTES)?).map_err(Denial::of("madvise"))
}

fn msg_zerocopy() -> Tried<()> {
    let said = |failed: Failed| denied(failed.call, failed.errno);
    attempt("recvmsg", || zerocopy::may_collect(&connection()?.0).map_err(said))?;
    attempt("setsockopt", || ZeroCopy::new(&connection()?.0).map(drop).map_err(said))
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

/// The denial of `call`, named without its purpose.
fn denied(call: &str, errno: Errno) -> Denial {
    let call = call.split([' ', '(']).next().unwrap_or(call).to_owned();
    Denial::Errno { call, errno: errno.raw_os_error() }
}
