//! Work in a copy of this process: this process goes on even if the copy dies.
#![allow(unsafe_code)]
// Invariant: this process has one thread for as long as it starts children. `doctor` starts none
// itself, calls nothing of the library, and draws progress without a thread. Its children do all of
// that, and start no children afterwards.

use std::{
    fs::File,
    io::Read,
    marker::PhantomData,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use pinfold_sys::program;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The result of trying something.
pub(crate) type Tried<T> = Result<T, Denial>;

/// The reason why something that was tried did not work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Denial {
    /// A system call failed.
    Errno { call: String, errno: i32 },
    /// A signal killed the process that tried, at this call if a call is known.
    Killed { call: String, signal: i32 },
    /// It did something, but not the right thing.
    Wrong(String),
    /// It could not be tried.
    Untried(String),
}

impl Denial {
    /// For `map_err`: `call` failed.
    pub(crate) fn of<E: Into<std::io::Error>>(call: &'static str) -> impl FnOnce(E) -> Denial {
        move |error| {
            let errno = error.into().raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            Denial::Errno { call: call.to_owned(), errno }
        }
    }

    /// The error that the kernel answered with, if it answered.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Denial::Errno { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}

/// The names of the calls that make processes for trials, in [`Denial::Errno`].
pub(crate) const FORK: &str = "fork";
/// See [`FORK`].
pub(crate) const PIPE: &str = "pipe";

/// Time that a child may take for a few system calls. It takes seconds only on a machine that is
/// very busy or stops its processes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Set if children end with this process, however that ends.
static BOUND: AtomicBool = AtomicBool::new(false);

/// Has all children from now on end with this process, if that may be asked for: a child finds that
/// out, since a filter may kill it for `prctl`.
pub(crate) fn bind() {
    let parent = getpid();
    let bound = attempt("prctl", || program::end_with(parent).map_err(Denial::of("prctl")));
    BOUND.store(bound.is_ok(), Ordering::Relaxed);
}

/// Tries something in a child and waits for it. A death of the child is put down to `call`.
pub(crate) fn attempt<T>(call: &'static str, work: impl FnOnce() -> Tried<T>) -> Tried<T>
where
    T: Serialize + DeserializeOwned,
{
    start(call, work)?.finish(PATIENCE)
}

/// A child at work. Killed when dropped.
pub(crate) struct Child<T> {
    pid: Pid,
    call: &'static str,
    answer: Option<OwnedFd>,
    ended: bool,
    _answers: PhantomData<T>,
}

/// Starts trying something. A death of the child is put down to `call`.
///
/// # Errors
/// [`Denial::Errno`] of [`FORK`] if there can be no other process, or of the pipe to it.
pub(crate) fn start<T>(
    call: &'static str,
    work: impl FnOnce() -> Tried<T>,
) -> Result<Child<T>, Denial>
where
    T: Serialize + DeserializeOwned,
{
    let (answer, to) = pipe_with(PipeFlags::CLOEXEC).map_err(Denial::of(PIPE))?;
    let parent = getpid();
    let job = move || {
        if BOUND.load(Ordering::Relaxed) && program::end_with(parent).is_err() {
            return 1;
        }
        let answer = serde_json::to_vec(&work()).unwrap_or_default();
        let mut left = &answer[..];
        while !left.is_empty() {
            match rustix::io::write(&to, left) {
                Ok(written) => left = &left[written..],
                Err(Errno::INTR) => {}
                Err(_) => return 1,
            }
        }
        0
    };
    // SAFETY: this process has one thread; see the invariant.
    let pid = unsafe { pinfold_sys::child::spawn(job) }.map_err(Denial::of(FORK))?;
    Ok(Child { pid, call, answer: Some(answer), ended: false, _answers: PhantomData })
}

impl<T: DeserializeOwned> Child<T> {
    /// Waits for its answer, at most `patience`.
    pub(crate) fn finish(mut self, patience: Duration) -> Tried<T> {
        let answer = self.answer.take().map_or(Ok(Vec::new()), |from| read(from, patience));
        if answer.is_err() {
            // The child has something else to do than to answer.
            let _ = kill_process(self.pid, Signal::KILL);
        }
        let status = self.wait();
        if let Ok(answer) = answer.as_deref().map(serde_json::from_slice::<Tried<T>>)
            && let Ok(tried) = answer
        {
            return tried;
        }
        match (answer, status) {
            (Err(why), _) => Err(why),
            (Ok(_), Some(Ended::Signal(signal))) => {
                Err(Denial::Killed { call: self.call.to_owned(), signal })
            }
            (Ok(_), _) => Err(Denial::Untried("the trial ended without a result".into())),
        }
    }
}

impl<T> Child<T> {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    fn wait(&mut self) -> Option<Ended> {
        loop {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(Errno::INTR) | Ok(None) => {}
                Ok(Some((_, status))) => {
                    self.ended = true;
                    return Some(match status.terminating_signal() {
                        Some(signal) => Ended::Signal(signal),
                        None => Ended::Status,
                    });
                }
                Err(_) => return None,
            }
        }
    }
}

enum Ended {
    Status,
    Signal(i32),
}

impl<T> Drop for Child<T> {
    fn drop(&mut self) {
        if !self.ended {
            let _ = kill_process(self.pid, Signal::KILL);
            self.wait();
        }
    }
}

/// In a child: has the library keep names in this directory, if one is given, rather than in its
/// usual one.
pub(crate) fn look_for_names_in(place: Option<&PathBuf>) {
    if let Some(place) = place {
        // SAFETY: a child begins with one thread, and this is called before there are more.
        unsafe { std::env::set_var("PINFOLD_DIR", place) };
    }
}

/// Reads to the end.
fn read(from: OwnedFd, patience: Duration) -> Tried<Vec<u8>> {
    let start = Instant::now();
    let mut from = File::from(from);
    let (mut all, mut some) = (Vec::new(), [0; 4096]);
    loop {
        let left = patience.saturating_sub(start.elapsed());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&left)) {
            Ok(0) => {
                let seconds = patience.as_secs();
                return Err(Denial::Untried(format!("no result within {seconds} seconds")));
            }
            Ok(_) | Err(Errno::INTR) => {}
            // Without an answer the read waits.
            Err(_) => {}
        }
        match from.read(&mut some) {
            Ok(0) => return Ok(all),
            Ok(len) => all.extend_from_slice(&some[..len]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Denial::of("read")(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

    use super::*;

    #[test]
    fn trials_end_with_their_parent() {
        let (said, to) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let parent = || {
            bind();
            let trial = start("", || -> Tried<()> {
                File::from(to).write_all(&std::process::id().to_ne_bytes()).unwrap();
                loop {
                    std::thread::park();
                }
            });
            trial.map_or(1, |trial| i32::from(trial.finish(Duration::from_secs(600)).is_err()))
        };
        // SAFETY: the C library leaves a child its allocator, and the child takes no other lock.
        let parent = unsafe { pinfold_sys::child::spawn(parent) }.unwrap();
        let mut trial = [0; 4];
        File::from(said).read_exact(&mut trial).unwrap();
        let trial = Pid::from_raw(i32::from_ne_bytes(trial)).unwrap();
        let trial = pidfd_open(trial, PidfdFlags::empty()).unwrap();
        kill_process(parent, Signal::KILL).unwrap();
        waitpid(Some(parent), WaitOptions::empty()).unwrap();
        let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
        let ended = poll(&mut [PollFd::new(&trial, PollFlags::IN)], Some(&patience)).unwrap();
        let _ = pidfd_send_signal(&trial, Signal::KILL);
        assert_eq!(ended, 1, "the trial goes on");
    }
}
