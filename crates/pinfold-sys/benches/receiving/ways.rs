//! The ways to receive messages.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    slice,
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use io_uring::{IoUring, cqueue, opcode, types};
use pinfold_sys::io::poll::{Epoll, Events, Interest};

use super::recv;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Each,
    Epoll,
    Multishot,
    Deferred,
}

pub(super) const WAYS: [Way; 4] = [Way::Each, Way::Epoll, Way::Multishot, Way::Deferred];

/// News taken at a time.
const NEWS: usize = 64;
const SAYS: u32 = 4096;
const ASKS: u32 = 1024;
/// Buffers of a ring, a power of two, and bytes of each.
const BUFFERS: u16 = 2048;
const BYTES: usize = 2048;
const PAGE: usize = 4096;

/// The receiving end, one variant for each mechanism.
pub(super) enum Waiter {
    Each(Vec<u8>),
    Epoll(Epoll, Events, Vec<u8>),
    Ring(Box<Ring>),
}

impl Waiter {
    /// `None`: there is no such way here.
    pub(super) fn new(way: Way, sockets: &[OwnedFd]) -> Option<Waiter> {
        let buffer = vec![0; 16 << 10];
        match way {
            Way::Each => Some(Waiter::Each(buffer)),
            Way::Epoll => {
                let epoll = Epoll::new().expect("a descriptor");
                for (at, socket) in sockets.iter().enumerate() {
                    epoll.add(socket, at as u64, Interest::Changes).expect("a socket");
                }
                Some(Waiter::Epoll(epoll, Events::with_capacity(NEWS), buffer))
            }
            Way::Multishot | Way::Deferred => {
                let mut ring = Ring::new(way == Way::Deferred)?;
                (0..sockets.len()).for_each(|at| ring.arm(sockets, at));
                Some(Waiter::Ring(Box::new(ring)))
            }
        }
    }

    /// Takes bytes that have come, some of them at least if there are any, and does not wait.
    pub(super) fn turn(&mut self, sockets: &[OwnedFd], mut came: impl FnMut(&OwnedFd, &[u8])) {
        match self {
            Waiter::Each(buffer) => {
                for socket in sockets {
                    let bytes = recv(socket, buffer);
                    if bytes > 0 {
                        came(socket, &buffer[..bytes]);
                    }
                }
            }
            Waiter::Epoll(epoll, events, buffer) => {
                epoll.wait(events, Some(Duration::ZERO)).expect("an epoll");
                for event in events.iter() {
                    let socket = &sockets[event.token as usize];
                    let bytes = recv(socket, buffer);
                    if bytes > 0 {
                        came(socket, &buffer[..bytes]);
                    }
                }
            }
            Waiter::Ring(ring) => ring.turn(sockets, came),
        }
    }
}

/// A ring, and the buffers that the kernel fills.
pub(super) struct Ring {
    // Before the buffers: armed operations end with it.
    ring: Option<IoUring>,
    bytes: *mut u8,
    entries: *mut types::BufRingEntry,
    /// Buffers given since the start.
    tail: u16,
}

fn bytes_layout() -> Layout {
    Layout::from_size_align(usize::from(BUFFERS) * BYTES, PAGE).expect("a size")
}

fn entries_layout() -> Layout {
    Layout::array::<types::BufRingEntry>(BUFFERS.into())
        .and_then(|it| it.align_to(PAGE))
        .expect("a size")
}

impl Ring {
    fn new(deferred: bool) -> Option<Ring> {
        let mut builder: io_uring::Builder = IoUring::builder();
        builder.setup_cqsize(SAYS);
        match deferred {
            true => builder.setup_single_issuer().setup_defer_taskrun(),
            false => builder.setup_coop_taskrun(),
        };
        let ring = builder.build(ASKS).ok()?;
        // SAFETY: neither has the size 0.
        let (bytes, entries) = unsafe {
            let entries = alloc_zeroed(entries_layout()).cast::<types::BufRingEntry>();
            (alloc_zeroed(bytes_layout()), entries)
        };
        assert!(!bytes.is_null() && !entries.is_null(), "memory");
        let mut ring = Ring { ring: Some(ring), bytes, entries, tail: 0 };
        // SAFETY: the entries are there until the ring is gone, see `drop`.
        let registered = unsafe {
            let submitter = ring.ring().submitter();
            submitter.register_buf_ring_with_flags(entries.addr() as u64, BUFFERS, 0, 0)
        };
        registered.ok()?;
        (0..BUFFERS).for_each(|id| ring.give(id));
        ring.publish();
        Some(ring)
    }

