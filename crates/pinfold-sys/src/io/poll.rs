//! Sleeping until a descriptor has news. Level-triggered, except for [`Interest::Changes`].
#![allow(unsafe_code)]
// Invariant: the kernel is given lists that are as long as it is told.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll},
    io::{Errno, read, write},
};

use crate::failed::may_be_denied;

/// The events to wake up for. Hang-ups and errors always wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something to read.
    Read,
    /// Room to write.
    Write,
    /// Either.
    Both,
    /// Either, and only when there is more of it than before (`EPOLLET`): a thread that hears of it
    /// takes all there is, until there is none.
    Changes,
}

impl Interest {
    fn flags(self) -> epoll::EventFlags {
        match self {
            Interest::Read => epoll::EventFlags::IN,
            Interest::Write => epoll::EventFlags::OUT,
            Interest::Both => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            Interest::Changes => {
                epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET
            }
        }
    }
}

/// One descriptor's news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token given to [`Epoll::add`].
    pub token: u64,
    /// There is something to read, be it the end.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// The other side hung up, or the descriptor is in error.
    pub hung_up: bool,
}

/// A fixed room for events.
pub struct Events {
    found: Vec<epoll::Event>,
}

impl Events {
    /// Room for at most `room` events at a time, at least 1.
    pub fn with_capacity(room: usize) -> Events {
        Events { found: Vec::with_capacity(room.max(1)) }
    }

