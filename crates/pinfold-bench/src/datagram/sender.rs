//! A socket, a ring, and the memory that is sent from.
#![allow(unsafe_code)]
// Invariant: the bytes that the kernel was told to read lie in `areas` and `heads`, which are not
// dropped, nor given to anybody, before the kernel has said that it is done: by `areas`' invariant,
// and `drop`.

use std::{
    io,
    marker::PhantomData,
    mem::ManuallyDrop,
    net::UdpSocket,
    ops::Range,
    os::fd::AsRawFd,
    ptr,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use io_uring::{
    IoUring, Probe, cqueue, opcode,
    types::{CancelBuilder, Fd, SubmitArgs, Timespec},
};
use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};

use super::{
    AREAS_MAX, Area, BYTES_MAX, Counts, Error, PIECES_MAX, Reason, Way,
    area::Areas,
    entry::{self, Heads},
};
use pinfold_sys::fork::ForkMark;

const ENTER: &str = "io_uring_enter";
const REGISTER: &str = "io_uring_register (IORING_REGISTER_BUFFERS)";
const SEND: &str = "send";

/// A sender that is dropped waits so long for sends that the kernel has not made yet.
const LAST: Duration = Duration::from_secs(1);

/// Sends datagrams over one connected socket, out of memory of its own.
///
/// For the thread that made it: the kernel then keeps completions until that thread asks, which is
/// cheapest (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1; without it where the kernel cannot).
#[derive(Debug)]
pub struct Sender {
    pub(super) socket: UdpSocket,
    /// `None` where only [`Way::Call`] was asked for.
    ring: ManuallyDrop<Option<Ring>>,
    areas: ManuallyDrop<Areas>,
    heads: ManuallyDrop<Heads>,
    registered: bool,
    owner: u32,
    counts: Counts,
    mark: ForkMark,
    one_thread: PhantomData<*const ()>,
}

struct Ring(IoUring);

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("IoUring").field(&self.0.as_raw_fd()).finish()
    }
}

/// A send that was not even begun: the area is the caller's again.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    /// The area that was to be sent.
    pub area: Area,
    /// The reason why it was not.
    pub error: Error,
}

impl Sender {
    /// Sends over `socket`, which is connected, out of `areas` areas (1 to 4096) of `bytes` bytes
    /// each, rounded up to pages, all of whose pages are put in place. With `registered` they
    /// are also pinned, as one buffer, until the sender is dropped. Some 50 µs, and some 0.3 µs
    /// a page.
    ///
    /// # Errors
    /// [`Reason::Denied`] or [`Reason::Absent`] where there is no io_uring for this process;
    /// [`Reason::Memlock`] if so much may not be pinned; [`Reason::Length`], also for more than 1
    /// GiB in all; [`Reason::Exhausted`].
    pub fn new(
        socket: UdpSocket,
        areas: usize,
        bytes: usize,
        registered: bool,
    ) -> Result<Sender, Error> {
        let mut sender = Sender::without_ring(socket, areas, bytes)?;
        *sender.ring = Some(Ring(set_up(areas as u32)?));
        if registered {
            sender.register()?;
            sender.registered = true;
        }
        Ok(sender)
    }

