//! Atomic changes of words of this process's memory that may not be there, or may go at any moment.
//!
//! No system call changes a word atomically and hands back its old value, so the processor has to
//! do it, and a page that is missing then is a fault. The change is therefore made by a *helper*: a
//! process that shares all memory with this one (`CLONE_VM`, as `posix_spawn(3)` makes it), but has
//! handlers of signals of its own. A fault ends the helper, and nothing else. The program's own
//! handlers, its children and its `SIGCHLD` are as if nothing had been.
#![allow(unsafe_code)]
// Invariant: the thread that starts a helper does not run on before the helper has ended
// (`CLONE_VFORK`). The helper runs on a stack of its own, makes system calls and the change, and
// takes no lock.

use std::{
    ffi::{c_int, c_void},
    io,
    mem::MaybeUninit,
    ptr,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
};

use rustix::{io::Errno, param::page_size};

use crate::checker;

/// The stack of a helper: a frame for a signal, some 12 KiB, and little else.
const STACK: usize = 64 << 10;

/// The change, and its result.
struct Job<'a> {
    change: &'a dyn Fn() -> u64,
    was: AtomicU64,
    is_done: AtomicBool,
    /// The process that waits for the helper.
    parent: libc::pid_t,
}

/// Returns whether all of `len` bytes at `addr` can be changed: a byte of each page is, to what it
/// was. Costs as much as [`change_own`] for each page.
///
/// # Errors
/// As [`change_own`].
///
/// # Safety
/// Other users of the memory are atomic ones, or only read it.
pub unsafe fn can_be_changed(addr: usize, len: usize) -> io::Result<bool> {
    let page = page_size();
    let mut at = addr;
    while at < addr.saturating_add(len) {
        let byte = ptr::with_exposed_provenance_mut::<u8>(at);
        let same = || {
            // SAFETY: the helper's only access, which the caller allows. A change that the compiler
            // knows to be none would become a load.
            let byte = unsafe { AtomicU8::from_ptr(byte) };
            u64::from(byte.fetch_or(std::hint::black_box(0), Ordering::SeqCst))
        };
        // SAFETY: one atomic operation on one byte.
        if unsafe { change_own(&same)? }.is_none() {
            return Ok(false);
        }
        at = (at / page + 1) * page;
    }
    Ok(true)
}

/// Runs `change`, which changes a word of this process's memory and returns its old value. Returns
/// `None` if a page that it touches is missing, or may not be written: then nothing has changed.
///
/// Costs some 50 µs, of which this thread waits; pages that have to be read in first come on top.
///
/// # Errors
/// `EAGAIN` at a limit on processes, `ENOMEM`, or the error of a filter on system calls; `ECHILD`
/// if something else ended the helper; `EOPNOTSUPP` under Valgrind, which shares no memory so.
///
/// # Safety
/// `change` does nothing but atomic operations on one aligned word at a raw address: no locks, no
/// memory from the heap, no panic. Any word there may be changed so.
pub unsafe fn change_own(change: &dyn Fn() -> u64) -> io::Result<Option<u64>> {
    if checker::is_there() {
        return Err(Errno::OPNOTSUPP.into());
    }
    // SAFETY: asks for a number.
    let parent = unsafe { libc::getpid() };
    let job = Job { change, was: AtomicU64::new(0), is_done: AtomicBool::new(false), parent };
    let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(STACK / size_of::<u128>());
    // It grows downwards.
    let top = stack.as_mut_ptr().wrapping_add(stack.capacity());
    let blocked = block_all()?;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::CLONE_FS;
    let argument = (&raw const job).cast_mut().cast::<c_void>();
    // SAFETY: this thread waits until the helper has ended, so the stack and the job are there as
    // long as that. With no signal for its end it is no child that the program waits for.
    let pid = unsafe { libc::clone(help, top.cast(), flags, argument) };
    let started = if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) };
    let status = started.as_ref().map_or(0, |pid| reap(*pid));
    restore(&blocked);
    started?;
    if job.is_done.load(Ordering::Acquire) {
        return Ok(Some(job.was.load(Ordering::Relaxed)));
    }
    match libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == FAULT {
        true => Ok(None),
        // Killed by somebody; or a debugger made it a copy, which changed its own memory.
        false => Err(Errno::CHILD.into()),
    }
}

