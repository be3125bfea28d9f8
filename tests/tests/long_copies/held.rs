#![allow(unsafe_code)]
//! Memory whose pages a userfaultfd is to provide: a thread that touches one waits.
// Invariant: the pages stay mapped for good, and none but the library touches them before they are
// provided.

use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
    os::fd::{AsRawFd, FromRawFd},
    path::PathBuf,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use pinfold::{OwnedBuf, OwnedBufMut};
use pinfold_tests::{role::PATIENCE, skip::skip};

pub const LEN: usize = 1 << 20;

// Numbers of `linux/userfaultfd.h`.
const USER_MODE_ONLY: libc::c_int = 1;
const UFFD_API: u64 = 0xaa;
const THREAD_ID: u64 = 1 << 8;
const MINOR_SHMEM: u64 = 1 << 10;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_UNREGISTER: libc::c_ulong = 0x8010_aa01;
const UFFDIO_WAKE: libc::c_ulong = 0x8010_aa02;
const MODE_MISSING: u64 = 1;
const MODE_MINOR: u64 = 4;
/// The thread's number in an event, bytes from its start.
const EVENT_THREAD: usize = 24;

/// Memory of this process's own.
pub struct Held {
    pages: *mut u8,
    len: usize,
    dropped: Arc<AtomicBool>,
}

// SAFETY: plain memory that is mapped for good.
unsafe impl Send for Held {}

// SAFETY: as above; no other code has it.
unsafe impl OwnedBuf for Held {
    fn bytes(&self) -> (*const u8, usize) {
        (self.pages, self.len)
    }
}

// SAFETY: as above.
unsafe impl OwnedBufMut for Held {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.pages, self.len)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Release);
    }
}

/// The side that provides the pages.
#[derive(Clone)]
pub struct Holder {
    at: u64,
    len: usize,
    events: Arc<File>,
    dropped: Arc<AtomicBool>,
}

impl Holder {
    /// Holds `len` mapped bytes at `at`, pages of which are missing (`mode`).
    fn new(at: *mut u8, len: usize, flags: libc::c_int, mode: u64) -> Result<Holder, String> {
        let done = |name: &str, done: libc::c_long| match done {
            0.. => Ok(done as libc::c_int),
            _ => Err(format!("{name}: {}", io::Error::last_os_error())),
        };
        // Without the second flag, `poll` says nothing of use.
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | flags;
        // SAFETY: the call takes one integer.
        let fd = done("userfaultfd", unsafe { libc::syscall(libc::SYS_userfaultfd, flags) })?;
        // SAFETY: a new descriptor, which no other code has.
        let events = Arc::new(unsafe { File::from_raw_fd(fd) });
        let features = if mode == MODE_MINOR { MINOR_SHMEM } else { THREAD_ID };
        let mut api = [UFFD_API, features, 0];
        // SAFETY: the structures are those that the numbers stand for.
        done("UFFDIO_API", unsafe { libc::ioctl(fd, UFFDIO_API, api.as_mut_ptr()) }.into())?;
        let at = at.expose_provenance() as u64;
        let mut range = [at, len as u64, mode, 0];
        // SAFETY: as above.
        let registered = unsafe { libc::ioctl(fd, UFFDIO_REGISTER, range.as_mut_ptr()) };
        done("UFFDIO_REGISTER", registered.into())?;
        Ok(Holder { at, len, events, dropped: Arc::default() })
    }

    /// Returns when a thread waits for a page.
    pub fn await_touch(&self) {
        assert!(self.is_touched(PATIENCE), "nothing is copied");
    }

    /// Returns whether a thread comes to wait for a page before so much time has passed.
    pub fn is_touched(&self, patience: Duration) -> bool {
        self.toucher(patience).is_some()
    }

    /// The same of a thread of another process.
    pub fn is_touched_by_stranger(&self, patience: Duration) -> bool {
        let is_own = |thread: u32| PathBuf::from(format!("/proc/self/task/{thread}")).exists();
        std::iter::from_fn(|| self.toucher(patience)).any(|thread| !is_own(thread))
    }

