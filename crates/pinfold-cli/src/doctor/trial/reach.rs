//! Other processes' memory: `process_vm_readv` and `process_vm_writev`, between two processes
//! related as two programs of one user are: neither is the other's ancestor.
//!
//! If that is denied, other pairs are tried: a process and itself, one that has allowed it, a child
//! of the one that tries. The pairs that work tell which mechanism denies it.

#![allow(unsafe_code)]
// Invariant: writes into this process, if any, go to the eight bytes of `HERE`.

use std::{
    os::fd::OwnedFd,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use pinfold_sys::process::{read_remote_into, write_remote_from};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    pipe::{PipeFlags, pipe_with},
    process::{DumpableBehavior, PTracer, dumpable_behavior, set_dumpable_behavior, set_ptracer},
};
use serde::{Deserialize, Serialize};

use super::super::child::{self, Child, Denial, Tried, attempt};

/// Time that the target waits to be looked at.
const PATIENCE: Duration = Duration::from_secs(20);

/// Both calls, tried on one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Both {
    pub(crate) read: Tried<()>,
    pub(crate) write: Tried<()>,
}

/// The processes that may reach each other's memory.
pub(crate) struct Reach {
    /// An unrelated process of the same user: the case that Pinfold needs.
    pub(crate) sibling: Both,
    /// Further pairs, tried only if the kernel denied that.
    pub(crate) others: Option<Others>,
}

/// Pairs that tell why.
pub(crate) struct Others {
    /// A process and itself, which only a filter can deny.
    pub(crate) own: Both,
    /// A child.
    pub(crate) child: Both,
    /// A process that has allowed it to all (`PR_SET_PTRACER`).
    pub(crate) willing: Both,
    /// One that has made itself dumpable.
    pub(crate) dumpable: Both,
}

impl Reach {
    /// Tries all that there is to try.
    pub(crate) fn out() -> Reach {
        let sibling = sibling(|| {}, Asked { read: true, write: true });
        // More can be found out only if the kernel itself said no.
        let said_no = |tried: &Tried<()>| {
            let errno = tried.as_ref().err().and_then(Denial::errno);
            matches!(errno, Some(libc::EPERM | libc::EACCES))
        };
        let asked = Asked { read: said_no(&sibling.read), write: said_no(&sibling.write) };
        let others = (asked.read || asked.write).then(|| Others {
            own: own(asked),
            child: attempt("", || Ok(descendant(asked))).unwrap_or_else(neither),
            willing: self::sibling(
                || {
                    // Without Yama the call is unknown, and changes nothing.
                    let _ = set_ptracer(PTracer::Any);
                },
                asked,
            ),
            dumpable: self::sibling(
                || {
                    let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
                },
                asked,
            ),
        });
        Reach { sibling, others }
    }
}

/// The calls to try.
#[derive(Clone, Copy)]
struct Asked {
    read: bool,
    write: bool,
}

impl Asked {
    fn both(self, read: impl FnOnce() -> Tried<()>, write: impl FnOnce() -> Tried<()>) -> Both {
        let not = || Err(Denial::Untried("there was no need to".into()));
        Both {
            read: if self.read { read() } else { not() },
            write: if self.write { write() } else { not() },
        }
    }
}

/// Returns whether other processes of its user may look into this process.
pub(crate) fn is_dumpable() -> Tried<bool> {
    let behavior = dumpable_behavior().map_err(Denial::of("prctl"))?;
    Ok(behavior == DumpableBehavior::Dumpable)
}

fn neither(why: Denial) -> Both {
    Both { read: Err(why.clone()), write: Err(why) }
}

/// The value that the target has at [`HERE`] and no other process has.
const SECRET: u64 = 0x7069_6e66_6f6c_6421;
/// The value that is written there.
const WRITTEN: u64 = 0x2164_6c6f_666e_6970;

/// At the same address in every copy of this process, each with contents of its own.
static HERE: AtomicU64 = AtomicU64::new(0);