    /// The same without a ring, which knows [`Way::Call`] alone.
    ///
    /// # Errors
    /// As [`Sender::new`], but for those of the ring.
    pub fn without_ring(socket: UdpSocket, areas: usize, bytes: usize) -> Result<Sender, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let all = bytes.checked_next_multiple_of(4096).and_then(|each| each.checked_mul(areas));
        if !(1..=AREAS_MAX).contains(&areas) || !all.is_some_and(|all| (1..=1 << 30).contains(&all))
        {
            return Err(Error::new(SEND, Errno::INVAL).because(Reason::Length));
        }
        let fail = |error| Error::new("mmap", errno(&error));
        let owner = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Sender {
            socket,
            ring: ManuallyDrop::new(None),
            heads: ManuallyDrop::new(Heads::new(areas)),
            areas: ManuallyDrop::new(Areas::new(areas, bytes, owner).map_err(fail)?),
            registered: false,
            owner,
            counts: Counts::default(),
            mark: ForkMark::new().map_err(fail)?,
            one_thread: PhantomData,
        })
    }

    fn ring(&self) -> Result<&IoUring, Error> {
        let none = || Error::new("io_uring_setup", Errno::NOSYS);
        self.ring.as_ref().map(|ring| &ring.0).ok_or_else(none)
    }

    fn register(&self) -> Result<(), Error> {
        let all = self.areas.addresses();
        let buffer = libc::iovec {
            iov_base: ptr::with_exposed_provenance_mut(all.start),
            iov_len: all.len(),
        };
        // SAFETY: the memory is this sender's, and stays mapped while the ring lives. The kernel
        // only reads it: there is no operation here that writes.
        let done = unsafe { self.ring()?.submitter().register_buffers(&[buffer]) };
        done.map_err(|error| {
            let error = Error::new(REGISTER, errno(&error)).over(&all);
            match getrlimit(Resource::Memlock).current {
                Some(limit) if error.errno() == Errno::NOMEM => {
                    error.because(Reason::Memlock(limit))
                }
                _ => error,
            }
        })
    }

    /// Checks that the kernel has the operation that this would be. One system call.
    ///
    /// The kernel does not tell this of registered pieces; where it cannot, their sends fail with
    /// `EINVAL`.
    ///
    /// # Errors
    /// [`Reason::Absent`] if it has not; [`Reason::Unregistered`]; the kernel's error.
    pub fn check(&self, way: Way, pieces: usize) -> Result<(), Error> {
        let call = way.call(pieces);
        let operation = match (way, pieces) {
            (Way::Call, _) => return Ok(()),
            (Way::Registered, _) if !self.registered => {
                return Err(Error::new(call, Errno::INVAL).because(Reason::Unregistered));
            }
            (Way::Copied, 0..=1) => opcode::Send::CODE,
            (Way::Copied, _) => opcode::SendMsg::CODE,
            (_, 0..=1) => opcode::SendZc::CODE,
            (_, _) => opcode::SendMsgZc::CODE,
        };
        let mut probe = Probe::new();
        self.ring()?.submitter().register_probe(&mut probe).map_err(|error| {
            Error::new("io_uring_register (IORING_REGISTER_PROBE)", errno(&error))
        })?;
        if probe.is_supported(operation) { Ok(()) } else { Err(Error::new(call, Errno::NOSYS)) }
    }

    /// Bytes of each.
    pub fn area_bytes(&self) -> usize {
        self.areas.stride()
    }

    /// Areas that the kernel still has, or will have once they are submitted.
    pub fn in_flight(&self) -> usize {
        self.areas.in_flight()
    }

    /// The outcomes of the sends so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// An area, the one that was free for longest. `None` while all are in flight, or with callers:
    /// [`Sender::settle`] brings back the former. A few ns.
    pub fn take(&mut self) -> Option<Area> {
        self.areas.take()
    }

    /// Takes back an area that is not to be sent.
    ///
    /// # Errors
    /// The area, if it is another sender's.
    pub fn put_back(&mut self, area: Area) -> Result<(), Area> {
        if area.owner != self.owner {
            return Err(area);
        }
        self.areas.put_back(area);
        Ok(())
    }

    /// The area's bytes.
    ///
    /// # Panics
    /// If the area is another sender's, or this process a child of the one that made this sender.
    pub fn bytes(&self, area: &Area) -> &[u8] {
        self.own(area);
        self.areas.bytes(area)
    }

    /// The area's bytes, to fill.
    ///
    /// # Panics
    /// As [`Sender::bytes`].
    pub fn bytes_mut(&mut self, area: &mut Area) -> &mut [u8] {
        self.own(area);
        self.areas.bytes_mut(area)
    }

    fn own(&self, area: &Area) {
        assert!(area.owner == self.owner, "the area belongs to another sender");
        assert!(!self.mark.is_child(), "the sender was made before a fork, by the parent");
    }

    /// Sends `pieces` of the area as one, after another. [`Way::Call`] does so at once, the others
    /// with the next [`Sender::submit`]. The area comes back, to be taken, when the kernel is done
    /// with it. [`Sender::counts`] tells whether the network took it.
    ///
    /// # Errors
    /// [`Reason::Length`], [`Reason::Unregistered`], [`Reason::Stranger`], [`Reason::Child`]; with
    /// the area.
    pub fn send(&mut self, area: Area, pieces: &[Range<usize>], way: Way) -> Result<(), Refused> {
        if let Err(error) = self.may_send(&area, pieces, way) {
            return Err(Refused { area, error });
        }
        if way == Way::Call {
            self.call(area, pieces);
            return Ok(());
        }
        let (index, at) = (area.index, self.areas.address(area.index));
        let fd = Fd(self.socket.as_raw_fd());
        let entry = entry::entry(&mut self.heads, fd, index, at, pieces, way);
        // There is an entry for each area, and no area is queued twice.
        // SAFETY: the entry names memory of this area and its header, which nobody changes, or
        // unmaps, until the kernel has said that it is done (see the invariants here and in
        // `area`).
        let pushed = self.ring.as_mut().map(|ring| unsafe { ring.0.submission().push(&entry) });
        match pushed {
            Some(Ok(())) => {}
            None => return Err(Refused { area, error: Error::new(way.call(1), Errno::NOSYS) }),
            Some(Err(_)) => return Err(Refused { area, error: Error::new(SEND, Errno::BUSY) }),
        }
        let bytes = pieces.iter().map(Range::len).sum();
        self.areas.begin(area, bytes, way.is_notified());
        Ok(())
    }

    fn may_send(&self, area: &Area, pieces: &[Range<usize>], way: Way) -> Result<(), Error> {
        let fail = |reason| Err(Error::new(SEND, Errno::INVAL).because(reason));
        if self.mark.is_child() {
            return fail(Reason::Child);
        }
        if area.owner != self.owner {
            return fail(Reason::Stranger);
        }
        if way == Way::Registered && !self.registered {
            return fail(Reason::Unregistered);
        }
        let within =
            |piece: &Range<usize>| piece.start < piece.end && piece.end <= self.area_bytes();
        let bytes: usize = pieces.iter().map(Range::len).sum();
        let fits = pieces.iter().all(within) && (1..=BYTES_MAX).contains(&bytes);
        if !fits || !(1..=PIECES_MAX).contains(&pieces.len()) {
            return fail(Reason::Length);
        }
        Ok(())
    }

    fn call(&mut self, area: Area, pieces: &[Range<usize>]) {
        let head = self.heads.fill(area.index, self.areas.address(area.index), pieces);
        // SAFETY: the header names bytes of the area, which is here, and the call only reads them.
        let sent = unsafe { libc::sendmsg(self.socket.as_raw_fd(), head, 0) };
        let sent =
            if sent < 0 { Err(errno(&io::Error::last_os_error())) } else { Ok(sent as usize) };
        self.count(sent, pieces.iter().map(Range::len).sum());
        self.areas.put_back(area);
    }

    /// Has the kernel begin all sends since the last time, in one system call, and takes note of
    /// completions. Waits for nothing.
    ///
    /// # Errors
    /// [`Reason::Child`]; the kernel's error. A send that was not begun still is to be.
    pub fn submit(&mut self) -> Result<(), Error> {
        self.here()?;
        loop {
            let Some(ring) = self.ring.as_mut() else { return Ok(()) };
            match ring.0.submit() {
                Ok(_) if ring.0.submission().is_empty() => break,
                Ok(_) => {}
                Err(error) if errno(&error) == Errno::INTR => {}
                // The kernel has more completions than there is room for.
                Err(error) if errno(&error) == Errno::BUSY => self.enter(1, LAST)?,
                Err(error) => return Err(Error::new(ENTER, errno(&error))),
            }
            self.collect();
        }
        self.collect();
        Ok(())
    }

    /// Waits until nothing is in flight.
    ///
    /// # Errors
    /// [`Reason::Late`] if that takes longer than `limit`; [`Reason::Child`]; the kernel's error.
    pub fn settle(&mut self, limit: Duration) -> Result<(), Error> {
        self.here()?;
        let end = Instant::now() + limit;
        self.submit()?;
        while self.in_flight() > 0 {
            // Each area's last word is a notice, unless its send has yet to be made.
            let want = if self.areas.unsent() > 0 { 1 } else { self.in_flight() };
            self.enter(want, end.saturating_duration_since(Instant::now()))?;
            self.collect();
        }
        Ok(())
    }

    /// Waits until the kernel has `want` further completions.
    fn enter(&self, want: usize, limit: Duration) -> Result<(), Error> {
        let limit = Timespec::from(limit);
        let args = SubmitArgs::new().timespec(&limit);
        match self.ring()?.submitter().submit_with_args(want, &args) {
            Ok(_) => Ok(()),
            Err(error) if errno(&error) == Errno::INTR => Ok(()),
            Err(error) => Err(Error::new(ENTER, errno(&error))),
        }
    }

    /// Takes note of completions.
    fn collect(&mut self) {
        loop {
            // Dropped at once, which tells the kernel that there is room again.
            let Some(ring) = self.ring.as_mut() else { return };
            let Some(said) = ring.0.completion().next() else { return };
            let (index, result, flags) = (said.user_data() as u32, said.result(), said.flags());
            if cqueue::notif(flags) {
                if self.areas.end_notice(index).is_some() {
                    self.counts.notified += 1;
                    self.counts.copied += u64::from(result as u32 & entry::COPIED != 0);
                }
            } else if let Some(wanted) = self.areas.end_send(index, cqueue::more(flags)) {
                let sent = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
                self.count(sent, wanted);
            }
        }
    }

    fn count(&mut self, sent: Result<usize, Errno>, wanted: usize) {
        if sent == Ok(wanted) {
            self.counts.sent += 1;
            self.counts.bytes += wanted as u64;
        } else {
            self.counts.failed += 1;
            self.counts.errno = sent.err();
        }
    }

    fn here(&self) -> Result<(), Error> {
        if self.mark.is_child() {
            return Err(Error::new(ENTER, Errno::SRCH).because(Reason::Child));
        }
        Ok(())
    }
}