/// The status of a helper that a fault ended.
const FAULT: c_int = 3;

/// The helper.
extern "C" fn help(job: *mut c_void) -> c_int {
    // SAFETY: the job that `change_own` has on its stack, and waits for.
    let job = unsafe { &*job.cast::<Job<'_>>() };
    if !end_at_faults() || !ends_with(job.parent) {
        return 1;
    }
    let was = (job.change)();
    job.was.store(was, Ordering::Relaxed);
    job.is_done.store(true, Ordering::Release);
    0
}

/// Has the calling process end with its parent, should that be killed while a page is awaited that
/// then never comes. Returns whether the parent is still there.
fn ends_with(parent: libc::pid_t) -> bool {
    // SAFETY: the calls take and return numbers. Where the first is forbidden, it goes on without.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        libc::getppid() == parent
    }
}

/// Has a fault end the calling process by its status, without a dump of its memory.
fn end_at_faults() -> bool {
    let end = at_fault as extern "C" fn(c_int) as usize;
    let action =
        // SAFETY: all zero is a value of it: no flags, and an empty mask.
        libc::sigaction { sa_sigaction: end, ..unsafe { MaybeUninit::zeroed().assume_init() } };
    let mut faults = MaybeUninit::uninit();
    // SAFETY: the handlers of this process are its own, and the set is initialised first.
    unsafe {
        libc::sigemptyset(faults.as_mut_ptr());
        [libc::SIGSEGV, libc::SIGBUS].into_iter().all(|signal| {
            libc::sigaddset(faults.as_mut_ptr(), signal);
            libc::sigaction(signal, &raw const action, ptr::null_mut()) == 0
        }) && libc::sigprocmask(libc::SIG_UNBLOCK, faults.as_ptr(), ptr::null_mut()) == 0
    }
}

extern "C" fn at_fault(_: c_int) {
    // SAFETY: ends the process.
    unsafe { libc::_exit(FAULT) }
}

/// Blocks all signals of this thread, so that no handler of the program's runs in the helper.
fn block_all() -> io::Result<libc::sigset_t> {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: both sets are this frame's; the first is initialised before it is used.
    let errno = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr())
    };
    if errno != 0 {
        return Err(io::Error::from_raw_os_error(errno));
    }
    // SAFETY: the call has filled it in.
    Ok(unsafe { before.assume_init() })
}

