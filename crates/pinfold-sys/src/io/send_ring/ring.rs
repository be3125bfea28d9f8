//! The ring.
#![allow(unsafe_code)]
// Invariant: the kernel does all that it is asked for within `send`, since no send waits for room
// (`MSG_DONTWAIT`): when `send` returns, every order that the kernel has taken is made or refused,
// and the lists it was given are read. Orders that it has not taken, since it can no longer be
// entered, it never will: the ring is not entered again, and its lists are leaked.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::{Arc, PoisonError},
    time::Duration,
};

use io_uring::{
    Probe, cqueue, opcode, squeue,
    types::{Fd, SubmitArgs, Timespec},
};
use rustix::io::Errno;

use super::{
    FLIGHTS_MAX, ORDERS_MAX,
    flights::{Flight, Flights},
};
use crate::{
    mem::pin::{Error, Reason, Registered, SlotId},
    process::Segment,
    socket::stream::{self, PARTS_MAX},
};

/// `IORING_SEND_ZC_REPORT_USAGE`, and in the result of a notice `IORING_NOTIF_USAGE_ZC_COPIED`, of
/// `linux/io_uring.h`.
const REPORT: u16 = 1 << 3;
const COPIED: u32 = 1 << 31;

/// Bytes of one order at most.
const BYTES_MAX: usize = 1 << 30;

/// Attempts to enter the ring while the kernel is short of something.
const TRIES: u32 = 1000;

const ENTER: &str = "io_uring_enter";

/// The kernel's access to the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It copies them: `IORING_OP_SENDMSG`.
    Copied,
    /// It takes hold of their pages for this send: `IORING_OP_SENDMSG_ZC`. Until the flight lands
    /// they count against `RLIMIT_MEMLOCK`. Linux 6.2, for it is also to say whether it copied.
    Pinned,
    /// It has hold of them already: `IORING_OP_SEND_ZC` of a registered buffer, this slot of the
    /// ring's table. One part an order. Linux 6.2.
    Registered(SlotId),
}

/// Memory to be sent, one part behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The parts, up to [`PARTS_MAX`].
    pub parts: &'a [Segment],
    /// The kernel's access to them.
    pub way: Way,
}

/// The outcome of an order.
#[derive(Debug)]
pub struct Launched {
    /// The index of the order.
    pub order: usize,
    /// Bytes of it that are sent.
    pub bytes: usize,
    /// The bytes that the kernel may still look at; tells later whether it has copied. `None`
    /// where it was to copy, and has.
    pub flight: Option<Flight>,
}

/// Sends by the ring of a [`Registered`], which does nothing else meanwhile.
///
/// For any thread, one at a time.
#[derive(Debug)]
pub struct SendRing {
    registered: Arc<Registered>,
    flights: Flights,
    owner: u32,
    /// The errno with which the kernel could no longer be entered.
    dead: Option<Errno>,
}

impl SendRing {
    /// Sends by this ring.
    ///
    /// # Errors
    /// [`Reason::Absent`] if the kernel cannot send without copying; [`Reason::Child`]; `EBUSY` if
    /// there is one already.
    pub fn new(registered: Arc<Registered>) -> Result<SendRing, Error> {
        registered.here()?;
        let mut probe = Probe::new();
        let submitter = registered.ring.0.submitter();
        submitter.register_probe(&mut probe).map_err(|error| {
            Error::new("io_uring_register (IORING_REGISTER_PROBE)", errno(&error))
        })?;
        for (call, operation) in [
            ("IORING_OP_SEND_ZC", opcode::SendZc::CODE),
            ("IORING_OP_SENDMSG_ZC", opcode::SendMsgZc::CODE),
        ] {
            if !probe.is_supported(operation) {
                return Err(Error::new(call, Errno::NOSYS).because(Reason::Absent));
            }
        }
        if !registered.take_for_sends() {
            return Err(Error::new(ENTER, Errno::BUSY));
        }
        let owner = crate::mem::pin::next_owner();
        Ok(SendRing { registered, flights: Flights::new(), owner, dead: None })
    }

    /// The owner of the memory of [`Way::Registered`].
    pub fn registered(&self) -> &Arc<Registered> {
        &self.registered
    }

    /// True if the kernel can no longer be entered: nothing will be sent.
    pub fn is_dead(&self) -> bool {
        self.dead.is_some()
    }

