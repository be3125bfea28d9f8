//! Each call that changes the memory at an address, one at a time, and a check of whether a
//! userfaultfd that watches the memory is told of it.
#![allow(unsafe_code)]
// Invariant: the calls change a ground's own memory alone. System calls reach it; a reference to it
// comes only from `Ground::bytes`.

use std::{
    ffi::c_void,
    io,
    ops::Range,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr,
};

use crate::ground::PAGE;

/// Memory of a ground.
pub const BYTES: usize = 16 * PAGE;

/// Memory that changes are made to, and as much beside it that nothing else lies in.
pub struct Ground {
    /// The bytes that are sent.
    pub range: Range<usize>,
    spare: Range<usize>,
    file: Option<OwnedFd>,
}

/// The kind of memory that is there before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Private memory of no file.
    Plain,
    /// A memfd, shared or private.
    Memfd {
        /// True if writes stay in this process.
        private: bool,
    },
    /// System V shared memory.
    Shm,
    /// `/dev/zero`, private.
    Zero,
}

/// The effect of a change, and so who is notified of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A userfaultfd that watches the memory.
    Told,
    /// No watcher.
    Untold,
    /// The change may or may not alter the contents of the memory.
    Same,
}

/// One call, or several.
pub struct Change {
    /// The name of the call.
    pub name: &'static str,
    /// The kind of memory that is there before.
    pub kind: Kind,
    /// The effect of the change.
    pub heard: Heard,
    /// True if the memory can be read after the call by all of the processor's means.
    pub readable: bool,
    make: fn(&Ground) -> io::Result<()>,
}

impl Change {
    /// Makes the change.
    ///
    /// # Errors
    /// The kernel's error: it does not have the call, or denies it.
    pub fn make(&self, ground: &Ground) -> io::Result<()> {
        (self.make)(ground)
    }
}

fn done(result: impl TryInto<i64>) -> io::Result<i64> {
    match result.try_into() {
        Ok(result) if result != -1 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

fn at(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
}

impl Ground {
    /// Memory at an address where the kernel puts nothing by itself; one at a time for each number.
    pub fn new(number: usize) -> Ground {
        let start = (1 << 45) + number * (16 << 20);
        let spare = start + (4 << 20);
        Ground { range: start..start + BYTES, spare: spare..spare + BYTES, file: None }
    }

    /// New memory of a kind, mapped over the old memory as a program would do it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn renew(&mut self, kind: Kind) -> io::Result<()> {
        unmap(&self.spare)?;
        unmap(&self.range)?;
        self.file = None;
        match kind {
            Kind::Plain => map(&self.range),
            Kind::Memfd { private } => {
                let fd = memfd()?;
                self.file = Some(map_file(&self.range, fd, private)?);
                Ok(())
            }
            Kind::Shm => shm_over(&self.range),
            Kind::Zero => {
                let zero = std::fs::File::options().read(true).write(true).open("/dev/zero")?;
                map_file(&self.range, zero.into(), true).map(drop)
            }
        }
    }

    /// The contents, page by page; `None` for a page that cannot be read.
    pub fn look(&self) -> Option<Vec<u8>> {
        let mut found = vec![0; BYTES];
        copy(&self.range, found.as_mut_ptr(), libc::SYS_process_vm_readv).then_some(found)
    }

    /// Writes one byte everywhere. Returns whether all of the memory can be written.
    pub fn fill(&self, byte: u8) -> bool {
        write(&self.range, byte)
    }

    /// The contents. The caller knows that they can be read.
    pub fn bytes(&mut self) -> &[u8] {
        // SAFETY: mapped, and borrowed with the ground.
        unsafe { std::slice::from_raw_parts(at(self.range.start).cast(), BYTES) }
    }

    /// The pages in the middle.
    fn part(&self) -> Range<usize> {
        self.range.start + 4 * PAGE..self.range.start + 12 * PAGE
    }

    fn tail(&self) -> Range<usize> {
        self.range.start + 8 * PAGE..self.range.end
    }

    fn head(&self) -> Range<usize> {
        self.range.start..self.range.start + 8 * PAGE
    }

    fn file(&self) -> io::Result<i32> {
        let none = || io::Error::from_raw_os_error(libc::ENODEV);
        self.file.as_ref().map(AsRawFd::as_raw_fd).ok_or_else(none)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = unmap(&self.spare);
        let _ = unmap(&self.range);
    }
}

/// Copies between this process's memory and `own`, by a call that fails where an access of the
/// program's would be killed.
fn copy(range: &Range<usize>, own: *mut u8, call: libc::c_long) -> bool {
    let here = libc::iovec { iov_base: own.cast(), iov_len: range.len() };
    let there = libc::iovec { iov_base: at(range.start), iov_len: range.len() };
    // SAFETY: `own` has as many bytes; the other memory is a ground's, or is refused.
    let copied = unsafe {
        libc::syscall(
            call,
            libc::getpid(),
            &raw const here,
            1usize,
            &raw const there,
            1usize,
            0usize,
        )
    };
    copied == range.len() as libc::c_long
}

fn write(range: &Range<usize>, byte: u8) -> bool {
    let mut bytes = vec![byte; range.len()];
    copy(range, bytes.as_mut_ptr(), libc::SYS_process_vm_writev)
}

fn map(range: &Range<usize>) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a ground's own addresses.
    let mapped = unsafe { libc::mmap(at(range.start), range.len(), prot, flags, -1, 0) };
    done(mapped as i64).map(drop)
}