    fn ring(&mut self) -> &mut IoUring {
        self.ring.as_mut().expect("until it is dropped")
    }

    /// A ring that accepts connections.
    pub(super) fn accepting(listener: &OwnedFd) -> Option<Ring> {
        let mut ring = Ring::new(true)?;
        let accept = opcode::AcceptMulti::new(types::Fd(listener.as_raw_fd()))
            .flags(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
        // SAFETY: it names no memory.
        unsafe { ring.ring().submission().push(&accept.build()) }.ok()?;
        ring.ring().submit().ok()?;
        Some(ring)
    }

    /// Takes the connections that have been accepted. Their addresses are asked for, as calls tell
    /// them.
    pub(super) fn accepted(&mut self, accepted: &mut Vec<OwnedFd>) {
        self.enter();
        for said in self.ring().completion() {
            assert!(said.result() >= 0, "a caller");
            // SAFETY: the kernel has made it just now, for this.
            let socket = unsafe { OwnedFd::from_raw_fd(said.result()) };
            assert!(rustix::net::getpeername(&socket).is_ok());
            accepted.push(socket);
        }
    }

    /// Has the kernel do the work that is due, without a wait.
    fn enter(&mut self) {
        const GET_EVENTS: u32 = 1;
        // SAFETY: no argument is given.
        unsafe { self.ring().submitter().enter::<()>(0, 0, GET_EVENTS, None) }.expect("a ring");
    }

    fn arm(&mut self, sockets: &[OwnedFd], at: usize) {
        let socket = types::Fd(sockets[at].as_raw_fd());
        let entry = opcode::RecvMulti::new(socket, 0).build().user_data(at as u64);
        // SAFETY: the buffers are there until the ring is gone.
        unsafe { self.ring().submission().push(&entry) }.expect("room");
        self.ring().submit().expect("a ring");
    }

    fn give(&mut self, id: u16) {
        // SAFETY: of a ring of so many entries, which nobody else writes.
        let entry = unsafe { &mut *self.entries.add(usize::from(self.tail % BUFFERS)) };
        entry.set_addr(self.bytes.wrapping_add(usize::from(id) * BYTES).addr() as u64);
        entry.set_len(BYTES as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the entries are there; the kernel reads this word, and nobody else writes it.
        let tail = unsafe { &*types::BufRingEntry::tail(self.entries).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }

    fn turn(&mut self, sockets: &[OwnedFd], mut came: impl FnMut(&OwnedFd, &[u8])) {
        if self.ring().completion().is_empty() {
            self.enter();
        }
        let said: Vec<cqueue::Entry> = self.ring().completion().take(NEWS).collect();
        for said in said {
            let at = said.user_data() as usize;
            if let Some(id) = cqueue::buffer_select(said.flags()) {
                let len = usize::try_from(said.result()).unwrap_or(0);
                let from = self.bytes.wrapping_add(usize::from(id) * BYTES);
                // SAFETY: the kernel has filled so much of this buffer, and has it no more.
                let bytes = unsafe { slice::from_raw_parts(from, len) };
                if len > 0 {
                    came(&sockets[at], bytes);
                }
                self.give(id);
            }
            if !cqueue::more(said.flags()) {
                self.arm(sockets, at);
            }
        }
        self.publish();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel fills buffers in the context of this thread alone, which is here; an armed
        // operation that ends after the ring is closed has no buffers any more.
        if let Some(ring) = self.ring.take() {
            let _ = ring.submitter().unregister_buf_ring(0);
        }
        // SAFETY: made so; the kernel has forgotten where they were.
        unsafe {
            dealloc(self.bytes, bytes_layout());
            dealloc(self.entries.cast(), entries_layout());
        }
    }
}