    /// The next thread that waits for a page: its number, if events have that.
    fn toucher(&self, patience: Duration) -> Option<u32> {
        let fd = self.events.as_raw_fd();
        let mut event = [0; 32];
        let end = Instant::now() + patience;
        loop {
            let left = end.checked_duration_since(Instant::now())?;
            let mut awaited = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one structure.
            unsafe { libc::poll(&raw mut awaited, 1, left.as_millis() as libc::c_int) };
            // A thread that was killed waits no more.
            if matches!((&*self.events).read(&mut event), Ok(32)) {
                return Some(u32::from_ne_bytes(std::array::from_fn(|i| event[EVENT_THREAD + i])));
            }
        }
    }

    /// Provides all pages; threads that wait go on.
    pub fn release(&self) {
        let mut range = [self.at, self.len as u64];
        let fd = self.events.as_raw_fd();
        // Threads that wait for a page that is missing are woken by the first as well.
        for number in [UFFDIO_UNREGISTER, UFFDIO_WAKE] {
            // SAFETY: the structure is that of the number.
            let done = unsafe { libc::ioctl(fd, number, range.as_mut_ptr()) };
            assert_eq!(done, 0, "{}", io::Error::last_os_error());
        }
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Takes the pages between these bytes away: they are missing from now on.
    pub fn hide(&self, Range { start, end }: Range<usize>) {
        let at = ptr::with_exposed_provenance_mut(self.at as usize + start);
        // SAFETY: memory of this one's, whose contents are of no use.
        assert_eq!(unsafe { libc::madvise(at, end - start, libc::MADV_DONTNEED) }, 0);
    }

    /// Has another mapping stand where the pages were, which no access is allowed to. Threads that
    /// wait find that.
    pub fn remap(self) {
        let at = ptr::with_exposed_provenance_mut(self.at as usize);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: memory of this one's, at which no code of this process looks any more.
        let mapped = unsafe { libc::mmap(at, self.len, libc::PROT_NONE, flags, -1, 0) };
        assert_eq!(mapped, at);
        drop(self.events);
    }
}

/// New memory.
fn pages(len: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: new memory, at a place that the kernel chooses.
    let pages = unsafe { libc::mmap(ptr::null_mut(), len, rights, flags, -1, 0) };
    assert_ne!(pages, libc::MAP_FAILED);
    pages.cast()
}

impl Held {
    /// Memory that holds up a thread of the program. Its pages are missing.
    pub fn new() -> Result<(Held, Holder), String> {
        let (pages, len) = (pages(LEN), LEN);
        let holder = Holder::new(pages, len, USER_MODE_ONLY, MODE_MISSING)?;
        Ok((Held { pages, len, dropped: Arc::clone(&holder.dropped) }, holder))
    }

    /// Memory that is there until it is [hidden](Holder::hide), and then holds up the kernel as
    /// well, which takes rights.
    pub fn filled(len: usize) -> Result<(Held, Holder), String> {
        let pages = pages(len);
        // SAFETY: of the mapping, which no other thread has.
        unsafe { ptr::write_bytes(pages, 1, len) };
        let holder = Holder::new(pages, len, 0, MODE_MISSING)?;
        Ok((Held { pages, len, dropped: Arc::clone(&holder.dropped) }, holder))
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped, and in no other use by now.
        unsafe { std::slice::from_raw_parts(self.pages, self.len) }
    }
}

/// Memory that holds up a thread. `None`: there is none here.
pub fn held() -> Option<(Held, Holder)> {
    or_skip(Held::new())
}

/// Holds up a thread that touches these whole pages of an arena of this process, whose file has
/// them.
pub fn hold(at: *mut u8, len: usize) -> Option<Holder> {
    assert!(at.addr().is_multiple_of(4096) && len.is_multiple_of(4096));
    let holder = or_skip(Holder::new(at, len, USER_MODE_ONLY, MODE_MINOR))?;
    // The pages stay in their file.
    holder.hide(0..len);
    Some(holder)
}

fn or_skip<T>(held: Result<T, String>) -> Option<T> {
    held.map_err(|why| skip(&format!("a copy that is held up: {why}"))).ok()
}