fn unmap(range: &Range<usize>) -> io::Result<()> {
    // SAFETY: a ground's own addresses.
    done(unsafe { libc::munmap(at(range.start), range.len()) }).map(drop)
}

fn memfd() -> io::Result<OwnedFd> {
    // SAFETY: a name with an end.
    let fd = done(unsafe { libc::memfd_create(c"change".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: opened by this call.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    // SAFETY: no memory.
    done(unsafe { libc::ftruncate(fd.as_raw_fd(), BYTES as i64) })?;
    Ok(fd)
}

fn map_file(range: &Range<usize>, fd: OwnedFd, private: bool) -> io::Result<OwnedFd> {
    let flags = libc::MAP_FIXED | if private { libc::MAP_PRIVATE } else { libc::MAP_SHARED };
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a ground's own addresses.
    let mapped =
        unsafe { libc::mmap(at(range.start), range.len(), prot, flags, fd.as_raw_fd(), 0) };
    done(mapped as i64).map(|_| fd)
}

fn advise(range: &Range<usize>, advice: i32) -> io::Result<()> {
    // SAFETY: a ground's own memory, to which there is no reference.
    done(unsafe { libc::madvise(at(range.start), range.len(), advice) }).map(drop)
}

fn advise_by_descriptor(range: &Range<usize>, advice: i32) -> io::Result<()> {
    let part = libc::iovec { iov_base: at(range.start), iov_len: range.len() };
    // SAFETY: no memory.
    let own = done(unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) })?;
    // SAFETY: opened by this call.
    let own = unsafe { OwnedFd::from_raw_fd(own as i32) };
    // SAFETY: a ground's own memory, to which there is no reference.
    let advised = unsafe {
        let call = libc::SYS_process_madvise;
        libc::syscall(call, own.as_raw_fd(), &raw const part, 1usize, advice, 0)
    };
    done(advised).map(drop)
}

/// Advises from a process that has the same memory, and is none of this one's threads.
fn advise_by_child(range: &Range<usize>, advices: &[i32]) -> io::Result<()> {
    struct Order<'a>(&'a Range<usize>, &'a [i32]);
    extern "C" fn child(order: *mut c_void) -> i32 {
        // SAFETY: the parent's, which waits.
        let order = unsafe { &*order.cast::<Order<'_>>() };
        let made = order.1.iter().all(|&advice| {
            // SAFETY: as for `advise`.
            unsafe { libc::madvise(at(order.0.start), order.0.len(), advice) == 0 }
        });
        i32::from(!made)
    }
    let mut stack = vec![0u128; 4096];
    let mut order = Order(range, advices);
    // SAFETY: the child has a stack of its own, and is over when this returns.
    let pid = done(unsafe {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(child, stack.as_mut_ptr_range().end.cast(), flags, (&raw mut order).cast())
    })?;
    let mut status = 0;
    // SAFETY: a number of ours.
    done(unsafe { libc::waitpid(pid as i32, &raw mut status, 0) })?;
    let failed = || io::Error::from_raw_os_error(libc::EINVAL);
    if status == 0 { Ok(()) } else { Err(failed()) }
}

fn remap(from: &Range<usize>, to: &Range<usize>, more: i32) -> io::Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | more;
    let moved = |from: &Range<usize>, to: &Range<usize>| {
        let len = from.len();
        // SAFETY: a ground's own addresses.
        done(unsafe { libc::mremap(at(from.start), len, len, flags, at(to.start)) } as i64)
    };
    match moved(from, to) {
        // A range of which a part is watched is more than one mapping.
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
            for (from, to) in from.clone().step_by(PAGE).zip(to.clone().step_by(PAGE)) {
                let _ = moved(&(from..from + PAGE), &(to..to + PAGE));
            }
            Ok(())
        }
        moved => moved.map(drop),
    }
}