    /// The events that the last wait found.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.found.iter().map(|event| {
            let flags = event.flags;
            let gone = epoll::EventFlags::HUP | epoll::EventFlags::ERR | epoll::EventFlags::RDHUP;
            Event {
                token: event.data.u64(),
                readable: flags.contains(epoll::EventFlags::IN),
                writable: flags.contains(epoll::EventFlags::OUT),
                hung_up: flags.intersects(gone),
            }
        })
    }

    /// Events that the last wait found.
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Returns whether the last wait found as many as there is room for: there may be more.
    pub fn is_full(&self) -> bool {
        self.found.len() == self.found.capacity()
    }

    /// Returns whether the last wait found none.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A set of watched descriptors, itself a descriptor that can be watched. See `epoll(7)`.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// An empty set; closed on exec.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE` or `ENOMEM`.
    pub fn new() -> io::Result<Epoll> {
        Ok(Epoll(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Watches `fd`, to be reported as `token`, also if it was watched under another.
    ///
    /// # Errors
    /// `EPERM` if it cannot be watched, `ENOSPC` at `/proc/sys/fs/epoll/max_user_watches`,
    /// `ENOMEM`.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        match epoll::add(&self.0, &fd, epoll::EventData::new_u64(token), interest.flags()) {
            // A filter may have denied that the earlier watch ended.
            Err(Errno::EXIST) => self.modify(fd, token, interest),
            done => Ok(done?),
        }
    }

    /// Changes the interest in `fd`, or its token.
    ///
    /// # Errors
    /// `ENOENT` if it is not watched.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.0, fd, epoll::EventData::new_u64(token), interest.flags())?)
    }

    /// Stops watching `fd`. Do this before closing it: the kernel keeps watching while any
    /// duplicate is open.
    ///
    /// # Errors
    /// `ENOENT` if it is not watched.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, fd)?)
    }

    /// Waits until something watched has news, at most `patience` (`None`: without end), and leaves
    /// that for [`Epoll::wait`]. Returns whether anything has. A signal ends it early.
    ///
    /// # Errors
    /// The error of `poll(2)`, other than `EINTR`.
    pub fn sleep(&self, patience: Option<Duration>) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        match ready(&mut fds, patience) {
            Ok(found) => Ok(found > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits until something watched has news, at most `patience` (`None`: without end), and
    /// returns how many have. A signal ends the wait early with none.
    ///
    /// # Errors
    /// The error of `epoll_wait(2)`, other than `EINTR`.
    pub fn wait(&self, events: &mut Events, patience: Option<Duration>) -> io::Result<usize> {
        events.found.clear();
        let room = rustix::buffer::spare_capacity(&mut events.found);
        let found = match epoll::wait(&self.0, room, patience.map(timespec).as_ref()) {
            Err(errno) if may_be_denied(errno) => self.wait_by_old_call(events, patience),
            found => found,
        };
        match found {
            Ok(found) => Ok(found),
            Err(Errno::INTR) => Ok(0),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The same by `epoll_wait`, where a filter knows that call alone.
    #[cold]
    fn wait_by_old_call(
        &self,
        events: &mut Events,
        patience: Option<Duration>,
    ) -> Result<usize, Errno> {
        let room = events.found.capacity();
        let mut found = vec![libc::epoll_event { events: 0, u64: 0 }; room];
        let (set, most) = (self.0.as_raw_fd(), i32::try_from(room).unwrap_or(i32::MAX));
        // SAFETY: the kernel is given room for as many events as it is told.
        let count = unsafe { libc::epoll_wait(set, found.as_mut_ptr(), most, ms(patience)) };
        let count = usize::try_from(count).map_err(|_| last_errno())?;
        events.found.extend(found[..count].iter().map(|event| epoll::Event {
            flags: epoll::EventFlags::from_bits_retain(event.events),
            data: epoll::EventData::new_u64(event.u64),
        }));
        Ok(count)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of these has news, by `ppoll`, or by `poll` where a filter knows that call
/// alone. Returns how many have.
pub(crate) fn ready(fds: &mut [PollFd<'_>], patience: Option<Duration>) -> Result<usize, Errno> {
    match poll(fds, patience.map(timespec).as_ref()) {
        Err(errno) if may_be_denied(errno) => {}
        done => return done,
    }
    // SAFETY: `PollFd` is laid out as `struct pollfd`, and there are as many as the kernel is told.
    let done =
        unsafe { libc::poll(fds.as_mut_ptr().cast(), fds.len() as libc::nfds_t, ms(patience)) };
    usize::try_from(done).map_err(|_| last_errno())
}

const _: () = assert!(size_of::<PollFd<'_>>() == size_of::<libc::pollfd>());

/// Milliseconds for the old calls, rounded up; -1 is without end.
fn ms(patience: Option<Duration>) -> libc::c_int {
    patience.map_or(-1, |patience| {
        let ms = patience.as_nanos().div_ceil(1_000_000);
        libc::c_int::try_from(ms).unwrap_or(libc::c_int::MAX)
    })
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// The kernel counts in whole milliseconds where it has only `epoll_wait`, up to 24 days; a
/// longer wait is cut there, and callers wait again.
fn timespec(patience: Duration) -> Timespec {
    let patience = patience.min(Duration::from_millis(i32::MAX as u64));
    Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) }
}

/// Takes the count of a descriptor that counts, and returns whether there was any.
pub(crate) fn take_count(fd: impl AsFd) -> io::Result<bool> {
    let mut count = [0; 8];
    loop {
        match read(&fd, &mut count) {
            Ok(_) => return Ok(true),
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A descriptor that is readable while it is signalled. See `eventfd(2)`.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A counter that is not signalled; closed on exec, non-blocking.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE` or `ENOMEM`.
    pub fn new() -> io::Result<EventFd> {
        Ok(EventFd(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable. Any number of signals before a clear are one. About 1 µs.
    ///
    /// # Errors
    /// The error of `write(2)`; a full counter is no error.
    pub fn signal(&self) -> io::Result<()> {
        loop {
            match write(&self.0, &1u64.to_ne_bytes()) {
                Ok(_) | Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Makes it unreadable, and returns whether it was signalled.
    ///
    /// # Errors
    /// The error of `read(2)`.
    pub fn clear(&self) -> io::Result<bool> {
        take_count(&self.0)
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_seen_until_cleared() {
        let epoll = Epoll::new().unwrap();
        let bell = EventFd::new().unwrap();
        epoll.add(&bell, 42, Interest::Read).unwrap();
        let mut events = Events::with_capacity(4);
        assert_eq!(epoll.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
        assert!(!bell.clear().unwrap());
        bell.signal().unwrap();
        bell.signal().unwrap();
        for _ in 0..2 {
            assert_eq!(epoll.wait(&mut events, None).unwrap(), 1);
            let news = Event { token: 42, readable: true, writable: false, hung_up: false };
            assert_eq!(events.iter().collect::<Vec<_>>(), [news]);
        }
        assert!(bell.clear().unwrap());
        assert_eq!(epoll.wait(&mut events, Some(Duration::from_millis(1))).unwrap(), 0);
        assert!(events.is_empty());
        epoll.modify(&bell, 43, Interest::Both).unwrap();
        assert_eq!(epoll.wait(&mut events, None).unwrap(), 1);
        assert!(events.iter().next().is_some_and(|event| event.token == 43 && event.writable));
        epoll.remove(&bell).unwrap();
        assert!(epoll.remove(&bell).is_err());
    }

    #[test]
    fn room_is_kept() {
        let epoll = Epoll::new().unwrap();
        let bells: Vec<_> = (0..5).map(|_| EventFd::new().unwrap()).collect();
        for (token, bell) in (0..).zip(&bells) {
            epoll.add(bell, token, Interest::Read).unwrap();
            bell.signal().unwrap();
        }
        let mut events = Events::with_capacity(2);
        assert_eq!(epoll.wait(&mut events, Some(Duration::MAX)).unwrap(), 2);
        assert_eq!(events.len(), 2);
    }

    #[test]
    fn a_hang_up_wakes() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let epoll = Epoll::new().unwrap();
        epoll.add(&ours, 1, Interest::Read).unwrap();
        drop(theirs);
        let mut events = Events::with_capacity(2);
        assert_eq!(epoll.wait(&mut events, None).unwrap(), 1);
        assert!(events.iter().all(|event| event.hung_up && event.readable));
    }
}