const READ: &str = "process_vm_readv";
const WRITE: &str = "process_vm_writev";

fn own(asked: Asked) -> Both {
    HERE.store(SECRET, Ordering::SeqCst);
    let both = asked.both(
        || attempt(READ, || read(std::process::id())),
        || {
            attempt(WRITE, || {
                write(std::process::id())?;
                landed(HERE.load(Ordering::SeqCst))
            })
        },
    );
    HERE.store(0, Ordering::SeqCst);
    both
}

/// One process tries another one, both children of this one.
fn sibling(prepare: impl Fn(), asked: Asked) -> Both {
    let on_new_target = |call: &'static str, try_it: fn(u32) -> Tried<()>| {
        let target = Target::start(&prepare)?;
        attempt(call, || try_it(target.child.pid()))?;
        target.end()
    };
    asked.both(
        || on_new_target(READ, read).map(drop),
        || on_new_target(WRITE, write).and_then(landed),
    )
}

/// This process tries a child of its own.
fn descendant(asked: Asked) -> Both {
    let on_new_target = |try_it: fn(u32) -> Tried<()>| {
        let target = Target::start(&|| {})?;
        try_it(target.child.pid())?;
        target.end()
    };
    asked.both(|| on_new_target(read).map(drop), || on_new_target(write).and_then(landed))
}

fn landed(word: u64) -> Tried<()> {
    match word {
        WRITTEN => Ok(()),
        _ => Err(Denial::Wrong("what was written did not arrive".into())),
    }
}

fn read(pid: u32) -> Tried<()> {
    let mut word = [0; 8];
    let got = read_remote_into(pid, HERE.as_ptr() as u64, &mut word).map_err(Denial::of(READ))?;
    match (got, u64::from_ne_bytes(word)) {
        (8, SECRET) => Ok(()),
        _ => Err(Denial::Wrong("what was read is not what is there".into())),
    }
}

fn write(pid: u32) -> Tried<()> {
    match try_write(pid).map_err(Denial::of(WRITE))? {
        8 => Ok(()),
        _ => Err(Denial::Wrong("a part of the bytes was written".into())),
    }
}

fn try_write(pid: u32) -> std::io::Result<usize> {
    let at = HERE.as_ptr() as u64;
    // SAFETY: if the process is this one, the address is that of eight bytes of an atomic, which is
    // never freed, and nothing else runs meanwhile.
    unsafe { write_remote_from(pid, at, &WRITTEN.to_ne_bytes()) }
}

/// A process that holds still until it is told to end.
struct Target {
    child: Child<u64>,
    go: OwnedFd,
}

impl Target {
    /// Starts one, which first does `prepare`.
    fn start(prepare: &impl Fn()) -> Tried<Target> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(Denial::of(child::PIPE));
        let ((ready, is_ready), (gone, go)) = (pipe()?, pipe()?);
        let child = child::start("", move || {
            prepare();
            HERE.store(SECRET, Ordering::SeqCst);
            rustix::io::write(&is_ready, b"x").map_err(Denial::of("write"))?;
            // It holds the other end, too, and so would not notice that the other holder has ended.
            let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            poll(&mut [PollFd::new(&gone, PollFlags::IN)], Some(&patience))
                .map_err(Denial::of("poll"))?;
            Ok(HERE.load(Ordering::SeqCst))
        })?;
        match rustix::io::read(&ready, &mut [0; 1]) {
            Ok(1) => Ok(Target { child, go }),
            // It has ended, and says why.
            _ => match child.finish(PATIENCE) {
                Err(why) => Err(why),
                Ok(_) => Err(Denial::Untried("the process to look at did not wait".into())),
            },
        }
    }

    /// The value that is there in the end.
    fn end(self) -> Tried<u64> {
        rustix::io::write(&self.go, b"x").map_err(Denial::of("write"))?;
        self.child.finish(PATIENCE)
    }
}