/// Takes the pages away without notice, where the kernel has guards.
pub(crate) fn renew_by_guards(range: &Range<usize>) {
    if advise(range, GUARD).is_ok() {
        advise(range, UNGUARD).expect("what is guarded can be lifted");
    }
}

/// Maps System V shared memory over the range; it is gone with its last mapping.
pub(crate) fn shm_over(range: &Range<usize>) -> io::Result<()> {
    // SAFETY: no memory.
    let id = done(unsafe { libc::shmget(libc::IPC_PRIVATE, range.len(), 0o600) })? as i32;
    const SHM_REMAP: i32 = 0o40000;
    // SAFETY: a ground's own addresses.
    let attached = done(unsafe { libc::shmat(id, at(range.start), SHM_REMAP) } as i64);
    // SAFETY: no memory.
    done(unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) })?;
    attached.map(drop)
}

fn detach(range: &Range<usize>) -> io::Result<()> {
    // SAFETY: a ground's own memory.
    done(unsafe { libc::shmdt(at(range.start)) }).map(drop)
}

fn protect(range: &Range<usize>, prot: i32) -> io::Result<()> {
    // SAFETY: a ground's own memory.
    done(unsafe { libc::mprotect(at(range.start), range.len(), prot) }).map(drop)
}

fn elsewhere(change: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
    std::thread::scope(|scope| scope.spawn(change).join().expect("a thread"))
}

const DONTNEED_LOCKED: i32 = 24;
const COLLAPSE: i32 = 25;
const GUARD: i32 = 102;
const UNGUARD: i32 = 103;

const fn plain(
    name: &'static str,
    heard: Heard,
    readable: bool,
    make: fn(&Ground) -> io::Result<()>,
) -> Change {
    Change { name, kind: Kind::Plain, heard, readable, make }
}

const fn of(kind: Kind, name: &'static str, make: fn(&Ground) -> io::Result<()>) -> Change {
    Change { name, kind, heard: Heard::Same, readable: true, make }
}