/// A ring of so many entries; with the flags that make it cheap, where the kernel has them.
fn set_up(entries: u32) -> Result<IoUring, Error> {
    let fail = |error: io::Error| Error::new("io_uring_setup", errno(&error));
    let mut cheap = IoUring::builder();
    cheap.dontfork().setup_single_issuer().setup_defer_taskrun();
    let ring = match cheap.build(entries) {
        Err(error) if errno(&error) == Errno::INVAL => {
            IoUring::builder().dontfork().build(entries).map_err(fail)?
        }
        made => made.map_err(fail)?,
    };
    Ok(ring)
}

impl Drop for Sender {
    fn drop(&mut self) {
        // A child has the descriptor but not the mappings, whose place others may have by now.
        if self.mark.is_child() {
            return;
        }
        // A send that the kernel has not made within the time is cancelled.
        if self.areas.unsent() > 0 && self.settle(LAST).is_err() {
            let (all, limit) = (CancelBuilder::any(), Timespec::from(LAST));
            if let Ok(ring) = self.ring() {
                let _ = ring.submitter().register_sync_cancel(Some(limit), all);
            }
            let _ = self.settle(LAST);
        }
        let unsent = self.areas.unsent() > 0;
        if let Some(ring) = self.ring.as_ref().filter(|_| self.registered) {
            // Closing the ring ends the pins some time later.
            let _ = ring.0.submitter().unregister_buffers();
        }
        // SAFETY: each is dropped once, here; the ring before the memory.
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            // The kernel itself holds the pages of sends that were made. Of others it only has
            // addresses, at which nothing else may come to lie.
            if !unsent {
                ManuallyDrop::drop(&mut self.areas);
                ManuallyDrop::drop(&mut self.heads);
            }
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