    /// Flights that have not [landed](SendRing::land).
    pub fn in_flight(&self) -> usize {
        FLIGHTS_MAX - self.flights.room()
    }

    /// Flights that would [land](SendRing::land), as far as was [collected](SendRing::collect).
    pub fn over(&self) -> usize {
        self.flights.all_over()
    }

    /// Sends as far as there is room, in one system call: the outcomes of the orders that were
    /// begun, in their order, are added to `launched`, and the number of bytes sent in all is
    /// returned; 0 if there is no room. The bytes of all but the last order that is named there are
    /// sent whole.
    ///
    /// # Errors
    /// Nothing was sent. `ENOBUFS`: as many are in flight as there can be. `ENOMEM` at
    /// `RLIMIT_MEMLOCK`. `EINVAL`, `EOPNOTSUPP`: the kernel cannot, [`Way::Registered`] the
    /// slot does not have this memory. `EPIPE`, `ECONNRESET`, ...: the connection is broken.
    ///
    /// # Safety
    /// Each part can be read. Those of an order whose flight is named in `launched` are not written
    /// until it has landed, or nothing that the kernel reads there matters to anybody.
    pub unsafe fn send(
        &mut self,
        socket: impl AsFd,
        orders: &[Order<'_>],
        launched: &mut Vec<Launched>,
    ) -> Result<usize, Errno> {
        self.registered.here().map_err(|error| error.errno())?;
        if let Some(errno) = self.dead {
            return Err(errno);
        }
        let orders = &orders[..orders.len().min(ORDERS_MAX)];
        self.collect();
        if self.flights.room() < orders.len() {
            return Err(Errno::NOBUFS);
        }
        let socket = Fd(socket.as_fd().as_raw_fd());
        let heads: Vec<libc::msghdr> =
            orders.iter().map(|order| stream::message(order.parts)).collect();
        let mut entries = Vec::with_capacity(orders.len());
        for (at, order) in orders.iter().enumerate() {
            let is_last = at + 1 == orders.len();
            let entry = self.entry(socket, order, &raw const heads[at], is_last)?;
            entries.push(entry);
        }
        let numbers: Vec<u64> = entries.iter().filter_map(|_| self.flights.take()).collect();
        for (entry, number) in entries.iter_mut().zip(&numbers) {
            *entry = std::mem::replace(entry, opcode::Nop::new().build()).user_data(*number);
        }
        // SAFETY: the parts can be read, by contract, and the heads are here until the kernel has
        // told the outcome of each, or are leaked.
        if let Err(errno) = unsafe { self.perform(&entries, &numbers) } {
            self.dead = Some(errno);
            std::mem::forget(heads);
        }
        self.sum_up(orders, &numbers, launched)
    }

    fn entry(
        &self,
        socket: Fd,
        order: &Order<'_>,
        head: *const libc::msghdr,
        is_last: bool,
    ) -> Result<squeue::Entry, Errno> {
        // A send that is not whole ends the chain.
        let chain = if is_last { 0 } else { libc::MSG_WAITALL | libc::MSG_MORE };
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | chain;
        let bytes = order.parts.iter().map(|part| part.len).sum();
        if order.parts.len() > PARTS_MAX || !(1..=BYTES_MAX).contains(&bytes) {
            return Err(Errno::INVAL);
        }
        let entry = match (order.way, order.parts) {
            (Way::Copied, _) => opcode::SendMsg::new(socket, head).flags(flags as u32).build(),
            (Way::Pinned, [part]) => opcode::SendZc::new(socket, part.ptr, part.len as u32)
                .flags(flags)
                .zc_flags(REPORT)
                .build(),
            (Way::Pinned, _) => {
                opcode::SendMsgZc::new(socket, head).flags(flags as u32).ioprio(REPORT).build()
            }
            (Way::Registered(slot), [part]) if self.registered.has(slot) => {
                opcode::SendZc::new(socket, part.ptr, part.len as u32)
                    .flags(flags)
                    .zc_flags(REPORT)
                    .buf_index(Some(slot.index() as u16))
                    .build()
            }
            (Way::Registered(_), _) => return Err(Errno::INVAL),
        };
        Ok(if is_last { entry } else { entry.flags(squeue::Flags::IO_LINK) })
    }

    /// Has the kernel make these sends, and waits until it has told the outcome of each: none waits
    /// for anything.
    ///
    /// # Safety
    /// The memory that the entries name can be read, and the lists among it stay if this fails.
    unsafe fn perform(&mut self, entries: &[squeue::Entry], numbers: &[u64]) -> Result<(), Errno> {
        let registered = Arc::clone(&self.registered);
        let alone = registered.transfer.lock().unwrap_or_else(PoisonError::into_inner);
        let ring = &registered.ring.0;
        {
            // SAFETY: the thread that uses the queue has the lock.
            let mut queue = unsafe { ring.submission_shared() };
            // SAFETY: by contract. The queue is empty: each call leaves it so, or the ring is dead.
            unsafe { queue.push_multiple(entries) }.map_err(|_| Errno::BUSY)?;
        }
        drop(alone);
        let mut tries = 0;
        let mut submitted = ring.submitter().submit();
        loop {
            match submitted {
                Ok(_) => {}
                Err(error) if errno(&error) == Errno::INTR => {}
                Err(error)
                    if matches!(errno(&error), Errno::AGAIN | Errno::BUSY | Errno::NOMEM) =>
                {
                    tries += 1;
                    if tries > TRIES {
                        return Err(errno(&error));
                    }
                    std::thread::yield_now();
                }
                Err(error) => return Err(errno(&error)),
            }
            self.collect();
            if numbers.iter().all(|number| self.flights.result(*number).is_some()) {
                return Ok(());
            }
            submitted = ring.submitter().submit_and_wait(1);
        }
    }

    fn sum_up(
        &mut self,
        orders: &[Order<'_>],
        numbers: &[u64],
        launched: &mut Vec<Launched>,
    ) -> Result<usize, Errno> {
        let (mut sent, mut failed) = (0, None);
        for (at, (order, &number)) in orders.iter().zip(numbers).enumerate() {
            let Some(result) = self.flights.result(number) else { continue };
            let bytes = usize::try_from(result).unwrap_or(0);
            if result < 0 && failed.is_none() {
                failed = Some(Errno::from_raw_os_error(-result));
            }
            sent += bytes;
            let is_over = self.flights.over(number).is_some();
            let flight = if is_over && (bytes == 0 || order.way == Way::Copied) {
                self.flights.free(number);
                None
            } else {
                Some(Flight { owner: self.owner, number })
            };
            if bytes > 0 || flight.is_some() {
                launched.push(Launched { order: at, bytes, flight });
            }
        }
        match failed.or(self.dead) {
            Some(errno) if sent == 0 && errno != Errno::AGAIN => Err(errno),
            _ => Ok(sent),
        }
    }

    /// Takes note of completions. No system call; some ns if there are none.
    pub fn collect(&mut self) {
        if self.registered.here().is_err() {
            return;
        }
        let _alone = self.registered.transfer.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the thread that uses the queue has the lock.
        let said = unsafe { self.registered.ring.0.completion_shared() };
        for said in said {
            let (number, result, flags) = (said.user_data(), said.result(), said.flags());
            if cqueue::notif(flags) {
                self.flights.noticed(number, result as u32 & COPIED != 0);
            } else {
                self.flights.said(number, result, cqueue::more(flags));
            }
        }
    }

    /// Ends a flight whose bytes the kernel no longer looks at, as far as was
    /// [collected](SendRing::collect): returns whether it has copied any of them.
    ///
    /// # Errors
    /// The flight: it may still look, or it is another ring's.
    pub fn land(&mut self, flight: Flight) -> Result<bool, Flight> {
        if flight.owner != self.owner {
            return Err(flight);
        }
        match self.flights.over(flight.number) {
            Some(copied) => {
                self.flights.free(flight.number);
                Ok(copied)
            }
            None => Err(flight),
        }
    }

    /// Waits until there are completions, at most so long, and takes note of them.
    pub fn wait(&mut self, limit: Duration) {
        if self.registered.here().is_err() {
            return;
        }
        let limit = Timespec::from(limit);
        let args = SubmitArgs::new().timespec(&limit);
        if self.dead.is_none() {
            // Returns at once if there are some. A signal, or the end of the time, are as good as
            // news.
            let _ = self.registered.ring.0.submitter().submit_with_args(1, &args);
        }
        self.collect();
    }
}

impl AsFd for SendRing {
    /// The ring: readable while there is something to [collect](SendRing::collect).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.registered.as_fd()
    }
}

impl Drop for SendRing {
    fn drop(&mut self) {
        // A later user could not tell completions of these sends from its own.
        if self.in_flight() == 0 && self.dead.is_none() {
            self.registered.give_back();
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