/// All changes.
pub const CHANGES: &[Change] = {
    use Heard::{Same, Told, Untold};
    use Kind::{Memfd, Shm, Zero};
    const SHARED: Kind = Memfd { private: false };
    const COPIED: Kind = Memfd { private: true };
    &[
        plain("munmap, mmap", Told, true, |it| unmap(&it.range).and_then(|()| map(&it.range))),
        plain("munmap of a part, mmap", Told, true, |it| {
            unmap(&it.part()).and_then(|()| map(&it.part()))
        }),
        plain("munmap", Told, false, |it| unmap(&it.part())),
        plain("mmap over it", Told, true, |it| map(&it.part())),
        plain("mmap of a memfd over it", Told, true, |it| {
            map_file(&it.part(), memfd()?, false).map(drop)
        }),
        plain("mmap of a memfd over it, private", Told, true, |it| {
            map_file(&it.part(), memfd()?, true).map(drop)
        }),
        plain("mremap away, mmap", Told, true, |it| {
            remap(&it.range, &it.spare, 0).and_then(|()| map(&it.range))
        }),
        plain("mremap onto it", Told, true, |it| {
            map(&it.spare)?;
            write(&it.spare, 0xDD);
            remap(&it.spare, &it.range, 0)
        }),
        plain("mremap MREMAP_DONTUNMAP", Told, true, |it| {
            remap(&it.range, &it.spare, libc::MREMAP_DONTUNMAP)
        }),
        plain("mremap that shrinks and grows", Told, true, |it| {
            // SAFETY: a ground's own memory.
            let resize = |from: usize, to: usize| unsafe {
                libc::mremap(at(it.range.start), from, to, 0) as i64
            };
            done(resize(BYTES, BYTES / 2))?;
            done(resize(BYTES / 2, BYTES)).map(drop)
        }),
        plain("MADV_DONTNEED", Told, true, |it| advise(&it.part(), libc::MADV_DONTNEED)),
        plain("MADV_DONTNEED, another thread", Told, true, |it| {
            let part = it.part();
            elsewhere(move || advise(&part, libc::MADV_DONTNEED))
        }),
        plain("MADV_DONTNEED, CLONE_VM", Told, true, |it| {
            advise_by_child(&it.part(), &[libc::MADV_DONTNEED])
        }),
        plain("MADV_DONTNEED, process_madvise", Told, true, |it| {
            advise_by_descriptor(&it.part(), libc::MADV_DONTNEED)
        }),
        plain("MADV_DONTNEED, io_uring", Told, true, |it| {
            advise_by_ring(&it.part(), libc::MADV_DONTNEED)
        }),
        plain("MADV_DONTNEED_LOCKED", Told, true, |it| advise(&it.part(), DONTNEED_LOCKED)),
        plain("MADV_FREE", Same, true, |it| advise(&it.part(), libc::MADV_FREE)),
        plain("MADV_REMOVE", Same, true, |it| advise(&it.part(), libc::MADV_REMOVE)),
        plain("MADV_PAGEOUT", Same, true, |it| advise(&it.part(), libc::MADV_PAGEOUT)),
        plain("MADV_COLD", Same, true, |it| advise(&it.part(), libc::MADV_COLD)),
        plain("MADV_COLLAPSE", Same, true, |it| advise(&it.part(), COLLAPSE)),
        plain("MADV_MERGEABLE", Same, true, |it| advise(&it.part(), libc::MADV_MERGEABLE)),
        plain("MADV_WIPEONFORK, fork", Same, true, |it| {
            advise(&it.part(), libc::MADV_WIPEONFORK)?;
            crate::host::fork(|| 0);
            advise(&it.part(), libc::MADV_KEEPONFORK)
        }),
        plain("fork", Same, true, |_| {
            crate::host::fork(|| 0);
            Ok(())
        }),
        plain("execve", Same, true, |_| {
            let program = std::process::Command::new("/bin/true").status()?;
            if program.success() { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
        }),
        plain("mlock, munlock", Same, true, |it| {
            // SAFETY: a ground's own memory.
            done(unsafe { libc::mlock(at(it.range.start), PAGE) })?;
            // SAFETY: as above.
            done(unsafe { libc::munlock(at(it.range.start), PAGE) }).map(drop)
        }),
        plain("mprotect", Same, true, |it| {
            protect(&it.part(), libc::PROT_NONE)?;
            protect(&it.part(), libc::PROT_READ | libc::PROT_WRITE)
        }),
        plain("pkey_mprotect", Same, true, |it| {
            let (part, prot) = (it.part(), libc::PROT_READ | libc::PROT_WRITE);
            let call = libc::SYS_pkey_mprotect;
            // SAFETY: a ground's own memory; the key of all memory.
            done(unsafe { libc::syscall(call, at(part.start), part.len(), prot, 0) }).map(drop)
        }),
        plain("another userfaultfd", Same, true, claim),
        plain("UFFDIO_MOVE", Same, true, move_away),
        plain("shmat SHM_REMAP", Untold, true, |it| shm_over(&it.range)),
        plain("shmat SHM_REMAP of a part", Untold, true, |it| shm_over(&it.part())),
        plain("shmat SHM_REMAP, another thread", Untold, true, |it| {
            let part = it.part();
            elsewhere(move || shm_over(&part))
        }),
        plain("shmat SHM_REMAP, shmdt", Untold, false, |it| {
            shm_over(&it.range).and_then(|()| detach(&it.range))
        }),
        plain("shmat SHM_REMAP, mmap", Untold, true, |it| {
            shm_over(&it.part()).and_then(|()| map(&it.part()))
        }),
        plain("shmat SHM_REMAP, shmdt, mremap that grows", Untold, true, |it| {
            shm_over(&it.tail())?;
            detach(&it.tail())?;
            let head = it.head();
            // SAFETY: a ground's own memory.
            let grown = unsafe { libc::mremap(at(head.start), head.len(), BYTES, 0) };
            done(grown as i64).map(drop)
        }),
        plain("MADV_GUARD_INSTALL", Untold, false, |it| advise(&it.part(), GUARD)),
        plain("MADV_GUARD_INSTALL, process_madvise", Untold, false, |it| {
            advise_by_descriptor(&it.part(), GUARD)
        }),
        plain("MADV_GUARD_INSTALL, REMOVE", Untold, true, |it| {
            advise(&it.part(), GUARD).and_then(|()| advise(&it.part(), UNGUARD))
        }),
        plain("MADV_GUARD_INSTALL, REMOVE, written", Untold, true, |it| {
            advise(&it.part(), GUARD)?;
            advise(&it.part(), UNGUARD)?;
            it.fill(0xEE);
            Ok(())
        }),
        plain("MADV_GUARD_INSTALL, REMOVE, another thread", Untold, true, |it| {
            let part = it.part();
            elsewhere(move || advise(&part, GUARD).and_then(|()| advise(&part, UNGUARD)))
        }),
        plain("MADV_GUARD_INSTALL, REMOVE, process_madvise", Untold, true, |it| {
            advise_by_descriptor(&it.part(), GUARD)?;
            advise_by_descriptor(&it.part(), UNGUARD)
        }),
        plain("MADV_GUARD_INSTALL, REMOVE, CLONE_VM", Untold, true, |it| {
            advise_by_child(&it.part(), &[GUARD, UNGUARD])
        }),
        plain("MADV_GUARD_INSTALL, REMOVE, io_uring", Untold, true, |it| {
            advise_by_ring(&it.part(), GUARD)?;
            advise_by_ring(&it.part(), UNGUARD)
        }),
        of(SHARED, "remap_file_pages", |it| {
            let half = BYTES / 2;
            // SAFETY: a ground's own memory.
            done(unsafe { libc::remap_file_pages(at(it.range.start), half, 0, half / PAGE, 0) })
                .map(drop)
        }),
        of(SHARED, "fallocate FALLOC_FL_PUNCH_HOLE, shared", punch),
        of(COPIED, "fallocate FALLOC_FL_PUNCH_HOLE, private", punch),
        of(SHARED, "ftruncate, shared", cut),
        of(COPIED, "ftruncate, private", cut),
        of(SHARED, "MADV_REMOVE, shared", |it| advise(&it.part(), libc::MADV_REMOVE)),
        of(COPIED, "MADV_DONTNEED, private", |it| advise(&it.part(), libc::MADV_DONTNEED)),
        of(COPIED, "MADV_GUARD_INSTALL, REMOVE, private", |it| {
            advise(&it.part(), GUARD).and_then(|()| advise(&it.part(), UNGUARD))
        }),
        of(SHARED, "shmat SHM_REMAP, shared", |it| shm_over(&it.part())),
        of(Zero, "MADV_GUARD_INSTALL, REMOVE, /dev/zero", |it| {
            advise(&it.part(), GUARD).and_then(|()| advise(&it.part(), UNGUARD))
        }),
        of(Shm, "shmdt, mmap", |it| detach(&it.range).and_then(|()| map(&it.range))),
        of(Shm, "shmat SHM_REMAP, System V", |it| shm_over(&it.part())),
    ]
};

fn punch(it: &Ground) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a file of the ground's own.
    done(unsafe { libc::fallocate(it.file()?, mode, 4 * PAGE as i64, 8 * PAGE as i64) }).map(drop)
}