fn restore(before: &libc::sigset_t) {
    // SAFETY: the mask that this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}

/// The status of a helper that has ended. 0 if somebody else has asked for it.
fn reap(pid: libc::pid_t) -> c_int {
    let mut status = 0;
    // SAFETY: the status is this frame's. The process is a child of this one, or gone.
    while unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } < 0 {
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return 0;
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            RwLock,
            atomic::{AtomicU32, AtomicUsize},
        },
        thread,
    };

    use super::*;
    use crate::mem::userfault::Pages;

    /// The helpers of all tests, which are children of one process.
    static HELPERS: RwLock<()> = RwLock::new(());

    /// Returns whether helpers can be started; if not, skips what follows.
    fn can_help() -> bool {
        let word = AtomicU64::new(0);
        let can = add(word.as_ptr().expose_provenance(), 1);
        let is_absent = can.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL));
        if is_absent {
            crate::skip::skip("no process can share the memory of another (clone(2): CLONE_VM)");
        }
        !is_absent
    }

    fn add(addr: usize, by: u64) -> io::Result<Option<u64>> {
        let _helper = HELPERS.read().unwrap();
        // SAFETY: one atomic operation; the address is a word of the test's, or of nobody.
        unsafe {
            change_own(&|| {
                let word = AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(addr));
                word.fetch_add(by, Ordering::SeqCst)
            })
        }
    }

    #[test]
    fn a_word_is_changed_once_and_its_old_value_comes_back() {
        if !can_help() {
            return;
        }
        let word = AtomicU64::new(40);
        let addr = word.as_ptr().expose_provenance();
        assert_eq!(add(addr, 2).unwrap(), Some(40));
        assert_eq!(add(addr, 1).unwrap(), Some(42));
        assert_eq!(word.into_inner(), 43);
    }

    #[test]
    fn memory_that_is_missing_ends_nothing_but_the_helper() {
        if !can_help() {
            return;
        }
        let pages = Pages::new(2 * page_size(), false).unwrap();
        let at = pages.addr();
        for protection in [libc::PROT_NONE, libc::PROT_READ] {
            // SAFETY: nobody uses the page.
            assert_eq!(unsafe { libc::mprotect(at as *mut _, page_size(), protection) }, 0);
            assert_eq!(add(at, 1).unwrap(), None);
        }
        assert_eq!(add(at + page_size(), 5).unwrap(), Some(0));
        assert_eq!(add(at + page_size(), 5).unwrap(), Some(5));
        assert_eq!((add(8, 1).unwrap(), add(1 << 46, 1).unwrap()), (None, None));
        // No child is left, and the handlers of faults are this process's own.
        let _no_helper = HELPERS.write().unwrap();
        let mut status = 0;
        // SAFETY: the status is this frame's.
        assert!(unsafe { libc::waitpid(-1, &raw mut status, libc::__WCLONE | libc::WNOHANG) } <= 0);
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: asks only.
        let action = unsafe {
            libc::sigaction(libc::SIGBUS, ptr::null(), action.as_mut_ptr());
            action.assume_init()
        };
        assert_ne!(action.sa_sigaction, at_fault as extern "C" fn(c_int) as usize);
    }

    #[test]
    fn memory_that_may_only_be_read_cannot_be_changed() {
        if !can_help() {
            return;
        }
        let page = page_size();
        let pages = Pages::new(3 * page, false).unwrap();
        let at = pages.addr();
        // SAFETY: nobody uses the page.
        assert_eq!(unsafe { libc::mprotect((at + page) as *mut _, page, libc::PROT_READ) }, 0);
        let can_be = |from: usize, len: usize| {
            let _helper = HELPERS.read().unwrap();
            // SAFETY: nobody else uses the pages.
            unsafe { can_be_changed(at + from, len).unwrap() }
        };
        assert!(can_be(page - 8, 8) && can_be(2 * page, page) && can_be(page, 0));
        assert!(!can_be(page - 8, 9) && !can_be(2 * page - 1, 1) && !can_be(0, 3 * page));
    }

    #[test]
    fn a_file_that_has_become_shorter_is_missing() {
        if !can_help() {
            return;
        }
        let file = crate::mem::memfd::create_sealed("pinfold-change", page_size()).unwrap();
        let len = page_size();
        let (both, fd) =
            (libc::PROT_READ | libc::PROT_WRITE, std::os::fd::AsRawFd::as_raw_fd(&file));
        // SAFETY: a new mapping, of more pages than the file has.
        let at = unsafe { libc::mmap(ptr::null_mut(), 2 * len, both, libc::MAP_SHARED, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        let at = at.expose_provenance();
        assert_eq!((add(at, 7).unwrap(), add(at + len, 1).unwrap()), (Some(0), None));
    }

    #[test]
    fn changes_by_helpers_and_by_threads_add_up() {
        if !can_help() {
            return;
        }
        let word = AtomicU64::new(0);
        let addr = word.as_ptr().expose_provenance();
        let (helpers, ended) = (AtomicUsize::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        add(addr, 1).unwrap().unwrap();
                        helpers.fetch_add(1, Ordering::Relaxed);
                    }
                    ended.fetch_add(1, Ordering::Release);
                });
            }
            let mut own = 0u64;
            while ended.load(Ordering::Acquire) < 3 {
                word.fetch_add(1 << 32, Ordering::SeqCst);
                own += 1;
            }
            assert_eq!(word.load(Ordering::SeqCst), own << 32 | 300);
        });
        assert_eq!(helpers.into_inner(), 300);
    }
}
