//! Starting of the library's threads: all of them by this.
#![allow(unsafe_code)]
// Invariant: the signal mask of the calling thread is changed only for as long as it starts
// another. The other unsafe call is of a function that the C library is asked for by name, with the
// type that it has there.

use std::{
    io,
    mem::{MaybeUninit, transmute},
    ptr,
    thread::{Builder, JoinHandle, Scope, ScopedJoinHandle},
};

/// Bytes of a thread's name that the kernel keeps.
const NAME_BYTES_MAX: usize = 15;

/// A kind of threads: their name and their stack.
///
/// They block all signals, those that the processor raises included, so that signals sent to the
/// process go to the program's own threads, and no handler of the program's runs in the middle of
/// their work. Code of the program's that they call may unblock those that it needs.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    name: &'static str,
    stack_bytes: usize,
}

impl Kind {
    /// The stack of threads that call the program's code, bytes: handlers, callbacks, wakers. The
    /// standard library gives as much to a thread. Memory is taken by the part that is used.
    pub const STACK_OF_PROGRAMS: usize = 2 << 20;

    /// Threads that `/proc/PID/task/TID/comm` shows as `name`, with as much stack for the calls
    /// they make. The C library's share for thread-local variables comes on top.
    ///
    /// # Panics
    /// If the name is longer than the kernel keeps, or the stack is smaller than 64 KiB.
    pub const fn new(name: &'static str, stack_bytes: usize) -> Kind {
        assert!(!name.is_empty() && name.len() <= NAME_BYTES_MAX);
        assert!(stack_bytes >= 64 << 10);
        Kind { name, stack_bytes }
    }

    /// Their name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Starts one.
    ///
    /// # Errors
    /// `EAGAIN` at a limit on threads or without memory for the stack. It may be gone a moment
    /// later.
    pub fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let _blocked = Blocked::all();
        self.builder().spawn(work)
    }

    /// Starts one that ends with a scope.
    ///
    /// # Errors
    /// As for [`Kind::start`].
    pub fn start_scoped<'scope, T: Send + 'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, T>> {
        let _blocked = Blocked::all();
        self.builder().spawn_scoped(scope, work)
    }

    fn builder(&self) -> Builder {
        Builder::new().name(self.name.to_owned()).stack_size(self.stack_bytes + stack_taken())
    }
}

/// The signal mask of the calling thread: all are blocked until this is dropped, and it has the
/// earlier mask again. A thread inherits the mask of the one that starts it, so that not even its
/// first instruction is interrupted.
struct Blocked(Option<libc::sigset_t>);

impl Blocked {
    fn all() -> Blocked {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets live through the calls, `all` is filled before it is read, and `before`
        // was filled where the last call succeeded.
        Blocked(unsafe {
            libc::sigfillset(all.as_mut_ptr());
            let set = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            (set == 0).then(|| before.assume_init())
        })
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: the set lives through the call.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
        }
    }
}

/// Bytes that the C library takes off each thread's stack: thread-local variables of the program
/// and its libraries lie there, which may be more than all the stack that was asked for. 0 if it
/// does not say, as others than glibc's.
#[cfg(not(miri))]
fn stack_taken() -> usize {
    type Least = unsafe extern "C" fn(*const libc::pthread_attr_t) -> libc::size_t;
    // SAFETY: the name ends with a zero.
    let least = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr()) };
    if least.is_null() {
        return 0;
    }
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: glibc's function of that name has that type (nptl/nptl-stack.c) and reads attributes
    // at most, which are made before and destroyed after the call.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return 0;
        }
        let least = transmute::<*mut libc::c_void, Least>(least)(attributes.as_ptr());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        least
    }
}

/// Miri has no C library.
#[cfg(miri)]
fn stack_taken() -> usize {
    0
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use super::*;

    const KIND: Kind = Kind::new("a-thread-of-15b", 128 << 10);

    /// A line of the calling thread's `status`.
    fn status(field: &str) -> String {
        let text = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap().trim().to_owned()
    }

    /// The signals that the calling thread blocks, a bit each.
    fn blocked() -> u64 {
        // SAFETY: all zero is a set of signals; the call writes it, and `sigismember` reads it.
        unsafe {
            let mut set: libc::sigset_t = MaybeUninit::zeroed().assume_init();
            assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut set), 0);
            let is_in = |signal: &i32| libc::sigismember(&raw const set, *signal) == 1;
            (1..=64).filter(is_in).fold(0, |bits, signal| bits | 1 << (signal - 1))
        }
    }

    /// All signals that can be blocked here: two the kernel keeps, two the C library, and an
    /// emulator may keep more.
    fn all() -> u64 {
        let block_all = || {
            // SAFETY: all zero is a set of signals; the mask is that of a thread of this test's.
            unsafe {
                let mut set: libc::sigset_t = MaybeUninit::zeroed().assume_init();
                libc::sigfillset(&raw mut set);
                assert_eq!(
                    libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()),
                    0
                );
            }
            blocked()
        };
        let all = thread::spawn(block_all).join().unwrap();
        let usual = [libc::SIGTERM, libc::SIGINT, libc::SIGCHLD, libc::SIGSEGV, libc::SIGUSR1];
        assert!(usual.into_iter().all(|signal| all & 1 << (signal - 1) != 0), "{all:x}");
        all
    }

    /// The calling thread's stack, bytes.
    fn stack_bytes() -> usize {
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let (mut at, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the attributes are made by the first call, read by the second, destroyed by the
        // third.
        unsafe {
            let here = libc::pthread_self();
            assert_eq!(libc::pthread_getattr_np(here, attributes.as_mut_ptr()), 0);
            libc::pthread_attr_getstack(attributes.as_ptr(), &mut at, &mut len);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
        }
        len
    }

    #[test]
    fn a_thread_blocks_all_signals_and_its_starter_no_more_than_before() {
        let look = || (status("Name"), blocked(), stack_bytes());
        thread::spawn(move || {
            let before = blocked();
            assert_ne!(before, all());
            let (name, mask, stack) = KIND.start(look).unwrap().join().unwrap();
            assert_eq!((&*name, mask), (KIND.name(), all()));
            assert!((128 << 10..512 << 10).contains(&stack), "{stack}");
            let scoped = thread::scope(|scope| KIND.start_scoped(scope, look).unwrap().join());
            let (name, mask, _) = scoped.unwrap();
            assert_eq!((&*name, mask), (KIND.name(), all()));
            assert_eq!(blocked(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn who_cannot_start_one_has_its_mask_again() {
        thread::spawn(|| {
            let before = blocked();
            let huge = Kind::new("huge", 1 << 60);
            huge.start(|| {}).unwrap_err();
            assert_eq!(blocked(), before);
        })
        .join()
        .unwrap();
    }
}