fn cut(it: &Ground) -> io::Result<()> {
    for len in [4 * PAGE, BYTES] {
        // SAFETY: a file of the ground's own.
        done(unsafe { libc::ftruncate(it.file()?, len as i64) })?;
    }
    Ok(())
}

/// Advises from a worker of an io_uring.
fn advise_by_ring(range: &Range<usize>, advice: i32) -> io::Result<()> {
    let mut ring = io_uring::IoUring::new(2)?;
    let len = range.len() as i64;
    let order = io_uring::opcode::Madvise::new(at(range.start), len, advice).build();
    // SAFETY: a ground's own memory, to which there is no reference.
    unsafe { ring.submission().push(&order) }.map_err(|_| io::ErrorKind::WouldBlock)?;
    ring.submit_and_wait(1)?;
    let said = ring.completion().next().map_or(-libc::EIO, |said| said.result());
    if said < 0 { Err(io::Error::from_raw_os_error(-said)) } else { Ok(()) }
}

/// Another watcher that asks for the memory, and has it taken from the one that has it.
fn claim(it: &Ground) -> io::Result<()> {
    let other = pinfold_sys::mem::userfault::Watch::new().map_err(io::Error::other)?;
    let _ = other.watch(it.range.clone());
    // Also where it has not got the memory: before Linux 6.17 the call takes it from its watcher.
    let _ = other.unwatch(it.range.clone());
    Ok(())
}

