//! The threads of this process, and the system call that each is in, by `/proc/self/task`; and the
//! start of the library's own ([`Kind`]).
//!
//! `/proc/self/task/TID/syscall` says (found by the test beside this, Linux 6.18) `running` for a
//! thread that runs, or waits for a processor; else the number of its system call, or -1 if it is
//! not in one, such as in a page fault. The kernel looks at a thread that sleeps and then makes
//! sure that it slept all the while.

mod start;

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

pub use self::start::Kind;

/// The place of a thread when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It runs, or waits for a processor. Its place is not known.
    Running,
    /// It sleeps in this system call, by its number.
    Call(i64),
    /// It sleeps, and not in a system call.
    NoCall,
    /// It works for an io_uring, whose calls are not system calls, and sleeps so that a signal
    /// would wake it. Most changes of the address space never do that.
    RingWaits,
    /// It works for an io_uring, and sleeps so that nothing but the end of its wait wakes it.
    RingBusy,
    /// There is no such thread any more.
    Gone,
}

/// `PF_IO_WORKER` of `linux/sched.h`.
const IO_WORKER: u64 = 0x10;

const TASKS: &str = "/proc/self/task";

/// The calling thread.
pub fn own() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// All threads of this process, in order. `None` if they changed while they were read: such a
/// list may lack some. About 2 µs and 0.2 µs a thread.
///
/// # Errors
/// If there is no `/proc`, or it may not be read.
pub fn list() -> io::Result<Option<Vec<u32>>> {
    let before = count()?;
    let first = read()?;
    let second = read()?;
    // The kernel may skip threads when others end while it lists them. A thread that was listed
    // first and has ended is missing in the second list; one that ended before does not make up the
    // count.
    let whole = first == second && before == first.len() && count()? == first.len();
    Ok(whole.then_some(first))
}

fn read() -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(TASKS)? {
        let name = entry?.file_name();
        found.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// The directory has a link for each thread.
fn count() -> io::Result<usize> {
    Ok(fs::metadata(TASKS)?.nlink().saturating_sub(2) as usize)
}

/// The place of another thread of this process. About 5 µs.
///
/// # Errors
/// If there is no `/proc`, or it may not be read, or is not understood.
pub fn place(thread: u32) -> io::Result<Place> {
    let at = Path::new(TASKS).join(thread.to_string());
    let stat = match text(at.join("stat"))? {
        Some(stat) => stat,
        None => return Ok(Place::Gone),
    };
    // The name, in brackets, may have anything in it.
    let mut words = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    let state = words.next().ok_or_else(bad)?;
    let flags: u64 = words.nth(5).and_then(|word| word.parse().ok()).ok_or_else(bad)?;
    if state == "R" {
        return Ok(Place::Running);
    }
    if flags & IO_WORKER != 0 {
        // Its registers are a copy of those of the thread that made it.
        return Ok(if state == "S" { Place::RingWaits } else { Place::RingBusy });
    }
    let Some(call) = text(at.join("syscall"))? else { return Ok(Place::Gone) };
    match call.split_ascii_whitespace().next() {
        Some("running") => Ok(Place::Running),
        Some("-1") => Ok(Place::NoCall),
        Some(number) => number.parse().map(Place::Call).map_err(|_| bad()),
        // It ended between the two looks.
        None => Ok(Place::Gone),
    }
}

/// The text of a file of a thread; `None` if the thread is gone.
fn text(path: PathBuf) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Ok(None),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::channel,
        thread::{self, yield_now},
    };

    use super::*;
    use crate::mem::userfault::{Pages, Watch};

    #[test]
    fn all_threads_are_listed() {
        let (tell, told) = channel();
        let (stop, stopped) = channel::<()>();
        let other = thread::spawn(move || {
            tell.send(own()).unwrap();
            let _ = stopped.recv();
        });
        let id = told.recv().unwrap();
        // Threads of other tests come and go.
        let found = std::iter::repeat_with(list).find_map(Result::unwrap).unwrap();
        assert!(found.contains(&id) && found.contains(&own()), "{found:?}");
        // It waits for a word, in a futex.
        let mut seen = place(id).unwrap();
        while seen == Place::Running {
            yield_now();
            seen = place(id).unwrap();
        }
        // An emulator's calls are another processor's, by other numbers.
        let own = place(own()).unwrap();
        if own == Place::Call(libc::SYS_read) {
            assert_eq!(seen, Place::Call(libc::SYS_futex));
        } else {
            crate::skip::skip(&format!("calls are not told by their numbers here: {own:?}"));
        }
        drop(stop);
        other.join().unwrap();
        while place(id).unwrap() != Place::Gone {
            yield_now();
        }
    }

    #[test]
    fn who_discards_is_seen_in_the_call() {
        let Ok(watch) = Watch::new() else { return crate::skip::skip("no userfaultfd") };
        let mut pages = Pages::new(4 * 4096, false).unwrap();
        pages.as_mut_slice().fill(1);
        watch.watch(pages.addr()..pages.addr() + pages.len()).unwrap();
        let (tell, told) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                tell.send(own()).unwrap();
                pages.discard(0..4096).unwrap();
            });
            let id = told.recv().unwrap();
            let mut seen = place(id).unwrap();
            while seen != Place::Call(libc::SYS_madvise) {
                assert_ne!(seen, Place::Gone);
                yield_now();
                seen = place(id).unwrap();
            }
            while watch.events(|_| {}).unwrap() == 0 {}
        });
        drop(watch);
    }

    #[test]
    fn who_runs_is_nowhere() {
        let id = own();
        assert_eq!(place(id).unwrap(), Place::Running);
    }
}