/// Pages that another process's call moves away.
fn move_away(it: &Ground) -> io::Result<()> {
    #[repr(C)]
    struct Api(u64, u64, u64);
    #[repr(C)]
    struct Register(u64, u64, u64, u64);
    #[repr(C)]
    struct Move(u64, u64, u64, u64, i64);
    map(&it.spare)?;
    // SAFETY: no memory.
    let fd = done(unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) })?;
    // SAFETY: opened by this call.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let mut api = Api(0xaa, 1 << 16, 0);
    // SAFETY: structures of the sizes that the numbers say; a ground's own memory.
    unsafe {
        done(libc::ioctl(fd.as_raw_fd(), 0xc018_aa3f, &raw mut api))?;
        let mut register = Register(it.spare.start as u64, BYTES as u64, 1, 0);
        done(libc::ioctl(fd.as_raw_fd(), 0xc020_aa00, &raw mut register))?;
        for page in (0..BYTES).step_by(PAGE) {
            let (to, from) = ((it.spare.start + page) as u64, (it.range.start + page) as u64);
            let mut order = Move(to, from, PAGE as u64, 0, 0);
            // A page that is held for a device stays where it is.
            let _ = libc::ioctl(fd.as_raw_fd(), 0xc028_aa05, &raw mut order);
        }
    }
    unmap(&it.spare)
}
